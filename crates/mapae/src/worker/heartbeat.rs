//! Heartbeats, on an OS thread of their own with a connection of their own.
//!
//! A handler that blocks or burns every thread of the runtime cannot starve them, so a live worker's job
//! is not run twice. They go on until the last job has ended, also while draining.
//!
//! The thread is also the judge of what is lost. A lease counts from *before* the request that took or
//! renewed it was sent, by the monotonic clock, so this side always gives up before the database does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::readiness::Readiness;
use crate::broker::contract::{Intake, Receipt};
use crate::fault::{self, Point};
use crate::handler::{Context, Stopped};
use crate::job::lease::{Holder, Lease, Timing, Token};
use crate::job::name::JobId;
use crate::store::contract::{Beat, Join, JoinError, Member, Store, StoreError, WorkerReport};

/// How often an unreachable database is asked for a place, at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How long the database may take to hear that the worker leaves, however often it is asked otherwise.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long the broker may take to hold pointers.
const HOLD_PATIENCE: Duration = Duration::from_secs(10);

/// Leases that were given up, of which it is remembered: far more than a process has at a time.
const GIVEN_UP_MAX: usize = 10_000;

/// The leases this process holds.
#[derive(Clone, Default)]
pub(super) struct Held {
    leases: Arc<Mutex<HashMap<Token, Entry>>>,
    /// Of those that were given up as lost: the attempt was made, whatever their rows say.
    given_up: Arc<Mutex<VecDeque<Token>>>,
    released: Arc<Notify>,
}

struct Entry {
    job: JobId,
    /// When this side stops believing in the lease.
    until: Instant,
    /// `None` between the claim and the start of the handler.
    ctx: Option<Context>,
    receipt: Option<Receipt>,
    lost: bool,
    /// Asked to stop before its handler began.
    stop: Option<Stopped>,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Entry>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the lease is renewed. `asked` is when the claim was sent.
    pub(super) fn take(&self, lease: &Lease, asked: Instant, length: Duration, receipt: Option<Receipt>) {
        let entry =
            Entry { job: lease.job, until: asked + length, ctx: None, receipt, lost: false, stop: None };
        self.lock().insert(lease.token, entry);
    }

    /// The handler starts: it is to be stopped when the lease is lost or a cancel is asked.
    pub(super) fn started(&self, token: Token, ctx: &Context) {
        let mut leases = self.lock();
        let Some(entry) = leases.get_mut(&token) else { return };
        entry.ctx = Some(ctx.clone());
        if let Some(why) = entry.stop {
            ctx.stop(why);
        }
    }

    /// Whether the lease may be believed in still; if so, until when.
    pub(super) fn until(&self, token: Token) -> Option<Instant> {
        let now = Instant::now();
        self.lock().get(&token).filter(|entry| !entry.lost && now < entry.until).map(|entry| entry.until)
    }

    /// The lease is given up: it is renewed no more.
    pub(super) fn release(&self, token: Token) {
        let entry = self.lock().remove(&token);
        if entry.is_some_and(|entry| entry.lost || Instant::now() >= entry.until) {
            let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
            given_up.push_back(token);
            if given_up.len() > GIVEN_UP_MAX {
                given_up.pop_front();
            }
        }
        self.released.notify_one();
    }

    /// Returns once a lease was given up since the last call.
    pub(super) async fn released(&self) {
        self.released.notified().await;
    }

    /// Of the leases that are held, and of those that were given up.
    pub(super) fn known(&self) -> HashSet<Token> {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.lock().keys().copied().chain(given_up).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks every running job to stop.
    pub(super) fn stop_all(&self, why: Stopped) {
        for entry in self.lock().values_mut() {
            entry.ask(why);
        }
    }

    fn live(&self) -> (Vec<(JobId, Token)>, Vec<Receipt>) {
        let leases = self.lock();
        let live = leases.iter().filter(|(_, entry)| !entry.lost);
        let receipts = live.clone().filter_map(|(_, entry)| entry.receipt.clone()).collect();
        (live.map(|(token, entry)| (entry.job, *token)).collect(), receipts)
    }

    /// Takes in the answers to a heartbeat that was sent at `asked`.
    fn answered(&self, asked: Instant, length: Duration, leases: &[(JobId, Token)], beats: &[Beat]) {
        let mut held = self.lock();
        for ((_, token), beat) in leases.iter().zip(beats) {
            let Some(entry) = held.get_mut(token) else { continue };
            match beat {
                Beat::Lost => entry.lose(),
                // It runs out by itself if that goes on.
                Beat::Busy => {}
                Beat::Renewed { cancel_asked } => {
                    entry.until = asked + length;
                    if *cancel_asked {
                        entry.ask(Stopped::Cancelled);
                    }
                }
            }
        }
    }

    /// No answer in time is the same as *lost*: whoever is cut off stops before another starts.
    fn expire(&self, now: Instant, margin: Duration) -> usize {
        let mut expired = 0;
        for entry in self.lock().values_mut().filter(|entry| !entry.lost && now + margin >= entry.until) {
            entry.lose();
            expired += 1;
        }
        expired
    }
}

impl Entry {
    fn lose(&mut self) {
        self.lost = true;
        self.stop = None;
        self.ask(Stopped::LeaseLost);
    }

