//! A broker that keeps none of its promises but the contract's.
//!
//! It lives in memory and, from a seed, loses, doubles, delays, garbles and reorders pointers, answers
//! publishes with no or not at all, fails reads, and forgets acknowledgements. On command it loses everything.
//! What it keeps is what `broker/contract.rs` says, in either way of settling:
//!
//! | | at finish | at claim |
//! |---|---|---|
//! | like | a stream's pending list | a channel's deliveries |
//! | a reader is gone | its entries stay, and are orphans | its entries are offered to others |
//! | a receipt settles | its entry, whoever holds it now | its own delivery only |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use mapae::broker::contract::{
    Broker, BrokerError, BrokerStats, Caps, Delivery, Figure, Health, Hold, Intake, IntakePlan, Pointer,
    Published, Receipt, Settle, Settled, Settling, Source,
};
use mapae::job::lease::Holder;
use mapae::job::name::Lane;
use tokio::sync::Notify;

/// How often each thing goes wrong, in a hundred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moods {
    /// Accepted and never seen again.
    pub(crate) lose: u64,
    pub(crate) double: u64,
    /// Visible up to 50 ms later.
    pub(crate) delay: u64,
    pub(crate) garble: u64,
    pub(crate) refuse: u64,
    /// No answer to a publish; half of these pointers are there.
    pub(crate) unknown: u64,
    pub(crate) fail_read: u64,
    /// No answer to a settle, which has not happened.
    pub(crate) forget: u64,
}

/// Cheap to clone; clones are the same broker.
#[derive(Clone)]
pub(crate) struct Unruly {
    settling: Settling,
    moods: Moods,
    state: Arc<Mutex<State>>,
    bell: Arc<Notify>,
}

