//! Batches. How a part has ended is noted by a trigger (`migrations/sqlite/0011_batches.sql`).

use async_trait::async_trait;
use serde_json::Value;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::control::{accept_on, state_of};
use super::{Sqlite, Told, Transaction, hex, limit, one, tell};
use crate::job::State;
use crate::job::batch::{AWAITED, BatchState, MEMBERS_MAX, Member};
use crate::job::lease::Lease;
use crate::job::name::JobId;
use crate::job::record::NewJob;
use crate::store::contract::{
    AcceptError, Accepted, AddError, Batches, ControlError, Scope, SettleError, StoreError,
};
use crate::store::row::{count, state};

#[async_trait]
impl Batches for Sqlite {
    async fn accept_batch(
        &self,
        parent: NewJob,
        parts: Vec<NewJob>,
        sealed: bool,
    ) -> Result<Accepted, AcceptError> {
        self.write(async move |tx| {
            // A submission whose answer was lost comes again.
            let there = sqlx::query("select 1 from jobs where id = $1 and owner = $2 and kind = $3")
                .bind(parent.id.0)
                .bind(parent.owner.to_string())
                .bind(parent.kind.to_string());
            if tx.row(there).await?.is_some() {
                return Ok(Accepted { id: parent.id, again: true, duplicate: false });
            }
            let accepted = accept_on(tx, &parent).await?;
            if !accepted.again && gathers(tx, parent.id, sealed).await? {
                join(tx, parent.id, &parts).await?;
            }
            Ok(accepted)
        })
        .await
    }

    async fn add_parts(&self, scope: &Scope, parent: JobId, parts: Vec<NewJob>) -> Result<u32, AddError> {
        let scope = scope.clone();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                select (select coalesce(max(m.number) + 1, 0) from members m where m.batch = b.parent) as parts
                  from batches b
                  join jobs j on j.id = b.parent
                 where b.parent = $1 and ($2 is null or j.owner = $2) and not b.sealed
                   and j.finished_at is null and not j.delete_asked
                ",
            )
            .bind(parent.0)
            .bind(scope.owner());
            let Some(row) = tx.row(query).await? else { return Err(refused(tx, &scope, parent).await?.into()) };
            let before = count(row.try_get("parts").map_err(StoreError::from)?)?;
            if u64::from(before) + parts.len() as u64 > u64::from(MEMBERS_MAX) {
                return Err(ControlError::Conflict(State::Pending).into());
            }
            Ok(before + join(tx, parent, &parts).await?)
        })
        .await
    }

    async fn seal(&self, scope: &Scope, parent: JobId) -> Result<(), ControlError> {
        let scope = scope.clone();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update batches set sealed = 1
                 where parent = $1 and exists (select 1 from jobs j where j.id = $1 and ($2 is null or j.owner = $2)
                                                  and j.finished_at is null and not j.delete_asked)
                ",
            )
            .bind(parent.0)
            .bind(scope.owner());
            if tx.run(query).await? > 0 { Ok(()) } else { Err(refused(tx, &scope, parent).await?) }
        })
        .await
    }

    async fn fan_out(&self, lease: &Lease, parts: Vec<NewJob>) -> Result<bool, SettleError> {
        let lease = lease.clone();
        self.write(async move |tx| {
            let query = sqlx::query("select 1 from jobs where id = $1 and token = $2 and state = 'running'")
                .bind(lease.job.0)
                .bind(lease.token.0);
            if tx.row(query).await?.is_none() {
                let state = match state_of(tx, &Scope::All, lease.job).await {
                    Ok(state) => Some(state),
                    Err(ControlError::Store(error)) => return Err(error.into()),
                    Err(_) => None,
                };
                return Err(SettleError::LeaseLost(state));
            }
            let first = gathers(tx, lease.job, true).await?;
            if first {
                join(tx, lease.job, &parts).await.map_err(AcceptError::without_key)?;
            }
            Ok(first)
        })
        .await
    }

    async fn batch(&self, scope: &Scope, parent: JobId) -> Result<Option<BatchState>, StoreError> {
        let query = sqlx::query(
            "
            select b.sealed, m.state, count(m.job) as parts
              from batches b
              join jobs j on j.id = b.parent
              left join members m on m.batch = b.parent
             where b.parent = $1 and ($2 is null or j.owner = $2) and not j.delete_asked
             group by b.sealed, m.state
            ",
        )
        .bind(parent.0)
        .bind(scope.owner().map(str::to_owned));
        let mut found: Option<BatchState> = None;
        for row in &self.rows(query).await? {
            let batch = found.get_or_insert_default();
            batch.sealed = row.try_get("sealed")?;
            batch.count(ended(row.try_get("state")?)?, count(row.try_get("parts")?)?);
        }
        Ok(found)
    }

    async fn members(
        &self,
        scope: &Scope,
        parent: JobId,
        after: Option<u32>,
        max: usize,
    ) -> Result<Vec<Member>, StoreError> {
        let query = sqlx::query(
            "
            select m.number, m.job, m.state, r.output, j.failure
              from members m
              join jobs p on p.id = m.batch
              left join jobs j on j.id = m.job and not j.delete_asked
              left join results r on r.job = j.id and m.state = 'succeeded'
             where m.batch = $1 and m.number > $3 and ($2 is null or p.owner = $2) and not p.delete_asked
             order by m.number limit $4
            ",
        )
        .bind(parent.0)
        .bind(scope.owner().map(str::to_owned))
        .bind(after.map_or(-1, i64::from))
        .bind(limit(max));
        self.rows(query).await?.iter().map(member).collect()
    }

    async fn batch_of(&self, scope: &Scope, job: JobId) -> Result<Option<JobId>, StoreError> {
        let query = sqlx::query(
            "
            select batch from jobs
             where id = $1 and ($2 is null or owner = $2) and not delete_asked and batch is not null
            ",
        )
        .bind(job.0)
        .bind(scope.owner().map(str::to_owned));
        Ok(self.row(query).await?.map(|row| row.try_get("batch").map(JobId)).transpose()?)
    }

    async fn wake(&self, max: usize) -> Result<usize, StoreError> {
        // Looked at without writing, for mostly there is nothing; the guard is in the update.
        let query = sqlx::query(
            "
            select p.id from jobs p
             where p.state = 'pending' and p.gathers and p.due_at >= $2
               and exists (select 1 from batches b where b.parent = p.id and b.sealed)
               and not exists (select 1 from members m where m.batch = p.id and m.state is null)
             order by p.id limit $1
            ",
        );
        let ready = self.rows(query.bind(limit(max)).bind(AWAITED.micros())).await?;
        if ready.is_empty() {
            return Ok(0);
        }
        let ready: Value =
            ready.iter().map(|row| Ok(hex(row.try_get("id")?))).collect::<Result<_, StoreError>>()?;
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update jobs as j
                   set due_at = $2, sequence = sequence + 1
                 where id in (select unhex(value) from json_each($1)) and state = 'pending' and due_at >= $3
                   and exists (select 1 from batches b where b.parent = j.id and b.sealed)
                   and not exists (select 1 from members m where m.batch = j.id and m.state is null)
                returning id
                ",
            )
            .bind(ready)
            .bind(tx.now)
            .bind(AWAITED.micros());
            let mut told = Vec::new();
            for row in tx.rows(query).await? {
                let job: Uuid = row.try_get("id")?;
                told.push(Told { job, event: "batch-ended".into(), attempt: 0, worker: None, code: None });
            }
            tell(tx, &told).await?;
            Ok(told.len())
        })
        .await
    }

    async fn strays(&self, max: usize) -> Result<Vec<JobId>, StoreError> {
        if self.row(sqlx::query("select 1 from batches where over limit 1")).await?.is_none() {
            return Ok(Vec::new());
        }
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update batches set over = 0
                 where over and not exists (select 1 from members m where m.batch = parent and m.state is null)
                ",
            );
            tx.run(query).await?;
            let query = sqlx::query(
                "
                select m.job
                  from batches whole
                 cross join members m on m.batch = whole.parent and m.state is null
                 cross join jobs j on j.id = m.job and not j.cancel_asked and j.finished_at is null
                 where whole.over
                 limit $1
                ",
            )
            .bind(limit(max));
            tx.rows(query).await?.iter().map(|row| Ok(JobId(row.try_get("job")?))).collect()
        })
        .await
    }
}

