//! What a broker promises. A broker is a doorbell: it carries pointers, and may lose, repeat and
//! reorder them. Each doc comment says what is true once the call has returned.
//!
//! What differs between brokers is data ([`Caps`]), not an `if` in the runtime:
//!
//! | | embedded | streams | RabbitMQ | Kafka |
//! |---|---|---|---|---|
//! | [`Source`] | rows | pointers | pointers | pointers |
//! | [`Settling`] | at finish | at finish | at claim | at claim |
//! | hold | no | yes | no | no |

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::job::lease::Holder;
use crate::job::name::{JobId, Kind, Lane, Owner};

/// The longest a publish takes before its pointers are `Unknown`.
pub const PUBLISH_PATIENCE: Duration = Duration::from_secs(5);

#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// The scheme of its address: `embedded`, `valkey` …
    fn name(&self) -> &'static str;

    fn caps(&self) -> Caps;

    /// The lanes can be published to and read from. Idempotent; called at boot and after any
    /// [`BrokerError::Topology`], never remembered.
    async fn ensure(&self, lanes: &[Lane]) -> Result<(), BrokerError>;

    /// For each pointer, in order, the broker's own answer on its durability, within
    /// [`PUBLISH_PATIENCE`]. For a broker whose source is the rows, the bell has been rung.
    async fn publish(&self, pointers: &[(Lane, Pointer)]) -> Vec<Published>;

    /// A reader of these lanes that owns its connection.
    async fn open(&self, intake: &IntakePlan) -> Result<Arc<dyn Intake>, BrokerError>;

    /// It can be reached; what of its settings endangers what it is given.
    async fn check(&self) -> Result<Vec<Concern>, BrokerError> {
        Ok(Vec::new())
    }

    /// For each lane, in order, how long the pointer that nobody has read for longest has waited, by the
    /// broker's own clock; zero where none waits, `None` where it cannot tell: then the depth that
    /// [`Broker::stats`] tells has to do. Asked every few seconds for all lanes that have rung jobs.
    async fn oldest_unread(&self, lanes: &[Lane]) -> Result<Vec<Option<Duration>>, BrokerError> {
        Ok(lanes.iter().map(|_| None).collect())
    }

    /// At most `max` pointers that the broker itself put aside are offered again; answers how many. Asked twice a
    /// minute.
    async fn sweep(&self, _max: usize) -> Result<usize, BrokerError> {
        Ok(0)
    }

    /// What the broker knows of a lane. What it cannot tell is `None`, never a made-up zero.
    async fn stats(&self, lane: &Lane) -> Result<BrokerStats, BrokerError>;
}

/// Which lanes to read, as whom, and when others' pointers may be taken over.
#[derive(Clone, Debug)]
pub struct IntakePlan {
    /// In no order: the weight of a lane's class decides how often it is read.
    pub lanes: Vec<Lane>,
    pub consumer: Holder,
    /// A pointer idle for less than this belongs to a worker that may live (`Timing::take_over_idle`).
    pub take_over_idle: Duration,
}

/// Reads lanes for one worker. `next` and `orphans` are called by one task at a time; the rest may be
/// called beside them.
#[async_trait]
pub trait Intake: Send + Sync {
    /// At most `permits` new deliveries, none of a lane in `shut`, after at most `wait`. Cancel-safe:
    /// dropping the call strands nothing. Where the source is the rows it gives no deliveries and returns when the bell has rung
    /// since the last call, or after `wait`.
    async fn next(&self, permits: usize, shut: &[Lane], wait: Duration)
    -> Result<Vec<Delivery>, BrokerError>;

    /// At most `max` deliveries that somebody took and has not settled: first this consumer's own, of an
    /// earlier life or lost with an answer of this one, then those of consumers that stopped, each idle for
    /// long enough itself. Empty where the broker does this by itself.
    async fn orphans(&self, max: usize) -> Result<Vec<Delivery>, BrokerError>;

    /// The broker counts these as being worked on, as far as it can.
    async fn hold(&self, receipts: &[Receipt]) -> Vec<Hold>;

    /// The pointers are gone from the broker. Idempotent; a receipt of an earlier connection is `Stale`
    /// and never settles another delivery.
    async fn settle(&self, receipts: &[(Receipt, Settle)]) -> Vec<Settled>;

    /// The pointers are offered to others now, without waiting to be idle.
    async fn hand_back(&self, receipts: &[Receipt]) -> Result<(), BrokerError>;

    fn health(&self) -> Health;

