//! Accepting, and what people may do.

use async_trait::async_trait;
use serde_json::json;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;

use super::{Sqlite, Told, Transaction, now, one, tell};
use crate::job::State;
use crate::job::name::{Assignee, IdempotencyKey, JobId, Lane, Owner};
use crate::job::record::NewJob;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{
    AcceptError, Accepted, Control, ControlError, KeyRecord, NewKey, Scope, StoreError,
};
use crate::store::row::{as_micros, state, unreadable};

macro_rules! key_columns {
    () => {
        "id, owner, scopes, created_at, expires_at, revoked_at"
    };
}

#[async_trait]
impl Control for Sqlite {
    async fn accept(&self, job: NewJob) -> Result<Accepted, AcceptError> {
        let (id, owner, kind) = (job.id, job.owner.clone(), job.kind.clone());
        match self.write(async move |tx| accept_on(tx, &job).await).await {
            // Refused because it is there: an answer was lost, and is asked for again.
            Err(AcceptError::Store(StoreError::Broken(refused))) => {
                let query = sqlx::query("select 1 from jobs where id = $1 and owner = $2 and kind = $3")
                    .bind(id.0)
                    .bind(owner.as_str().to_owned())
                    .bind(kind.as_str().to_owned());
                match self.row(query).await? {
                    Some(_) => Ok(Accepted { id, again: true, duplicate: false }),
                    None => Err(StoreError::Broken(refused).into()),
                }
            }
            other => other,
        }
    }

    async fn submission(
        &self,
        owner: &Owner,
        key: &IdempotencyKey,
    ) -> Result<Option<(JobId, [u8; 32])>, StoreError> {
        let query = sqlx::query(
            "
            select i.job, i.body
              from idempotency i
              join jobs j on j.id = i.job and not j.delete_asked
             where i.owner = $1 and i.key = $2
            ",
        )
        .bind(owner.as_str().to_owned())
        .bind(key.as_str().to_owned());
        let Some(row) = self.row(query).await? else { return Ok(None) };
        let body = <[u8; 32]>::try_from(row.try_get::<&[u8], _>("body")?).map_err(unreadable)?;
        Ok(Some((JobId(row.try_get("job")?), body)))
    }

    async fn cancel(&self, scope: &Scope, id: JobId) -> Result<State, ControlError> {
        let scope = scope.clone();
        self.write(async move |tx| {
            #[cfg(feature = "faults")]
            if let Some(state) = super::mutant::cancel(tx, id).await? {
                return Ok(state);
            }
            if let Some(state) = cancel_on(tx, &scope, id).await? {
                return Ok(state);
            }
            match state_of(tx, &scope, id).await? {
                State::Running => Ok(State::Running), // asked before
                other => Err(ControlError::Conflict(other)),
            }
        })
        .await
    }

    async fn delete(&self, scope: &Scope, id: JobId) -> Result<bool, ControlError> {
        let scope = scope.clone();
        self.write(async move |tx| {
            let cancelled = cancel_on(tx, &scope, id).await? == Some(State::Cancelled);
            let query = sqlx::query(
                "
                update jobs set delete_asked = 1
                 where id = $1 and ($2 is null or owner = $2) and not delete_asked
                ",
            )
            .bind(id.0)
            .bind(scope.owner());
            if tx.run(query).await? > 0 { Ok(cancelled) } else { Err(ControlError::NotFound) }
        })
        .await
    }

