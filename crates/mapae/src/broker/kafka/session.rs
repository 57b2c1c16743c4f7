//! One epoch of reading: a member of the group with its partitions. Any error that the client cannot get over by
//! itself ends all of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::intake::Plan;
use super::link;
use super::shared::{Mark, Shared, serial};
use super::voice::Voice;
use crate::broker::contract::BrokerError;

/// How often a session looks whether it is still wanted, and whether a mark is due that was not taken.
const TICK: Duration = Duration::from_millis(500);

/// The longest that leaving in order may take.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);

/// How often a session that leaves looks whether it may.
const HEAR: Duration = Duration::from_millis(20);

/// A cluster that says nothing for so long does not answer: heartbeats alone are answered twice a second. The client
/// itself goes on waiting for one that has stopped and still holds its connections.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What of the client's own figures is read: for each of its connections whether it stands, and for how many
/// microseconds nothing has come over it.
#[derive(Deserialize)]
struct Figures {
    brokers: HashMap<String, Connection>,
}

#[derive(Deserialize)]
struct Connection {
    state: String,
    rxidle: i64,
}

/// Since when nothing has come over any connection.
fn silence(figures: &[u8]) -> Option<Duration> {
    let figures: Figures = serde_json::from_slice(figures).ok()?;
    let up = figures.brokers.values().filter(|connection| connection.state == "UP");
    up.filter_map(|connection| u64::try_from(connection.rxidle).ok()).min().map(Duration::from_micros)
}

/// What the client says and asks while the session takes messages from it.
pub(super) struct Ear {
    voice: Voice,
    /// Whose ear it is: a client still speaks while it is dropped, when there may be another session.
    session: u64,
    shared: Arc<Shared>,
}

impl ClientContext for Ear {
    fn log(&self, level: RDKafkaLogLevel, topic: &str, line: &str) {
        self.voice.log(level, topic, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.voice.error(error, reason);
    }

    fn stats_raw(&self, figures: &[u8]) {
        if let Some(heard) = silence(figures).and_then(|silence| Instant::now().checked_sub(silence)) {
            self.shared.heard(self.session, heard);
        }
    }
}

impl ConsumerContext for Ear {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => self.shared.assigned(self.session, &named(list)),
            Rebalance::Revoke(list) => {
                let marks = self.shared.revoked(self.session, &named(list));
                // Goes out before the client answers the group, so in the generation in which they were ours. What
                // was lost was another's before it was said. Without an answer, what is marked in vain comes again.
                if !consumer.assignment_lost() && !marks.is_empty() {
                    let _ = consumer.commit(&marked(&marks), CommitMode::Async);
                }
            }
            Rebalance::Error(error) => debug!(%error, "a rebalance failed"),
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Assign(list) = rebalance else { return };
        let full = self.shared.full(self.session, &named(list));
        if !full.is_empty() {
            let _ = consumer.pause(&listed(&full));
        }
    }
}

fn named(list: &TopicPartitionList) -> Vec<(String, i32)> {
    list.elements().iter().map(|at| (at.topic().to_owned(), at.partition())).collect()
}

