//! The keeper: the net under all of it. It rings what is committed and due and that nobody has rung,
//! reaps leases whose worker is gone, sends events, and prunes.
//!
//! It needs no state of its own and no election: every statement takes its rows under their guards, so
//! any number of keepers may run beside each other. Each pass is bounded.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use futures_util::StreamExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::accept::{UNCONFIRMED, Window};
use crate::blob::{Area, BlobName};
use crate::broker::contract::{Pointer, Published, Source};
use crate::job::event::Event;
use crate::job::name::{JobId, Lane};
use crate::store::contract::{Garbage, Retention, RingPlan, StoreError};
use crate::worker::Parts;

/// How often the keeper looks for due work: jobs wake within 250 ms of their time.
const LOOK: Duration = Duration::from_millis(200);

/// Pause between two passes that both had work.
const BREATH: Duration = Duration::from_millis(5);

/// How often it looks for lost workers, spent deadlines and pointers to ring again.
const ROUND: Duration = Duration::from_millis(500);

/// How often it prunes, and how often it looks through the file store.
const PRUNE: Duration = Duration::from_secs(30);
const SWEEP: Duration = Duration::from_secs(3600);

/// How long a file nobody refers to is left alone: longer than any upload or attempt takes.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// Most rows a pass touches.
const BATCH: usize = 1_000;

