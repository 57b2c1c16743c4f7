//! Joining, claiming, keeping alive, settling.

use std::time::Duration;

use async_trait::async_trait;

use super::{Memory, Row, Tables, Worker};
use crate::job::lease::{Holder, Lease, Token};
use crate::job::limit::Ledger;
use crate::job::name::{JobId, Owner};
use crate::job::record::{Checkpoint, Output, Progress};
use crate::job::resource::Room;
use crate::job::{Effect, Refused, State, Status, Step};
use crate::store::contract::{
    Beat, Claim, Claimed, Holding, Join, JoinError, LaneQuota, Member, Run, SettleError, Settlement,
    StoreError, WorkerReport, WorkerRow,
};

#[async_trait]
impl Run for Memory {
    async fn join(&self, join: &Join) -> Result<Box<dyn Member>, JoinError> {
        let mut tables = self.tables();
        let free = |name: &str| tables.workers.get(name).is_none_or(|worker| !worker.present);
        let name = if free(&join.name) {
            join.name.clone()
        } else if join.strict {
            return Err(JoinError::NameTaken(join.name.clone()));
        } else {
            let mut others = (2_u64..).map(|number| format!("{}-{number}", join.name));
            others.find(|name| free(name)).expect("there is always another number")
        };
        let holder = Holder::new(name);
        tables.vacate(&holder);
        let now = tables.now();
        let row = WorkerRow {
            holder: holder.clone(),
            kinds: join.kinds.clone(),
            slots: join.slots,
            report: WorkerReport::default(),
            started_at: now,
            seen_at: now,
        };
        tables.workers.insert(holder.name.clone(), Worker { row, present: true });
        Ok(Box::new(Presence { holder, memory: self.clone() }))
    }

    async fn claim_pointers(
        &self,
        holder: &Holder,
        pointers: &[(JobId, Owner)],
        lease: Duration,
        room: &[Room],
    ) -> Result<Vec<Claim>, StoreError> {
        let mut tables = self.tables();
        tables.forget_shares();
        let mut ledger = tables.ledger(room);
        let mut claims = Vec::with_capacity(pointers.len());
        for (job, owner) in pointers {
            let claim = tables.claim(holder, *job, owner, lease, &mut ledger, room);
            // Its pointer is dropped. Of rows that are looked through nothing is.
            if claim == Claim::Paused {
                tables.unring(*job);
            }
            claims.push(claim);
        }
        tables.answer(claims)
    }

    async fn claim_lanes(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
        room: &[Room],
    ) -> Result<Claimed, StoreError> {
        let mut tables = self.tables();
        tables.forget_shares();
        let mut ledger = tables.ledger(room);
        let mut claimed = Claimed::default();
        for quota in lanes {
            let mut left = quota.max.min(max - claimed.holdings.len());
            for (job, owner) in tables.rung_in(quota) {
                if left == 0 {
                    break;
                }
                match tables.claim(holder, job, &owner, lease, &mut ledger, room) {
                    Claim::Run(holding) => {
                        claimed.holdings.push(*holding);
                        left -= 1;
                    }
                    Claim::Waits(stop) => claimed.stopped(stop),
                    // Whatever has just ended for its deadline instead took no place.
                    _ => {}
                }
            }
        }
        tables.answer(claimed)
    }

    async fn taken(&self, holder: &Holder, since: Duration) -> Result<Vec<(JobId, Token)>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let taken = |(job, row): (&JobId, &Row)| match &row.life.status {
            Status::Running { holder: of, token, .. }
                if of == holder && row.started_at.is_some_and(|at| at + since >= now) =>
            {
                Some((*job, *token))
            }
            _ => None,
        };
        Ok(tables.jobs.iter().filter_map(taken).collect())
    }

    async fn settle(&self, settlement: Settlement) -> Result<State, SettleError> {
        let Settlement { lease, verdict, output } = settlement;
        let mut tables = self.tables();
        match tables.fenced(&lease, &Step::Settle { token: lease.token, verdict }, None) {
            Ok(effects) => {
                let row = tables.jobs.get_mut(&lease.job).expect("it has just been settled");
                if effects.contains(&Effect::Result) {
                    row.output = output;
                }
                Ok(row.life.state())
            }
            Err(Fenced::SettledAlready(state)) => Ok(state),
            Err(Fenced::Lost(state)) => Err(SettleError::LeaseLost(state)),
        }
    }

    async fn progress(&self, lease: &Lease, progress: &Progress) -> Result<(), SettleError> {
        let mut tables = self.tables();
        tables.fenced(lease, &Step::Renew { token: lease.token, lease: Duration::ZERO }, None)?;
        if let Some(row) = tables.jobs.get_mut(&lease.job) {
            row.progress = Some(progress.clone());
        }
        Ok(())
    }

    async fn checkpoint(&self, lease: &Lease, checkpoint: &Checkpoint) -> Result<(), SettleError> {
        let mut tables = self.tables();
        tables.fenced(lease, &Step::Stage { token: lease.token }, Some(&checkpoint.stage))?;
        let row = tables.jobs.get_mut(&lease.job).expect("its stage has just been told");
        let known = row.checkpoints.iter_mut().find(|known| known.stage == checkpoint.stage);
        let Some(known) = known else {
            row.checkpoints.push(checkpoint.clone());
            return Ok(());
        };
        let replaced = std::mem::replace(known, checkpoint.clone());
        if let Output::File { name, .. } = replaced.output
            && row.files().all(|file| file != name)
        {
            tables.discard([name]);
        }
        Ok(())
    }

    async fn checkpoints(&self, job: JobId) -> Result<Vec<Checkpoint>, StoreError> {
        Ok(self.tables().jobs.get(&job).map(|row| row.checkpoints.clone()).unwrap_or_default())
    }
}

