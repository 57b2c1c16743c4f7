//! Events put into a stream of Valkey or Redis, where any number of readers take them, each in its own time.
//!
//! An entry has the fields `id`, `type` and `event`, the last with the whole CloudEvent as JSON. Old entries go once
//! there are more than [`ENTRIES_MAX`]: what a reader missed is replayed (`mapae events replay`).

use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::sync::Mutex;

use super::tell::{Courier, NotTaken, Then};
use crate::store::contract::Delivery;

/// Entries that a stream keeps, about.
pub const ENTRIES_MAX: u32 = 1_000_000;

/// The longest that connecting, and an answer, may take.
const PATIENCE: Duration = Duration::from_secs(5);

const SCHEMES: [&str; 4] = ["valkey", "valkeys", "redis", "rediss"];

/// A stream that events are put into. Not printable: the address may hold a password.
pub struct Stream {
    client: Client,
    key: String,
    base: String,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl Stream {
    /// `valkey://user:password@host:6379/STREAM`, with the database's number before the stream where it is not 0.
    /// `None` where it is no such address. `base` is as for a webhook.
    pub fn parse(url: &str, base: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (place, key) = rest.rsplit_once('/')?;
        let named = !key.is_empty() && key.len() <= 255 && key.chars().all(|c| c.is_ascii_graphic());
        if !SCHEMES.contains(&scheme) || place.is_empty() || !named || key.contains(['?', '#']) {
            return None;
        }
        // The whole program uses ring. It fails only where it has been installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::open(format!("{scheme}://{place}")).ok()?;
        let base = base.trim_end_matches('/').to_owned();
        Some(Self { client, key: key.to_owned(), base, open: Mutex::default() })
    }

    async fn put(&self, delivery: &Delivery) -> Result<(), RedisError> {
        let mut open = self.open.lock().await;
        let mut connection = match open.take() {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(PATIENCE))
                    .set_response_timeout(Some(PATIENCE));
                self.client.get_multiplexed_async_connection_with_config(&config).await?
            }
        };
        // Kept at once, so that others share it; after an error it is not used again.
        *open = Some(connection.clone());
        drop(open);
        let event = &delivery.event;
        let mut add = redis::cmd("XADD");
        add.arg(&self.key).arg("MAXLEN").arg("~").arg(ENTRIES_MAX).arg("*");
        add.arg("id").arg(event.id()).arg("type").arg(format!("mapae.job.{}", event.event.as_str()));
        add.arg("event").arg(event.cloud_event(&self.base).to_string());
        let added: Result<String, RedisError> = add.query_async(&mut connection).await;
        if added.is_err() {
            self.open.lock().await.take();
        }
        added.map(drop)
    }
}

#[async_trait]
impl Courier for Stream {
    async fn take(&self, delivery: &Delivery) -> Result<(), NotTaken> {
        // The error may name the address.
        self.put(delivery).await.map_err(|error| {
            let code = match error.code() {
                Some(_) => "receiver-refused",
                None if error.is_timeout() => "receiver-silent",
                None => "receiver-unreachable",
            };
            NotTaken { code: code.into(), then: Then::Again }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_address_names_the_stream() {
        for url in ["valkey://mq/events", "redis://u:p@mq:6380/3/mapae:events", "valkeys://[::1]:1/e"] {
            assert!(Stream::parse(url, "").is_some(), "{url}");
        }
        assert_eq!(Stream::parse("redis://mq/3/e", "").unwrap().key, "e");
        for url in ["valkey://mq", "valkey://mq/", "valkey:///e", "amqp://mq/e", "valkey://mq/a b", "mq/e"] {
            assert!(Stream::parse(url, "").is_none(), "{url}");
        }
    }
}
