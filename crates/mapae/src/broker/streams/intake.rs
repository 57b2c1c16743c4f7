//! Reading streams for one worker.
//!
//! A read that waits runs in a task of its own, and what it brings is kept until it is asked for: whoever
//! stops waiting for an answer does not stop the server from giving one, and an entry given to nobody would
//! lie in the pending list until it has been idle for long.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::{ScriptInvocation, Value};
use tokio::task::JoinHandle;

use super::link::{Link, Place};
use super::{FIELD, GROUP, Keys, scripts};
use crate::broker::contract::{
    BrokerError, Delivery, Health, Hold, Intake, IntakePlan, Pointer, Receipt, Settle, Settled,
};
use crate::job::name::Lane;
use crate::job::rota::Rota;

/// Most entries that are parked: they are for a person to look at.
const PARKED_MAX: usize = 10_000;

/// Most of its own pending entries that a consumer looks through: more than it can hold.
const OWN_MAX: usize = 10_000;

/// Pages of a pending list that one look goes through, for each lane.
const PAGES_MAX: usize = 10;

/// A consumer that owns nothing is forgotten after so long without a word. It comes back by reading.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

pub(super) struct Reader {
    lanes: Vec<Lane>,
    keys: Vec<String>,
    parked: String,
    name: String,
    me: String,
    /// The same in every connection of one life of a worker: an entry is its consumer's, not a connection's.
    epoch: u64,
    take_over_idle: Duration,
    reading: tokio::sync::Mutex<Reading>,
    read_link: Arc<Link>,
    link: Link,
    hold_link: Link,
    /// What has been handed out and not been settled.
    out: Mutex<HashSet<String>>,
    health: Mutex<(u32, Option<Instant>)>,
    inherited: AtomicBool,
}

/// The state of the one task that reads.
struct Reading {
    rota: Rota<usize>,
    under_way: Option<JoinHandle<Result<Vec<Entry>, BrokerError>>>,
    /// Read and not handed out yet.
    ready: VecDeque<Entry>,
    /// Where the look through each lane's pending list goes on.
    cursors: Vec<String>,
    forgot_at: Option<Instant>,
}

/// An entry of a stream, as the scripts answer it.
struct Entry {
    lane: usize,
    id: String,
    fields: Vec<Vec<u8>>,
}

impl Entry {
    /// `lanes` is what the script's keys are.
    fn read(value: Value, lanes: &[usize]) -> Option<Self> {
        let (at, id, fields): (usize, String, Vec<Vec<u8>>) = redis::from_redis_value(value).ok()?;
        Some(Self { lane: *lanes.get(at.checked_sub(1)?)?, id, fields })
    }

    fn receipt(&self) -> String {
        format!("{}/{}", self.lane, self.id)
    }

    fn delivery(self, epoch: u64) -> Delivery {
        let receipt = Receipt { epoch, id: self.receipt() };
        let pointer = match self.fields.as_slice() {
            [field, body] if field == FIELD.as_bytes() => Pointer::decode(body).ok_or_else(|| body.clone()),
            fields => Err(fields.concat()),
        };
        Delivery { receipt, pointer, deliveries: None }
    }
}

impl Reader {
    pub(super) fn new(place: &Place, keys: &Keys, plan: &IntakePlan) -> Self {
        let numbered = plan.lanes.iter().cloned().enumerate().map(|(at, lane)| (lane, at)).collect();
        let reading = Reading {
            rota: Rota::new(numbered),
            under_way: None,
            ready: VecDeque::new(),
            cursors: vec!["0-0".into(); plan.lanes.len()],
            forgot_at: None,
        };
        Self {
            keys: plan.lanes.iter().map(|lane| keys.of(lane)).collect(),
            parked: keys.parked(),
            lanes: plan.lanes.clone(),
            name: format!("{}/", plan.consumer.name),
            me: format!("{}/{}", plan.consumer.name, plan.consumer.incarnation),
            epoch: (plan.consumer.incarnation.as_u128() >> 64) as u64,
            take_over_idle: plan.take_over_idle,
            reading: tokio::sync::Mutex::new(reading),
            read_link: Arc::new(Link::new(place.clone())),
            link: Link::new(place.clone()),
            hold_link: Link::new(place.clone()),
            out: Mutex::default(),
            health: Mutex::default(),
            inherited: AtomicBool::new(false),
        }
    }

