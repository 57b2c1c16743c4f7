//! The job as it is submitted and as it is read back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::State;
use super::batch::AWAITED;
use super::event::EventKind;
use super::follow::Follow;
use super::lease::Holder;
use super::name::{Assignee, IdempotencyKey, JobId, Kind, Lane, Owner, Priority};
use super::retry::{Failure, RetryPolicy};
use super::timestamp::Timestamp;
use super::unique::Unique;

/// The most that `params` may be, in bytes of JSON.
pub const PARAMS_BYTES_MAX: usize = 256 * 1024;

/// How deep `params` may be nested. What reads them back stops at 128.
pub const PARAMS_DEPTH_MAX: usize = 100;

/// The most that a stage's output or a result may be and still be kept in the row, in bytes of JSON.
/// Larger ones are files.
pub const INLINE_BYTES_MAX: usize = 256 * 1024;

/// A file that a job works on. The file itself is in the file store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// As the client called it. Customer content: shown to its owner, never logged.
    pub name: String,
    pub bytes: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    pub media_type: String,
    /// Its name in the file store.
    pub file: String,
}

/// A submission that has passed its checks.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    pub id: JobId,
    pub owner: Owner,
    pub kind: Kind,
    pub params: Value,
    pub source: Option<Source>,
    pub priority: Priority,
    /// When it is first due; at once where `None`.
    pub run_at: Option<Timestamp>,
    /// After this the job fails instead of starting again.
    pub deadline: Option<Timestamp>,
    pub retry: RetryPolicy,
    /// With the hash of the request's body, so that another body under the same key is refused.
    pub idempotency: Option<(IdempotencyKey, [u8; 32])>,
    /// The job that this one comes after.
    pub parent: Option<JobId>,
    /// What comes after it, at most one job for each way to end.
    pub on: Vec<Follow>,
    /// While another job holds this key, that one is the answer.
    pub unique: Option<Unique>,
    /// Where its own events are told.
    pub callback: Option<Callback>,
    /// W3C trace context of the submitting request.
    pub trace: Option<String>,
    /// The row counts as rung from its commit on, because whoever accepts it also rings; a keeper rings
    /// where that does not come about.
    pub rung: Option<FirstRing>,
}

/// The bell that comes with the accept, while the hot window has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstRing {
    /// The job's turn in its lane: the lowest is claimed first (`accept::Window` deals them out).
    pub turn: u64,
    /// When a keeper rings again if nobody has claimed the job.
    pub again: Duration,
}

impl NewJob {
    pub fn new(owner: Owner, kind: Kind, params: Value) -> Self {
        Self {
            id: JobId::new(),
            owner,
            kind,
            params,
            source: None,
            priority: Priority::NORMAL,
            run_at: None,
            deadline: None,
            retry: RetryPolicy::default(),
            idempotency: None,
            parent: None,
            on: Vec::new(),
            unique: None,
            callback: None,
            trace: None,
            rung: None,
        }
    }

    pub fn lane(&self) -> Lane {
        Lane { kind: self.kind.clone(), class: self.priority.class() }
    }
}

/// Where a job's own events are told, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// Of the owner's choice. Customer content: never logged.
    pub url: String,
    pub events: Vec<EventKind>,
}

impl Callback {
    /// The job's owner and the host it goes to, with scheme and port: what stands before these is told in one line,
    /// whatever becomes of another owner's at the same host.
    pub fn line(&self, owner: &Owner) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        format!("{owner} {}", format!("{scheme}://{host}").to_ascii_lowercase())
    }
}

/// How far a running job has come, in its own words and numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub stage: String,
    pub done: u64,
    pub of: u64,
}

/// A stage that is done and need not be done again.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    pub stage: String,
    pub output: Output,
    pub took: Duration,
}

/// What a stage or a job gave: small ones in the row, large ones as a file that the row names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    Inline(Value),
    /// A name in the file store, with its size in bytes.
    File {
        name: String,
        bytes: u64,
    },
}

/// A job as the store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub owner: Owner,
    pub kind: Kind,
    pub state: State,
    pub params: Value,
    pub source: Option<Source>,
    pub priority: Priority,
    pub attempt: u32,
    pub retry: RetryPolicy,
    pub created_at: Timestamp,
    pub due_at: Timestamp,
    pub deadline: Option<Timestamp>,
    /// When the present or last attempt was claimed.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub holder: Option<Holder>,
    pub cancel_asked: bool,
    pub progress: Option<Progress>,
    /// The last failure, kept while later attempts run, and gone once one succeeds.
    pub failure: Option<Failure>,
    /// Who looks after it, while it is a dead letter.
    pub assignee: Option<Assignee>,
    /// How often its pointer has been handed out since it became pending.
    pub hint: u32,
    pub throttled: u32,
    /// How often its handler put it off.
    pub snoozed: u32,
    pub redrives: u32,
    /// The job that this one comes after. It may be gone by now.
    pub parent: Option<JobId>,
    pub trace: Option<String>,
    /// How many events the job has had: changes whenever the job does.
    pub sequence: u64,
}

impl Job {
    pub fn lane(&self) -> Lane {
        Lane { kind: self.kind.clone(), class: self.priority.class() }
    }

    /// It waits for the parts of its batch.
    pub fn is_awaiting(&self) -> bool {
        self.state == State::Pending && self.due_at >= AWAITED
    }

    /// What `pending` looks like to people; the other states are called what they are.
    pub fn phase(&self, now: Timestamp) -> &'static str {
        match self.state {
            State::Pending if self.due_at <= now => "ready",
            State::Pending if self.is_awaiting() => "awaiting",
            State::Pending if self.attempt == 0 => "scheduled",
            State::Pending => "backoff",
            other => other.as_str(),
        }
    }
}
