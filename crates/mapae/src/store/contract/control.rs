//! Accepting jobs, what people may do to them, and the keys by which they are let in.

use async_trait::async_trait;

use super::{Scope, StoreError};
use crate::job::State;
use crate::job::name::{Assignee, IdempotencyKey, JobId, Lane, Owner};
use crate::job::record::NewJob;
use crate::job::timestamp::Timestamp;

#[async_trait]
pub trait Control {
    /// The job is durable, or the first one under the same key and body is named (T1). The very same job
    /// (its id) given again is answered as accepted before: an answer that was lost can be asked for. A key whose
    /// job is gone, deleted or pruned, is free for another submission. While
    /// another job holds its unique key, that one is named and no row is made.
    /// Concurrent calls share commits.
    async fn accept(&self, job: NewJob) -> Result<Accepted, AcceptError>;

    /// The job that was accepted under this key, with the hash of what was submitted, while that job is there.
    async fn submission(
        &self,
        owner: &Owner,
        key: &IdempotencyKey,
    ) -> Result<Option<(JobId, [u8; 32])>, StoreError>;

    /// Pending: cancelled. Running: its worker has been asked (T10). Answers the state it is in now.
    async fn cancel(&self, scope: &Scope, id: JobId) -> Result<State, ControlError>;

    /// The job is unreadable from now on; once it has ended it becomes a tombstone (T11). Answers whether this
    /// has cancelled it, because it had not begun.
    async fn delete(&self, scope: &Scope, id: JobId) -> Result<bool, ControlError>;

    /// The dead letter is unreadable from now on and becomes a tombstone; one that was sent back to work
    /// meanwhile is left alone.
    async fn resolve(&self, scope: &Scope, id: JobId) -> Result<(), ControlError>;

    /// The dead letter is this assignee's to look after, or nobody's, until it is redriven. Its state and its
    /// history do not change.
    async fn assign(&self, scope: &Scope, id: JobId, to: Option<&Assignee>) -> Result<(), ControlError>;

    /// The dead letter is pending again, due now, with a fresh budget and its history, and nobody's (T13).
    async fn redrive(&self, scope: &Scope, id: JobId) -> Result<(), ControlError>;

    /// No job of the lane is claimed or rung until it is resumed. Running ones go on.
    async fn pause(&self, lane: &Lane) -> Result<(), StoreError>;

    async fn resume(&self, lane: &Lane) -> Result<(), StoreError>;

    /// The key can be used. Only its hash is kept.
    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, StoreError>;

    /// The key with this hash, unless it was revoked or has expired.
    async fn key(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>, StoreError>;

    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError>;

    /// False where no such key is.
    async fn revoke_key(&self, id: &str) -> Result<bool, StoreError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub id: JobId,
    /// This submission had been accepted before, or is the same work as another.
    pub again: bool,
    /// Another job holds its unique key, and is the one named.
    pub duplicate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Another submission was accepted under this key.
    #[error("the idempotency key was used for another submission")]
    KeyReused,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AcceptError {
    /// Of a job that has no key which could have been used before.
    pub(crate) fn without_key(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            other => StoreError::Broken(other.to_string().into()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Not there, or not within the caller's scope.
    #[error("no such job")]
    NotFound,
    /// The job's state does not allow it.
    #[error("the job is {}", .0.as_str())]
    Conflict(State),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why no part was added to a batch.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Accept(#[from] AcceptError),
}

impl From<StoreError> for AddError {
    fn from(error: StoreError) -> Self {
        Self::Accept(error.into())
    }
}

#[derive(Clone, Debug)]
pub struct NewKey {
    /// Public part: names the key in lists and logs.
    pub id: String,
    /// SHA-256 of the whole key. A key is 256 random bits, so a slow hash would add nothing.
    pub hash: [u8; 32],
    /// `None` for all owners.
    pub owner: Option<Owner>,
    pub scopes: Vec<String>,
    /// Lifetime from now, for ever where `None`.
    pub lifetime: Option<std::time::Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: String,
    pub owner: Option<Owner>,
    pub scopes: Vec<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}
