//! Telling the outside: what of each event still has to be told to whom, and what came of it.
//!
//! ```text
//! events (unsent) ─ spread ─► deliveries, a row for each receiver ─ take ─► told: gone, later, or dead
//! ```
//!
//! A receiver has its own rows, so one that is slow or gone delays no other. Of one job a receiver is handed
//! the lowest number first, and no other while that one waits.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{Scope, StoreError};
use crate::job::event::{Event, EventKind};
use crate::job::name::{JobId, Kind};
use crate::job::timestamp::Timestamp;

#[async_trait]
pub trait Tell {
    /// Of the oldest `max` events that nobody had been told of, each stands before every receiver that wants it, and
    /// before its job's callback; they are not unsent any more. Answers how many events those were.
    async fn spread(&self, to: &[Receiver], max: usize) -> Result<usize, StoreError>;

    /// Of these receivers, those before whom something stands that is due.
    async fn due(&self, receivers: &[String]) -> Result<Vec<String>, StoreError>;

    /// Owners whose callbacks something stands before, by name, from the one after `after` on.
    async fn callers(&self, after: &str, max: usize) -> Result<Vec<String>, StoreError>;

    /// Of each of these owners the lines of its callbacks that something stands before, by name, from the one after
    /// the given one on, and at most `each`.
    async fn calls(&self, owners: &[(String, String)], each: usize) -> Result<Vec<Call>, StoreError>;

    /// What is due at this receiver, the lowest of each job. It is the taker's for `hold`: after that another may
    /// take it.
    async fn take(&self, receiver: &str, max: usize, hold: Duration) -> Result<Vec<Delivery>, StoreError>;

    /// What came of deliveries that were taken. An answer that came after its hold, and after another had taken the
    /// delivery, changes nothing.
    async fn told(&self, answers: &[Told]) -> Result<(), StoreError>;

    /// What has stood before anybody for `age`, and is not being told just now, is given up: the oldest `max`. Answers
    /// how many.
    async fn give_up(&self, age: Duration, max: usize) -> Result<usize, StoreError>;

    /// Where more than `most` stands before this receiver, what would be told first of it is given up; and where more
    /// than `most` was given up, the oldest of that is forgotten. At most `max` of each.
    async fn crowd(&self, receiver: &str, most: usize, max: usize) -> Result<Crowd, StoreError>;

    /// Deliveries that were given up, the newest first, from the one before `before` on.
    async fn undelivered(
        &self,
        scope: &Scope,
        receiver: Option<&str>,
        before: Option<u64>,
        max: usize,
    ) -> Result<Vec<Undelivered>, StoreError>;

    /// Of these deliveries, those that were given up are due again, as new. Answers which those were.
    async fn resend(&self, scope: &Scope, ids: &[u64]) -> Result<Vec<u64>, StoreError>;

    /// Of these deliveries, those that were given up are forgotten. Answers which those were.
    async fn forgo(&self, scope: &Scope, ids: &[u64]) -> Result<Vec<u64>, StoreError>;

    /// These events stand before the receiver again; what of them still does is left as it is. Answers how many.
    async fn replay(&self, receiver: &str, events: &[(JobId, u64)]) -> Result<usize, StoreError>;

    /// What stands before one receiver stands before another from now on; what stands there already once. At most
    /// `max`; answers how many.
    async fn rename(&self, from: &str, to: &str, max: usize) -> Result<usize, StoreError>;

    /// What stands before each of these receivers, or before everybody; `cap` receivers at most, and each counted up
    /// to that.
    async fn queues(&self, of: Option<&[String]>, cap: usize) -> Result<Vec<Queue>, StoreError>;
}

/// One that is told of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Stable: what stands before it is found by this. It holds no `/`, which those of callbacks do.
    pub name: String,
    /// Which events it wants; all where empty.
    pub events: Vec<EventKind>,
    /// Of which kinds, each whole or as a beginning with `*`; all where empty.
    pub kinds: Vec<String>,
}

impl Receiver {
    pub fn wants(&self, event: &Event) -> bool {
        let of_kind = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => event.kind.as_str().starts_with(start),
            None => *wanted == event.kind.as_str(),
        };
        (self.events.is_empty() || self.events.contains(&event.event))
            && (self.kinds.is_empty() || self.kinds.iter().any(of_kind))
    }
}

/// An event on its way to a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub id: u64,
    /// Whoever has it may say what came of it.
    pub token: Uuid,
    pub event: Event,
    /// Where a callback goes. Customer content: never logged.
    pub url: Option<String>,
    /// How often it has been taken, this time included.
    pub tries: u32,
    /// How long ago it began to stand there, by the database's clock.
    pub age: Duration,
}

/// What came of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub id: u64,
    pub token: Uuid,
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Taken,
    /// Not taken: it, and what of its job comes after it, is due again after that time.
    Later {
        wait: Duration,
        code: String,
    },
    /// Given up. What of its job comes after it is told all the same.
    Dead {
        code: String,
    },
}

/// A line of callbacks: one owner's to one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub owner: String,
    pub line: String,
    /// Something of what stands there is due.
    pub due: bool,
}

/// A delivery that was given up.
#[derive(Clone, Debug, PartialEq)]
pub struct Undelivered {
    pub id: u64,
    pub receiver: String,
    pub job: JobId,
    pub sequence: u64,
    pub owner: String,
    pub kind: Kind,
    pub event: EventKind,
    pub tries: u32,
    /// Why it was not taken the last time.
    pub code: String,
    pub dead_at: Timestamp,
}

/// What became of what was too much for a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    pub given_up: usize,
    pub forgotten: usize,
}

/// Why what nobody took in time, or what too much stood behind, was given up, where nobody had refused it before.
pub const NOT_IN_TIME: &str = "receiver-behind";

/// What stands before a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub receiver: String,
    pub waiting: usize,
    pub dead: usize,
    /// How long the oldest has waited.
    pub oldest: Option<Duration>,
}
