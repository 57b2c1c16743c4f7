//! Labelled examples that an owner teaches with, in sets. What is learnt of them is not the store's to know.

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::StoreError;
use crate::job::name::{LabelName, Owner, SetName};
use crate::job::timestamp::Timestamp;

/// Sets of one owner.
pub const SETS_MAX: usize = 100;
/// Examples of one set, descriptions of labels among them.
pub const SET_EXAMPLES_MAX: usize = 2_000;
/// Labels of one set.
pub const LABELS_MAX: usize = 100;
/// Bytes of the titles and texts of one set.
pub const SET_BYTES_MAX: u64 = 32 << 20;
/// Characters of a text that are kept: no more are ever looked at.
pub const TEXT_CHARS_MAX: usize = 6_000;
/// Characters of a title that are kept.
const TITLE_CHARS_MAX: usize = 500;

#[async_trait]
pub trait Labels {
    /// The set has these examples, all or none of them, and is made where it is not there. Of a text that it has
    /// already the label is now this one: a correction is an example like any other. Of two of a call that are of
    /// one text the last counts.
    async fn teach(&self, owner: &Owner, set: &SetName, examples: &[Example])
    -> Result<LabelSet, TeachError>;

    /// The set does not have the example; false where it had not.
    async fn unteach(&self, owner: &Owner, set: &SetName, id: ExampleId) -> Result<bool, StoreError>;

    /// The set is gone with all it had; false where it was not there.
    async fn forget(&self, owner: &Owner, set: &SetName) -> Result<bool, StoreError>;

    /// All of the owner's, by name.
    async fn label_sets(&self, owner: &Owner) -> Result<Vec<LabelSet>, StoreError>;

    async fn label_set(&self, owner: &Owner, set: &SetName) -> Result<Option<LabelSet>, StoreError>;

    /// At most `limit`, in the order of their ids, after that one.
    async fn examples(
        &self,
        owner: &Owner,
        set: &SetName,
        after: Option<ExampleId>,
        limit: usize,
    ) -> Result<Vec<Example>, StoreError>;
}

/// Made of what an example's text is, so that the same text is the same example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExampleId(pub Uuid);

/// A text whose label is known, or what is said of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    pub label: LabelName,
    /// Empty where it has none.
    pub title: String,
    /// Never empty.
    pub text: String,
    /// The text says in a few words what belongs under the label.
    pub describes: bool,
}

/// A set as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSet {
    pub name: SetName,
    /// Another one after every change, and never one that was before.
    pub version: Uuid,
    /// Descriptions of labels among them.
    pub examples: u32,
    pub labels: u32,
    /// Of titles and texts.
    pub bytes: u64,
    pub changed_at: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum TeachError {
    #[error("the owner has {SETS_MAX} sets of labels, and may not have more")]
    TooManySets,
    #[error("the set would have {0} examples, and may have {SET_EXAMPLES_MAX}")]
    TooManyExamples(u32),
    #[error("the set would have {0} labels, and may have {LABELS_MAX}")]
    TooManyLabels(u32),
    #[error("the set would have {0} bytes of text, and may have {SET_BYTES_MAX}")]
    TooLarge(u64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Example {
    /// Cut to what is kept. `None` where there is no text.
    pub fn new(label: LabelName, title: &str, text: &str, describes: bool) -> Option<Self> {
        let (title, text) = (cut(title, TITLE_CHARS_MAX), cut(text, TEXT_CHARS_MAX));
        (!text.is_empty()).then_some(Self { label, title, text, describes })
    }

    pub fn id(&self) -> ExampleId {
        let mut digest = Sha256::new();
        if self.describes {
            // One for each label.
            digest.update([1]);
            digest.update(self.label.as_str());
        } else {
            digest.update([0]);
            digest.update(&self.title);
            digest.update([0]);
            digest.update(&self.text);
        }
        let digest = digest.finalize();
        let half = std::array::from_fn(|i| digest[i]);
        ExampleId(Uuid::from_bytes(half))
    }
}

impl LabelSet {
    /// The set as it would be, where it may be that large.
    pub(crate) fn within_bounds(self) -> Result<Self, TeachError> {
        if self.examples as usize > SET_EXAMPLES_MAX {
            return Err(TeachError::TooManyExamples(self.examples));
        }
        if self.labels as usize > LABELS_MAX {
            return Err(TeachError::TooManyLabels(self.labels));
        }
        if self.bytes > SET_BYTES_MAX {
            return Err(TeachError::TooLarge(self.bytes));
        }
        Ok(self)
    }
}

impl TeachError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooManySets => "label-sets-full",
            Self::TooManyExamples(_) | Self::TooManyLabels(_) | Self::TooLarge(_) => "label-set-full",
            Self::Store(error) => error.code(),
        }
    }
}

/// The first characters, without NULs, which PostgreSQL's text does not take (documentation 8.3).
fn cut(text: &str, chars: usize) -> String {
    text.trim().chars().filter(|c| *c != '\0').take(chars).collect()
}

/// The last of each id, in the order of their ids.
pub(crate) fn distinct(examples: &[Example]) -> Vec<(ExampleId, &Example)> {
    let by_id: std::collections::BTreeMap<ExampleId, &Example> =
        examples.iter().map(|example| (example.id(), example)).collect();
    by_id.into_iter().collect()
}
