//! Settling (T5, T6, T6b): what a running job comes to, for many at once, under the token.

use std::collections::HashMap;

use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use super::writer::Writer;
use super::{Transaction, hex, hexes};
use crate::job::State;
use crate::job::retry::{Failure, SNOOZES_MAX, THROTTLES_MAX};
use crate::store::contract::{SettleError, Settlement, StoreError};
use crate::store::row::state;
use crate::store::settled::{Found, answers, delay, failure, verdict_name};

/// The holders' jobs with what the verdicts make of them, by the rows as they are before that: `held`.
/// Binds $1 what is given, $2 now, $3 throttles, $4 snoozes.
macro_rules! held {
    () => {
        "
        with given as materialized (
            select key as place, unhex(value->>0) as id, unhex(value->>1) as token, value->>2 as verdict,
                   value->>3 as delay, value->>4 as failure
              from json_each($1)
        ), held as materialized (
            select g.*, j.owner, j.kind, j.sequence, j.attempt, j.holder, $2 + g.delay as due,
                   case when j.cancel_asked then 'cancelled'
                        when g.verdict = 'succeed' then 'succeeded'
                        when g.verdict = 'fail' then 'failed'
                        when g.verdict = 'stale' then 'stale'
                        when g.verdict = 'retry' and j.attempt >= j.attempts_max then 'failed'
                        when g.verdict = 'throttle' and j.throttled >= $3 then 'failed'
                        when g.verdict = 'snooze' and j.snoozed >= $4 then 'failed'
                        when g.verdict not in ('hand-back', 'await') and j.deadline <= $2 + g.delay then 'failed'
                        else 'pending' end as next
              from given g
             cross join jobs j on j.id = g.id and j.token = g.token and j.state = 'running'
        )"
    };
}

/// The answers to a batch, committed.
pub(super) async fn settle_all(
    writer: &Writer,
    batch: Vec<Settlement>,
) -> Result<Vec<Result<State, SettleError>>, StoreError> {
    #[cfg(not(feature = "faults"))]
    return writer.write(async move |tx| settle(tx, &batch).await).await;
    #[cfg(feature = "faults")]
    {
        let mut batch = batch;
        let settled = writer.write(async move |tx| {
            super::mutant::fence(tx, &mut batch).await?;
            let answers = settle(tx, &batch).await?;
            Ok::<_, StoreError>((answers, super::mutant::withhold(tx, &batch).await?))
        });
        let (answers, withheld) = settled.await?;
        super::mutant::tell_late(writer, withheld);
        Ok(answers)
    }
}