    async fn resolve(&self, scope: &Scope, id: JobId) -> Result<(), ControlError> {
        let scope = scope.clone();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update jobs set delete_asked = 1
                 where id = $1 and ($2 is null or owner = $2) and not delete_asked and state = 'failed'
                ",
            )
            .bind(id.0)
            .bind(scope.owner());
            if tx.run(query).await? > 0 {
                return Ok(());
            }
            Err(ControlError::Conflict(state_of(tx, &scope, id).await?))
        })
        .await
    }

    async fn assign(&self, scope: &Scope, id: JobId, to: Option<&Assignee>) -> Result<(), ControlError> {
        let (scope, to) = (scope.clone(), to.cloned());
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update jobs set assignee = $3
                 where id = $1 and ($2 is null or owner = $2) and not delete_asked and state = 'failed'
                ",
            )
            .bind(id.0)
            .bind(scope.owner())
            .bind(to.map(String::from));
            if tx.run(query).await? > 0 {
                return Ok(());
            }
            Err(ControlError::Conflict(state_of(tx, &scope, id).await?))
        })
        .await
    }

    async fn redrive(&self, scope: &Scope, id: JobId) -> Result<(), ControlError> {
        let scope = scope.clone();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update jobs
                   set state = 'pending', attempt = 0, throttled = 0, snoozed = 0, redrives = redrives + 1,
                       due_at = $3, finished_at = null, cancel_asked = 0, assignee = null,
                       deadline = case when deadline > $3 then deadline end,
                       sequence = sequence + 1
                 where id = $1 and ($2 is null or owner = $2) and not delete_asked and state = 'failed'
                ",
            )
            .bind(id.0)
            .bind(scope.owner())
            .bind(tx.now);
            if tx.run(query).await? == 0 {
                return Err(ControlError::Conflict(state_of(tx, &scope, id).await?));
            }
            let told = Told { job: id.0, event: "redriven".into(), attempt: 0, worker: None, code: None };
            Ok(tell(tx, &[told]).await?)
        })
        .await
    }

    async fn pause(&self, lane: &Lane) -> Result<(), StoreError> {
        let lane = lane.to_string();
        self.write(async move |tx| {
            let query = sqlx::query("insert into pauses (lane, at) values ($1, $2) on conflict do nothing");
            tx.run(query.bind(lane).bind(tx.now)).await?;
            Ok(())
        })
        .await
    }

    async fn resume(&self, lane: &Lane) -> Result<(), StoreError> {
        let lane = lane.to_string();
        self.write(async move |tx| {
            tx.run(sqlx::query("delete from pauses where lane = $1").bind(lane)).await?;
            Ok(())
        })
        .await
    }

    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, StoreError> {
        self.write(async move |tx| {
            let query = sqlx::query(concat!(
                "
                insert into keys (id, hash, owner, scopes, created_at, expires_at)
                values ($1, $2, $3, $4, $5, $5 + $6)
                returning ",
                key_columns!(),
            ))
            .bind(key.id)
            .bind(key.hash.as_slice())
            .bind(key.owner.map(String::from))
            .bind(Json(key.scopes))
            .bind(tx.now)
            .bind(key.lifetime.map(as_micros));
            key_record(&one(tx.row(query).await?)?)
        })
        .await
    }

    async fn key(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>, StoreError> {
        let query = sqlx::query(concat!(
            "select ",
            key_columns!(),
            "
              from keys
             where hash = $1 and revoked_at is null and (expires_at is null or expires_at > ",
            now!(),
            ")",
        ))
        .bind(hash.as_slice());
        self.row(query).await?.as_ref().map(key_record).transpose()
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        let query = sqlx::query(concat!("select ", key_columns!(), " from keys order by created_at, id"));
        self.rows(query).await?.iter().map(key_record).collect()
    }

    async fn revoke_key(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(async move |tx| {
            let query = sqlx::query("update keys set revoked_at = coalesce(revoked_at, $2) where id = $1");
            Ok(tx.run(query.bind(id).bind(tx.now)).await? > 0)
        })
        .await
    }
}

/// T10: the state it is in now, or none where there was nothing to cancel or to ask.
async fn cancel_on(tx: &mut Transaction<'_>, scope: &Scope, id: JobId) -> Result<Option<State>, StoreError> {
    let query = sqlx::query(
        "
        update jobs
           set state        = case state when 'pending' then 'cancelled' else state end,
               finished_at  = case state when 'pending' then $3 end,
               cancel_asked = state = 'running',
               hint = 0, turn = null, ring_at = null,
               sequence     = sequence + 1
         where id = $1 and ($2 is null or owner = $2) and not delete_asked
           and (state = 'pending' or (state = 'running' and not cancel_asked))
        returning state, attempt
        ",
    )
    .bind(id.0)
    .bind(scope.owner())
    .bind(tx.now);
    let Some(row) = tx.row(query).await? else { return Ok(None) };
    let state = state(row.try_get("state")?)?;
    let event = if state == State::Running { "cancel-requested" } else { state.as_str() };
    let attempt = row.try_get("attempt")?;
    tell(tx, &[Told { job: id.0, event: event.into(), attempt, worker: None, code: None }]).await?;
    Ok(Some(state))
}

/// For telling a refusal from an absence.
pub(super) async fn state_of(
    tx: &mut Transaction<'_>,
    scope: &Scope,
    id: JobId,
) -> Result<State, ControlError> {
    let query = sqlx::query(
        "
        select state from jobs
         where id = $1 and ($2 is null or owner = $2) and not delete_asked
        ",
    )
    .bind(id.0)
    .bind(scope.owner());
    let Some(row) = tx.row(query).await? else { return Err(ControlError::NotFound) };
    Ok(state(row.try_get("state").map_err(StoreError::from)?)?)
}

/// T1: key, row and event. Of several submissions under one key the first one's row is made.
pub(super) async fn accept_on(tx: &mut Transaction<'_>, job: &NewJob) -> Result<Accepted, AcceptError> {
    if let Some(first) = first_accepted(tx, job).await? {
        return Ok(first);
    }
    if let Some(id) = super::unique::holder(tx, job).await? {
        return Ok(Accepted { id, again: true, duplicate: true });
    }
    let due_at = job.run_at.map_or(tx.now, Timestamp::micros);
    // What is not due yet waits for its time before it waits in the window.
    let rung = job.rung.filter(|_| due_at <= tx.now);
    let query = sqlx::query(
        "
        insert into jobs (id, owner, kind, lane, priority, params, source, trace, attempts_max, backoff_first_us,
                          backoff_max_us, created_at, due_at, deadline, hint, turn, ring_at, parent, follows)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
                $11, $12, $13, $14, $15 is not null, $15, $12 + $16, $18, $19);
        insert into events (job, sequence, owner, kind, event, at, sent)
        values ($1, 1, $2, $3, 'accepted', $12, not $17)
        ",
    )
    .bind(job.id.0)
    .bind(job.owner.as_str())
    .bind(job.kind.as_str())
    .bind(job.lane().to_string())
    .bind(i16::from(job.priority.get()))
    .bind(&job.params)
    .bind(job.source.as_ref().map(|source| json!(source)))
    .bind(job.trace.as_deref())
    .bind(i32::try_from(job.retry.attempts).unwrap_or(i32::MAX))
    .bind(as_micros(job.retry.backoff.first))
    .bind(as_micros(job.retry.backoff.max))
    .bind(tx.now)
    .bind(due_at)
    .bind(job.deadline.map(Timestamp::micros))
    .bind(rung.map(|rung| i64::try_from(rung.turn).unwrap_or(i64::MAX)))
    .bind(rung.map(|rung| as_micros(rung.again)))
    .bind(tx.outbox)
    .bind(job.parent.map(|parent| parent.0))
    .bind(!job.on.is_empty());
    tx.run(query).await?;
    super::follow::declare(tx, job).await?;
    Ok(Accepted { id: job.id, again: false, duplicate: false })
}

