//! What each call must answer, said before it is asked.

mod claim;
mod control;
mod hold;
mod keep;
mod tell;
mod view;

use std::time::Duration;

use mapae::job::event::EventKind;
use mapae::job::lease::{Holder, Lease};
use mapae::job::name::JobId;
use mapae::job::record::{Checkpoint, NewJob, Output, Progress};
use mapae::job::retry::Verdict;
use mapae::job::timestamp::Timestamp;
use mapae::job::{Effect, Life, Refused, State, Status, Step};
use mapae::store::contract::Scope;

pub(super) use self::tell::Standing;
use super::Walk;

/// Longer than a walk takes, shorter than any of its durations.
const SLACK: Duration = Duration::from_secs(3600);

/// A job as it must be.
pub(super) struct Known {
    pub(super) new: NewJob,
    life: Life,
    /// Pruned or buried: as if it had never been.
    gone: bool,
    events: Vec<(EventKind, Option<u32>)>,
    /// So many of its events stood before the receiver at some time.
    spread: u64,
    finished_at: Option<Timestamp>,
    failure: Option<(String, u32)>,
    progress: Option<Progress>,
    checkpoints: Vec<Checkpoint>,
    output: Option<Output>,
}

/// A lease that was given once.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) known: usize,
    pub(super) lease: Lease,
}

impl Known {
    fn readable(&self) -> bool {
        !self.gone && !self.life.delete_asked
    }

    fn within(&self, scope: &Scope) -> bool {
        self.readable() && scope.owner().is_none_or(|owner| owner == self.new.owner.as_str())
    }

    fn holder(&self) -> Option<&Holder> {
        match &self.life.status {
            Status::Running { holder, .. } if !self.gone => Some(holder),
            _ => None,
        }
    }

    fn hint(&self) -> Option<u32> {
        match self.life.status {
            Status::Pending { hint, .. } if !self.gone => Some(hint),
            _ => None,
        }
    }

    /// Its pointer was dropped, and a keeper is to ring anew.
    fn unring(&mut self) {
        if self.hint().is_some() {
            self.life.status = Status::Pending { hint: 0, ring_at: self.life.due_at };
        }
    }

    fn overdue(&self, now: Timestamp) -> bool {
        self.life.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Takes the step where the pure function does, and keeps what follows from it.
    fn take(&mut self, step: &Step, now: Timestamp) -> Result<Vec<Effect>, Refused> {
        let before = self.life.clone();
        let (life, effects) = before.after(step, now)?;
        self.life = life;
        for effect in &effects {
            let Effect::Event(event) = effect else { continue };
            let attempt = match event {
                EventKind::Claimed => Some(self.life.attempt),
                _ if before.state() == State::Running => Some(before.attempt),
                _ => None,
            };
            self.events.push((*event, attempt));
            match event {
                EventKind::Claimed => self.progress = None,
                // What went wrong before it went right is told by its events.
                EventKind::Succeeded => (self.failure, self.finished_at) = (None, Some(now)),
                EventKind::Retrying if matches!(step, Step::Reap { .. }) => {
                    self.failure = Some(("completion-overdue".into(), before.attempt));
                }
                EventKind::Lost => self.failure = Some(("worker-lost".into(), before.attempt)),
                EventKind::Redriven => self.finished_at = None,
                end if end.is_terminal() => self.finished_at = Some(now),
                _ => {}
            }
        }
        let ended = |state| self.life.state() == state;
        match step {
            Step::Settle {
                verdict:
                    Verdict::Retry { failure, .. }
                    | Verdict::Throttle { failure, .. }
                    | Verdict::Fail { failure }
                    | Verdict::Stale { failure },
                ..
            } if !ended(State::Cancelled) => {
                self.failure = Some((failure.code.clone(), before.attempt));
            }
            Step::Settle { verdict: Verdict::Snooze { .. }, .. } if ended(State::Failed) => {
                self.failure = Some(("snoozed-too-long".into(), before.attempt));
            }
            Step::Claim { .. } | Step::Expire | Step::Reap { .. } if ended(State::Failed) => {
                let spent = before.state() == State::Running && before.attempt >= before.attempts_max;
                let lent = matches!(&before.status, Status::Running { holder, .. } if holder.is_service());
                let code = match (spent, step) {
                    (true, Step::Reap { .. }) if lent => "completion-overdue",
                    (true, _) => "worker-lost",
                    (false, _) => "deadline-passed",
                };
                self.failure = Some((code.into(), before.attempt));
            }
            _ => {}
        }
        Ok(effects)
    }
}

#[derive(Debug, PartialEq)]
enum Answer {
    Run,
    Finished(State),
    Failed,
    NotDue(Timestamp),
    Busy(Timestamp),
    Paused,
    Cancelled,
    Stale,
    Foreign,
}

impl Walk<'_> {
    /// A moment the store told, as the walk counts time.
    fn told(&self, at: Timestamp) -> Timestamp {
        at + self.harness.shifted()
    }

    fn assert_at(&self, what: &str, told: Timestamp, expected: Timestamp) {
        let told = self.told(told);
        let apart = told.since(expected).max(expected.since(told));
        assert!(apart < SLACK, "{what}: {told} instead of {expected}");
    }

    fn name(&self, id: JobId) -> String {
        let known = self.jobs.iter().position(|known| known.new.id == id);
        known.map_or("an unknown job".into(), |known| format!("job {known}"))
    }

    fn known(&self, id: JobId) -> usize {
        self.jobs.iter().position(|known| known.new.id == id).expect("no job from nowhere")
    }

    fn near(&self, told: Timestamp, expected: Timestamp) -> bool {
        let told = self.told(told);
        told.since(expected).max(expected.since(told)) < SLACK
    }
}
