//! What every broker that carries pointers promises, against the real servers.

mod kafka;
mod laws;
mod moves;
mod queues;
mod rabbitmq;
mod refusals;
mod streams;
mod topics;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use mapae::broker::contract::{Broker, Delivery, Intake, IntakePlan, Pointer, Published};
use mapae::broker::{self, BrokerPlan};
use mapae::job::lease::Holder;
use mapae::job::name::{JobId, Lane};
use uuid::Uuid;

use crate::faults::line::Line;
use crate::site::{PATIENCE, owner};

/// A server with a corner of its own for one test, and a hand on it that mapae does not have.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// The address of the corner.
    pub(crate) url: String,
    hand: Hand,
}

enum Hand {
    Streams(streams::Hand),
    Queues(rabbitmq::Hand),
    Topics(kafka::Hand),
}

/// The servers, and the variables that say where each is.
const KNOWN: [(&str, &str); 4] = [
    ("valkey", "MAPAE_TEST_VALKEY"),
    ("redis", "MAPAE_TEST_REDIS"),
    ("rabbitmq", "MAPAE_TEST_RABBITMQ"),
    ("kafka", "MAPAE_TEST_KAFKA"),
];

/// Every server that this run tests, each with an empty corner.
pub(crate) fn servers() -> Vec<Server> {
    let mut servers = Vec::new();
    for (name, variable) in KNOWN {
        let Ok(address) = std::env::var(variable) else {
            assert!(
                std::env::var_os("MAPAE_TEST_EMBEDDED").is_some(),
                "no {name}: run `cargo xtask test`, or set MAPAE_TEST_EMBEDDED=1"
            );
            continue;
        };
        let prefix = Uuid::new_v4().simple().to_string();
        let mut url = format!("{address}?prefix={prefix}");
        let hand = match name {
            "rabbitmq" => Hand::Queues(rabbitmq::Hand::new(&address, prefix)),
            "kafka" => {
                let address = kafka::address(&address);
                url = format!("{address}?prefix={prefix}&partitions={}", kafka::PARTITIONS);
                Hand::Topics(kafka::Hand::new(address, prefix))
            }
            _ => Hand::Streams(streams::Hand::new(&address, prefix)),
        };
        servers.push(Server { name, url, hand });
    }
    servers
}

impl Server {
    pub(crate) fn broker(&self) -> Arc<dyn Broker> {
        opened(&self.url)
    }

    /// Everything this corner holds is gone.
    pub(crate) async fn wipe(&self) {
        match &self.hand {
            Hand::Streams(hand) => hand.wipe().await,
            Hand::Queues(hand) => hand.wipe().await,
            Hand::Topics(hand) => hand.wipe().await,
        }
    }

    /// Its lanes, where each is one row of messages.
    fn in_order(&self) -> Arc<dyn Broker> {
        match self.hand {
            Hand::Topics(_) => {
                let many = format!("partitions={}", kafka::PARTITIONS);
                opened(&self.url.replace(&many, "partitions=1"))
            }
            Hand::Streams(_) | Hand::Queues(_) => self.broker(),
        }
    }

    /// Whether its depth is what has not been read. Else it is what has not been settled.
    fn counts_unread(&self) -> bool {
        !matches!(self.hand, Hand::Topics(_))
    }

    /// The server over a line that can be cut.
    async fn over_a_line(&self) -> Line {
        if let Hand::Topics(hand) = &self.hand {
            let (server, listener) = kafka::line();
            return Line::from(listener, &server, &hand.servers, &self.url).await;
        }
        let authority = self.url.split_once("://").unwrap().1.split(['/', '?']).next().unwrap();
        Line::instead_of(authority.rsplit('@').next().unwrap(), &self.url).await
    }

    /// All that the lane holds, and what holds it, is gone.
    async fn lose(&self, lane: &Lane) {
        match &self.hand {
            Hand::Streams(hand) => hand.lose(lane).await,
            Hand::Queues(hand) => hand.lose(lane).await,
            Hand::Topics(hand) => hand.lose(lane).await,
        }
    }
}

fn opened(url: &str) -> Arc<dyn Broker> {
    broker::open(&BrokerPlan { url: url.into(), database_url: String::new() }).unwrap()
}

fn lanes(kinds: &[&str]) -> Vec<Lane> {
    kinds.iter().map(|kind| kind.parse().unwrap()).collect()
}

fn pointer(lane: &Lane) -> (Lane, Pointer) {
    (lane.clone(), Pointer::new(JobId::new(), owner(), lane.kind.clone(), 1, None))
}

fn reader(lanes: &[Lane], consumer: &Holder, take_over_idle: Duration) -> IntakePlan {
    IntakePlan { lanes: lanes.to_vec(), consumer: consumer.clone(), take_over_idle }
}

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

async fn publish(broker: &dyn Broker, lane: &Lane, count: usize) -> Vec<JobId> {
    let pointers: Vec<(Lane, Pointer)> = (0..count).map(|_| pointer(lane)).collect();
    let answers = broker.publish(&pointers).await;
    assert!(answers.iter().all(|answer| matches!(answer, Published::Accepted)), "{answers:?}");
    pointers.into_iter().map(|(_, pointer)| pointer.job).collect()
}

fn job(delivery: &Delivery) -> JobId {
    delivery.pointer.as_ref().unwrap().job
}

/// Reads until so many have come.
async fn read(intake: &dyn Intake, count: usize) -> Vec<Delivery> {
    let deadline = Instant::now() + PATIENCE;
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        assert!(Instant::now() < deadline, "only {} of {count} came", deliveries.len());
        deliveries.extend(intake.next(count - deliveries.len(), &[], Duration::from_secs(1)).await.unwrap());
    }
    deliveries
}

async fn orphans(intake: &dyn Intake, count: usize) -> Vec<Delivery> {
    let deadline = Instant::now() + PATIENCE;
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        assert!(Instant::now() < deadline, "only {} of {count} orphans came", deliveries.len());
        deliveries.extend(intake.orphans(count - deliveries.len()).await.unwrap());
    }
    deliveries
}
