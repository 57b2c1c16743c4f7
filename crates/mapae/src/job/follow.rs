//! What comes after a job: for each way to end, at most one job that is made in the transaction that ends it so.
//!
//! Declared when the job is accepted, so that whoever ends it, worker, keeper or a person, need not know of it.

use std::time::Duration;

use serde_json::Value;

use super::name::{JobId, Kind, Lane, Priority};
use super::record::NewJob;
use super::retry::RetryPolicy;
use super::timestamp::Timestamp;
use super::{End, State};

/// How many jobs may be declared after each other.
pub const DEPTH_MAX: usize = 8;

/// How many jobs may be declared after one, however they hang together.
pub const FOLLOWS_MAX: usize = 32;

/// A job that comes after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Follow {
    /// How the other has to end. Once in its life: a redriven job that ends the same way again has had it.
    pub after: End,
    pub next: Next,
}

/// What is known of a job before it is made. It belongs to the owner of the one before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    pub kind: Kind,
    pub params: Value,
    pub priority: Priority,
    pub retry: RetryPolicy,
    /// Counted from the end of the job before it.
    pub delay: Duration,
    pub on: Vec<Follow>,
}

/// What has become of a declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed {
    pub after: End,
    pub kind: Kind,
    /// The job and when it was made, once it was.
    pub made: Option<(JobId, Timestamp)>,
}

impl Next {
    pub fn lane(&self) -> Lane {
        Lane { kind: self.kind.clone(), class: self.priority.class() }
    }

    /// The job after `parent`, which ended at `at`.
    pub fn job(&self, parent: &NewJob, at: Timestamp) -> NewJob {
        NewJob {
            priority: self.priority,
            retry: self.retry,
            run_at: Some(at + self.delay),
            trace: parent.trace.clone(),
            parent: Some(parent.id),
            on: self.on.clone(),
            ..NewJob::new(parent.owner.clone(), self.kind.clone(), self.params.clone())
        }
    }
}

/// The kinds of all these jobs, each as often as it is named.
pub fn kinds(on: &[Follow]) -> impl Iterator<Item = &Kind> {
    let mut left: Vec<&Follow> = on.iter().collect();
    std::iter::from_fn(move || {
        let follow = left.pop()?;
        left.extend(&follow.next.on);
        Some(&follow.next.kind)
    })
}

/// How many jobs these come to in all, and how deep; more than is allowed is refused at the door.
pub fn size(on: &[Follow]) -> (usize, usize) {
    on.iter().fold((0, 0), |(count, depth), follow| {
        let (below, deeper) = size(&follow.next.on);
        (count + 1 + below, depth.max(1 + deeper))
    })
}

impl End {
    pub const ALL: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Cancelled, Self::Stale];

    pub fn state(self) -> State {
        match self {
            Self::Succeeded => State::Succeeded,
            Self::Failed => State::Failed,
            Self::Cancelled => State::Cancelled,
            Self::Stale => State::Stale,
        }
    }

    pub fn as_str(self) -> &'static str {
        self.state().as_str()
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.as_str() == text)
    }
}
