//! Batches: jobs that wait until others have ended. See [`crate::job::batch`].

use async_trait::async_trait;

use super::{AcceptError, Accepted, AddError, ControlError, Scope, SettleError, StoreError};
use crate::job::batch::{BatchState, Member};
use crate::job::lease::Lease;
use crate::job::name::JobId;
use crate::job::record::NewJob;

#[async_trait]
pub trait Batches {
    /// The parent and its parts are durable, all of them or none, and the parent waits until all parts have ended;
    /// where it is not `sealed`, until it is. Given again, the answer is the first one's. Parts have no
    /// unique keys, no callbacks and nothing that comes after them, and here no idempotency keys.
    async fn accept_batch(
        &self,
        parent: NewJob,
        parts: Vec<NewJob>,
        sealed: bool,
    ) -> Result<Accepted, AcceptError>;

    /// These are parts of the batch, too; answers how many it has now. A conflict where it is sealed, its parent has
    /// ended, or there would be more than [`MEMBERS_MAX`](crate::job::batch::MEMBERS_MAX). Given again (their ids), they are
    /// there once. The first may have an idempotency key, which is that of all of them: where it was used for
    /// something else, none is added.
    async fn add_parts(&self, scope: &Scope, parent: JobId, parts: Vec<NewJob>) -> Result<u32, AddError>;

    /// No part is added any more. A conflict where the parent has ended.
    async fn seal(&self, scope: &Scope, parent: JobId) -> Result<(), ControlError>;

    /// The running job has these parts from now on, and no others; it goes on waiting by
    /// [`Verdict::Await`](crate::job::retry::Verdict::Await). False, with nothing changed, where it had parts already.
    /// Fenced.
    async fn fan_out(&self, lease: &Lease, parts: Vec<NewJob>) -> Result<bool, SettleError>;

    /// How the job's batch stands; `None` where it has none.
    async fn batch(&self, scope: &Scope, parent: JobId) -> Result<Option<BatchState>, StoreError>;

    /// The parts after that number, in order, with what they gave as long as that is kept: as long as the parent
    /// waits, at least.
    async fn members(
        &self,
        scope: &Scope,
        parent: JobId,
        after: Option<u32>,
        max: usize,
    ) -> Result<Vec<Member>, StoreError>;

    /// The batch that the job is a part of.
    async fn batch_of(&self, scope: &Scope, job: JobId) -> Result<Option<JobId>, StoreError>;

    /// Jobs that wait for their batch, all of whose parts have ended, are due now, at most `max`; answers how many.
    async fn wake(&self, max: usize) -> Result<usize, StoreError>;

    /// Parts that have not ended although their parent has, at most `max`, but for those that were asked to stop.
    async fn strays(&self, max: usize) -> Result<Vec<JobId>, StoreError>;
}
