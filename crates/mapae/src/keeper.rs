//! The keeper: the net under all of it. It rings what is committed and due and that nobody has rung,
//! reaps leases whose worker is gone, sends events, and prunes.
//!
//! It needs no state of its own and no election: every statement takes its rows under their guards, so
//! any number of keepers may run beside each other. Each pass is bounded.
//!
//! Its duties run apart, so that a slow one, a file store or a receiver of events, keeps none of the others
//! waiting; one that ends unexpectedly begins again.
//!
//! | duty | every | |
//! |---|---|---|
//! | bell | 200 ms, or when the next job is due, or when half a window is used up | T2: ring what is due |
//! | leases | 500 ms | T7, the windows; each 2 s deadlines and T8, ringing again |
//! | batches | 500 ms | those that have ended go on; what is left of cancelled ones is stopped |
//! | events | 500 ms | T12 |
//! | files | 30 s | retention, garbage; what the broker put aside; each hour files nobody refers to |
//! | schedules | 1 s, or when the next one ticks | a job for each tick |

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::accept::{UNCONFIRMED, Window};
use crate::broker::contract::{Pointer, Published, Source};
use crate::fault::{self, Mutant, Point};
use crate::job::State;
use crate::job::name::{JobId, Lane};
use crate::job::schedule::Plan;
use crate::store::contract::{ControlError, Reaped, Retention, RingPlan, Scope, StoreError};
use crate::worker::Parts;

mod files;
mod rescan;
mod schedule;
#[cfg(feature = "streams")]
pub mod stream;
pub mod tell;
mod turns;
#[cfg(feature = "http")]
pub mod webhook;

use self::rescan::Patience;
use self::tell::{TellPlan, Teller};

/// How often the keeper looks for due work: jobs wake within 250 ms of their time.
const LOOK: Duration = Duration::from_millis(200);

/// Pause between two passes that both had work.
const BREATH: Duration = Duration::from_millis(5);

/// How often it looks for lost workers, measures the windows, and sends events.
const ROUND: Duration = Duration::from_millis(500);

/// Deadlines and pointers to ring again are looked at in one of so many rounds.
const SLOWER: u32 = 4;

/// How often it asks how far owners' turns reach, and of how many.
const REACH: Duration = Duration::from_secs(60);
const TURNS_MAX: usize = 10_000;

/// Jobs cancelled at the same time, because what they are parts of has ended: of the connections to the database, most
/// are left to others.
const STOPS_AT_ONCE: usize = 2;

/// How often one round takes back what is offered beyond the window.
const WITHDRAWALS_MAX: usize = 5;

/// Pause after a duty that failed.
const TROUBLE: Duration = Duration::from_secs(1);

/// How long a keeper that stops waits for what is under way: a store of files that does not answer is no reason
/// to be killed.
const STOPPING: Duration = Duration::from_secs(5);

/// Most rows a pass touches.
const BATCH: usize = 1_000;

/// How a keeper keeps.
#[derive(Clone)]
pub struct KeeperPlan {
    pub window: Arc<Window>,
    /// How long a published pointer may go unclaimed before it is rung again, at least: longer where
    /// pointers wait in the broker for long.
    pub rescan_after: Duration,
    pub retention: Retention,
    /// Whom to tell of events.
    pub tell: TellPlan,
    /// Rung where jobs may have become due just now: they are looked for at once.
    pub bell: Arc<Notify>,
    /// The schedules this keeper keeps. Any number of keepers may have the same.
    pub schedules: Vec<Plan>,
}

/// A running keeper. Dropping it does not stop it: [`KeeperHandle::stop`] does.
pub struct KeeperHandle {
    stop: CancellationToken,
    duties: Vec<JoinHandle<()>>,
}

impl KeeperHandle {
    /// Ends after the passes under way, or within five seconds: a pass may be given up anywhere, as a kill would.
    pub async fn stop(self) {
        self.stop.cancel();
        let until = tokio::time::Instant::now() + STOPPING;
        for mut duty in self.duties {
            if tokio::time::timeout_at(until, &mut duty).await.is_err() {
                duty.abort();
            }
        }
    }
}

