//! What a worker does with what it holds, and its restart.

use std::time::Duration;

use mapae::job::lease::{Holder, Token};
use mapae::job::name::JobId;
use mapae::job::record::{Checkpoint, Output, Progress};
use mapae::job::retry::Verdict;
use mapae::job::{Effect, Refused, State, Status, Step};
use mapae::store::contract::{Beat, SettleError, Settlement};
use serde_json::json;

use super::Held;
use crate::stores::walk::{WORKERS, Walk};
use crate::stores::{beat, join};

impl Walk<'_> {
    pub(in crate::stores::walk) async fn expect_beat(
        &mut self,
        worker: usize,
        held: &[Held],
        lease: Duration,
    ) {
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
                Beat::Busy => unreachable!("nobody else is at work here"),
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

    pub(in crate::stores::walk) async fn expect_progress(&mut self, held: &Held, progress: Progress) {
        let answer = self.store.progress(&held.lease, &progress).await;
        self.log.push(format!("progress of job {} with {:?} => {answer:?}", held.known, held.lease.token));
        let expected = self.fenced(held, &Step::Renew { token: held.lease.token, lease: Duration::ZERO });
        if expected.is_ok() {
            self.jobs[held.known].progress = Some(progress);
        }
        Self::assert_fenced(answer, &expected);
        self.look_at(held.known).await;
    }

    pub(in crate::stores::walk) async fn expect_checkpoint(&mut self, held: &Held, checkpoint: Checkpoint) {
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

    pub(in crate::stores::walk) async fn expect_lend(&mut self, held: &Held, until: Duration) {
        let answer = self.store.lend(&held.lease, until).await;
        self.log
            .push(format!("lend job {} with {:?} for {until:?} => {answer:?}", held.known, held.lease.token));
        let expected = self.fenced(held, &Step::Lend { token: held.lease.token, until });
        if expected.is_ok() {
            self.met.insert("lend");
        }
        Self::assert_fenced(answer, &expected);
        self.look_at(held.known).await;
    }

    pub(in crate::stores::walk) async fn expect_settle(&mut self, held: &Held, verdict: Verdict) {
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

    pub(in crate::stores::walk) async fn expect_restart(&mut self, worker: usize) {
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
