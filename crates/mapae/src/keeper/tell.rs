//! Telling the outside: each receiver in a line of its own, so that one that is slow or gone delays no other.
//!
//! ```text
//! pass:  spread what is unsent ─► before whom does something stand? ─► a line for each, where none runs yet
//! line:  take ─► tell, some at the same time ─► say what came of it ─► … until nothing is due, or the receiver rests
//! ```
//!
//! A receiver is told of each event at least once, and of one job's in their order. One that does not take an event
//! is asked again, later and later, and after [`LinePlan::give_up`] that event is dead: it waits for a person, and
//! what of its job comes after it is told all the same.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::{BATCH, BREATH, ROUND};
use crate::fault::{self, Point};
use crate::handler::breaker::Breaker;
use crate::job::retry::Backoff;
use crate::store::contract::{Answer, Delivery, Receiver, StoreError, Told};
use crate::worker::Parts;

/// The longest that telling one event may take anywhere.
pub const TELLING_MAX: Duration = Duration::from_secs(30);

/// How long what was taken is the taker's, as a multiple of what telling may take: it is told, and what came of it is
/// kept, long before.
const HOLD: u32 = 3;

/// Most lines of callbacks at a time, and most receivers that one pass looks at. Configured receivers are few, and each
/// has its line whatever the callbacks' hosts do.
const LINES_MAX: usize = 64;
const LOOK_MAX: usize = 1_000;

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
    /// How long an event is offered before it is dead.
    pub give_up: Duration,
}

/// Whom to tell. Where that is nobody, events are left as they are.
#[derive(Clone, Default)]
pub struct TellPlan {
    pub receivers: Vec<(Receiver, LinePlan)>,
    /// For jobs' own callbacks.
    pub callbacks: Option<LinePlan>,
}

/// Tells, as the keeper's duty wants it.
pub(super) struct Teller {
    parts: Parts,
    plan: TellPlan,
    receivers: Vec<Receiver>,
    lines: Mutex<HashMap<String, Arc<Line>>>,
    places: Arc<Semaphore>,
    running: TaskTracker,
    /// The receiver up to which the last pass looked.
    after: Mutex<String>,
    stop: CancellationToken,
}

/// What this process knows of a receiver.
struct Line {
    name: String,
    plan: LinePlan,
    /// How long it may go on at a time; `None` for a configured receiver.
    turn: Option<Duration>,
    breaker: Breaker,
    running: AtomicBool,
}

/// The line may run again, however it ended.
struct Running(Arc<Line>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::SeqCst);
    }
}

impl Teller {
    pub(super) fn new(parts: Parts, plan: TellPlan, stop: CancellationToken) -> Self {
        let receivers = plan.receivers.iter().map(|(receiver, _)| receiver.clone()).collect();
        let places = Arc::new(Semaphore::new(LINES_MAX));
        let running = TaskTracker::new();
        Self {
            parts,
            plan,
            receivers,
            lines: Mutex::default(),
            places,
            running,
            after: Mutex::default(),
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
        if self.receivers.is_empty() && self.plan.callbacks.is_none() {
            return Ok(ROUND);
        }
        let spread = self.parts.store.spread(&self.receivers, BATCH).await?;
        let after = self.after().clone();
        let names = self.parts.store.lines(&after, LOOK_MAX).await?;
        // Where there are more than one pass looks at, the next goes on behind them.
        let more = names.len() == LOOK_MAX;
        let last = names.last().cloned().filter(|_| more).unwrap_or_default();
        // Before the first that found no place: the next pass begins with that one.
        let mut refused = None;
        let mut before = after;
        // Behind so many hosts of callbacks a configured receiver would be looked at late.
        let configured = self.receivers.iter().map(|receiver| receiver.name.clone()).filter(|_| more);
        for name in configured.chain(names) {
            let behind = std::mem::replace(&mut before, name.clone());
            let Some(line) = self.line(&name) else { continue };
            if line.breaker.rests(Instant::now()).is_some() || line.running.load(Ordering::SeqCst) {
                continue;
            }
            let place = match line.turn {
                None => None,
                Some(_) => match self.places.clone().try_acquire_owned() {
                    Ok(place) => Some(place),
                    Err(_) => {
                        refused.get_or_insert(behind);
                        continue;
                    }
                },
            };
            line.running.store(true, Ordering::SeqCst);
            let running = Running(line.clone());
            let (parts, stop) = (self.parts.clone(), self.stop.clone());
            self.running.spawn(async move {
                let (_running, _place) = (running, place);
                line.tell(&parts, &stop).await;
            });
        }
        *self.after() = refused.unwrap_or(last);
        Ok(if spread >= BATCH { BREATH } else { ROUND })
    }

    fn after(&self) -> std::sync::MutexGuard<'_, String> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` where nobody here knows how to tell it.
    fn line(&self, name: &str) -> Option<Arc<Line>> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(name) {
            return Some(line.clone());
        }
        let configured = self.plan.receivers.iter().find(|(receiver, _)| receiver.name == name);
        let of_jobs = self.plan.callbacks.as_ref().filter(|_| name.contains('/'));
        let plan = configured.map(|(_, plan)| plan).or(of_jobs)?.clone();
        if lines.len() >= REMEMBERED_MAX {
            lines.retain(|_, line| line.running.load(Ordering::SeqCst) || line.breaker.doubts());
        }
        if lines.len() >= REMEMBERED_MAX {
            lines.retain(|_, line| line.running.load(Ordering::SeqCst));
        }
        let turn = configured.is_none().then_some(TURN);
        let (breaker, running) = (Breaker::default(), AtomicBool::new(false));
        let line = Arc::new(Line { name: name.to_owned(), plan, turn, breaker, running });
        lines.insert(name.to_owned(), line.clone());
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
                && self.breaker.rests(Instant::now()).is_none()
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
        if let Some(rest) = self.breaker.heard(taken.is_ok(), Instant::now()) {
            // A callback's host is its owner's, and is not logged.
            let receiver = if self.name.contains('/') { "callback" } else { self.name.as_str() };
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
        if delivery.age >= self.plan.give_up { Answer::Dead { code } } else { Answer::Later { wait, code } }
    }
}