pub fn start(parts: Parts, plan: KeeperPlan) -> KeeperHandle {
    let stop = CancellationToken::new();
    let teller = Teller::new(parts.clone(), plan.tell.clone(), stop.clone());
    let keeper = Arc::new(Keeper::new(parts, plan, teller));
    let heard = tokio::spawn(hear(keeper.clone(), stop.clone()));
    let scheduled = (!keeper.plan.schedules.is_empty()).then_some(Duty::Schedules);
    let duties = [Duty::Bell, Duty::Leases, Duty::Batches, Duty::Events, Duty::Files]
        .into_iter()
        .chain(scheduled)
        .map(|duty| tokio::spawn(keep(keeper.clone(), duty, stop.clone())))
        .chain([heard])
        .collect();
    KeeperHandle { stop, duties }
}

struct Keeper {
    parts: Parts,
    teller: Teller,
    plan: KeeperPlan,
    swept_at: Mutex<Instant>,
    /// When a pass last had something due to ring.
    rang_at: Mutex<Instant>,
    /// When the store last told how far owners' turns reach.
    reached_at: Mutex<Option<Instant>>,
    /// Passes over the leases so far.
    rounds: AtomicU32,
    /// Since when the broker has not answered.
    silent_since: Mutex<Option<Instant>>,
    /// The store knows of the schedules.
    defined: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
enum Duty {
    Bell,
    Leases,
    Batches,
    Events,
    Files,
    Schedules,
}

/// Rings for programs that say in the database that they have submitted jobs.
async fn hear(keeper: Arc<Keeper>, stop: CancellationToken) {
    let store = keeper.parts.store.clone();
    while let Some(heard) = stop.run_until_cancelled(store.heard()).await {
        match heard {
            Ok(()) => keeper.plan.bell.notify_one(),
            // Nobody waits for it: what is due is looked for all the same.
            Err(_) => drop(stop.run_until_cancelled(tokio::time::sleep(TROUBLE)).await),
        }
    }
}

/// Does one duty again and again, whatever becomes of a pass.
async fn keep(keeper: Arc<Keeper>, duty: Duty, stop: CancellationToken) {
    let mut troubled = false;
    while !stop.is_cancelled() {
        // A task of its own: a panic is a failed pass like any other.
        let pass = tokio::spawn({
            let keeper = keeper.clone();
            async move { keeper.pass(duty).await }
        });
        let wait = match pass.await {
            Ok(Ok(wait)) => {
                if std::mem::take(&mut troubled) {
                    info!(?duty, "the keeper does its duty again");
                }
                wait
            }
            Ok(Err(error)) => {
                if !std::mem::replace(&mut troubled, true) {
                    warn!(?duty, code = error.code(), said = error.said(), "a keeper pass failed; trying on");
                }
                TROUBLE
            }
            Err(_) => {
                error!(?duty, "a keeper pass ended unexpectedly; trying on");
                TROUBLE
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = keeper.plan.bell.notified(), if matches!(duty, Duty::Bell) => {}
            () = stop.cancelled() => {}
        }
    }
    if matches!(duty, Duty::Events) {
        keeper.teller.ended().await;
    }
}

/// When to ring again after a pass that rang so many: when half of a window has been used up at the pace of late,
/// so that workers never find it empty while there is a backlog, and a pass is worth its cost.
fn next_ring(rung: usize, since: Duration, window: usize) -> Duration {
    match rung {
        0 => LOOK,
        BATCH.. => BREATH,
        rung => since.mul_f64(window as f64 / (2 * rung) as f64).clamp(BREATH, LOOK),
    }
}

impl Keeper {
    fn new(parts: Parts, plan: KeeperPlan, teller: Teller) -> Self {
        Self {
            parts,
            teller,
            plan,
            swept_at: Mutex::new(Instant::now()),
            rang_at: Mutex::new(Instant::now()),
            rounds: AtomicU32::new(0),
            reached_at: Mutex::default(),
            silent_since: Mutex::default(),
            defined: AtomicBool::new(false),
        }
    }

    /// One pass; answers how long to wait for the next.
    async fn pass(&self, duty: Duty) -> Result<Duration, StoreError> {
        match duty {
            Duty::Bell => self.bell().await,
            Duty::Leases => self.leases().await.map(|()| ROUND),
            Duty::Batches => self.batches().await.map(|()| ROUND),
            Duty::Events => self.teller.pass().await,
            Duty::Files => self.files().await,
            Duty::Schedules => self.schedules().await,
        }
    }

    async fn bell(&self) -> Result<Duration, StoreError> {
        Ok(match self.parts.store.next_due(LOOK).await? {
            Some(due) if due.is_zero() => {
                let rung = self.ring(None).await?;
                let mut rang_at = self.rang_at.lock().unwrap_or_else(PoisonError::into_inner);
                let since = std::mem::replace(&mut *rang_at, Instant::now()).elapsed();
                next_ring(rung, since, self.plan.window.size())
            }
            Some(due) => due.max(BREATH),
            None => LOOK,
        })
    }

    async fn leases(&self) -> Result<(), StoreError> {
        let reaped = self.reap().await;
        for Reaped { job, kind, state } in reaped.iter().flatten() {
            warn!(job_id = %job, %kind, "a job's lease has ended: its holder is gone, or told no end of it in time");
            self.parts.metrics.count("mapae_reaped_total", kind.to_string(), 1);
            if state.is_terminal() {
                self.parts.metrics.count("mapae_jobs_finished_total", state.as_str(), 1);
            }
        }
        let unreadable = self.parts.store.take_unreadable();
        self.parts.metrics.count("mapae_jobs_finished_total", State::Failed.as_str(), unreadable);
        // One that fails does not keep the others from being tried.
        let reached = self.reach().await;
        let measured = self.measure().await;
        let urgent = reaped.map(drop).and(reached).and(measured);
        // What is less urgent, and would keep an idle database from resting.
        if !self.rounds.fetch_add(1, Ordering::Relaxed).is_multiple_of(SLOWER) {
            return urgent;
        }
        let expired = self.expire().await;
        let rung = self.rescan().await;
        urgent.and(expired.map(drop)).and(rung.map(drop))
    }

    /// Batches that have ended go on, and what is left of those whose parent has ended is stopped.
    async fn batches(&self) -> Result<(), StoreError> {
        let store = &self.parts.store;
        let woken = store.wake(BATCH).await?;
        self.parts.metrics.count("mapae_batches_ended_total", "", woken as u64);
        let strays = store.strays(BATCH).await?;
        // Each may wait for a record that others have locked: the rest is stopped by the next pass.
        let until = Instant::now() + ROUND;
        let strays = strays.into_iter().take_while(|_| Instant::now() < until);
        let stop = strays.map(async |job| match store.cancel(&Scope::All, job).await {
            Ok(State::Cancelled) => {
                self.parts.metrics.count("mapae_jobs_finished_total", State::Cancelled.as_str(), 1);
                Ok(())
            }
            // It has ended meanwhile.
            Ok(_) | Err(ControlError::NotFound | ControlError::Conflict(_)) => Ok(()),
            Err(ControlError::Store(error)) => Err(error),
        });
        let stopped = futures_util::stream::iter(stop).buffer_unordered(STOPS_AT_ONCE);
        stopped.fold(Ok(()), async |all, one| all.and(one)).await
    }

    /// Now and then, and before anything else: how far each owner's backlog reaches, for this process deals out turns
    /// and may have been started when there was one, or beside others.
    async fn reach(&self) -> Result<(), StoreError> {
        let due = {
            let reached_at = self.reached_at.lock().unwrap_or_else(PoisonError::into_inner);
            reached_at.is_none_or(|at| at.elapsed() >= REACH && !self.plan.window.is_empty())
        };
        if due {
            self.plan.window.reached(self.parts.store.turns(TURNS_MAX).await?);
            *self.reached_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        Ok(())
    }

    /// How full the windows are, where anything waits.
    async fn measure(&self) -> Result<(), StoreError> {
        if !self.plan.window.is_empty() {
            self.plan.window.measured(self.parts.store.windows(self.plan.window.size()).await?);
        }
        Ok(())
    }

    /// T7.
    async fn reap(&self) -> Result<Vec<Reaped>, StoreError> {
        if fault::broken(Mutant::NoReaper) {
            return Ok(Vec::new());
        }
        fault::at(Point::ReapAsked);
        let reaped = self.parts.store.reap(BATCH).await?;
        if !reaped.is_empty() {
            fault::at(Point::ReapKept);
        }
        Ok(reaped)
    }

    async fn expire(&self) -> Result<usize, StoreError> {
        fault::at(Point::ExpireAsked);
        let expired = self.parts.store.expire(BATCH).await?;
        if expired > 0 {
            fault::at(Point::ExpireKept);
        }
        self.parts.metrics.count("mapae_jobs_finished_total", State::Failed.as_str(), expired as u64);
        Ok(expired)
    }

    /// T2 and T8.
    async fn rescan(&self) -> Result<usize, StoreError> {
        // Rows need no pointer: whoever reads them sees them all, and looks by itself besides. What waits there
        // is not lost, and there is nothing to ring again.
        if self.parts.broker.caps().source == Source::Rows {
            return self.ring(None).await;
        }
        // Offered as rows, under a broker of before: more than this one is to hold.
        // What is left is the next round's: leases wait meanwhile.
        for _ in 0..WITHDRAWALS_MAX {
            if self.parts.store.withdraw(self.plan.window.size(), BATCH).await? < BATCH {
                break;
            }
        }
        let told = rescan::patience(&self.parts, self.plan.rescan_after).await?;
        let silence = {
            let mut silent = self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
            *silent = if told.is_some() { None } else { silent.or_else(|| Some(Instant::now())) };
            silent.map_or(Duration::ZERO, |since| since.elapsed())
        };
        let rescan = rescan::decide(told, silence);
        self.ring(rescan).await
    }

    /// Marks what is due and hands out its pointers: T2, and T8 with this patience.
    async fn ring(&self, rescan: Option<Patience>) -> Result<usize, StoreError> {
        let rows = self.parts.broker.caps().source == Source::Rows;
        let again = if rows { self.plan.rescan_after } else { UNCONFIRMED };
        let window = self.plan.window.size();
        let least = if rows { window.div_ceil(4) } else { 0 };
        let plan = RingPlan { window, least, again, rescan, max: BATCH };
        fault::at(Point::RingAsked);
        let rung = self.parts.store.ring(&plan).await?;
        if rung.is_empty() {
            return Ok(0);
        }
        fault::at(Point::RingKept);
        let pointers: Vec<(Lane, Pointer)> = rung
            .iter()
            .map(|rung| {
                let kind = rung.lane.kind.clone();
                let pointer = Pointer::new(rung.job, rung.owner.clone(), kind, rung.hint, rung.trace.clone());
                (rung.lane.clone(), pointer)
            })
            .collect();
        let published = self.parts.broker.publish(&pointers).await;
        fault::at(Point::RingRung);
        let accepted =
            |(rung, answer): (_, &Published)| matches!(answer, Published::Accepted).then_some(rung);
        for rung in rung.iter().zip(&published).filter_map(accepted) {
            let name = if rung.hint > 1 { "mapae_rescanned_total" } else { "mapae_published_total" };
            self.parts.metrics.count(name, "keeper", 1);
        }
        if !rows {
            let accepted =
                rung.iter().zip(&published).filter(|(_, answer)| matches!(answer, Published::Accepted));
            let accepted: Vec<(JobId, u32)> = accepted.map(|(rung, _)| (rung.job, rung.hint)).collect();
            self.parts.store.rung(&accepted, self.plan.rescan_after).await?;
            fault::at(Point::RingMarked);
        }
        Ok(rung.len())
    }

    async fn schedules(&self) -> Result<Duration, StoreError> {
        let (store, plans) = (&*self.parts.store, &self.plan.schedules);
        if !self.defined.load(Ordering::Relaxed) {
            schedule::define(store, plans).await?;
            self.defined.store(true, Ordering::Relaxed);
        }
        schedule::pass(store, plans).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_filled_again_when_half_of_it_is_used_up() {
        let ms = Duration::from_millis;
        let window = 1_000;
        assert_eq!(next_ring(0, ms(10), window), LOOK, "nothing to ring");
        assert_eq!(next_ring(1, ms(200), window), LOOK, "a trickle");
        assert_eq!(next_ring(500, ms(100), window), ms(100), "as it was");
        assert_eq!(next_ring(900, ms(90), window), ms(50), "sooner: it was nearly empty");
        assert_eq!(next_ring(10, ms(0), window), BREATH);
        assert_eq!(next_ring(10, Duration::from_secs(1_000_000), window), LOOK);
        assert_eq!(next_ring(BATCH, ms(90), window), BREATH, "more than a pass takes");
    }
}
