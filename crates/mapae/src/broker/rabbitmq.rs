//! Queues of RabbitMQ (3.10 and later).
//!
//! | contract | here |
//! |---|---|
//! | lane | a durable queue of its own on the default exchange: a quorum queue, or classic with `?queue=classic` |
//! | `ensure` | `queue.declare`, which makes what is missing and compares the arguments of what is there |
//! | `publish` | persistent and `mandatory`; the confirm is `Accepted`, a returned message `Refused` |
//! | `next` | a consumer for each lane, whose prefetch follows the permits |
//! | `orphans` | none: a connection that ends gives its deliveries back by itself |
//! | `hold` | nothing: the server has no such thing |
//! | `settle` | `basic.ack`: at claim, so that no consumer timeout of the server ever meets a job |
//! | `hand_back` | `basic.nack` with requeue |
//! | `stats` | `queue.declare` passively: how many wait. No more can be asked for over the protocol |
//! | `sweep` | what the server's own delivery limit put aside goes back to its lane |
//! | `Park` | copied to a queue of its own, cut to the newest 10,000, and confirmed, before it is acknowledged |
//!
//! A connection, its channel, its consumers and its deliveries are one *epoch*. Whatever goes wrong with any of
//! them ends the epoch with all of it, and the next read begins a new one: the client's own recovery, which
//! numbers the deliveries of a new channel like those of the old one, is off. An acknowledgement is bound to the
//! epoch of its delivery and cannot meet another's.
//!
//! Reading, publishing and asking have a connection each. A server short of memory or disk blocks connections
//! that publish; the others go on.

mod demand;
mod intake;
mod link;
mod publish;
mod session;
mod sweep;
mod topology;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use self::link::{Link, Place};
use self::publish::Publisher;
use self::topology::{Names, Sort};
use super::contract::{
    Broker, BrokerError, BrokerStats, Caps, Concern, Figure, Intake, IntakePlan, Pointer, Published,
    Settling, Source,
};
use super::heal::{self, Places};
use super::{BrokerPlan, address};
use crate::job::name::Lane;

struct Rabbit {
    name: &'static str,
    place: Place,
    names: Names,
    link: Link,
    publisher: Arc<Publisher>,
}

pub(super) fn open(plan: &BrokerPlan) -> Result<Arc<dyn Broker>, BrokerError> {
    let (url, [prefix, queue]) = address::apart(&plan.url, ["prefix", "queue"]);
    let sort = match queue.as_deref() {
        None | Some("quorum") => Sort::Quorum,
        Some("classic") => Sort::Classic,
        Some(_) => {
            let what = "queue in the broker's address is `quorum` (the default) or `classic`";
            return Err(BrokerError::Fatal(what.into()));
        }
    };
    let names = Names { prefix: address::prefix(prefix)?, sort };
    let place = Place::parse(&url)?;
    let name = if plan.url.starts_with("amqps") { "amqps" } else { "amqp" };
    let link = Link::new(place.clone(), "mapae: questions");
    let publisher = Arc::new(Publisher::new(place.clone()));
    Ok(Arc::new(Rabbit { name, names, link, publisher, place }))
}

#[async_trait]
impl Places for Rabbit {
    async fn try_publish(&self, pointers: &[&(Lane, Pointer)]) -> Vec<Published> {
        let message = |(lane, pointer): &&(Lane, Pointer)| publish::Message {
            queue: self.names.of(lane),
            body: pointer.encode(),
            headers: Vec::new(),
        };
        self.publisher.publish(pointers.iter().map(message).collect()).await
    }
}

#[async_trait]
impl Broker for Rabbit {
    fn name(&self) -> &'static str {
        self.name
    }

    fn caps(&self) -> Caps {
        Caps { source: Source::Pointers, settling: Settling::AtClaim, holds: false }
    }

    async fn ensure(&self, lanes: &[Lane]) -> Result<(), BrokerError> {
        topology::ensure(&self.link, &self.names, lanes).await
    }

    async fn publish(&self, pointers: &[(Lane, Pointer)]) -> Vec<Published> {
        heal::publish(self, pointers).await
    }

    async fn open(&self, plan: &IntakePlan) -> Result<Arc<dyn Intake>, BrokerError> {
        let publisher = self.publisher.clone();
        Ok(Arc::new(intake::Reader::new(self.place.clone(), self.names.clone(), publisher, plan)))
    }

    async fn check(&self) -> Result<Vec<Concern>, BrokerError> {
        let parked = topology::depth(&self.link, &self.names.parked()).await?.unwrap_or(0);
        let concern = Concern {
            what: format!("{parked} messages that are no pointers of ours lie in {}", self.names.parked()),
            help: "look at who publishes to mapae's queues, then purge that queue".into(),
        };
        Ok(if parked > 0 { vec![concern] } else { Vec::new() })
    }

    async fn stats(&self, lane: &Lane) -> Result<BrokerStats, BrokerError> {
        let depth = topology::depth(&self.link, &self.names.of(lane)).await?;
        let as_of = Instant::now();
        let depth = depth.map(|value| Figure { value, exact: true, as_of });
        Ok(BrokerStats { depth, ..BrokerStats::default() })
    }

    async fn sweep(&self, max: usize) -> Result<usize, BrokerError> {
        sweep::sweep(&self.link, &self.publisher, &self.names, max).await
    }
}
