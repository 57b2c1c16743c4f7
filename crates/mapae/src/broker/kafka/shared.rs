//! What the task that reads and its reader share: which partitions are ours, what has come, and what is settled.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::offsets::Track;
use crate::broker::contract::{BrokerError, Delivery, Health, Pointer, Receipt};

/// A lane is read ahead up to so many messages, and all lanes up to so many bytes: a partition has one reader, so
/// that nobody else could have them meanwhile.
const AHEAD_MAX: usize = 500;
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Without an answer for so long a commit counts as not taken.
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// No two sessions or assignments of this process have the same number.
static SERIALS: AtomicU64 = AtomicU64::new(1);

pub(super) fn serial() -> u64 {
    SERIALS.fetch_add(1, Ordering::Relaxed)
}

/// Up to where a partition is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// Of the assignment it was made in.
    pub(super) serial: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Closed,
    Opening,
    Open,
}

/// Where a message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    pub(super) lane: usize,
    pub(super) partition: i32,
    /// Of the assignment it came with.
    pub(super) serial: u64,
    pub(super) offset: i64,
}

struct Arrival {
    spot: Spot,
    body: Vec<u8>,
}

pub(super) struct Shared {
    /// The topic of each lane.
    topics: Vec<String>,
    state: Mutex<State>,
    pub(super) news: Notify,
    settling: Notify,
    group: Notify,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// Of the session there is, or zero. What another says, it says too late: its client may still be on its way
    /// out when the next session reads.
    session: u64,
    tracks: HashMap<(usize, i32), Track>,
    /// How often the group has given out partitions and none of them to us.
    left_out: u64,
    /// Arrived and not handed out, for each lane in the order of arrival.
    ready: Vec<VecDeque<Arrival>>,
    ready_bytes: usize,
    paused: Vec<bool>,
    /// Handed out and not settled, by the receipts.
    out: HashMap<(u64, i64), (Spot, Vec<u8>)>,
    committing: Option<Instant>,
    /// Why the session cannot go on, until it knows.
    broken: Option<BrokerError>,
    /// Why the last session ended, until somebody has been told.
    pub(super) trouble: Option<BrokerError>,
    last_read: Option<Instant>,
    failures_in_a_row: u32,
}