fn listed(partitions: &[(String, i32)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    list
}

fn marked(marks: &[Mark]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(marks.len());
    for mark in marks {
        // Not refused: an offset is never negative.
        let _ = list.add_partition_offset(&mark.topic, mark.partition, Offset::Offset(mark.offset));
    }
    list
}

pub(super) struct Session {
    serial: u64,
    consumer: Arc<StreamConsumer<Ear>>,
    /// Subscribed to nothing that holds messages.
    aside: bool,
    /// How often the group had left us out before.
    left_out: u64,
    /// It is known that the group has heard what we are subscribed to.
    heard: bool,
}

impl Session {
    pub(super) async fn open(plan: &Plan, shared: &Arc<Shared>) -> Result<Self, BrokerError> {
        let aside = plan.names.aside();
        let there = plan.link.ask(move |client| Ok(link::topic(client, &aside)?.is_some())).await?;
        if !there {
            return Err(BrokerError::Topology(format!("there is no topic {}", plan.names.aside())));
        }
        let config = plan.place.reader(&plan.names.group(), &plan.me, &plan.life);
        let serial = serial();
        shared.begun(serial);
        let ear = Ear { voice: Voice::default(), session: serial, shared: shared.clone() };
        let consumer = Arc::new(config.create_with_context(ear).map_err(link::of)?);
        let session = Self { serial, consumer, aside: false, left_out: shared.left_out(), heard: false };
        session.subscribe(&plan.topics)?;
        Ok(session)
    }

    fn subscribe(&self, topics: &[String]) -> Result<(), BrokerError> {
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).map_err(link::of)
    }

    /// Reads until it is closed, which is no error.
    pub(super) async fn serve(
        &mut self,
        plan: &Plan,
        shared: &Arc<Shared>,
        wanted: &mut watch::Receiver<Instant>,
        closing: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                () = closing.cancelled() => return Ok(()),
                changed = wanted.changed() => match changed {
                    Ok(()) => self.suit(plan, shared, *wanted.borrow_and_update())?,
                    Err(_) => return Ok(()),
                },
                arrived = self.consumer.recv() => self.take(shared, arrived)?,
                () = shared.news_of_settling() => self.commit(shared),
                () = shared.news_of_the_group() => self.suit(plan, shared, *wanted.borrow())?,
                _ = tick.tick() => {
                    if let Some(broken) = shared.broken() {
                        return Err(broken);
                    }
                    self.suit(plan, shared, *wanted.borrow())?;
                    self.commit(shared);
                    if shared.silence() > SILENCE_MAX {
                        return Err(BrokerError::Transient("the broker does not answer".into()));
                    }
                }
            }
        }
    }

    fn take(&self, shared: &Shared, arrived: KafkaResult<BorrowedMessage<'_>>) -> Result<(), BrokerError> {
        match arrived {
            Ok(message) => {
                let body = message.payload().unwrap_or_default().to_vec();
                shared.arrived(message.topic(), message.partition(), message.offset(), body)?;
                let full = shared.filled(message.topic());
                if !full.is_empty() {
                    let _ = self.consumer.pause(&listed(&full));
                }
                Ok(())
            }
            Err(error) => match error.rdkafka_error_code() {
                // The client is at it already, and says more when it cannot get over it.
                Some(
                    RDKafkaErrorCode::BrokerTransportFailure
                    | RDKafkaErrorCode::Resolve
                    | RDKafkaErrorCode::OperationTimedOut
                    | RDKafkaErrorCode::RequestTimedOut
                    | RDKafkaErrorCode::AutoOffsetReset
                    | RDKafkaErrorCode::OffsetOutOfRange
                    | RDKafkaErrorCode::LeaderNotAvailable
                    | RDKafkaErrorCode::NotLeaderForPartition
                    | RDKafkaErrorCode::NetworkException,
                ) => Ok(()),
                Some(code) => Err(self.consumer.client().context().voice.problem(code)),
                None => Err(BrokerError::Transient(error.into())),
            },
        }
    }

    /// Reads lanes while somebody asks, and lets others have them when nobody does.
    fn suit(&mut self, plan: &Plan, shared: &Shared, wanted: Instant) -> Result<(), BrokerError> {
        let mut aside = Instant::now() >= wanted;
        if !aside && !self.aside && !self.heard && shared.left_out() > self.left_out {
            // A member that comes back under its name is given what it had, and nobody looks at what it is
            // subscribed to now: if it left from aside, nothing. Once aside and back, and the group looks.
            (aside, self.heard) = (true, true);
        }
        if aside != self.aside {
            match aside {
                true => self.subscribe(&[plan.names.aside()])?,
                false => self.subscribe(&plan.topics)?,
            }
            self.aside = aside;
        }
        let empty = shared.emptied();
        if !empty.is_empty() {
            let _ = self.consumer.resume(&listed(&empty));
        }
        Ok(())
    }

    /// The client tells whether a commit was taken only to a thread that waits for it.
    fn commit(&self, shared: &Arc<Shared>) {
        let marks = shared.due();
        if marks.is_empty() {
            return;
        }
        let (session, consumer, shared) = (self.serial, self.consumer.clone(), shared.clone());
        tokio::task::spawn_blocking(move || {
            // The thread may have come late.
            let marks = shared.still_ours(session, marks);
            let taken = marks.is_empty() || consumer.commit(&marked(&marks), CommitMode::Sync).is_ok();
            shared.committed(session, taken);
        });
    }

    /// Leaves, and lets the others of the group have what was its own at once: a member with a name of its own stays
    /// one until its session has ended, whatever it says.
    pub(super) async fn close(self, plan: &Plan, shared: &Arc<Shared>) {
        let leaving = async {
            self.commit(shared);
            while shared.is_committing() {
                self.hear().await;
                self.commit(shared);
            }
            let left_out = shared.left_out();
            if self.aside || self.subscribe(&[plan.names.aside()]).is_err() {
                return;
            }
            while shared.left_out() == left_out {
                self.hear().await;
            }
        };
        let _ = tokio::time::timeout(LEAVE_PATIENCE, leaving).await;
        self.end();
    }

    /// What the client has to say. Whatever message comes with it is another's.
    async fn hear(&self) {
        let _ = tokio::time::timeout(HEAR, self.consumer.recv()).await;
    }

    /// The client waits for its threads: not here.
    pub(super) fn end(self) {
        std::thread::spawn(move || drop(self));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_come_over_a_connection_that_stands_breaks_the_silence() {
        let figures =
            |brokers: &str| silence(format!("{{\"name\":\"w\",\"brokers\":{{{brokers}}}}}").as_bytes());
        let up = r#""a:1/1":{"state":"UP","rxidle":2500000},"b:1/2":{"state":"UP","rxidle":-1}"#;
        assert_eq!(figures(up), Some(Duration::from_millis(2_500)));
        assert_eq!(figures(r#""a:1/1":{"state":"CONNECT","rxidle":10}"#), None);
        assert_eq!(silence(b"not json"), None);
    }
}
