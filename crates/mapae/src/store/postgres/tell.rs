//! Telling the outside.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::Postgres;
use super::ask::Ask;
use crate::job::name::JobId;
use crate::store::contract::{Answer, Delivery, Queue, Receiver, Scope, StoreError, Tell, Told, Undelivered};
use crate::store::row::{as_micros, big, delivery_row, undelivered_row};

/// Of those that were given up: $1 the owner's name or null, $2 ids. Of its callbacks only: receivers are the
/// operator's, whoever's events they are told of.
macro_rules! chosen_dead {
    () => {
        "d.id = any($2) and ($1::text is null or d.owner = $1 and d.url is not null) and d.dead_at is not null"
    };
}

#[async_trait]
impl Tell for Postgres {
    async fn spread(&self, to: &[Receiver], max: usize) -> Result<usize, StoreError> {
        let to: Vec<Value> = to.iter().map(wants).collect();
        // Nobody skips what another has locked: two that spread at once would else put a job's second event before
        // its first. Whoever waits finds it sent and leaves it.
        let row = sqlx::query(
            "
            with due as materialized (
                select e.ctid as place from mapae.events e
                 where not e.sent order by e.number limit $1 for update
            ), gone as (
                delete from mapae.events e
                 where e.ctid = any(array(select place from due)) and not e.sent
                   and not exists (select from mapae.jobs j where j.id = e.job)
                returning e.*
            ), kept as (
                update mapae.events e set sent = true
                 where e.ctid = any(array(select place from due)) and not e.sent
                   and exists (select from mapae.jobs j where j.id = e.job)
                returning e.*
            ), told as (
                select * from gone union all select * from kept
            ), receivers as (
                select r->>'name' as name, r->'events' as events, r->'kinds' as kinds
                  from jsonb_array_elements($2) r
            ), made as (
                insert into mapae.deliveries (receiver, url, job, sequence, owner, kind, event, at, attempt, worker, code)
                select w.receiver, w.url, t.job, t.sequence, t.owner, t.kind, t.event, t.at, t.attempt, t.worker, t.code
                  from told t
                 cross join lateral (
                       select r.name as receiver, null as url from receivers r
                        where (r.events = '[]' or r.events ? t.event)
                          and (r.kinds = '[]' or r.kinds ? t.kind
                               or exists (select from jsonb_array_elements_text(r.kinds) k
                                           where right(k, 1) = '*' and starts_with(t.kind, left(k, -1))))
                        union all
                       select c.line, c.url from mapae.callbacks c
                        where c.job = t.job and t.event = any(c.events)) w
                 order by t.number
                on conflict (receiver, job, sequence) do nothing
            )
            select count(*) as told from told
            ",
        )
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .bind(Value::from(to))
        .one(&self.pool)
        .await?;
        Ok(usize::try_from(row.try_get::<i64, _>("told")?).unwrap_or_default())
    }

