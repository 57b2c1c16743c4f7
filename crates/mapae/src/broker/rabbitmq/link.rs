//! A connection with one channel, made when it is needed and made anew after it failed; and what can be done
//! about an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Channel, Connection, ConnectionProperties, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::broker::contract::BrokerError;

/// The longest a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Seconds between two signs of life; without one for twice as long a connection is given up.
const HEARTBEAT: u16 = 10;

/// The largest frame in bytes. The client keeps room for 32 of them in both directions, and a pointer is small.
const FRAME_MAX: u32 = 16 * 1024;

/// Where a server is, and as whom to speak to it. Holds a password: never shown.
#[derive(Clone)]
pub(super) struct Place {
    uri: AMQPUri,
    /// The last greeting was not answered in time.
    mute: Arc<AtomicBool>,
}

impl Place {
    pub(super) fn parse(url: &str) -> Result<Self, BrokerError> {
        // One TLS provider in the whole program; a second call is told so and changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The address may hold a password: it is not repeated.
        let unreadable = || {
            BrokerError::Fatal(
                "the broker's address cannot be read; it looks like amqp://user:password@host:5672/vhost, or \
                 amqps://… with TLS; without a vhost it is /, which is written %2f"
                    .into(),
            )
        };
        let mut uri: AMQPUri = url.parse().map_err(|_| unreadable())?;
        let authority = url.split_once("://").map(|(_, rest)| rest).ok_or_else(unreadable)?;
        let authority = authority.split(['/', '?']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        if host.is_empty() || host.starts_with(':') {
            return Err(unreadable());
        }
        // The parser takes an IPv6 address for no host at all, and that for this machine.
        if let Some((address, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            uri.authority.host = address.to_owned();
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        uri.query.frame_max.get_or_insert(FRAME_MAX);
        Ok(Self { uri, mute: Arc::default() })
    }

    /// A new connection, which the server lists under this name.
    pub(super) async fn connect(&self, name: &str) -> Result<Connection, Problem> {
        // The client does not give a greeting up: a thread of it waits on for a server that is frozen. One may.
        if self.mute.load(Ordering::Relaxed) {
            let asked = tokio::time::timeout(CONNECT_PATIENCE, self.greet()).await;
            asked.map_err(|late| Problem::Lost(late.into()))?.map_err(|error| Problem::Lost(error.into()))?;
        }
        let options = ConnectionProperties::default().with_connection_name(name.into());
        let connecting = Connection::connect_uri(self.uri.clone(), options);
        let connected = tokio::time::timeout(CONNECT_PATIENCE, connecting).await;
        self.mute.store(connected.is_err(), Ordering::Relaxed);
        match connected {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(self.refusal(Problem::of(error))),
            Err(late) => Err(Problem::Lost(late.into())),
        }
    }

    /// The server answers a greeting. Over TLS no more is known than that somebody takes the connection.
    async fn greet(&self) -> std::io::Result<()> {
        let authority = &self.uri.authority;
        let mut stream = TcpStream::connect((authority.host.as_str(), authority.port)).await?;
        if self.uri.scheme == AMQPScheme::AMQP {
            stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
            stream.read_u8().await?;
        }
        Ok(())
    }

    /// What a server means that ends a connection before it is open.
    fn refusal(&self, problem: Problem) -> Problem {
        match problem {
            Problem::Denied(_) => {
                Problem::Wrong("the broker refuses this user or password: look at broker.url".into())
            }
            Problem::Forbidden(why) => Problem::Wrong(format!(
                "the broker does not open the virtual host {:?} to this user: look at broker.url ({why})",
                self.uri.vhost
            )),
            Problem::Lost(error) if self.uri.scheme == AMQPScheme::AMQPS && bad_certificate(&*error) => {
                Problem::Wrong(format!("the broker's certificate is not accepted: {error}"))
            }
            problem => problem,
        }
    }
}

/// A server that proves to be another is nothing to try again.
fn bad_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .any(|error| error.to_string().contains("invalid peer certificate"))
}

/// What has gone wrong, by what can be done about it.
#[derive(Debug)]
pub(super) enum Problem {
    /// The connection is of no use any more, and what was asked may or may not have been done.
    Lost(Box<dyn std::error::Error + Send + Sync>),
    /// There is no such queue.
    Missing(String),
    /// The queue is there and has other arguments.
    Differs(String),
    /// The user may not do that.
    Denied(String),
    /// The server does not allow it to anybody, or not here.
    Forbidden(String),
    /// A person has to change something.
    Wrong(String),
}

impl Problem {
    pub(super) fn of(error: lapin::Error) -> Self {
        let ErrorKind::ProtocolError(told) = error.kind() else { return Self::Lost(error.into()) };
        // The server's own words name queues, arguments and users, never what a message holds.
        let why = || told.get_message().to_string();
        match told.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Self::Missing(why()),
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if why().contains("inequivalent arg") => {
                Self::Differs(why())
            }
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => Self::Denied(why()),
            AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED) => Self::Wrong(why()),
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => Self::Forbidden(why()),
            _ => Self::Lost(error.into()),
        }
    }
}

