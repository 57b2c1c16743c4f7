//! Telling the outside: each receiver in a line of its own, so that one that is slow or gone delays no other, and no
//! owner of callbacks another.
//!
//! ```text
//! pass:  spread what is unsent ─► before whom does something stand? ─► a line for each, where none runs yet;
//!        of callbacks one for each owner and host, and owners take turns
//! line:  take ─► tell, some at the same time ─► say what came of it ─► … until nothing is due, or the receiver rests
//! ```
//!
//! A receiver is told of each event at least once, and of one job's in their order. One that does not take an event
//! is asked again, later and later, and after [`TellPlan::give_up`] that event is dead: it waits for a person, and
//! what of its job comes after it is told all the same. So is what stands before a receiver that is left alone, or
//! that no process knows any more, and what is too much: what stands before receivers has a bound.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::turns::{Found, Turns};
use super::{BATCH, BREATH, ROUND};
use crate::fault::{self, Point};
use crate::handler::breaker::Breaker;
use crate::job::retry::Backoff;
use crate::store::contract::{Answer, Crowd, Delivery, Receiver, StoreError, Told};
use crate::worker::Parts;

/// The longest that telling one event may take anywhere.
pub const TELLING_MAX: Duration = Duration::from_secs(30);

/// How long what was taken is the taker's, as a multiple of what telling may take: it is told, and what came of it is
/// kept, long before.
const HOLD: u32 = 3;

/// Most lines of callbacks at a time. Configured receivers are few, and each has its line whatever the callbacks' hosts
/// do.
const LINES_MAX: usize = 64;

/// Most owners that one pass looks at, and how many of their lines: all of them together, and at least of each.
const OWNERS_MAX: usize = 1_000;
const LOOK_MAX: usize = 1_000;
const LOOK_MIN: usize = 16;

/// How often what stands before receivers is looked at as a whole.
const BOUND: Duration = Duration::from_secs(30);

/// A process that has just started gives up only what it has offered itself: nobody may have been there to tell
/// anything for days.
const GRACE: Duration = Duration::from_secs(3600);

/// How long a line of callbacks goes on before it lets others have its place.
const TURN: Duration = Duration::from_secs(5);

/// Most lines that are remembered: callbacks go to as many hosts as there are.
const REMEMBERED_MAX: usize = 10_000;

/// Takes events to where they are told.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// The receiver has taken it, durably as far as it says.
    async fn take(&self, delivery: &Delivery) -> Result<(), NotTaken>;
}

/// Why a receiver did not take an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    /// Stable, without content.
    pub code: String,
    pub then: Then,
}

/// What becomes of an event that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Offered again after the backoff.
    Again,
    /// The receiver said when.
    After(Duration),
    /// Never offered again.
    Never,
}

/// How one line is told.
#[derive(Clone)]
pub struct LinePlan {
    pub courier: Arc<dyn Courier>,
    /// Events on their way at the same time from this process, of different jobs.
    pub concurrent: usize,
    /// The longest that telling one event may take; three times as long nobody else tells it, should this process die.
    pub patience: Duration,
    pub backoff: Backoff,
}

/// Whom to tell. Where that is nobody, events are left as they are.
#[derive(Clone)]
pub struct TellPlan {
    pub receivers: Vec<(Receiver, LinePlan)>,
    /// For jobs' own callbacks.
    pub callbacks: Option<LinePlan>,
    /// Names that receivers had, and have now: what stands before the one stands before the other.
    pub renamed: Vec<(String, String)>,
    /// How long an event is offered before it is dead.
    pub give_up: Duration,
    /// Most events that stand before one receiver, and most that were given up; about.
    pub most: usize,
}

impl Default for TellPlan {
    fn default() -> Self {
        let give_up = Duration::from_secs(3 * 24 * 3600);
        Self { receivers: Vec::new(), callbacks: None, renamed: Vec::new(), give_up, most: 1_000_000 }
    }
}

/// Tells, as the keeper's duty wants it.
pub(super) struct Teller {
    parts: Parts,
    plan: TellPlan,
    receivers: Vec<Receiver>,
    lines: Mutex<HashMap<String, Arc<Line>>>,
    /// How many lines of each owner's callbacks are being told.
    busy: Arc<Mutex<HashMap<String, usize>>>,
    running: TaskTracker,
    began: Instant,
    bounded_at: Mutex<Instant>,
    renamed_at: Mutex<Option<Instant>>,
    turns: Mutex<Turns>,
    stop: CancellationToken,
}

/// What this process knows of a receiver.
struct Line {
    name: String,
    plan: LinePlan,
    give_up: Duration,
    /// How long it may go on at a time; `None` for a configured receiver.
    turn: Option<Duration>,
    breaker: Breaker,
    running: AtomicBool,
}

