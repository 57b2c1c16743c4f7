//! The brokers that a site may have, and what is left in one when all is over.
//!
//! It is looked at past the code under test, with the server's own words.

mod queues;
mod streams;
mod topics;

use std::time::Duration;

use mapae::job::name::{Class, Kind, Lane};

use crate::trouble::{Outcome, Trouble};
use crate::wait::until;
use crate::{client, subject};

/// The longest that one question to a broker may take.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broker {
    Embedded,
    Valkey,
    Redis,
    RabbitMq,
    Kafka,
}

impl Broker {
    pub(crate) const ALL: [Self; 5] =
        [Self::Embedded, Self::Valkey, Self::Redis, Self::RabbitMq, Self::Kafka];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Valkey => "valkey",
            Self::Redis => "redis",
            Self::RabbitMq => "rabbitmq",
            Self::Kafka => "kafka",
        }
    }

    /// Where its server is told, if it has one.
    pub(crate) fn variable(self) -> Option<&'static str> {
        match self {
            Self::Embedded => None,
            Self::Valkey => Some("MAPAE_TEST_VALKEY"),
            Self::Redis => Some("MAPAE_TEST_REDIS"),
            Self::RabbitMq => Some("MAPAE_TEST_RABBITMQ"),
            Self::Kafka => Some("MAPAE_TEST_KAFKA"),
        }
    }

    /// It delivers pointers.
    pub(crate) fn delivers(self) -> bool {
        self != Self::Embedded
    }

    /// What a reader left stays with the server until another asks for it.
    pub(crate) fn is_taken_over(self) -> bool {
        matches!(self, Self::Valkey | Self::Redis)
    }
}

/// A part of a broker that is one site's own.
pub(crate) struct Corner {
    broker: Broker,
    /// The server, without what the tests are told besides.
    server: String,
    prefix: String,
}

impl Corner {
    pub(crate) fn new(broker: Broker, prefix: &str) -> Outcome<Self> {
        let server = match broker.variable() {
            None => "embedded:".to_owned(),
            Some(variable) => {
                let told = std::env::var(variable);
                let told = told.map_err(|_| Trouble::Site(format!("{variable} is not set")))?;
                told.split('#').next().unwrap_or_default().to_owned()
            }
        };
        Ok(Self { broker, server, prefix: prefix.to_owned() })
    }

    /// What `broker.url` is.
    pub(crate) fn url(&self) -> String {
        match self.broker {
            Broker::Embedded => self.server.clone(),
            // More than workers in any scene, and few enough that one server bears them all.
            Broker::Kafka => format!("{}?prefix={}&partitions=3", self.server, self.prefix),
            _ => format!("{}?prefix={}", self.server, self.prefix),
        }
    }

    /// What `rescan.after` is. With a broker longer than anybody waits: a pointer that a reader left has to come
    /// back by the broker alone.
    pub(crate) fn rescan(&self) -> Duration {
        Duration::from_secs(if self.broker.delivers() { 3_600 } else { 2 })
    }

    /// What of ours is in it, in words.
    pub(crate) async fn left(&self) -> Outcome<Vec<String>> {
        insisted(async || match self.broker {
            Broker::Embedded => Ok(Vec::new()),
            Broker::Valkey | Broker::Redis => streams::left(&self.server, &self.prefix).await,
            Broker::RabbitMq => queues::left(&self.server, &self.queues()).await,
            Broker::Kafka => topics::left(&self.server, &self.prefix).await,
        })
        .await
    }

    /// Returns once the server knows that all readers are gone: what they had comes back to it.
    pub(crate) async fn left_alone(&self) -> Outcome<()> {
        if self.broker != Broker::RabbitMq {
            return Ok(());
        }
        let alone =
            until(PATIENCE, async || matches!(queues::readers(&self.server, &self.queues()).await, Ok(0)));
        match alone.await {
            true => Ok(()),
            false => Err(Trouble::Site("RabbitMQ does not see that its readers are gone".into())),
        }
    }

    /// Nothing of ours is in it any more, nor what held it.
    pub(crate) async fn clear(&self) -> Outcome<()> {
        insisted(async || match self.broker {
            Broker::Embedded => Ok(()),
            Broker::Valkey | Broker::Redis => streams::clear(&self.server, &self.prefix).await,
            Broker::RabbitMq => queues::clear(&self.server, &self.queues()).await,
            Broker::Kafka => topics::clear(&self.server, &self.prefix).await,
        })
        .await
    }

    /// A server tells nobody over AMQP which queues it has.
    fn queues(&self) -> Vec<String> {
        let mut queues = vec![format!("{}::parked", self.prefix), format!("{}::returned", self.prefix)];
        for kind in [client::KIND, subject::KIND] {
            let kind = Kind::new(kind).expect("it is a name");
            queues.extend(
                Class::ALL.map(|class| format!("{}:{}", self.prefix, Lane { kind: kind.clone(), class })),
            );
        }
        queues
    }
}

/// Asks until there is an answer: what has just been made may not be known to every part of a server.
async fn insisted<T>(mut ask: impl AsyncFnMut() -> Outcome<T>) -> Outcome<T> {
    let mut answer = Err(Trouble::Site("the broker does not answer".into()));
    let asking = until(PATIENCE, async || {
        answer = ask().await;
        answer.is_ok()
    });
    let asked = tokio::time::timeout(2 * PATIENCE, asking).await;
    if asked.is_err() { Err(Trouble::Site("the broker does not answer in time".into())) } else { answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broker_that_mapae_has_can_be_chosen() {
        for entry in mapae::broker::BROKERS {
            let chosen = |broker: &Broker| match broker {
                Broker::Embedded => entry.schemes.contains(&"embedded"),
                Broker::Valkey => entry.schemes.contains(&"valkey"),
                Broker::Redis => entry.schemes.contains(&"redis"),
                Broker::RabbitMq => entry.schemes.contains(&"amqp"),
                Broker::Kafka => entry.schemes.contains(&"kafka"),
            };
            assert!(Broker::ALL.iter().any(chosen), "{:?}: no site has it", entry.schemes);
        }
    }
}
