//! Forgetting: what a store no longer keeps, and the files that go with it. Every call is bounded by its
//! `max` and safe beside any number of others.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::job::timestamp::Timestamp;

#[async_trait]
pub trait Tidy {
    /// Deleted jobs that have ended are tombstones now, finished ones past their retention are gone, and
    /// their files are in the garbage. Their events stay until they have been sent, and a job that has a
    /// callback until its events stand before that. What a receiver did not take and was given up is forgotten once it
    /// is as old as a dead letter may be; what still stands there is not.
    async fn prune(&self, retention: &Retention, max: usize) -> Result<Pruned, StoreError>;

    /// Files that nothing refers to any more and that may be removed.
    async fn garbage(&self, max: usize) -> Result<Vec<Garbage>, StoreError>;

    /// These files are gone.
    async fn swept(&self, files: &[Garbage]) -> Result<(), StoreError>;

    /// Of these names in the file store, those that some row refers to or, because its job has not ended,
    /// may yet refer to.
    async fn referenced(&self, files: &[String]) -> Result<Vec<String>, StoreError>;
}

/// How long things are kept after their job ended.
#[derive(Clone, Debug)]
pub struct Retention {
    pub finished: Duration,
    /// Dead letters wait longer: somebody has to look at them.
    pub failed: Duration,
    /// How long idempotency keys, tombstones and workers that are gone are remembered. The key of a job that
    /// has not ended is remembered at least until it has.
    pub memory: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self { finished: 7 * day, failed: 90 * day, memory: 2 * day }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub buried: usize,
    pub expired: usize,
}

/// A file to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    pub file: String,
    pub since: Timestamp,
}
