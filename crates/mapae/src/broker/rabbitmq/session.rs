//! One epoch of reading: a connection, its channel and a consumer for each lane that is read. Any error ends all
//! of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, SelectAll};
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Channel, Connection};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::demand::{self, Demand};
use super::intake::{Arrival, Plan, Shared, give_back};
use super::link::{Link, Problem};
use crate::broker::contract::BrokerError;

/// How often a session looks whether it is still alive and still wanted. The client does not always say when a
/// channel has been closed under it.
const TICK: Duration = Duration::from_millis(500);

/// The longest that leaving in order may take.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// No two sessions of this process have the same number, whoever opened them.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

/// What a consumer's stream gives: a delivery, an error, or nothing any more.
type Item = (usize, u64, Option<lapin::Result<Delivery>>);

/// A consumer of one lane.
struct Reading {
    serial: u64,
    tag: String,
    prefetch: u16,
}

pub(super) struct Session {
    pub(super) epoch: u64,
    connection: Connection,
    channel: Channel,
    readings: Vec<Option<Reading>>,
    items: SelectAll<BoxStream<'static, Item>>,
    serial: u64,
    /// What the channel's next consumers may hold.
    prefetch: u16,
}

impl Session {
    pub(super) async fn open(plan: &Plan) -> Result<Self, BrokerError> {
        let connection = plan.place.connect(&plan.me).await?;
        let creating = tokio::time::timeout(Link::PATIENCE, connection.create_channel());
        let channel = creating.await.map_err(lost)?.map_err(Problem::of)?;
        Ok(Self {
            epoch: EPOCHS.fetch_add(1, Ordering::Relaxed),
            connection,
            channel,
            readings: plan.lanes.iter().map(|_| None).collect(),
            items: SelectAll::new(),
            serial: 0,
            prefetch: 0,
        })
    }

    /// Reads what is asked for until it is closed, which is no error.
    pub(super) async fn serve(
        &mut self,
        plan: &Plan,
        shared: &Shared,
        demand: &mut watch::Receiver<Demand>,
        closing: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let mut tick = tokio::time::interval(TICK);
        let mut asked = true;
        loop {
            let wanted = demand.borrow_and_update().clone();
            tokio::time::timeout(Link::PATIENCE, self.suit(plan, shared, &wanted, asked))
                .await
                .map_err(lost)??;
            asked = false;
            tokio::select! {
                () = closing.cancelled() => return Ok(()),
                changed = demand.changed() => match changed {
                    Ok(()) => asked = true,
                    Err(_) => return Ok(()),
                },
                Some((lane, serial, item)) = self.items.next(), if !self.items.is_empty() => {
                    self.take(plan, shared, lane, serial, item)?;
                }
                _ = tick.tick() => self.alive(shared)?,
            }
        }
    }

    /// Leaves. The server gives to others whatever was not acknowledged.
    pub(super) async fn close(self) {
        let closing = self.connection.close(200, "OK".into());
        let _ = tokio::time::timeout(CLOSE_PATIENCE, closing).await;
    }

    fn alive(&self, shared: &Shared) -> Result<(), BrokerError> {
        if !self.connection.status().connected() || !self.channel.status().connected() {
            return Err(BrokerError::Transient("the channel was closed".into()));
        }
        shared.read(Instant::now());
        Ok(())
    }

    fn take(
        &mut self,
        plan: &Plan,
        shared: &Shared,
        lane: usize,
        serial: u64,
        item: Option<lapin::Result<Delivery>>,
    ) -> Result<(), BrokerError> {
        match item {
            Some(Ok(delivery)) => {
                let deliveries = times(&delivery);
                let Delivery { delivery_tag, data, acker, .. } = delivery;
                shared.arrived(lane, Arrival { tag: delivery_tag, body: data, deliveries, acker });
                Ok(())
            }
            Some(Err(error)) => Err(Problem::of(error).into()),
            // The end of one that was left here; else the server took it away, with the queue.
            None if self.readings[lane].as_ref().is_none_or(|reading| reading.serial != serial) => Ok(()),
            None => {
                let queue = plan.names.of(&plan.lanes[lane]);
                Err(BrokerError::Topology(format!("the queue {queue} is gone")))
            }
        }
    }

    /// Reads what is wanted and nothing else. What was sent ahead for a lane that is not wanted any more goes
    /// back, so that another worker may have it.
    async fn suit(
        &mut self,
        plan: &Plan,
        shared: &Shared,
        demand: &Demand,
        asked: bool,
    ) -> Result<(), BrokerError> {
        let now = Instant::now();
        let first = demand::first(demand.permits, plan.lanes.len());
        for lane in 0..plan.lanes.len() {
            let wanted = demand.wants(&plan.lanes[lane], now);
            match &self.readings[lane] {
                Some(_) if !wanted => self.leave(lane).await?,
                None if wanted => self.consume(plan, lane, first).await?,
                Some(reading) if asked => {
                    let (held, ready) = shared.held(lane);
                    let prefetch = demand::next(reading.prefetch, held, ready, demand.short);
                    if prefetch > reading.prefetch {
                        self.leave(lane).await?;
                        self.consume(plan, lane, prefetch).await?;
                    }
                }
                _ => {}
            }
            if !wanted {
                let unread: Vec<Acker> = shared.unread(lane);
                join_all(unread.iter().map(give_back)).await;
            }
        }
        Ok(())
    }

    async fn consume(&mut self, plan: &Plan, lane: usize, prefetch: u16) -> Result<(), BrokerError> {
        if self.prefetch != prefetch {
            self.channel.basic_qos(prefetch, BasicQosOptions::default()).await.map_err(Problem::of)?;
            self.prefetch = prefetch;
        }
        self.serial += 1;
        let serial = self.serial;
        let tag = format!("{} {serial}", plan.me);
        let queue = plan.names.of(&plan.lanes[lane]);
        let options = BasicConsumeOptions::default();
        let consumer = self
            .channel
            .basic_consume(queue.into(), tag.as_str().into(), options, FieldTable::default())
            .await
            .map_err(Problem::of)?;
        self.readings[lane] = Some(Reading { serial, tag, prefetch });
        let items = consumer.map(move |item| (lane, serial, Some(item)));
        self.items.push(items.chain(stream::iter([(lane, serial, None)])).boxed());
        Ok(())
    }

    /// No more is sent for the lane. What is on its way still arrives, and stays good.
    async fn leave(&mut self, lane: usize) -> Result<(), BrokerError> {
        let Some(reading) = self.readings[lane].take() else { return Ok(()) };
        let cancelling = self.channel.basic_cancel(reading.tag.into(), BasicCancelOptions::default());
        Ok(cancelling.await.map_err(Problem::of)?)
    }
}

fn lost(late: tokio::time::error::Elapsed) -> BrokerError {
    BrokerError::Transient(late.into())
}

/// How often the server says that it has delivered this. A classic queue does not count.
fn times(delivery: &Delivery) -> Option<u64> {
    let headers = delivery.properties.headers().as_ref();
    let before = match headers.and_then(|headers| headers.inner().get("x-delivery-count")) {
        Some(AMQPValue::LongLongInt(count)) => u64::try_from(*count).ok()?,
        Some(AMQPValue::LongInt(count)) => u64::try_from(*count).ok()?,
        _ if delivery.redelivered => return None,
        _ => 0,
    };
    Some(before + 1)
}
