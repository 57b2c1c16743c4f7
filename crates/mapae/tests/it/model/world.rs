//! What API, keeper, broker and time do.

use std::time::Duration;

use mapae::job::{Life, Status, Step};

use super::law::{Flaw, Law, fault};
use super::moves::{Moves, Next};
use super::row::{NOW, Row, Stands, TICK};
use super::system::{Entry, Health, PLACES, Pointer, publish, remove};

impl Moves<'_> {
    pub(super) fn of_api(&mut self, job: usize) {
        let of = (None, Some(job));
        if self.from.jobs[job].entry == Entry::Unborn {
            self.accept(job);
        }
        let Some(row) = self.row(job) else { return };
        let shown =
            !row.delete_asked || (self.has(Flaw::DeletedShown) && !matches!(row.stands, Stands::Ended(_)));
        if self.from.jobs[job].books.deleted && shown {
            let mut next = self.next();
            next.broken = Some(Law::Deleted);
            self.add("the job is read", of, next);
        }
        if self.may(fault::CANCEL) && !row.delete_asked {
            let mut next = self.next();
            if self.take(&mut next, job, &Step::Cancel).is_ok() {
                next.state.jobs[job].books.cancel_promised = true;
                self.add_fault("cancel", of, next);
            }
        }
        if self.may(fault::DELETE) && !row.delete_asked {
            let mut next = self.next();
            if self.take(&mut next, job, &Step::Delete).is_ok() {
                next.state.jobs[job].books.deleted = true;
                self.add_fault("delete", of, next);
            }
        }
        if self.may(fault::REDRIVE) && !row.delete_asked {
            let mut next = self.next();
            if self.take(&mut next, job, &Step::Redrive).is_ok() {
                self.add_fault("redrive", of, next);
            }
        }
    }

    /// T1, and its fast path where no keeper rings.
    pub(super) fn accept(&mut self, job: usize) {
        let of = (None, Some(job));
        let mut next = self.next();
        if self.has(Flaw::PublishBeforeCommit) {
            if self.from.publishing == 0 {
                next.state.publishing = job as u8 + 1;
                publish(&mut next.state, job);
                self.add("publish what is not committed", of, next);
                return;
            }
            if usize::from(self.from.publishing) != job + 1 {
                return;
            }
            next.state.publishing = 0;
        }
        let deadline = self.plan.deadline.then_some(NOW + 2 * TICK);
        let life = Life::accepted(NOW, self.plan.attempts.into(), deadline);
        let mut row = Row::of(&life);
        if self.has(Flaw::PublishBeforeCommit) || self.has(Flaw::NoOutbox) {
            row.rung = true;
            row.ring_passed = false;
        }
        if self.has(Flaw::NoOutbox) {
            if self.from.publishing != 0 {
                return;
            }
            next.state.publishing = job as u8 + 1;
        }
        next.state.jobs[job].entry = Entry::Row(row);
        next.state.jobs[job].books.unsent = u8::from(self.plan.relay);
        self.add("accept", of, next);
    }

    pub(super) fn of_keeper(&mut self, job: usize) {
        let of = (None, Some(job));
        let Some(row) = self.row(job) else { return };
        // Without a keeper only the accepting side rings, once.
        let rings = self.plan.keeper || (row.epoch == 0 && !row.rung);
        if rings && self.from.publishing == 0 {
            let mut next = self.next();
            if self.take(&mut next, job, &Step::Ring { again: TICK }).is_ok() {
                next.state.publishing = job as u8 + 1;
                self.add("ring", of, next);
            }
        }
        if !self.plan.keeper {
            if row.delete_asked && matches!(row.stands, Stands::Ended(_)) {
                let mut next = self.next();
                next.state.jobs[job].entry = Entry::Buried;
                self.add("bury", of, next);
            }
            return;
        }
        let mut next = self.next();
        if self.take(&mut next, job, &Step::Expire).is_ok() {
            self.add("expire", of, next);
        }
        if row.delete_asked && matches!(row.stands, Stands::Ended(_)) {
            let mut next = self.next();
            next.state.jobs[job].entry = Entry::Buried;
            self.add("bury", of, next);
        }
        self.reap(job, row);
    }

    pub(super) fn reap(&mut self, job: usize, row: Row) {
        let of = (None, Some(job));
        if self.has(Flaw::StaleReap) {
            if self.from.reaping == 0 && row.stands == Stands::Running && row.lease_passed {
                let mut next = self.next();
                next.state.reaping = job as u8 + 1;
                self.add("the keeper reads that the lease ran out", of, next);
            }
            if usize::from(self.from.reaping) == job + 1 {
                let mut next = self.next();
                next.state.reaping = 0;
                let forged = Row {
                    stands: Stands::Running,
                    lease_passed: true,
                    attempt: row.attempt.max(1),
                    epoch: row.epoch.max(1),
                    delete_asked: false,
                    ..row
                };
                let life = forged.life(self.plan.attempts);
                let step = Step::Reap { gone: true, delay: Duration::ZERO };
                if self.take_from(&mut next, job, life, &step).is_ok() {
                    self.add("reap by id", of, next);
                }
            }
            return;
        }
        if row.stands != Stands::Running {
            return;
        }
        let dead = row.former || self.from.workers[usize::from(row.holder)].health == Health::Dead;
        let delay = if row.attempt <= 1 { Duration::ZERO } else { TICK };
        for (gone, wrongly) in [(dead, false), (true, true)] {
            let blind = self.has(Flaw::BlindReap);
            if wrongly && (dead || row.lease_passed || !self.may(fault::FALSE_GONE)) {
                continue;
            }
            let mut next = self.next();
            let mut life = row.life(self.plan.attempts);
            if let Status::Running { cancel_asked, .. } = &mut life.status
                && self.has(Flaw::ReaperForgetsCancel)
            {
                *cancel_asked = false;
                life.delete_asked = false;
            }
            if self.has(Flaw::CrashUncounted) {
                life.attempt -= 1;
            }
            if self.take_from(&mut next, job, life, &Step::Reap { gone: gone || blind, delay }).is_err() {
                continue;
            }
            if !wrongly && !gone && !row.lease_passed {
                next.broken = Some(Law::LiveLease);
            }
            if wrongly {
                self.add_fault("reap a live worker's job", of, next);
            } else {
                self.add("reap", of, next);
            }
        }
    }

    pub(super) fn of_broker(&mut self, job: usize) {
        let of = (None, Some(job));
        let not_committed = self.has(Flaw::PublishBeforeCommit) && self.from.jobs[job].entry == Entry::Unborn;
        if usize::from(self.from.publishing) == job + 1 && !not_committed {
            let mut next = self.next();
            next.state.publishing = 0;
            publish(&mut next.state, job);
            self.add("publish", of, next);
        }
        for place in 0..PLACES {
            if self.from.jobs[job].pointers[place] == Pointer::None {
                continue;
            }
            if self.may(fault::LOSE_POINTER) {
                let mut next = self.next();
                remove(&mut next.state, job, place);
                self.add_fault("a pointer is lost", of, next);
            }
            if self.may(fault::DUPLICATE) && self.from.jobs[job].pointers.contains(&Pointer::None) {
                let mut next = self.next();
                publish(&mut next.state, job);
                self.add_fault("a pointer is doubled", of, next);
            }
        }
        if self.from.jobs[job].books.unsent > 0 {
            self.relay(job);
        }
    }

    /// T12: the lowest event is sent, then marked.
    pub(super) fn relay(&mut self, job: usize) {
        let of = (None, Some(job));
        let books = self.from.jobs[job].books;
        let mut next = self.next();
        if books.sending {
            next.state.jobs[job].books.sending = false;
            next.state.jobs[job].books.unsent -= 1;
            self.add("an event is marked as sent", of, next);
            return;
        }
        next.state.jobs[job].books.sending = true;
        self.add("an event is sent", of, next);
        if self.has(Flaw::EventsAnyOrder) && books.unsent > 1 {
            let mut next = self.next();
            next.broken = Some(Law::Events);
            self.add("a later event is sent", of, next);
        }
    }

    /// What the passing of time alone does.
    pub(super) fn of_time(&mut self, job: usize) {
        let of = (None, Some(job));
        let Some(row) = self.row(job) else { return };
        let from = self.from;
        let passes = |row: Row| {
            let mut state = from;
            state.jobs[job].entry = Entry::Row(row);
            Next { state, broken: None }
        };
        match row.stands {
            Stands::Pending if !row.due_passed => {
                let next = passes(Row { due_passed: true, ring_passed: !row.rung || row.ring_passed, ..row });
                self.add("the job is due", of, next);
            }
            Stands::Pending if row.rung && !row.ring_passed && self.plan.rescan => {
                let next = passes(Row { ring_passed: true, ..row });
                self.add("the pointer's age passes", of, next);
            }
            Stands::Running if !row.lease_passed => {
                let holder = self.from.workers[usize::from(row.holder)];
                let beats = !row.former && holder.health == Health::Alive && holder.runs(job, row.epoch);
                let next = passes(Row { lease_passed: true, ..row });
                if !beats {
                    self.add("the lease runs out", of, next);
                } else if self.may(fault::SLOW_BEAT) {
                    self.add_fault("the lease of a live worker runs out", of, next);
                }
            }
            _ => {}
        }
        if row.deadline == 1 && !matches!(row.stands, Stands::Ended(_)) && self.may(fault::DEADLINE) {
            let next = passes(Row { deadline: 2, ..row });
            self.add_fault("the deadline passes", of, next);
        }
    }

    /// What happens to everything at once.
    pub(super) fn of_all(&mut self) {
        if self.may(fault::WIPE_BROKER) {
            let mut next = self.next();
            for job in 0..self.plan.jobs {
                for place in 0..PLACES {
                    remove(&mut next.state, job, place);
                }
            }
            if next.state != self.from {
                self.add_fault("the broker loses everything", (None, None), next);
            }
        }
        let sending = self.from.jobs.iter().any(|job| job.books.sending);
        if self.may(fault::KEEPER_CRASH) && (self.from.publishing > 0 || self.from.reaping > 0 || sending) {
            let mut next = self.next();
            next.state.publishing = 0;
            next.state.reaping = 0;
            for job in &mut next.state.jobs {
                let sent_first = !self.plan.flaws.contains(&Flaw::MarkBeforeSend);
                if std::mem::take(&mut job.books.sending) && !sent_first {
                    next.broken = Some(Law::Events);
                }
            }
            self.add_fault("the keeper is killed", (None, None), next);
        }
    }
}
