//! Accepting, and what people may do.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::{PgConnection, PgPool, Row};
use uuid::Uuid;

use super::Postgres;
use super::ask::Ask;
use crate::job::State;
use crate::job::name::{Assignee, IdempotencyKey, JobId, Lane, Owner};
use crate::job::record::{FirstRing, NewJob};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{
    AcceptError, Accepted, Control, ControlError, KeyRecord, NewKey, Scope, StoreError,
};
use crate::store::row::{as_micros, state, unreadable};

macro_rules! key_columns {
    () => {
        "
    k.id, k.owner, k.scopes,
    (extract(epoch from k.created_at) * 1000000)::bigint as created_at,
    (extract(epoch from k.expires_at) * 1000000)::bigint as expires_at,
    (extract(epoch from k.revoked_at) * 1000000)::bigint as revoked_at"
    };
}

/// Whether a key that is there already, `i`, is free again because its job is gone.
///
/// Key and job are written together, so a statement that can see which job the key names could see the job, too.
/// One that cannot see the key yet has met a submission of this very moment, whose job is not gone.
macro_rules! key_is_free {
    () => {
        "exists (select from mapae.idempotency seen
                 where seen.owner = i.owner and seen.key = i.key and seen.job = i.job)
             and not exists (select from mapae.jobs j where j.id = i.job and not j.delete_asked)"
    };
}
pub(super) use key_is_free;

#[async_trait]
impl Control for Postgres {
    async fn accept(&self, job: NewJob) -> Result<Accepted, AcceptError> {
        let batcher = match &job.idempotency {
            _ if job.unique.is_some() || !job.on.is_empty() || job.callback.is_some() => &self.singles,
            Some(_) => &self.keyed,
            None => &self.accepts,
        };
        batcher.ask(job).await?
    }

    async fn submission(
        &self,
        owner: &Owner,
        key: &IdempotencyKey,
    ) -> Result<Option<(JobId, [u8; 32])>, StoreError> {
        let row = sqlx::query(
            "
            select i.job, i.body
              from mapae.idempotency i
              join mapae.jobs j on j.id = i.job and not j.delete_asked
             where i.owner = $1 and i.key = $2
            ",
        )
        .bind(owner.as_str())
        .bind(key.as_str())
        .maybe(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let body = <[u8; 32]>::try_from(row.try_get::<&[u8], _>("body")?).map_err(unreadable)?;
        Ok(Some((JobId(row.try_get("job")?), body)))
    }

    async fn cancel(&self, scope: &Scope, id: JobId) -> Result<State, ControlError> {
        #[cfg(feature = "faults")]
        if let Some(state) = super::mutant::cancel(&self.pool, id).await? {
            return Ok(state);
        }
        let changed = sqlx::query(
            "
            with changed as (
                update mapae.jobs j
                   set state        = case j.state when 'pending' then 'cancelled' else j.state end,
                       finished_at  = case j.state when 'pending' then now() end,
                       cancel_asked = j.state = 'running',
                       hint = 0, turn = null, ring_at = null,
                       sequence     = j.sequence + 1
                 where j.id = $1 and ($2::text is null or j.owner = $2) and not j.delete_asked
                   and (j.state = 'pending' or (j.state = 'running' and not j.cancel_asked))
                returning j.id, j.owner, j.kind, j.state, j.sequence, j.attempt
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, sent)
                select id, sequence, owner, kind,
                       case state when 'running' then 'cancel-requested' else state end, now(), attempt, not $3
                  from changed
            )
            select state from changed
            ",
        )
        .bind(id.0)
        .bind(scope.owner())
        .bind(self.outbox)
        .maybe(&self.pool)
        .await?;
        if let Some(row) = changed {
            return Ok(state(row.try_get("state").map_err(StoreError::from)?)?);
        }
        match self.state_of(scope, id).await? {
            State::Running => Ok(State::Running), // asked before
            other => Err(ControlError::Conflict(other)),
        }
    }