#[derive(Default)]
struct State {
    dice: u64,
    last: u64,
    lanes: BTreeSet<Lane>,
    waiting: Vec<Entry>,
    /// Delivered and not settled.
    pending: BTreeMap<u64, Taken>,
    parked: Vec<(&'static str, Vec<u8>)>,
    settled: Vec<(Holder, u64, Settle)>,
    held_most: usize,
    reads_fail: bool,
    silent: bool,
    failed_reads: u64,
    failed_looks: u64,
    offered_again: u64,
}

#[derive(Clone)]
struct Entry {
    id: u64,
    lane: Lane,
    body: Vec<u8>,
    visible_at: Instant,
    deliveries: u64,
}

struct Taken {
    entry: Entry,
    consumer: Holder,
    epoch: u64,
    since: Instant,
}

impl State {
    /// The next number of a splitmix64 sequence (Steele, Lea, Flood 2014).
    fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.dice;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    fn chance(&mut self, in_a_hundred: u64) -> bool {
        self.roll() % 100 < in_a_hundred
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn take_in(&mut self, lane: Lane, body: Vec<u8>, visible_at: Instant) {
        let id = self.number();
        self.waiting.push(Entry { id, lane, body, visible_at, deliveries: 0 });
    }

    fn publish(&mut self, moods: &Moods, lane: &Lane, pointer: &Pointer) -> Published {
        if !self.lanes.contains(lane) {
            return Published::Refused(BrokerError::Topology(lane.to_string()));
        }
        if self.chance(moods.refuse) {
            return Published::Refused(BrokerError::Capacity);
        }
        let unknown = self.chance(moods.unknown);
        let lost = if unknown { self.chance(50) } else { self.chance(moods.lose) };
        if !lost {
            for _ in 0..=u64::from(self.chance(moods.double)) {
                let mut body = pointer.encode();
                if self.chance(moods.garble) {
                    body.truncate(body.len() / 2);
                }
                let late = if self.chance(moods.delay) { self.roll() % 50 } else { 0 };
                self.take_in(lane.clone(), body, Instant::now() + Duration::from_millis(late));
            }
        }
        if unknown { Published::Unknown } else { Published::Accepted }
    }

    /// Hands out an entry, in this life of this consumer.
    fn deliver(&mut self, mut entry: Entry, consumer: &Holder, epoch: u64) -> Delivery {
        entry.deliveries += 1;
        let delivery = Delivery {
            receipt: Receipt { epoch, id: entry.id.to_string() },
            pointer: Pointer::decode(&entry.body).ok_or_else(|| entry.body.clone()),
            deliveries: Some(entry.deliveries),
        };
        let taken = Taken { entry, consumer: consumer.clone(), epoch, since: Instant::now() };
        self.pending.insert(taken.entry.id, taken);
        let held = self.pending.values().filter(|taken| taken.consumer == *consumer).count();
        self.held_most = self.held_most.max(held);
        delivery
    }

    fn offer_again(&mut self, which: impl Fn(&Taken) -> bool) {
        let ids: Vec<u64> =
            self.pending.iter().filter(|(_, taken)| which(taken)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(mut taken) = self.pending.remove(&id) {
                taken.entry.visible_at = Instant::now();
                self.waiting.push(taken.entry);
            }
        }
    }
}

impl Unruly {
    pub(crate) fn new(settling: Settling, moods: Moods, seed: u64) -> Self {
        eprintln!("{settling:?}, seed {seed}, {moods:?}");
        let state = State { dice: seed, ..State::default() };
        Self { settling, moods, state: Arc::new(Mutex::new(state)), bell: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Everything is gone: entries, pending lists, lanes.
    pub(crate) fn wipe(&self) {
        let mut state = self.state();
        state.waiting.clear();
        state.pending.clear();
        state.lanes.clear();
        drop(state);
        self.bell.notify_waiters();
    }

    /// Puts in what nobody published.
    pub(crate) fn inject(&self, lane: &Lane, body: Vec<u8>) -> u64 {
        let mut state = self.state();
        state.take_in(lane.clone(), body, Instant::now());
        let id = state.last;
        drop(state);
        self.bell.notify_waiters();
        id
    }

    /// Whatever is pending has been idle for so much longer.
    pub(crate) fn pass(&self, by: Duration) {
        for taken in self.state().pending.values_mut() {
            taken.since = taken.since.checked_sub(by).expect("the machine has been up for so long");
        }
    }

    /// From now on every read fails, or none but by chance.
    pub(crate) fn fail_reads(&self, fail: bool) {
        self.state().reads_fail = fail;
        self.bell.notify_waiters();
    }

    /// From now on nothing that opens a reader is answered, or all of it is.
    pub(crate) fn be_silent(&self, silent: bool) {
        self.state().silent = silent;
        self.bell.notify_waiters();
    }

    /// How many looks for orphans have failed.
    pub(crate) fn failed_looks(&self) -> u64 {
        self.state().failed_looks
    }

    pub(crate) fn failed_reads(&self) -> u64 {
        self.state().failed_reads
    }

    /// How many orphans have been offered.
    pub(crate) fn offered_again(&self) -> u64 {
        self.state().offered_again
    }

    pub(crate) fn parked(&self) -> Vec<&'static str> {
        self.state().parked.iter().map(|(why, _)| *why).collect()
    }

    /// What this consumer has settled, oldest first.
    pub(crate) fn settled_by(&self, consumer: &Holder) -> Vec<(u64, Settle)> {
        let state = self.state();
        let mine = state.settled.iter().filter(|(by, _, _)| by == consumer);
        mine.map(|(_, id, how)| (*id, how.clone())).collect()
    }

    /// Entries that wait, and those delivered and not settled.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.state();
        (state.waiting.len(), state.pending.len())
    }

    /// The numbers of the entries that were delivered and are not settled.
    pub(crate) fn pending(&self) -> Vec<u64> {
        self.state().pending.keys().copied().collect()
    }

    /// The most that one consumer has held at a time.
    pub(crate) fn held_most(&self) -> usize {
        self.state().held_most
    }

    async fn silence(&self) {
        loop {
            // Before the look, so that no bell in between is missed.
            let rings = self.bell.notified();
            if !self.state().silent {
                return;
            }
            rings.await;
        }
    }
}

#[async_trait]
impl Broker for Unruly {
    fn name(&self) -> &'static str {
        "unruly"
    }

