//! Accepting and what people may do.

use async_trait::async_trait;

use super::{Memory, Row, Submission, Tables};
use crate::job::event::{Event, EventKind, Position};
use crate::job::name::{Assignee, IdempotencyKey, JobId, Lane, Owner};
use crate::job::record::NewJob;
use crate::job::{Life, Refused, State, Step};
use crate::store::contract::{
    AcceptError, Accepted, Control, ControlError, KeyRecord, NewKey, Scope, StoreError,
};

#[async_trait]
impl Control for Memory {
    async fn accept(&self, job: NewJob) -> Result<Accepted, AcceptError> {
        self.tables().submit(job)
    }

    async fn submission(
        &self,
        owner: &Owner,
        key: &IdempotencyKey,
    ) -> Result<Option<(JobId, [u8; 32])>, StoreError> {
        let tables = self.tables();
        let first = tables.submissions.get(&(owner.clone(), key.clone()));
        let there = |job| tables.jobs.get(job).is_some_and(|row: &Row| row.within(&Scope::All));
        Ok(first.filter(|first| there(&first.job)).map(|first| (first.job, first.body)))
    }

    async fn cancel(&self, scope: &Scope, id: JobId) -> Result<State, ControlError> {
        self.tables().control(scope, id, &Step::Cancel)
    }

    async fn delete(&self, scope: &Scope, id: JobId) -> Result<bool, ControlError> {
        let mut tables = self.tables();
        let pending = tables.jobs.get(&id).is_some_and(|row| row.life.state() == State::Pending);
        tables.control(scope, id, &Step::Delete).map(|_| pending)
    }

    async fn resolve(&self, scope: &Scope, id: JobId) -> Result<(), ControlError> {
        let mut tables = self.tables();
        let row = tables.jobs.get(&id).filter(|row| row.within(scope)).ok_or(ControlError::NotFound)?;
        if row.life.state() != State::Failed {
            return Err(ControlError::Conflict(row.life.state()));
        }
        tables.control(scope, id, &Step::Delete).map(drop)
    }

    async fn assign(&self, scope: &Scope, id: JobId, to: Option<&Assignee>) -> Result<(), ControlError> {
        let mut tables = self.tables();
        let row = tables.jobs.get_mut(&id).filter(|row| row.within(scope)).ok_or(ControlError::NotFound)?;
        if row.life.state() != State::Failed {
            return Err(ControlError::Conflict(row.life.state()));
        }
        row.assignee = to.cloned();
        Ok(())
    }

    async fn redrive(&self, scope: &Scope, id: JobId) -> Result<(), ControlError> {
        self.tables().control(scope, id, &Step::Redrive).map(drop)
    }

    async fn pause(&self, lane: &Lane) -> Result<(), StoreError> {
        self.tables().paused.insert(lane.clone());
        Ok(())
    }

    async fn resume(&self, lane: &Lane) -> Result<(), StoreError> {
        self.tables().paused.remove(lane);
        Ok(())
    }

    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        let record = KeyRecord {
            id: key.id,
            owner: key.owner,
            scopes: key.scopes,
            created_at: now,
            expires_at: key.lifetime.map(|lifetime| now + lifetime),
            revoked_at: None,
        };
        tables.keys.push((key.hash, record.clone()));
        Ok(record)
    }

    async fn key(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let valid = |record: &KeyRecord| {
            record.revoked_at.is_none() && record.expires_at.is_none_or(|expires_at| now < expires_at)
        };
        let found = tables.keys.iter().find(|(known, record)| known == hash && valid(record));
        Ok(found.map(|(_, record)| record.clone()))
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        Ok(self.tables().keys.iter().map(|(_, record)| record.clone()).collect())
    }

    async fn revoke_key(&self, id: &str) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        let Some((_, record)) = tables.keys.iter_mut().find(|(_, record)| record.id == id) else {
            return Ok(false);
        };
        record.revoked_at.get_or_insert(now);
        Ok(true)
    }
}

impl Tables {
    pub(super) fn accept(&mut self, new: NewJob) -> Accepted {
        let now = self.now();
        let (id, rung) = (new.id, new.rung);
        let life = Life::accepted(new.run_at.unwrap_or(now), new.retry.attempts, new.deadline);
        self.events_told += 1;
        self.events.push(Event {
            job: id,
            owner: new.owner.clone(),
            kind: new.kind.clone(),
            sequence: life.sequence,
            event: EventKind::Accepted,
            at: now,
            attempt: 0,
            worker: None,
            code: None,
            position: Position { transaction: 0, number: self.events_told, at: now.micros() },
        });
        let row = Row {
            new,
            life,
            turn: 0,
            created_at: now,
            started_at: None,
            finished_at: None,
            progress: None,
            failure: None,
            assignee: None,
            business_key: None,
            checkpoints: Vec::new(),
            output: None,
            followed: Vec::new(),
        };
        self.jobs.insert(id, row);
        if let Some(rung) = rung {
            // Refused where it is not due: a keeper rings it in its time.
            let _ = self.ring_one(id, rung.turn, rung.again);
        }
        Accepted { id, again: false, duplicate: false }
    }

    /// The state the job is in after the step. What is not within the scope is not there.
    fn control(&mut self, scope: &Scope, id: JobId, step: &Step) -> Result<State, ControlError> {
        if self.row(scope, id).is_none() {
            return Err(ControlError::NotFound);
        }
        match self.take(id, step, None) {
            Ok(_) => Ok(self.jobs[&id].life.state()),
            Err(Refused::Illegal { from, .. }) => Err(ControlError::Conflict(from)),
            Err(other) => Err(StoreError::Broken(Box::new(other)).into()),
        }
    }

    /// What a submission is answered.
    pub(super) fn submit(&mut self, job: NewJob) -> Result<Accepted, AcceptError> {
        let at = self.now();
        if let Some(row) = self.jobs.get(&job.id)
            && (&row.new.owner, &row.new.kind) == (&job.owner, &job.kind)
        {
            return Ok(Accepted { id: job.id, again: true, duplicate: false });
        }
        let named = job.idempotency.clone().map(|(key, body)| ((job.owner.clone(), key), body));
        if let Some((name, body)) = &named
            && let Some(first) = self.submissions.get(name)
            && self.jobs.get(&first.job).is_some_and(|row| row.within(&Scope::All))
        {
            return match first.body == *body {
                true => Ok(Accepted { id: first.job, again: true, duplicate: false }),
                false => Err(AcceptError::KeyReused),
            };
        }
        let holder = self.holder(&job);
        if let Some((name, body)) = named {
            self.submissions.insert(name, Submission { body, job: holder.unwrap_or(job.id), at });
        }
        Ok(match holder {
            Some(id) => Accepted { id, again: true, duplicate: true },
            None => self.accept(job),
        })
    }
}