impl From<Problem> for BrokerError {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Lost(error) => Self::Transient(error),
            Problem::Missing(why) | Problem::Differs(why) => Self::Topology(why),
            Problem::Denied(why) => {
                Self::Fatal(format!("the broker's user may not do what is needed: {why}"))
            }
            Problem::Forbidden(why) | Problem::Wrong(why) => Self::Fatal(why),
        }
    }
}

/// One question at a time.
pub(super) struct Link {
    place: Place,
    name: &'static str,
    open: Mutex<Option<(Connection, Option<Channel>)>>,
}

impl Link {
    /// The longest an answer may take.
    pub(super) const PATIENCE: Duration = Duration::from_secs(5);

    pub(super) fn new(place: Place, name: &'static str) -> Self {
        Self { place, name, open: Mutex::default() }
    }

    /// Asks over a channel that nobody else uses meanwhile. Whatever is not an answer ends the channel; an
    /// answer that nobody waits for any more ends the connection.
    pub(super) async fn ask<T>(
        &self,
        patience: Duration,
        question: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
    ) -> Result<T, Problem> {
        let asking = async {
            let mut open = self.open.lock().await;
            let (connection, channel) =
                match open.take().filter(|(connection, _)| connection.status().connected()) {
                    Some(known) => known,
                    None => (self.place.connect(self.name).await?, None),
                };
            let channel = match channel.filter(|channel| channel.status().connected()) {
                Some(channel) => channel,
                None => connection.create_channel().await.map_err(Problem::of)?,
            };
            let answer = question(&channel).await;
            *open = Some((connection, answer.is_ok().then_some(channel)));
            answer.map_err(Problem::of)
        };
        match tokio::time::timeout(patience, asking).await {
            Ok(answer) => answer,
            Err(late) => Err(Problem::Lost(late.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_read_is_refused_without_repeating_its_password() {
        for url in [
            "amqp://user:geheim@host:port",
            "amqp://",
            "amqp:geheim",
            "amqp://u:geheim@:5672",
            "http://geheim",
        ] {
            let refused = Place::parse(url).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| !why.contains("geheim")), "{url}");
        }
    }

    #[test]
    fn every_way_to_write_an_address_is_understood() {
        let read = |url| {
            let uri = Place::parse(url).unwrap().uri;
            (uri.authority.host, uri.authority.port, uri.vhost)
        };
        assert_eq!(read("amqp://127.0.0.1"), ("127.0.0.1".into(), 5672, "/".into()));
        assert_eq!(read("amqps://u:p@mq.example/jobs"), ("mq.example".into(), 5671, "jobs".into()));
        assert_eq!(read("amqp://u:p@[::1]:7/%2f?heartbeat=5"), ("::1".into(), 7, "/".into()));
        assert_eq!(Place::parse("amqp://h?heartbeat=5").unwrap().uri.query.heartbeat, Some(5));
        assert_eq!(Place::parse("amqp://h").unwrap().uri.query.heartbeat, Some(HEARTBEAT));
    }
}
