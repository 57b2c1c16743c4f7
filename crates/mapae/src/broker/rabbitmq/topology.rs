//! Which queues there are, and how they are to be.

use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use super::link::{Link, Problem};
use crate::broker::contract::BrokerError;
use crate::job::name::Lane;

/// The longest a queue takes to be made: a quorum queue elects a leader first.
const DECLARE_PATIENCE: Duration = Duration::from_secs(15);

/// How often a message may come back before a quorum queue puts it aside: never, as far as a number can say
/// so. Without one RabbitMQ 4 deletes a message on its 21st return, and a lost connection is a return. The row
/// alone counts attempts.
const DELIVERY_LIMIT: i32 = 1_000_000_000;

/// Most messages, and most bytes of them, that are kept apart for a person to look at.
const PARKED_MAX: i32 = 10_000;
const PARKED_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// The sort of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Kept by several nodes, where there are several.
    Quorum,
    /// Kept by one.
    Classic,
}

impl Sort {
    fn as_str(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Classic => "classic",
        }
    }
}

/// The names of our queues. At most 135 bytes; AMQP allows 255.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) prefix: String,
    pub(super) sort: Sort,
}

impl Names {
    pub(super) fn of(&self, lane: &Lane) -> String {
        format!("{}:{lane}", self.prefix)
    }

    /// No lane is called like that, nor like the next.
    pub(super) fn parked(&self) -> String {
        format!("{}::parked", self.prefix)
    }

    /// Where the server puts what came back too often for a limit that somebody set by a policy.
    pub(super) fn returned(&self) -> String {
        format!("{}::returned", self.prefix)
    }

    fn lane_arguments(&self) -> FieldTable {
        let mut table = self.sorted();
        if self.sort == Sort::Quorum {
            table.insert("x-delivery-limit".into(), AMQPValue::LongInt(DELIVERY_LIMIT));
            table.insert("x-dead-letter-exchange".into(), text(""));
            table.insert("x-dead-letter-routing-key".into(), text(&self.returned()));
            // A message leaves the lane only once it has arrived there.
            table.insert("x-dead-letter-strategy".into(), text("at-least-once"));
            table.insert("x-overflow".into(), text("reject-publish"));
        }
        table
    }

    fn parked_arguments(&self) -> FieldTable {
        let mut table = self.sorted();
        table.insert("x-max-length".into(), AMQPValue::LongInt(PARKED_MAX));
        table.insert("x-max-length-bytes".into(), AMQPValue::LongLongInt(PARKED_BYTES_MAX));
        table
    }

    /// The sort, and nothing else.
    fn sorted(&self) -> FieldTable {
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), text(self.sort.as_str()));
        table
    }
}

fn text(words: &str) -> AMQPValue {
    AMQPValue::LongString(words.into())
}

/// Makes sure of every lane's queue, and of where messages are put aside.
pub(super) async fn ensure(link: &Link, names: &Names, lanes: &[Lane]) -> Result<(), BrokerError> {
    declare(link, &names.parked(), names.parked_arguments()).await?;
    declare(link, &names.returned(), names.sorted()).await?;
    for lane in lanes {
        declare(link, &names.of(lane), names.lane_arguments()).await?;
    }
    Ok(())
}

async fn declare(link: &Link, queue: &str, arguments: FieldTable) -> Result<(), BrokerError> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let asked = link
        .ask(DECLARE_PATIENCE, async |channel| {
            channel.queue_declare(queue.into(), options, arguments.clone()).await
        })
        .await;
    match asked {
        Ok(_) => Ok(()),
        // A user that may not make queues may still find them made.
        Err(Problem::Denied(why)) => match depth(link, queue).await? {
            Some(_) => Ok(()),
            None => Err(Problem::Denied(why).into()),
        },
        Err(Problem::Differs(how)) => Err(BrokerError::Topology(format!(
            "the queue {queue} is declared otherwise than mapae does it ({how}); delete it, or give another \
             prefix or queue in broker.url"
        ))),
        Err(problem) => Err(problem.into()),
    }
}

/// How many messages wait in a queue, where it is there.
pub(super) async fn depth(link: &Link, queue: &str) -> Result<Option<u64>, BrokerError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let asked = link
        .ask(Link::PATIENCE, async |channel| {
            channel.queue_declare(queue.into(), options, FieldTable::default()).await
        })
        .await;
    match asked {
        Ok(queue) => Ok(Some(u64::from(queue.message_count()))),
        Err(Problem::Missing(_)) => Ok(None),
        Err(problem) => Err(problem.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lane_is_called_like_a_queue_for_what_was_put_aside() {
        let names = Names { prefix: "mapae".into(), sort: Sort::Quorum };
        assert_eq!(names.of(&"document.analyze:high".parse().unwrap()), "mapae:document.analyze:high");
        assert!(":parked".parse::<Lane>().is_err() && ":returned".parse::<Lane>().is_err());
    }

    #[test]
    fn the_server_never_decides_that_a_pointer_came_back_often_enough() {
        let names = Names { prefix: "mapae".into(), sort: Sort::Quorum };
        let arguments = names.lane_arguments();
        let arguments = arguments.inner();
        assert_eq!(arguments["x-delivery-limit"], AMQPValue::LongInt(DELIVERY_LIMIT), "4.0: 20 where unset");
        assert_eq!(arguments["x-dead-letter-strategy"], text("at-least-once"));
    }
}
