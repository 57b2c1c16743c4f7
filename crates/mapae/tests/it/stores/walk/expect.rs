//! What each call must answer, said before it is asked.

use std::collections::BTreeSet;
use std::time::Duration;

use mapae::job::event::EventKind;
use mapae::job::lease::{Holder, Lease, Token};
use mapae::job::name::{JobId, Lane, Owner};
use mapae::job::record::{Checkpoint, Job, NewJob, Output, Progress};
use mapae::job::retry::Verdict;
use mapae::job::timestamp::Timestamp;
use mapae::job::{Effect, Life, Refused, State, Status, Step};
use mapae::store::contract::{
    AcceptError, Accepted, Beat, Claim, ControlError, DOUBLINGS_MAX, EventFilter, Holding, JobFilter,
    LaneQuota, Page, Retention, RingPlan, Scope, SettleError, Settlement,
};
use serde_json::json;

use super::{DAY, WORKERS, Walk};
use crate::stores::{beat, join, soon};

/// Longer than a walk takes, shorter than any of its durations.
const SLACK: Duration = Duration::from_secs(3600);

/// A job as it must be.
pub(super) struct Known {
    pub(super) new: NewJob,
    life: Life,
    /// Pruned or buried: as if it had never been.
    gone: bool,
    events: Vec<(EventKind, Option<u32>)>,
    sent: u64,
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
            Step::Claim { .. } | Step::Expire | Step::Reap { .. } if ended(State::Failed) => {
                let spent = before.state() == State::Running && before.attempt >= before.attempts_max;
                let code = if spent { "worker-lost" } else { "deadline-passed" };
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

    fn first_submission(&self, job: &NewJob) -> Option<&Known> {
        let (key, _) = job.idempotency.as_ref()?;
        self.jobs.iter().find(|known| {
            known.new.owner == job.owner
                && known.new.idempotency.as_ref().is_some_and(|(first, _)| first == key)
        })
    }

    pub(super) fn submitted_before(&self, job: &NewJob) -> bool {
        self.first_submission(job).is_some()
    }

    pub(super) async fn expect_accept(&mut self, job: NewJob) {
        let answer = self.store.accept(job.clone()).await;
        self.log.push(format!(
            "accept job {} of {}, {}, attempts {}, run at {:?}, deadline {:?}, key {:?}, rung {:?} => {answer:?}",
            self.jobs.len(),
            job.owner,
            job.lane(),
            job.retry.attempts,
            job.run_at,
            job.deadline,
            job.idempotency.as_ref().map(|(key, body)| format!("{}/{}", key.as_str(), body[0])),
            job.rung,
        ));
        if let Some(first) = self.first_submission(&job) {
            let (first, same) = (first.new.id, first.new.idempotency == job.idempotency);
            self.met.insert(if same { "accept again" } else { "accept refused" });
            match answer {
                Ok(accepted) if same => assert_eq!(accepted, Accepted { id: first, again: true }),
                Err(AcceptError::KeyReused) if !same => {}
                other => panic!("{other:?}, same body: {same}"),
            }
            return;
        }
        assert_eq!(answer.unwrap(), Accepted { id: job.id, again: false });
        let now = self.now();
        let due_at = job.run_at.map_or(now, |at| self.told(at));
        let life = Life::accepted(due_at, job.retry.attempts, job.deadline.map(|at| self.told(at)));
        let mut known = Known {
            life,
            gone: false,
            events: vec![(EventKind::Accepted, None)],
            sent: 0,
            finished_at: None,
            failure: None,
            progress: None,
            checkpoints: Vec::new(),
            output: None,
            new: job,
        };
        if let Some(rung) = known.new.rung {
            // Refused where it is not due.
            let _ = known.take(&Step::Ring { again: rung.again }, now);
        }
        self.jobs.push(known);
        self.look_at(self.jobs.len() - 1).await;
    }

    pub(super) async fn expect_ring(&mut self, plan: &RingPlan) {
        let now = self.now();
        let (mut must, mut may) = (BTreeSet::new(), BTreeSet::new());
        let mut rung_before = std::collections::BTreeMap::<Lane, usize>::new();
        for (place, known) in self.jobs.iter().enumerate() {
            let (Some(hint), Status::Pending { ring_at, .. }) = (known.hint(), &known.life.status) else {
                continue;
            };
            *rung_before.entry(known.new.lane()).or_default() += usize::from(hint > 0);
            if self.paused.contains(&known.new.lane()) {
                continue;
            }
            if known.life.due_at.max(*ring_at) <= now && known.overdue(now) {
                may.insert(place);
            } else if known.life.due_at.max(*ring_at) <= now {
                must.insert(place);
            }
        }
        let rung = self.store.ring(plan).await.unwrap();
        self.rung = rung.iter().map(|rung| (rung.job, rung.hint)).collect();
        let names: Vec<String> =
            rung.iter().map(|rung| format!("{} hint {}", self.name(rung.job), rung.hint)).collect();
        self.log.push(format!(
            "ring window {}, again {:?}, max {} => {names:?}",
            plan.window, plan.again, plan.max
        ));
        assert!(rung.len() <= plan.max);

        let mut given = BTreeSet::new();
        for rung in &rung {
            let place = self.known(rung.job);
            assert!(must.contains(&place) || may.contains(&place), "job {place} was not to be rung");
            assert!(given.insert(place), "job {place} was rung twice");
            let known = &mut self.jobs[place];
            assert_eq!((&rung.owner, rung.lane.clone()), (&known.new.owner, known.new.lane()));
            assert_eq!(rung.trace, known.new.trace);
            let Status::Pending { ring_at, .. } = &mut known.life.status else { unreachable!() };
            *ring_at = (*ring_at).min(now);
            known.take(&Step::Ring { again: plan.again }, now).unwrap();
            assert_eq!(Some(rung.hint), known.hint());
            if rung.hint > 1 {
                self.met.insert("ring again");
            }
        }
        for (lane, before) in rung_before {
            let in_lane =
                |known: &&Known| known.new.lane() == lane && known.hint().is_some_and(|hint| hint > 0);
            let after = self.jobs.iter().filter(in_lane).count();
            assert!(after <= before.max(plan.window), "{after} rung in {lane}");
            // Only a full window or a full answer leaves a job that has never been rung.
            let left = |place: &&usize| {
                let known = &self.jobs[**place];
                known.new.lane() == lane && known.hint() == Some(0)
            };
            let left = must.difference(&given).filter(left).count();
            assert!(
                left == 0 || after >= plan.window || rung.len() == plan.max,
                "{left} were left in {lane}"
            );
        }
        if plan.window >= 1000 && plan.max >= 1000 {
            assert!(must.is_subset(&given), "only {given:?} of {must:?} were rung");
        }
    }

    pub(super) async fn expect_rung(&mut self, pointers: &[(JobId, u32)], age: Duration) {
        let names: Vec<String> =
            pointers.iter().map(|(job, hint)| format!("{} {hint}", self.name(*job))).collect();
        self.log.push(format!("rung {names:?}, age {age:?}"));
        self.store.rung(pointers, age).await.unwrap();
        let now = self.now();
        for (job, told) in pointers {
            let place = self.known(*job);
            let known = &mut self.jobs[place];
            if known.gone {
                continue;
            }
            if let Status::Pending { hint, ring_at } = &mut known.life.status
                && *hint == *told
            {
                *ring_at = now + age * (1 << (*told - 1).min(DOUBLINGS_MAX));
            }
        }
    }

    /// Claims one pointer in the books. `token` is what a lease would carry; `repeated` pointers stood in
    /// the same batch before.
    fn claim_in_books(
        &mut self,
        worker: usize,
        (job, owner): &(JobId, Owner),
        lease: Duration,
        token: Token,
        repeated: bool,
    ) -> Vec<Answer> {
        let now = self.now();
        let holder = self.workers[worker].member.holder().clone();
        let Some(place) = self.jobs.iter().position(|known| known.new.id == *job && !known.gone) else {
            return vec![Answer::Stale];
        };
        let paused = self.paused.contains(&self.jobs[place].new.lane());
        let known = &mut self.jobs[place];
        let deleted = known.life.delete_asked && known.life.state().is_terminal();
        if known.new.owner != *owner {
            // Both are acknowledged and counted; of a deleted job either is true.
            return if known.life.delete_asked {
                vec![Answer::Foreign, Answer::Stale]
            } else {
                vec![Answer::Foreign]
            };
        }
        if deleted && repeated {
            // Ended by the same call, a moment before.
            return vec![Answer::Stale, Answer::Finished(known.life.state())];
        }
        if deleted {
            return vec![Answer::Stale];
        }
        if known.life.state().is_terminal() {
            return vec![Answer::Finished(known.life.state())];
        }
        let step = Step::Claim { holder, token, lease };
        match known.life.after(&step, now) {
            Err(Refused::NotDue(at)) if paused => vec![Answer::NotDue(at), Answer::Paused],
            Err(Refused::NotDue(at)) => vec![Answer::NotDue(at)],
            Err(Refused::Busy(until)) => vec![Answer::Busy(until)],
            Err(other) => panic!("{other}"),
            Ok(_) if paused => vec![Answer::Paused],
            Ok(_) => {
                known.take(&step, now).unwrap();
                vec![match known.life.state() {
                    State::Running => Answer::Run,
                    State::Cancelled => Answer::Cancelled,
                    ended => Answer::Finished(ended),
                }]
            }
        }
    }

    fn assert_holding(&mut self, place: usize, worker: usize, holding: &Holding, lease: Duration) {
        let known = &self.jobs[place];
        let given = &holding.lease;
        assert_eq!(holding.job.id, known.new.id);
        assert_eq!((given.job, given.epoch), (known.new.id, known.life.epoch));
        self.assert_at("the lease ends", given.until, self.now() + lease);
        assert_eq!(holding.job.attempt, known.life.attempt);
        assert_eq!(holding.job.holder.as_ref(), Some(self.workers[worker].member.holder()));
        self.assert_job(place, &holding.job);
        let new = self.leases.iter().all(|held| held.lease.token != given.token);
        assert!(new, "a token is never given twice");
        self.leases.push(Held { known: place, lease: given.clone() });
    }

    pub(super) async fn expect_claim(&mut self, worker: usize, pointers: &[(JobId, Owner)], lease: Duration) {
        let holder = self.workers[worker].member.holder().clone();
        let answers = self.store.claim(&holder, pointers, lease).await.unwrap();
        let line: Vec<String> = pointers
            .iter()
            .zip(&answers)
            .map(|((job, owner), answer)| {
                let answer = match answer {
                    Claim::Run(holding) => format!("Run(attempt {})", holding.job.attempt),
                    other => format!("{other:?}"),
                };
                format!("{} of {owner} => {answer}", self.name(*job))
            })
            .collect();
        self.log.push(format!("{} claims for {lease:?}: {}", WORKERS[worker], line.join(", ")));
        assert_eq!(answers.len(), pointers.len());
        for (number, (pointer, answer)) in pointers.iter().zip(answers).enumerate() {
            let token = match &answer {
                Claim::Run(holding) => holding.lease.token,
                _ => Token::random(),
            };
            let repeated = pointers[..number].contains(pointer);
            let expected = self.claim_in_books(worker, pointer, lease, token, repeated);
            let fits = match &answer {
                Claim::Run(_) => expected.contains(&Answer::Run),
                Claim::Finished(state) => expected.contains(&Answer::Finished(*state)),
                Claim::Paused => expected.contains(&Answer::Paused),
                Claim::Cancelled => expected.contains(&Answer::Cancelled),
                Claim::Stale => expected.contains(&Answer::Stale),
                Claim::Foreign => expected.contains(&Answer::Foreign),
                Claim::NotDue(at) => matches!(expected[0], Answer::NotDue(due) if self.near(*at, due)),
                Claim::Busy(at) => matches!(expected[0], Answer::Busy(until) if self.near(*at, until)),
            };
            self.met.insert(match &answer {
                Claim::Run(_) => "claim run",
                Claim::Finished(_) => "claim finished",
                Claim::Paused => "claim paused",
                Claim::Cancelled => "claim cancelled",
                Claim::Stale => "claim stale",
                Claim::Foreign => "claim foreign",
                Claim::NotDue(_) => "claim not due",
                Claim::Busy(_) => "claim busy",
            });
            assert!(fits, "pointer {number}: {answer:?} instead of {expected:?}");
            if let Claim::Run(holding) = &answer {
                let place = self.known(pointer.0);
                self.assert_holding(place, worker, holding, lease);
            }
        }
        for (job, _) in pointers {
            if let Some(place) = self.jobs.iter().position(|known| known.new.id == *job) {
                self.look_at(place).await;
            }
        }
    }

    fn near(&self, told: Timestamp, expected: Timestamp) -> bool {
        let told = self.told(told);
        told.since(expected).max(expected.since(told)) < SLACK
    }

    pub(super) async fn expect_claim_rung(
        &mut self,
        worker: usize,
        lanes: &[Lane],
        quota: usize,
        max: usize,
        lease: Duration,
    ) {
        let now = self.now();
        let waits = |known: &Known| known.hint().is_some_and(|hint| hint > 0) && known.life.due_at <= now;
        let in_lane = |walk: &Self, lane: &Lane| -> Vec<usize> {
            let all = walk.jobs.iter().enumerate();
            let there = all.filter(|(_, known)| {
                known.new.lane() == *lane && waits(known) && !walk.paused.contains(lane)
            });
            there.map(|(place, _)| place).collect()
        };
        let (mut left, mut expected) = (max, Vec::new());
        for lane in lanes {
            let ready =
                in_lane(self, lane).into_iter().filter(|place| !self.jobs[*place].overdue(now)).count();
            let count = ready.min(quota).min(left);
            left -= count;
            expected.push(count);
        }

        let holder = self.workers[worker].member.holder().clone();
        let quotas: Vec<LaneQuota> =
            lanes.iter().map(|lane| LaneQuota { lane: lane.clone(), max: quota }).collect();
        let held = self.store.claim_rung(&holder, &quotas, max, lease).await.unwrap();
        let names: Vec<String> = held.iter().map(|holding| self.name(holding.job.id)).collect();
        self.log.push(format!(
            "{} claims rung jobs for {lease:?}, {quota} a lane, at most {max} => {names:?}",
            WORKERS[worker]
        ));

        let mut given = Vec::new();
        for (lane, count) in lanes.iter().zip(expected) {
            let there = in_lane(self, lane);
            let from_lane: Vec<&Holding> =
                held.iter().filter(|holding| holding.job.lane() == *lane).collect();
            assert_eq!(from_lane.len(), count, "from {lane}");
            for holding in from_lane {
                let place = self.known(holding.job.id);
                assert!(there.contains(&place) && !self.jobs[place].overdue(now));
                let step = Step::Claim { holder: holder.clone(), token: holding.lease.token, lease };
                self.jobs[place].take(&step, now).unwrap();
                self.assert_holding(place, worker, holding, lease);
                given.push(place);
                self.met.insert("claim rung");
            }
            // A job past its deadline may have been ended in passing.
            for place in there.into_iter().filter(|place| !given.contains(place)) {
                let job = self.store.job(&Scope::All, self.jobs[place].new.id).await.unwrap();
                if self.jobs[place].overdue(now) && job.is_some_and(|job| job.state == State::Failed) {
                    self.jobs[place].take(&Step::Expire, now).unwrap();
                }
            }
        }
        let order: Vec<Lane> = held.iter().map(|holding| holding.job.lane()).collect();
        let places: Vec<usize> =
            order.iter().map(|lane| lanes.iter().position(|known| known == lane).unwrap()).collect();
        assert!(places.is_sorted(), "lanes come in the given order");
        self.look_at_everything().await;
    }

    pub(super) async fn expect_beat(&mut self, worker: usize, held: &[Held], lease: Duration) {
        if self.workers[worker].gone {
            return;
        }
        let asked: Vec<(JobId, Token)> = held.iter().map(|held| (held.lease.job, held.lease.token)).collect();
        let answers = beat(&mut *self.workers[worker].member, &asked, lease).await;
        let names: Vec<String> =
            asked.iter().map(|(job, token)| format!("{} {token:?}", self.name(*job))).collect();
        self.log.push(format!("{} beats {names:?} for {lease:?} => {answers:?}", WORKERS[worker]));
        let now = self.now();
        assert_eq!(answers.len(), held.len());
        for (held, answer) in held.iter().zip(answers) {
            let known = &mut self.jobs[held.known];
            let renewed =
                !known.gone && known.take(&Step::Renew { token: held.lease.token, lease }, now).is_ok();
            let expected = match &known.life.status {
                Status::Running { cancel_asked, .. } if renewed => {
                    Beat::Renewed { cancel_asked: *cancel_asked }
                }
                _ => Beat::Lost,
            };
            assert_eq!(answer, expected, "of job {}", held.known);
            self.met.insert(match answer {
                Beat::Renewed { cancel_asked: true } => "beat renewed, cancel asked",
                Beat::Renewed { cancel_asked: false } => "beat renewed",
                Beat::Lost => "beat lost",
            });
        }
    }

    /// A fenced write, in the books: what it answers where it is refused.
    fn fenced(&mut self, held: &Held, step: &Step) -> Result<Vec<Effect>, Vec<Option<State>>> {
        let now = self.now();
        let known = &mut self.jobs[held.known];
        if known.gone {
            return Err(vec![None]);
        }
        known.take(step, now).map_err(|_| {
            let state = known.life.state();
            match (known.life.delete_asked, state.is_terminal()) {
                (true, true) => vec![None],
                (true, false) => vec![None, Some(state)],
                _ => vec![Some(state)],
            }
        })
    }

    fn assert_fenced(answer: Result<(), SettleError>, expected: &Result<Vec<Effect>, Vec<Option<State>>>) {
        match (answer, expected) {
            (Ok(()), Ok(_)) => {}
            (Err(SettleError::LeaseLost(state)), Err(states)) if states.contains(&state) => {}
            (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
        }
    }

    pub(super) async fn expect_progress(&mut self, held: &Held, progress: Progress) {
        let answer = self.store.progress(&held.lease, &progress).await;
        self.log.push(format!("progress of job {} with {:?} => {answer:?}", held.known, held.lease.token));
        let expected = self.fenced(held, &Step::Renew { token: held.lease.token, lease: Duration::ZERO });
        if expected.is_ok() {
            self.jobs[held.known].progress = Some(progress);
        }
        Self::assert_fenced(answer, &expected);
        self.look_at(held.known).await;
    }

    pub(super) async fn expect_checkpoint(&mut self, held: &Held, checkpoint: Checkpoint) {
        let answer = self.store.checkpoint(&held.lease, &checkpoint).await;
        self.log.push(format!(
            "stage {} of job {} with {:?} => {answer:?}",
            checkpoint.stage, held.known, held.lease.token
        ));
        let expected = self.fenced(held, &Step::Stage { token: held.lease.token });
        if expected.is_ok() {
            let kept = &mut self.jobs[held.known].checkpoints;
            match kept.iter_mut().find(|known| known.stage == checkpoint.stage) {
                Some(known) => *known = checkpoint,
                None => kept.push(checkpoint),
            }
        }
        Self::assert_fenced(answer, &expected);
        self.look_at(held.known).await;
    }

    pub(super) async fn expect_settle(&mut self, held: &Held, verdict: Verdict) {
        let output = Output::Inline(json!({ "by": held.lease.epoch }));
        let settlement =
            Settlement { lease: held.lease.clone(), verdict: verdict.clone(), output: Some(output.clone()) };
        let answer = self.store.settle(settlement).await;
        self.log.push(format!(
            "settle job {} with {:?}: {verdict:?} => {answer:?}",
            held.known, held.lease.token
        ));
        let before = self.jobs[held.known].life.clone();
        let step = Step::Settle { token: held.lease.token, verdict };
        let expected = self.fenced(held, &step);
        let known = &mut self.jobs[held.known];
        if expected.as_ref().is_ok_and(|effects| effects.contains(&Effect::Result)) {
            known.output = Some(output);
        }
        let repeated =
            !known.gone && matches!(before.after(&step, self.began), Err(Refused::SettledAlready(_)));
        let known = &self.jobs[held.known];
        self.met.insert(match &expected {
            _ if repeated => "settle again",
            Ok(_) if known.life.delete_asked => "settle of a deleted job",
            Ok(_) => "settle",
            Err(_) => "fenced out",
        });
        match answer {
            Ok(state) => assert!((expected.is_ok() || repeated) && state == known.life.state(), "{state:?}"),
            // A deleted job may have forgotten who settled it.
            Err(SettleError::LeaseLost(None)) if repeated && known.life.delete_asked => {}
            Err(error) => {
                assert!(!repeated, "it was settled by this lease");
                Self::assert_fenced(Err(error), &expected);
            }
        }
        self.look_at(held.known).await;
    }

    /// True where a job has to wait before its next attempt.
    pub(super) async fn expect_reap(&mut self) -> bool {
        let now = self.now();
        let over = |known: &Known| match &known.life.status {
            Status::Running { holder, until, .. } => {
                *until <= now || self.workers.iter().all(|w| w.gone || w.member.holder() != holder)
            }
            _ => false,
        };
        let all = self.jobs.iter().enumerate();
        let expected: BTreeSet<usize> =
            all.filter(|(_, known)| !known.gone && over(known)).map(|(place, _)| place).collect();
        let mut reaped = BTreeSet::new();
        loop {
            // A store may take a moment to see that a worker is gone.
            let some = soon("the keeper notices", async || {
                let some = self.store.reap(1000).await.unwrap();
                (!some.is_empty() || reaped.len() == expected.len()).then_some(some)
            })
            .await;
            for (job, kind) in some {
                let place = self.known(job);
                assert_eq!(kind, self.jobs[place].new.kind);
                assert!(expected.contains(&place), "job {place} was not lost");
                assert!(reaped.insert(place), "job {place} was reaped twice");
            }
            if reaped == expected {
                break;
            }
        }
        self.log.push(format!("reap => {reaped:?}"));
        let mut waits = false;
        for place in reaped {
            let known = &mut self.jobs[place];
            let live = matches!(known.life.status, Status::Running { until, .. } if until > now);
            self.met.insert(if live { "reap of the gone" } else { "reap" });
            let backoff = known.new.retry.backoff;
            let longest = backoff.wait_after_loss(known.life.attempt, 1.0);
            known.take(&Step::Reap { gone: true, delay: longest }, now).unwrap();
            waits |= known.life.state() == State::Pending && !longest.is_zero();
            self.look_at(place).await;
        }
        waits
    }

    pub(super) async fn expect_expire(&mut self) {
        let expired = self.store.expire(1000).await.unwrap();
        self.log.push(format!("expire => {expired}"));
        let now = self.now();
        let count = self
            .jobs
            .iter_mut()
            .filter_map(|known| (!known.gone).then(|| known.take(&Step::Expire, now).ok()).flatten())
            .count();
        assert_eq!(expired, count);
        if count > 0 {
            self.met.insert("expire");
        }
    }

    fn control(&mut self, known: usize, scope: &Scope, step: &Step) -> Result<State, Option<State>> {
        let now = self.now();
        let known = &mut self.jobs[known];
        if !known.within(scope) {
            return Err(None);
        }
        match known.take(step, now) {
            Ok(_) => Ok(known.life.state()),
            Err(_) => Err(Some(known.life.state())),
        }
    }

    async fn assert_control(
        &mut self,
        known: usize,
        answer: Result<Option<State>, ControlError>,
        expected: Result<State, Option<State>>,
    ) {
        match expected {
            Ok(State::Running) => self.met.insert("cancel asked"),
            Ok(_) => true,
            Err(None) => self.met.insert("control not found"),
            Err(Some(_)) => self.met.insert("control conflict"),
        };
        match (answer, expected) {
            (Ok(told), Ok(state)) => assert!(told.is_none_or(|told| told == state), "{told:?}"),
            (Err(ControlError::NotFound), Err(None)) => {}
            (Err(ControlError::Conflict(told)), Err(Some(state))) if told == state => {}
            (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
        }
        self.look_at(known).await;
    }

    pub(super) async fn expect_cancel(&mut self, known: usize, scope: &Scope) {
        let answer = self.store.cancel(scope, self.jobs[known].new.id).await;
        self.log.push(format!("cancel job {known} as {scope:?} => {answer:?}"));
        let expected = self.control(known, scope, &Step::Cancel);
        self.assert_control(known, answer.map(Some), expected).await;
    }

    pub(super) async fn expect_delete(&mut self, known: usize, scope: &Scope) {
        let answer = self.store.delete(scope, self.jobs[known].new.id).await;
        self.log.push(format!("delete job {known} as {scope:?} => {answer:?}"));
        let expected = self.control(known, scope, &Step::Delete);
        self.assert_control(known, answer.map(|()| None), expected).await;
    }

    pub(super) async fn expect_redrive(&mut self, known: usize, scope: &Scope) {
        let answer = self.store.redrive(scope, self.jobs[known].new.id).await;
        self.log.push(format!("redrive job {known} as {scope:?} => {answer:?}"));
        let expected = self.control(known, scope, &Step::Redrive);
        self.assert_control(known, answer.map(|()| None), expected).await;
    }

    pub(super) async fn expect_prune(&mut self, retention: &Retention) {
        let pruned = self.store.prune(retention, 1000).await.unwrap();
        self.log.push(format!("prune {retention:?} => {pruned:?}"));
        let now = self.now();
        let (mut count, mut buried) = (0, 0);
        for known in self.jobs.iter_mut().filter(|known| !known.gone) {
            let Some(finished_at) = known.finished_at else { continue };
            let kept =
                if known.life.state() == State::Failed { retention.failed } else { retention.finished };
            if known.life.delete_asked || finished_at + kept <= now {
                known.gone = true;
                count += 1;
                buried += usize::from(known.life.delete_asked);
            }
        }
        assert_eq!(pruned.buried + pruned.expired, count);
        assert!(pruned.buried <= buried);
        if count > 0 {
            self.met.insert("prune");
        }
        self.look_at_everything().await;
    }

    pub(super) async fn expect_restart(&mut self, worker: usize) {
        if !self.workers[worker].gone {
            self.log.push(format!("{} is killed", WORKERS[worker]));
            // The dead one's holder is still asked about: only its presence is given up.
            let dead = Box::new(Dead(self.workers[worker].member.holder().clone()));
            self.workers[worker].member = dead;
            self.workers[worker].gone = true;
            return;
        }
        self.log.push(format!("{} starts again", WORKERS[worker]));
        let member = join(&*self.store, WORKERS[worker]).await;
        let holder = member.holder().clone();
        assert_ne!(holder, *self.workers[worker].member.holder());
        self.workers[worker].member = member;
        self.workers[worker].gone = false;
        let now = self.now();
        let step = Step::Vacate { name: holder.name, incarnation: holder.incarnation };
        for known in self.jobs.iter_mut().filter(|known| known.holder().is_some()) {
            // Refused where another holds the job.
            let _ = known.take(&step, now);
        }
    }

    pub(super) async fn expect_unsent(&mut self, take: usize) {
        let waiting: BTreeSet<usize> = (0..self.jobs.len())
            .filter(|place| {
                self.jobs[*place].readable() && self.jobs[*place].sent < self.jobs[*place].life.sequence
            })
            .collect();
        let unsent = soon("every job's lowest unsent event is handed out", async || {
            let unsent = self.store.unsent(1000).await.unwrap();
            let jobs: BTreeSet<usize> = unsent.iter().map(|event| self.known(event.job)).collect();
            waiting.is_subset(&jobs).then_some(unsent)
        })
        .await;
        let names: Vec<String> =
            unsent.iter().map(|event| format!("{}/{}", self.name(event.job), event.sequence)).collect();
        self.log.push(format!("unsent => {names:?}, the first {take} are sent"));
        let mut next: Vec<u64> = self.jobs.iter().map(|known| known.sent + 1).collect();
        for event in &unsent {
            let place = self.known(event.job);
            assert_eq!(event.sequence, next[place], "job {place}'s events come in order");
            assert_eq!(event.event, self.jobs[place].events[event.sequence as usize - 1].0);
            next[place] += 1;
        }
        let sent: Vec<(JobId, u64)> =
            unsent.iter().take(take).map(|event| (event.job, event.sequence)).collect();
        self.store.sent(&sent).await.unwrap();
        for (job, sequence) in sent {
            let place = self.known(job);
            self.jobs[place].sent = sequence;
        }
    }

    fn assert_job(&self, place: usize, job: &Job) {
        let known = &self.jobs[place];
        let life = &known.life;
        assert_eq!(job.state, life.state(), "the state of job {place}");
        assert_eq!(job.attempt, life.attempt, "attempts of job {place}");
        assert_eq!((job.throttled, job.redrives), (life.throttled, life.redrives), "of job {place}");
        assert_eq!(job.sequence, life.sequence, "events of job {place}");
        assert_eq!(job.deadline.is_some(), life.deadline.is_some(), "the deadline of job {place}");
        if life.state() == State::Pending {
            self.assert_at("the job is due", job.due_at, life.due_at);
        }
        if let (Some(told), Some(deadline)) = (job.deadline, life.deadline) {
            self.assert_at("its deadline", told, deadline);
        }
        assert_eq!(job.finished_at.is_some(), life.state().is_terminal(), "the end of job {place}");
        if let (Some(told), Some(at)) = (job.finished_at, known.finished_at) {
            self.assert_at("it ended", told, at);
        }
        assert_eq!(job.holder.as_ref(), known.holder(), "the holder of job {place}");
        if let Status::Running { cancel_asked, .. } = &life.status {
            assert_eq!(job.cancel_asked, *cancel_asked, "job {place}");
            assert!(job.started_at.is_some());
            assert_eq!(job.progress, known.progress, "of job {place}");
        }
        if life.state() != State::Cancelled {
            let failure = job.failure.as_ref().map(|failure| (failure.code.clone(), failure.attempt));
            assert_eq!(failure, known.failure, "the failure of job {place}");
        }
        assert_eq!(
            (&job.owner, &job.kind, &job.params),
            (&known.new.owner, &known.new.kind, &known.new.params)
        );
        assert_eq!((job.priority, job.retry), (known.new.priority, known.new.retry));
    }

    /// Everything that can be read of a job is as the books say.
    pub(super) async fn look_at(&self, place: usize) {
        let known = &self.jobs[place];
        let id = known.new.id;
        let job = self.store.job(&Scope::All, id).await.unwrap();
        assert_eq!(job.is_some(), known.readable(), "job {place} can be read");
        let filter = EventFilter { job: Some(id), ..EventFilter::default() };
        let Some(job) = job else {
            assert_eq!(self.store.events(&Scope::All, &filter, 1000).await.unwrap(), []);
            assert_eq!(self.store.output(&Scope::All, id).await.unwrap(), None);
            return;
        };
        self.assert_job(place, &job);
        let events = soon("all events can be read", async || {
            let events = self.store.events(&Scope::All, &filter, 1000).await.unwrap();
            (events.len() >= known.events.len()).then_some(events)
        })
        .await;
        assert_eq!(events.len(), known.events.len(), "no event that was not told");
        assert!(events.is_sorted_by(|a, b| a.position < b.position));
        for (number, (event, (kind, attempt))) in events.iter().zip(&known.events).enumerate() {
            assert_eq!(event.sequence, number as u64 + 1);
            assert_eq!(event.event, *kind, "event {} of job {place}", number + 1);
            assert!(attempt.is_none_or(|attempt| attempt == event.attempt), "of {event:?}");
        }
    }

    pub(super) async fn look_at_everything(&self) {
        let now = self.now();
        for (place, known) in self.jobs.iter().enumerate() {
            self.look_at(place).await;
            let id = known.new.id;
            let output = self.store.output(&Scope::All, id).await.unwrap();
            let shown = known.readable() && known.life.state() == State::Succeeded;
            assert_eq!(output, known.output.clone().filter(|_| shown), "the result of job {place}");
            let foreign = Scope::Owner(crate::stores::owner("nobody"));
            assert_eq!(self.store.job(&foreign, id).await.unwrap(), None);
            if known.readable() {
                let mut kept = self.store.checkpoints(id).await.unwrap();
                let mut expected = known.checkpoints.clone();
                kept.sort_by(|a, b| a.stage.cmp(&b.stage));
                expected.sort_by(|a, b| a.stage.cmp(&b.stage));
                assert_eq!(kept, expected, "the stages of job {place}");
            }
        }

        let page = Page { after: None, limit: 1000 };
        let listed = self.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap();
        let listed: Vec<JobId> = listed.iter().map(|job| job.id).collect();
        let mut expected: Vec<JobId> =
            self.jobs.iter().filter(|known| known.readable()).map(|known| known.new.id).collect();
        expected.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(listed, expected);

        let stats = self.store.stats().await.unwrap();
        for state in State::ALL {
            let told = stats.states.iter().find(|(known, _)| *known == state).expect("zero-filled").1;
            let counted =
                self.jobs.iter().filter(|known| known.readable() && known.life.state() == state).count();
            assert_eq!(told, counted as u64, "{}", state.as_str());
        }

        let unrung = |known: &&Known| known.hint() == Some(0);
        let paused = |known: &Known| self.paused.contains(&known.new.lane());
        if !self.jobs.iter().filter(unrung).any(paused) {
            let due = self.jobs.iter().filter(unrung).map(|known| known.life.due_at.since(now)).min();
            let told = self.store.next_due(100 * DAY).await.unwrap();
            assert_eq!(told.is_some(), due.is_some());
            if let (Some(told), Some(due)) = (told, due) {
                assert!(told.abs_diff(due) < SLACK, "{told:?} instead of {due:?}");
            }
        }
    }
}

/// A worker of which only the name is left.
struct Dead(Holder);

#[async_trait::async_trait]
impl mapae::store::contract::Member for Dead {
    fn holder(&self) -> &Holder {
        &self.0
    }

    async fn beat(
        &mut self,
        leases: &[(JobId, Token)],
        _: Duration,
        _: &mapae::store::contract::WorkerReport,
    ) -> Result<Vec<Beat>, mapae::store::contract::StoreError> {
        Ok(leases.iter().map(|_| Beat::Lost).collect())
    }

    async fn leave(self: Box<Self>) -> Result<(), mapae::store::contract::StoreError> {
        Ok(())
    }
}