/// Where events go. Its own retries are the keeper's: an event that was not taken is offered again.
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// Taken, durably. An error offers the event, and all later ones of its job, again.
    async fn send(&self, event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// How a keeper keeps.
#[derive(Clone)]
pub struct KeeperPlan {
    pub window: Arc<Window>,
    /// How long a published pointer may go unclaimed before it is rung again.
    pub rescan_after: Duration,
    pub retention: Retention,
    pub sink: Option<Arc<dyn EventSink>>,
}

/// A running keeper.
pub struct KeeperHandle {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl KeeperHandle {
    /// Ends after the pass under way.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

pub fn start(parts: Parts, plan: KeeperPlan) -> KeeperHandle {
    let stop = CancellationToken::new();
    let keeper = Keeper { parts, plan };
    let task = tokio::spawn(keep(keeper, stop.clone()));
    KeeperHandle { stop, task }
}

struct Keeper {
    parts: Parts,
    plan: KeeperPlan,
}

/// When each of the slower duties is due.
struct Duties {
    round: Instant,
    prune: Instant,
    sweep: Instant,
}

async fn keep(keeper: Keeper, stop: CancellationToken) {
    let now = Instant::now();
    let mut duties = Duties { round: now, prune: now + PRUNE, sweep: now + SWEEP };
    let mut troubled = false;
    while !stop.is_cancelled() {
        let wait = match keeper.pass(&mut duties).await {
            Ok(wait) => {
                if std::mem::take(&mut troubled) {
                    info!("the keeper reaches the database again");
                }
                wait
            }
            Err(error) => {
                if !std::mem::replace(&mut troubled, true) {
                    warn!(code = error.code(), error = ?error, "a keeper pass failed; trying on");
                }
                5 * LOOK
            }
        };
        let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
}

impl Keeper {
    /// One look, and whatever slower duty is due. Answers how long to wait for the next.
    async fn pass(&self, duties: &mut Duties) -> Result<Duration, StoreError> {
        let due = self.parts.store.next_due(LOOK).await?;
        let mut rung = 0;
        if due.is_some_and(|due| due.is_zero()) {
            rung = self.ring().await?;
        }
        if duties.round <= Instant::now() {
            duties.round = Instant::now() + ROUND;
            rung += self.round().await?;
        }
        if duties.prune <= Instant::now() {
            duties.prune = Instant::now() + PRUNE;
            self.prune().await?;
        }
        if duties.sweep <= Instant::now() {
            duties.sweep = Instant::now() + SWEEP;
            self.sweep().await?;
        }
        Ok(match due {
            _ if rung >= BATCH => BREATH,
            Some(due) if !due.is_zero() => due.max(BREATH),
            _ => LOOK,
        })
    }

    async fn round(&self) -> Result<usize, StoreError> {
        let reaped = self.parts.store.reap(BATCH).await?;
        for (job, kind) in &reaped {
            warn!(job_id = %job, %kind, "the worker of a job is gone; its lease has ended");
            self.parts.metrics.count("mapae_reaped_total", kind.to_string(), 1);
        }
        self.parts.store.expire(BATCH).await?;
        let rung = self.ring().await?;
        self.plan.window.measured(self.parts.store.windows(self.plan.window.size()).await?);
        self.send().await?;
        Ok(rung)
    }

    /// T2 and T8: marks what is due and hands out its pointers.
    async fn ring(&self) -> Result<usize, StoreError> {
        let rows = self.parts.broker.caps().source == Source::Rows;
        let again = if rows { self.plan.rescan_after } else { UNCONFIRMED };
        let plan = RingPlan { window: self.plan.window.size(), again, max: BATCH };
        let rung = self.parts.store.ring(&plan).await?;
        if rung.is_empty() {
            return Ok(0);
        }
        let pointers: Vec<(Lane, Pointer)> = rung
            .iter()
            .map(|rung| {
                let kind = rung.lane.kind.clone();
                let pointer = Pointer::new(rung.job, rung.owner.clone(), kind, rung.hint, rung.trace.clone());
                (rung.lane.clone(), pointer)
            })
            .collect();
        let published = self.parts.broker.publish(&pointers).await;
        for rung in &rung {
            let name = if rung.hint > 1 { "mapae_rescanned_total" } else { "mapae_published_total" };
            self.parts.metrics.count(name, "keeper", 1);
        }
        if !rows {
            let accepted =
                rung.iter().zip(&published).filter(|(_, answer)| matches!(answer, Published::Accepted));
            let accepted: Vec<(JobId, u32)> = accepted.map(|(rung, _)| (rung.job, rung.hint)).collect();
            self.parts.store.rung(&accepted, self.plan.rescan_after).await?;
        }
        Ok(rung.len())
    }

    /// T12: at least once, in order for each job.
    async fn send(&self) -> Result<(), StoreError> {
        let Some(sink) = &self.plan.sink else { return Ok(()) };
        let events = self.parts.store.unsent(BATCH).await?;
        let mut sent = Vec::with_capacity(events.len());
        for event in &events {
            match sink.send(event).await {
                Ok(()) => sent.push((event.job, event.sequence)),
                Err(_) => {
                    warn!(job_id = %event.job, sequence = event.sequence, "an event was not taken; it is offered again")
                }
            }
        }
        self.parts.store.sent(&sent).await
    }

    async fn prune(&self) -> Result<(), StoreError> {
        let pruned = self.parts.store.prune(&self.plan.retention, BATCH).await?;
        if pruned.buried + pruned.expired > 0 {
            info!(buried = pruned.buried, expired = pruned.expired, "pruned");
        }
        let garbage = self.parts.store.garbage(BATCH).await?;
        let mut swept: Vec<Garbage> = Vec::with_capacity(garbage.len());
        for file in garbage {
            // What is not a file of ours cannot be there.
            let gone = match BlobName::parse(&file.file) {
                Ok(name) => self.parts.blobs.delete(&name).await.is_ok(),
                Err(_) => true,
            };
            if gone {
                swept.push(file);
            }
        }
        self.parts.store.swept(&swept).await
    }

    /// Files that no row refers to: of attempts that were lost, and of uploads that were never accepted.
    async fn sweep(&self) -> Result<(), StoreError> {
        let Some(before) = SystemTime::now().checked_sub(ORPHAN_AGE) else { return Ok(()) };
        let _ = self.parts.blobs.remove_unfinished(before).await;
        for area in [Area::Originals, Area::Results] {
            let mut chunks = self.parts.blobs.list(area, before).ready_chunks(BATCH);
            while let Some(chunk) = chunks.next().await {
                let files: Vec<BlobName> = chunk.into_iter().flatten().map(|listed| listed.name).collect();
                let names: Vec<String> = files.iter().map(ToString::to_string).collect();
                let kept = self.parts.store.referenced(&names).await?;
                for name in files.iter().filter(|name| !kept.iter().any(|kept| kept == name.as_str())) {
                    let _ = self.parts.blobs.delete(name).await;
                }
            }
        }
        Ok(())
    }
}