    fn ask(&mut self, why: Stopped) {
        let why = *self.stop.get_or_insert(why);
        if let Some(ctx) = &self.ctx {
            ctx.stop(why);
        }
    }
}

/// The thread's other end.
pub(super) struct Heartbeat {
    pub(super) holder: Holder,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the thread shares with the worker.
pub(super) struct Pulse {
    pub(super) store: Arc<dyn Store>,
    pub(super) timing: Timing,
    pub(super) held: Held,
    pub(super) report: watch::Receiver<WorkerReport>,
    pub(super) readiness: watch::Sender<Readiness>,
    pub(super) intake: watch::Receiver<Option<Arc<dyn Intake>>>,
}

impl Heartbeat {
    /// Starts the thread and waits until the store has given it a name. An unreachable database is
    /// asked again until `give_up`, which says nothing any more once this has returned.
    pub(super) async fn start(
        pulse: Pulse,
        join: Join,
        give_up: CancellationToken,
    ) -> Result<Self, JoinError> {
        let (joined, joining) = oneshot::channel();
        let end = CancellationToken::new();
        let ended = end.clone();
        let thread = std::thread::Builder::new()
            .name("mapae-heartbeat".into())
            .spawn(move || {
                let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = joined.send(Err(StoreError::Unavailable(error.into()).into()));
                        return;
                    }
                };
                runtime.block_on(live(pulse, join, joined, give_up, ended));
            })
            .map_err(|error| StoreError::Unavailable(error.into()))?;
        let holder = joining
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("stopped while joining".into()).into()))?;
        Ok(Self { holder, stop: end, thread: Some(thread) })
    }

    /// Whether heartbeats go on.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// The worker has left; its name is free. Call once no lease is held.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        let Some(thread) = self.thread.take() else { return };
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    }
}

async fn live(
    pulse: Pulse,
    join: Join,
    joined: oneshot::Sender<Result<Holder, JoinError>>,
    give_up: CancellationToken,
    stop: CancellationToken,
) {
    let mut member = match give_up.run_until_cancelled(take_place(&pulse, &join)).await {
        Some(Ok(member)) => member,
        Some(Err(error)) => {
            let _ = joined.send(Err(error));
            return;
        }
        None => return,
    };
    fault::at(Point::JoinKept);
    if joined.send(Ok(member.holder().clone())).is_err() {
        return;
    }
    let mut tick = tokio::time::interval(pulse.timing.heartbeat);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut look = tokio::time::interval(pulse.timing.heartbeat / 4);
    loop {
        tokio::select! {
            _ = tick.tick() => beat(&pulse, &mut *member).await,
            _ = look.tick() => give_up_expired(&pulse),
            () = stop.cancelled() => break,
        }
    }
    farewell(member).await;
}

/// Gives the name up. Without an answer the presence ends all the same; keepers see that.
async fn farewell(member: Box<dyn Member>) {
    let _ = tokio::time::timeout(FAREWELL, member.leave()).await;
}