/// T5, T6, T6b, snoozing and handing back, for any number of jobs: the events, told from the rows as they were, then
/// the states and the results.
pub(super) async fn settle(
    tx: &mut Transaction<'_>,
    batch: &[Settlement],
) -> Result<Vec<Result<State, SettleError>>, StoreError> {
    let given: Value = batch
        .iter()
        .map(|Settlement { lease, verdict, .. }| {
            json!([
                hex(lease.job.0),
                hex(lease.token.0),
                verdict_name(verdict),
                delay(verdict),
                failure(verdict)
            ])
        })
        .collect();
    let query = sqlx::query(concat!(
        held!(),
        "
        insert into events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
        select id, sequence + 1, owner, kind,
               case when next <> 'pending' then next
                    when verdict = 'retry' then 'retrying'
                    when verdict = 'throttle' then 'throttled'
                    when verdict = 'snooze' then 'snoozed'
                    when verdict = 'await' then 'awaiting'
                    else 'released' end,
               $2, attempt, holder,
               case when next <> 'cancelled' and (next <> 'pending' or verdict <> 'snooze') then failure->>'code' end,
               not $5
          from held
         order by place
        ",
    ))
    .bind(given.clone())
    .bind(tx.now)
    .bind(i32::try_from(THROTTLES_MAX).unwrap_or(i32::MAX))
    .bind(i32::try_from(SNOOZES_MAX).unwrap_or(i32::MAX))
    .bind(tx.outbox);
    tx.run(query).await?;
    // Without its `in` the planner goes through all that runs.
    let query = sqlx::query(concat!(
        held!(),
        "
        update jobs as j
           set state        = held.next,
               due_at       = case held.next when 'pending' then held.due else j.due_at end,
               finished_at  = case held.next when 'pending' then null else $2 end,
               attempt      = j.attempt - (held.next = 'pending' and held.verdict <> 'retry'),
               throttled    = j.throttled + (held.next = 'pending' and held.verdict = 'throttle'),
               snoozed      = j.snoozed + (held.next = 'pending' and held.verdict = 'snooze'),
               failure      = case when held.next = 'succeeded' then null
                                   when held.next = 'cancelled' then json_set($5, '$.attempt', j.attempt)
                                   when held.failure is null or (held.next = 'pending' and held.verdict = 'snooze')
                                   then j.failure
                                   else json_set(held.failure, '$.attempt', j.attempt) end,
               settled_by   = j.token,
               token = null, holder = null, incarnation = null, leased_until = null, progress = null,
               sequence     = j.sequence + 1
          from held
         where j.id in (select id from given) and j.id = held.id and j.token = held.token and j.state = 'running'
        returning id, state, settled_by
        ",
    ))
    .bind(given)
    .bind(tx.now)
    .bind(i32::try_from(THROTTLES_MAX).unwrap_or(i32::MAX))
    .bind(i32::try_from(SNOOZES_MAX).unwrap_or(i32::MAX))
    .bind(json!(Failure::cancelled()));
    let mut settled = HashMap::with_capacity(batch.len());
    for row in tx.rows(query).await? {
        let job_and_token = (row.try_get("id")?, row.try_get("settled_by")?);
        settled.insert(job_and_token, state(row.try_get("state")?)?);
    }
    keep(tx, batch, &settled).await?;
    Ok(answers(batch, &settled, &others(tx, batch, &settled).await?))
}

/// The results of those that succeeded just now.
async fn keep(
    tx: &mut Transaction<'_>,
    batch: &[Settlement],
    settled: &HashMap<(Uuid, Uuid), State>,
) -> Result<(), StoreError> {
    let mut results = Vec::new();
    for Settlement { lease, output, .. } in batch {
        let succeeded = settled.get(&(lease.job.0, lease.token.0)) == Some(&State::Succeeded);
        if let (true, Some(output)) = (succeeded, output) {
            // As text in text: `->>` would take the quotes from one that is a string.
            results.push(json!([hex(lease.job.0), hex(lease.token.0), json!(output).to_string()]));
        }
    }
    if results.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(
        "
        insert into results (job, output, stored_at)
        select j.id, g.value->>2, $2
          from json_each($1) g
         cross join jobs j on j.id = unhex(g.value->>0) and j.settled_by = unhex(g.value->>1)
         where j.state = 'succeeded' and j.finished_at = $2
        on conflict (job) do nothing
        ",
    )
    .bind(Value::from(results))
    .bind(tx.now);
    tx.run(query).await?;
    Ok(())
}

/// Where those stand that were not settled.
async fn others(
    tx: &mut Transaction<'_>,
    batch: &[Settlement],
    settled: &HashMap<(Uuid, Uuid), State>,
) -> Result<HashMap<Uuid, Found>, StoreError> {
    let mut others = HashMap::new();
    let left = batch.iter().map(|settlement| &settlement.lease);
    let left: Vec<Uuid> = left
        .filter(|lease| !settled.contains_key(&(lease.job.0, lease.token.0)))
        .map(|lease| lease.job.0)
        .collect();
    if left.is_empty() {
        return Ok(others);
    }
    let query = sqlx::query(
        "
        select id, state, settled_by, delete_asked from jobs where id in (select unhex(value) from json_each($1))
        ",
    );
    for row in tx.rows(query.bind(hexes(left))).await? {
        let found = Found {
            state: state(row.try_get("state")?)?,
            settled_by: row.try_get("settled_by")?,
            delete_asked: row.try_get("delete_asked")?,
        };
        others.insert(row.try_get("id")?, found);
    }
    Ok(others)
}