impl Shared {
    pub(super) fn new(topics: Vec<String>) -> Self {
        let state = State {
            phase: Phase::Closed,
            session: 0,
            tracks: HashMap::new(),
            left_out: 0,
            ready: topics.iter().map(|_| VecDeque::new()).collect(),
            ready_bytes: 0,
            paused: vec![false; topics.len()],
            out: HashMap::new(),
            committing: None,
            broken: None,
            trouble: None,
            last_read: None,
            failures_in_a_row: 0,
        };
        Self {
            topics,
            state: Mutex::new(state),
            news: Notify::new(),
            settling: Notify::new(),
            group: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane(&self, topic: &str) -> Option<usize> {
        self.topics.iter().position(|known| known == topic)
    }

    /// From now on this session is heard, and no other. It is open once the group has given it its part.
    pub(super) fn begun(&self, session: u64) {
        let mut state = self.state();
        (state.phase, state.session) = (Phase::Opening, session);
        (state.broken, state.committing) = (None, None);
        state.last_read = Some(Instant::now());
    }

    /// The state, if it is this session's.
    fn state_of(&self, session: u64) -> Option<MutexGuard<'_, State>> {
        let state = self.state();
        (state.session == session).then_some(state)
    }

    /// Nothing of the session is good any more: the group gives it to others.
    pub(super) fn ended(&self, trouble: Option<BrokerError>) {
        let mut state = self.state();
        (state.phase, state.session, state.ready_bytes) = (Phase::Closed, 0, 0);
        state.tracks.clear();
        state.out.clear();
        state.ready.iter_mut().for_each(VecDeque::clear);
        state.paused.fill(false);
        if trouble.is_some() {
            state.failures_in_a_row = state.failures_in_a_row.saturating_add(1);
            state.trouble = trouble;
        }
        self.news.notify_waiters();
    }

    /// The group has given these to us. Only now is it known that the session reads, even where there are none: a
    /// cluster that answers questions may still have no coordinator for the group.
    pub(super) fn assigned(&self, session: u64, partitions: &[(String, i32)]) {
        let Some(mut state) = self.state_of(session) else { return };
        for (topic, partition) in partitions {
            if let Some(lane) = self.lane(topic) {
                state.tracks.insert((lane, *partition), Track::new(serial()));
            }
        }
        state.left_out += u64::from(state.tracks.is_empty());
        if state.phase == Phase::Opening {
            (state.phase, state.failures_in_a_row) = (Phase::Open, 0);
            self.news.notify_waiters();
        }
        self.group.notify_one();
    }

    /// These are not ours any more. Answers the marks that are still to be sent.
    pub(super) fn revoked(&self, session: u64, partitions: &[(String, i32)]) -> Vec<Mark> {
        let Some(mut state) = self.state_of(session) else { return Vec::new() };
        let mut marks = Vec::new();
        for (topic, partition) in partitions {
            let Some(lane) = self.lane(topic) else { continue };
            let Some(track) = state.tracks.remove(&(lane, *partition)) else { continue };
            if let Some(offset) = track.due() {
                marks.push(Mark {
                    topic: topic.clone(),
                    partition: *partition,
                    offset,
                    serial: track.serial,
                });
            }
            state.out.retain(|_, (spot, _)| spot.serial != track.serial);
            state.ready[lane].retain(|arrival| arrival.spot.serial != track.serial);
        }
        state.weigh();
        marks
    }

    pub(super) fn arrived(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
        body: Vec<u8>,
    ) -> Result<(), BrokerError> {
        let mut state = self.state();
        state.last_read = Some(Instant::now());
        let Some(lane) = self.lane(topic) else { return Ok(()) };
        // Fetched before the partition became another's.
        let Some(track) = state.tracks.get_mut(&(lane, partition)) else { return Ok(()) };
        if !track.arrived(offset) {
            return Err(BrokerError::Topology(format!("the topic {topic} begins anew")));
        }
        let spot = Spot { lane, partition, serial: track.serial, offset };
        state.ready_bytes += body.len();
        state.ready[lane].push_back(Arrival { spot, body });
        self.news.notify_waiters();
        Ok(())
    }

    /// The partitions of the topic's lane, where it has become full with the last message.
    pub(super) fn filled(&self, topic: &str) -> Vec<(String, i32)> {
        let mut state = self.state();
        let Some(lane) = self.lane(topic) else { return Vec::new() };
        let full = state.ready[lane].len() >= AHEAD_MAX || state.ready_bytes >= BYTES_MAX;
        if !full || state.paused[lane] {
            return Vec::new();
        }
        state.paused[lane] = true;
        self.partitions(&state, lane)
    }

    /// The partitions of those lanes that were full and are not any more.
    pub(super) fn emptied(&self) -> Vec<(String, i32)> {
        let mut state = self.state();
        let mut empty = Vec::new();
        for lane in 0..self.topics.len() {
            let room = state.ready[lane].len() < AHEAD_MAX / 2 && state.ready_bytes < BYTES_MAX / 2;
            if state.paused[lane] && room {
                state.paused[lane] = false;
                empty.extend(self.partitions(&state, lane));
            }
        }
        empty
    }

    fn partitions(&self, state: &State, lane: usize) -> Vec<(String, i32)> {
        let ours = state.tracks.keys().filter(|(of, _)| *of == lane);
        ours.map(|(lane, partition)| (self.topics[*lane].clone(), *partition)).collect()
    }

    /// Those of the partitions whose lane is full.
    pub(super) fn full(&self, session: u64, partitions: &[(String, i32)]) -> Vec<(String, i32)> {
        let Some(state) = self.state_of(session) else { return Vec::new() };
        let full = |(topic, _): &&(String, i32)| self.lane(topic).is_some_and(|lane| state.paused[lane]);
        partitions.iter().filter(full).cloned().collect()
    }

    /// The marks to send now: none while an answer is awaited, so that they go in order and many at a time.
    pub(super) fn due(&self) -> Vec<Mark> {
        let mut state = self.state();
        match state.committing {
            Some(since) if since.elapsed() < COMMIT_PATIENCE => return Vec::new(),
            Some(_) => state.tracks.values_mut().for_each(Track::doubt),
            None => {}
        }
        let mut marks = Vec::new();
        for ((lane, partition), track) in &mut state.tracks {
            let Some(offset) = track.due() else { continue };
            track.marked(offset);
            let topic = self.topics[*lane].clone();
            marks.push(Mark { topic, partition: *partition, offset, serial: track.serial });
        }
        state.committing = (!marks.is_empty()).then(Instant::now);
        marks
    }

    /// Those of the marks whose partition is still ours by the same assignment: with another's it would go back.
    pub(super) fn still_ours(&self, session: u64, marks: Vec<Mark>) -> Vec<Mark> {
        let Some(state) = self.state_of(session) else { return Vec::new() };
        let ours = |mark: &Mark| {
            let track = self.lane(&mark.topic).and_then(|lane| state.tracks.get(&(lane, mark.partition)));
            track.is_some_and(|track| track.serial == mark.serial)
        };
        marks.into_iter().filter(ours).collect()
    }

    pub(super) fn committed(&self, session: u64, taken: bool) {
        let Some(mut state) = self.state_of(session) else { return };
        state.committing = None;
        if taken {
            // More may have been settled meanwhile.
            self.settling.notify_one();
        } else {
            // Looked at again with the next tick, not at once.
            state.tracks.values_mut().for_each(Track::doubt);
        }
    }

    pub(super) async fn news_of_settling(&self) {
        self.settling.notified().await;
    }

    /// The group has given out partitions.
    pub(super) async fn news_of_the_group(&self) {
        self.group.notified().await;
    }

    /// The message is settled. Whether it was still ours.
    pub(super) fn settled(&self, spot: &Spot) -> bool {
        let mut state = self.state();
        let track = state.tracks.get_mut(&(spot.lane, spot.partition));
        let settled = track.is_some_and(|track| track.serial == spot.serial && track.settled(spot.offset));
        self.settling.notify_one();
        settled
    }

    /// The session cannot go on with this message: what it has read is read again by the next. A message that is
    /// another's by now is read there. The first reason stands.
    pub(super) fn give_up(&self, spot: &Spot, why: BrokerError) {
        let mut state = self.state();
        let ours = state.tracks.get(&(spot.lane, spot.partition));
        if ours.is_some_and(|track| track.serial == spot.serial) {
            state.broken.get_or_insert(why);
        }
    }

    pub(super) fn broken(&self) -> Option<BrokerError> {
        self.state().broken.take()
    }

    /// At that time the cluster said something.
    pub(super) fn heard(&self, session: u64, at: Instant) {
        let Some(mut state) = self.state_of(session) else { return };
        state.last_read = state.last_read.max(Some(at));
    }

    pub(super) fn silence(&self) -> Duration {
        self.state().last_read.map_or(Duration::ZERO, |at| at.elapsed())
    }

    pub(super) fn left_out(&self) -> u64 {
        self.state().left_out
    }

    pub(super) fn is_committing(&self) -> bool {
        self.state().committing.is_some_and(|since| since.elapsed() < COMMIT_PATIENCE)
    }

    pub(super) fn health(&self) -> Health {
        let state = self.state();
        // Of a session that reads, or zero.
        let epoch = if state.phase == Phase::Open { state.session } else { 0 };
        Health { last_read: state.last_read, failures_in_a_row: state.failures_in_a_row, epoch }
    }
}

impl State {
    fn weigh(&mut self) {
        self.ready_bytes = self.ready.iter().flatten().map(|arrival| arrival.body.len()).sum();
    }

