//! The life of a job: its states, and the one function that leads from one to the next.
//!
//! ```text
//!                  accept
//!                    │
//!                    ▼         claim (attempt + 1, epoch + 1, new token)
//!    ┌──────────► pending ────────────────────────────► running
//!    │               │                                     │
//!    │               │ cancel                              ├─ succeed ───► succeeded
//!    │               ├────────► cancelled ◄── cancel ──────┤
//!    │               │ target gone                         ├─ fail ──────► failed
//!    │               ├────────► stale ◄──── target gone ───┤
//!    │               │ deadline passed                     ├─ retry, budget spent ► failed
//!    │               └────────► failed                     │
//!    └─────────────────────────────────────────────────────┘
//!         retry, throttle, snooze, hand back, or the lease ran out
//! ```
//!
//! [`Life::after`] is pure: no I/O, no clock, no randomness. The stores say the same in SQL, each
//! transition one statement with its guard in the `where` clause, and are walked beside this function
//! in the conformance suite; the model checker explores it as it stands.
//!
//! Not here: who calls it, when, and what is told to whom ([`Effect`] only names it).

pub mod batch;
pub mod event;
pub mod follow;
pub mod lease;
pub mod limit;
pub mod name;
pub mod record;
pub mod resource;
pub mod retry;
pub mod rota;
pub mod schedule;
pub mod timestamp;
pub mod unique;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::batch::{AWAIT, AWAITED};
use self::event::EventKind;
use self::lease::{Holder, Token};
use self::retry::{SNOOZES_MAX, THROTTLES_MAX, Verdict};
use self::timestamp::Timestamp;

/// What a job's row says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Pending,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    Stale,
}

impl State {
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled, Self::Stale];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Stale => "stale",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// Where a job stands. Each state carries exactly what is true in it and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Pending {
        /// How often a pointer to it has been handed out since it became pending; 0 while the row is
        /// still its own outbox.
        hint: u32,
        /// When a pointer has to be handed out (again).
        ring_at: Timestamp,
    },
    Running {
        holder: Holder,
        token: Token,
        until: Timestamp,
        cancel_asked: bool,
    },
    Ended(End),
}

/// The four ways a job ends. It ends in exactly one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    Succeeded,
    Failed,
    Cancelled,
    Stale,
}

/// The part of a job's row that transitions read and write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    pub status: Status,
    /// Attempts used of `attempts_max`. Counted by a claim and by nothing else.
    pub attempt: u32,
    pub attempts_max: u32,
    pub epoch: u64,
    pub due_at: Timestamp,
    pub deadline: Option<Timestamp>,
    pub throttled: u32,
    pub snoozed: u32,
    pub redrives: u32,
    /// Events written so far.
    pub sequence: u64,
    /// The token whose holder last settled the job: a settle whose answer was lost is asked again by it.
    pub settled_by: Option<Token>,
    /// Deleted by its owner: unreadable from now on, buried once it has ended.
    pub delete_asked: bool,
}

/// What is asked of a job. Times and random numbers are the caller's; `now` is the database's.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// T2, T8: hand out a pointer, and again after `again` if nobody has claimed by then.
    Ring { again: Duration },
    /// T3, T3b, T3c.
    Claim { holder: Holder, token: Token, lease: Duration },
    /// T4. Also the guard of progress, which extends nothing (`lease` zero).
    Renew { token: Token, lease: Duration },
    /// A stage is done and its output kept.
    Stage { token: Token },
    /// The lease goes to the service that accepted the work, for so long. Asked again, nothing changes.
    Lend { token: Token, until: Duration },
    /// T5, T6, T6b, snoozing, waiting for a batch and handing back.
    Settle { token: Token, verdict: Verdict },
    /// T7, run by a keeper for a lease that ran out or (`gone`) whose holder is known to be gone.
    Reap { gone: bool, delay: Duration },
    /// T9: the holder of a name ends the leases of its earlier lives.
    Vacate { name: String, incarnation: uuid::Uuid },
    /// The deadline of a job that nobody runs has passed.
    Expire,
    /// All parts of the batch have ended that a pending job waits for.
    Wake,
    /// T10.
    Cancel,
    /// T11.
    Delete,
    /// T13.
    Redrive,
}