/// Why a write of the running side did not apply.
pub(super) enum Fenced {
    SettledAlready(State),
    /// `None`: the job is deleted.
    Lost(Option<State>),
}

impl From<Fenced> for SettleError {
    fn from(fenced: Fenced) -> Self {
        Self::LeaseLost(match fenced {
            Fenced::SettledAlready(state) => Some(state),
            Fenced::Lost(state) => state,
        })
    }
}

impl Tables {
    /// Every lease of an earlier life of the holder's name has ended.
    fn vacate(&mut self, holder: &Holder) {
        let step = Step::Vacate { name: holder.name.clone(), incarnation: holder.incarnation };
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            // Refused wherever another holds the job, or nobody.
            let _ = self.take(id, &step, None);
        }
    }

    fn claim(
        &mut self,
        holder: &Holder,
        job: JobId,
        owner: &Owner,
        lease: Duration,
        ledger: &mut Ledger,
        room: &[Room],
    ) -> Claim {
        let now = self.now();
        let Some(row) = self.jobs.get(&job) else { return Claim::Stale };
        let (life, lane) = (&row.life, row.new.lane());
        match &life.status {
            _ if row.new.owner != *owner => return Claim::Foreign,
            Status::Ended(_) if life.delete_asked => return Claim::Stale,
            Status::Ended(_) => return Claim::Finished(life.state()),
            Status::Running { until, .. } if now < *until => return Claim::Busy(*until),
            _ => {}
        }
        let overdue = life.deadline.is_some_and(|deadline| deadline <= now);
        if self.paused.contains(&lane) && (life.due_at <= now || overdue) {
            return Claim::Paused;
        }
        let token = Token::random();
        let cancel_asked = matches!(life.status, Status::Running { cancel_asked: true, .. });
        let runs = life.due_at <= now && life.attempt < life.attempts_max && !overdue && !cancel_asked;
        if runs && let Err(stop) = self.pass(ledger, job, token, room) {
            return Claim::Waits(stop);
        }
        match self.take(job, &Step::Claim { holder: holder.clone(), token, lease }, None) {
            Ok(_) => {}
            Err(Refused::NotDue(due_at)) => return Claim::NotDue(due_at),
            Err(_) => unreachable!("a claim is refused only where the job is busy, ended or not due"),
        }
        let row = &self.jobs[&job];
        match row.life.state() {
            State::Running => Claim::Run(Box::new(Holding {
                job: row.job(),
                lease: Lease { job, token, epoch: row.life.epoch, until: now + lease },
            })),
            State::Cancelled => Claim::Cancelled,
            _ => Claim::Failed,
        }
    }

    /// The rung jobs of a lane, in the order of their turns. Where it is paused, claiming them says so.
    fn rung_in(&self, quota: &LaneQuota) -> Vec<(JobId, Owner)> {
        let now = self.now();
        let rung = |row: &&super::Row| {
            row.hint().is_some_and(|hint| hint > 0) && row.life.due_at <= now && row.new.lane() == quota.lane
        };
        let mut rows: Vec<&super::Row> = self.jobs.values().filter(rung).collect();
        rows.sort_by_key(|row| (row.turn, row.new.id));
        rows.into_iter().map(|row| (row.new.id, row.new.owner.clone())).collect()
    }

    /// A write of the running side: applied only under the token that stands in the row.
    pub(super) fn fenced(
        &mut self,
        lease: &Lease,
        step: &Step,
        stage: Option<&str>,
    ) -> Result<Vec<Effect>, Fenced> {
        let Some(row) = self.jobs.get(&lease.job) else { return Err(Fenced::Lost(None)) };
        let gone = row.life.delete_asked && row.life.state().is_terminal();
        self.take(lease.job, step, stage).map_err(|refused| match refused {
            Refused::SettledAlready(state) => Fenced::SettledAlready(state),
            Refused::LeaseLost(state) => Fenced::Lost((!gone).then_some(state)),
            other => unreachable!("a fenced write is refused for its lease only, not because {other}"),
        })
    }
}

/// A worker's standing; its name is free again when this is dropped.
struct Presence {
    holder: Holder,
    memory: Memory,
}

#[async_trait]
impl Member for Presence {
    fn holder(&self) -> &Holder {
        &self.holder
    }

    async fn beat(
        &mut self,
        leases: &[(JobId, Token)],
        lease: Duration,
        report: &WorkerReport,
    ) -> Result<Vec<Beat>, StoreError> {
        let mut tables = self.memory.tables();
        let now = tables.now();
        if let Some(worker) = tables.workers.get_mut(&self.holder.name) {
            worker.row.report = report.clone();
            worker.row.seen_at = now;
        }
        let beats = leases.iter().map(|(job, token)| {
            if !tables.jobs.contains_key(job) {
                return Beat::Lost;
            }
            if tables.take(*job, &Step::Renew { token: *token, lease }, None).is_err() {
                return Beat::Lost;
            }
            let cancel_asked = tables.jobs[job].job().cancel_asked;
            Beat::Renewed { cancel_asked }
        });
        Ok(beats.collect())
    }

    async fn leave(self: Box<Self>) -> Result<(), StoreError> {
        self.memory.tables().workers.remove(&self.holder.name);
        Ok(())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut tables = self.memory.tables();
        let mine = tables.workers.get_mut(&self.holder.name);
        if let Some(worker) = mine.filter(|worker| worker.row.holder == self.holder) {
            worker.present = false;
        }
    }
}
