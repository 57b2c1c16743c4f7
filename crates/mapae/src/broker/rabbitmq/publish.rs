//! Publishing: what the server has confirmed is accepted, what it has returned is refused, and the rest is
//! unknown.
//!
//! One batch at a time: the client hands a returned message over with whichever confirm comes next on its
//! channel, so it is the batch as a whole that tells which of its messages came back. They are told apart by
//! their ids, since a batch may also meet what came back of one that was given up.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::Mutex;

use super::link::{Place, Problem};
use crate::broker::contract::{BrokerError, Published};

/// Less than a publish may take as a whole, so that there is time to give a channel up in order.
const CONFIRM_PATIENCE: Duration = Duration::from_millis(4_500);

/// Kept on disk.
const PERSISTENT: u8 = 2;

pub(super) struct Message {
    pub(super) queue: String,
    pub(super) body: Vec<u8>,
    pub(super) headers: Vec<(&'static str, String)>,
}

pub(super) struct Publisher {
    place: Place,
    open: Mutex<Option<(Connection, Option<Channel>)>>,
    ids: AtomicU64,
}

/// What became of one message: the server's confirm, where there is one, and the id of a message that came
/// back with it, this one's or another's.
struct Outcome {
    id: String,
    confirmed: Option<bool>,
    returned: Option<String>,
}

impl Publisher {
    pub(super) fn new(place: Place) -> Self {
        Self { place, open: Mutex::default(), ids: AtomicU64::new(0) }
    }

    /// For each message, in order, the server's answer. Takes [`CONFIRM_PATIENCE`] at most, and whatever others
    /// publish before it.
    pub(super) async fn publish(&self, messages: Vec<Message>) -> Vec<Published> {
        let count = messages.len();
        let all = |published: fn() -> Published| (0..count).map(|_| published()).collect();
        let mut open = self.open.lock().await;
        let known = open.take().filter(|(connection, _)| connection.status().connected());
        if known.as_ref().is_some_and(|(connection, _)| connection.status().blocked()) {
            // The server reads nothing of it for want of memory or disk. A new one would fare no better.
            *open = known;
            return all(|| Published::Refused(BrokerError::Capacity));
        }
        let (connection, channel) = match self.usable(known).await {
            Ok(usable) => usable,
            // Nothing was sent, but whoever is not reached now would not be asked again sooner for that.
            Err(Problem::Lost(_)) => return all(|| Published::Unknown),
            Err(problem) => {
                let why = BrokerError::from(problem).to_string();
                return (0..count).map(|_| Published::Refused(BrokerError::Fatal(why.clone()))).collect();
            }
        };
        let queues: Vec<String> = messages.iter().map(|message| message.queue.clone()).collect();
        let sending = self.send(&channel, messages);
        let outcomes = tokio::time::timeout(CONFIRM_PATIENCE, sending).await.unwrap_or_default();
        let whole = outcomes.len() == count && outcomes.iter().all(|outcome| outcome.confirmed.is_some());
        // What is still on its way over this channel must not meet the next batch. A blocked connection is
        // kept: it cannot even be closed.
        let keep = whole || connection.status().blocked();
        *open = keep.then_some((connection, whole.then_some(channel)));
        if outcomes.len() < count {
            return all(|| Published::Unknown);
        }
        answers(&outcomes, &queues)
    }

    async fn usable(
        &self,
        known: Option<(Connection, Option<Channel>)>,
    ) -> Result<(Connection, Channel), Problem> {
        let (connection, channel) = match known {
            Some(known) => known,
            None => (self.place.connect("mapae: pointers").await?, None),
        };
        let channel = match channel.filter(|channel| channel.status().connected()) {
            Some(channel) => channel,
            None => {
                let channel = connection.create_channel().await.map_err(Problem::of)?;
                channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(Problem::of)?;
                channel
            }
        };
        Ok((connection, channel))
    }

    /// Sends all, then waits for all confirms.
    async fn send(&self, channel: &Channel, messages: Vec<Message>) -> Vec<Outcome> {
        let mut confirms = Vec::with_capacity(messages.len());
        for message in messages {
            let id = self.ids.fetch_add(1, Ordering::Relaxed).to_string();
            let mut headers = FieldTable::default();
            for (name, value) in message.headers {
                headers.insert(name.into(), AMQPValue::LongString(value.into()));
            }
            let properties = BasicProperties::default()
                .with_delivery_mode(PERSISTENT)
                .with_message_id(id.as_str().into())
                .with_headers(headers);
            let options = BasicPublishOptions { mandatory: true, immediate: false };
            let queue = message.queue.into();
            let sent = channel.basic_publish("".into(), queue, options, &message.body, properties).await;
            confirms.push((id, sent));
        }
        let mut outcomes = Vec::with_capacity(confirms.len());
        for (id, sent) in confirms {
            let confirmation = match sent {
                Ok(confirm) => confirm.await.ok(),
                Err(_) => None,
            };
            outcomes.push(match confirmation {
                Some(Confirmation::Ack(returned)) => {
                    Outcome { id, confirmed: Some(true), returned: id_of(returned) }
                }
                Some(Confirmation::Nack(returned)) => {
                    Outcome { id, confirmed: Some(false), returned: id_of(returned) }
                }
                Some(Confirmation::NotRequested) | None => Outcome { id, confirmed: None, returned: None },
            });
        }
        outcomes
    }
}

fn id_of(returned: Option<lapin::message::BasicReturnMessage>) -> Option<String> {
    let returned = returned?;
    returned.properties.message_id().as_ref().map(ToString::to_string)
}

fn answers(outcomes: &[Outcome], queues: &[String]) -> Vec<Published> {
    let returned: HashSet<&str> = outcomes.iter().filter_map(|outcome| outcome.returned.as_deref()).collect();
    let answer = |(outcome, queue): (&Outcome, &String)| match outcome.confirmed {
        _ if returned.contains(outcome.id.as_str()) => {
            Published::Refused(BrokerError::Topology(format!("there is no queue {queue}")))
        }
        Some(true) => Published::Accepted,
        // Full, by a length that somebody has set.
        Some(false) => Published::Refused(BrokerError::Capacity),
        None => Published::Unknown,
    };
    outcomes.iter().zip(queues).map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(id: &str, confirmed: Option<bool>, returned: Option<&str>) -> (Outcome, String) {
        (Outcome { id: id.into(), confirmed, returned: returned.map(Into::into) }, format!("q{id}"))
    }

    #[test]
    fn a_returned_message_is_refused_whichever_confirm_it_came_with() {
        let (outcomes, queues): (Vec<_>, Vec<_>) = [
            told("1", Some(true), Some("3")),
            told("2", Some(true), None),
            told("3", Some(true), None),
            told("4", None, Some("99")),
            told("5", Some(false), None),
        ]
        .into_iter()
        .unzip();
        let answers = answers(&outcomes, &queues);
        assert!(
            matches!(
                &answers[..],
                [
                    Published::Accepted,
                    Published::Accepted,
                    Published::Refused(BrokerError::Topology(_)),
                    Published::Unknown,
                    Published::Refused(BrokerError::Capacity),
                ]
            ),
            "{answers:?}"
        );
    }
}
