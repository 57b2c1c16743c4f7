//! Accepting a job: the row, then the bell. Its success means *safely accepted*, not *done*.
//!
//! The row is the outbox: whatever happens between the commit and the bell, a keeper rings. The bell is
//! therefore never waited for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::broker::contract::{Broker, Pointer, Published, Source};
use crate::fault::{self, Point};
use crate::job::follow::{self, DEPTH_MAX, FOLLOWS_MAX, Follow};
use crate::job::name::{JobId, Lane, Owner};
use crate::job::record::{FirstRing, NewJob, PARAMS_BYTES_MAX, PARAMS_DEPTH_MAX};
use crate::metrics::Metrics;
use crate::store::contract::{
    AcceptError, Accepted, AddError, ControlError, LaneWindow, OwnerTurn, Scope, Store, StoreError,
};

/// Pointers waiting to be published by this process. What does not fit is rung by a keeper.
const RINGS_MAX: usize = 10_000;

/// Lanes remembered: clients may make up any number. In others it is a keeper that rings.
const LANES_MAX: usize = 10_000;

/// How soon a pointer whose publishing was not confirmed is rung again.
pub(crate) const UNCONFIRMED: Duration = Duration::from_secs(5);

/// Most pointers in one publish.
const BATCH_MAX: usize = 500;

/// Owners whose last turn a process remembers for a lane. Those beyond come next, as newcomers do.
const OWNERS_MAX: usize = 10_000;

/// How full each lane's hot window is, and whose turn comes when, as far as this process knows.
///
/// The window bounds what a broker has to hold. Where rows are claimed from the store itself nothing has to be held:
/// a job is then offered by the statement that accepts it, whatever the backlog.
///
/// Turns are dealt out by start-time fair queueing: an owner's job comes one after the owner's last one
/// or after the turn the lane has come to, whichever is later. So whoever has little waiting comes next,
/// however much of another's waits.
///
/// The keeper's measurements correct what this process did not see. Being wrong costs a few pointers
/// more than the window, a place in the order, or one keeper pass.
#[derive(Debug)]
pub struct Window {
    size: usize,
    source: Source,
    lanes: Mutex<HashMap<Lane, Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: usize,
    /// The turn the lane has come to.
    turn: u64,
    /// The last turn of each owner that is ahead of the lane's.
    owners: HashMap<Owner, u64>,
}

impl Window {
    /// Of so many jobs in each lane, for a broker of that source.
    pub fn new(size: usize, source: Source) -> Self {
        Self { size, source, lanes: Mutex::default() }
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Takes a place in the lane's window, where there is one, and answers its turn.
    fn take(&self, lane: &Lane, owner: &Owner) -> Option<u64> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= LANES_MAX && !lanes.contains_key(lane) {
            return None;
        }
        let waiting = lanes.entry(lane.clone()).or_default();
        if self.source == Source::Pointers && waiting.jobs >= self.size {
            return None;
        }
        waiting.jobs += 1;
        if waiting.owners.len() >= OWNERS_MAX && !waiting.owners.contains_key(owner) {
            return Some(waiting.turn + 1);
        }
        let last = waiting.owners.entry(owner.clone()).or_default();
        *last = 1 + (*last).max(waiting.turn);
        Some(*last)
    }

    /// Nothing was waiting when it was last measured, and nothing was taken since.
    pub fn is_empty(&self) -> bool {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// How far owners reach, as the store tells: what this process did not deal out, or no longer knows of.
    pub fn reached(&self, turns: Vec<OwnerTurn>) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        for OwnerTurn { lane, owner, turn } in turns {
            if lanes.len() >= LANES_MAX && !lanes.contains_key(&lane) {
                continue;
            }
            let owners = &mut lanes.entry(lane).or_default().owners;
            if owners.len() < OWNERS_MAX || owners.contains_key(&owner) {
                let last = owners.entry(owner).or_default();
                *last = turn.max(*last);
            }
        }
    }

    /// What the store counted; in lanes not named nothing waits.
    pub fn measured(&self, windows: Vec<LaneWindow>) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = std::mem::take(&mut *lanes);
        for window in windows.into_iter().take(LANES_MAX) {
            let mut waiting = known.remove(&window.lane).unwrap_or_default();
            waiting.jobs = window.waiting;
            waiting.turn = window.turn;
            waiting.owners.retain(|_, last| *last > window.turn);
            lanes.insert(window.lane, waiting);
        }
    }
}

/// The door. Cheap to clone.
#[derive(Clone)]
pub struct Accept {
    store: Arc<dyn Store>,
    broker: Arc<dyn Broker>,
    window: Arc<Window>,
    rings: mpsc::Sender<(Lane, Pointer)>,
    rescan_after: Duration,
}

impl Accept {
    /// Spawns the task that rings, which ends when the last clone is dropped. `rescan_after` is how long
    /// a published pointer may go without being claimed.
    pub fn new(
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        window: Arc<Window>,
        metrics: Arc<Metrics>,
        rescan_after: Duration,
    ) -> Self {
        let (rings, waiting) = mpsc::channel(RINGS_MAX);
        tokio::spawn(ring(store.clone(), broker.clone(), metrics, waiting, rescan_after));
        Self { store, broker, window, rings, rescan_after }
    }

