//! Reading topics for one worker.
//!
//! A task of its own reads, and what it brings is kept until it is asked for: whoever stops waiting for a message
//! does not stop the client from taking it. A partition has one reader, however busy that is; so one that has asked
//! for nothing for a while gives its partitions to those that do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::link::Link;
use super::place::Place;
use super::publish::{Message, Publisher};
use super::session::Session;
use super::shared::{Phase, Shared, Spot, State};
use super::topics::Names;
use crate::broker::contract::{
    BrokerError, Delivery, Health, Hold, Intake, IntakePlan, Published, Receipt, Settle, Settled,
};
use crate::job::name::Lane;
use crate::job::rota::Rota;

/// A worker that is busy for longer than this keeps nothing from others. Handing partitions over costs all readers
/// of the group a moment: not for every short pause.
const BUSY: Duration = Duration::from_secs(5);

/// One that has handed something back and asks for nothing more is on its way out.
const LEAVING: Duration = Duration::from_millis(500);

/// The longest somebody waits for a session to open or to say that it cannot.
const OPEN_PATIENCE: Duration = Duration::from_secs(20);

/// What the task that reads needs to know.
pub(super) struct Plan {
    pub(super) place: Place,
    pub(super) link: Link,
    pub(super) names: Names,
    /// Of the lanes, in their order.
    pub(super) topics: Vec<String>,
    /// The worker's name as a member of the group, and as the cluster shows it.
    pub(super) me: String,
    pub(super) life: String,
}

pub(super) struct Reader {
    topics: Vec<String>,
    names: Names,
    shared: Arc<Shared>,
    /// Until when messages are of use.
    wanted: watch::Sender<Instant>,
    rota: Mutex<Rota<usize>>,
    publisher: Arc<Publisher>,
    reading: Mutex<Option<JoinHandle<()>>>,
    closing: CancellationToken,
    /// A reader that is dropped leaves nothing behind.
    _closing: DropGuard,
}

impl Reader {
    pub(super) fn new(
        place: Place,
        link: Link,
        names: Names,
        publisher: Arc<Publisher>,
        plan: &IntakePlan,
    ) -> Self {
        let topics: Vec<String> = plan.lanes.iter().map(|lane| names.of(lane)).collect();
        let shared = Arc::new(Shared::new(topics.clone()));
        let (wanted, asked) = watch::channel(Instant::now());
        let closing = CancellationToken::new();
        let me = member(&plan.consumer.name, &topics);
        let life = format!("{}/{}", plan.consumer.name, plan.consumer.incarnation);
        let task = Plan { place, link, names: names.clone(), topics: topics.clone(), me, life };
        let reading = tokio::spawn(read(task, shared.clone(), asked, closing.clone()));
        let numbered = plan.lanes.iter().cloned().enumerate().map(|(at, lane)| (lane, at)).collect();
        Self {
            topics,
            names,
            shared,
            wanted,
            rota: Mutex::new(Rota::new(numbered)),
            publisher,
            reading: Mutex::new(Some(reading)),
            _closing: closing.clone().drop_guard(),
            closing,
        }
    }

    /// Asks the task that reads, and waits until `find` has something, the session has ended, or `until`; and
    /// at most for [`OPEN_PATIENCE`] to know whether there is a session that reads. One that does not yet goes on
    /// trying.
    async fn ask<T>(
        &self,
        wanted: Instant,
        until: Instant,
        find: impl Fn(&mut State) -> Option<T>,
    ) -> Result<Option<T>, BrokerError> {
        let give_up = until.max(Instant::now() + OPEN_PATIENCE);
        let opening = {
            let mut state = self.shared.state();
            if let Some(trouble) = state.trouble.take() {
                return Err(trouble);
            }
            if state.phase == Phase::Closed {
                state.phase = Phase::Opening;
            }
            state.phase == Phase::Opening
        };
        // Whoever waits for the group's answer wants messages all the while.
        self.wanted.send_replace(if opening { wanted.max(give_up) } else { wanted });
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
                    true => {
                        Err(BrokerError::Transient("the broker has not let us into the group yet".into()))
                    }
                    false => Ok(None),
                };
            }
        }
    }

    /// What the receipts name, in order.
    fn take(&self, receipts: &[Receipt]) -> Vec<Option<(Spot, Vec<u8>)>> {
        let mut state = self.shared.state();
        receipts.iter().map(|receipt| state.take(receipt)).collect()
    }

    /// The message has to stay where it is: all that the session has read is read again by the next, from the first
    /// that is not settled. The next read says why, by what can be done about it: a topic that is missing is made.
    fn stays(&self, spot: &Spot, answer: Published, what: &str) -> Settled {
        let why = match answer {
            Published::Refused(error) => error,
            Published::Accepted | Published::Unknown => BrokerError::Transient(what.into()),
        };
        self.shared.give_up(spot, why);
        Settled::Unknown
    }
}

