//! The worker's side of a store: join, claim, keep alive, settle.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::job::State;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::limit::Stop;
use crate::job::name::{JobId, Kind, Lane, Owner};
use crate::job::record::{Checkpoint, Job, Output, Progress};
use crate::job::resource::Room;
use crate::job::retry::Verdict;
use crate::job::timestamp::Timestamp;

#[async_trait]
pub trait Run {
    /// The name in `join` is held by this process's presence, and every lease of an earlier life of
    /// that name has ended (T9). A second process of one name gets `name-2`, or is refused where the
    /// name was configured.
    ///
    /// The member's connections are its own and belong to the runtime this is called on: call it on
    /// the heartbeat thread's.
    async fn join(&self, join: &Join) -> Result<Box<dyn Member>, JoinError>;

    /// For each pointer, in order, whether it may run now (T3 to T3f). Whatever is `Run` has used an
    /// attempt and is leased to `holder` for `lease`. One round trip, whatever the number.
    async fn claim(
        &self,
        holder: &Holder,
        pointers: &[(JobId, Owner)],
        lease: Duration,
    ) -> Result<Vec<Claim>, StoreError> {
        self.claim_pointers(holder, pointers, lease, &[]).await
    }

    /// As [`Run::claim`]. `room` is what the claimer has for itself of resources that its jobs need by their
    /// size: what may run fits in there.
    async fn claim_pointers(
        &self,
        holder: &Holder,
        pointers: &[(JobId, Owner)],
        lease: Duration,
        room: &[Room],
    ) -> Result<Vec<Claim>, StoreError>;

    /// Up to the quota of each lane, rung jobs are leased to `holder` as by [`Run::claim`], in the order
    /// of their turns; lanes come in the given order. At most `max` in all. Paused lanes give nothing.
    async fn claim_rung(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Holding>, StoreError> {
        Ok(self.claim_lanes(holder, lanes, max, lease, &[]).await?.holdings)
    }

    /// As [`Run::claim_rung`], and says what kept jobs of these lanes waiting. `room` is as there.
    async fn claim_lanes(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
        room: &[Room],
    ) -> Result<Claimed, StoreError>;

    /// The leases that `holder` has taken within `since` and that are still its own: after a claim whose answer was
    /// lost these are what it may have taken.
    async fn taken(&self, holder: &Holder, since: Duration) -> Result<Vec<(JobId, Token)>, StoreError>;

    /// The verdict is committed, with the result and the event, or it is refused and nothing has
    /// changed (T5, T6, T6b). Asked again with the lease that settled the job already, it answers the
    /// state the job is in: an answer that was lost can be asked for. Concurrent calls share commits.
    async fn settle(&self, settlement: Settlement) -> Result<State, SettleError>;

    /// The job shows this progress. Fenced.
    async fn progress(&self, lease: &Lease, progress: &Progress) -> Result<(), SettleError>;

    /// The stage's output is kept and will be given to later attempts; the `stage` event is written.
    /// A second checkpoint of one stage replaces the first. Fenced.
    async fn checkpoint(&self, lease: &Lease, checkpoint: &Checkpoint) -> Result<(), SettleError>;

    /// The stages done so far, in the order they were done.
    async fn checkpoints(&self, job: JobId) -> Result<Vec<Checkpoint>, StoreError>;
}

/// What a worker says of itself when it starts.
#[derive(Clone, Debug)]
pub struct Join {
    pub name: String,
    /// The name was configured: being another is not an option.
    pub strict: bool,
    pub kinds: Vec<Kind>,
    pub slots: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("a worker named {0:?} is alive: give this one another `worker.name`, or stop the other")]
    NameTaken(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A worker's standing in the store: its presence and its heartbeat, on connections of their own.
///
/// Dropping it gives the presence up, which tells the keepers at once that the worker is gone.
#[async_trait]
pub trait Member: Send {
    fn holder(&self) -> &Holder;

    /// Every lease named has been renewed for `lease` (counted from the database's now), or is lost.
    /// Answers in the order asked. The worker's row shows `report`. One round trip. Where the presence
    /// was lost it has been taken up again.
    async fn beat(
        &mut self,
        leases: &[(JobId, Token)],
        lease: Duration,
        report: &WorkerReport,
    ) -> Result<Vec<Beat>, StoreError>;

    /// The worker's row is gone and its name is free.
    async fn leave(self: Box<Self>) -> Result<(), StoreError>;
}

/// What people see of a worker. No names of jobs or owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// The worker's life: `consuming`, `draining` …
    pub phase: String,
    pub busy: u32,
    /// How often it tells of itself; 0 where it has not said.
    #[serde(default)]
    pub heartbeat_ms: u64,
    /// Kinds that wait here although due, each with the resource it waits for.
    pub waiting: Vec<(Kind, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    Renewed {
        cancel_asked: bool,
    },
    /// Another transaction has the row: nothing was changed, and the next beat asks again.
    Busy,
    Lost,
}

/// How many jobs of a lane a worker could start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneQuota {
    pub lane: Lane,
    pub max: usize,
}

/// A job and the right to run it.
#[derive(Clone, Debug, PartialEq)]
pub struct Holding {
    pub job: Job,
    pub lease: Lease,
}

/// What was claimed of some lanes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claimed {
    pub holdings: Vec<Holding>,
    /// Why due jobs of these lanes did not start, each gate once.
    pub stops: Vec<Stop>,
    /// Of a part of the claim there was no answer: it may hold more ([`Run::taken`]).
    pub unsure: bool,
}

impl Claimed {
    /// Each gate is told of once, with the first job that waits there.
    pub(crate) fn stopped(&mut self, stop: Stop) {
        if self.stops.iter().all(|told| (&told.gate, &told.owner) != (&stop.gate, &stop.owner)) {
            self.stops.push(stop);
        }
    }
}

/// What a claim answers for one pointer (contract section 4).
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    Run(Box<Holding>),
    /// Ended before: acknowledge.
    Finished(State),
    /// Its budget or its deadline was spent: this claim has settled it as failed; acknowledge.
    Failed,
    /// Pending, due later: acknowledge, the row brings it back.
    NotDue(Timestamp),
    /// Another live lease: leave it unacknowledged where the broker can.
    Busy(Timestamp),
    /// Its lane is paused: acknowledge. It is rung no more, so that a keeper rings once it is resumed.
    Paused,
    /// A gate is closed to it: keep it, and ask again when the stop says.
    Waits(Stop),
    /// Another transaction holds its row, or the store could not say what became of it, and it may be held
    /// ([`Run::taken`]): keep it, and ask again after so long.
    Later(Duration),
    /// Cancellation was asked; this claim has settled the row: acknowledge.
    Cancelled,
    /// Deleted or never known: acknowledge and count.
    Stale,
    /// The row belongs to another owner than the pointer says: acknowledge, count, quarantine.
    Foreign,
}

/// A verdict with what it leaves behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    pub lease: Lease,
    pub verdict: Verdict,
    /// Kept only where the job becomes `succeeded`.
    pub output: Option<Output>,
}

#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// Another holds the job now, or none, or it has ended: drop the result. Acknowledge only where
    /// the job is terminal (`None`: it is deleted).
    #[error("the lease is lost")]
    LeaseLost(Option<State>),
    #[error(transparent)]
    Store(#[from] StoreError),
}
