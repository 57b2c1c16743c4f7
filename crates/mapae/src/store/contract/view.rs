//! The reader's side of a store. Nothing here changes anything; deleted jobs are not there.

use std::time::Duration;

use async_trait::async_trait;

use super::run::WorkerReport;
use super::{Scope, StoreError};
use crate::job::State;
use crate::job::event::{Event, Position};
use crate::job::follow::Followed;
use crate::job::lease::Holder;
use crate::job::name::{JobId, Kind, Lane, Owner};
use crate::job::record::{Job, Output};
use crate::job::timestamp::Timestamp;

#[async_trait]
pub trait View {
    /// The job, where it is within `scope`; a foreign job is `None` exactly like a missing one.
    async fn job(&self, scope: &Scope, id: JobId) -> Result<Option<Job>, StoreError>;

    /// Newest first, at most `page.limit`, after the job `page.after`. By kind or text, for which there is no
    /// index, they are looked for among the next [`LOOK_MAX`] jobs and not beyond: then there may be fewer and
    /// still more to come.
    async fn jobs(&self, scope: &Scope, filter: &JobFilter, page: &Page) -> Result<Found, StoreError>;

    /// What the job gave, where it is within `scope` and succeeded.
    async fn output(&self, scope: &Scope, id: JobId) -> Result<Option<Output>, StoreError>;

    /// What was declared to come after the job, by how it ends, and what has become of it.
    async fn followed(&self, scope: &Scope, id: JobId) -> Result<Vec<Followed>, StoreError>;

    /// Committed events after a position, oldest first. No event of a lower position appears later.
    async fn events(&self, scope: &Scope, filter: &EventFilter, max: usize)
    -> Result<Vec<Event>, StoreError>;

    /// The position that all events so far stand at or before.
    async fn last_position(&self) -> Result<Position, StoreError>;

    /// How many rung or due jobs stand before this one in its lane, counted up to `max`.
    async fn ahead(&self, job: &Job, max: usize) -> Result<usize, StoreError>;

    /// How many of the owner's jobs wait in the lane, counted up to `max`.
    async fn waiting(&self, lane: &Lane, owner: &Owner, max: usize) -> Result<usize, StoreError> {
        let filter = JobFilter { state: Some(State::Pending), kind: Some(lane.kind.clone()), text: None };
        let page = Page { after: None, limit: max };
        Ok(self.jobs(&Scope::Owner(owner.clone()), &filter, &page).await?.jobs.len())
    }

    async fn paused(&self) -> Result<Vec<Lane>, StoreError>;

    /// Those that live, as far as they tell of themselves ([`WorkerRow::is_seen`]).
    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError>;

    /// Counted at a cost that does not grow with the table: up to [`COUNT_MAX`] and [`LANE_COUNT_MAX`].
    async fn stats(&self) -> Result<Stats, StoreError>;
}

/// How far the jobs of a state are counted, and the events of the outbox: this many means at least as many.
pub const COUNT_MAX: usize = 50_000;

/// How far the waiting jobs of one lane are counted, and the dead that nobody looks after.
pub const LANE_COUNT_MAX: usize = 10_000;

/// How many lanes are told of, in the order of their names: clients may make up any number.
pub const LANES_MAX: usize = 1_000;

/// How many jobs are looked at for one page of those of a kind, or with a text.
pub const LOOK_MAX: usize = 10_000;

/// Which jobs. Absent means any.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub state: Option<State>,
    pub kind: Option<Kind>,
    /// Text that the source's name contains, or the beginning of an id.
    pub text: Option<String>,
}

impl JobFilter {
    /// Whether the job is one of these. Of the text only a whole id is looked at.
    pub fn fits(&self, job: &Job) -> bool {
        self.state.is_none_or(|state| state == job.state)
            && self.kind.as_ref().is_none_or(|kind| *kind == job.kind)
            && self.text.as_ref().is_none_or(|text| text.parse() == Ok(job.id))
    }

    /// Whether an index leads to the jobs, so that none is looked at in vain.
    pub(crate) fn is_indexed(&self) -> bool {
        self.kind.is_none() && self.text.is_none()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub after: Option<JobId>,
    pub limit: usize,
}

/// One page of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub jobs: Vec<Job>,
    /// The job after which the next page begins; none where there is none.
    pub next: Option<JobId>,
}

/// Which events, from where on.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    pub job: Option<JobId>,
    pub after: Position,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkerRow {
    pub holder: Holder,
    pub kinds: Vec<Kind>,
    pub slots: u32,
    pub report: WorkerReport,
    pub started_at: Timestamp,
    pub seen_at: Timestamp,
}

impl WorkerRow {
    /// The least time for which a worker that has not told of itself is still shown, in milliseconds.
    pub const SEEN_MIN_MS: i64 = 10_000;

    /// Whether it has told of itself in its last three heartbeats. Others are not shown: nothing waits for them.
    pub fn is_seen(&self, now: Timestamp) -> bool {
        let silent_ms = i64::try_from(self.report.heartbeat_ms.saturating_mul(3))
            .unwrap_or(i64::MAX)
            .max(Self::SEEN_MIN_MS);
        now.since(self.seen_at) < Duration::from_millis(silent_ms.unsigned_abs())
    }
}

/// The whole at a glance, zero-filled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// One entry for each state, up to [`COUNT_MAX`].
    pub states: Vec<(State, u64)>,
    /// Lanes that have live jobs, at most [`LANES_MAX`], each counted up to [`LANE_COUNT_MAX`].
    pub lanes: Vec<LaneStats>,
    pub dead: u64,
    /// Of the dead, those that nobody looks after.
    pub dead_unassigned: u64,
    pub dead_oldest: Option<Duration>,
    /// Events that nobody has taken away yet.
    pub outbox: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaneStats {
    pub lane: Lane,
    /// Of one of its live jobs, and of the one that has waited longest where they wait. None where there are none.
    pub owner: Option<Owner>,
    /// Due and waiting.
    pub ready: u64,
    /// Waiting for their time.
    pub scheduled: u64,
    pub running: u64,
    /// How long the longest waiting due job has been due.
    pub oldest_ready: Option<Duration>,
    pub paused: bool,
}