    /// The job is durable when this returns. Its file, if it has one, must be durable before.
    pub async fn accept(&self, mut job: NewJob) -> Result<Accepted, SubmitError> {
        check_params(&job.params)?;
        check_follows(&job.on)?;
        let lane = job.lane();
        let now_due = job.run_at.is_none();
        let rows = self.broker.caps().source == Source::Rows;
        let again = if rows { self.rescan_after } else { UNCONFIRMED };
        // Whose owner may have to wait for itself is offered by a keeper, which looks at that.
        let by_owner = self.store.limits().each_owner(&job.kind).is_some();
        let turn = if now_due && !by_owner { self.window.take(&lane, &job.owner) } else { None };
        job.rung = turn.map(|turn| FirstRing { turn, again });
        let pointer = Pointer::new(job.id, job.owner.clone(), job.kind.clone(), 1, job.trace.clone());

        fault::at(Point::AcceptAsked);
        let id = job.id;
        let mut accepted = match self.store.accept(job.clone()).await {
            // Unknown, not failed: asked once more, by the id, which is the job's from the start.
            Err(AcceptError::Store(StoreError::Unavailable(_))) => self.store.accept(job).await?,
            other => other?,
        };
        // What the first question wrote is this submission's own, not an earlier one's.
        accepted.again &= accepted.id != id;
        fault::at(Point::AcceptKept);
        if turn.is_some() && !accepted.again {
            // Full: a keeper rings instead.
            let _ = self.rings.try_send((lane, pointer));
        }
        Ok(accepted)
    }
}

impl Accept {
    /// The parent and its parts are durable when this returns, all or none; the parent waits for them. A keeper rings
    /// for the parts.
    pub async fn accept_batch(
        &self,
        parent: NewJob,
        parts: Vec<NewJob>,
        sealed: bool,
    ) -> Result<Accepted, SubmitError> {
        check_params(&parent.params)?;
        check_follows(&parent.on)?;
        parts.iter().try_for_each(|part| check_params(&part.params))?;
        let id = parent.id;
        let asked = self.store.accept_batch(parent.clone(), parts.clone(), sealed).await;
        let mut accepted = match asked {
            // Unknown, not failed: asked once more, by the ids.
            Err(AcceptError::Store(StoreError::Unavailable(_))) => {
                self.store.accept_batch(parent, parts, sealed).await?
            }
            other => other?,
        };
        accepted.again &= accepted.id != id;
        Ok(accepted)
    }

    /// As [`Accept::accept_batch`], for a batch that is open.
    pub async fn add_parts(
        &self,
        scope: &Scope,
        parent: JobId,
        parts: Vec<NewJob>,
    ) -> Result<u32, PartsError> {
        parts.iter().try_for_each(|part| check_params(&part.params))?;
        match self.store.add_parts(scope, parent, parts.clone()).await {
            Err(
                AddError::Control(ControlError::Store(StoreError::Unavailable(_)))
                | AddError::Accept(AcceptError::Store(StoreError::Unavailable(_))),
            ) => Ok(self.store.add_parts(scope, parent, parts).await?),
            other => Ok(other?),
        }
    }
}

/// Why parts were not added.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl From<AddError> for PartsError {
    fn from(error: AddError) -> Self {
        match error {
            AddError::Control(error) => Self::Control(error),
            AddError::Accept(error) => Self::Submit(error.into()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("params may be at most {PARAMS_BYTES_MAX} bytes of JSON: put what is larger in a file")]
    ParamsTooLarge,
    #[error("params may be nested {PARAMS_DEPTH_MAX} deep at most")]
    ParamsTooDeep,
    #[error("params may not hold the character U+0000")]
    ParamsNul,
    #[error(
        "at most {FOLLOWS_MAX} jobs come after one, {DEPTH_MAX} after each other, and one for each way to end"
    )]
    Follows,
    #[error(transparent)]
    Accept(#[from] AcceptError),
}

fn check_params(params: &Value) -> Result<(), SubmitError> {
    if serde_json::to_vec(params).map_or(true, |bytes| bytes.len() > PARAMS_BYTES_MAX) {
        return Err(SubmitError::ParamsTooLarge);
    }
    if depth(params) > PARAMS_DEPTH_MAX {
        return Err(SubmitError::ParamsTooDeep);
    }
    // Lawful JSON, but PostgreSQL's jsonb does not take it (documentation 8.14).
    if holds_nul(params) {
        return Err(SubmitError::ParamsNul);
    }
    Ok(())
}

fn check_follows(on: &[Follow]) -> Result<(), SubmitError> {
    let (count, deep) = follow::size(on);
    let twice = |follow: &Follow| on.iter().filter(|other| other.after == follow.after).count() > 1;
    if count > FOLLOWS_MAX || deep > DEPTH_MAX || on.iter().any(twice) {
        return Err(SubmitError::Follows);
    }
    for follow in on {
        check_params(&follow.next.params)?;
        check_follows(&follow.next.on)?;
    }
    Ok(())
}

