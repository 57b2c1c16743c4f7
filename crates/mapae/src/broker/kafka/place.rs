//! Where a cluster is, as whom to speak to it, and how its clients are set up.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::broker::contract::BrokerError;

/// The longest a request may take before its connection is given up.
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(6);

/// The longest the cluster waits for news of a reader before its partitions are another's: the least that a
/// cluster with its own defaults allows (`group.min.session.timeout.ms`).
const SESSION: Duration = Duration::from_secs(6);

/// How often a reader says that it is there, and so how soon it learns of a rebalance.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The longest a fetch waits on the cluster for a message to come.
const FETCH_WAIT: Duration = Duration::from_millis(500);

/// How often a reader's client tells its figures, by which it is seen whether the cluster answers.
const FIGURES: Duration = Duration::from_secs(3);

/// Messages, and kilobytes of them, that the client fetches ahead of what it hands over.
const FETCHED_AHEAD: &str = "500";
const FETCHED_KILOBYTES: &str = "4096";

/// How a user proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sasl {
    Plain,
    Scram256,
    Scram512,
}

impl Sasl {
    fn parse(text: &str) -> Option<Self> {
        // Kafka's own documents write them in capitals.
        match text.to_ascii_lowercase().as_str() {
            "plain" => Some(Self::Plain),
            "scram-sha-256" => Some(Self::Scram256),
            "scram-sha-512" => Some(Self::Scram512),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram256 => "SCRAM-SHA-256",
            Self::Scram512 => "SCRAM-SHA-512",
        }
    }
}

/// Holds a password: never shown.
#[derive(Clone)]
pub(super) struct Place {
    servers: String,
    tls: bool,
    user: Option<(String, String, Sasl)>,
}

impl Place {
    /// `sasl` is the parameter of that name.
    pub(super) fn parse(url: &str, sasl: Option<&str>) -> Result<Self, BrokerError> {
        // The address may hold a password: it is not repeated.
        let unreadable = || {
            BrokerError::Fatal(
                "the broker's address cannot be read; it looks like kafka://host:9092,other:9092 or \
                 kafka://user:password@host:9092, or kafkas://… with TLS"
                    .into(),
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(unreadable)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', ' ']) {
            return Err(unreadable());
        }
        let (user, servers) = match rest.rsplit_once('@') {
            Some((user, servers)) => (Some(user), servers),
            None => (None, rest),
        };
        let servers: Option<Vec<String>> = servers.split(',').map(server).collect();
        let servers = servers.ok_or_else(unreadable)?.join(",");
        let sasl = sasl.map(|text| Sasl::parse(text).ok_or_else(unknown_sasl)).transpose()?;
        let user = match user {
            None if sasl.is_some() => {
                return Err(BrokerError::Fatal(
                    "sasl in the broker's address needs a user and a password".into(),
                ));
            }
            None => None,
            Some(user) => {
                let (name, password) = user.split_once(':').ok_or_else(unreadable)?;
                let decoded = (decoded(name), decoded(password));
                let (Some(name), Some(password)) = decoded else { return Err(unreadable()) };
                Some((name, password, sasl.unwrap_or(Sasl::Plain)))
            }
        };
        let place = Self { servers, tls: scheme == "kafkas", user };
        place.can_be_spoken_to(&built_in())?;
        Ok(place)
    }

    /// The client has what this needs: TLS and SCRAM come with OpenSSL, which a build may be without.
    fn can_be_spoken_to(&self, built_in: &str) -> Result<(), BrokerError> {
        let has = |feature: &str| built_in.split(',').any(|known| known == feature);
        let scram = self.user.as_ref().is_some_and(|(_, _, sasl)| *sasl != Sasl::Plain);
        let lacks = match () {
            () if self.tls && !has("ssl") => "kafkas:// (TLS)",
            () if scram && !has("sasl_scram") => "SASL with SCRAM",
            () => return Ok(()),
        };
        Err(BrokerError::Fatal(format!(
            "this build of mapae cannot speak {lacks} to Kafka: build it with the feature kafka-tls, which needs \
             OpenSSL"
        )))
    }

    /// What all clients have in common. `id` is the name under which the cluster lists it.
    fn config(&self, id: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers).set("client.id", id);
        config.set(
            "security.protocol",
            match (self.tls, &self.user) {
                (false, None) => "plaintext",
                (true, None) => "ssl",
                (false, Some(_)) => "sasl_plaintext",
                (true, Some(_)) => "sasl_ssl",
            },
        );
        if let Some((name, password, sasl)) = &self.user {
            config.set("sasl.mechanism", sasl.as_str());
            config.set("sasl.username", name).set("sasl.password", password);
        }
        config.set("socket.timeout.ms", millis(REQUEST_PATIENCE));
        config.set("socket.keepalive.enable", "true").set("socket.nagle.disable", "true");
        // A topic that is missing is made with its partitions by `ensure`, and not with one by whoever asks.
        config.set("allow.auto.create.topics", "false");
        // A connection that nothing is asked of may be closed.
        config.set("log.connection.close", "false");
        config.set("reconnect.backoff.ms", "100").set("reconnect.backoff.max.ms", "5000");
        config
    }

