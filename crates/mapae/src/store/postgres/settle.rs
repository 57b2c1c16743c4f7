//! Settling (T5, T6, T6b): what a running job comes to, for many at once, under the token.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::{Connection, PgConnection, PgPool, Row};
use uuid::Uuid;

use super::ask::{Ask, within};
use crate::job::State;
use crate::job::retry::{Failure, SNOOZES_MAX, THROTTLES_MAX};
use crate::store::contract::{SettleError, Settlement, StoreError};
use crate::store::row::state;
use crate::store::settled::{Found, answers, delay, failure, verdict_name};

pub(super) async fn settle(
    pool: &PgPool,
    batch: &[Settlement],
    outbox: bool,
) -> Result<Vec<Result<State, SettleError>>, StoreError> {
    let mut connection = within(pool.acquire()).await?;
    let answers = settle_on(&mut connection, batch, outbox).await;
    drop(connection);
    #[cfg(feature = "faults")]
    {
        let ids: Vec<Uuid> = batch.iter().map(|settlement| settlement.lease.job.0).collect();
        super::mutant::tell_late(pool, &ids).await?;
    }
    answers
}

/// As [`settle`], waiting so long at most for what others have locked.
pub(super) async fn settle_within(
    pool: &PgPool,
    batch: &[Settlement],
    outbox: bool,
    wait: Duration,
) -> Result<Vec<Result<State, SettleError>>, StoreError> {
    let mut connection = within(pool.acquire()).await?;
    let mut transaction = within(connection.begin()).await?;
    wait_for_locks(&mut transaction, wait).await?;
    let answers = settle_on(&mut transaction, batch, outbox).await?;
    within(transaction.commit()).await?;
    drop(connection);
    #[cfg(feature = "faults")]
    {
        let ids: Vec<Uuid> = batch.iter().map(|settlement| settlement.lease.job.0).collect();
        super::mutant::tell_late(pool, &ids).await?;
    }
    Ok(answers)
}

/// For so long, and in this transaction only.
pub(super) async fn wait_for_locks(transaction: &mut PgConnection, wait: Duration) -> Result<(), StoreError> {
    let set = sqlx::query("select set_config('lock_timeout', $1, true)");
    set.bind(format!("{}ms", wait.as_millis())).done(transaction).await?;
    Ok(())
}

