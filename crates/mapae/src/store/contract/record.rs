//! What a store does by itself for the user's own records: jobs submitted by SQL, and what is written when they end.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::StoreError;
use crate::job::End;
use crate::job::follow::Follow;
use crate::job::name::Kind;
use crate::job::retry::RetryPolicy;

#[async_trait]
pub trait Records {
    /// The store knows of these kinds, of no others, and of whether anybody takes events away. Where it can do
    /// nothing by itself, nothing happens.
    async fn describe(&self, kinds: &[KindPlan]) -> Result<(), StoreError>;

    /// Some program has said that it submitted jobs (`select mapae.ring()`). Waits for that as long as it takes, and
    /// for ever where no program can. One waits at a time.
    async fn heard(&self) -> Result<(), StoreError>;
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