/// However the line ends, it may run again, and its place is another's.
struct Running {
    line: Arc<Line>,
    /// Whose callbacks it tells.
    owner: Option<String>,
    busy: Arc<Mutex<HashMap<String, usize>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.line.running.store(false, Ordering::SeqCst);
        let Some(owner) = self.owner.take() else { return };
        let mut busy = lock(&self.busy);
        if let Some(places) = busy.get_mut(&owner) {
            *places -= 1;
        }
        busy.retain(|_, places| *places > 0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As a breaker reads it.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

impl Teller {
    pub(super) fn new(parts: Parts, plan: TellPlan, stop: CancellationToken) -> Self {
        let receivers = plan.receivers.iter().map(|(receiver, _)| receiver.clone()).collect();
        let (running, began) = (TaskTracker::new(), Instant::now());
        Self {
            parts,
            plan,
            receivers,
            lines: Mutex::default(),
            busy: Arc::default(),
            running,
            began,
            bounded_at: Mutex::new(began),
            renamed_at: Mutex::default(),
            turns: Mutex::default(),
            stop,
        }
    }

    /// After a stop: until all lines have said what came of what was on its way.
    pub(super) async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// Answers when to look again.
    pub(super) async fn pass(&self) -> Result<Duration, StoreError> {
        // One that fails keeps nobody from being told.
        let bound = self.bound().await;
        if self.receivers.is_empty() && self.plan.callbacks.is_none() {
            return Ok(if bound? { BREATH } else { ROUND });
        }
        // Before anything is put behind it under the new name.
        if self.rename().await? {
            return Ok(BREATH);
        }
        let spread = self.parts.store.spread(&self.receivers, BATCH).await?;
        let names: Vec<String> = self.receivers.iter().map(|receiver| receiver.name.clone()).collect();
        for name in self.parts.store.due(&names).await? {
            if self.may_run(&name) {
                self.start(&name, None);
            }
        }
        if self.plan.callbacks.is_some() {
            self.call().await?;
        }
        Ok(if bound? || spread >= BATCH { BREATH } else { ROUND })
    }

    /// At first, and now and then, for a process of before may still run: what stands before a former name of a
    /// receiver. Whether there is more of it.
    async fn rename(&self) -> Result<bool, StoreError> {
        let now = Instant::now();
        if lock(&self.renamed_at).is_some_and(|at| now.duration_since(at) < BOUND) {
            return Ok(false);
        }
        for (from, to) in &self.plan.renamed {
            if self.parts.store.rename(from, to, BATCH).await? >= BATCH {
                return Ok(true);
            }
        }
        *lock(&self.renamed_at) = Some(now);
        Ok(false)
    }

    /// Now and then: what has stood too long, or is too much, is given up. Whether there is more of it.
    async fn bound(&self) -> Result<bool, StoreError> {
        let now = Instant::now();
        let before = std::mem::replace(&mut *lock(&self.bounded_at), now);
        if now.duration_since(before) < BOUND {
            *lock(&self.bounded_at) = before;
            return Ok(false);
        }
        let mut given_up = 0;
        if now.duration_since(self.began) >= GRACE.min(self.plan.give_up) {
            given_up = self.parts.store.give_up(self.plan.give_up, BATCH).await?;
        }
        let mut more = given_up >= BATCH;
        for receiver in &self.receivers {
            let crowd = self.parts.store.crowd(&receiver.name, self.plan.most, BATCH).await?;
            more |= crowd.given_up.max(crowd.forgotten) >= BATCH;
            given_up += crowd.given_up;
            self.parts.metrics.count("mapae_events_told_total", "forgotten", crowd.forgotten as u64);
            if crowd != Crowd::default() {
                let Crowd { given_up, forgotten } = crowd;
                warn!(
                    receiver = receiver.name,
                    given_up, forgotten, "too much stands before a receiver of events"
                );
            }
        }
        self.parts.metrics.count("mapae_events_told_total", "dead", given_up as u64);
        if given_up > 0 {
            warn!(given_up, "events that nobody took were given up; `mapae events dead` lists them");
        }
        if more {
            *lock(&self.bounded_at) = before;
        }
        Ok(more)
    }

    /// Lines of callbacks, as many as there are places for.
    async fn call(&self) -> Result<(), StoreError> {
        let after = self.turns().after();
        let owners = self.parts.store.callers(&after, OWNERS_MAX).await?;
        if owners.is_empty() && after.is_empty() {
            return Ok(());
        }
        let each = (LOOK_MAX / owners.len().max(1)).max(LOOK_MIN);
        let asked = self.turns().asked(&owners);
        let calls = self.parts.store.calls(&asked, each).await?;
        let found = Found { owners: &owners, more: owners.len() == OWNERS_MAX, calls, each };
        let busy = lock(&self.busy).clone();
        let chosen = self.turns().choose(found, |line| self.may_run(line), &busy, LINES_MAX);
        for call in chosen {
            self.start(&call.line, Some(call.owner));
        }
        Ok(())
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        lock(&self.turns)
    }

    /// It is not being told, and does not rest.
    fn may_run(&self, name: &str) -> bool {
        lock(&self.lines)
            .get(name)
            .is_none_or(|line| line.breaker.rests(now()).is_none() && !line.running.load(Ordering::SeqCst))
    }

    fn start(&self, name: &str, owner: Option<String>) {
        let Some(line) = self.line(name, owner.is_some()) else { return };
        line.running.store(true, Ordering::SeqCst);
        if let Some(owner) = &owner {
            *lock(&self.busy).entry(owner.clone()).or_default() += 1;
        }
        let running = Running { line, owner, busy: self.busy.clone() };
        let (parts, stop) = (self.parts.clone(), self.stop.clone());
        self.running.spawn(async move { running.line.tell(&parts, &stop).await });
    }

    /// `None` where nobody here knows how to tell it.
    fn line(&self, name: &str, of_jobs: bool) -> Option<Arc<Line>> {
        let mut lines = lock(&self.lines);
        if let Some(line) = lines.get(name) {
            return Some(line.clone());
        }
        let plan = match of_jobs {
            true => self.plan.callbacks.clone()?,
            false => self.plan.receivers.iter().find(|(receiver, _)| receiver.name == name)?.1.clone(),
        };
        if lines.len() >= REMEMBERED_MAX {
            lines.retain(|_, line| line.running.load(Ordering::SeqCst) || line.breaker.doubts());
        }
        if lines.len() >= REMEMBERED_MAX {
            lines.retain(|_, line| line.running.load(Ordering::SeqCst));
        }
        let turn = of_jobs.then_some(TURN);
        let (breaker, running) = (Breaker::default(), AtomicBool::new(false));
        let (name, give_up) = (name.to_owned(), self.plan.give_up);
        let line = Arc::new(Line { name: name.clone(), plan, give_up, turn, breaker, running });
        lines.insert(name, line.clone());
        Some(line)
    }
}

impl Line {
    /// Until nothing is due, the receiver rests, its turn is over, or `stop`; what is on its way then is waited for.
    async fn tell(&self, parts: &Parts, stop: &CancellationToken) {
        let mut under_way = FuturesUnordered::new();
        let began = Instant::now();
        loop {
            let width = if self.breaker.doubts() { 1 } else { self.plan.concurrent };
            let room = width.saturating_sub(under_way.len());
            let open = !stop.is_cancelled()
                && self.breaker.rests(now()).is_none()
                && self.turn.is_none_or(|turn| began.elapsed() < turn);
            if open && room > 0 {
                match parts.store.take(&self.name, room, HOLD * self.plan.patience).await {
                    Ok(taken) => under_way.extend(taken.into_iter().map(|delivery| self.offer(delivery))),
                    Err(error) => {
                        warn!(code = error.code(), "events cannot be read to be told; trying on");
                        if under_way.is_empty() {
                            return;
                        }
                    }
                }
            }
            let Some(first) = under_way.next().await else { return };
            let mut answers = vec![first];
            while let Some(Some(next)) = under_way.next().now_or_never() {
                answers.push(next);
            }
            for told in &answers {
                let outcome = match told.answer {
                    Answer::Taken => "taken",
                    Answer::Later { .. } => "later",
                    Answer::Dead { .. } => "dead",
                };
                parts.metrics.count("mapae_events_told_total", outcome, 1);
            }
            // What is not kept is told again once its hold is over.
            if let Err(error) = parts.store.told(&answers).await {
                warn!(code = error.code(), "what came of telling events was not kept; they are told again");
                return;
            }
            fault::at(Point::EventMarked);
        }
    }

    async fn offer(&self, delivery: Delivery) -> Told {
        fault::at(Point::EventOffered);
        let silent = || NotTaken { code: "receiver-silent".into(), then: Then::Again };
        let taken = tokio::time::timeout(self.plan.patience, self.plan.courier.take(&delivery)).await;
        let taken = taken.unwrap_or_else(|_| Err(silent()));
        let (job, sequence) = (delivery.event.job, delivery.event.sequence);
        match &taken {
            Ok(()) => fault::at(Point::EventTaken),
            Err(refusal) => {
                let (code, tries) = (&refusal.code, delivery.tries);
                info!(job_id = %job, sequence, code, tries, "an event was not taken");
            }
        }
        if let Some(rest) = self.breaker.heard(taken.is_ok(), now()) {
            // A callback's host is its owner's, and is not logged.
            let receiver = if self.turn.is_some() { "callback" } else { self.name.as_str() };
            warn!(receiver, seconds = rest.as_secs(), "a receiver of events takes none and is left alone");
        }
        let jitter = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        let answer = self.answer(&delivery, taken, jitter);
        if matches!(answer, Answer::Dead { .. }) {
            warn!(job_id = %job, sequence, "an event was given up; `mapae events dead` lists it");
        }
        Told { id: delivery.id, token: delivery.token, answer }
    }

    /// Pure.
    fn answer(&self, delivery: &Delivery, taken: Result<(), NotTaken>, jitter: f64) -> Answer {
        let Err(NotTaken { code, then }) = taken else { return Answer::Taken };
        let wait = match then {
            Then::Again => self.plan.backoff.wait(delivery.tries, jitter),
            Then::After(wait) => wait,
            Then::Never => return Answer::Dead { code },
        };
        if delivery.age >= self.give_up { Answer::Dead { code } } else { Answer::Later { wait, code } }
    }
}