    fn out(&self) -> MutexGuard<'_, HashSet<String>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, outcome: bool) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        *health = if outcome { (0, Some(Instant::now())) } else { (health.0.saturating_add(1), health.1) };
    }

    /// Waits for the read under way, if there is one, and keeps what it brings. The read goes on where this
    /// is dropped; the next call waits for the same one.
    async fn take_in(&self, reading: &mut Reading) -> Result<(), BrokerError> {
        let Some(under_way) = &mut reading.under_way else { return Ok(()) };
        let read = under_way.await.unwrap_or_else(|error| Err(BrokerError::Transient(error.into())));
        reading.under_way = None;
        self.read(read.is_ok());
        reading.ready.extend(read?);
        Ok(())
    }

    /// Hands out at most `permits` of what was read, in the order it was read.
    fn hand_out(&self, ready: &mut VecDeque<Entry>, permits: usize, shut: &[Lane]) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let mut kept = VecDeque::new();
        for entry in ready.drain(..) {
            if deliveries.len() < permits && !shut.contains(&self.lanes[entry.lane]) {
                self.out().insert(entry.receipt());
                deliveries.push(entry.delivery(self.epoch));
            } else {
                kept.push_back(entry);
            }
        }
        *ready = kept;
        deliveries
    }

    /// The number of a key and the entry that a receipt names, where it is one of this consumer's.
    fn parts<'a>(&self, receipt: &'a Receipt) -> Option<(usize, &'a str)> {
        let (lane, id) = receipt.id.split_once('/')?;
        let lane: usize = lane.parse().ok()?;
        (receipt.epoch == self.epoch && lane < self.keys.len()).then_some((lane + 1, id))
    }

    fn of_all_keys<'a>(&self, script: &'a redis::Script) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        call
    }

    /// What this consumer has in a lane, has not settled, and nobody here knows of: an answer that was lost
    /// on its way.
    async fn stranded(&self, lane: usize, ready: &VecDeque<Entry>) -> Result<Vec<Entry>, BrokerError> {
        let mut call = scripts::OWN.key(&self.keys[lane]);
        let own: Vec<Value> = self.link.script(call.arg(GROUP).arg(&self.me).arg(OWN_MAX)).await?;
        let own: Vec<Entry> = own.into_iter().filter_map(|entry| Entry::read(entry, &[lane])).collect();
        let mut out = self.out();
        // What another has taken over is not ours to remember.
        let here = format!("{lane}/");
        let pending: HashSet<String> = own.iter().map(Entry::receipt).collect();
        out.retain(|receipt| !receipt.starts_with(&here) || pending.contains(receipt));
        let known = |entry: &Entry| {
            let receipt = entry.receipt();
            out.contains(&receipt) || ready.iter().any(|waits| waits.receipt() == receipt)
        };
        Ok(own.into_iter().filter(|entry| !known(entry)).collect())
    }

    /// What others have held for long without a sign of life, page by page from where the last look ended.
    async fn idle(&self, lane: usize, cursor: &mut String, max: usize) -> Result<Vec<Entry>, BrokerError> {
        let idle = u64::try_from(self.take_over_idle.as_millis()).unwrap_or(u64::MAX);
        let mut found = Vec::new();
        for _ in 0..PAGES_MAX {
            let mut command = redis::cmd("XAUTOCLAIM");
            command.arg(&self.keys[lane]).arg(GROUP).arg(&self.me).arg(idle).arg(cursor.as_str());
            command.arg("COUNT").arg(max - found.len());
            let (next, entries, _deleted): (String, Vec<Value>, Value) =
                self.link.ask(&command, Duration::ZERO).await?;
            for entry in entries {
                if let Ok((id, fields)) = redis::from_redis_value(entry) {
                    found.push(Entry { lane, id, fields });
                }
            }
            *cursor = next;
            if cursor == "0-0" || found.len() >= max {
                break;
            }
        }
        Ok(found)
    }

    async fn inherit(&self, lane: usize, max: usize) -> Result<Vec<Entry>, BrokerError> {
        let mut call = scripts::INHERIT.key(&self.keys[lane]);
        let call = call.arg(GROUP).arg(&self.me).arg(&self.name).arg(max);
        let entries: Vec<Value> = self.link.script(call).await?;
        Ok(entries.into_iter().filter_map(|entry| Entry::read(entry, &[lane])).collect())
    }

    async fn look(&self, reading: &mut Reading, max: usize) -> Result<Vec<Entry>, BrokerError> {
        let mut found = Vec::new();
        for lane in 0..self.lanes.len() {
            found.extend(self.stranded(lane, &reading.ready).await?);
        }
        // Whoever holds the name knows that its earlier lives are over; once it has all they left, no other
        // life of the name can come but a later one.
        if !self.inherited.load(Ordering::Relaxed) {
            let mut left = max.saturating_sub(found.len());
            for lane in 0..self.lanes.len() {
                if left == 0 {
                    break;
                }
                let inherited = self.inherit(lane, left).await?;
                left = left.saturating_sub(inherited.len());
                found.extend(inherited);
            }
            self.inherited.store(left > 0, Ordering::Relaxed);
        }
        for lane in 0..self.lanes.len() {
            if found.len() >= max {
                break;
            }
            let taken = self.idle(lane, &mut reading.cursors[lane], max - found.len()).await?;
            found.extend(taken);
        }
        if reading.forgot_at.is_none_or(|at| at.elapsed() >= FORGOTTEN_AFTER) {
            reading.forgot_at = Some(Instant::now());
            for key in &self.keys {
                let mut call = scripts::FORGET.key(key);
                let idle = u64::try_from(FORGOTTEN_AFTER.as_millis()).unwrap_or(u64::MAX);
                let _: i64 = self.link.script(call.arg(GROUP).arg(idle)).await?;
            }
        }
        Ok(found)
    }
}

