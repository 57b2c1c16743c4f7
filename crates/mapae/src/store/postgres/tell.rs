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
use crate::store::contract::{
    Answer, Call, Crowd, Delivery, NOT_IN_TIME, Queue, Receiver, Scope, StoreError, Tell, Told, Undelivered,
};
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

    async fn due(&self, receivers: &[String]) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query(
            "
            select r.name from unnest($1::text[]) r (name)
             where exists (select from mapae.deliveries d
                            where d.receiver = r.name and d.dead_at is null and d.due_at <= now())
            ",
        )
        .bind(receivers)
        .rows(&self.pool)
        .await?;
        rows.iter().map(|row| Ok(row.try_get("name")?)).collect()
    }

    async fn callers(&self, after: &str, max: usize) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query(
            "
            with recursive owners (name) as (
                (select owner from mapae.deliveries
                  where dead_at is null and url is not null and owner > $1 order by owner limit 1)
                union all
                select (select d.owner from mapae.deliveries d
                         where d.dead_at is null and d.url is not null and d.owner > o.name order by d.owner limit 1)
                  from owners o where o.name is not null
            )
            select name from owners where name is not null limit $2
            ",
        )
        .bind(after)
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter().map(|row| Ok(row.try_get("name")?)).collect()
    }

    async fn calls(&self, owners: &[(String, String)], each: usize) -> Result<Vec<Call>, StoreError> {
        let rows = sqlx::query(
            "
            select o.owner, l.name,
                   exists (select from mapae.deliveries d
                            where d.owner = o.owner and d.receiver = l.name and d.url is not null
                              and d.dead_at is null and d.due_at <= now()) as due
              from unnest($1::text[], $2::text[]) with ordinality o (owner, after, place)
             cross join lateral (
                   with recursive lines (name) as (
                       (select d.receiver from mapae.deliveries d
                         where d.owner = o.owner and d.url is not null and d.dead_at is null and d.receiver > o.after
                         order by d.receiver limit 1)
                       union all
                       select (select d.receiver from mapae.deliveries d
                                where d.owner = o.owner and d.url is not null and d.dead_at is null
                                  and d.receiver > lines.name
                                order by d.receiver limit 1)
                         from lines where lines.name is not null
                   )
                   select name from lines where name is not null limit $3) l
             order by o.place, l.name
            ",
        )
        .bind(owners.iter().map(|(owner, _)| owner.clone()).collect::<Vec<_>>())
        .bind(owners.iter().map(|(_, after)| after.clone()).collect::<Vec<_>>())
        .bind(i64::try_from(each).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        let call = |row: &PgRow| {
            Ok(Call { owner: row.try_get("owner")?, line: row.try_get("name")?, due: row.try_get("due")? })
        };
        rows.iter().map(call).collect()
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

    async fn give_up(&self, age: Duration, max: usize) -> Result<usize, StoreError> {
        let done = sqlx::query(
            "
            update mapae.deliveries d
               set dead_at = now(), token = null, refusal = coalesce(d.refusal, $3)
             where d.id = any(array(select id from mapae.deliveries
                                     where dead_at is null and since <= now() - $1 * interval '1 microsecond'
                                       and (token is null or due_at <= now())
                                     order by since limit $2 for update skip locked))
               and d.dead_at is null
            ",
        )
        .bind(as_micros(age))
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .bind(NOT_IN_TIME)
        .done(&self.pool)
        .await?;
        Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
    }

    async fn crowd(&self, receiver: &str, most: usize, max: usize) -> Result<Crowd, StoreError> {
        let (most, max) = (i64::try_from(most).unwrap_or(i64::MAX), i64::try_from(max).unwrap_or(i64::MAX));
        // Counted from the end that stays, so that what is within bounds costs no more than itself.
        let given_up = sqlx::query(
            "
            with last as (
                select due_at, id from mapae.deliveries where receiver = $1 and dead_at is null
                 order by due_at desc, id desc offset $2 limit 1
            )
            update mapae.deliveries d
               set dead_at = now(), token = null, refusal = coalesce(d.refusal, $4)
             where d.id = any(array(select b.id from last
                                     cross join lateral (
                                           select id from mapae.deliveries
                                            where receiver = $1 and dead_at is null
                                              and (due_at, id) <= (last.due_at, last.id)
                                              and (token is null or due_at <= now())
                                            order by due_at, id limit $3 for update skip locked) b))
               and d.dead_at is null
            ",
        )
        .bind(receiver)
        .bind(most)
        .bind(max)
        .bind(NOT_IN_TIME)
        .done(&self.pool)
        .await?;
        let forgotten = sqlx::query(
            "
            with last as (
                select id from mapae.deliveries where receiver = $1 and dead_at is not null
                 order by id desc offset $2 limit 1
            )
            delete from mapae.deliveries d
             where d.id = any(array(select b.id from last
                                     cross join lateral (
                                           select id from mapae.deliveries
                                            where receiver = $1 and dead_at is not null and id <= last.id
                                            order by id limit $3 for update skip locked) b))
               and d.dead_at is not null
            ",
        )
        .bind(receiver)
        .bind(most)
        .bind(max)
        .done(&self.pool)
        .await?;
        let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        Ok(Crowd { given_up: count(given_up.rows_affected()), forgotten: count(forgotten.rows_affected()) })
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

    async fn rename(&self, from: &str, to: &str, max: usize) -> Result<usize, StoreError> {
        let row = sqlx::query(
            "
            with chosen as (
                select id, exists (select from mapae.deliveries o
                                    where o.receiver = $2 and o.job = d.job and o.sequence = d.sequence) as there
                  from mapae.deliveries d
                 where d.receiver = $1 order by d.job, d.sequence limit $3
                   for update skip locked
            ), twice as (
                delete from mapae.deliveries where id = any(array(select id from chosen where there)) returning 1
            ), moved as (
                update mapae.deliveries set receiver = $2
                 where id = any(array(select id from chosen where not there)) returning 1
            )
            select (select count(*) from twice) + (select count(*) from moved) as done
            ",
        )
        .bind(from)
        .bind(to)
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .one(&self.pool)
        .await?;
        Ok(usize::try_from(row.try_get::<i64, _>("done")?).unwrap_or_default())
    }

    async fn queues(&self, of: Option<&[String]>, cap: usize) -> Result<Vec<Queue>, StoreError> {
        let rows = sqlx::query(
            "
            with recursive lines (name) as (
                (select receiver from mapae.deliveries where receiver > '' order by receiver limit 1)
                union all
                select (select d.receiver from mapae.deliveries d where d.receiver > l.name
                         order by d.receiver limit 1)
                  from lines l where l.name is not null
            ), wanted (name) as (
                select name from lines where $2::text[] is null
                union all
                select * from unnest($2::text[])
            )
            select l.name,
                   (select count(*) from (select from mapae.deliveries d
                                           where d.receiver = l.name and d.dead_at is null limit $1) w) as waiting,
                   (select count(*) from (select from mapae.deliveries d
                                           where d.receiver = l.name and d.dead_at is not null limit $1) w) as dead,
                   (select (extract(epoch from now() - min(w.since)) * 1000000)::bigint
                      from (select since from mapae.deliveries d
                             where d.receiver = l.name and d.dead_at is null limit $1) w) as oldest
              from wanted l
             where l.name is not null
             limit $1
            ",
        )
        .bind(i64::try_from(cap).unwrap_or(i64::MAX))
        .bind(of)
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