    fn caps(&self) -> Caps {
        let holds = self.settling == Settling::AtFinish;
        Caps { source: Source::Pointers, settling: self.settling, holds }
    }

    async fn ensure(&self, lanes: &[Lane]) -> Result<(), BrokerError> {
        self.silence().await;
        self.state().lanes.extend(lanes.iter().cloned());
        Ok(())
    }

    async fn publish(&self, pointers: &[(Lane, Pointer)]) -> Vec<Published> {
        let mut state = self.state();
        let answers =
            pointers.iter().map(|(lane, pointer)| state.publish(&self.moods, lane, pointer)).collect();
        drop(state);
        self.bell.notify_waiters();
        answers
    }

    async fn open(&self, intake: &IntakePlan) -> Result<Arc<dyn Intake>, BrokerError> {
        self.silence().await;
        let epoch = self.state().number();
        let failures = Mutex::new((0, None));
        Ok(Arc::new(Reader { broker: self.clone(), plan: intake.clone(), epoch, failures }))
    }

    async fn stats(&self, lane: &Lane) -> Result<BrokerStats, BrokerError> {
        let state = self.state();
        let depth = state.waiting.iter().filter(|entry| entry.lane == *lane).count() as u64;
        let depth = Some(Figure { value: depth, exact: true, as_of: Instant::now() });
        Ok(BrokerStats { depth, ..BrokerStats::default() })
    }
}

struct Reader {
    broker: Unruly,
    plan: IntakePlan,
    epoch: u64,
    failures: Mutex<(u32, Option<Instant>)>,
}

impl Reader {
    /// What every read may meet.
    fn trouble(&self, state: &mut State) -> Result<(), BrokerError> {
        if let Some(lane) = self.plan.lanes.iter().find(|lane| !state.lanes.contains(lane)) {
            return Err(BrokerError::Topology(lane.to_string()));
        }
        let fails = state.reads_fail || state.chance(self.broker.moods.fail_read);
        let mut failures = self.failures.lock().unwrap();
        if fails {
            state.failed_reads += 1;
            failures.0 += 1;
            return Err(BrokerError::Transient("the connection was reset".into()));
        }
        *failures = (0, Some(Instant::now()));
        Ok(())
    }

    /// In any order, whatever is visible now; else when something will be.
    fn read(
        &self,
        permits: usize,
        shut: &[Lane],
    ) -> Result<Result<Vec<Delivery>, Option<Instant>>, BrokerError> {
        let mut state = self.broker.state();
        self.trouble(&mut state)?;
        let now = Instant::now();
        let mut deliveries = Vec::new();
        while deliveries.len() < permits {
            let open = |lane: &Lane| self.plan.lanes.contains(lane) && !shut.contains(lane);
            let mine = |entry: &Entry| open(&entry.lane) && entry.visible_at <= now;
            let visible: Vec<usize> =
                (0..state.waiting.len()).filter(|at| mine(&state.waiting[*at])).collect();
            if visible.is_empty() {
                break;
            }
            let at = usize::try_from(state.roll()).unwrap() % visible.len();
            let entry = state.waiting.swap_remove(visible[at]);
            deliveries.push(state.deliver(entry, &self.plan.consumer, self.epoch));
        }
        if deliveries.is_empty() {
            return Ok(Err(state.waiting.iter().map(|entry| entry.visible_at).min()));
        }
        Ok(Ok(deliveries))
    }
}

#[async_trait]
impl Intake for Reader {
    async fn next(
        &self,
        permits: usize,
        shut: &[Lane],
        wait: Duration,
    ) -> Result<Vec<Delivery>, BrokerError> {
        assert!(permits > 0, "nobody asks for nothing");
        let until = Instant::now() + wait;
        loop {
            let rung = self.broker.bell.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            // Nothing is awaited between taking and answering: a call that is dropped strands nothing.
            let visible_at = match self.read(permits, shut)? {
                Ok(deliveries) => return Ok(deliveries),
                Err(visible_at) => visible_at,
            };
            if Instant::now() >= until {
                return Ok(Vec::new());
            }
            let wake =
                visible_at.map_or(until, |at| at.max(Instant::now() + Duration::from_millis(1)).min(until));
            let _ = tokio::time::timeout_at(wake.into(), rung).await;
        }
    }