    /// A client that publishes. Without idempotence, whose sequence a topic that was made anew can break for
    /// good: a pointer that arrives twice is answered by its row.
    pub(super) fn producer(&self, patience: Duration) -> ClientConfig {
        let mut config = self.config("mapae: pointers");
        config.set("acks", "all").set("enable.idempotence", "false");
        config.set("message.timeout.ms", millis(patience)).set("request.timeout.ms", millis(patience));
        config.set("linger.ms", "0").set("topic.metadata.propagation.max.ms", "0");
        config.set_log_level(RDKafkaLogLevel::Warning);
        config
    }

    /// A client that makes topics.
    pub(super) fn admin(&self) -> ClientConfig {
        let mut config = self.config("mapae: topics");
        // What it has to say is in its answers.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        config
    }

    /// A client that asks and reads nothing.
    pub(super) fn asker(&self, group: &str) -> ClientConfig {
        let mut config = self.config("mapae: questions");
        config.set("group.id", group).set("enable.auto.commit", "false");
        // What it has to say is in its answers; nobody reads on while nothing is asked.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        config
    }

    /// A member of the group that reads. `me` is its name, the same in every life of a worker.
    pub(super) fn reader(&self, group: &str, me: &str, life: &str) -> ClientConfig {
        let mut config = self.config(life);
        config.set("group.id", group).set("group.instance.id", me);
        config.set("partition.assignment.strategy", "cooperative-sticky");
        config.set("session.timeout.ms", millis(SESSION)).set("heartbeat.interval.ms", millis(HEARTBEAT));
        config.set("max.poll.interval.ms", "60000");
        // What is settled is committed by hand; a group that has committed nothing misses nothing.
        config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        config.set("auto.offset.reset", "earliest");
        config.set("fetch.wait.max.ms", millis(FETCH_WAIT)).set("fetch.error.backoff.ms", "100");
        config.set("fetch.queue.backoff.ms", "10");
        config.set("queued.min.messages", FETCHED_AHEAD);
        config.set("queued.max.messages.kbytes", FETCHED_KILOBYTES);
        config.set("topic.metadata.refresh.interval.ms", "2000");
        config.set("statistics.interval.ms", millis(FIGURES));
        config.set_log_level(RDKafkaLogLevel::Warning);
        config
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

fn unknown_sasl() -> BrokerError {
    BrokerError::Fatal("sasl in the broker's address is plain, scram-sha-256 or scram-sha-512".into())
}

/// What the client that was built in can do, in its own words.
fn built_in() -> String {
    let known = ClientConfig::new().create_native_config();
    known
        .and_then(|config| config.get("builtin.features"))
        .unwrap_or_default()
        .trim_end_matches('\0')
        .to_owned()
}

/// `host`, `host:port` or `[address]:port`, with the port that Kafka has where none is given.
fn server(text: &str) -> Option<String> {
    let after_address = text
        .strip_prefix('[')
        .map(|rest| rest.split_once(']'))
        .map_or(Some(text), |ends| ends.map(|(_, port)| port))?;
    let port = after_address.rsplit_once(':').map(|(_, port)| port);
    let host = &text[..text.len() - port.map_or(0, |port| port.len() + 1)];
    let bare = !host.starts_with('[') && host.contains(':');
    if host.is_empty() || bare || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return None;
    }
    Some(format!("{host}:{}", port.unwrap_or("9092")))
}

/// A part of an address in which `%40` stands for `@` and so on.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_read_is_refused_without_repeating_its_password() {
        for url in [
            "kafka://user:geheim@host:port",
            "kafka://",
            "kafka:geheim",
            "kafka://u:geheim@",
            "kafka://u:geheim@h,,i",
            "kafka://u:geheim@h/path",
            "kafka://geheim@h",
            "kafka://u:geheim%4@h",
            "kafka://u:geheim@::1",
        ] {
            let refused = Place::parse(url, None).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| !why.contains("geheim")), "{url}");
        }
        assert!(Place::parse("kafka://h", Some("plain")).is_err(), "nobody to prove");
        assert!(Place::parse("kafka://u:p@h", Some("gssapi")).is_err());
    }

    #[test]
    fn every_way_to_write_an_address_is_understood() {
        let read = |url| Place::parse(url, None).unwrap();
        assert_eq!(read("kafka://127.0.0.1").servers, "127.0.0.1:9092");
        assert_eq!(read("kafka://a,b:1,[::1]:2,[::1]/").servers, "a:9092,b:1,[::1]:2,[::1]:9092");
        let (name, password, sasl) = read("kafka://u:p%40%3a@h").user.unwrap();
        assert_eq!((name.as_str(), password.as_str(), sasl), ("u", "p@:", Sasl::Plain));
    }

    #[test]
    fn what_the_build_cannot_speak_is_said() {
        let place = |tls, sasl| Place { servers: "h".into(), tls, user: sasl };
        let user = |sasl| Some(("u".into(), "geheim".into(), sasl));
        let plain = "gzip,snappy,sasl,sasl_plain,lz4";
        for lacking in [place(true, None), place(false, user(Sasl::Scram256)), place(true, user(Sasl::Plain))]
        {
            let why = lacking.can_be_spoken_to(plain).unwrap_err().to_string();
            assert!(why.contains("kafka-tls") && !why.contains("geheim"), "{why}");
            lacking.can_be_spoken_to("ssl,sasl,sasl_scram").unwrap();
        }
        place(false, user(Sasl::Plain)).can_be_spoken_to(plain).unwrap();
    }
}
