//! What a client says of itself: through our own log, a few lines a minute, and kept where it is a reason.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tracing::{debug, warn};

use crate::broker::contract::BrokerError;

/// A client whose cluster is gone writes hundreds of lines: so many of them are written on, for so long.
const LINES_MAX: u32 = 5;
const PER: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Voice {
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    since: Option<Instant>,
    lines: u32,
    /// The last reason that was given, with its code.
    reason: Option<(RDKafkaErrorCode, String)>,
    /// The cluster does not take this user or password.
    refused: bool,
}

impl Said {
    /// How many lines before this one were swallowed, where this one is to be written.
    fn pass(&mut self, now: Instant) -> Option<u32> {
        if self.since.is_none_or(|since| now.duration_since(since) >= PER) {
            let swallowed = self.lines.saturating_sub(LINES_MAX);
            (self.since, self.lines) = (Some(now), 1);
            return Some(swallowed);
        }
        self.lines = self.lines.saturating_add(1);
        (self.lines <= LINES_MAX).then_some(0)
    }
}

impl Voice {
    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is said of the client's last errors, by what can be done about them.
    pub(super) fn problem(&self, code: RDKafkaErrorCode) -> BrokerError {
        let said = self.said();
        if said.refused {
            return refused();
        }
        let why = match &said.reason {
            Some((known, why)) if *known == code => why.clone(),
            _ => code.to_string(),
        };
        class_of(code, why)
    }

    /// No broker of the cluster can be reached.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.said().reason, Some((RDKafkaErrorCode::AllBrokersDown, _)))
    }

    /// The cluster has refused this user or password since the client was made.
    pub(super) fn is_refused(&self) -> bool {
        self.said().refused
    }
}

pub(super) fn refused() -> BrokerError {
    BrokerError::Fatal("the broker refuses this user or password: look at broker.url".into())
}

impl ConsumerContext for Voice {}

impl ClientContext for Voice {
    fn log(&self, level: RDKafkaLogLevel, topic: &str, line: &str) {
        let level = level as i32;
        if level > RDKafkaLogLevel::Error as i32 {
            debug!(topic, "the client of Kafka says: {line}");
            return;
        }
        let Some(swallowed) = self.said().pass(Instant::now()) else { return };
        warn!(topic, swallowed, "the client of Kafka says: {line}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        let mut said = self.said();
        said.refused |=
            matches!(code, RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed);
        // The client's own words name brokers and topics, never what a message holds.
        said.reason = Some((code, reason.to_owned()));
        drop(said);
        debug!(?code, "the client of Kafka has a problem: {reason}");
    }
}

/// What a code means, by what can be done about it.
pub(super) fn class_of(code: RDKafkaErrorCode, why: String) -> BrokerError {
    use RDKafkaErrorCode as C;
    match code {
        C::UnknownTopic | C::UnknownTopicOrPartition | C::UnknownPartition | C::UnknownTopicId => {
            BrokerError::Topology(why)
        }
        C::Authentication | C::SaslAuthenticationFailed | C::UnsupportedSASLMechanism | C::IllegalSASLState => {
            refused()
        }
        C::TopicAuthorizationFailed | C::GroupAuthorizationFailed | C::ClusterAuthorizationFailed => {
            BrokerError::Fatal(format!("the broker's user may not do what is needed: {why}"))
        }
        C::SSL => BrokerError::Fatal(format!("the broker's TLS is not accepted: {why}")),
        C::QueueFull => BrokerError::Capacity,
        C::InvalidSessionTimeout => BrokerError::Fatal(
            "the cluster does not allow a reader's session of 6 seconds: lower its group.min.session.timeout.ms".into(),
        ),
        C::InconsistentGroupProtocol => BrokerError::Fatal(
            "other readers are in the group of mapae's prefix: give another prefix in broker.url".into(),
        ),
        C::FencedInstanceId | C::UnreleasedInstanceId => {
            BrokerError::Transient("another process reads under this worker's name".into())
        }
        _ => BrokerError::Transient(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_written_on_as_a_few_lines_with_their_number() {
        let mut said = Said::default();
        let now = Instant::now();
        let passed = (0..1_000).filter(|_| said.pass(now).is_some()).count();
        assert_eq!(passed, 5);
        assert_eq!(said.pass(now + PER), Some(995));
        assert_eq!(said.pass(now + PER), Some(0));
    }
}