    /// Hands out at most `permits`, of the lanes in this order.
    pub(super) fn hand_out(&mut self, permits: usize, lanes: &[usize]) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        for lane in lanes {
            while deliveries.len() < permits {
                let Some(Arrival { spot, body }) = self.ready[*lane].pop_front() else { break };
                self.ready_bytes -= body.len();
                let pointer = Pointer::decode(&body).ok_or_else(|| body.clone());
                let receipt = Receipt { epoch: spot.serial, id: spot.offset.to_string() };
                deliveries.push(Delivery { receipt, pointer, deliveries: None });
                self.out.insert((spot.serial, spot.offset), (spot, body));
            }
        }
        deliveries
    }

    /// What a receipt names, once.
    pub(super) fn take(&mut self, receipt: &Receipt) -> Option<(Spot, Vec<u8>)> {
        self.out.remove(&(receipt.epoch, receipt.id.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: u64 = 1;
    const NEW: u64 = 2;

    fn one() -> Vec<(String, i32)> {
        vec![("t".to_owned(), 0)]
    }

    /// A session that has ended while a commit was on its way, and the next with the same partition.
    fn after_another() -> Shared {
        let shared = Shared::new(vec!["t".to_owned()]);
        shared.begun(OLD);
        shared.assigned(OLD, &one());
        shared.ended(Some(BrokerError::Capacity));
        shared.begun(NEW);
        shared.assigned(NEW, &one());
        shared
    }

    fn read(shared: &Shared, offset: i64) -> usize {
        shared.arrived("t", 0, offset, b"x".to_vec()).unwrap();
        shared.state().hand_out(1, &[0]).len()
    }

    #[test]
    fn a_session_is_open_once_the_group_has_answered_whatever_it_gives() {
        let shared = Shared::new(vec!["t".to_owned()]);
        shared.begun(OLD);
        shared.ended(Some(BrokerError::Capacity));
        shared.begun(NEW);
        assert_eq!(shared.state().phase, Phase::Opening);
        assert_eq!((shared.health().failures_in_a_row, shared.health().epoch), (1, 0));

        shared.assigned(OLD, &one());
        assert_eq!(shared.state().phase, Phase::Opening);
        shared.assigned(NEW, &[]);

        assert_eq!(shared.state().phase, Phase::Open);
        assert_eq!((shared.health().failures_in_a_row, shared.health().epoch), (0, NEW));
    }

    #[test]
    fn a_client_that_is_dropped_late_takes_nothing_from_the_next_session() {
        let shared = after_another();
        assert_eq!(read(&shared, 7), 1);

        assert_eq!(shared.revoked(OLD, &one()), []);

        assert_eq!(read(&shared, 8), 1, "the partition is read on");
        let handed_out = Receipt { epoch: shared.state().tracks[&(0, 0)].serial, id: "7".into() };
        let spot = shared.state().take(&handed_out).expect("what is handed out stays so").0;
        shared.assigned(OLD, &one());
        assert!(shared.settled(&spot), "the partition is of the same assignment");
    }

    #[test]
    fn what_an_earlier_session_committed_or_heard_says_nothing_of_this_one() {
        let shared = after_another();
        read(&shared, 7);
        let serial = shared.state().tracks[&(0, 0)].serial;
        assert!(shared.settled(&Spot { lane: 0, partition: 0, serial, offset: 7 }));
        let mark = Mark { topic: "t".into(), partition: 0, offset: 8, serial };
        assert_eq!(shared.due(), std::slice::from_ref(&mark));

        shared.committed(OLD, true);
        assert!(shared.is_committing(), "our own answer is still awaited");
        let read_at = shared.health().last_read;
        shared.heard(OLD, Instant::now() + COMMIT_PATIENCE);
        assert_eq!(shared.health().last_read, read_at);

        shared.committed(NEW, false);
        assert_eq!(shared.due(), [mark], "ours was not taken");
    }

    #[test]
    fn a_mark_that_waited_while_its_partition_was_anothers_is_not_sent() {
        let shared = after_another();
        read(&shared, 7);
        let serial = shared.state().tracks[&(0, 0)].serial;
        assert!(shared.settled(&Spot { lane: 0, partition: 0, serial, offset: 7 }));
        let marks = shared.due();
        assert_eq!(shared.still_ours(NEW, marks.clone()), marks);
        assert_eq!(shared.still_ours(OLD, marks.clone()), []);

        shared.revoked(NEW, &one());
        assert_eq!(shared.still_ours(NEW, marks.clone()), []);
        shared.assigned(NEW, &one());
        assert_eq!(shared.still_ours(NEW, marks), [], "it came back with what another has settled");
    }
}