/// New entries of these lanes in this order; waits for the first where there is none.
async fn read(
    link: Arc<Link>,
    me: String,
    lanes: Vec<(usize, String)>,
    permits: usize,
    wait: Duration,
) -> Result<Vec<Entry>, BrokerError> {
    let numbers: Vec<usize> = lanes.iter().map(|(lane, _)| *lane).collect();
    let mut call = scripts::READ.prepare_invoke();
    for (_, key) in &lanes {
        call.key(key);
    }
    let entries: Vec<Value> = link.script(call.arg(GROUP).arg(&me).arg(permits)).await?;
    if !entries.is_empty() || wait.is_zero() {
        return Ok(entries.into_iter().filter_map(|entry| Entry::read(entry, &numbers)).collect());
    }
    let mut command = redis::cmd("XREADGROUP");
    // The count is for each stream: more than one could be more than there are permits.
    command.arg("GROUP").arg(GROUP).arg(&me).arg("COUNT").arg(1);
    // 0 would be for ever.
    command.arg("BLOCK").arg(wait.as_millis().max(1) as u64).arg("STREAMS");
    for (_, key) in &lanes {
        command.arg(key);
    }
    for _ in &lanes {
        command.arg(">");
    }
    type Streams = Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>;
    let streams: Option<Streams> = link.ask(&command, wait).await?;
    let mut entries = Vec::new();
    for (key, found) in streams.unwrap_or_default() {
        let Some((lane, _)) = lanes.iter().find(|(_, known)| *known == key) else { continue };
        entries.extend(found.into_iter().map(|(id, fields)| Entry { lane: *lane, id, fields }));
    }
    Ok(entries)
}

#[async_trait]
impl Intake for Reader {
    async fn next(
        &self,
        permits: usize,
        shut: &[Lane],
        wait: Duration,
    ) -> Result<Vec<Delivery>, BrokerError> {
        let mut reading = self.reading.lock().await;
        let ready = self.hand_out(&mut reading.ready, permits, shut);
        if !ready.is_empty() {
            return Ok(ready);
        }
        if reading.under_way.is_none() {
            let lanes: Vec<(usize, String)> = reading
                .rota
                .order()
                .into_iter()
                .filter(|(lane, _)| !shut.contains(lane))
                .map(|(_, at)| (at, self.keys[at].clone()))
                .collect();
            if lanes.is_empty() {
                tokio::time::sleep(wait).await;
                return Ok(Vec::new());
            }
            let task = read(self.read_link.clone(), self.me.clone(), lanes, permits, wait);
            reading.under_way = Some(tokio::spawn(task));
        }
        self.take_in(&mut reading).await?;
        Ok(self.hand_out(&mut reading.ready, permits, shut))
    }

