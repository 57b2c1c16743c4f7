//! Publishing: what all replicas in sync have is accepted, what there is no topic for is refused, and the rest is
//! unknown.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord};

use super::link;
use super::place::Place;
use super::voice::{Voice, class_of, refused};
use crate::broker::contract::{BrokerError, Pointer, Published};

/// Less than a publish may take as a whole, so that there is time to make a topic that is missing.
const CONFIRM_PATIENCE: Duration = Duration::from_millis(4_000);

/// Larger messages are cut when they are put aside: a cluster takes a megabyte with all that is around it.
const BODY_MAX: usize = 900_000;

pub(super) struct Message {
    pub(super) topic: String,
    pub(super) key: String,
    pub(super) body: Vec<u8>,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Message {
    /// The first ring of a job goes where its id says. Later ones go elsewhere: whoever reads there may be busy or
    /// gone, which is why it is rung again.
    pub(super) fn pointer(topic: String, pointer: &Pointer) -> Self {
        let key = match pointer.hint {
            0 | 1 => pointer.job.to_string(),
            hint => format!("{}/{hint}", pointer.job),
        };
        Self { topic, key, body: pointer.encode(), headers: Vec::new() }
    }
}

/// The producer hands its context to a type of its own.
#[derive(Clone, Default)]
struct Shared(Arc<Voice>);

impl ClientContext for Shared {
    fn log(&self, level: RDKafkaLogLevel, topic: &str, line: &str) {
        self.0.log(level, topic, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

pub(super) struct Publisher {
    place: Place,
    open: Mutex<Option<(FutureProducer<Shared>, Arc<Voice>)>>,
}

impl Publisher {
    pub(super) fn new(place: Place) -> Self {
        Self { place, open: Mutex::default() }
    }

    fn producer(&self) -> Result<(FutureProducer<Shared>, Arc<Voice>), BrokerError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*open {
            return Ok(known.clone());
        }
        let voice = Arc::new(Voice::default());
        let config = self.place.producer(CONFIRM_PATIENCE);
        let producer = config.create_with_context(Shared(voice.clone())).map_err(link::of)?;
        Ok(open.insert((producer, voice)).clone())
    }

    /// For each message, in order, the cluster's answer, within [`CONFIRM_PATIENCE`].
    pub(super) async fn publish(&self, messages: &[Message]) -> Vec<Published> {
        let (producer, voice) = match self.producer() {
            Ok(open) => open,
            Err(error) => {
                let why = error.to_string();
                let refused = |_: &Message| Published::Refused(BrokerError::Fatal(why.clone()));
                return messages.iter().map(refused).collect();
            }
        };
        let sent: Vec<Result<DeliveryFuture, KafkaError>> =
            messages.iter().map(|message| send(&producer, message)).collect();
        let confirmed = join_all(sent.into_iter().map(async |sent| match sent?.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err((error, _))) => Err(error),
            Err(_) => Err(KafkaError::Canceled),
        }))
        .await;
        let refused_here = voice.is_refused();
        if refused_here {
            // A password may be put right in the cluster: the next one asks again.
            self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        let answer = |(confirmed, message): (Result<(), KafkaError>, &Message)| match confirmed {
            Ok(()) => Published::Accepted,
            Err(_) if refused_here => Published::Refused(refused()),
            Err(error) => answered(&error, &message.topic),
        };
        confirmed.into_iter().zip(messages).map(answer).collect()
    }
}

fn send(producer: &FutureProducer<Shared>, message: &Message) -> Result<DeliveryFuture, KafkaError> {
    let body = &message.body[..message.body.len().min(BODY_MAX)];
    let mut record = FutureRecord::to(&message.topic).key(&message.key).payload(body);
    if !message.headers.is_empty() {
        let headers = message.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        record = record.headers(headers);
    }
    producer.send_result(record).map_err(|(error, _)| error)
}

fn answered(error: &KafkaError, topic: &str) -> Published {
    match error.rdkafka_error_code() {
        // In time nobody said anything; or not all replicas have it.
        None | Some(RDKafkaErrorCode::MessageTimedOut | RDKafkaErrorCode::NotEnoughReplicasAfterAppend) => {
            Published::Unknown
        }
        Some(code) => match class_of(code, format!("the topic {topic}: {code}")) {
            BrokerError::Transient(_) => Published::Unknown,
            error => Published::Refused(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::name::{JobId, Kind, Owner};

    #[test]
    fn only_the_clusters_own_no_is_a_refusal() {
        let of = |code| answered(&KafkaError::MessageProduction(code), "t");
        assert!(matches!(of(RDKafkaErrorCode::MessageTimedOut), Published::Unknown));
        assert!(matches!(of(RDKafkaErrorCode::AllBrokersDown), Published::Unknown));
        assert!(matches!(of(RDKafkaErrorCode::NotEnoughReplicasAfterAppend), Published::Unknown));
        let refused = of(RDKafkaErrorCode::UnknownTopic);
        assert!(
            matches!(&refused, Published::Refused(BrokerError::Topology(why)) if why.contains("the topic t"))
        );
        assert!(matches!(of(RDKafkaErrorCode::QueueFull), Published::Refused(BrokerError::Capacity)));
    }

    #[test]
    fn a_job_that_is_rung_again_may_be_read_by_another() {
        let pointer =
            |hint| Pointer::new(JobId::new(), Owner::new("o").unwrap(), Kind::new("k").unwrap(), hint, None);
        let (first, third) = (pointer(1), pointer(3));
        assert_eq!(Message::pointer("t".into(), &first).key, first.job.to_string());
        assert_eq!(Message::pointer("t".into(), &third).key, format!("{}/3", third.job));
    }
}
