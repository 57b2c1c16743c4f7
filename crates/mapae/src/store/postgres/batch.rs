//! Batches. How a part has ended is noted by a trigger (`migrations/postgres/0011_batches.sql`).

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use super::Postgres;
use super::ask::{Ask, within};
use super::control::make;
use crate::job::State;
use crate::job::batch::{BatchState, MEMBERS_MAX, Member};
use crate::job::lease::Lease;
use crate::job::name::JobId;
use crate::job::record::NewJob;
use crate::store::contract::{
    AcceptError, Accepted, AddError, Batches, ControlError, Scope, SettleError, StoreError,
};
use crate::store::row::{count, state, unreadable};

#[async_trait]
impl Batches for Postgres {
    async fn accept_batch(
        &self,
        parent: NewJob,
        parts: Vec<NewJob>,
        sealed: bool,
    ) -> Result<Accepted, AcceptError> {
        let mut connection = within(self.pool.acquire()).await?;
        let mut tx = within(connection.begin()).await?;
        let accepted = super::unique::accept_on(&mut tx, &parent, self.outbox).await??;
        if !accepted.again && gathers(&mut tx, parent.id, sealed).await? {
            join(&mut tx, parent.id, &parts, self.outbox).await?;
        }
        within(tx.commit()).await?;
        Ok(accepted)
    }

    async fn add_parts(&self, scope: &Scope, parent: JobId, parts: Vec<NewJob>) -> Result<u32, AddError> {
        let mut connection = within(self.pool.acquire()).await?;
        let mut tx = within(connection.begin()).await?;
        // The parent's row first, as whoever ends it takes them: none joins a batch whose parent has ended.
        sqlx::query("select id from mapae.jobs where id = $1 for no key update")
            .bind(parent.0)
            .maybe(&mut *tx)
            .await?;
        // The batch's row is held, so that nobody seals it meanwhile, and what is counted stays.
        let open = sqlx::query(
            "
            select (select coalesce(max(m.number) + 1, 0) from mapae.members m where m.batch = b.parent) as parts
              from mapae.batches b
              join mapae.jobs j on j.id = b.parent
             where b.parent = $1 and ($2::text is null or j.owner = $2) and not b.sealed
               and j.finished_at is null and not j.delete_asked
               for update of b
            ",
        )
        .bind(parent.0)
        .bind(scope.owner())
        .maybe(&mut *tx)
        .await?;
        let before = match open {
            Some(row) => count(row.try_get("parts").map_err(StoreError::from)?)?,
            None => return Err(self.refused(scope, parent).await?.into()),
        };
        if u64::from(before) + parts.len() as u64 > u64::from(MEMBERS_MAX) {
            return Err(ControlError::Conflict(State::Pending).into());
        }
        let there: Vec<Uuid> =
            sqlx::query("select job from mapae.members where batch = $1 and job = any($2)")
                .bind(parent.0)
                .bind(parts.iter().map(|part| part.id.0).collect::<Vec<_>>())
                .rows(&mut *tx)
                .await?
                .iter()
                .map(|row| row.try_get("job"))
                .collect::<Result<_, _>>()
                .map_err(StoreError::from)?;
        // Also such as are deleted by now: they are not made again.
        let parts: Vec<NewJob> = parts.into_iter().filter(|part| !there.contains(&part.id.0)).collect();
        let added = join(&mut tx, parent, &parts, self.outbox).await?;
        within(tx.commit()).await?;
        Ok(before + added)
    }

    async fn seal(&self, scope: &Scope, parent: JobId) -> Result<(), ControlError> {
        let sealed = sqlx::query(
            "
            update mapae.batches b set sealed = true
              from mapae.jobs j
             where b.parent = $1 and j.id = $1 and ($2::text is null or j.owner = $2)
               and j.finished_at is null and not j.delete_asked
            ",
        )
        .bind(parent.0)
        .bind(scope.owner())
        .done(&self.pool)
        .await?;
        if sealed.rows_affected() > 0 { Ok(()) } else { Err(self.refused(scope, parent).await?) }
    }

