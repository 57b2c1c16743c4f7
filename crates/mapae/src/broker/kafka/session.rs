//! One epoch of reading: a member of the group with its partitions. Any error that the client cannot get over by
//! itself ends all of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::intake::Plan;
use super::link;
use super::shared::{Mark, Shared};
use super::voice::Voice;
use crate::broker::contract::BrokerError;

/// How often a session looks whether it is still wanted, and whether a mark is due that was not taken.
const TICK: Duration = Duration::from_millis(500);

/// The longest that leaving in order may take.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);

/// For so long the group may hand over what a leaving reader had, once the reader has none of it.
const HAND_OVER: Duration = Duration::from_millis(700);

/// What the client says and asks while the session takes messages from it.
pub(super) struct Ear {
    voice: Voice,
    shared: Arc<Shared>,
}

impl ClientContext for Ear {
    fn log(&self, level: RDKafkaLogLevel, topic: &str, line: &str) {
        self.voice.log(level, topic, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.voice.error(error, reason);
    }
}

impl ConsumerContext for Ear {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => self.shared.assigned(&named(list)),
            Rebalance::Revoke(list) => {
                let marks = self.shared.revoked(&named(list));
                // Sent before the client answers the group, so in the generation in which they were ours. What
                // was lost was another's before it was said.
                if !consumer.assignment_lost() && !marks.is_empty() {
                    send(consumer, &self.shared, &marks);
                }
            }
            Rebalance::Error(error) => debug!(%error, "a rebalance failed"),
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Assign(list) = rebalance else { return };
        let full = self.shared.full(&named(list));
        if !full.is_empty() {
            let _ = consumer.pause(&listed(&full));
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let taken = result.is_ok() && offsets.elements().iter().all(|at| at.error().is_ok());
        self.shared.committed(taken);
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

/// Without waiting for the answer, which [`Ear::commit_callback`] is told.
fn send<C: ConsumerContext>(consumer: &impl Consumer<C>, shared: &Shared, marks: &[Mark]) {
    let mut list = TopicPartitionList::with_capacity(marks.len());
    for mark in marks {
        // Not refused: an offset is never negative.
        let _ = list.add_partition_offset(&mark.topic, mark.partition, Offset::Offset(mark.offset));
    }
    if consumer.commit(&list, CommitMode::Async).is_err() {
        shared.committed(false);
    }
}

pub(super) struct Session {
    consumer: StreamConsumer<Ear>,
    /// Subscribed to nothing that holds messages.
    aside: bool,
}

impl Session {
    pub(super) async fn open(plan: &Plan, shared: &Arc<Shared>) -> Result<Self, BrokerError> {
        let aside = plan.names.aside();
        let there = plan.link.ask(move |client| Ok(link::topic(client, &aside)?.is_some())).await?;
        if !there {
            return Err(BrokerError::Topology(format!("there is no topic {}", plan.names.aside())));
        }
        let config = plan.place.reader(&plan.names.group(), &plan.me, &plan.life);
        let ear = Ear { voice: Voice::default(), shared: shared.clone() };
        let session = Self { consumer: config.create_with_context(ear).map_err(link::of)?, aside: false };
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
        shared: &Shared,
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
                _ = tick.tick() => {
                    if let Some(broken) = shared.broken() {
                        return Err(broken);
                    }
                    self.suit(plan, shared, *wanted.borrow())?;
                    self.commit(shared);
                    shared.read();
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
        let aside = Instant::now() >= wanted;
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

    fn commit(&self, shared: &Shared) {
        let marks = shared.due();
        if !marks.is_empty() {
            send(&self.consumer, shared, &marks);
        }
    }

    /// Leaves, and lets others have what was its own at once: a member with a name of its own stays one until its
    /// session has ended, whatever it says.
    pub(super) async fn close(self, plan: &Plan, shared: &Shared) {
        let leaving = async {
            if self.subscribe(&[plan.names.aside()]).is_err() {
                return;
            }
            let changes = shared.changes();
            while shared.holds_any() || shared.is_committing() {
                self.hear().await;
            }
            let handing_over = async {
                while shared.changes() == changes {
                    self.hear().await;
                }
            };
            let _ = tokio::time::timeout(HAND_OVER, handing_over).await;
        };
        let _ = tokio::time::timeout(LEAVE_PATIENCE, leaving).await;
        self.end();
    }

    /// What the client has to say; whatever message comes with it is another's.
    async fn hear(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(20), self.consumer.recv()).await;
    }

    /// The client waits for its threads: not here.
    pub(super) fn end(self) {
        std::thread::spawn(move || drop(self));
    }
}
