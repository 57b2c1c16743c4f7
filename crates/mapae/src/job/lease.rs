//! The lease: who may change a running job, and until when.
//!
//! A lease is a value that only a claim makes. Every write of the running side carries its job and
//! token, and the store applies it only where that token still stands in the row.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::name::{ClientName, JobId};
use super::timestamp::Timestamp;

/// A worker's name and the life it is in.
///
/// The name is stable, so that a restarted worker finds what it left; the incarnation is new at every
/// start, so that it is never taken for its former self.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub name: String,
    pub incarnation: Uuid,
}

impl Holder {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), incarnation: Uuid::now_v7() }
    }

    /// What a service holds that accepted work for later (`202`). Like every holder outside it has no
    /// life that could be seen to end: time alone ends its leases. No worker can have such a name.
    pub fn service() -> Self {
        Self { name: Self::SERVICE.to_owned(), incarnation: Uuid::nil() }
    }

    /// A client that leases over HTTP.
    pub fn pulling(client: &ClientName) -> Self {
        Self { name: format!("pull:{client}"), incarnation: Uuid::nil() }
    }

    pub fn is_service(&self) -> bool {
        self.name == Self::SERVICE
    }

    /// As the statements of the stores have it, too.
    const SERVICE: &str = "the service";
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The fencing token: 128 random bits, new at every claim.
///
/// Random rather than counted, because a restored backup issues a number again, never a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub Uuid);

impl Token {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Debug for Token {
    /// A token is a right: logs show only enough to tell two apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:08x}…)", self.0.as_fields().0)
    }
}

/// Held by one worker while a job runs, kept alive by heartbeats, given up by settling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub job: JobId,
    pub token: Token,
    /// Rises at every claim of the job: for order and for people, never for the fence.
    pub epoch: u64,
    /// By the database's clock. The worker keeps its own, monotonic end (`worker/heartbeat.rs`).
    pub until: Timestamp,
}

/// The longest a worker may go without a heartbeat: longer silence means that it is gone.
pub const HEARTBEAT_MAX: Duration = Duration::from_secs(10);

/// The times a worker lives by, checked together once at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease lasts without a heartbeat.
    pub lease: Duration,
    /// How often leases are renewed.
    pub heartbeat: Duration,
    /// How long running jobs may take to end after a stop signal.
    pub drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(5),
            drain: Duration::from_secs(60),
        }
    }
}

impl Timing {
    /// How long before its end a lease counts as lost, so that the work has stopped when another starts.
    pub fn margin(&self) -> Duration {
        self.heartbeat
    }

    /// How long a pointer must lie idle before it is taken over: a redelivery never comes before the
    /// lease can be taken.
    pub fn take_over_idle(&self) -> Duration {
        self.lease + 2 * self.heartbeat
    }

    /// Refuses times under which a live worker could lose its lease, with the arithmetic.
    pub fn check(self) -> Result<Self, UnsafeTiming> {
        if self.heartbeat.is_zero() || self.lease < 4 * self.heartbeat {
            return Err(UnsafeTiming::Heartbeat { lease: self.lease, heartbeat: self.heartbeat });
        }
        if self.heartbeat > HEARTBEAT_MAX {
            return Err(UnsafeTiming::Silence { heartbeat: self.heartbeat });
        }
        if self.lease > Duration::from_secs(24 * 3600) || self.drain > Duration::from_secs(24 * 3600) {
            return Err(UnsafeTiming::TooLong);
        }
        Ok(self)
    }
}

/// Times that would break the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeTiming {
    #[error(
        "worker.lease is {lease:?} and worker.heartbeat is {heartbeat:?}, but a lease must last at least four \
         heartbeats ({:?}): one slow renewal would lose it", *.heartbeat * 4
    )]
    Heartbeat { lease: Duration, heartbeat: Duration },
    #[error("worker.heartbeat is {heartbeat:?}, but a worker may be silent for {HEARTBEAT_MAX:?} at most")]
    Silence { heartbeat: Duration },
    #[error("worker.lease and worker.drain must be at most 24 hours")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_shorter_than_four_heartbeats_is_refused_with_the_arithmetic() {
        let timing =
            Timing { lease: Duration::from_secs(10), heartbeat: Duration::from_secs(3), ..Timing::default() };
        let refused = timing.check().unwrap_err().to_string();
        assert!(refused.contains("10s") && refused.contains("3s") && refused.contains("12s"), "{refused}");
        assert!(Timing::default().check().is_ok());
    }

    #[test]
    fn no_pointer_is_taken_over_before_its_lease_can_be_taken() {
        let timing = Timing { heartbeat: Duration::from_secs(7), ..Timing::default() };
        assert_eq!(timing.take_over_idle(), Duration::from_secs(30 + 2 * 7));
    }

    #[test]
    fn a_token_is_not_printed_whole() {
        let token = Token::random();
        assert!(!format!("{token:?}").contains(&token.0.to_string()));
    }
}