    async fn delete(&self, scope: &Scope, id: JobId) -> Result<bool, ControlError> {
        let changed = sqlx::query(
            "
            with changed as (
                update mapae.jobs j
                   set state        = case j.state when 'pending' then 'cancelled' else j.state end,
                       finished_at  = case j.state when 'pending' then now() else j.finished_at end,
                       cancel_asked = j.cancel_asked or j.state = 'running',
                       delete_asked = true,
                       hint = 0, turn = null, ring_at = null,
                       sequence     = j.sequence + case
                           when j.state = 'pending' or (j.state = 'running' and not j.cancel_asked) then 1 else 0 end
                  from (select id, state, cancel_asked from mapae.jobs
                         where id = $1 and ($2::text is null or owner = $2) and not delete_asked
                           for update) was
                 where j.id = was.id
                returning j.id, j.owner, j.kind, j.state, j.sequence, j.attempt,
                          was.state = 'pending' or (was.state = 'running' and not was.cancel_asked) as tell,
                          was.state = 'pending' as cancelled
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, sent)
                select id, sequence, owner, kind,
                       case state when 'running' then 'cancel-requested' else state end, now(), attempt, not $3
                  from changed
                 where tell
            )
            select cancelled from changed
            ",
        )
        .bind(id.0)
        .bind(scope.owner())
        .bind(self.outbox)
        .maybe(&self.pool)
        .await?;
        let changed = changed.ok_or(ControlError::NotFound)?;
        Ok(changed.try_get("cancelled").map_err(StoreError::from)?)
    }

    async fn resolve(&self, scope: &Scope, id: JobId) -> Result<(), ControlError> {
        let changed = sqlx::query(
            "
            update mapae.jobs j
               set delete_asked = true
             where j.id = $1 and ($2::text is null or j.owner = $2) and not j.delete_asked
               and j.state = 'failed'
            returning j.id
            ",
        )
        .bind(id.0)
        .bind(scope.owner())
        .maybe(&self.pool)
        .await?;
        if changed.is_some() {
            return Ok(());
        }
        Err(ControlError::Conflict(self.state_of(scope, id).await?))
    }

    async fn assign(&self, scope: &Scope, id: JobId, to: Option<&Assignee>) -> Result<(), ControlError> {
        let changed = sqlx::query(
            "
            update mapae.jobs j
               set assignee = $3
             where j.id = $1 and ($2::text is null or j.owner = $2) and not j.delete_asked
               and j.state = 'failed'
            returning j.id
            ",
        )
        .bind(id.0)
        .bind(scope.owner())
        .bind(to.map(Assignee::as_str))
        .maybe(&self.pool)
        .await?;
        if changed.is_some() {
            return Ok(());
        }
        Err(ControlError::Conflict(self.state_of(scope, id).await?))
    }

    async fn redrive(&self, scope: &Scope, id: JobId) -> Result<(), ControlError> {
        let changed = sqlx::query(
            "
            with changed as (
                update mapae.jobs j
                   set state = 'pending', attempt = 0, throttled = 0, snoozed = 0, redrives = j.redrives + 1,
                       due_at = now(), finished_at = null, cancel_asked = false, assignee = null,
                       deadline = case when j.deadline > now() then j.deadline end,
                       sequence = j.sequence + 1
                 where j.id = $1 and ($2::text is null or j.owner = $2) and not j.delete_asked
                   and j.state = 'failed'
                returning j.id, j.owner, j.kind, j.sequence
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, sent)
                select id, sequence, owner, kind, 'redriven', now(), not $3 from changed
            )
            select id from changed
            ",
        )
        .bind(id.0)
        .bind(scope.owner())
        .bind(self.outbox)
        .maybe(&self.pool)
        .await?;
        if changed.is_some() {
            return Ok(());
        }
        Err(ControlError::Conflict(self.state_of(scope, id).await?))
    }

    async fn pause(&self, lane: &Lane) -> Result<(), StoreError> {
        sqlx::query("insert into mapae.pauses (lane, at) values ($1, now()) on conflict do nothing")
            .bind(lane.to_string())
            .done(&self.pool)
            .await?;
        Ok(())
    }

    async fn resume(&self, lane: &Lane) -> Result<(), StoreError> {
        sqlx::query("delete from mapae.pauses where lane = $1")
            .bind(lane.to_string())
            .done(&self.pool)
            .await?;
        Ok(())
    }

    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, StoreError> {
        let row = sqlx::query(concat!(
            "
            insert into mapae.keys as k (id, hash, owner, scopes, created_at, expires_at)
            values ($1, $2, $3, $4, now(), now() + $5 * interval '1 microsecond')
            returning ",
            key_columns!(),
        ))
        .bind(key.id)
        .bind(key.hash.as_slice())
        .bind(key.owner.map(String::from))
        .bind(key.scopes)
        .bind(key.lifetime.map(as_micros))
        .one(&self.pool)
        .await?;
        key_record(&row)
    }

    async fn key(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>, StoreError> {
        let row = sqlx::query(concat!(
            "select ",
            key_columns!(),
            "
              from mapae.keys k
             where k.hash = $1 and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
            ",
        ))
        .bind(hash.as_slice())
        .maybe(&self.pool)
        .await?;
        row.as_ref().map(key_record).transpose()
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        let rows =
            sqlx::query(concat!("select ", key_columns!(), " from mapae.keys k order by k.created_at, k.id"))
                .rows(&self.pool)
                .await?;
        rows.iter().map(key_record).collect()
    }

    async fn revoke_key(&self, id: &str) -> Result<bool, StoreError> {
        let done =
            sqlx::query("update mapae.keys set revoked_at = coalesce(revoked_at, now()) where id = $1")
                .bind(id)
                .done(&self.pool)
                .await?;
        Ok(done.rows_affected() > 0)
    }
}

