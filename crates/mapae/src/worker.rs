//! The worker: receive, claim, run, settle, acknowledge. A straight line for each job, and around it one
//! loop that reads and one thread that keeps leases alive.
//!
//! ```text
//! intake ─ pointers ─► claim ─ Run(lease) ─► handler ─ outcome ─► verdict ─► settle ─► acknowledge
//! (rows: claimed from the store)  └ anything else ─► settle the pointer
//! ```

mod consume;
mod heartbeat;
pub(crate) mod journal;
pub mod readiness;
mod run;
pub mod slots;
mod unsure;
mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::heartbeat::{Heartbeat, Held, Pulse};
use self::readiness::{Readiness, Signal};
use self::slots::Slots;
use self::unsure::Unsure;
use self::waits::Waits;
use crate::blob::Blobs;
use crate::broker::contract::{Broker, Intake};
use crate::handler::{Handlers, KindPlan, Stopped};
use crate::job::lease::{Holder, Timing, UnsafeTiming};
use crate::job::limit::{Gate, Limits, Rate};
use crate::job::name::{Class, Lane};
use crate::job::resource::{Amounts, Need, Room};
use crate::metrics::Metrics;
use crate::store::contract::{Join, JoinError, PATIENCE, Store, WorkerReport};

/// How long an idle worker waits for the bell before it looks by itself.
pub const IDLE_WAIT: Duration = Duration::from_secs(1);