/// How deep a value is nested, counted no further than matters here.
fn depth(value: &Value) -> usize {
    fn below(value: &Value, left: usize) -> usize {
        let deepest = |depths: &mut dyn Iterator<Item = usize>| depths.max().unwrap_or(0);
        match value {
            _ if left == 0 => 1,
            Value::Array(items) => 1 + deepest(&mut items.iter().map(|item| below(item, left - 1))),
            Value::Object(fields) => 1 + deepest(&mut fields.values().map(|field| below(field, left - 1))),
            _ => 1,
        }
    }
    below(value, PARAMS_DEPTH_MAX + 1)
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains('\0') || holds_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Publishes what has been accepted, many at a time without a timer: whatever came while the last
/// publish was under way.
async fn ring(
    store: Arc<dyn Store>,
    broker: Arc<dyn Broker>,
    metrics: Arc<Metrics>,
    mut waiting: mpsc::Receiver<(Lane, Pointer)>,
    rescan_after: Duration,
) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
        fault::at(Point::BellPulled);
        let published = broker.publish(&batch).await;
        fault::at(Point::BellRung);
        let accepted = published.iter().filter(|published| matches!(published, Published::Accepted)).count();
        metrics.count("mapae_published_total", "accept", accepted as u64);
        if broker.caps().source == Source::Pointers {
            let rung: Vec<(JobId, u32)> = batch
                .iter()
                .zip(&published)
                .filter(|(_, published)| matches!(published, Published::Accepted))
                .map(|((_, pointer), _)| (pointer.job, pointer.hint))
                .collect();
            // Not marked means rung once more by a keeper: harmless.
            let _ = store.rung(&rung, rescan_after).await;
            fault::at(Point::BellMarked);
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner::new(name).unwrap()
    }

    #[test]
    fn whoever_has_little_waiting_comes_next() {
        let (window, lane) = (Window::new(1_000, Source::Pointers), "analyze".parse::<Lane>().unwrap());
        let many: Vec<u64> = (0..100).filter_map(|_| window.take(&lane, &owner("many"))).collect();
        assert_eq!(many, (1..=100).collect::<Vec<_>>());
        // Forty of them have been claimed since.
        window.measured(vec![LaneWindow { lane: lane.clone(), waiting: 60, turn: 41 }]);
        assert_eq!(window.take(&lane, &owner("few")), Some(42), "next");
        assert_eq!(window.take(&lane, &owner("many")), Some(101), "behind its own, which wait");
    }

    #[test]
    fn an_owner_whose_backlog_is_older_than_the_process_comes_behind_it() {
        let (window, lane) = (Window::new(1_000, Source::Rows), "analyze".parse::<Lane>().unwrap());
        window.reached(vec![OwnerTurn { lane: lane.clone(), owner: owner("many"), turn: 100 }]);
        assert!(!window.is_empty(), "it is measured");
        window.measured(vec![LaneWindow { lane: lane.clone(), waiting: 60, turn: 41 }]);
        assert_eq!(window.take(&lane, &owner("many")), Some(101));
        assert_eq!(window.take(&lane, &owner("few")), Some(42));
    }

    #[test]
    fn what_is_claimed_from_the_store_itself_is_offered_whatever_waits() {
        let (window, lane) = (Window::new(2, Source::Rows), "analyze".parse::<Lane>().unwrap());
        let turns = (0..3).map(|_| window.take(&lane, &owner("acme")));
        assert_eq!(turns.collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn of_owners_beyond_the_bound_nothing_is_remembered() {
        let (window, lane) = (Window::new(0, Source::Rows), "analyze".parse::<Lane>().unwrap());
        for number in 0..2 * OWNERS_MAX {
            assert_eq!(window.take(&lane, &owner(&format!("owner-{number}"))), Some(1));
        }
        assert_eq!(window.take(&lane, &owner("owner-0")), Some(2));
        assert_eq!(window.lanes.lock().unwrap()[&lane].owners.len(), OWNERS_MAX);
    }

    #[test]
    fn no_more_lanes_are_remembered_than_there_is_room_for() {
        let window = Window::new(10, Source::Pointers);
        let take = |number: usize| {
            window.take(&format!("made-up-{number}").parse::<Lane>().unwrap(), &owner("acme"))
        };
        assert!((0..LANES_MAX).all(|number| take(number).is_some()));
        assert_eq!(take(LANES_MAX), None, "a keeper rings");
        assert_eq!(take(0), Some(2), "one that is known");
        window.measured(Vec::new());
        assert_eq!(take(LANES_MAX), Some(1));
    }

    #[test]
    fn a_full_window_takes_no_more_and_an_empty_lane_begins_again() {
        let (window, lane) = (Window::new(2, Source::Pointers), "analyze".parse::<Lane>().unwrap());
        let take = || window.take(&lane, &owner("acme"));
        assert_eq!((take(), take(), take()), (Some(1), Some(2), None));
        window.measured(Vec::new());
        assert_eq!(window.take(&lane, &owner("acme")), Some(1));
    }
}