    async fn lines(&self, after: &str, max: usize) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query(
            "
            with recursive lines (name) as (
                (select receiver from mapae.deliveries where dead_at is null and receiver > $1
                  order by receiver limit 1)
                union all
                select (select d.receiver from mapae.deliveries d
                         where d.dead_at is null and d.receiver > l.name order by d.receiver limit 1)
                  from lines l where l.name is not null
            )
            select l.name from lines l
             where l.name is not null
               and exists (select from mapae.deliveries d
                            where d.receiver = l.name and d.dead_at is null and d.due_at <= now())
             limit $2
            ",
        )
        .bind(after)
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter().map(|row| Ok(row.try_get("name")?)).collect()
    }

    async fn take(&self, receiver: &str, max: usize, hold: Duration) -> Result<Vec<Delivery>, StoreError> {
        let token = Uuid::new_v4();
        let rows = sqlx::query(
            "
            with due as (
                select d.id from mapae.deliveries d
                 where d.receiver = $1 and d.dead_at is null and d.due_at <= now()
                   and not exists (select from mapae.deliveries b
                                    where b.receiver = d.receiver and b.job = d.job and b.sequence < d.sequence
                                      and b.dead_at is null)
                 order by d.due_at, d.id
                 limit $2
                   for update of d skip locked
            )
            update mapae.deliveries d
               set tries = d.tries + 1, token = $3, due_at = now() + $4 * interval '1 microsecond'
             where d.id = any(array(select id from due)) and d.dead_at is null and d.due_at <= now()
            returning d.id, d.url, d.job, d.sequence, d.owner, d.kind, d.event,
                      (extract(epoch from d.at) * 1000000)::bigint as at, d.attempt, d.worker, d.code, d.tries,
                      (extract(epoch from now() - d.since) * 1000000)::bigint as age
            ",
        )
        .bind(receiver)
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .bind(token)
        .bind(as_micros(hold))
        .rows(&self.pool)
        .await?;
        let mut taken = rows.iter().map(|row| delivery(row, token)).collect::<Result<Vec<_>, _>>()?;
        // Rows come back from an update in any order.
        taken.sort_by_key(|delivery| delivery.id);
        Ok(taken)
    }

    async fn told(&self, answers: &[Told]) -> Result<(), StoreError> {
        if answers.is_empty() {
            return Ok(());
        }
        let wait = |told: &Told| match &told.answer {
            Answer::Later { wait, .. } => as_micros(*wait),
            Answer::Taken | Answer::Dead { .. } => 0,
        };
        let refusal = |told: &Told| match &told.answer {
            Answer::Later { code, .. } | Answer::Dead { code } => Some(code.clone()),
            Answer::Taken => None,
        };
        let verdict = |told: &Told| match told.answer {
            Answer::Taken => "taken",
            Answer::Later { .. } => "later",
            Answer::Dead { .. } => "dead",
        };
        sqlx::query(
            "
            with given as (
                select * from unnest($1::bigint[], $2::uuid[], $3::text[], $4::bigint[], $5::text[])
                           as g (id, token, verdict, wait, refusal)
            ), held as (
                select g.*, d.receiver, d.job, d.sequence
                  from given g
                  join mapae.deliveries d on d.id = g.id and d.token = g.token
                 where d.id = any($1)
                 order by d.id
                   for update of d
            ), taken as (
                delete from mapae.deliveries d
                 where d.id = any(array(select id from held where verdict = 'taken'))
            ), refused as (
                update mapae.deliveries d
                   set token = null, refusal = h.refusal, due_at = now() + h.wait * interval '1 microsecond',
                       dead_at = case h.verdict when 'dead' then now() end
                  from held h
                 where d.id = any($1) and d.id = h.id and h.verdict <> 'taken'
            )
            update mapae.deliveries d
               set due_at = greatest(d.due_at, now() + h.wait * interval '1 microsecond')
              from held h
             where h.verdict = 'later' and d.receiver = h.receiver and d.job = h.job and d.sequence > h.sequence
               and d.job = any(array(select job from held)) and d.dead_at is null
            ",
        )
        .bind(answers.iter().map(|told| i64::try_from(told.id).unwrap_or(i64::MAX)).collect::<Vec<_>>())
        .bind(answers.iter().map(|told| told.token).collect::<Vec<_>>())
        .bind(answers.iter().map(verdict).collect::<Vec<_>>())
        .bind(answers.iter().map(wait).collect::<Vec<_>>())
        .bind(answers.iter().map(refusal).collect::<Vec<_>>())
        .done(&self.pool)
        .await?;
        Ok(())
    }

    async fn undelivered(
        &self,
        scope: &Scope,
        receiver: Option<&str>,
        before: Option<u64>,
        max: usize,
    ) -> Result<Vec<Undelivered>, StoreError> {
        let mut query = sqlx::QueryBuilder::new(
            "select d.id, d.receiver, d.job, d.sequence, d.owner, d.kind, d.event, d.tries, d.refusal,
                    (extract(epoch from d.dead_at) * 1000000)::bigint as dead_at
               from mapae.deliveries d where d.dead_at is not null",
        );
        if let Some(owner) = scope.owner() {
            query.push(" and d.url is not null and d.owner = ").push_bind(owner.to_owned());
        }
        if let Some(receiver) = receiver {
            query.push(" and d.receiver = ").push_bind(receiver.to_owned());
        }
        if let Some(before) = before {
            query.push(" and d.id < ").push_bind(i64::try_from(before).unwrap_or(i64::MAX));
        }
        query.push(" order by d.id desc limit ").push_bind(i64::try_from(max).unwrap_or(i64::MAX));
        query.build().rows(&self.views).await?.iter().map(undelivered).collect()
    }

    async fn resend(&self, scope: &Scope, ids: &[u64]) -> Result<Vec<u64>, StoreError> {
        let rows = sqlx::query(concat!(
            "
            update mapae.deliveries d
               set dead_at = null, refusal = null, tries = 0, since = now(), due_at = now()
             where ",
            chosen_dead!(),
            " returning d.id",
        ))
        .bind(scope.owner())
        .bind(ids.iter().map(|id| i64::try_from(*id).unwrap_or(i64::MAX)).collect::<Vec<_>>())
        .rows(&self.pool)
        .await?;
        rows.iter().map(|row| big(row.try_get("id")?)).collect()
    }

    async fn forgo(&self, scope: &Scope, ids: &[u64]) -> Result<Vec<u64>, StoreError> {
        let rows =
            sqlx::query(concat!("delete from mapae.deliveries d where ", chosen_dead!(), " returning d.id"))
                .bind(scope.owner())
                .bind(ids.iter().map(|id| i64::try_from(*id).unwrap_or(i64::MAX)).collect::<Vec<_>>())
                .rows(&self.pool)
                .await?;
        rows.iter().map(|row| big(row.try_get("id")?)).collect()
    }

    async fn replay(&self, receiver: &str, events: &[(JobId, u64)]) -> Result<usize, StoreError> {
        let done = sqlx::query(
            "
            insert into mapae.deliveries as d (receiver, job, sequence, owner, kind, event, at, attempt, worker, code)
            select $1, e.job, e.sequence, e.owner, e.kind, e.event, e.at, e.attempt, e.worker, e.code
              from unnest($2::uuid[], $3::bigint[]) g (job, sequence)
              join mapae.events e on e.job = g.job and e.sequence = g.sequence
             where e.job = any($2)
             order by e.number
            on conflict (receiver, job, sequence) do update
               set dead_at = null, refusal = null, tries = 0, since = now(), due_at = now()
             where d.dead_at is not null
            ",
        )
        .bind(receiver)
        .bind(events.iter().map(|(job, _)| job.0).collect::<Vec<_>>())
        .bind(
            events
                .iter()
                .map(|(_, sequence)| i64::try_from(*sequence).unwrap_or(i64::MAX))
                .collect::<Vec<_>>(),
        )
        .done(&self.pool)
        .await?;
        Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
    }

    async fn queues(&self, cap: usize) -> Result<Vec<Queue>, StoreError> {
        let rows = sqlx::query(
            "
            with recursive lines (name) as (
                (select receiver from mapae.deliveries where receiver > '' order by receiver limit 1)
                union all
                select (select d.receiver from mapae.deliveries d where d.receiver > l.name
                         order by d.receiver limit 1)
                  from lines l where l.name is not null
            )
            select l.name,
                   (select count(*) from (select from mapae.deliveries d
                                           where d.receiver = l.name and d.dead_at is null limit $1) w) as waiting,
                   (select count(*) from (select from mapae.deliveries d
                                           where d.receiver = l.name and d.dead_at is not null limit $1) w) as dead,
                   (select (extract(epoch from now() - min(w.since)) * 1000000)::bigint
                      from (select since from mapae.deliveries d
                             where d.receiver = l.name and d.dead_at is null limit $1) w) as oldest
              from lines l
             where l.name is not null
             limit $1
            ",
        )
        .bind(i64::try_from(cap).unwrap_or(i64::MAX))
        .rows(&self.views)
        .await?;
        rows.iter()
            .map(|row| {
                let number = |name: &str| -> Result<usize, StoreError> {
                    Ok(usize::try_from(row.try_get::<i64, _>(name)?).unwrap_or_default())
                };
                let oldest: Option<i64> = row.try_get("oldest")?;
                Ok(Queue {
                    receiver: row.try_get("name")?,
                    waiting: number("waiting")?,
                    dead: number("dead")?,
                    oldest: oldest.map(|micros| Duration::from_micros(micros.max(0).unsigned_abs())),
                })
            })
            .collect()
    }
}

/// A receiver as the statement reads it.
fn wants(to: &Receiver) -> Value {
    let events: Vec<&str> = to.events.iter().map(|event| event.as_str()).collect();
    json!({ "name": to.name, "events": events, "kinds": to.kinds })
}

fn delivery(row: &PgRow, token: Uuid) -> Result<Delivery, StoreError> {
    delivery_row!(row, token)
}

fn undelivered(row: &PgRow) -> Result<Undelivered, StoreError> {
    undelivered_row!(row)
}