/// What has become true beside the job's own row, in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Event(EventKind),
    /// The result becomes visible.
    Result,
    /// A pointer goes out after the commit.
    Ring,
}

/// Why a step was not taken. The job is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the lease is lost: the job is {state} and its token is another", state = .0.as_str())]
    LeaseLost(State),
    #[error("this lease has settled the job already: it is {state}", state = .0.as_str())]
    SettledAlready(State),
    #[error("the job is running under a live lease until {0}")]
    Busy(Timestamp),
    #[error("the job is not due until {0}")]
    NotDue(Timestamp),
    #[error("a job that is {from} cannot be asked to {step}", from = .from.as_str())]
    Illegal { from: State, step: &'static str },
}

impl Status {
    fn pending(ring_at: Timestamp) -> Self {
        Self::Pending { hint: 0, ring_at }
    }
}

impl Life {
    /// T1: a job as it is accepted.
    pub fn accepted(due_at: Timestamp, attempts_max: u32, deadline: Option<Timestamp>) -> Self {
        assert!(attempts_max > 0, "a job has at least one attempt");
        Self {
            status: Status::pending(due_at),
            attempt: 0,
            attempts_max,
            epoch: 0,
            due_at,
            deadline,
            throttled: 0,
            snoozed: 0,
            redrives: 0,
            sequence: 1,
            settled_by: None,
            delete_asked: false,
        }
    }

    pub fn state(&self) -> State {
        match &self.status {
            Status::Pending { .. } => State::Pending,
            Status::Running { .. } => State::Running,
            Status::Ended(End::Succeeded) => State::Succeeded,
            Status::Ended(End::Failed) => State::Failed,
            Status::Ended(End::Cancelled) => State::Cancelled,
            Status::Ended(End::Stale) => State::Stale,
        }
    }