/// The answer for a submission that came second; none for the first under its key, which has it now.
async fn first_accepted(tx: &mut Transaction<'_>, job: &NewJob) -> Result<Option<Accepted>, AcceptError> {
    let Some((key, body)) = &job.idempotency else { return Ok(None) };
    let query = sqlx::query(
        "
        insert into idempotency as i (owner, key, body, job, created_at) values ($1, $2, $3, $4, $5)
        on conflict (owner, key) do update
           set body = excluded.body, job = excluded.job, created_at = excluded.created_at
         where not exists (select 1 from jobs j where j.id = i.job and not j.delete_asked)
        ",
    )
    .bind(job.owner.as_str())
    .bind(key.as_str())
    .bind(body.as_slice())
    .bind(job.id.0)
    .bind(tx.now);
    if tx.run(query).await? > 0 {
        return Ok(None);
    }
    let query = sqlx::query("select job, body from idempotency where owner = $1 and key = $2")
        .bind(job.owner.as_str())
        .bind(key.as_str());
    let row = one(tx.row(query).await?)?;
    if row.try_get::<Vec<u8>, _>("body").map_err(StoreError::from)? != body.as_slice() {
        return Err(AcceptError::KeyReused);
    }
    let id = JobId(row.try_get("job").map_err(StoreError::from)?);
    Ok(Some(Accepted { id, again: true, duplicate: false }))
}

fn key_record(row: &SqliteRow) -> Result<KeyRecord, StoreError> {
    let Json(scopes) = row.try_get("scopes")?;
    Ok(KeyRecord {
        id: row.try_get("id")?,
        owner: row.try_get::<Option<String>, _>("owner")?.map(Owner::new).transpose().map_err(unreadable)?,
        scopes,
        created_at: Timestamp::from_micros(row.try_get("created_at")?),
        expires_at: row.try_get::<Option<i64>, _>("expires_at")?.map(Timestamp::from_micros),
        revoked_at: row.try_get::<Option<i64>, _>("revoked_at")?.map(Timestamp::from_micros),
    })
}
