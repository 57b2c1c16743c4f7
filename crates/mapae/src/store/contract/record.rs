//! What a store does by itself for the user's own records: jobs submitted by SQL, and what is written when they end.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::job::End;
use crate::job::follow::Follow;
use crate::job::name::Kind;
use crate::job::retry::RetryPolicy;
use crate::job::timestamp::Timestamp;

#[async_trait]
pub trait Records {
    /// The store knows of these kinds, of no others, and of whether anybody takes events away; unless processes have
    /// another configuration that was first heard of later: then that one stays in force. Who stays asks again every
    /// [`DESCRIBED_EVERY`]. Where the store can do nothing by itself, nothing happens.
    async fn describe(&self, kinds: &[KindPlan]) -> Result<Described, StoreError>;

    /// The configurations that processes have, the one in force first. None where the store can do nothing by itself.
    async fn configurations(&self) -> Result<Vec<Configuration>, StoreError>;

    /// Some program has said that it submitted jobs (`select mapae.ring()`). Waits for that as long as it takes, and
    /// for ever where no program can. One waits at a time.
    async fn heard(&self) -> Result<(), StoreError>;
}

/// How often a process that stays says with which configuration of kinds it runs.
pub const DESCRIBED_EVERY: Duration = Duration::from_secs(30);

/// What became of telling the store of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// It is what the store goes by. Otherwise another does, which is newer and which some process has.
    pub in_force: bool,
    /// So many other configurations do processes have just now.
    pub others: usize,
}

/// A configuration of kinds that processes run with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The same for the same configuration.
    pub mark: String,
    pub first_at: Timestamp,
    pub seen_at: Timestamp,
    pub in_force: bool,
}

/// What the configuration says of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct KindPlan {
    pub kind: Kind,
    pub retry: RetryPolicy,
    /// Two of its jobs may be the same work.
    pub singular: bool,
    pub on: Vec<Follow>,
    /// Statements that run in the transaction that ends a job. Their parameters are $1 the result, $2 the params, $3
    /// the failure, $4 the job's id, $5 its owner, $6 the attempt.
    pub writes: BTreeMap<End, String>,
}
