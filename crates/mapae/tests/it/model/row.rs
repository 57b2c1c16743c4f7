//! A job's row in a few bytes, and back.
//!
//! Time has no length here: a moment has passed or it has not, and when it passes is an action of its
//! own. So every time in a [`Life`] is [`NOW`] or one [`TICK`] later, and a token is its epoch.

use std::time::Duration;

use mapae::job::lease::{Holder, Token};
use mapae::job::timestamp::Timestamp;
use mapae::job::{End, Life, Status};
use uuid::Uuid;

pub(super) const NOW: Timestamp = Timestamp::from_micros(1_000);
pub(super) const TICK: Duration = Duration::from_micros(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stands {
    Pending,
    Running,
    Ended(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) stands: Stands,
    pub(super) rung: bool,
    /// When to ring (again) has come.
    pub(super) ring_passed: bool,
    pub(super) due_passed: bool,
    /// The lease has run out.
    pub(super) lease_passed: bool,
    pub(super) holder: u8,
    /// The holder is an earlier life of that worker.
    pub(super) former: bool,
    pub(super) cancel_asked: bool,
    pub(super) delete_asked: bool,
    pub(super) attempt: u8,
    pub(super) epoch: u8,
    pub(super) throttled: u8,
    pub(super) snoozed: u8,
    pub(super) redrives: u8,
    /// The epoch of the lease that settled it last, 0 where none did.
    pub(super) settled_by: u8,
    /// 0: none; 1: to come; 2: passed.
    pub(super) deadline: u8,
}

pub(super) fn token(epoch: u8) -> Token {
    Token(Uuid::from_u128(epoch.into()))
}

pub(super) fn holder(worker: u8, former: bool) -> Holder {
    const NAMES: [&str; 2] = ["a", "b"];
    Holder { name: NAMES[usize::from(worker)].into(), incarnation: incarnation(former) }
}

pub(super) fn incarnation(former: bool) -> Uuid {
    Uuid::from_u128(if former { 1 } else { 2 })
}

fn moment(passed: bool) -> Timestamp {
    if passed { NOW } else { NOW + TICK }
}

impl Row {
    pub(super) fn life(&self, attempts_max: u8) -> Life {
        Life {
            status: match self.stands {
                Stands::Pending => {
                    Status::Pending { hint: u32::from(self.rung), ring_at: moment(self.ring_passed) }
                }
                Stands::Running => Status::Running {
                    holder: holder(self.holder, self.former),
                    token: token(self.epoch),
                    until: moment(self.lease_passed),
                    cancel_asked: self.cancel_asked,
                },
                Stands::Ended(end) => Status::Ended(end),
            },
            attempt: self.attempt.into(),
            attempts_max: attempts_max.into(),
            epoch: self.epoch.into(),
            due_at: moment(self.due_passed),
            deadline: match self.deadline {
                0 => None,
                1 => Some(NOW + 2 * TICK),
                _ => Some(NOW),
            },
            throttled: self.throttled.into(),
            snoozed: self.snoozed.into(),
            redrives: self.redrives.into(),
            sequence: 1,
            settled_by: (self.settled_by > 0).then(|| token(self.settled_by)),
            delete_asked: self.delete_asked,
        }
    }

    /// The row of a life. What says nothing in its state is zero, so that equal lives are equal rows.
    pub(super) fn of(life: &Life) -> Self {
        let small = |number: u64| u8::try_from(number).expect("models are small");
        let passed = |at: Timestamp| at <= NOW;
        let ended = life.state().is_terminal();
        let mut row = Self {
            stands: Stands::Pending,
            rung: false,
            ring_passed: true,
            due_passed: ended || passed(life.due_at),
            lease_passed: true,
            holder: 0,
            former: false,
            cancel_asked: false,
            delete_asked: life.delete_asked,
            attempt: small(life.attempt.into()),
            epoch: small(life.epoch),
            throttled: small(life.throttled.into()),
            snoozed: small(life.snoozed.into()),
            redrives: small(life.redrives.into()),
            settled_by: life.settled_by.map_or(0, |token| small(token.0.as_u128() as u64)),
            deadline: life.deadline.map_or(0, |at| if passed(at) { 2 } else { 1 }),
        };
        match &life.status {
            Status::Pending { hint, ring_at } => {
                row.rung = *hint > 0;
                row.ring_passed = passed(*ring_at);
            }
            Status::Running { holder, token, until, cancel_asked } => {
                assert_eq!(token.0.as_u128(), life.epoch.into(), "a token is its epoch here");
                row.stands = Stands::Running;
                row.due_passed = true;
                row.lease_passed = passed(*until);
                row.holder = u8::from(holder.name == "b");
                row.former = holder.incarnation == incarnation(true);
                row.cancel_asked = *cancel_asked;
            }
            Status::Ended(end) => row.stands = Stands::Ended(*end),
        }
        row
    }
}