impl Postgres {
    /// For telling a refusal from an absence.
    async fn state_of(&self, scope: &Scope, id: JobId) -> Result<State, ControlError> {
        let row = sqlx::query(
            "
            select state from mapae.jobs
             where id = $1 and ($2::text is null or owner = $2) and not delete_asked
            ",
        )
        .bind(id.0)
        .bind(scope.owner())
        .maybe(&self.pool)
        .await?;
        let Some(row) = row else { return Err(ControlError::NotFound) };
        Ok(state(row.try_get("state").map_err(StoreError::from)?)?)
    }
}

pub(super) async fn accept(
    pool: &PgPool,
    jobs: &[NewJob],
    outbox: bool,
) -> Result<Vec<Result<Accepted, AcceptError>>, StoreError> {
    let mut connection = pool.acquire().await?;
    make(&mut connection, jobs, outbox).await
}

/// T1, for any number of jobs: keys, rows and events in one statement. Of several submissions under
/// one key, in this batch or in others', the first one's row is made. Unique keys and what comes after are not
/// looked at here.
pub(super) async fn make(
    connection: &mut PgConnection,
    jobs: &[NewJob],
    outbox: bool,
) -> Result<Vec<Result<Accepted, AcceptError>>, StoreError> {
    let column = |value: fn(&NewJob) -> Option<String>| jobs.iter().map(value).collect::<Vec<_>>();
    let made = sqlx::query(concat!(
        "
        with given as (
            select *
              from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::jsonb[], $7::jsonb[],
                          $8::text[], $9::integer[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
                          $14::text[], $15::bytea[], $16::bigint[], $17::bigint[], $19::uuid[], $20::boolean[])
                with ordinality
                as g (id, owner, kind, lane, priority, params, source, trace, attempts_max, backoff_first_us,
                      backoff_max_us, run_at, deadline, key, body, turn, again, parent, follows, n)
        ), keyed as (
            insert into mapae.idempotency as i (owner, key, body, job, created_at)
            select distinct on (owner, key) owner, key, body, id, now() from given where key is not null
             order by owner, key, n
            on conflict (owner, key) do update
               set body = excluded.body, job = excluded.job, created_at = excluded.created_at
             where ",
        key_is_free!(),
        "
            returning job
        ), made as (
            insert into mapae.jobs (id, owner, kind, lane, priority, params, source, trace, attempts_max,
                                    backoff_first_us, backoff_max_us, created_at, due_at, deadline, hint, turn, ring_at,
                                    parent, follows)
            select id, owner, kind, lane, priority, params, source, trace, attempts_max,
                   backoff_first_us, backoff_max_us, now(),
                   coalesce(timestamptz 'epoch' + run_at * interval '1 microsecond', now()),
                   timestamptz 'epoch' + deadline * interval '1 microsecond',
                   case when turn is null then 0 else 1 end,
                   turn,
                   now() + again * interval '1 microsecond', parent, follows
              from given
             where key is null or id in (select job from keyed)
            on conflict (id) do nothing
            returning id, owner, kind
        ), told as (
            insert into mapae.events (job, sequence, owner, kind, event, at, sent)
            select id, 1, owner, kind, 'accepted', now(), not $18 from made
        )
        select id from made
        ",
    ))
    .bind(jobs.iter().map(|job| job.id.0).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| job.owner.to_string()).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| job.kind.to_string()).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| job.lane().to_string()).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| i16::from(job.priority.get())).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| job.params.clone()).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| job.source.as_ref().map(|source| serde_json::json!(source))).collect::<Vec<_>>())
    .bind(column(|job| job.trace.clone()))
    .bind(jobs.iter().map(|job| i32::try_from(job.retry.attempts).unwrap_or(i32::MAX)).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| as_micros(job.retry.backoff.first)).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| as_micros(job.retry.backoff.max)).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| job.run_at.map(Timestamp::micros)).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| job.deadline.map(Timestamp::micros)).collect::<Vec<_>>())
    .bind(column(|job| job.idempotency.as_ref().map(|(key, _)| key.to_string())))
    .bind(jobs.iter().map(|job| job.idempotency.as_ref().map(|(_, body)| body.to_vec())).collect::<Vec<_>>())
    // A job that is not due yet cannot be rung: a keeper rings it in its time.
    .bind(jobs.iter().map(|job| first_ring(job).map(|rung| i64::try_from(rung.turn).unwrap_or(i64::MAX))).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| first_ring(job).map(|rung| as_micros(rung.again))).collect::<Vec<_>>())
    .bind(outbox)
    .bind(jobs.iter().map(|job| job.parent.map(|parent| parent.0)).collect::<Vec<_>>())
    .bind(jobs.iter().map(|job| !job.on.is_empty()).collect::<Vec<_>>())
    .rows(&mut *connection)
    .await?;
    let mut answers: HashMap<Uuid, Result<Accepted, AcceptError>> = HashMap::with_capacity(jobs.len());
    for row in made {
        let id: Uuid = row.try_get("id")?;
        answers.insert(id, Ok(Accepted { id: JobId(id), again: false, duplicate: false }));
    }
    if answers.len() < jobs.len() {
        first_accepted(connection, jobs, &mut answers).await?;
    }
    jobs.iter()
        .map(|job| answers.remove(&job.id.0).ok_or_else(|| unreadable("a job that was not accepted")))
        .collect()
}

