//! What owners have taught: a classifier for each set of labels, trained when it is asked for and the set is
//! another than it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mapae::job::name::{Owner, SetName};
use mapae::job::retry::Failure;
use mapae::store::contract::{Example, LabelSet, SET_EXAMPLES_MAX, Store, StoreError};
use mapae_ai::classify::{self, Classifier, Label, TrainError};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::Local;

/// Classifiers that are kept; beyond that all are forgotten. One may take some megabytes.
const KNOWN_MAX: usize = 32;
/// Trainings at a time: each takes a processor for seconds, a large set for minutes. The second is for other owners.
const TRAININGS_MAX: usize = 2;

/// The classifiers of one database. An owner's are never another's: they are known by both their names.
pub struct Taught {
    store: Arc<dyn Store>,
    known: Arc<Mutex<HashMap<Key, Known>>>,
    /// One training of an owner at a time: whoever waits may want the same. Forgotten once nobody holds or awaits it.
    turns: Mutex<HashMap<Owner, Weak<tokio::sync::Mutex<()>>>>,
    trainings: Arc<Semaphore>,
}

type Key = (Owner, SetName);

struct Known {
    version: Uuid,
    classifier: Arc<Classifier>,
}

/// The right to train, for as long as the training goes on: not only as long as somebody waits for it.
struct Turn {
    _owners: OwnedMutexGuard<()>,
    _training: OwnedSemaphorePermit,
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
        let trainings = Arc::new(Semaphore::new(TRAININGS_MAX));
        Self { store, known: Arc::default(), turns: Mutex::default(), trainings }
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
        let owners = self.owners_turn(owner).lock_owned().await;
        // Read again: the one that trained before may have trained this, and the set may be another by now. Where it
        // changes while its examples are read, the next to ask trains again.
        let found = self.store.label_set(owner, set).await?.ok_or(TaughtError::Unknown)?;
        if let Some(classifier) = self.known(&key, found.version) {
            return Ok((found, classifier));
        }
        let training = self.trainings.clone().acquire_owned().await.map_err(|_| TaughtError::Ended)?;
        let turn = Turn { _owners: owners, _training: training };
        let examples = self.store.examples(owner, set, None, SET_EXAMPLES_MAX).await?;
        let local = local.clone();
        let classifier = self.learn(turn, key, found.version, move || train(&examples, &local)).await?;
        Ok((found, classifier))
    }

    /// Trains on a thread where it may take its time. That goes on where nobody waits for it any more, so the turn goes
    /// along, and what was learnt is kept for whoever asks next.
    async fn learn(
        &self,
        turn: Turn,
        key: Key,
        version: Uuid,
        train: impl FnOnce() -> Result<Classifier, TrainError> + Send + 'static,
    ) -> Result<Arc<Classifier>, TaughtError> {
        let known = self.known.clone();
        let trained = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let classifier = Arc::new(train()?);
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= KNOWN_MAX && !known.contains_key(&key) {
                known.clear();
            }
            known.insert(key, Known { version, classifier: classifier.clone() });
            Ok::<_, TrainError>(classifier)
        });
        Ok(trained.await.map_err(|_| TaughtError::Ended)??)
    }

    fn owners_turn(&self, owner: &Owner) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(owner).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(owner.clone(), Arc::downgrade(&turn));
        turn
    }

    fn known(&self, key: &Key, version: Uuid) -> Option<Arc<Classifier>> {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use mapae::job::name::LabelName;
    use mapae::store::contract::Labels;
    use mapae::store::memory::Memory;

    use super::*;

    fn example(label: &str, text: &str) -> Example {
        Example::new(LabelName::new(label).unwrap(), "", text, false).unwrap()
    }

    #[tokio::test]
    async fn a_training_nobody_waits_for_still_has_its_turn_and_what_it_learns_is_kept() {
        let store = Arc::new(Memory::new());
        let (owner, set) = (Owner::new("a").unwrap(), SetName::new("post").unwrap());
        let examples = [example("invoice", "세금계산서를 보냅니다"), example("cv", "이력서를 보냅니다")];
        let taught_set = store.teach(&owner, &set, &examples).await.unwrap();
        let taught = Arc::new(Taught::new(store));

        let turn = Turn {
            _owners: taught.owners_turn(&owner).lock_owned().await,
            _training: taught.trainings.clone().acquire_owned().await.unwrap(),
        };
        let ((began, begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        let (key, one) = ((owner.clone(), set.clone()), taught.clone());
        let caller = tokio::spawn(async move {
            let slow = move || {
                began.send(()).unwrap();
                released.recv().unwrap();
                train(&examples, &Local::default())
            };
            one.learn(turn, key, taught_set.version, slow).await.map(|_| ())
        });
        tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());

        let turns = taught.owners_turn(&owner);
        assert!(turns.clone().try_lock_owned().is_err(), "the same owner's next training waits");
        assert_eq!(taught.trainings.available_permits(), TRAININGS_MAX - 1);
        let other = taught.owners_turn(&Owner::new("b").unwrap());
        assert!(other.try_lock_owned().is_ok(), "another owner's does not");

        release.send(()).unwrap();
        drop(turns.lock_owned().await);
        assert!(taught.known(&(owner.clone(), set.clone()), taught_set.version).is_some());
        let (_, classifier) = taught.classifier(&owner, &set, &Local::default()).await.unwrap();
        assert_eq!(classifier.labels(), ["cv", "invoice"]);
    }
}
