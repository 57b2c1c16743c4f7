//! Accepting, and what people may do.

use mapae::job::event::EventKind;
use mapae::job::record::NewJob;
use mapae::job::{Life, State, Step};
use mapae::store::contract::{AcceptError, Accepted, ControlError, Scope};

use super::Known;
use crate::stores::walk::Walk;

impl Walk<'_> {
    fn first_submission(&self, job: &NewJob) -> Option<&Known> {
        let (key, _) = job.idempotency.as_ref()?;
        self.jobs.iter().find(|known| {
            let there = !known.gone && !known.life.delete_asked;
            there
                && known.new.owner == job.owner
                && known.new.idempotency.as_ref().is_some_and(|(first, _)| first == key)
        })
    }

    pub(in crate::stores::walk) fn submitted_before(&self, job: &NewJob) -> bool {
        self.first_submission(job).is_some()
    }

    pub(in crate::stores::walk) async fn expect_accept(&mut self, job: NewJob) {
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
                Ok(accepted) if same => {
                    assert_eq!(accepted, Accepted { id: first, again: true, duplicate: false })
                }
                Err(AcceptError::KeyReused) if !same => {}
                other => panic!("{other:?}, same body: {same}"),
            }
            return;
        }
        assert_eq!(answer.unwrap(), Accepted { id: job.id, again: false, duplicate: false });
        let now = self.now();
        let due_at = job.run_at.map_or(now, |at| self.told(at));
        let life = Life::accepted(due_at, job.retry.attempts, job.deadline.map(|at| self.told(at)));
        let mut known = Known {
            life,
            gone: false,
            events: vec![(EventKind::Accepted, None)],
            spread: 0,
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

    pub(in crate::stores::walk) async fn expect_cancel(&mut self, known: usize, scope: &Scope) {
        let answer = self.store.cancel(scope, self.jobs[known].new.id).await;
        self.log.push(format!("cancel job {known} as {scope:?} => {answer:?}"));
        let expected = self.control(known, scope, &Step::Cancel);
        self.assert_control(known, answer.map(Some), expected).await;
    }

    pub(in crate::stores::walk) async fn expect_delete(&mut self, known: usize, scope: &Scope) {
        let answer = self.store.delete(scope, self.jobs[known].new.id).await;
        self.log.push(format!("delete job {known} as {scope:?} => {answer:?}"));
        let pending = self.jobs[known].life.state() == State::Pending;
        let expected = self.control(known, scope, &Step::Delete);
        let answer = answer.map(|cancelled| assert_eq!(cancelled, pending));
        self.assert_control(known, answer.map(|()| None), expected).await;
    }

    pub(in crate::stores::walk) async fn expect_redrive(&mut self, known: usize, scope: &Scope) {
        let answer = self.store.redrive(scope, self.jobs[known].new.id).await;
        self.log.push(format!("redrive job {known} as {scope:?} => {answer:?}"));
        let expected = self.control(known, scope, &Step::Redrive);
        self.assert_control(known, answer.map(|()| None), expected).await;
    }
}
