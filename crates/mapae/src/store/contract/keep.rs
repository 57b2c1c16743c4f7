//! The keeper's side of a store. Every call is bounded by its `max`, safe beside any number of other
//! keepers, and takes its rows with their guards in the statement.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::job::State;
use crate::job::name::{JobId, Kind, Lane, Owner};

/// A pointer that may have been lost is rung again at the latest after `age` doubled so often. Hints also rise
/// while a broker is down, so without a bound one that was down for minutes would be believed for years.
pub const DOUBLINGS_MAX: u32 = 5;

#[async_trait]
pub trait Keep {
    /// Due jobs whose time to be rung has come are marked as rung and returned until each lane's window
    /// is full (T2, and T8 where the plan says so). Who publishes them confirms with [`Keep::rung`]; unconfirmed ones come back
    /// after `plan.again`. Paused lanes give nothing.
    ///
    /// Fair between owners: each job gets a turn, which is the lowest turn still waiting in the lane plus
    /// the job's place among those of its owner, counted among the 1,000 that come first. So a newcomer's first job comes next,
    /// however much of another's waits.
    async fn ring(&self, plan: &RingPlan) -> Result<Vec<Rung>, StoreError>;

    /// These pointers (a job and the hint it carried) are with the broker: they are rung again only after
    /// `age`, doubled for each hint after the first, [`DOUBLINGS_MAX`] times at most. Rows whose hint is
    /// another by now have moved on and are left alone.
    async fn rung(&self, pointers: &[(JobId, u32)], age: Duration) -> Result<(), StoreError>;

    /// What waits in each lane that has rung jobs, counted up to `cap`.
    async fn windows(&self, cap: usize) -> Result<Vec<LaneWindow>, StoreError>;

    /// Where a lane has more than twice `window` rung jobs, those that come last, beyond the window, are not rung any
    /// more: they wait to be rung as ones that never were. At most `max`; answers how many. A pointer to one that
    /// is with the broker all the same is worth no less.
    async fn withdraw(&self, window: usize, max: usize) -> Result<usize, StoreError>;

    /// The last turn of each owner in each lane where it has rung jobs, at most `max`.
    async fn turns(&self, max: usize) -> Result<Vec<OwnerTurn>, StoreError>;

    /// For each lane, in order, how long ago the oldest of the `count` pointers that were rung last was rung, of
    /// those to jobs that still wait; zero where none waits. `age` is that of [`Keep::rung`].
    async fn rung_ago(&self, lanes: &[(Lane, usize)], age: Duration) -> Result<Vec<Duration>, StoreError>;

    /// When the next job that is not rung yet becomes due, if one does within `horizon`.
    async fn next_due(&self, horizon: Duration) -> Result<Option<Duration>, StoreError>;

    /// Jobs whose lease ran out or whose holder is gone are pending again, or ended (T7).
    async fn reap(&self, max: usize) -> Result<Vec<Reaped>, StoreError>;

    /// Pending jobs whose deadline passed have failed.
    async fn expire(&self, max: usize) -> Result<usize, StoreError>;
}

/// How far one pass rings.
#[derive(Clone, Debug)]
pub struct RingPlan {
    /// Most rung jobs a lane has waiting at a time: bounds what a broker holds, whatever the backlog.
    pub window: usize,
    /// So many are rung in a lane even beyond its window: where no broker holds them, what comes back must not wait
    /// until a backlog that was rung when it was accepted is gone.
    pub least: usize,
    /// When a returned pointer comes back unless [`Keep::rung`] says it was published.
    pub again: Duration,
    /// Whether what was rung before and whose time has come is rung again (T8), and the lanes where it is
    /// left alone for so long beyond its time.
    pub rescan: Option<Vec<(Lane, Duration)>>,
    pub max: usize,
}

impl RingPlan {
    /// How long beyond its time what was rung before in this lane is left alone; `None` for good.
    pub fn patience(&self, lane: &Lane) -> Option<Duration> {
        let lanes = self.rescan.as_ref()?;
        Some(lanes.iter().find(|(named, _)| named == lane).map_or(Duration::ZERO, |(_, patience)| *patience))
    }
}

/// The hot window of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneWindow {
    pub lane: Lane,
    pub waiting: usize,
    /// The lowest turn that waits.
    pub turn: u64,
}

/// How far an owner's rung jobs reach in a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerTurn {
    pub lane: Lane,
    pub owner: Owner,
    pub turn: u64,
}

/// A job whose lease was ended because its holder is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaped {
    pub job: JobId,
    pub kind: Kind,
    /// What that made of it.
    pub state: State,
}

/// A pointer to hand out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    pub job: JobId,
    pub owner: Owner,
    pub lane: Lane,
    /// 1 the first time; above that it is a rescan.
    pub hint: u32,
    pub trace: Option<String>,
}
