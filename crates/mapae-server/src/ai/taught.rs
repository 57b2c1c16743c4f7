//! What owners have taught: a classifier for each set of labels, trained when it is asked for and the set is
//! another than it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use mapae::job::name::{Owner, SetName};
use mapae::job::retry::Failure;
use mapae::store::contract::{Example, LabelSet, SET_EXAMPLES_MAX, Store, StoreError};
use mapae_ai::classify::{self, Classifier, Label, TrainError};
use uuid::Uuid;

use super::Local;

/// Classifiers that are kept; beyond that all are forgotten. One may take some megabytes.
const KNOWN_MAX: usize = 32;

/// The classifiers of one database. An owner's are never another's: they are known by both their names.
pub struct Taught {
    store: Arc<dyn Store>,
    known: Mutex<HashMap<(Owner, SetName), Known>>,
    /// One training at a time: it takes seconds of a processor, and whoever waits may want the same.
    training: tokio::sync::Mutex<()>,
}

struct Known {
    version: Uuid,
    classifier: Arc<Classifier>,
}

/// Why there is no classifier.
#[derive(Debug, thiserror::Error)]
pub enum TaughtError {
    #[error("There is no set of labels of that name.")]
    Unknown,
    #[error("Nothing can be learnt from the set of labels: {0}.")]
    Train(#[from] TrainError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("The training ended early.")]
    Ended,
}

impl From<TaughtError> for Failure {
    fn from(error: TaughtError) -> Self {
        match &error {
            TaughtError::Unknown => Failure::terminal("labels-not-found", error.to_string()),
            TaughtError::Train(cause) => Failure::terminal(cause.code(), error.to_string()),
            TaughtError::Store(cause) => {
                Failure::retryable(cause.code(), "The labels could not be read from the database.")
            }
            TaughtError::Ended => Failure::retryable("understand-failed", error.to_string()),
        }
    }
}

impl Taught {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, known: Mutex::default(), training: tokio::sync::Mutex::default() }
    }

    /// What the owner's set teaches as it stands, and the set.
    ///
    /// # Errors
    /// [`TaughtError`] where there is no such set, or nothing can be learnt from it.
    pub(crate) async fn classifier(
        &self,
        owner: &Owner,
        set: &SetName,
        local: &Local,
    ) -> Result<(LabelSet, Arc<Classifier>), TaughtError> {
        let key = (owner.clone(), set.clone());
        let found = self.store.label_set(owner, set).await?.ok_or(TaughtError::Unknown)?;
        if let Some(classifier) = self.known(&key, found.version) {
            return Ok((found, classifier));
        }
        let _turn = self.training.lock().await;
        // Read again: the one that trained before may have trained this, and the set may be another by now. Where it
        // changes while its examples are read, the next to ask trains again.
        let found = self.store.label_set(owner, set).await?.ok_or(TaughtError::Unknown)?;
        if let Some(classifier) = self.known(&key, found.version) {
            return Ok((found, classifier));
        }
        let examples = self.store.examples(owner, set, None, SET_EXAMPLES_MAX).await?;
        let local = local.clone();
        let trained = tokio::task::spawn_blocking(move || train(&examples, &local));
        let classifier = Arc::new(trained.await.map_err(|_| TaughtError::Ended)??);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX && !known.contains_key(&key) {
            known.clear();
        }
        known.insert(key, Known { version: found.version, classifier: classifier.clone() });
        Ok((found, classifier))
    }

    fn known(&self, key: &(Owner, SetName), version: Uuid) -> Option<Arc<Classifier>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|known| known.version == version).map(|known| known.classifier.clone())
    }
}

fn train(examples: &[Example], local: &Local) -> Result<Classifier, TrainError> {
    // By name, so that answers and reports have them in an order that means something.
    let mut labels: BTreeMap<&str, Label> = BTreeMap::new();
    for example in examples {
        let name = example.label.as_str();
        let label = labels.entry(name).or_default();
        label.name = name.to_owned();
        if example.describes {
            label.description.clone_from(&example.text);
        }
    }
    let labels: Vec<Label> = labels.into_values().collect();
    let example = |e: &Example| classify::Example {
        label: e.label.to_string(),
        text: if e.title.is_empty() { e.text.clone() } else { format!("{}\n\n{}", e.title, e.text) },
    };
    let texts: Vec<classify::Example> = examples.iter().filter(|e| !e.describes).map(example).collect();
    Classifier::train(&labels, &texts, local.embedder())
}
