//! How a way on is made: the step as the pure function takes it, checked against the books.

use mapae::job::event::EventKind;
use mapae::job::retry::Verdict;
use mapae::job::{Effect, End, Life, Refused, Status, Step};

use super::explore::Way;
use super::law::{Flaw, Law};
use super::row::{NOW, Row, Stands};
use super::system::{Books, Entry, Plan, State};

/// The ways on from one state.
pub(super) struct Moves<'a> {
    pub(super) plan: &'a Plan,
    pub(super) from: State,
    pub(super) ways: &'a mut Vec<Way<State, Law>>,
}

/// One way on while it is being made.
pub(super) struct Next {
    pub(super) state: State,
    pub(super) broken: Option<Law>,
}

impl Moves<'_> {
    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.plan.flaws.contains(&flaw)
    }

    pub(super) fn next(&self) -> Next {
        Next { state: self.from, broken: None }
    }

    pub(super) fn may(&self, fault: u32) -> bool {
        self.plan.faults & fault != 0 && self.from.faults_left > 0
    }

    pub(super) fn row(&self, job: usize) -> Option<Row> {
        match self.from.jobs[job].entry {
            Entry::Row(row) => Some(row),
            Entry::Unborn | Entry::Buried => None,
        }
    }

    pub(super) fn add(&mut self, name: &'static str, of: (Option<usize>, Option<usize>), next: Next) {
        self.push(name, of, next, false);
    }

    /// A way that comes out of the budget.
    pub(super) fn add_fault(
        &mut self,
        name: &'static str,
        of: (Option<usize>, Option<usize>),
        mut next: Next,
    ) {
        next.state.faults_left -= 1;
        self.push(name, of, next, true);
    }

    pub(super) fn push(
        &mut self,
        name: &'static str,
        of: (Option<usize>, Option<usize>),
        next: Next,
        fault: bool,
    ) {
        let broken = next.broken.filter(|law| self.plan.watched.is_none_or(|watched| watched == *law));
        if next.state != self.from || broken.is_some() {
            let small = |number: Option<usize>| number.map(|number| number as u8);
            self.ways.push(Way { to: next.state, name, of: (small(of.0), small(of.1)), fault, broken });
        }
    }

    /// The step as the pure function takes it, written and checked.
    pub(super) fn take(&self, next: &mut Next, job: usize, step: &Step) -> Result<Vec<Effect>, Refused> {
        let Entry::Row(row) = next.state.jobs[job].entry else {
            unreachable!("callers look whether there is a row")
        };
        self.take_from(next, job, row.life(self.plan.attempts), step)
    }

    /// The step taken from a life that a flaw may have made up.
    pub(super) fn take_from(
        &self,
        next: &mut Next,
        job: usize,
        life: Life,
        step: &Step,
    ) -> Result<Vec<Effect>, Refused> {
        let (after, effects) = life.after(step, NOW)?;
        let events = effects.iter().filter(|effect| matches!(effect, Effect::Event(_))).count() as u8;
        if after.sequence != life.sequence + u64::from(events) {
            next.broken = Some(Law::Events);
        }
        let Entry::Row(before) = next.state.jobs[job].entry else {
            unreachable!("callers look whether there is a row")
        };
        let row = Row::of(&after);
        let books = &mut next.state.jobs[job].books;
        if self.plan.relay {
            books.unsent += events;
        }
        let put_off = matches!(
            step,
            Step::Settle {
                verdict: Verdict::Throttle { .. } | Verdict::Snooze { .. } | Verdict::HandBack,
                ..
            }
        );
        if put_off && row.stands == Stands::Pending {
            books.spent = books.spent.saturating_sub(1);
        }
        if *step == Step::Redrive {
            *books = Books {
                unsent: books.unsent,
                sending: books.sending,
                calls: books.calls,
                ..Books::default()
            };
        }
        books.spent +=
            effects.iter().filter(|effect| **effect == Effect::Event(EventKind::Claimed)).count() as u8;
        next.state.jobs[job].entry = Entry::Row(row);
        self.judge(next, job, before, row, step, &effects);
        Ok(effects)
    }

    pub(super) fn judge(
        &self,
        next: &mut Next,
        job: usize,
        before: Row,
        row: Row,
        step: &Step,
        effects: &[Effect],
    ) {
        let books = &mut next.state.jobs[job].books;
        let was_ended = matches!(before.stands, Stands::Ended(_));
        let is_ended = matches!(row.stands, Stands::Ended(_));
        let told_end =
            effects.iter().any(|effect| matches!(effect, Effect::Event(event) if event.is_terminal()));
        books.ends += u8::from(told_end);
        books.results += u8::from(effects.contains(&Effect::Result));
        let broken = if books.ends > 1 || (was_ended && !is_ended && *step != Step::Redrive) {
            Law::OneEnd
        } else if books.results > 1 || (books.results == 1) != (row.stands == Stands::Ended(End::Succeeded)) {
            Law::OneResult
        } else if row.attempt != books.spent || row.attempt > self.plan.attempts {
            Law::Attempts
        } else if books.cancel_promised && row.stands == Stands::Ended(End::Succeeded) {
            Law::Cancel
        } else if books.deleted && effects.contains(&Effect::Event(EventKind::Claimed)) {
            Law::Deleted
        } else {
            return;
        };
        let watched = self.plan.watched;
        if next.broken.is_none() || watched == Some(broken) {
            next.broken = Some(broken);
        }
    }

    /// A write of the running side: the token is the worker's, unless a flaw says otherwise.
    pub(super) fn write(
        &self,
        next: &mut Next,
        worker: usize,
        step: impl Fn(u8) -> Step,
    ) -> Result<Vec<Effect>, Refused> {
        let mine = self.from.workers[worker];
        let job = usize::from(mine.job);
        let Entry::Row(row) = next.state.jobs[job].entry else {
            return Err(Refused::LeaseLost(mapae::job::State::Cancelled));
        };
        let running = row.stands == Stands::Running;
        let mut life = row.life(self.plan.attempts);
        let by_attempt = self.has(Flaw::TokenIsAttempt) && row.attempt == mine.attempt;
        let epoch = if running && (self.has(Flaw::NoFence) || by_attempt) { row.epoch } else { mine.epoch };
        if self.has(Flaw::UnconditionalWrite) {
            let forged = Row {
                stands: Stands::Running,
                epoch: mine.epoch,
                attempt: row.attempt.max(1),
                cancel_asked: row.cancel_asked || row.delete_asked,
                ..row
            };
            life = forged.life(self.plan.attempts);
        }
        if let (true, Status::Running { cancel_asked, .. }) =
            (self.has(Flaw::CancelNotReread), &mut life.status)
        {
            *cancel_asked = false;
        }
        let effects = self.take_from(next, job, life, &step(epoch))?;
        if !(running && row.epoch == mine.epoch)
            && next.broken.is_none_or(|_| self.plan.watched == Some(Law::Fence))
        {
            next.broken = Some(Law::Fence);
        }
        Ok(effects)
    }
}
