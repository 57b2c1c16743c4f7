//! Jobs in memory, gone with the process: the contract in its plainest form.
//!
//! Every transition is [`Life::after`] itself, so this is what the other stores are walked beside, and
//! what a handler's tests run on. Its clock stands still until [`Memory::advance`], unless it was made
//! by [`Memory::in_real_time`].
//!
//! Not for work that matters, and not for much of it: what the others find by an index is scanned here.

mod batch;
mod control;
mod follow;
mod gate;
mod keep;
mod label;
mod record;
mod remote;
mod run;
mod schedule;
mod tell;
mod tidy;
mod unique;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use uuid::Uuid;

use super::contract::{Garbage, KeyRecord, Schedule, Schema, Scope, Store, StoreError, WorkerRow};
use crate::job::event::{Event, EventKind, Position};
use crate::job::lease::Token;
use crate::job::limit::{Account, Key, Limits, Share};
use crate::job::name::{Assignee, BusinessKey, IdempotencyKey, JobId, Lane, Owner, ScheduleName, SetName};
use crate::job::record::{Checkpoint, Job, NewJob, Output, Progress};
use crate::job::retry::{Failure, Verdict};
use crate::job::timestamp::Timestamp;
use crate::job::{Effect, End, Life, Refused, State, Status, Step};

/// Where a clock begins that is moved by hand: 1 January 2026.
const ORIGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A store in memory. Cheap to clone; clones share their jobs.
#[derive(Clone)]
pub struct Memory {
    tables: Arc<Mutex<Tables>>,
}

impl Memory {
    /// Its clock moves only by [`Memory::advance`].
    #[expect(clippy::new_without_default, reason = "a store is made on purpose")]
    pub fn new() -> Self {
        Self { tables: Arc::new(Mutex::new(Tables::default())) }
    }

    /// Its clock also moves by itself.
    pub fn in_real_time() -> Self {
        let memory = Self::new();
        memory.tables().running_since = Some(Instant::now());
        memory
    }

    /// Time passes.
    pub fn advance(&self, by: Duration) {
        self.tables().advanced += by;
    }

    /// The next claim is made, and its answer lost on the way.
    pub fn lose_answer(&self) {
        self.tables().answer_lost = true;
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Each change is made whole or panics before it is made: what a panic left is as it was.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.tables().now())
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn schema(&self) -> Result<Schema, StoreError> {
        Ok(Schema { found: 12, known: 12 })
    }

    async fn files(&self) -> Result<Option<Uuid>, StoreError> {
        Ok(self.tables().files)
    }

    async fn adopt_files(&self, id: Uuid) -> Result<Uuid, StoreError> {
        Ok(*self.tables().files.get_or_insert(id))
    }

    async fn sees_presence(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn close(&self) {}
}

/// All there is. One lock over it makes every call one transaction.
#[derive(Default)]
struct Tables {
    running_since: Option<Instant>,
    /// Of the next claim.
    answer_lost: bool,
    advanced: Duration,
    jobs: BTreeMap<JobId, Row>,
    submissions: HashMap<(Owner, IdempotencyKey), Submission>,
    uniques: HashMap<[u8; 32], unique::Holder>,
    events: Vec<Event>,
    /// The events that need not be sent any more.
    sent: HashSet<(JobId, u64)>,
    /// What stands before receivers of events, by number.
    standing: BTreeMap<u64, tell::Standing>,
    stood: u64,
    paused: BTreeSet<Lane>,
    schedules: BTreeMap<ScheduleName, Schedule>,
    /// The job of each tick.
    ticks: BTreeMap<(ScheduleName, Timestamp), JobId>,
    workers: BTreeMap<String, Worker>,
    /// Clients that lease over HTTP, by owner and name.
    pullers: BTreeMap<(Option<Owner>, String), WorkerRow>,
    garbage: Vec<Garbage>,
    /// By their parents.
    batches: BTreeMap<JobId, batch::Batch>,
    part_of: HashMap<JobId, JobId>,
    /// The file store.
    files: Option<Uuid>,
    keys: Vec<([u8; 32], KeyRecord)>,
    events_told: u64,
    limits: Arc<Limits>,
    /// What of a gate is more than its shares.
    gates: BTreeMap<Key, Account>,
    shares: HashMap<Token, Vec<Share>>,
    labels: BTreeMap<(Owner, SetName), label::Set>,
}

struct Submission {
    body: [u8; 32],
    job: JobId,
    at: Timestamp,
}

struct Worker {
    row: WorkerRow,
    /// Its [`Member`](super::contract::Member) is there.
    present: bool,
}

struct Row {
    new: NewJob,
    life: Life,
    /// Its place in the lane while it is rung: the lowest comes next.
    turn: u64,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    progress: Option<Progress>,
    failure: Option<Failure>,
    assignee: Option<Assignee>,
    business_key: Option<BusinessKey>,
    checkpoints: Vec<Checkpoint>,
    output: Option<Output>,
    /// What came after it, made so far.
    followed: Vec<(End, JobId, Timestamp)>,
}

impl Row {
    /// Nobody is shown a deleted job.
    fn within(&self, scope: &Scope) -> bool {
        !self.life.delete_asked && scope.owner().is_none_or(|owner| owner == self.new.owner.as_str())
    }

