//! Labelled examples.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use uuid::Uuid;

use super::Memory;
use crate::job::name::{Owner, SetName};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{
    Example, ExampleId, LabelSet, Labels, SETS_MAX, StoreError, TeachError, distinct,
};

#[derive(Clone, Default)]
pub(super) struct Set {
    version: Uuid,
    changed_at: Timestamp,
    examples: BTreeMap<ExampleId, Example>,
}

impl Set {
    fn told(&self, name: &SetName) -> LabelSet {
        let labels: BTreeSet<_> = self.examples.values().map(|example| &example.label).collect();
        let bytes = |example: &Example| (example.title.len() + example.text.len()) as u64;
        LabelSet {
            name: name.clone(),
            version: self.version,
            examples: self.examples.len() as u32,
            labels: labels.len() as u32,
            bytes: self.examples.values().map(bytes).sum(),
            changed_at: self.changed_at,
        }
    }
}

#[async_trait]
impl Labels for Memory {
    async fn teach(
        &self,
        owner: &Owner,
        set: &SetName,
        examples: &[Example],
    ) -> Result<LabelSet, TeachError> {
        let mut tables = self.tables();
        let now = tables.now();
        let key = (owner.clone(), set.clone());
        let sets = tables.labels.keys().filter(|(of, name)| of == owner && name != set).count();
        if sets >= SETS_MAX {
            return Err(TeachError::TooManySets);
        }
        let mut changed = tables.labels.get(&key).cloned().unwrap_or_default();
        changed.examples.extend(distinct(examples).into_iter().map(|(id, example)| (id, example.clone())));
        (changed.version, changed.changed_at) = (Uuid::now_v7(), now);
        let told = changed.told(set).within_bounds()?;
        tables.labels.insert(key, changed);
        Ok(told)
    }

    async fn unteach(&self, owner: &Owner, set: &SetName, id: ExampleId) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        let Some(known) = tables.labels.get_mut(&(owner.clone(), set.clone())) else { return Ok(false) };
        if known.examples.remove(&id).is_none() {
            return Ok(false);
        }
        (known.version, known.changed_at) = (Uuid::now_v7(), now);
        Ok(true)
    }

    async fn forget(&self, owner: &Owner, set: &SetName) -> Result<bool, StoreError> {
        Ok(self.tables().labels.remove(&(owner.clone(), set.clone())).is_some())
    }

    async fn label_sets(&self, owner: &Owner) -> Result<Vec<LabelSet>, StoreError> {
        let tables = self.tables();
        let own = tables.labels.iter().filter(|((of, _), _)| of == owner);
        Ok(own.map(|((_, name), set)| set.told(name)).collect())
    }

    async fn label_set(&self, owner: &Owner, set: &SetName) -> Result<Option<LabelSet>, StoreError> {
        Ok(self.tables().labels.get(&(owner.clone(), set.clone())).map(|known| known.told(set)))
    }

    async fn examples(
        &self,
        owner: &Owner,
        set: &SetName,
        after: Option<ExampleId>,
        limit: usize,
    ) -> Result<Vec<Example>, StoreError> {
        let tables = self.tables();
        let Some(known) = tables.labels.get(&(owner.clone(), set.clone())) else { return Ok(Vec::new()) };
        let after = known.examples.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
        Ok(after.map(|(_, example)| example.clone()).take(limit).collect())
    }
}