/// A member that comes back under its name is given what it had before, whatever it is subscribed to now. So one that
/// reads other lanes has another name.
fn member(worker: &str, topics: &[String]) -> String {
    let mut sorted = topics.to_vec();
    sorted.sort_unstable();
    let digest = Sha256::digest(sorted.join(" ").as_bytes());
    let short: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{worker}/{short}")
}

/// One session after the other, each begun by somebody who asks.
async fn read(
    plan: Plan,
    shared: Arc<Shared>,
    mut wanted: watch::Receiver<Instant>,
    closing: CancellationToken,
) {
    loop {
        let asked = closing.run_until_cancelled(wanted.changed()).await;
        if !matches!(asked, Some(Ok(()))) {
            return;
        }
        let opened = match closing.run_until_cancelled(Session::open(&plan, &shared)).await {
            None => return,
            Some(opened) => opened,
        };
        match opened {
            Ok(mut session) => match session.serve(&plan, &shared, &mut wanted, &closing).await {
                Ok(()) => {
                    session.close(&plan, &shared).await;
                    shared.ended(None);
                }
                Err(error) => {
                    shared.ended(Some(error));
                    session.end();
                }
            },
            Err(error) => shared.ended(Some(error)),
        }
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
        let find = |state: &mut State| {
            let deliveries = state.hand_out(permits, &order);
            (!deliveries.is_empty()).then_some(deliveries)
        };
        Ok(self.ask(until + BUSY, until, find).await?.unwrap_or_default())
    }

    /// The group gives by itself to others what a reader left. What is answered here is whether we
    /// are in it: nobody has recovered, who could not read.
    async fn orphans(&self, _: usize) -> Result<Vec<Delivery>, BrokerError> {
        let connected = |state: &mut State| (state.phase == Phase::Open).then_some(());
        let now = Instant::now();
        self.ask(now + BUSY, now, connected).await?;
        Ok(Vec::new())
    }

    async fn hold(&self, receipts: &[Receipt]) -> Vec<Hold> {
        receipts.iter().map(|_| Hold::Unsupported).collect()
    }

    /// Marked as settled here; the group is told without anybody waiting for it. What is not, before this ends, comes
    /// again and is answered by its row.
    async fn settle(&self, receipts: &[(Receipt, Settle)]) -> Vec<Settled> {
        let named: Vec<Receipt> = receipts.iter().map(|(receipt, _)| receipt.clone()).collect();
        let mut settled = Vec::with_capacity(receipts.len());
        for (taken, (_, how)) in self.take(&named).into_iter().zip(receipts) {
            let Some((spot, body)) = taken else {
                settled.push(Settled::Stale);
                continue;
            };
            if let Settle::Park(why) = how {
                let from = format!("{} {}/{}", self.topics[spot.lane], spot.partition, spot.offset);
                let headers = vec![("why", (*why).to_owned()), ("from", from)];
                let key = spot.offset.to_string();
                let message = Message { topic: self.names.parked(), key, body, headers };
                let answer = self.publisher.publish(&[message]).await.pop().unwrap_or(Published::Unknown);
                if !matches!(answer, Published::Accepted) {
                    settled.push(self.stays(&spot, answer, "what is no pointer cannot be put aside yet"));
                    continue;
                }
            }
            settled.push(if self.shared.settled(&spot) { Settled::Ok } else { Settled::Stale });
        }
        settled
    }

    /// A group knows no such thing: they are published again, and settled here.
    async fn hand_back(&self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let (spots, messages): (Vec<Spot>, Vec<Message>) = self
            .take(receipts)
            .into_iter()
            .flatten()
            .map(|(spot, body)| {
                // Anywhere, and not all here again.
                let key = format!("{}/{}", spot.serial, spot.offset);
                (spot, Message { topic: self.topics[spot.lane].clone(), key, body, headers: Vec::new() })
            })
            .unzip();
        let leaving = Instant::now() + LEAVING;
        self.wanted.send_if_modified(|wanted| {
            *wanted = leaving.min(*wanted);
            false
        });
        for (spot, published) in spots.iter().zip(self.publisher.publish(&messages).await) {
            match published {
                Published::Accepted => {
                    self.shared.settled(spot);
                }
                answer => {
                    self.stays(spot, answer, "what is handed back is not taken");
                }
            }
        }
        Ok(())
    }

    fn health(&self) -> Health {
        self.shared.health()
    }

    async fn close(&self, deadline: Instant) {
        self.closing.cancel();
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reading) = reading {
            let _ = tokio::time::timeout_at(deadline.into(), reading).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_reads_other_lanes_is_another_member() {
        let topics = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let one = member("w", &topics(&["a", "b"]));
        assert_eq!(one, member("w", &topics(&["b", "a"])));
        assert_ne!(one, member("w", &topics(&["a", "b", "c"])));
        assert_ne!(one, member("v", &topics(&["a", "b"])));
    }
}