    /// The one transition function: the job after `step`, and what else has become true; or why not.
    pub fn after(&self, step: &Step, now: Timestamp) -> Result<(Self, Vec<Effect>), Refused> {
        let mut next = self.clone();
        let mut effects = Vec::new();
        match (&self.status, step) {
            (Status::Pending { hint, ring_at }, Step::Ring { again }) => {
                let wait_until = self.due_at.max(*ring_at);
                if now < wait_until {
                    return Err(Refused::NotDue(wait_until));
                }
                next.status = Status::Pending { hint: hint + 1, ring_at: now + *again };
                effects.push(Effect::Ring);
            }

            (Status::Pending { .. }, Step::Claim { holder, token, lease }) => {
                if self.overdue(now) {
                    next.end(End::Failed, &mut effects);
                } else if now < self.due_at {
                    return Err(Refused::NotDue(self.due_at));
                } else {
                    next.start(holder, *token, now + *lease, &mut effects);
                }
            }
            // A lease that ran out is found by whoever comes first, keeper or claimer. What the reaper
            // would have made of the job is made of it here, except that it need not wait.
            (Status::Running { until, cancel_asked, .. }, Step::Claim { holder, token, lease }) => {
                if now < *until {
                    return Err(Refused::Busy(*until));
                }
                match self.fate_of_lost(*cancel_asked, now) {
                    Some(end) => next.end(end, &mut effects),
                    None => {
                        next.tell(EventKind::Lost, &mut effects);
                        next.start(holder, *token, now + *lease, &mut effects);
                    }
                }
            }

            (Status::Running { holder, token: mine, cancel_asked, until }, Step::Renew { token, lease }) => {
                if mine != token {
                    return Err(self.lost());
                }
                next.status = Status::Running {
                    holder: holder.clone(),
                    token: *mine,
                    until: (*until).max(now + *lease),
                    cancel_asked: *cancel_asked,
                };
            }

            (Status::Running { token: mine, .. }, Step::Stage { token }) => {
                if mine != token {
                    return Err(self.lost());
                }
                next.tell(EventKind::Stage, &mut effects);
            }

            (Status::Running { holder, token: mine, cancel_asked, .. }, Step::Lend { token, until }) => {
                if mine != token {
                    return Err(self.lost());
                }
                if !holder.is_service() {
                    next.status = Status::Running {
                        holder: Holder::service(),
                        token: *mine,
                        until: now + *until,
                        cancel_asked: *cancel_asked,
                    };
                    next.tell(EventKind::HandedOver, &mut effects);
                }
            }

            (Status::Running { token: mine, cancel_asked, .. }, Step::Settle { token, verdict })
                if mine == token =>
            {
                next.settled_by = Some(*token);
                next.settle(verdict, *cancel_asked, now, &mut effects);
            }

            (Status::Running { holder, until, cancel_asked, .. }, Step::Reap { gone, delay }) => {
                if now < *until && !gone {
                    return Err(Refused::Busy(*until));
                }
                // A service that told no end in time is not a worker that went away.
                let event = if holder.is_service() { EventKind::Retrying } else { EventKind::Lost };
                match self.fate_of_lost(*cancel_asked, now + *delay) {
                    Some(end) => next.end(end, &mut effects),
                    None => next.wait(event, now + *delay, &mut effects),
                }
            }

            (Status::Running { holder, token, cancel_asked, until }, Step::Vacate { name, incarnation }) => {
                if holder.name != *name || holder.incarnation == *incarnation {
                    return Err(Refused::Busy(*until));
                }
                next.status = Status::Running {
                    holder: holder.clone(),
                    token: *token,
                    until: (*until).min(now),
                    cancel_asked: *cancel_asked,
                };
            }

            (Status::Pending { .. }, Step::Expire) => {
                if !self.overdue(now) {
                    return Err(Refused::NotDue(self.deadline.unwrap_or(Timestamp::from_micros(i64::MAX))));
                }
                next.end(End::Failed, &mut effects);
            }

            (Status::Pending { .. }, Step::Wake) if self.due_at >= AWAITED => {
                next.wait(EventKind::BatchEnded, now, &mut effects);
            }

            (Status::Pending { .. }, Step::Cancel) => next.end(End::Cancelled, &mut effects),
            (Status::Running { .. }, Step::Cancel) => next.ask_cancel(&mut effects),

            (Status::Pending { .. }, Step::Delete) => {
                next.end(End::Cancelled, &mut effects);
                next.delete_asked = true;
            }
            (Status::Running { .. }, Step::Delete) => {
                next.ask_cancel(&mut effects);
                next.delete_asked = true;
            }
            (Status::Ended(_), Step::Delete) => next.delete_asked = true,

            (Status::Ended(End::Failed), Step::Redrive) if !self.delete_asked => {
                next.attempt = 0;
                (next.throttled, next.snoozed) = (0, 0);
                next.redrives += 1;
                next.deadline = self.deadline.filter(|deadline| now < *deadline);
                next.wait(EventKind::Redriven, now, &mut effects);
            }

            // Whoever asks with the token that settled the job is answered; any other lost its lease.
            (_, Step::Settle { token, .. }) if self.settled_by == Some(*token) => {
                return Err(Refused::SettledAlready(self.state()));
            }
            (_, Step::Settle { .. } | Step::Renew { .. } | Step::Stage { .. } | Step::Lend { .. }) => {
                return Err(self.lost());
            }

            // Everything else is defined nowhere. The pairs are spelt out, so that a new step or
            // status does not compile until it has been thought about.
            (
                Status::Running { .. } | Status::Ended(_),
                Step::Ring { .. } | Step::Expire | Step::Wake | Step::Redrive,
            )
            | (Status::Pending { .. } | Status::Ended(_), Step::Reap { .. } | Step::Vacate { .. })
            | (Status::Pending { .. }, Step::Wake | Step::Redrive)
            | (Status::Ended(_), Step::Claim { .. } | Step::Cancel) => {
                return Err(Refused::Illegal { from: self.state(), step: step.name() });
            }
        }
        next.check();
        Ok((next, effects))
    }

    /// What must hold in every row. Kept on in release: a violation stops before it is written.
    pub fn check(&self) {
        assert!(self.attempt <= self.attempts_max, "no more attempts than the budget");
        assert!(self.sequence > 0, "a job begins with an event");
        if let Status::Pending { .. } = self.status {
            assert!(self.attempt < self.attempts_max, "a pending job has an attempt left");
            assert!(!self.delete_asked, "a deleted job does not wait");
        }
        if let Status::Running { .. } = self.status {
            assert!(self.attempt > 0 && self.epoch > 0, "a running job was claimed");
        }
    }

