//! Which brokers there are, and how to open one.
//!
//! Adding one is a file beside `embedded.rs` and a row in [`BROKERS`].

#[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "streams"))]
mod address;
pub mod contract;
mod embedded;
#[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "streams"))]
mod heal;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "streams")]
mod streams;

use std::sync::Arc;

use self::contract::{Broker, BrokerError};

/// What opening a broker needs to know.
#[derive(Clone, Debug)]
pub struct BrokerPlan {
    /// `embedded:`, `valkey://…`, `amqp://…`, `kafka://…`.
    pub url: String,
    /// Where the rows are: the embedded broker wakes other processes through it.
    pub database_url: String,
}

/// A broker this program can speak to.
pub struct Entry {
    pub schemes: &'static [&'static str],
    pub about: &'static str,
    open: fn(&BrokerPlan) -> Result<Arc<dyn Broker>, BrokerError>,
}

/// Every broker there is. The conformance suite, the help text and the documents read this list.
pub const BROKERS: &[Entry] = &[
    Entry {
        schemes: &["embedded"],
        about: "no broker: due rows are claimed from the database itself",
        open: embedded::open,
    },
    #[cfg(feature = "streams")]
    Entry {
        schemes: &["valkey", "valkeys", "valkey+unix", "redis", "rediss", "redis+unix"],
        about: "streams of Valkey or Redis 7.0 and later",
        open: streams::open,
    },
    #[cfg(feature = "rabbitmq")]
    Entry { schemes: &["amqp", "amqps"], about: "queues of RabbitMQ 3.10 and later", open: rabbitmq::open },
    #[cfg(feature = "kafka")]
    Entry { schemes: &["kafka", "kafkas"], about: "topics of Kafka 3.0 and later", open: kafka::open },
];

/// The broker of that address. Nothing has been connected to yet.
pub fn open(plan: &BrokerPlan) -> Result<Arc<dyn Broker>, BrokerError> {
    let scheme = plan.url.split(':').next().unwrap_or_default();
    let Some(entry) = BROKERS.iter().find(|entry| entry.schemes.contains(&scheme)) else {
        let known: Vec<&str> = BROKERS.iter().flat_map(|entry| entry.schemes).copied().collect();
        return Err(BrokerError::Fatal(format!(
            "no broker is known for this address; known are: {}",
            known.join(", ")
        )));
    };
    (entry.open)(plan)
}