    fn hint(&self) -> Option<u32> {
        match self.life.status {
            Status::Pending { hint, .. } => Some(hint),
            _ => None,
        }
    }

    fn job(&self) -> Job {
        let (new, life) = (&self.new, &self.life);
        let (holder, cancel_asked) = match &life.status {
            Status::Running { holder, cancel_asked, .. } => (Some(holder.clone()), *cancel_asked),
            _ => (None, false),
        };
        Job {
            id: new.id,
            owner: new.owner.clone(),
            kind: new.kind.clone(),
            state: life.state(),
            params: new.params.clone(),
            source: new.source.clone(),
            priority: new.priority,
            attempt: life.attempt,
            retry: new.retry,
            created_at: self.created_at,
            due_at: life.due_at,
            deadline: life.deadline,
            started_at: self.started_at,
            finished_at: self.finished_at,
            holder,
            cancel_asked,
            progress: self.progress.clone(),
            failure: self.failure.clone(),
            assignee: self.assignee.clone(),
            hint: self.hint().unwrap_or(0),
            throttled: life.throttled,
            snoozed: life.snoozed,
            redrives: life.redrives,
            parent: new.parent,
            trace: new.trace.clone(),
            sequence: life.sequence,
        }
    }

    fn files(&self) -> impl Iterator<Item = &str> {
        let outputs = self.checkpoints.iter().map(|checkpoint| &checkpoint.output).chain(&self.output);
        let outputs = outputs.filter_map(|output| match output {
            Output::File { name, .. } => Some(name.as_str()),
            Output::Inline(_) => None,
        });
        outputs.chain(self.new.source.as_ref().map(|source| source.file.as_str()))
    }
}

impl Tables {
    fn answer<T>(&mut self, answer: T) -> Result<T, StoreError> {
        match std::mem::take(&mut self.answer_lost) {
            true => Err(StoreError::Unavailable("the answer was lost".into())),
            false => Ok(answer),
        }
    }

    fn now(&self) -> Timestamp {
        match self.running_since {
            Some(since) => ORIGIN + self.advanced + since.elapsed(),
            None => ORIGIN + self.advanced,
        }
    }

    fn row(&self, scope: &Scope, id: JobId) -> Option<&Row> {
        self.jobs.get(&id).filter(|row| row.within(scope))
    }