    async fn orphans(&self, max: usize) -> Result<Vec<Delivery>, BrokerError> {
        let mut reading = self.reading.lock().await;
        // An entry on its way to us is pending already and not lost: it is taken in first.
        self.take_in(&mut reading).await?;
        let found = self.look(&mut reading, max).await;
        self.read(found.is_ok());
        reading.ready.extend(found?);
        Ok(self.hand_out(&mut reading.ready, max, &[]))
    }

    async fn hold(&self, receipts: &[Receipt]) -> Vec<Hold> {
        let parts: Vec<Option<(usize, &str)>> = receipts.iter().map(|receipt| self.parts(receipt)).collect();
        let mut call = self.of_all_keys(&scripts::HOLD);
        call.arg(GROUP).arg(&self.me);
        for (key, id) in parts.iter().flatten() {
            call.arg(key).arg(id);
        }
        // Without an answer nothing is known; it is asked again with the next heartbeat.
        let held: Vec<u8> = self.hold_link.script(&call).await.unwrap_or_default();
        let mut held = held.into_iter();
        let answer = |known: &Option<_>| match known {
            Some(_) if held.next() == Some(1) => Hold::Held,
            _ => Hold::Lost,
        };
        parts.iter().map(answer).collect()
    }

    async fn settle(&self, receipts: &[(Receipt, Settle)]) -> Vec<Settled> {
        let mut call = self.of_all_keys(&scripts::SETTLE);
        call.key(&self.parked).arg(GROUP).arg(&self.me).arg(PARKED_MAX);
        let parts: Vec<_> = receipts.iter().map(|(receipt, _)| self.parts(receipt)).collect();
        for (part, (receipt, how)) in parts.iter().zip(receipts) {
            let Some((key, id)) = part else { continue };
            let why = if let Settle::Park(why) = how { why } else { "" };
            call.arg(key).arg(id).arg(why);
            self.out().remove(&receipt.id);
        }
        let settled: Result<Vec<u8>, BrokerError> = self.link.script(&call).await;
        let mut settled = settled.ok().map(Vec::into_iter);
        let answer = |part: &Option<_>| match (part, &mut settled) {
            (None, _) => Settled::Stale,
            (Some(_), None) => Settled::Unknown,
            (Some(_), Some(settled)) => match settled.next() {
                Some(1) => Settled::Ok,
                Some(_) => Settled::Stale,
                None => Settled::Unknown,
            },
        };
        parts.iter().map(answer).collect()
    }

    async fn hand_back(&self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let mut call = self.of_all_keys(&scripts::HAND_BACK);
        call.arg(GROUP).arg(&self.me);
        for receipt in receipts {
            let Some((key, id)) = self.parts(receipt) else { continue };
            call.arg(key).arg(id);
            self.out().remove(&receipt.id);
        }
        self.link.script(&call).await
    }

    fn health(&self) -> Health {
        let (failures_in_a_row, last_read) = *self.health.lock().unwrap_or_else(PoisonError::into_inner);
        Health { last_read, failures_in_a_row, epoch: self.epoch }
    }

    async fn close(&self, deadline: Instant) {
        let leaving = async {
            let mut reading = self.reading.lock().await;
            if let Some(under_way) = reading.under_way.take()
                && let Ok(Ok(entries)) = under_way.await
            {
                reading.ready.extend(entries);
            }
            let unread: Vec<Receipt> = reading
                .ready
                .drain(..)
                .map(|entry| Receipt { epoch: self.epoch, id: entry.receipt() })
                .collect();
            let _ = self.hand_back(&unread).await;
            let mut call = self.of_all_keys(&scripts::LEAVE);
            let _: Result<(), _> = self.link.script(call.arg(GROUP).arg(&self.me)).await;
        };
        let _ = tokio::time::timeout_at(deadline.into(), leaving).await;
    }
}