    async fn orphans(&self, max: usize) -> Result<Vec<Delivery>, BrokerError> {
        let mut state = self.broker.state();
        self.trouble(&mut state).inspect_err(|_| state.failed_looks += 1)?;
        if self.broker.settling == Settling::AtClaim {
            return Ok(Vec::new());
        }
        let me = &self.plan.consumer;
        let earlier = |taken: &Taken| taken.consumer.name == me.name && taken.epoch != self.epoch;
        let idle = |taken: &Taken| taken.since.elapsed() >= self.plan.take_over_idle;
        let read = |taken: &Taken| self.plan.lanes.contains(&taken.entry.lane);
        let mut found: Vec<(bool, u64)> = state
            .pending
            .iter()
            .filter(|(_, taken)| read(taken) && (earlier(taken) || idle(taken)))
            .map(|(id, taken)| (!earlier(taken), *id))
            .collect();
        found.sort_unstable();
        let mut deliveries = Vec::new();
        for (_, id) in found.into_iter().take(max) {
            if let Some(taken) = state.pending.remove(&id) {
                state.offered_again += 1;
                deliveries.push(state.deliver(taken.entry, me, self.epoch));
            }
        }
        Ok(deliveries)
    }

    async fn hold(&self, receipts: &[Receipt]) -> Vec<Hold> {
        let mut state = self.broker.state();
        let mut hold = |receipt: &Receipt| {
            if self.broker.settling == Settling::AtClaim {
                return Hold::Unsupported;
            }
            let taken = receipt.id.parse().ok().and_then(|id: u64| state.pending.get_mut(&id));
            match taken.filter(|taken| taken.epoch == receipt.epoch && taken.epoch == self.epoch) {
                Some(taken) => {
                    taken.since = Instant::now();
                    Hold::Held
                }
                None => Hold::Lost,
            }
        };
        receipts.iter().map(&mut hold).collect()
    }

    async fn settle(&self, receipts: &[(Receipt, Settle)]) -> Vec<Settled> {
        let mut state = self.broker.state();
        let mut settle = |(receipt, how): &(Receipt, Settle)| {
            let id: u64 = receipt.id.parse().unwrap();
            let own = |taken: &Taken| taken.epoch == self.epoch || self.broker.settling == Settling::AtFinish;
            if receipt.epoch != self.epoch || !state.pending.get(&id).is_some_and(own) {
                return Settled::Stale;
            }
            if state.chance(self.broker.moods.forget) {
                // Where nobody looks for orphans, an answer is missing because the connection is gone.
                if self.broker.settling == Settling::AtClaim {
                    state.offer_again(|taken| taken.entry.id == id);
                }
                return Settled::Unknown;
            }
            if let (Some(taken), Settle::Park(why)) = (state.pending.remove(&id), how) {
                state.parked.push((why, taken.entry.body));
            }
            state.settled.push((self.plan.consumer.clone(), id, how.clone()));
            Settled::Ok
        };
        receipts.iter().map(&mut settle).collect()
    }

    async fn hand_back(&self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let ids: BTreeSet<String> = receipts
            .iter()
            .filter(|receipt| receipt.epoch == self.epoch)
            .map(|receipt| receipt.id.clone())
            .collect();
        let epoch = self.epoch;
        self.broker
            .state()
            .offer_again(|taken| taken.epoch == epoch && ids.contains(&taken.entry.id.to_string()));
        self.broker.bell.notify_waiters();
        Ok(())
    }

    fn health(&self) -> Health {
        let (failures_in_a_row, last_read) = *self.failures.lock().unwrap();
        Health { last_read, failures_in_a_row, epoch: self.epoch }
    }

    async fn close(&self, _: Instant) {
        self.gone();
    }
}

impl Reader {
    /// The connection has ended.
    fn gone(&self) {
        if self.broker.settling == Settling::AtClaim {
            let epoch = self.epoch;
            self.broker.state().offer_again(|taken| taken.epoch == epoch);
            self.broker.bell.notify_waiters();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.gone();
    }
}
