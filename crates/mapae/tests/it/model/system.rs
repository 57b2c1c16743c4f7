//! The world around a job's row: broker, workers, keeper, API, and what goes wrong among them.
//!
//! Only the rows change by [`Life::after`](mapae::job::Life::after); everything else is modelled here.
//! A pointer in the broker is there, with a worker, or gone; order means nothing, so every order is
//! covered. A worker runs one job at a time. Faults, and what only people want (cancel, delete …), come
//! out of one budget, so that every combination of so many is explored.

use mapae::job::retry::{Failure, Verdict};

use super::explore::{System, Way};
use super::law::{Flaw, Law};
use super::moves::Moves;
use super::row::{Row, Stands, TICK};

pub(super) const JOBS: usize = 2;
pub(super) const WORKERS: usize = 2;
/// Pointers to one job at a time; more are as good as these.
pub(super) const PLACES: usize = 2;

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
pub(super) enum Entry {
    Unborn,
    Row(Row),
    Buried,
}

/// What really happened to a job, for comparison with what its row says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Books {
    /// Runs begun and not given back, since the last redrive.
    pub(super) spent: u8,
    pub(super) ends: u8,
    pub(super) results: u8,
    pub(super) calls: u8,
    pub(super) cancel_promised: bool,
    pub(super) deleted: bool,
    /// Events in the outbox.
    pub(super) unsent: u8,
    /// The lowest of them is sent and not yet marked, or the other way round.
    pub(super) sending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pointer {
    None,
    Ready,
    With(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Job {
    pub(super) entry: Entry,
    pub(super) pointers: [Pointer; PLACES],
    pub(super) books: Books,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Health {
    Alive,
    Frozen,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
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
pub(super) enum Word {
    Succeed,
    Retry,
    Throttle,
    Snooze,
    Fail,
    Stale,
    HandBack,
}

/// The pointer a worker had is not in the broker any more.
pub(super) const GONE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) health: Health,
    pub(super) task: Task,
    pub(super) job: u8,
    pub(super) place: u8,
    pub(super) epoch: u8,
    pub(super) attempt: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) jobs: [Job; JOBS],
    pub(super) workers: [Worker; WORKERS],
    /// The job, plus one, whose pointer is about to be published.
    pub(super) publishing: u8,
    /// The job, plus one, whose lease the keeper has seen run out.
    pub(super) reaping: u8,
    pub(super) faults_left: u8,
}

pub(super) const IDLE: Worker =
    Worker { health: Health::Alive, task: Task::Idle, job: 0, place: 0, epoch: 0, attempt: 0 };

impl Worker {
    pub(super) fn idle(self) -> Self {
        Self { health: self.health, ..IDLE }
    }

    pub(super) fn holds(&self, job: usize, place: usize) -> bool {
        self.task != Task::Idle && usize::from(self.job) == job && usize::from(self.place) == place
    }

    pub(super) fn runs(&self, job: usize, epoch: u8) -> bool {
        matches!(self.task, Task::Leased | Task::Working | Task::Called | Task::Staged | Task::Asking(_))
            && usize::from(self.job) == job
            && self.epoch == epoch
    }
}

pub(super) fn verdict(word: Word) -> Verdict {
    let failure = Failure::retryable("", "");
    match word {
        Word::Succeed => Verdict::Succeed,
        Word::Retry => Verdict::Retry { failure, delay: TICK },
        Word::Throttle => Verdict::Throttle { failure, delay: TICK },
        Word::Snooze => Verdict::Snooze { delay: TICK },
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

/// A pointer is in the broker. Where all places are taken there are enough.
pub(super) fn publish(state: &mut State, job: usize) {
    if let Some(place) = state.jobs[job].pointers.iter_mut().find(|place| **place == Pointer::None) {
        *place = Pointer::Ready;
    }
}

/// A pointer is no more, whoever has it.
pub(super) fn remove(state: &mut State, job: usize, place: usize) {
    state.jobs[job].pointers[place] = Pointer::None;
    for worker in &mut state.workers {
        if worker.holds(job, place) {
            worker.place = GONE;
        }
    }
}

/// By its id, whoever holds it now: that is what streams do.
pub(super) fn acknowledge(state: &mut State, worker: usize) {
    let Worker { job, place, .. } = state.workers[worker];
    if place != GONE {
        remove(state, job.into(), place.into());
    }
}