async fn take_place(pulse: &Pulse, join: &Join) -> Result<Box<dyn Member>, JoinError> {
    let mut wait = RETRY.0;
    loop {
        fault::at(Point::JoinAsked);
        match pulse.store.join(join).await {
            Err(JoinError::Store(error)) if error.is_transient() => {
                warn!(
                    code = error.code(),
                    wait_ms = wait.as_millis() as u64,
                    "the database cannot be reached; trying on"
                );
            }
            other => return other,
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// One round: renew everything, and meanwhile give up what runs out.
async fn beat(pulse: &Pulse, member: &mut dyn Member) {
    let (leases, receipts) = pulse.held.live();
    let report = pulse.report.borrow().clone();
    let asked = Instant::now();
    if !leases.is_empty() {
        fault::at(Point::BeatAsked);
    }
    let answer = {
        let beating = member.beat(&leases, pulse.timing.lease, &report);
        tokio::pin!(beating);
        loop {
            tokio::select! {
                answer = &mut beating => break answer,
                () = tokio::time::sleep(pulse.timing.heartbeat / 4) => give_up_expired(pulse),
            }
        }
    };
    match answer {
        Ok(beats) => {
            if !beats.is_empty() {
                fault::at(Point::BeatKept);
            }
            pulse.held.answered(asked, pulse.timing.lease, &leases, &beats);
            let now = Instant::now();
            pulse.readiness.send_modify(|readiness| readiness.last_beat = Some(now));
        }
        Err(error) => warn!(code = error.code(), leases = leases.len(), "a heartbeat had no answer"),
    }
    give_up_expired(pulse);
    let intake = pulse.intake.borrow().clone();
    if let Some(intake) = intake.filter(|_| !receipts.is_empty()) {
        // Best effort, and beside the leases, which are what counts. Longer than an adapter waits for an
        // answer: it is the one that gives up a connection that is dead.
        let patience = pulse.timing.heartbeat.max(HOLD_PATIENCE);
        tokio::spawn(async move {
            fault::at(Point::HoldAsked);
            let _ = tokio::time::timeout(patience, intake.hold(&receipts)).await;
            fault::at(Point::HoldKept);
        });
    }
}

fn give_up_expired(pulse: &Pulse) {
    let expired = pulse.held.expire(Instant::now(), pulse.timing.margin());
    if expired > 0 {
        error!(
            leases = expired,
            "leases ran out without an answer from the database; their jobs are stopped"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::timestamp::Timestamp;
    use crate::store::memory::Memory;

    fn lease() -> Lease {
        Lease { job: JobId::new(), token: Token::random(), epoch: 1, until: Timestamp::default() }
    }

    #[test]
    fn a_lease_without_an_answer_is_given_up_before_it_ends() {
        let (held, lease, now) = (Held::default(), lease(), Instant::now());
        let (length, margin) = (Duration::from_secs(30), Duration::from_secs(5));
        held.take(&lease, now, length, None);
        assert_eq!(held.expire(now + Duration::from_secs(24), margin), 0);
        assert!(held.until(lease.token).is_some());
        assert_eq!(held.expire(now + Duration::from_secs(25), margin), 1);
        assert_eq!(held.until(lease.token), None, "a lease given up is not believed in again");
        held.answered(now, length, &[(lease.job, lease.token)], &[Beat::Renewed { cancel_asked: false }]);
        assert_eq!(held.until(lease.token), None, "not even when an answer comes late");
    }

    #[test]
    fn what_was_given_up_is_known_to_have_been_run() {
        let (held, lost, ended, now) = (Held::default(), lease(), lease(), Instant::now());
        for lease in [&lost, &ended] {
            held.take(lease, now, Duration::from_secs(30), None);
        }
        held.release(ended.token);
        held.expire(now + Duration::from_secs(25), Duration::from_secs(5));
        held.take(&lost, now, Duration::ZERO, None);
        held.release(lost.token);
        assert_eq!(held.known(), HashSet::from([lost.token]), "of what has ended nothing is remembered");
    }

    #[test]
    fn a_lease_that_ends_before_the_next_heartbeat_could_be_answered_is_given_up_now() {
        let pulse = Pulse {
            store: Arc::new(Memory::new()),
            timing: Timing::default(),
            held: Held::default(),
            report: watch::Sender::new(WorkerReport::default()).subscribe(),
            readiness: watch::Sender::new(Readiness::default()),
            intake: watch::Sender::new(None).subscribe(),
        };
        let (ending, fresh, now) = (lease(), lease(), Instant::now());
        pulse.held.take(&ending, now, pulse.timing.heartbeat, None);
        pulse.held.take(&fresh, now, pulse.timing.lease * 100, None);
        give_up_expired(&pulse);
        assert_eq!(pulse.held.until(ending.token), None);
        assert!(pulse.held.until(fresh.token).is_some());
    }

    /// Its database takes a while to answer.
    struct Slow {
        holder: Holder,
        takes: Duration,
        left: Arc<Mutex<bool>>,
    }

    #[async_trait::async_trait]
    impl Member for Slow {
        fn holder(&self) -> &Holder {
            &self.holder
        }

        async fn beat(
            &mut self,
            _: &[(JobId, Token)],
            _: Duration,
            _: &WorkerReport,
        ) -> Result<Vec<Beat>, StoreError> {
            Ok(Vec::new())
        }

        async fn leave(self: Box<Self>) -> Result<(), StoreError> {
            tokio::time::sleep(self.takes).await;
            *self.left.lock().unwrap() = true;
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_to_the_farewell_is_waited_for_and_none_is_not() {
        // Longer than the shortest heartbeats.
        for (takes, heard) in [(Duration::from_secs(2), true), (FAREWELL * 100, false)] {
            let left = Arc::new(Mutex::new(false));
            let began = tokio::time::Instant::now();
            farewell(Box::new(Slow { holder: Holder::new("w"), takes, left: left.clone() })).await;
            assert_eq!(*left.lock().unwrap(), heard);
            assert_eq!(began.elapsed(), takes.min(FAREWELL));
        }
    }

    #[test]
    fn a_renewal_counts_from_before_it_was_asked_for() {
        let (held, lease, now) = (Held::default(), lease(), Instant::now());
        let length = Duration::from_secs(30);
        held.take(&lease, now, length, None);
        let asked = now + Duration::from_secs(5);
        held.answered(asked, length, &[(lease.job, lease.token)], &[Beat::Renewed { cancel_asked: false }]);
        assert_eq!(held.until(lease.token), Some(asked + length));
    }
}