/// T5, T6, T6b, snoozing and handing back, for any number of jobs: state, result and event in one statement.
pub(super) async fn settle_on(
    connection: &mut PgConnection,
    batch: &[Settlement],
    outbox: bool,
) -> Result<Vec<Result<State, SettleError>>, StoreError> {
    let ids: Vec<Uuid> = batch.iter().map(|settlement| settlement.lease.job.0).collect();
    let tokens: Vec<Uuid> = batch.iter().map(|settlement| settlement.lease.token.0).collect();
    let verdicts = || batch.iter().map(|settlement| &settlement.verdict);
    let rows = sqlx::query(
        "
        with given as materialized (
            -- The state by value, as in a claim.
            select *, 'running' as state
              from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::jsonb[], $6::jsonb[])
                as g (id, token, verdict, delay, failure, output)
        ), held as (
            select g.*, j.holder as worker, now() + g.delay * interval '1 microsecond' as due,
                   case when j.cancel_asked then 'cancelled'
                        when g.verdict = 'succeed' then 'succeeded'
                        when g.verdict = 'fail' then 'failed'
                        when g.verdict = 'stale' then 'stale'
                        when g.verdict = 'retry' and j.attempt >= j.attempts_max then 'failed'
                        when g.verdict = 'throttle' and j.throttled >= $7 then 'failed'
                        when g.verdict = 'snooze' and j.snoozed >= $10 then 'failed'
                        when g.verdict not in ('hand-back', 'await')
                             and j.deadline <= now() + g.delay * interval '1 microsecond' then 'failed'
                        else 'pending' end as next
              from given g
              join mapae.jobs j on j.id = g.id and j.token = g.token and j.state = g.state
             order by j.id
               for update of j
        ), settled as (
            update mapae.jobs j
               set state        = held.next,
                   due_at       = case held.next when 'pending' then held.due else j.due_at end,
                   finished_at  = case held.next when 'pending' then null else now() end,
                   attempt      = j.attempt - case when held.next = 'pending' and held.verdict <> 'retry' then 1 else 0 end,
                   throttled    = j.throttled
                                  + case when held.next = 'pending' and held.verdict = 'throttle' then 1 else 0 end,
                   snoozed      = j.snoozed
                                  + case when held.next = 'pending' and held.verdict = 'snooze' then 1 else 0 end,
                   failure      = case when held.next = 'succeeded' then null
                                       when held.next = 'cancelled' then $8::jsonb || jsonb_build_object('attempt', j.attempt)
                                       when held.failure is null then j.failure
                                       when held.next = 'pending' and held.verdict = 'snooze' then j.failure
                                       else held.failure || jsonb_build_object('attempt', j.attempt) end,
                   settled_by   = j.token,
                   output       = case when exists (select from mapae.kinds k
                                                     where k.kind = j.kind and k.writes <> '{}') then held.output end,
                   token = null, holder = null, incarnation = null, leased_until = null, progress = null,
                   sequence     = j.sequence + 1
              from held
             where j.id = held.id and j.token = held.token and j.state = held.state
            returning j.id, j.owner, j.kind, j.state, j.sequence, j.started_at, j.settled_by, held.worker, held.verdict, held.output,
                      case when held.next <> j.state then j.failure->>'code'
                           when held.next <> 'pending' or held.verdict <> 'snooze' then held.failure->>'code' end as code,
                      j.attempt + case when held.next = 'pending' and held.verdict <> 'retry' then 1 else 0 end as attempt
        ), kept as (
            insert into mapae.results (job, output, stored_at)
            select id, output, now() from settled where state = 'succeeded' and output is not null
            on conflict (job) do update set output = excluded.output, stored_at = excluded.stored_at
        ), told as (
            insert into mapae.events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
            select id, sequence, owner, kind,
                   case when state <> 'pending' then state
                        when verdict = 'retry' then 'retrying'
                        when verdict = 'throttle' then 'throttled'
                        when verdict = 'snooze' then 'snoozed'
                        when verdict = 'await' then 'awaiting'
                        else 'released' end,
                   now(), attempt, worker, case when state <> 'cancelled' then code end, not $9
              from settled
        )
        select id, state, settled_by from settled
        ",
    )
    .bind(&ids)
    .bind(&tokens)
    .bind(verdicts().map(verdict_name).collect::<Vec<_>>())
    .bind(verdicts().map(delay).collect::<Vec<_>>())
    .bind(verdicts().map(failure).collect::<Vec<_>>())
    .bind(batch.iter().map(|settlement| settlement.output.as_ref().map(|o| serde_json::json!(o))).collect::<Vec<_>>())
    .bind(i32::try_from(THROTTLES_MAX).unwrap_or(i32::MAX))
    .bind(serde_json::json!(Failure::cancelled()))
    .bind(outbox)
    .bind(i32::try_from(SNOOZES_MAX).unwrap_or(i32::MAX))
    .rows(&mut *connection)
    .await?;
    let mut settled = HashMap::with_capacity(batch.len());
    for row in rows {
        let job_and_token: (Uuid, Uuid) = (row.try_get("id")?, row.try_get("settled_by")?);
        settled.insert(job_and_token, state(row.try_get("state")?)?);
    }
    let left = ids.iter().zip(&tokens).filter(|(id, token)| !settled.contains_key(&(**id, **token)));
    let left: Vec<Uuid> = left.map(|(id, _)| *id).collect();
    let mut others = HashMap::new();
    if !left.is_empty() {
        let query =
            sqlx::query("select id, state, settled_by, delete_asked from mapae.jobs where id = any($1)");
        for row in query.bind(&left).rows(connection).await? {
            let found = Found {
                state: state(row.try_get("state")?)?,
                settled_by: row.try_get("settled_by")?,
                delete_asked: row.try_get("delete_asked")?,
            };
            others.insert(row.try_get::<Uuid, _>("id")?, found);
        }
    }
    Ok(answers(batch, &settled, &others))
}
