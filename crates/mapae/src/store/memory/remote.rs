//! Leases held outside.

use std::time::Duration;

use async_trait::async_trait;

use super::{Memory, Row};
use crate::job::lease::{Holder, Lease, Token};
use crate::job::name::{BusinessKey, JobId, Kind, Lane, Owner};
use crate::job::{State, Status, Step};
use crate::store::contract::{
    Awaited, Beat, Puller, Remote, Scope, SettleError, StoreError, WorkerReport, WorkerRow,
};

#[async_trait]
impl Remote for Memory {
    async fn lend(&self, lease: &Lease, until: Duration) -> Result<(), SettleError> {
        self.tables().fenced(lease, &Step::Lend { token: lease.token, until }, None)?;
        Ok(())
    }

    async fn correlate(&self, lease: &Lease, key: &BusinessKey) -> Result<(), SettleError> {
        let mut tables = self.tables();
        tables.fenced(lease, &Step::Renew { token: lease.token, lease: Duration::ZERO }, None)?;
        if let Some(row) = tables.jobs.get_mut(&lease.job) {
            row.business_key = Some(key.clone());
        }
        Ok(())
    }

    async fn renew(&self, leases: &[(JobId, Token)], lease: Duration) -> Result<Vec<Beat>, StoreError> {
        let mut tables = self.tables();
        let beats = leases.iter().map(|(job, token)| {
            let Some(row) = tables.jobs.get(job) else { return Beat::Lost };
            let lent = matches!(&row.life.status, Status::Running { holder, .. } if holder.is_service());
            let lease = if lent { Duration::ZERO } else { lease };
            match tables.take(*job, &Step::Renew { token: *token, lease }, None) {
                Ok(_) => Beat::Renewed { cancel_asked: tables.jobs[job].job().cancel_asked },
                Err(_) => Beat::Lost,
            }
        });
        Ok(beats.collect())
    }

    async fn offer(
        &self,
        scope: &Scope,
        lanes: &[Lane],
        max: usize,
    ) -> Result<Vec<(JobId, Owner)>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let mut offered = Vec::new();
        for lane in lanes.iter().filter(|lane| !tables.paused.contains(lane)) {
            let due = |row: &&Row| {
                let waits = row.hint().is_some_and(|hint| hint > 0 || scope.owner().is_some());
                waits && row.life.due_at <= now && row.new.lane() == *lane && row.within(scope)
            };
            let mut rows: Vec<&Row> = tables.jobs.values().filter(due).collect();
            rows.sort_by_key(|row| match row.hint() {
                Some(0) | None => (true, 0, row.life.due_at, row.new.id),
                Some(_) => (false, row.turn, now, row.new.id),
            });
            offered.extend(rows.into_iter().map(|row| (row.new.id, row.new.owner.clone())));
        }
        offered.truncate(max);
        Ok(offered)
    }

    async fn pulls(&self, client: &Puller) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        let key = (client.owner.clone(), client.name.to_string());
        let started_at = tables.pullers.get(&key).map_or(now, |row| row.started_at);
        let row = WorkerRow {
            holder: Holder::pulling(&client.name),
            kinds: client.kinds.clone(),
            slots: client.max,
            report: WorkerReport { phase: "pulling".into(), ..WorkerReport::default() },
            started_at,
            seen_at: now,
        };
        tables.pullers.insert(key, row);
        Ok(())
    }

    async fn awaited(
        &self,
        kind: &Kind,
        key: Option<&BusinessKey>,
        lent: bool,
        max: usize,
    ) -> Result<Vec<Awaited>, StoreError> {
        let tables = self.tables();
        let mut found: Vec<_> = tables
            .jobs
            .values()
            .filter(|row| row.new.kind == *kind && row.life.state() == State::Running)
            .filter_map(|row| {
                let known = row.business_key.clone()?;
                let Status::Running { token, holder, .. } = &row.life.status else { return None };
                let wanted = key.is_none_or(|key| *key == known) && (!lent || holder.is_service());
                wanted.then_some((row.started_at, Awaited { job: row.new.id, token: *token, key: known }))
            })
            .collect();
        found.sort_by_key(|(started_at, awaited)| (*started_at, awaited.job));
        Ok(found.into_iter().take(max).map(|(_, awaited)| awaited).collect())
    }
}
