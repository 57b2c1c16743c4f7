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

    /// Newest first, at most `page.limit`, after the job `page.after`.
    async fn jobs(&self, scope: &Scope, filter: &JobFilter, page: &Page) -> Result<Vec<Job>, StoreError>;

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

    /// How many of the owner's jobs wait in the lane, counted up to `max`: for limits, so a store may leave
    /// out those of the hot window, which are few.
    async fn waiting(&self, lane: &Lane, owner: &Owner, max: usize) -> Result<usize, StoreError> {
        let filter = JobFilter { state: Some(State::Pending), kind: Some(lane.kind.clone()), text: None };
        let page = Page { after: None, limit: max };
        Ok(self.jobs(&Scope::Owner(owner.clone()), &filter, &page).await?.len())
    }

    async fn paused(&self) -> Result<Vec<Lane>, StoreError>;

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError>;

    async fn stats(&self) -> Result<Stats, StoreError>;
}

/// Which jobs. Absent means any.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub state: Option<State>,
    pub kind: Option<Kind>,
    /// Text that the source's name contains, or the beginning of an id.
    pub text: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub after: Option<JobId>,
    pub limit: usize,
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

/// The whole at a glance, zero-filled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// One entry for each state.
    pub states: Vec<(State, u64)>,
    /// Lanes that have live jobs.
    pub lanes: Vec<LaneStats>,
    pub dead: u64,
    /// Of the dead, those that nobody looks after.
    pub dead_unassigned: u64,
    pub dead_oldest: Option<Duration>,
    pub outbox: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaneStats {
    pub lane: Lane,
    /// Due and waiting.
    pub ready: u64,
    /// Waiting for their time.
    pub scheduled: u64,
    pub running: u64,
    /// How long the longest waiting due job has been due.
    pub oldest_ready: Option<Duration>,
    pub paused: bool,
}
