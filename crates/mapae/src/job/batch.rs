//! Batches: a job that goes on once all of its parts have ended.
//!
//! The parent is an ordinary job that is not due: it waits without a slot, a lease or a pointer. When no part is left
//! that has not ended, one statement makes it due, and it runs as any other. So a batch ends once however many keepers
//! look, and its end is its parent's: one event, one callback, one result.
//!
//! ```text
//! a client       ─ accept the parent, waiting, with its parts ┐
//! a handler      ─ parts under its lease, then Verdict::Await ┴─► pending, due at no time ─ all have ended ─► due now
//! ```
//!
//! What ends a part, a worker, a keeper or a person, need not know of it: its row says whose part it is.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::name::{IdempotencyKey, JobId, Kind, Priority};
use super::record::{Job, NewJob, Output, Progress};
use super::retry::{Failure, RetryPolicy};
use super::{State, timestamp::Timestamp};

/// Whoever is due then or later waits for its batch and for no time: 1 January 2500.
pub const AWAITED: Timestamp = Timestamp::from_micros(16_725_225_600_000_000);

/// When a parent is due that was accepted with its parts: 1 January 2600.
pub const WAITING: Timestamp = Timestamp::from_micros(19_880_899_200_000_000);

/// For so long a job that waits for its batch is put off: 600 years.
pub const AWAIT: std::time::Duration = std::time::Duration::from_secs(600 * 365 * 24 * 3600);

/// The same in microseconds, as stores write it: more than they allow of any other wait.
pub(crate) const AWAIT_US: i64 = 600 * 365 * 24 * 3600 * 1_000_000;

/// Most parts given at a time, and most that a handler gives.
pub const PARTS_MAX: usize = 1_000;

/// Most parts of a batch.
pub const MEMBERS_MAX: u32 = 100_000;

/// The id of a part that is added under a key, the same whenever it is given again. As if it was made when its batch
/// was, so that parts sort in their order.
pub fn part_id(parent: JobId, key: &IdempotencyKey, body: &[u8; 32], number: usize) -> JobId {
    let mut hash = Sha256::new();
    hash.update(parent.0);
    hash.update((key.as_str().len() as u64).to_be_bytes());
    hash.update(key.as_str());
    hash.update(body);
    hash.update((number as u64).to_be_bytes());
    let digest = hash.finalize();
    let mut bytes = *parent.0.as_bytes();
    bytes[6..].copy_from_slice(&digest[..10]);
    // The twelve bits behind the time are the place among those that are given at a time.
    let place = u16::try_from(number % 0x1000).unwrap_or_default().to_be_bytes();
    bytes[6..8].copy_from_slice(&place);
    JobId(
        uuid::Builder::from_bytes(bytes)
            .with_version(uuid::Version::SortRand)
            .with_variant(uuid::Variant::RFC4122)
            .into_uuid(),
    )
}

/// A part of a job, before it is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub kind: Kind,
    pub params: Value,
    pub priority: Priority,
    /// That of the whole where it is not given.
    pub retry: Option<RetryPolicy>,
}

impl Part {
    pub fn new(kind: Kind, params: Value) -> Self {
        Self { kind, params, priority: Priority::NORMAL, retry: None }
    }

    /// The job that does this part of `whole`. Its id is its own: given again, it is the same job.
    pub fn of(self, whole: &Job) -> NewJob {
        NewJob {
            priority: self.priority,
            retry: self.retry.unwrap_or(whole.retry),
            deadline: whole.deadline,
            trace: whole.trace.clone(),
            parent: Some(whole.id),
            ..NewJob::new(whole.owner.clone(), self.kind, self.params)
        }
    }
}

/// How a batch stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchState {
    /// No part is added any more.
    pub sealed: bool,
    pub parts: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub stale: u32,
}

impl BatchState {
    pub fn ended(&self) -> u32 {
        self.succeeded + self.failed + self.cancelled + self.stale
    }

    /// As the parent shows it while it waits.
    pub fn progress(&self) -> Progress {
        Progress { stage: "batch".to_owned(), done: self.ended().into(), of: self.parts.into() }
    }

    /// So many more parts stand so.
    pub fn count(&mut self, state: Option<State>, parts: u32) {
        self.parts += parts;
        match state {
            Some(State::Succeeded) => self.succeeded += parts,
            Some(State::Failed) => self.failed += parts,
            Some(State::Cancelled) => self.cancelled += parts,
            Some(State::Stale) => self.stale += parts,
            Some(State::Pending | State::Running) | None => {}
        }
    }
}

/// A part as its batch has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its place, from 0, in the order given.
    pub number: u32,
    pub job: JobId,
    /// How it has ended, if it has.
    pub state: Option<State>,
    pub output: Option<Output>,
    pub failure: Option<Failure>,
}