    fn overdue(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    fn lost(&self) -> Refused {
        Refused::LeaseLost(self.state())
    }

    /// How a job whose worker was lost ends, if it does.
    fn fate_of_lost(&self, cancel_asked: bool, next_start: Timestamp) -> Option<End> {
        if cancel_asked {
            return Some(End::Cancelled);
        }
        (self.attempt >= self.attempts_max || self.overdue(next_start)).then_some(End::Failed)
    }

    fn settle(&mut self, verdict: &Verdict, cancel_asked: bool, now: Timestamp, effects: &mut Vec<Effect>) {
        if cancel_asked {
            return self.end(End::Cancelled, effects);
        }
        match verdict {
            Verdict::Succeed => {
                effects.push(Effect::Result);
                self.end(End::Succeeded, effects);
            }
            Verdict::Fail { .. } => self.end(End::Failed, effects),
            Verdict::Stale { .. } => self.end(End::Stale, effects),
            Verdict::Retry { delay, .. } => {
                if self.attempt >= self.attempts_max || self.overdue(now + *delay) {
                    return self.end(End::Failed, effects);
                }
                self.wait(EventKind::Retrying, now + *delay, effects);
            }
            Verdict::Throttle { delay, .. } => {
                if self.throttled >= THROTTLES_MAX || self.overdue(now + *delay) {
                    return self.end(End::Failed, effects);
                }
                self.attempt -= 1;
                self.throttled += 1;
                self.wait(EventKind::Throttled, now + *delay, effects);
            }
            Verdict::Snooze { delay } => {
                if self.snoozed >= SNOOZES_MAX || self.overdue(now + *delay) {
                    return self.end(End::Failed, effects);
                }
                self.attempt -= 1;
                self.snoozed += 1;
                self.wait(EventKind::Snoozed, now + *delay, effects);
            }
            // A deadline does not keep it from waiting: whoever finds it passed fails the job.
            Verdict::Await => {
                self.attempt -= 1;
                self.wait(EventKind::Awaiting, now + AWAIT, effects);
            }
            Verdict::HandBack => {
                self.attempt -= 1;
                self.wait(EventKind::Released, now, effects);
            }
        }
    }

    fn start(&mut self, holder: &Holder, token: Token, until: Timestamp, effects: &mut Vec<Effect>) {
        self.attempt += 1;
        self.epoch += 1;
        self.status = Status::Running { holder: holder.clone(), token, until, cancel_asked: false };
        self.tell(EventKind::Claimed, effects);
    }

    fn wait(&mut self, why: EventKind, due_at: Timestamp, effects: &mut Vec<Effect>) {
        self.due_at = due_at;
        self.status = Status::pending(due_at);
        self.tell(why, effects);
    }

    fn end(&mut self, end: End, effects: &mut Vec<Effect>) {
        self.status = Status::Ended(end);
        self.tell(
            match end {
                End::Succeeded => EventKind::Succeeded,
                End::Failed => EventKind::Failed,
                End::Cancelled => EventKind::Cancelled,
                End::Stale => EventKind::Stale,
            },
            effects,
        );
    }

    fn ask_cancel(&mut self, effects: &mut Vec<Effect>) {
        let Status::Running { cancel_asked, .. } = &mut self.status else { return };
        if !std::mem::replace(cancel_asked, true) {
            self.tell(EventKind::CancelRequested, effects);
        }
    }

    fn tell(&mut self, event: EventKind, effects: &mut Vec<Effect>) {
        self.sequence += 1;
        effects.push(Effect::Event(event));
    }
}

impl Step {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ring { .. } => "ring",
            Self::Claim { .. } => "claim",
            Self::Renew { .. } => "renew",
            Self::Stage { .. } => "stage",
            Self::Lend { .. } => "lend",
            Self::Settle { .. } => "settle",
            Self::Reap { .. } => "reap",
            Self::Vacate { .. } => "vacate",
            Self::Expire => "expire",
            Self::Wake => "wake",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
            Self::Redrive => "redrive",
        }
    }
}

#[cfg(test)]
mod tests;
