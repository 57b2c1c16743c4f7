//! Reading queues for one worker.
//!
//! A task of its own reads, and what it brings is kept until it is asked for: whoever stops waiting for a
//! delivery does not stop the server from sending it. What nobody asks for any more goes back to its queue.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use lapin::Acker;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::demand::Demand;
use super::link::{Link, Place};
use super::publish::{Message, Publisher};
use super::session::Session;
use super::topology::Names;
use crate::broker::contract::{
    BrokerError, Delivery, Health, Hold, Intake, IntakePlan, Pointer, Published, Receipt, Settle, Settled,
};
use crate::job::name::Lane;
use crate::job::rota::Rota;

/// For so long after a call of `next` has ended the next one is awaited with what was sent ahead. A worker that
/// is busy for longer keeps nothing from others.
const GRACE: Duration = Duration::from_secs(1);

/// The longest a session takes to open or to say that it cannot: beyond all its own patience.
const OPEN_PATIENCE: Duration = Duration::from_secs(20);

/// What the task that reads needs to know.
pub(super) struct Plan {
    pub(super) place: Place,
    pub(super) names: Names,
    pub(super) lanes: Vec<Lane>,
    /// The worker's name and incarnation, as the server shows it.
    pub(super) me: String,
}

/// A message that has been sent to us.
pub(super) struct Arrival {
    pub(super) tag: u64,
    pub(super) body: Vec<u8>,
    pub(super) deliveries: Option<u64>,
    pub(super) acker: Acker,
}

/// What the task that reads and its reader share.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// Of the session there is. Zero while there is none: no session has that number.
    epoch: u64,
    /// Arrived and not handed out, for each lane in the order of arrival.
    ready: Vec<VecDeque<Arrival>>,
    /// Handed out and not settled, by their tags.
    out: HashMap<u64, Out>,
    /// Why the last session ended, until somebody has been told.
    trouble: Option<BrokerError>,
    last_read: Option<Instant>,
    failures_in_a_row: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Closed,
    Opening,
    Open,
}

struct Out {
    lane: usize,
    body: Vec<u8>,
    acker: Acker,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, epoch: u64) {
        let mut state = self.state();
        (state.phase, state.epoch, state.failures_in_a_row) = (Phase::Open, epoch, 0);
        state.last_read = Some(Instant::now());
        self.news.notify_waiters();
    }

    /// Nothing of the session is good any more: the server gives it to others.
    fn ended(&self, trouble: Option<BrokerError>) {
        let mut state = self.state();
        (state.phase, state.epoch) = (Phase::Closed, 0);
        state.out.clear();
        state.ready.iter_mut().for_each(VecDeque::clear);
        if trouble.is_some() {
            state.failures_in_a_row = state.failures_in_a_row.saturating_add(1);
            state.trouble = trouble;
        }
        self.news.notify_waiters();
    }

    pub(super) fn arrived(&self, lane: usize, arrival: Arrival) {
        let mut state = self.state();
        state.last_read = Some(Instant::now());
        state.ready[lane].push_back(arrival);
        self.news.notify_waiters();
    }

    pub(super) fn read(&self, at: Instant) {
        self.state().last_read = Some(at);
    }

    /// How many unsettled messages of this lane are here, and how many of all lanes wait to be handed out.
    pub(super) fn held(&self, lane: usize) -> (usize, usize) {
        let state = self.state();
        let out = state.out.values().filter(|out| out.lane == lane).count();
        (state.ready[lane].len() + out, state.ready.iter().map(VecDeque::len).sum())
    }

    /// Takes what has arrived for this lane and was not handed out.
    pub(super) fn unread(&self, lane: usize) -> Vec<Acker> {
        self.state().ready[lane].drain(..).map(|arrival| arrival.acker).collect()
    }
}