    async fn fan_out(&self, lease: &Lease, parts: Vec<NewJob>) -> Result<bool, SettleError> {
        let mut connection = within(self.pool.acquire()).await?;
        let mut tx = within(connection.begin()).await?;
        let held = sqlx::query(
            "select id from mapae.jobs where id = $1 and token = $2 and state = 'running' for update",
        )
        .bind(lease.job.0)
        .bind(lease.token.0)
        .maybe(&mut *tx)
        .await?;
        if held.is_none() {
            within(tx.rollback()).await?;
            return Err(SettleError::LeaseLost(self.state_now(lease.job).await?));
        }
        let first = gathers(&mut tx, lease.job, true).await?;
        if first {
            join(&mut tx, lease.job, &parts, self.outbox).await.map_err(AcceptError::without_key)?;
        }
        within(tx.commit()).await?;
        Ok(first)
    }

    async fn batch(&self, scope: &Scope, parent: JobId) -> Result<Option<BatchState>, StoreError> {
        let rows = sqlx::query(
            "
            select b.sealed, m.state, count(m.job) as parts
              from mapae.batches b
              join mapae.jobs j on j.id = b.parent
              left join mapae.members m on m.batch = b.parent
             where b.parent = $1 and ($2::text is null or j.owner = $2) and not j.delete_asked
             group by b.sealed, m.state
            ",
        )
        .bind(parent.0)
        .bind(scope.owner())
        .rows(&self.views)
        .await?;
        let mut found: Option<BatchState> = None;
        for row in &rows {
            let batch = found.get_or_insert_default();
            batch.sealed = row.try_get("sealed")?;
            let parts = u32::try_from(row.try_get::<i64, _>("parts")?).map_err(unreadable)?;
            batch.count(ended(row.try_get("state")?)?, parts);
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
        let rows = sqlx::query(
            "
            select m.number, m.job, m.state, r.output, j.failure
              from mapae.members m
              join mapae.jobs p on p.id = m.batch
              left join mapae.jobs j on j.id = m.job and not j.delete_asked
              left join mapae.results r on r.job = j.id and m.state = 'succeeded'
             where m.batch = $1 and m.number > $3 and ($2::text is null or p.owner = $2) and not p.delete_asked
             order by m.number limit $4
            ",
        )
        .bind(parent.0)
        .bind(scope.owner())
        .bind(after.map_or(-1, |after| i32::try_from(after).unwrap_or(i32::MAX)))
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.views)
        .await?;
        rows.iter().map(member).collect()
    }

    async fn batch_of(&self, scope: &Scope, job: JobId) -> Result<Option<JobId>, StoreError> {
        let row = sqlx::query(
            "
            select batch from mapae.jobs
             where id = $1 and ($2::text is null or owner = $2) and not delete_asked and batch is not null
            ",
        )
        .bind(job.0)
        .bind(scope.owner())
        .maybe(&self.views)
        .await?;
        Ok(row.map(|row| row.try_get("batch").map(JobId)).transpose()?)
    }