/// The job is the parent of a batch from now on; false where it was one already.
async fn gathers(tx: &mut Transaction<'_>, parent: JobId, sealed: bool) -> Result<bool, StoreError> {
    let query = sqlx::query("insert into batches (parent, sealed) values ($1, $2) on conflict do nothing")
        .bind(parent.0)
        .bind(sealed);
    if tx.run(query).await? == 0 {
        return Ok(false);
    }
    tx.run(sqlx::query("update jobs set gathers = 1 where id = $1").bind(parent.0)).await?;
    Ok(true)
}

/// These jobs are made and are parts of it, after those there are; answers how many are new.
async fn join(tx: &mut Transaction<'_>, parent: JobId, parts: &[NewJob]) -> Result<u32, AcceptError> {
    let mut added = 0;
    for part in parts {
        let there = sqlx::query("select 1 from members where batch = $1 and job = $2");
        if tx.row(there.bind(parent.0).bind(part.id.0)).await?.is_some() {
            continue;
        }
        accept_on(tx, part).await?;
        let query = sqlx::query(
            "
            update jobs set batch = $1 where id = $2;
            insert into members (batch, number, job)
            select $1, coalesce(max(number) + 1, 0), $2 from members where batch = $1
            ",
        );
        tx.run(query.bind(parent.0).bind(part.id.0)).await?;
        added += 1;
    }
    Ok(added)
}

/// Why a batch cannot be changed: it is none of the caller's, or where its parent stands.
async fn refused(tx: &mut Transaction<'_>, scope: &Scope, parent: JobId) -> Result<ControlError, StoreError> {
    let query = sqlx::query("select count(*) as batches from batches where parent = $1").bind(parent.0);
    if one(tx.row(query).await?)?.try_get::<i64, _>("batches")? == 0 {
        return Ok(ControlError::NotFound);
    }
    match state_of(tx, scope, parent).await {
        Ok(state) => Ok(ControlError::Conflict(state)),
        Err(ControlError::Store(error)) => Err(error),
        Err(error) => Ok(error),
    }
}

fn ended(text: Option<String>) -> Result<Option<State>, StoreError> {
    text.map(|text| state(&text)).transpose()
}

fn member(row: &SqliteRow) -> Result<Member, StoreError> {
    crate::store::row::member_row!(row, JobId(row.try_get("job")?), ended(row.try_get("state")?)?)
}
