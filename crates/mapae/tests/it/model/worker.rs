//! What a worker does, and what befalls it.

use mapae::job::event::EventKind;
use mapae::job::{Effect, Refused, Status, Step};

use super::law::{Flaw, Law, fault};
use super::moves::{Moves, Next};
use super::row::{NOW, Stands, TICK, holder, incarnation, token};
use super::system::{
    Entry, GONE, Health, IDLE, PLACES, Pointer, Task, Word, Worker, acknowledge, remove, verdict,
};

impl Moves<'_> {
    pub(super) fn of_worker(&mut self, worker: usize) {
        let of = (Some(worker), None);
        let me = self.from.workers[worker];
        match me.health {
            Health::Dead => {
                let mut next = self.next();
                next.state.workers[worker] = IDLE;
                if !self.has(Flaw::NoVacate) {
                    let life = holder(worker as u8, false);
                    let step = Step::Vacate { name: life.name, incarnation: incarnation(false) };
                    for job in 0..self.plan.jobs {
                        if self.row(job).is_some() {
                            // Refused where another holds the job, or nobody.
                            let _ = self.take(&mut next, job, &step);
                        }
                    }
                }
                self.add("starts again", of, next);
                return;
            }
            Health::Frozen => {
                let mut next = self.next();
                next.state.workers[worker].health = Health::Alive;
                self.add("thaws", of, next);
                return;
            }
            Health::Alive => {}
        }
        if self.may(fault::CRASH) {
            self.crash(worker);
        }
        if self.may(fault::FREEZE) && me.task != Task::Idle {
            let mut next = self.next();
            next.state.workers[worker].health = Health::Frozen;
            self.add_fault("freezes", of, next);
        }
        match me.task {
            Task::Idle => self.receive(worker),
            Task::Received => self.claim(worker),
            Task::Leased => {
                let mut next = self.next();
                acknowledge(&mut next.state, worker);
                next.state.workers[worker] = Worker { task: Task::Working, place: GONE, ..me };
                self.add("acknowledges and begins", of, next);
            }
            Task::Working | Task::Called | Task::Staged => self.work(worker),
            Task::Asking(word) => {
                self.settle(worker, word, "asks again");
                if self.has(Flaw::UnknownIsDone) {
                    let mut next = self.next();
                    next.state.workers[worker].task = Task::Acking;
                    self.add("takes no answer for done", of, next);
                }
            }
            Task::Telling => {
                let mut next = self.next();
                next.state.workers[worker].task = Task::Acking;
                next.state.jobs[usize::from(me.job)].books.unsent += u8::from(self.plan.relay);
                self.add("writes the event", of, next);
            }
            Task::Acking => {
                let mut next = self.next();
                acknowledge(&mut next.state, worker);
                next.state.workers[worker] = me.idle();
                self.add("acknowledges", of, next);
            }
        }
    }

    pub(super) fn crash(&mut self, worker: usize) {
        let me = self.from.workers[worker];
        let mut next = self.next();
        next.state.workers[worker] = Worker { health: Health::Dead, ..IDLE };
        for job in &mut next.state.jobs {
            if let Entry::Row(row) = &mut job.entry
                && row.stands == Stands::Running
                && usize::from(row.holder) == worker
            {
                row.former = true;
            }
        }
        if me.task == Task::Telling {
            next.broken = Some(Law::Events);
        }
        self.add_fault("is killed", (Some(worker), None), next);
    }

    pub(super) fn receive(&mut self, worker: usize) {
        for job in 0..self.plan.jobs {
            for place in 0..PLACES {
                let name = match self.from.jobs[job].pointers[place] {
                    Pointer::None => continue,
                    Pointer::Ready => "reads a pointer",
                    Pointer::With(owner) if usize::from(owner) == worker => "reads its own pointer again",
                    Pointer::With(owner) => {
                        let other = self.from.workers[usize::from(owner)];
                        let busy = other.health == Health::Alive && other.holds(job, place);
                        if busy && !self.has(Flaw::StealFromLive) {
                            continue;
                        }
                        "takes a pointer over"
                    }
                };
                let mut next = self.next();
                next.state.jobs[job].pointers[place] = Pointer::With(worker as u8);
                next.state.workers[worker] =
                    Worker { task: Task::Received, job: job as u8, place: place as u8, ..IDLE };
                if name == "takes a pointer over"
                    && self.has(Flaw::RedeliveryCounts)
                    && let Entry::Row(row) = &mut next.state.jobs[job].entry
                    && row.stands == Stands::Running
                    && row.attempt < self.plan.attempts
                {
                    row.attempt += 1;
                }
                if self.has(Flaw::AckFirst) {
                    remove(&mut next.state, job, place);
                }
                self.add(name, (Some(worker), Some(job)), next);
            }
        }
    }

    /// Section 4: what a consumer does with a pointer.
    pub(super) fn claim(&mut self, worker: usize) {
        let me = self.from.workers[worker];
        let job = usize::from(me.job);
        let of = (Some(worker), Some(job));
        let mut next = self.next();
        let done = Worker { task: Task::Acking, ..me };
        let Some(row) = self.row(job) else {
            next.state.workers[worker] = done;
            if self.has(Flaw::DeletedRetried) {
                self.put_back(&mut next, worker);
            }
            self.add("finds no job", of, next);
            return;
        };
        let mut life = row.life(self.plan.attempts);
        if let Status::Running { until, .. } = &mut life.status
            && self.has(Flaw::NoLeaseCheck)
        {
            *until = NOW;
        }
        let epoch = row.epoch + 1;
        let step = Step::Claim { holder: holder(worker as u8, false), token: token(epoch), lease: TICK };
        match self.take_from(&mut next, job, life, &step) {
            Err(Refused::Busy(_)) => {
                let acks = self.plan.at_claim || self.has(Flaw::BusyAcked);
                next.state.workers[worker] = if acks { done } else { me.idle() };
                self.add("finds it busy", of, next);
            }
            Err(_) => {
                next.state.workers[worker] = done;
                if self.has(Flaw::DeletedRetried) && row.delete_asked {
                    self.put_back(&mut next, worker);
                }
                self.add("finds it ended or not due", of, next);
            }
            Ok(effects) if effects.contains(&Effect::Event(EventKind::Claimed)) => {
                if row.stands == Stands::Running && !row.lease_passed {
                    next.broken = Some(Law::LiveLease);
                }
                if self.may(fault::LOST_CLAIM) {
                    let mut lost = Next { state: next.state, broken: next.broken };
                    lost.state.workers[worker] = me.idle();
                    self.add_fault("claims and is not answered", of, lost);
                }
                let task = if self.plan.at_claim { Task::Leased } else { Task::Working };
                next.state.workers[worker] = Worker { task, epoch, attempt: row.attempt + 1, ..me };
                self.add("claims", of, next);
            }
            Ok(_) => {
                next.state.workers[worker] = done;
                self.add("ends it instead of claiming", of, next);
            }
        }
    }

    pub(super) fn put_back(&self, next: &mut Next, worker: usize) {
        let me = self.from.workers[worker];
        if me.place != GONE {
            next.state.jobs[usize::from(me.job)].pointers[usize::from(me.place)] = Pointer::Ready;
        }
        next.state.workers[worker] = me.idle();
    }

    pub(super) fn work(&mut self, worker: usize) {
        let me = self.from.workers[worker];
        let of = (Some(worker), Some(usize::from(me.job)));

        // The heartbeat: it learns here that its lease is lost.
        let mut next = self.next();
        let renewed = self.beat(&mut next, worker);
        if renewed || !self.has(Flaw::DeafToLoss) {
            if !renewed {
                next.state.workers[worker] = if self.has(Flaw::AckWhenFenced) {
                    Worker { task: Task::Acking, ..me }
                } else {
                    me.idle()
                };
            }
            self.add(if renewed { "renews" } else { "learns that its lease is lost" }, of, next);
        }

        if me.task == Task::Working {
            let mut next = self.next();
            let books = &mut next.state.jobs[usize::from(me.job)].books;
            books.calls = if self.has(Flaw::CallByAttempt) { books.calls + 1 } else { 1 };
            next.broken = (books.calls > 1).then_some(Law::OneCall);
            next.state.workers[worker].task = Task::Called;
            self.add("calls the outside", of, next);

            for (word, kind) in [
                (Word::Retry, fault::RETRY),
                (Word::Throttle, fault::THROTTLE),
                (Word::Snooze, fault::SNOOZE),
                (Word::Fail, fault::FAIL),
                (Word::Stale, fault::STALE),
                (Word::HandBack, fault::HAND_BACK),
            ] {
                if self.may(kind) {
                    self.settle(worker, word, "settles otherwise");
                }
            }
        }
        if me.task == Task::Called {
            let mut next = self.next();
            let stored = self.write(&mut next, worker, |epoch| Step::Stage { token: token(epoch) }).is_ok();
            next.state.workers[worker] =
                if stored { Worker { task: Task::Staged, ..me } } else { self.fenced_out(worker, false) };
            self.add(if stored { "keeps the stage" } else { "is refused the stage" }, of, next);
        }
        if me.task == Task::Staged {
            self.settle(worker, Word::Succeed, "settles");
        }
    }

    pub(super) fn beat(&self, next: &mut Next, worker: usize) -> bool {
        let me = self.from.workers[worker];
        let job = usize::from(me.job);
        let Some(row) = self.row(job) else { return false };
        let step = Step::Renew { token: token(me.epoch), lease: TICK };
        let renewed = self.take(next, job, &step).is_ok();
        if renewed && !(row.stands == Stands::Running && row.epoch == me.epoch) {
            next.broken = Some(Law::Fence);
        }
        renewed
    }

    /// What a worker does whose write was refused: it drops the result, and acknowledges only what is over.
    pub(super) fn fenced_out(&self, worker: usize, ended: bool) -> Worker {
        let me = self.from.workers[worker];
        if ended || self.has(Flaw::AckWhenFenced) { Worker { task: Task::Acking, ..me } } else { me.idle() }
    }

    pub(super) fn settle(&mut self, worker: usize, word: Word, name: &'static str) {
        let me = self.from.workers[worker];
        let job = usize::from(me.job);
        let of = (Some(worker), Some(job));
        let asked_before = matches!(me.task, Task::Asking(_));
        let unwilling = !asked_before && word != Word::Succeed;
        let mut next = self.next();
        let answer = self
            .write(&mut next, worker, |epoch| Step::Settle { token: token(epoch), verdict: verdict(word) });
        let ended = |refused: &Refused| match refused {
            Refused::LeaseLost(state) | Refused::SettledAlready(state) => state.is_terminal(),
            _ => false,
        };
        match answer {
            Ok(effects) => {
                let told_end = effects
                    .iter()
                    .any(|effect| matches!(effect, Effect::Event(event) if event.is_terminal()));
                next.state.workers[worker].task = Task::Acking;
                if self.has(Flaw::EventAfter) && told_end {
                    next.state.jobs[job].books.unsent -= u8::from(self.plan.relay);
                    next.state.workers[worker].task = Task::Telling;
                }
                if self.has(Flaw::HandBackCounts)
                    && word == Word::HandBack
                    && let Entry::Row(row) = &mut next.state.jobs[job].entry
                    && row.stands == Stands::Pending
                    && row.attempt + 1 < self.plan.attempts
                {
                    row.attempt += 1;
                }
                // Two faults at once: this word and a lost answer.
                let dear = u8::from(unwilling);
                if self.may(fault::LOST_ANSWER) && !asked_before && self.from.faults_left > dear {
                    let mut lost = Next { state: next.state, broken: next.broken };
                    lost.state.workers[worker].task = Task::Asking(word);
                    lost.state.faults_left -= dear;
                    self.add_fault("settles and is not answered", of, lost);
                }
            }
            Err(Refused::SettledAlready(state)) if state != mapae::job::State::Running => {
                next.state.workers[worker].task = Task::Acking;
            }
            Err(Refused::SettledAlready(_)) if self.has(Flaw::AckWhileRunning) => {
                next.state.workers[worker].task = Task::Acking;
            }
            Err(refused) => next.state.workers[worker] = self.fenced_out(worker, ended(&refused)),
        }
        if unwilling {
            self.add_fault(name, of, next);
        } else {
            self.add(name, of, next);
        }
        if self.may(fault::LOST_REQUEST) && !asked_before && word == Word::Succeed {
            let mut lost = self.next();
            lost.state.workers[worker].task = Task::Asking(word);
            self.add_fault("settles and is not heard", of, lost);
        }
    }
}
