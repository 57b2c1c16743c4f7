//! Topics of Kafka (3.0 and later).
//!
//! | contract | here |
//! |---|---|
//! | lane | a topic of its own, with a fixed number of partitions; all are read by one group |
//! | consumer | a static member of the group under the worker's name, with cooperative rebalancing |
//! | `ensure` | topics are made where they are missing; one with too few partitions is said by its name |
//! | `publish` | `acks=all`, by the job's id; the answer is `Accepted`, a topic that is missing `Refused` |
//! | `next` | what was read ahead of the partitions that are this member's |
//! | `orphans` | none: the group gives the partitions of a member that is gone to others by itself |
//! | `hold` | nothing: a group has no such thing |
//! | `settle` | a commit of each partition up to the first message that is not settled: at claim |
//! | `hand_back` | published again, then settled |
//! | `stats` | the lag: what the group has not committed. No more can be asked for over the protocol |
//! | `Park` | copied to a topic of its own before it is settled |
//!
//! A partition has one mark in it, which a commit moves; messages cannot be settled one by one. So they are settled
//! at claim, within milliseconds: at finish, one long job would keep all that came after it unsettled. And a partition has one
//! reader: while that is busy, what lies there waits. So a worker that asks for nothing for some seconds gives its
//! partitions to others, and a job that is rung again goes to another partition than before.
//!
//! How long a pointer has waited is not asked: the time of a message is its producer's or its broker's, never the
//! database's. The lag and the rows tell it, as where a broker only counts.
//!
//! Reading, publishing and asking have a client each. The client reconnects by itself; what it cannot get over
//! ends the session, and the next read begins a new one.

mod intake;
mod link;
mod offsets;
mod place;
mod publish;
mod session;
mod shared;
mod topics;
mod voice;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use self::link::Link;
use self::place::Place;
use self::publish::{Message, Publisher};
use self::topics::{Names, Shape};
use super::contract::{
    Broker, BrokerError, BrokerStats, Caps, Concern, Figure, Intake, IntakePlan, Pointer, Published,
    Settling, Source,
};
use super::heal::{self, Places};
use super::{BrokerPlan, address};
use crate::job::name::Lane;

/// Partitions of a lane, where the address does not say.
const PARTITIONS: i32 = 12;

/// For how long a cluster keeps a pointer, where the address does not say, in hours. One that nobody has read by
/// then is rung again.
const RETENTION_HOURS: i32 = 168;

struct Kafka {
    name: &'static str,
    place: Place,
    names: Names,
    shape: Shape,
    link: Link,
    publisher: Arc<Publisher>,
}

pub(super) fn open(plan: &BrokerPlan) -> Result<Arc<dyn Broker>, BrokerError> {
    let ours = ["prefix", "partitions", "replicas", "retention_hours", "sasl"];
    let (url, [prefix, partitions, replicas, retention_hours, sasl]) = address::apart(&plan.url, ours);
    let prefix = address::prefix(prefix)?;
    if prefix.contains('.') {
        return Err(BrokerError::Fatal(
            "with Kafka the prefix in the broker's address has no dots: they stand between the parts of a topic's name".into(),
        ));
    }
    let shape = Shape {
        partitions: number("partitions", partitions.as_deref(), 1, 1_000)?.unwrap_or(PARTITIONS),
        replicas: number("replicas", replicas.as_deref(), 1, 100)?,
        retention: Duration::from_secs(
            3600 * number("retention_hours", retention_hours.as_deref(), 1, 87_600)?
                .unwrap_or(RETENTION_HOURS) as u64,
        ),
    };
    let names = Names { prefix };
    let place = Place::parse(&url, sasl.as_deref())?;
    let name = if plan.url.starts_with("kafkas") { "kafkas" } else { "kafka" };
    let link = Link::new(place.clone(), names.group());
    let publisher = Arc::new(Publisher::new(place.clone()));
    Ok(Arc::new(Kafka { name, place, names, shape, link, publisher }))
}

fn number(name: &str, given: Option<&str>, min: i32, max: i32) -> Result<Option<i32>, BrokerError> {
    let Some(given) = given else { return Ok(None) };
    match given.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
        _ => {
            Err(BrokerError::Fatal(format!("{name} in the broker's address is a number from {min} to {max}")))
        }
    }
}

#[async_trait]
impl Places for Kafka {
    async fn try_publish(&self, pointers: &[&(Lane, Pointer)]) -> Vec<Published> {
        let message = |(lane, pointer): &&(Lane, Pointer)| Message::pointer(self.names.of(lane), pointer);
        let messages: Vec<Message> = pointers.iter().map(message).collect();
        self.publisher.publish(&messages).await
    }
}

#[async_trait]
impl Broker for Kafka {
    fn name(&self) -> &'static str {
        self.name
    }

    fn caps(&self) -> Caps {
        Caps { source: Source::Pointers, settling: Settling::AtClaim, holds: false }
    }

    async fn ensure(&self, lanes: &[Lane]) -> Result<(), BrokerError> {
        topics::ensure(&self.place, &self.link, &self.names, &self.shape, lanes).await
    }

    async fn publish(&self, pointers: &[(Lane, Pointer)]) -> Vec<Published> {
        heal::publish(self, pointers).await
    }

    async fn open(&self, plan: &IntakePlan) -> Result<Arc<dyn Intake>, BrokerError> {
        let (place, link, names) = (self.place.clone(), self.link.clone(), self.names.clone());
        Ok(Arc::new(intake::Reader::new(place, link, names, self.publisher.clone(), plan)))
    }

    async fn check(&self) -> Result<Vec<Concern>, BrokerError> {
        topics::concerns(&self.link, &self.names).await
    }

    async fn stats(&self, lane: &Lane) -> Result<BrokerStats, BrokerError> {
        let depth = topics::unread(&self.link, self.names.of(lane), true).await?;
        let as_of = Instant::now();
        let depth = depth.map(|value| Figure { value, exact: true, as_of });
        Ok(BrokerStats { depth, ..BrokerStats::default() })
    }
}
