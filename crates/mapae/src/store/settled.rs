//! A settlement as the databases are told it, and what its asker is told of theirs.

use std::collections::HashMap;

use serde_json::{Value, json};
use uuid::Uuid;

use super::contract::{SettleError, Settlement};
use super::row::as_micros;
use crate::job::State;
use crate::job::batch::AWAIT_US;
use crate::job::retry::{Failure, Verdict};

/// What the statements call it.
pub(super) fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Succeed => "succeed",
        Verdict::Retry { .. } => "retry",
        Verdict::Throttle { .. } => "throttle",
        Verdict::Snooze { .. } => "snooze",
        Verdict::Fail { .. } => "fail",
        Verdict::Stale { .. } => "stale",
        Verdict::Await => "await",
        Verdict::HandBack => "hand-back",
    }
}

/// How long from now until the job is due again, in microseconds.
pub(super) fn delay(verdict: &Verdict) -> i64 {
    match verdict {
        Verdict::Retry { delay, .. } | Verdict::Throttle { delay, .. } | Verdict::Snooze { delay } => {
            as_micros(*delay)
        }
        Verdict::Await => AWAIT_US,
        _ => 0,
    }
}

/// Why, where it did not succeed.
pub(super) fn failure(verdict: &Verdict) -> Option<Value> {
    match verdict {
        Verdict::Retry { failure, .. }
        | Verdict::Throttle { failure, .. }
        | Verdict::Fail { failure }
        | Verdict::Stale { failure } => Some(json!(failure)),
        // Only for a snooze that is one too many.
        Verdict::Snooze { .. } => Some(json!(Failure::overslept())),
        Verdict::Succeed | Verdict::Await | Verdict::HandBack => None,
    }
}

/// Where a job stands that this settlement did not change.
pub(super) struct Found {
    pub(super) state: State,
    pub(super) settled_by: Option<Uuid>,
    pub(super) delete_asked: bool,
}

/// The answer to each of a batch: by job and token what was settled, by job where the others stand.
pub(super) fn answers(
    batch: &[Settlement],
    settled: &HashMap<(Uuid, Uuid), State>,
    others: &HashMap<Uuid, Found>,
) -> Vec<Result<State, SettleError>> {
    let answer = |settlement: &Settlement| {
        let (job, token) = (settlement.lease.job.0, settlement.lease.token.0);
        match (settled.get(&(job, token)), others.get(&job)) {
            (Some(state), _) => Ok(*state),
            // Asked before, and the answer was lost: it stands.
            (None, Some(found)) if found.settled_by == Some(token) => Ok(found.state),
            (None, Some(found)) if !(found.delete_asked && found.state.is_terminal()) => {
                Err(SettleError::LeaseLost(Some(found.state)))
            }
            (None, _) => Err(SettleError::LeaseLost(None)),
        }
    };
    batch.iter().map(answer).collect()
}