fn first_ring(job: &NewJob) -> Option<FirstRing> {
    job.rung.filter(|_| job.run_at.is_none())
}

/// Answers for the submissions that came second: under a key, or under their own id because an answer was
/// lost.
pub(super) async fn first_accepted(
    connection: &mut PgConnection,
    jobs: &[NewJob],
    answers: &mut HashMap<Uuid, Result<Accepted, AcceptError>>,
) -> Result<(), StoreError> {
    let second: Vec<&NewJob> = jobs.iter().filter(|job| !answers.contains_key(&job.id.0)).collect();
    let keyed: Vec<(&NewJob, &str, &[u8; 32])> = second
        .iter()
        .filter_map(|job| job.idempotency.as_ref().map(|(key, body)| (*job, key.as_str(), body)))
        .collect();
    let rows = sqlx::query(
        "
        select g.n, i.job, i.body
          from unnest($1::text[], $2::text[]) with ordinality as g (owner, key, n)
          join mapae.idempotency i on i.owner = g.owner and i.key = g.key
        ",
    )
    .bind(keyed.iter().map(|(job, _, _)| job.owner.to_string()).collect::<Vec<_>>())
    .bind(keyed.iter().map(|(_, key, _)| (*key).to_owned()).collect::<Vec<_>>())
    .rows(&mut *connection)
    .await?;
    for row in rows {
        let at = usize::try_from(row.try_get::<i64, _>("n")? - 1).map_err(unreadable)?;
        let Some((job, _, body)) = keyed.get(at) else { continue };
        let same = row.try_get::<Vec<u8>, _>("body")? == body.as_slice();
        let first = Accepted { id: JobId(row.try_get("job")?), again: true, duplicate: false };
        answers.insert(job.id.0, if same { Ok(first) } else { Err(AcceptError::KeyReused) });
    }
    let rows = sqlx::query("select id, owner, kind from mapae.jobs where id = any($1)")
        .bind(second.iter().map(|job| job.id.0).collect::<Vec<_>>())
        .rows(connection)
        .await?;
    for row in rows {
        let id: Uuid = row.try_get("id")?;
        let (owner, kind): (String, String) = (row.try_get("owner")?, row.try_get("kind")?);
        if second.iter().any(|job| job.id.0 == id && job.owner.as_str() == owner && job.kind.as_str() == kind)
        {
            let accepted = Accepted { id: JobId(id), again: true, duplicate: false };
            answers.entry(id).or_insert(Ok(accepted));
        }
    }
    Ok(())
}

fn key_record(row: &sqlx::postgres::PgRow) -> Result<KeyRecord, StoreError> {
    Ok(KeyRecord {
        id: row.try_get("id")?,
        owner: row.try_get::<Option<String>, _>("owner")?.map(Owner::new).transpose().map_err(unreadable)?,
        scopes: row.try_get("scopes")?,
        created_at: Timestamp::from_micros(row.try_get("created_at")?),
        expires_at: row.try_get::<Option<i64>, _>("expires_at")?.map(Timestamp::from_micros),
        revoked_at: row.try_get::<Option<i64>, _>("revoked_at")?.map(Timestamp::from_micros),
    })
}
