//! Batches.

use async_trait::async_trait;

use super::{Memory, Row, Tables};
use crate::job::batch::{AWAITED, BatchState, MEMBERS_MAX, Member};
use crate::job::lease::Lease;
use crate::job::name::JobId;
use crate::job::record::NewJob;
use crate::job::{State, Status, Step};
use crate::store::contract::{
    AcceptError, Accepted, AddError, Batches, Control, ControlError, Scope, SettleError, StoreError,
};

/// A batch, by its parent.
#[derive(Default)]
pub(super) struct Batch {
    sealed: bool,
    /// The parts in order, each with how it has ended.
    members: Vec<(JobId, Option<State>)>,
}

impl Batch {
    pub(super) fn ended(&mut self, job: JobId, state: Option<State>) {
        self.members.iter_mut().filter(|(member, _)| *member == job).for_each(|(_, ended)| *ended = state);
    }
}

#[async_trait]
impl Batches for Memory {
    async fn accept_batch(
        &self,
        parent: NewJob,
        parts: Vec<NewJob>,
        sealed: bool,
    ) -> Result<Accepted, AcceptError> {
        let id = parent.id;
        let accepted = self.accept(parent).await?;
        let mut tables = self.tables();
        if accepted.id == id && !accepted.again && !tables.batches.contains_key(&id) {
            tables.batches.insert(id, Batch { sealed, members: Vec::new() });
            tables.join(id, parts)?;
        }
        Ok(accepted)
    }

    async fn add_parts(&self, scope: &Scope, parent: JobId, parts: Vec<NewJob>) -> Result<u32, AddError> {
        let mut tables = self.tables();
        tables.changeable(scope, parent)?;
        let batch = tables.batches.get(&parent).ok_or(ControlError::NotFound)?;
        if batch.sealed || batch.members.len() + parts.len() > MEMBERS_MAX as usize {
            return Err(ControlError::Conflict(State::Pending).into());
        }
        tables.join(parent, parts)?;
        Ok(tables.batches[&parent].members.len() as u32)
    }

    async fn seal(&self, scope: &Scope, parent: JobId) -> Result<(), ControlError> {
        let mut tables = self.tables();
        tables.changeable(scope, parent)?;
        tables.batches.get_mut(&parent).ok_or(ControlError::NotFound)?.sealed = true;
        Ok(())
    }

    async fn fan_out(&self, lease: &Lease, parts: Vec<NewJob>) -> Result<bool, SettleError> {
        let mut tables = self.tables();
        let Some(row) = tables.jobs.get(&lease.job) else { return Err(SettleError::LeaseLost(None)) };
        if !matches!(row.life.status, Status::Running { token, .. } if token == lease.token) {
            let state = (!row.life.delete_asked).then(|| row.life.state());
            return Err(SettleError::LeaseLost(state));
        }
        if tables.batches.contains_key(&lease.job) {
            return Ok(false);
        }
        tables.batches.insert(lease.job, Batch { sealed: true, members: Vec::new() });
        tables.join(lease.job, parts).map_err(AcceptError::without_key)?;
        Ok(true)
    }

    async fn batch(&self, scope: &Scope, parent: JobId) -> Result<Option<BatchState>, StoreError> {
        let tables = self.tables();
        let Some(batch) = tables.batches.get(&parent).filter(|_| tables.row(scope, parent).is_some()) else {
            return Ok(None);
        };
        let mut state = BatchState { sealed: batch.sealed, ..BatchState::default() };
        batch.members.iter().for_each(|(_, ended)| state.count(*ended, 1));
        Ok(Some(state))
    }

    async fn members(
        &self,
        scope: &Scope,
        parent: JobId,
        after: Option<u32>,
        max: usize,
    ) -> Result<Vec<Member>, StoreError> {
        let tables = self.tables();
        let Some(batch) = tables.batches.get(&parent).filter(|_| tables.row(scope, parent).is_some()) else {
            return Ok(Vec::new());
        };
        let member = |(number, (job, state)): (u32, &(JobId, Option<State>))| {
            let row = tables.jobs.get(job).filter(|row| !row.life.delete_asked);
            Member {
                number,
                job: *job,
                state: *state,
                output: row.filter(|_| *state == Some(State::Succeeded)).and_then(|row| row.output.clone()),
                failure: row.and_then(|row| row.failure.clone()),
            }
        };
        let later = |(number, _): &(u32, _)| after.is_none_or(|after| *number > after);
        Ok((0..).zip(&batch.members).filter(later).take(max).map(member).collect())
    }

