//! Asking a cluster, one question at a time.
//!
//! The client's own calls wait for their answers in the thread that calls. They get one that may wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use tokio::sync::Mutex;

use super::place::Place;
use super::voice::{Voice, class_of};
use crate::broker::contract::BrokerError;

/// The longest one answer may take.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How often a question that waits for a connection looks whether there can be one.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A client that asks. It joins no group.
pub(super) type Client = BaseConsumer<Voice>;

#[derive(Clone)]
pub(super) struct Link {
    place: Place,
    group: String,
    open: Arc<Mutex<Option<Client>>>,
}

impl Link {
    pub(super) fn new(place: Place, group: String) -> Self {
        Self { place, group, open: Arc::default() }
    }

    /// Asks once the cluster can be reached. A question that nobody waits for any more is still answered before the
    /// next.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Client) -> KafkaResult<T> + Send + 'static,
    ) -> Result<T, BrokerError> {
        let (place, group) = (self.place.clone(), self.group.clone());
        let mut open = self.open.clone().lock_owned().await;
        let asking = move || {
            let client = match open.take() {
                Some(client) => client,
                None => place.asker(&group).create_with_context(Voice::default()).map_err(of)?,
            };
            reached(&client)?;
            let answer = question(&client).map_err(|error| told(&client, &error));
            // One that has failed is made anew: what it remembers of the cluster may be why.
            *open = answer.is_ok().then_some(client);
            answer
        };
        let asked = tokio::task::spawn_blocking(asking).await;
        asked.unwrap_or_else(|error| Err(BrokerError::Transient(error.into())))
    }
}

/// The cluster answers, or the reason is known.
pub(super) fn reached(client: &Client) -> Result<(), BrokerError> {
    let deadline = Instant::now() + ANSWER_PATIENCE;
    loop {
        // A name that no topic has: all that is asked for is an answer.
        match client.fetch_metadata(Some("-"), LOOK_EVERY) {
            Ok(_) => return Ok(()),
            Err(error) => {
                let problem = told(client, &error);
                let waits = matches!(
                    error.rdkafka_error_code(),
                    Some(RDKafkaErrorCode::OperationTimedOut | RDKafkaErrorCode::BrokerTransportFailure)
                );
                let hopeless = !matches!(problem, BrokerError::Transient(_)) || client.context().is_down();
                if !waits || hopeless || Instant::now() >= deadline {
                    return Err(problem);
                }
            }
        }
    }
}

/// A topic's partitions and where they lie, or `None` where there is no such topic.
pub(super) fn topic(client: &Client, name: &str) -> KafkaResult<Option<Metadata>> {
    let told = client.fetch_metadata(Some(name), ANSWER_PATIENCE)?;
    match told.topics().first().and_then(|topic| topic.error()).map(RDKafkaErrorCode::from) {
        None => Ok(Some(told)),
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
        Some(code) => Err(KafkaError::MetadataFetch(code)),
    }
}

/// What the client means, with what it has said meanwhile.
fn told(client: &Client, error: &KafkaError) -> BrokerError {
    // What has happened to its connections it says when it is asked for messages, of which it has none.
    for _ in 0..100 {
        if client.poll(Duration::ZERO).is_none() {
            break;
        }
    }
    match error.rdkafka_error_code() {
        Some(code) => client.context().problem(code),
        None => BrokerError::Transient(error.clone().into()),
    }
}

/// What the client means that cannot say more.
pub(super) fn of(error: KafkaError) -> BrokerError {
    match error.rdkafka_error_code() {
        Some(code) => class_of(code, code.to_string()),
        None => BrokerError::Fatal(format!("the client of Kafka cannot be set up: {error}")),
    }
}