/// Waits between attempts to start consuming.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// What a process shares between its door, its worker and its keeper.
#[derive(Clone)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub broker: Arc<dyn Broker>,
    pub blobs: Blobs,
    pub metrics: Arc<Metrics>,
}

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    pub name: String,
    /// The name was configured, so another may not be taken instead.
    pub strict_name: bool,
    /// Jobs running at a time. At least 1.
    pub slots: usize,
    /// Pointers held beyond the slots, where the broker delivers pointers.
    pub prefetch: usize,
    pub timing: Timing,
    /// What this process has of each named resource; one that is not named is not limited here.
    pub capacity: Amounts,
    /// How often jobs that need a resource may start in this process.
    pub rates: BTreeMap<String, Rate>,
    /// What holds over all processes. What the handlers' kinds need of it is added to that.
    pub limits: Limits,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("worker.slots must be at least 1")]
    NoSlots,
    #[error(transparent)]
    Timing(#[from] UnsafeTiming),
    #[error("the kind {kind} needs more of `{resource}` than there is: it could never start")]
    NeverEnough { kind: String, resource: String },
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Everything the worker's tasks share.
struct Worker {
    parts: Parts,
    handlers: Handlers,
    plan: WorkerPlan,
    lanes: Vec<(Lane, Amounts)>,
    holder: Holder,
    slots: Slots,
    held: Held,
    waits: Waits,
    unsure: Unsure,
    /// Resources of this process that only a claim can decide about: by a job's size, or by a rate.
    sized: Vec<String>,
    readiness: watch::Sender<Readiness>,
    report: watch::Sender<WorkerReport>,
    intake: watch::Sender<Option<Arc<dyn Intake>>>,
    drain: CancellationToken,
}

/// A running worker. Dropping it drains it, without anybody waiting for that.
pub struct WorkerHandle {
    worker: Arc<Worker>,
    ended: JoinHandle<()>,
}

/// Starts a worker. Returns once it has its name in the store; an unreachable database is waited for
/// until `give_up`, which says nothing any more once this has returned: [`WorkerHandle::drain`] stops it.
pub async fn start(
    parts: Parts,
    handlers: Handlers,
    plan: WorkerPlan,
    give_up: CancellationToken,
) -> Result<WorkerHandle, StartError> {
    let timing = plan.timing.check()?;
    if plan.slots == 0 {
        return Err(StartError::NoSlots);
    }
    let mut lanes = Vec::new();
    let mut limits = plan.limits.clone();
    let mut sized = Vec::new();
    for registered in handlers.iter() {
        let needs = &registered.plan.needs;
        limits.need(registered.kind.clone(), needs.clone());
        let by_size = |(name, need): &(&str, Need)| {
            plan.rates.contains_key(*name) || need.per_byte > 0 && plan.capacity.get(name).is_some()
        };
        sized.extend(needs.iter().filter(by_size).map(|(name, _)| name.to_owned()));
        let least = needs.of(0);
        if let Some(resource) = plan.capacity.never_enough(&least).or_else(|| limits.never_enough(&least)) {
            return Err(StartError::NeverEnough {
                kind: registered.kind.to_string(),
                resource: resource.into(),
            });
        }
        for class in Class::ALL {
            lanes.push((Lane { kind: registered.kind.clone(), class }, least.clone()));
        }
    }
    sized.sort_unstable();
    sized.dedup();
    parts.store.limit(limits);
    let held = Held::default();
    let readiness = watch::Sender::new(Readiness::default());
    let report = watch::Sender::new(WorkerReport { phase: "starting".into(), ..WorkerReport::default() });
    let intake = watch::Sender::new(None);
    let pulse = Pulse {
        store: parts.store.clone(),
        timing,
        held: held.clone(),
        report: report.subscribe(),
        readiness: readiness.clone(),
        intake: intake.subscribe(),
    };
    let join = Join {
        name: plan.name.clone(),
        strict: plan.strict_name,
        kinds: handlers.kinds(),
        slots: u32::try_from(plan.slots).unwrap_or(u32::MAX),
    };
    let heartbeat = Heartbeat::start(pulse, join, give_up).await?;
    let holder = heartbeat.holder.clone();
    info!(worker = %holder, slots = plan.slots, kinds = lanes.len() / Class::ALL.len(), "worker started");
    let slots = Slots::new(plan.slots, plan.capacity.clone(), plan.rates.clone());
    let drain = CancellationToken::new();
    let worker = Arc::new(Worker {
        parts,
        handlers,
        plan,
        lanes,
        holder,
        slots,
        held,
        waits: Waits::default(),
        unsure: Unsure::default(),
        sized,
        readiness,
        report,
        intake,
        drain,
    });
    let ended = tokio::spawn(live(worker.clone(), heartbeat));
    Ok(WorkerHandle { worker, ended })
}

impl WorkerHandle {
    pub fn holder(&self) -> &Holder {
        &self.worker.holder
    }

    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.worker.readiness.subscribe()
    }

    pub fn slots(&self) -> &Slots {
        &self.worker.slots
    }

    /// The worker has ended, told to or because its heartbeats did.
    pub async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Stops reading at once, lets running jobs end, hands back those that do not within the drain time,
    /// and gives the name up. Heartbeats go on until the last job has ended.
    pub async fn drain(mut self) {
        self.worker.drain.cancel();
        if !self.ended.is_finished() {
            let _ = (&mut self.ended).await;
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.worker.drain.cancel();
    }
}

/// The whole life of a worker: consuming until it is told to drain, then to its end.
async fn live(worker: Arc<Worker>, heartbeat: Heartbeat) {
    let consuming = tokio::spawn(supervise(worker.clone()));
    // Without heartbeats no lease can be kept: what is left is to end in order.
    while !worker.drain.is_cancelled() {
        if !heartbeat.is_alive() {
            error!(worker = %worker.holder, "heartbeats have ended unexpectedly; the worker drains");
            worker.drain.cancel();
        }
        let _ = worker.drain.run_until_cancelled(tokio::time::sleep(IDLE_WAIT)).await;
    }
    worker.signal(Signal::Drain);
    let abort = consuming.abort_handle();
    if tokio::time::timeout(PATIENCE + IDLE_WAIT, consuming).await.is_err() {
        abort.abort();
    }
    let running = worker.held.len();
    if running > 0 {
        info!(worker = %worker.holder, running, "draining");
    }
    if !worker.emptied(worker.plan.timing.drain).await {
        warn!(worker = %worker.holder, running = worker.held.len(), "drain time is over; handing back what still runs");
        worker.held.stop_all(Stopped::Draining);
        worker.emptied(KindPlan::GRACE + Duration::from_secs(5)).await;
    }
    if let Some(intake) = worker.intake.send_replace(None) {
        intake.close(Instant::now() + Duration::from_secs(5)).await;
    }
    heartbeat.stop().await;
    worker.signal(Signal::Stopped);
    info!(worker = %worker.holder, "worker stopped");
}

impl Worker {
    fn signal(&self, signal: Signal) {
        self.readiness.send_modify(|readiness| *readiness = readiness.after(signal, Instant::now()));
        self.tell();
    }

    /// Brings the report that the next heartbeat carries up to date.
    fn tell(&self) {
        let own = slots::waiting(&self.lanes, &self.slots.left());
        let mut waiting = self.waits.now(own);
        // What a kind may do at all is nobody's resource.
        waiting.retain(|(_, what)| !matches!(Gate::parse(what), Some(Gate::Kind(_) | Gate::Owner(_))));
        let report = WorkerReport {
            heartbeat_ms: u64::try_from(self.plan.timing.heartbeat.as_millis()).unwrap_or(u64::MAX),
            phase: self.readiness.borrow().phase.as_str().into(),
            busy: u32::try_from(self.slots.busy()).unwrap_or(u32::MAX),
            waiting,
        };
        self.report.send_if_modified(|known| {
            let news = *known != report;
            *known = report;
            news
        });
    }

    /// What a claim has to know of this process's own resources.
    fn room(&self) -> Vec<Room> {
        self.sized.iter().map(|name| self.slots.room(name)).collect()
    }

    /// Whether no lease is held within `patience`.
    async fn emptied(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while !self.held.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            let _ = tokio::time::timeout(left, self.held.released()).await;
        }
        true
    }
}

/// Keeps the worker consuming until it drains. No error ends it: whatever happens leads back to the start.
async fn supervise(worker: Arc<Worker>) {
    let mut wait = RETRY.0;
    while !worker.drain.is_cancelled() {
        let began = Instant::now();
        // A task of its own, so that a panic in it is an ended loop like any other.
        let consuming = tokio::spawn(consume::consume(worker.clone()));
        match consuming.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(worker = %worker.holder, error = %error, "consuming ended; starting over")
            }
            Err(_) => {
                worker.unsure.failed();
                warn!(worker = %worker.holder, "consuming ended unexpectedly; starting over");
            }
        }
        if worker.drain.is_cancelled() {
            return;
        }
        worker.signal(Signal::LoopEnded);
        wait = if began.elapsed() > RETRY.1 { RETRY.0 } else { (wait * 2).min(RETRY.1) };
        let _ = worker.drain.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
}