    async fn batch_of(&self, scope: &Scope, job: JobId) -> Result<Option<JobId>, StoreError> {
        let tables = self.tables();
        Ok(tables.part_of.get(&job).copied().filter(|_| tables.row(scope, job).is_some()))
    }

    async fn wake(&self, max: usize) -> Result<usize, StoreError> {
        let mut tables = self.tables();
        let awaits = |row: &&Row| row.life.state() == State::Pending && row.life.due_at >= AWAITED;
        let all_ended = |row: &&Row| {
            let batch = tables.batches.get(&row.new.id);
            batch.is_some_and(|batch| batch.sealed && batch.members.iter().all(|(_, ended)| ended.is_some()))
        };
        let ready: Vec<JobId> =
            tables.jobs.values().filter(awaits).filter(all_ended).map(|row| row.new.id).take(max).collect();
        Ok(ready.into_iter().filter(|id| tables.take(*id, &Step::Wake, None).is_ok()).count())
    }

    async fn strays(&self, max: usize) -> Result<Vec<JobId>, StoreError> {
        let tables = self.tables();
        let over = |(parent, _): &(&JobId, &Batch)| {
            tables.jobs.get(parent).is_some_and(|row| row.life.state().is_terminal())
        };
        let stray = |(job, ended): &(JobId, Option<State>)| {
            let asked = |row: &Row| matches!(row.life.status, Status::Running { cancel_asked: true, .. });
            (ended.is_none() && tables.jobs.get(job).is_some_and(|row| !asked(row))).then_some(*job)
        };
        let open = tables.batches.iter().filter(over).flat_map(|(_, batch)| batch.members.iter());
        Ok(open.filter_map(stray).take(max).collect())
    }
}

impl Tables {
    /// The parent is the caller's and has not ended.
    fn changeable(&self, scope: &Scope, parent: JobId) -> Result<(), ControlError> {
        let row = self.row(scope, parent).filter(|_| self.batches.contains_key(&parent));
        match row.map(|row| row.life.state()) {
            None => Err(ControlError::NotFound),
            Some(ended) if ended.is_terminal() => Err(ControlError::Conflict(ended)),
            Some(_) => Ok(()),
        }
    }

    fn join(&mut self, parent: JobId, parts: Vec<NewJob>) -> Result<(), AcceptError> {
        for part in parts {
            let id = part.id;
            if self.part_of.contains_key(&id) {
                continue;
            }
            if self.submit(part)?.again {
                continue;
            }
            self.part_of.insert(id, parent);
            let batch = self.batches.get_mut(&parent).expect("callers looked it up under the same lock");
            batch.members.push((id, None));
        }
        Ok(())
    }

    /// What has become of a job is noted by the batch it is a part of.
    pub(super) fn noted(&mut self, id: JobId) {
        let Some(batch) = self.part_of.get(&id).and_then(|parent| self.batches.get_mut(parent)) else {
            return;
        };
        let state = self.jobs[&id].life.state();
        batch.ended(id, state.is_terminal().then_some(state));
    }

    /// Its batch waits for what it gave.
    pub(super) fn is_awaited(&self, id: JobId) -> bool {
        let parent = self.part_of.get(&id).and_then(|parent| self.jobs.get(parent));
        parent.is_some_and(|parent| parent.finished_at.is_none() || parent.life.state() == State::Failed)
    }

    /// It was the parent of a batch, and has ended before its parts.
    pub(super) fn has_strays(&self, id: JobId) -> bool {
        self.batches.get(&id).is_some_and(|batch| batch.members.iter().any(|(_, ended)| ended.is_none()))
    }
}
