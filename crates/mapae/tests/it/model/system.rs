//! The world around a job's row: broker, workers, keeper, API, and what goes wrong among them.
//!
//! Only the rows change by [`Life::after`](mapae::job::Life::after); everything else is modelled here.
//! A pointer in the broker is there, with a worker, or gone; order means nothing, so every order is
//! covered. A worker runs one job at a time. Faults, and what only people want (cancel, delete …), come
//! out of one budget, so that every combination of so many is explored.

use std::time::Duration;

use mapae::job::event::EventKind;
use mapae::job::retry::{Failure, Verdict};
use mapae::job::{Effect, End, Life, Refused, Status, Step};

use super::explore::{System, Way};
use super::row::{NOW, Row, Stands, TICK, holder, incarnation, token};

pub(super) const JOBS: usize = 2;
pub(super) const WORKERS: usize = 2;
/// Pointers to one job at a time; more are as good as these.
const PLACES: usize = 2;

/// What must hold at every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Law {
    /// A result becomes visible once, and only with `succeeded`.
    OneResult,
    /// A job ends once until a person redrives it.
    OneEnd,
    /// Nothing is written under a token that does not stand in the row of a running job.
    Fence,
    /// A lease ends by its holder, its time or its holder's end.
    LiveLease,
    /// Attempts counted are runs begun and not given back.
    Attempts,
    /// Every event is told, in order.
    Events,
    /// What was answered "cancelled" or "asked to stop" does not succeed.
    Cancel,
    /// What was answered "deleted" is shown to nobody and does not start again.
    Deleted,
    /// The outside sees one effect of a stage.
    OneCall,
}

/// What may go wrong, or be wanted. As bits.
pub(super) mod fault {
    pub(in super::super) const CRASH: u32 = 1;
    pub(in super::super) const FREEZE: u32 = 1 << 1;
    /// Heartbeats of a live worker come too late.
    pub(in super::super) const SLOW_BEAT: u32 = 1 << 2;
    /// The settle was committed, its answer was lost.
    pub(in super::super) const LOST_ANSWER: u32 = 1 << 3;
    /// The settle was not committed, and the worker does not know.
    pub(in super::super) const LOST_REQUEST: u32 = 1 << 4;
    pub(in super::super) const LOST_CLAIM: u32 = 1 << 5;
    pub(in super::super) const DUPLICATE: u32 = 1 << 6;
    pub(in super::super) const LOSE_POINTER: u32 = 1 << 7;
    pub(in super::super) const WIPE_BROKER: u32 = 1 << 8;
    /// A keeper, or an API between its commit and its publish, dies.
    pub(in super::super) const KEEPER_CRASH: u32 = 1 << 9;
    /// A live worker is taken for gone.
    pub(in super::super) const FALSE_GONE: u32 = 1 << 10;
    pub(in super::super) const RETRY: u32 = 1 << 11;
    pub(in super::super) const THROTTLE: u32 = 1 << 12;
    pub(in super::super) const FAIL: u32 = 1 << 13;
    pub(in super::super) const STALE: u32 = 1 << 14;
    pub(in super::super) const HAND_BACK: u32 = 1 << 15;
    pub(in super::super) const CANCEL: u32 = 1 << 16;
    pub(in super::super) const DELETE: u32 = 1 << 17;
    pub(in super::super) const REDRIVE: u32 = 1 << 18;
    pub(in super::super) const DEADLINE: u32 = 1 << 19;
    pub(in super::super) const ALL: u32 = (1 << 20) - 1;
}

/// A way of being wrong. Each alters a step of the model, never the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A settle or stage asks only whether the job is running. So does a fence by worker name, for two
    /// slots of one process.
    NoFence,
    /// The attempt's number is the token.
    TokenIsAttempt,
    /// A settle asks nothing.
    UnconditionalWrite,
    /// A claim does not look at the lease.
    NoLeaseCheck,
    /// Pointers are taken from a live consumer, because its name is old.
    StealFromLive,
    /// A pointer to a busy job is acknowledged.
    BusyAcked,
    /// So is the pointer of a run that lost its lease.
    AckWhenFenced,
    /// A restarted worker does not end the leases of its former life.
    NoVacate,
    /// Pointers are acknowledged before they are claimed.
    AckFirst,
    /// The keeper reaps by age and does not look at the lease.
    BlindReap,
    /// The keeper reads which leases ran out, and later writes by id.
    StaleReap,
    /// A redelivery counts an attempt too.
    RedeliveryCounts,
    /// A crash is not an attempt.
    CrashUncounted,
    HandBackCounts,
    /// The last event is written after the transaction.
    EventAfter,
    MarkBeforeSend,
    EventsAnyOrder,
    /// A settle does not look at the cancel flag again.
    CancelNotReread,
    /// Nor does the reaper.
    ReaperForgetsCancel,
    /// The outside is called under the number of the attempt.
    CallByAttempt,
    /// A deleted job is shown until it has ended.
    DeletedShown,
    /// The pointer of a deleted job is put back.
    DeletedRetried,
    PublishBeforeCommit,
    /// A row counts as rung when it is committed.
    NoOutbox,
    /// A settle without an answer is taken for done.
    UnknownIsDone,
    /// A worker that is told its lease is lost goes on.
    DeafToLoss,
    /// An answer to a repeated settle is acknowledged although the job runs again.
    AckWhileRunning,
}