    async fn wake(&self, max: usize) -> Result<usize, StoreError> {
        let row = sqlx::query(
            "
            with woken as (
                update mapae.jobs j
                   set due_at = now(), sequence = j.sequence + 1
                 where j.id = any(array(
                           select p.id from mapae.jobs p
                            where p.state = 'pending' and p.gathers and p.due_at >= timestamptz '2500-01-01 00:00:00+00'
                              and exists (select from mapae.batches b where b.parent = p.id and b.sealed)
                              and not exists (select from mapae.members m where m.batch = p.id and m.state is null)
                            order by p.id limit $1
                              for update skip locked))
                   and j.state = 'pending' and j.due_at >= timestamptz '2500-01-01 00:00:00+00'
                returning j.id, j.owner, j.kind, j.sequence
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, sent)
                select id, sequence, owner, kind, 'batch-ended', now(), not $2 from woken
            )
            select count(*) as woken from woken
            ",
        )
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .bind(self.outbox)
        .one(&self.pool)
        .await?;
        Ok(usize::try_from(row.try_get::<i64, _>("woken")?).unwrap_or_default())
    }

    async fn strays(&self, max: usize) -> Result<Vec<JobId>, StoreError> {
        sqlx::query(
            "
            update mapae.batches b set over = false
             where b.over and not exists (select from mapae.members m where m.batch = b.parent and m.state is null)
            ",
        )
        .done(&self.pool)
        .await?;
        let rows = sqlx::query(
            "
            select m.job
              from mapae.batches b
              join mapae.members m on m.batch = b.parent and m.state is null
              join mapae.jobs j on j.id = m.job and not j.cancel_asked and j.finished_at is null
             where b.over
             limit $1
            ",
        )
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter().map(|row| Ok(JobId(row.try_get("job")?))).collect()
    }
}

impl Postgres {
    async fn state_now(&self, job: JobId) -> Result<Option<State>, StoreError> {
        let row = sqlx::query("select state from mapae.jobs where id = $1 and not delete_asked")
            .bind(job.0)
            .maybe(&self.pool)
            .await?;
        row.map(|row| state(row.try_get("state")?)).transpose()
    }

    /// Why a batch cannot be changed: it is none of the caller's, or where its parent stands.
    async fn refused(&self, scope: &Scope, parent: JobId) -> Result<ControlError, StoreError> {
        if self.batch(scope, parent).await?.is_none() {
            return Ok(ControlError::NotFound);
        }
        Ok(self.state_now(parent).await?.map_or(ControlError::NotFound, ControlError::Conflict))
    }
}

/// The job is the parent of a batch from now on; false where it was one already.
async fn gathers(tx: &mut PgConnection, parent: JobId, sealed: bool) -> Result<bool, StoreError> {
    let made = sqlx::query(
        "insert into mapae.batches (parent, sealed) values ($1, $2) on conflict (parent) do nothing",
    )
    .bind(parent.0)
    .bind(sealed)
    .done(&mut *tx)
    .await?;
    if made.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query("update mapae.jobs set gathers = true where id = $1").bind(parent.0).done(tx).await?;
    Ok(true)
}

/// These jobs are made and are parts of it, after those there are; answers how many are new.
async fn join(
    tx: &mut PgConnection,
    parent: JobId,
    parts: &[NewJob],
    outbox: bool,
) -> Result<u32, AcceptError> {
    if parts.is_empty() {
        return Ok(0);
    }
    let made = make(tx, parts, outbox).await?;
    let mut fresh: Vec<Uuid> = Vec::with_capacity(parts.len());
    for (part, made) in parts.iter().zip(made) {
        if !made?.again {
            fresh.push(part.id.0);
        }
    }
    sqlx::query("update mapae.jobs set batch = $1 where id = any($2)")
        .bind(parent.0)
        .bind(&fresh)
        .done(&mut *tx)
        .await?;
    sqlx::query(
        "
        insert into mapae.members (batch, number, job)
        select $1, (select coalesce(max(number) + 1, 0) from mapae.members where batch = $1) + g.n - 1, g.id
          from unnest($2::uuid[]) with ordinality g (id, n)
        ",
    )
    .bind(parent.0)
    .bind(&fresh)
    .done(tx)
    .await?;
    Ok(u32::try_from(fresh.len()).map_err(unreadable)?)
}

fn ended(text: Option<String>) -> Result<Option<State>, StoreError> {
    text.map(|text| state(&text)).transpose()
}

fn member(row: &PgRow) -> Result<Member, StoreError> {
    crate::store::row::member_row!(row, JobId(row.try_get("job")?), ended(row.try_get("state")?)?)
}