impl State {
    /// Hands out at most `permits`, of the lanes in this order.
    fn hand_out(&mut self, permits: usize, lanes: &[usize]) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        for lane in lanes {
            while deliveries.len() < permits {
                let Some(arrival) = self.ready[*lane].pop_front() else { break };
                let Arrival { tag, body, deliveries: times, acker } = arrival;
                let pointer = Pointer::decode(&body).ok_or_else(|| body.clone());
                let receipt = Receipt { epoch: self.epoch, id: tag.to_string() };
                deliveries.push(Delivery { receipt, pointer, deliveries: times });
                self.out.insert(tag, Out { lane: *lane, body, acker });
            }
        }
        deliveries
    }

    /// What a receipt names, once.
    fn settle(&mut self, receipt: &Receipt) -> Option<Out> {
        if receipt.epoch != self.epoch {
            return None;
        }
        self.out.remove(&receipt.id.parse().ok()?)
    }
}

pub(super) struct Reader {
    lanes: Vec<Lane>,
    names: Names,
    shared: Arc<Shared>,
    demand: watch::Sender<Demand>,
    rota: Mutex<Rota<usize>>,
    publisher: Arc<Publisher>,
    reading: Mutex<Option<JoinHandle<()>>>,
    closing: CancellationToken,
    /// A reader that is dropped leaves nothing behind.
    _closing: DropGuard,
}

impl Reader {
    pub(super) fn new(place: Place, names: Names, publisher: Arc<Publisher>, plan: &IntakePlan) -> Self {
        let lanes = plan.lanes.clone();
        let shared = Arc::new(Shared::default());
        shared.state().ready = lanes.iter().map(|_| VecDeque::new()).collect();
        let (demand, asked) = watch::channel(Demand::none());
        let closing = CancellationToken::new();
        let me = format!("{}/{}", plan.consumer.name, plan.consumer.incarnation);
        let task = Plan { place, names: names.clone(), lanes: lanes.clone(), me };
        let reading = tokio::spawn(read(task, shared.clone(), asked, closing.clone()));
        let numbered = lanes.iter().cloned().enumerate().map(|(at, lane)| (lane, at)).collect();
        Self {
            lanes,
            names,
            shared,
            demand,
            rota: Mutex::new(Rota::new(numbered)),
            publisher,
            reading: Mutex::new(Some(reading)),
            _closing: closing.clone().drop_guard(),
            closing,
        }
    }

    /// Asks the task that reads, and waits until `find` has something, the session has ended, or `until`; and
    /// for as long as it takes to know whether there is a session at all.
    async fn ask<T>(
        &self,
        demand: Demand,
        until: Instant,
        find: impl Fn(&mut State) -> Option<T>,
    ) -> Result<Option<T>, BrokerError> {
        {
            let mut state = self.shared.state();
            if let Some(trouble) = state.trouble.take() {
                return Err(trouble);
            }
            if state.phase == Phase::Closed {
                state.phase = Phase::Opening;
            }
        }
        self.demand.send_replace(demand);
        let give_up = until.max(Instant::now() + OPEN_PATIENCE);
        loop {
            let mut news = std::pin::pin!(self.shared.news.notified());
            news.as_mut().enable();
            let opening = {
                let mut state = self.shared.state();
                if let Some(trouble) = state.trouble.take() {
                    return Err(trouble);
                }
                if let Some(found) = find(&mut state) {
                    return Ok(Some(found));
                }
                state.phase == Phase::Opening
            };
            let deadline = if opening { give_up } else { until };
            if tokio::time::timeout_at(deadline.into(), news).await.is_err() {
                return match opening {
                    true => Err(BrokerError::Transient("the broker does not open a connection".into())),
                    false => Ok(None),
                };
            }
        }
    }

    async fn settle_one(&self, receipt: &Receipt, how: &Settle) -> Settled {
        let Some(out) = self.shared.state().settle(receipt) else { return Settled::Stale };
        if let Settle::Park(why) = how {
            let from = self.names.of(&self.lanes[out.lane]);
            let headers = vec![("why", (*why).to_owned()), ("from", from)];
            let message = Message { queue: self.names.parked(), body: out.body, headers };
            let parked = self.publisher.publish(vec![message]).await;
            if !matches!(parked[..], [Published::Accepted]) {
                // Not acknowledged: it comes again with the next session, and is not asked for in circles.
                return Settled::Unknown;
            }
        }
        let acknowledging = out.acker.ack(BasicAckOptions::default());
        match tokio::time::timeout(Link::PATIENCE, acknowledging).await {
            Ok(Ok(true)) => Settled::Ok,
            Ok(Ok(false)) => Settled::Stale,
            Ok(Err(_)) | Err(_) => Settled::Unknown,
        }
    }
}

