//! The side of work that others do: services that accepted a job for later, and clients that lease over
//! HTTP. Neither has a presence, so the end of the lease alone says that it is gone. Whatever ends such a
//! lease by its token is [`Run::settle`](super::Run::settle), as for any other.

use std::time::Duration;

use async_trait::async_trait;

use super::{Beat, Scope, SettleError, StoreError};
use crate::job::lease::{Lease, Token};
use crate::job::name::{BusinessKey, ClientName, JobId, Kind, Lane, Owner};

#[async_trait]
pub trait Remote {
    /// The lease is the service's for `until` from now; its token stays what it is. Nobody renews it:
    /// when it ends, a keeper makes of the job what a retryable failure would. Asked again, the answer is
    /// the same and nothing changes.
    async fn lend(&self, lease: &Lease, until: Duration) -> Result<(), SettleError>;

    /// While the job runs it is found by this key ([`Remote::awaited`]). Fenced.
    async fn correlate(&self, lease: &Lease, key: &BusinessKey) -> Result<(), SettleError>;

    /// Every lease of a client has been renewed for `lease`, or is lost, in the order asked. One that a
    /// service holds stands and is not extended.
    async fn renew(&self, leases: &[(JobId, Token)], lease: Duration) -> Result<Vec<Beat>, StoreError>;

    /// Jobs within `scope` that [`Run::claim`](super::Run::claim) may give, at most `max`: lanes in the
    /// given order, in each what is rung by its turn, then for one owner's scope what is due longest.
    async fn offer(
        &self,
        scope: &Scope,
        lanes: &[Lane],
        max: usize,
    ) -> Result<Vec<(JobId, Owner)>, StoreError>;

    /// The client is seen among the workers for the next minute.
    async fn pulls(&self, client: &Puller) -> Result<(), StoreError>;

    /// Running jobs of the kind that carry this key, or any key where none is given, those that have
    /// run longest first. Only what a service holds, where `lent`.
    async fn awaited(
        &self,
        kind: &Kind,
        key: Option<&BusinessKey>,
        lent: bool,
        max: usize,
    ) -> Result<Vec<Awaited>, StoreError>;
}

/// A client that asks for work over HTTP.
#[derive(Clone, Debug)]
pub struct Puller {
    pub name: ClientName,
    /// Whose jobs it may get.
    pub owner: Option<Owner>,
    pub kinds: Vec<Kind>,
    /// The most it asks for at a time.
    pub max: u32,
}

impl Puller {
    /// How long after its last call a client counts as there.
    pub const SEEN: Duration = Duration::from_secs(60);
}

/// A running job that is found by what the outside calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    pub job: JobId,
    pub token: Token,
    pub key: BusinessKey,
}