    /// Nothing more is read; what can be settled has been, by `deadline`.
    async fn close(&self, deadline: Instant);
}

/// What distinguishes a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    pub source: Source,
    pub settling: Settling,
    /// Whether [`Intake::hold`] does anything.
    pub holds: bool,
}

/// Where a worker finds what to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The broker delivers pointers.
    Pointers,
    /// Rung rows are claimed from the store itself; the broker only wakes.
    Rows,
}

/// When a pointer is acknowledged. Both are safe, because the row is the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// After the outcome is committed.
    AtFinish,
    /// Once the row's lease is held.
    AtClaim,
}

/// What travels: who to ask about, nothing of what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    pub v: u8,
    pub job: JobId,
    pub owner: Owner,
    pub kind: Kind,
    pub hint: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Pointer {
    pub const VERSION: u8 = 1;
    pub const BYTES_MAX: usize = 512;

    pub fn new(job: JobId, owner: Owner, kind: Kind, hint: u32, trace: Option<String>) -> Self {
        // A trace context is 55 characters (W3C Trace Context); anything longer is not one.
        let trace = trace.filter(|trace| trace.len() <= 64);
        Self { v: Self::VERSION, job, owner, kind, hint, trace }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and numbers are always JSON")
    }

    /// `None` for anything that this program did not write.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > Self::BYTES_MAX {
            return None;
        }
        serde_json::from_slice(bytes).ok().filter(|pointer: &Self| pointer.v == Self::VERSION)
    }
}

/// Names one delivery of one connection. Only the adapter that made it can read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The connection it came over: raised at each new one.
    pub epoch: u64,
    pub id: String,
}

#[derive(Clone, Debug)]
pub struct Delivery {
    pub receipt: Receipt,
    /// The raw bytes where they are not a pointer: kept in quarantine.
    pub pointer: Result<Pointer, Vec<u8>>,
    /// How often the broker says it was delivered. A metric, nothing more.
    pub deliveries: Option<u64>,
}

#[derive(Debug)]
pub enum Published {
    Accepted,
    /// The broker said no: it is not there.
    Refused(BrokerError),
    /// It may or may not be there.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Held,
    Lost,
    Unsupported,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The work is done.
    Done,
    /// There is nothing to do for it.
    Drop,
    /// It is not ours to read: keep it apart for a person.
    Park(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Ok,
    /// Of an earlier connection, or settled before.
    Stale,
    /// No answer: it may be gone, or come again and be answered by its row.
    Unknown,
}

/// How reading goes, for readiness.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    pub last_read: Option<Instant>,
    pub failures_in_a_row: u32,
    pub epoch: u64,
}

/// One number of a broker, with how far to trust it.
#[derive(Clone, Copy, Debug)]
pub struct Figure<T> {
    pub value: T,
    pub exact: bool,
    pub as_of: Instant,
}

/// Something about a broker's settings that a person should change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    pub what: String,
    pub help: String,
}

/// What S0-17 asks to be watched.
#[derive(Clone, Debug, Default)]
pub struct BrokerStats {
    pub depth: Option<Figure<u64>>,
    pub unacknowledged: Option<Figure<u64>>,
    pub oldest_unacknowledged: Option<Figure<Duration>>,
    pub deliveries_max: Option<Figure<u64>>,
    /// Consumer and how long it has been inactive.
    pub consumers: Option<Figure<Vec<(String, Duration)>>>,
}

/// One variant for each thing a caller does differently.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Try again.
    #[error("the broker cannot be reached")]
    Transient(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Call `ensure`, then try again.
    #[error("the broker's queues are not as they should be: {0}")]
    Topology(String),
    /// Wait: it is full or blocked.
    #[error("the broker has no room")]
    Capacity,
    /// A person has to change something.
    #[error("{0}")]
    Fatal(String),
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pointer_fits_its_bound() {
        let owner = Owner::new("o".repeat(Owner::MAX)).unwrap();
        let kind = Kind::new("k".repeat(Kind::MAX)).unwrap();
        let pointer = Pointer::new(JobId::new(), owner, kind, u32::MAX, Some("t".repeat(64)));
        let bytes = pointer.encode();
        assert!(bytes.len() < Pointer::BYTES_MAX, "{}", bytes.len());
        assert_eq!(Pointer::decode(&bytes), Some(pointer));
    }

    #[test]
    fn what_is_not_a_pointer_is_not_read_as_one() {
        assert_eq!(Pointer::decode(b"{\"v\":1}"), None);
        assert_eq!(Pointer::decode(&vec![b' '; 600]), None);
    }
}