/// Gives a message back to its queue.
pub(super) async fn give_back(acker: &Acker) {
    // Without an answer the channel is gone, and the message with it back in its queue.
    let giving = acker.nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() });
    let _ = tokio::time::timeout(Link::PATIENCE, giving).await;
}

/// One session after the other, each begun by somebody who asks.
async fn read(
    plan: Plan,
    shared: Arc<Shared>,
    mut demand: watch::Receiver<Demand>,
    closing: CancellationToken,
) {
    loop {
        let asked = closing.run_until_cancelled(demand.changed()).await;
        if !matches!(asked, Some(Ok(()))) {
            return;
        }
        let opened = match closing.run_until_cancelled(Session::open(&plan)).await {
            None => return,
            Some(opened) => opened,
        };
        let ended = match opened {
            Ok(mut session) => {
                shared.opened(session.epoch);
                let ended = session.serve(&plan, &shared, &mut demand, &closing).await;
                shared.ended(ended.err());
                session.close().await;
                continue;
            }
            Err(error) => Some(error),
        };
        shared.ended(ended);
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
        let order: Vec<usize> = {
            let mut rota = self.rota.lock().unwrap_or_else(PoisonError::into_inner);
            let open = rota.order().into_iter().filter(|(lane, _)| !shut.contains(lane));
            open.map(|(_, at)| at).collect()
        };
        let until = Instant::now() + wait;
        let mut demand = Demand { permits, short: permits, shut: shut.to_vec(), until: until + GRACE };
        let in_hand = self.shared.state().hand_out(permits, &order);
        if !in_hand.is_empty() {
            demand.short -= in_hand.len();
            self.demand.send_replace(demand);
            return Ok(in_hand);
        }
        let find = |state: &mut State| {
            let deliveries = state.hand_out(permits, &order);
            (!deliveries.is_empty()).then_some(deliveries)
        };
        let found = self.ask(demand, until, find).await?.unwrap_or_default();
        // No news to the task that reads, but what it looks at next.
        self.demand.send_if_modified(|demand| {
            demand.short = demand.short.saturating_sub(found.len());
            false
        });
        Ok(found)
    }

    /// The server gives back by itself what a connection left. What is answered here is whether there is a
    /// connection: nobody has recovered, who could not read.
    async fn orphans(&self, _: usize) -> Result<Vec<Delivery>, BrokerError> {
        let connected = |state: &mut State| (state.phase == Phase::Open).then_some(());
        let demand = self.demand.borrow().clone();
        self.ask(demand, Instant::now(), connected).await?;
        Ok(Vec::new())
    }

    async fn hold(&self, receipts: &[Receipt]) -> Vec<Hold> {
        receipts.iter().map(|_| Hold::Unsupported).collect()
    }

    async fn settle(&self, receipts: &[(Receipt, Settle)]) -> Vec<Settled> {
        join_all(receipts.iter().map(|(receipt, how)| self.settle_one(receipt, how))).await
    }

    async fn hand_back(&self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let back: Vec<Out> = {
            let mut state = self.shared.state();
            receipts.iter().filter_map(|receipt| state.settle(receipt)).collect()
        };
        join_all(back.iter().map(|out| give_back(&out.acker))).await;
        Ok(())
    }

    fn health(&self) -> Health {
        let state = self.shared.state();
        Health { last_read: state.last_read, failures_in_a_row: state.failures_in_a_row, epoch: state.epoch }
    }

    async fn close(&self, deadline: Instant) {
        self.closing.cancel();
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reading) = reading {
            let _ = tokio::time::timeout_at(deadline.into(), reading).await;
        }
    }
}