/// Which world is explored.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) jobs: usize,
    pub(super) attempts: u8,
    /// Faults in all.
    pub(super) budget: u8,
    pub(super) faults: u32,
    /// Reaps, expires, and rings what waits.
    pub(super) keeper: bool,
    /// Rings again what was rung and not claimed.
    pub(super) rescan: bool,
    /// Pointers are acknowledged once the row's lease is held.
    pub(super) at_claim: bool,
    pub(super) deadline: bool,
    /// Events are sent from the outbox.
    pub(super) relay: bool,
    pub(super) flaws: &'static [Flaw],
    /// The one law that is watched, where it is not all.
    pub(super) watched: Option<Law>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Unborn,
    Row(Row),
    Buried,
}

/// What really happened to a job, for comparison with what its row says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Books {
    /// Runs begun and not given back, since the last redrive.
    spent: u8,
    ends: u8,
    results: u8,
    calls: u8,
    cancel_promised: bool,
    deleted: bool,
    /// Events in the outbox.
    unsent: u8,
    /// The lowest of them is sent and not yet marked, or the other way round.
    sending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pointer {
    None,
    Ready,
    With(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Job {
    entry: Entry,
    pointers: [Pointer; PLACES],
    books: Books,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Health {
    Alive,
    Frozen,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Idle,
    /// A pointer was read.
    Received,
    /// The row is leased; the pointer is acknowledged before the work begins.
    Leased,
    Working,
    /// The outside has been called.
    Called,
    /// The stage is kept.
    Staged,
    /// A settle was sent and not answered.
    Asking(Word),
    /// The last event is still to be written.
    Telling,
    Acking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    Succeed,
    Retry,
    Throttle,
    Fail,
    Stale,
    HandBack,
}

/// The pointer a worker had is not in the broker any more.
const GONE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Worker {
    health: Health,
    task: Task,
    job: u8,
    place: u8,
    epoch: u8,
    attempt: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    jobs: [Job; JOBS],
    workers: [Worker; WORKERS],
    /// The job, plus one, whose pointer is about to be published.
    publishing: u8,
    /// The job, plus one, whose lease the keeper has seen run out.
    reaping: u8,
    faults_left: u8,
}

const IDLE: Worker =
    Worker { health: Health::Alive, task: Task::Idle, job: 0, place: 0, epoch: 0, attempt: 0 };

impl Worker {
    fn idle(self) -> Self {
        Self { health: self.health, ..IDLE }
    }

    fn holds(&self, job: usize, place: usize) -> bool {
        self.task != Task::Idle && usize::from(self.job) == job && usize::from(self.place) == place
    }

    fn runs(&self, job: usize, epoch: u8) -> bool {
        matches!(self.task, Task::Leased | Task::Working | Task::Called | Task::Staged | Task::Asking(_))
            && usize::from(self.job) == job
            && self.epoch == epoch
    }
}

fn verdict(word: Word) -> Verdict {
    let failure = Failure::retryable("", "");
    match word {
        Word::Succeed => Verdict::Succeed,
        Word::Retry => Verdict::Retry { failure, delay: TICK },
        Word::Throttle => Verdict::Throttle { failure, delay: TICK },
        Word::Fail => Verdict::Fail { failure },
        Word::Stale => Verdict::Stale { failure },
        Word::HandBack => Verdict::HandBack,
    }
}

impl System for Plan {
    type State = State;
    type Law = Law;

    fn begin(&self) -> State {
        let job = Job { entry: Entry::Unborn, pointers: [Pointer::None; PLACES], books: Books::default() };
        let mut jobs = [job; JOBS];
        for unused in &mut jobs[self.jobs..] {
            unused.entry = Entry::Buried;
        }
        State { jobs, workers: [IDLE; WORKERS], publishing: 0, reaping: 0, faults_left: self.budget }
    }

    fn ways(&self, from: &State, ways: &mut Vec<Way<State, Law>>) {
        let mut moves = Moves { plan: self, from: *from, ways };
        for job in 0..self.jobs {
            moves.of_api(job);
            moves.of_keeper(job);
            moves.of_broker(job);
            moves.of_time(job);
        }
        for worker in 0..WORKERS {
            moves.of_worker(worker);
        }
        moves.of_all();
    }

    fn is_finished(&self, state: &State) -> bool {
        let job_done = |job: &Job| {
            let ended = match job.entry {
                Entry::Buried => true,
                Entry::Row(row) => matches!(row.stands, Stands::Ended(_)) && !row.delete_asked,
                Entry::Unborn => false,
            };
            ended && job.pointers == [Pointer::None; PLACES] && job.books.unsent == 0 && !job.books.sending
        };
        state.jobs.iter().all(job_done)
            && state.workers.iter().all(|worker| *worker == IDLE)
            && state.publishing == 0
            && state.reaping == 0
    }
}

/// The ways on from one state.
struct Moves<'a> {
    plan: &'a Plan,
    from: State,
    ways: &'a mut Vec<Way<State, Law>>,
}

/// One way on while it is being made.
struct Next {
    state: State,
    broken: Option<Law>,
}

impl Moves<'_> {
    fn has(&self, flaw: Flaw) -> bool {
        self.plan.flaws.contains(&flaw)
    }

    fn next(&self) -> Next {
        Next { state: self.from, broken: None }
    }

    fn may(&self, fault: u32) -> bool {
        self.plan.faults & fault != 0 && self.from.faults_left > 0
    }

    fn row(&self, job: usize) -> Option<Row> {
        match self.from.jobs[job].entry {
            Entry::Row(row) => Some(row),
            Entry::Unborn | Entry::Buried => None,
        }
    }

    fn add(&mut self, name: &'static str, of: (Option<usize>, Option<usize>), next: Next) {
        self.push(name, of, next, false);
    }

    /// A way that comes out of the budget.
    fn add_fault(&mut self, name: &'static str, of: (Option<usize>, Option<usize>), mut next: Next) {
        next.state.faults_left -= 1;
        self.push(name, of, next, true);
    }

    fn push(&mut self, name: &'static str, of: (Option<usize>, Option<usize>), next: Next, fault: bool) {
        let broken = next.broken.filter(|law| self.plan.watched.is_none_or(|watched| watched == *law));
        if next.state != self.from || broken.is_some() {
            let small = |number: Option<usize>| number.map(|number| number as u8);
            self.ways.push(Way { to: next.state, name, of: (small(of.0), small(of.1)), fault, broken });
        }
    }

    /// The step as the pure function takes it, written and checked.
    fn take(&self, next: &mut Next, job: usize, step: &Step) -> Result<Vec<Effect>, Refused> {
        let Entry::Row(row) = next.state.jobs[job].entry else {
            unreachable!("callers look whether there is a row")
        };
        self.take_from(next, job, row.life(self.plan.attempts), step)
    }

    /// The step taken from a life that a flaw may have made up.
    fn take_from(
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
        let put_off =
            matches!(step, Step::Settle { verdict: Verdict::Throttle { .. } | Verdict::HandBack, .. });
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

    fn judge(&self, next: &mut Next, job: usize, before: Row, row: Row, step: &Step, effects: &[Effect]) {
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
    fn write(
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

    fn of_api(&mut self, job: usize) {
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
    fn accept(&mut self, job: usize) {
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

    fn of_keeper(&mut self, job: usize) {
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

    fn reap(&mut self, job: usize, row: Row) {
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

    fn of_broker(&mut self, job: usize) {
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
    fn relay(&mut self, job: usize) {
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
    fn of_time(&mut self, job: usize) {
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

    fn of_worker(&mut self, worker: usize) {
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

    fn crash(&mut self, worker: usize) {
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

    fn receive(&mut self, worker: usize) {
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
    fn claim(&mut self, worker: usize) {
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

    fn put_back(&self, next: &mut Next, worker: usize) {
        let me = self.from.workers[worker];
        if me.place != GONE {
            next.state.jobs[usize::from(me.job)].pointers[usize::from(me.place)] = Pointer::Ready;
        }
        next.state.workers[worker] = me.idle();
    }

    fn work(&mut self, worker: usize) {
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

    fn beat(&self, next: &mut Next, worker: usize) -> bool {
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
    fn fenced_out(&self, worker: usize, ended: bool) -> Worker {
        let me = self.from.workers[worker];
        if ended || self.has(Flaw::AckWhenFenced) { Worker { task: Task::Acking, ..me } } else { me.idle() }
    }

    fn settle(&mut self, worker: usize, word: Word, name: &'static str) {
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

    /// What happens to everything at once.
    fn of_all(&mut self) {
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

/// A pointer is in the broker. Where all places are taken there are enough.
fn publish(state: &mut State, job: usize) {
    if let Some(place) = state.jobs[job].pointers.iter_mut().find(|place| **place == Pointer::None) {
        *place = Pointer::Ready;
    }
}

/// A pointer is no more, whoever has it.
fn remove(state: &mut State, job: usize, place: usize) {
    state.jobs[job].pointers[place] = Pointer::None;
    for worker in &mut state.workers {
        if worker.holds(job, place) {
            worker.place = GONE;
        }
    }
}

/// By its id, whoever holds it now: that is what streams do.
fn acknowledge(state: &mut State, worker: usize) {
    let Worker { job, place, .. } = state.workers[worker];
    if place != GONE {
        remove(state, job.into(), place.into());
    }
}
