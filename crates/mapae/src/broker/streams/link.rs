//! A connection that is made when it is needed, and made anew after it failed.
//!
//! A reader has one of its own, because a read that waits holds up whatever is asked after it; what settles
//! and publishes shares another; what holds has a third, on the runtime of the heartbeats.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo,
    Pipeline, RedisError, ScriptInvocation, Value,
};
use tokio::sync::Mutex;

use crate::broker::contract::BrokerError;

/// The longest a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The longest an answer may take, beyond what it was asked to wait.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Where a server is, and as whom to speak to it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    info: ConnectionInfo,
}

impl Place {
    pub(super) fn parse(url: &str) -> Result<Self, BrokerError> {
        // One TLS provider in the whole program; a second call is told so and changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let info = url.into_connection_info().map_err(|_| {
            // The address may hold a password: it is not repeated.
            BrokerError::Fatal(
                "the broker's address cannot be read; it looks like valkey://user:password@host:6379/0, \
                 valkeys://… with TLS, or valkey+unix:///path/to/socket"
                    .into(),
            )
        })?;
        Ok(Self { info })
    }
}

pub(super) struct Link {
    place: Mutex<Place>,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl Link {
    pub(super) fn new(place: Place) -> Self {
        Self { place: Mutex::new(place), open: Mutex::default() }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &*open {
            return Ok(connection.clone());
        }
        let client = Client::open(self.place.lock().await.info.clone())?;
        // How long an answer may take is decided for each question: a read that waits may take longer.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_PATIENCE))
            .set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        *open = Some(connection.clone());
        Ok(connection)
    }

    /// From now on nothing is asked over the connection there was.
    pub(super) async fn drop_connection(&self) {
        self.open.lock().await.take();
    }

    /// After this error the connection may be good or not: it is not used again. Another node of a cluster
    /// may have become the one to ask.
    async fn failed(&self, error: RedisError) -> BrokerError {
        if let (Some("MOVED"), Some((host, port))) = (error.code(), error.redirect_node()) {
            let mut place = self.place.lock().await;
            let moved = match place.info.addr() {
                ConnectionAddr::Tcp(..) => Some(ConnectionAddr::Tcp(host.into(), port)),
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => Some(ConnectionAddr::TcpTls {
                    host: host.into(),
                    port,
                    insecure: *insecure,
                    tls_params: tls_params.clone(),
                }),
                _ => None,
            };
            if let Some(addr) = moved {
                place.info = place.info.clone().set_addr(addr);
            }
        }
        if !matches!(error.code(), Some("NOGROUP" | "BUSYGROUP" | "WRONGTYPE" | "OOM" | "NOSCRIPT")) {
            self.drop_connection().await;
        }
        class_of(error)
    }

    /// The answers in order, each with its own error. `Transient` where it is not known what was done.
    pub(super) async fn pipe(
        &self,
        mut pipe: Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, BrokerError> {
        pipe.ignore_errors();
        let asking = async {
            let mut connection = self.connection().await?;
            pipe.query_async(&mut connection).await
        };
        let answers: Vec<Result<Value, RedisError>> = self.within(ANSWER_PATIENCE, asking).await?;
        if let Some(Err(error)) = answers.iter().find(|answer| match answer {
            Err(error) => matches!(error.code(), Some("MOVED" | "READONLY" | "MASTERDOWN")),
            Ok(_) => false,
        }) {
            return Err(self.failed(error.clone()).await);
        }
        Ok(answers)
    }

    pub(super) async fn script<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, BrokerError> {
        let asking = async {
            let mut connection = self.connection().await?;
            script.invoke_async(&mut connection).await
        };
        self.within(ANSWER_PATIENCE, asking).await
    }

    /// Asks something that the server answers after `wait` at the latest.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        command: &redis::Cmd,
        wait: Duration,
    ) -> Result<T, BrokerError> {
        let asking = async {
            let mut connection = self.connection().await?;
            command.query_async(&mut connection).await
        };
        self.within(wait + ANSWER_PATIENCE, asking).await
    }

    async fn within<T>(
        &self,
        patience: Duration,
        asking: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, BrokerError> {
        match tokio::time::timeout(patience, asking).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(error).await),
            Err(late) => {
                self.drop_connection().await;
                Err(BrokerError::Transient(late.into()))
            }
        }
    }
}

/// What a caller can do about an error.
pub(super) fn class_of(error: RedisError) -> BrokerError {
    match error.code().unwrap_or_default() {
        "NOGROUP" | "UNBLOCKED" => BrokerError::Topology("a stream or its group is gone".into()),
        "WRONGTYPE" => BrokerError::Fatal("a key of the broker holds something else than a stream".into()),
        "OOM" | "NOREPLICAS" | "MISCONF" => BrokerError::Capacity,
        "WRONGPASS" | "NOAUTH" => {
            BrokerError::Fatal("the broker refuses this user or password: look at broker.url".into())
        }
        "NOPERM" => BrokerError::Fatal(
            "the broker's user may not do what is needed: it takes the stream commands, eval and evalsha on \
             the keys {mapae}:*"
                .into(),
        ),
        _ if error.kind() == redis::ErrorKind::AuthenticationFailed => {
            BrokerError::Fatal("the broker refuses this user or password: look at broker.url".into())
        }
        _ => BrokerError::Transient(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_read_is_refused_without_repeating_its_password() {
        for url in ["valkey://user:geheim@host:port", "valkey://", "redis:geheim"] {
            let refused = Place::parse(url).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| !why.contains("geheim")), "{url}");
        }
    }

    #[test]
    fn every_way_to_write_an_address_is_understood() {
        for url in [
            "valkey://127.0.0.1",
            "redis://127.0.0.1:6380/3",
            "valkeys://user:password@valkey.example:6379",
            "rediss://redis.example",
            "valkey+unix:///run/valkey.sock",
            "redis+unix:///run/redis.sock?db=2",
        ] {
            assert!(Place::parse(url).is_ok(), "{url}");
        }
    }
}