    /// The one way a job changes: the step is taken, and what it made true beside the row is written,
    /// or nothing is. `stage` names the stage of a [`Step::Stage`].
    fn take(&mut self, id: JobId, step: &Step, stage: Option<&str>) -> Result<Vec<Effect>, Refused> {
        let now = self.now();
        let row = self.jobs.get_mut(&id).expect("callers looked the job up under the same lock");
        let before = row.life.clone();
        let (life, effects) = before.after(step, now)?;
        row.life = life;

        if let Some(failure) = failure_of(&before, step, &row.life) {
            row.failure = Some(Failure { attempt: before.attempt, ..failure });
        }
        let first = before.sequence + 1;
        let kinds = effects.iter().filter_map(|effect| match effect {
            Effect::Event(kind) => Some(*kind),
            Effect::Result | Effect::Ring => None,
        });
        for (sequence, kind) in (first..).zip(kinds) {
            row.note(kind, now);
            self.events_told += 1;
            self.events.push(Event {
                job: id,
                owner: row.new.owner.clone(),
                kind: row.new.kind.clone(),
                sequence,
                event: kind,
                at: now,
                attempt: attempt_told(kind, &before, &row.life),
                worker: worker_told(kind, step, &before),
                code: match kind {
                    EventKind::Stage => stage.map(str::to_owned),
                    EventKind::Retrying
                    | EventKind::Throttled
                    | EventKind::Lost
                    | EventKind::Failed
                    | EventKind::Stale => row.failure.as_ref().map(|failure| failure.code.clone()),
                    _ => None,
                },
                position: Position { transaction: 0, number: self.events_told, at: now.micros() },
            });
        }
        self.noted(id);
        self.follow(id, &before);
        Ok(effects)
    }

    /// Files of a row that is no more, or of one output that gave way to another.
    fn discard(&mut self, files: impl IntoIterator<Item = String>) {
        let since = self.now();
        self.garbage.extend(files.into_iter().map(|file| Garbage { file, since }));
    }
}

impl Row {
    /// The row's own times, which tell of the last attempt and the last end.
    fn note(&mut self, event: EventKind, now: Timestamp) {
        match event {
            EventKind::Claimed => {
                self.started_at = Some(now);
                self.progress = None;
            }
            EventKind::Redriven => (self.finished_at, self.assignee) = (None, None),
            EventKind::Succeeded => {
                self.finished_at = Some(now);
                (self.progress, self.failure) = (None, None);
            }
            end if end.is_terminal() => {
                self.finished_at = Some(now);
                self.progress = None;
            }
            _ => {}
        }
    }
}

/// The failure that a step leaves in the row, if it tells of one.
fn failure_of(before: &Life, step: &Step, after: &Life) -> Option<Failure> {
    match (step, &after.status) {
        (_, Status::Ended(End::Succeeded)) => None,
        (_, Status::Ended(End::Cancelled)) => (before.state() == State::Running).then(Failure::cancelled),
        (Step::Settle { verdict, .. }, _) => match verdict {
            Verdict::Retry { failure, .. }
            | Verdict::Throttle { failure, .. }
            | Verdict::Fail { failure }
            | Verdict::Stale { failure } => Some(failure.clone()),
            Verdict::Snooze { .. } => (after.state() == State::Failed).then(Failure::overslept),
            Verdict::Succeed | Verdict::Await | Verdict::HandBack => None,
        },
        (Step::Claim { .. } | Step::Reap { .. } | Step::Expire, Status::Ended(End::Failed)) => {
            let spent = before.state() == State::Running && before.attempt >= before.attempts_max;
            Some(if spent { loss(before, step) } else { Failure::overdue() })
        }
        (Step::Claim { .. } | Step::Reap { .. }, _) if before.state() == State::Running => {
            Some(loss(before, step))
        }
        _ => None,
    }
}

/// What a lease that ran out says of its holder. Whoever claims the job over it need not know.
fn loss(before: &Life, step: &Step) -> Failure {
    match (&before.status, step) {
        (Status::Running { holder, .. }, Step::Reap { .. }) if holder.is_service() => Failure::unanswered(),
        _ => Failure::lost(),
    }
}

/// The attempt an event tells of, 0 where the job waits.
fn attempt_told(event: EventKind, before: &Life, after: &Life) -> u32 {
    match (event, before.state()) {
        (EventKind::Claimed, _) => after.attempt,
        (_, State::Running) => before.attempt,
        _ => 0,
    }
}

/// Who made the event true, where a worker did.
fn worker_told(event: EventKind, step: &Step, before: &Life) -> Option<String> {
    match (step, &before.status) {
        (Step::Claim { holder, .. }, _) if event == EventKind::Claimed => Some(holder.name.clone()),
        (Step::Settle { .. } | Step::Stage { .. } | Step::Lend { .. }, Status::Running { holder, .. }) => {
            Some(holder.name.clone())
        }
        _ => None,
    }
}

/// A fresh number from 0 to 1.
fn jitter() -> f64 {
    f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}
