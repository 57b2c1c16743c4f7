//! Telling the outside.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Sqlite, hex, limit, now};
use crate::job::name::JobId;
use crate::store::contract::{
    Answer, Call, Crowd, Delivery, NOT_IN_TIME, Queue, Receiver, Scope, StoreError, Tell, Told, Undelivered,
};
use crate::store::row::{as_micros, big, delivery_row, undelivered_row};

/// Of those that were given up: $1 the owner's name or null, $2 ids. Of its callbacks only: receivers are the
/// operator's, whoever's events they are told of.
macro_rules! chosen_dead {
    () => {
        "id in (select value from json_each($2)) and ($1 is null or owner = $1 and url is not null) and dead_at is not null"
    };
}

#[async_trait]
impl Tell for Sqlite {
    async fn spread(&self, to: &[Receiver], max: usize) -> Result<usize, StoreError> {
        let (to, max) = (to.iter().map(wants).collect::<Value>(), limit(max));
        self.write(async move |tx| {
            let query = sqlx::query("select number from events where not sent order by number limit $1");
            let mut due = Vec::new();
            for row in tx.rows(query.bind(max)).await? {
                due.push(row.try_get::<i64, _>("number")?);
            }
            if due.is_empty() {
                return Ok(0);
            }
            let told = due.len();
            let due: Value = due.into_iter().collect();
            let made = sqlx::query(
                "
                insert into deliveries (receiver, url, job, sequence, owner, kind, event, at, attempt, worker, code,
                                        since, due_at)
                select told.receiver, told.url, e.job, e.sequence, e.owner, e.kind, e.event, e.at, e.attempt, e.worker,
                       e.code, $3, $3
                  from (select e.number, want.value->>'name' as receiver, null as url
                          from json_each($1) g
                         cross join events e on e.number = g.value
                         cross join json_each($2) want
                         where (json_array_length(want.value, '$.events') = 0
                                or e.event in (select value from json_each(want.value, '$.events')))
                           and (json_array_length(want.value, '$.kinds') = 0
                                or exists (select 1 from json_each(want.value, '$.kinds') k
                                            where k.value = e.kind
                                               or (substr(k.value, -1) = '*'
                                                   and substr(e.kind, 1, length(k.value) - 1)
                                                       = substr(k.value, 1, length(k.value) - 1))))
                         union all
                        select e.number, c.line, c.url
                          from json_each($1) g
                         cross join events e on e.number = g.value
                         cross join callbacks c on c.job = e.job
                         where e.event in (select value from json_each(c.events))) told
                 cross join events e on e.number = told.number
                 where true
                 order by told.number
                on conflict (receiver, job, sequence) do nothing
                ",
            )
            .bind(due.clone())
            .bind(to)
            .bind(tx.now);
            tx.run(made).await?;
            // Nothing else keeps those of jobs that are no more.
            let last = sqlx::query(
                "
                delete from events
                 where number in (select value from json_each($1))
                   and not exists (select 1 from jobs j where j.id = events.job)
                ",
            );
            tx.run(last.bind(due.clone())).await?;
            let sent = sqlx::query(
                "update events set sent = 1 where number in (select value from json_each($1)) and not sent",
            );
            tx.run(sent.bind(due)).await?;
            Ok(told)
        })
        .await
    }

    async fn due(&self, receivers: &[String]) -> Result<Vec<String>, StoreError> {
        let query = sqlx::query(concat!(
            "
            select g.value as name from json_each($1) g
             where exists (select 1 from deliveries d
                            where d.receiver = g.value and d.dead_at is null and d.due_at <= ",
            now!(),
            ")
            ",
        ))
        .bind(receivers.iter().cloned().collect::<Value>());
        self.rows(query).await?.iter().map(|row| Ok(row.try_get("name")?)).collect()
    }

    async fn callers(&self, after: &str, max: usize) -> Result<Vec<String>, StoreError> {
        let query = sqlx::query(
            "
            with recursive owners (name) as (
                select (select owner from deliveries
                         where dead_at is null and url is not null and owner > $1 order by owner limit 1)
                union all
                select (select d.owner from deliveries d
                         where d.dead_at is null and d.url is not null and d.owner > l.name order by d.owner limit 1)
                  from owners l where l.name is not null
            )
            select name from owners where name is not null limit $2
            ",
        )
        .bind(after.to_owned())
        .bind(limit(max));
        self.rows(query).await?.iter().map(|row| Ok(row.try_get("name")?)).collect()
    }

    async fn calls(&self, owners: &[(String, String)], each: usize) -> Result<Vec<Call>, StoreError> {
        let mut calls = Vec::new();
        for (owner, after) in owners {
            let query = sqlx::query(concat!(
                "
                with recursive lines (name) as (
                    select (select receiver from deliveries
                             where owner = $1 and url is not null and dead_at is null and receiver > $2
                             order by receiver limit 1)
                    union all
                    select (select d.receiver from deliveries d
                             where d.owner = $1 and d.url is not null and d.dead_at is null and d.receiver > l.name
                             order by d.receiver limit 1)
                      from lines l where l.name is not null
                )
                select l.name,
                       exists (select 1 from deliveries d
                                where d.owner = $1 and d.receiver = l.name and d.url is not null
                                  and d.dead_at is null and d.due_at <= ",
                now!(),
                ") as due
                  from lines l
                 where l.name is not null
                 limit $3
                ",
            ))
            .bind(owner.clone())
            .bind(after.clone())
            .bind(limit(each));
            for row in self.rows(query).await? {
                let (line, due) = (row.try_get("name")?, row.try_get("due")?);
                calls.push(Call { owner: owner.clone(), line, due });
            }
        }
        Ok(calls)
    }

    async fn take(&self, receiver: &str, max: usize, hold: Duration) -> Result<Vec<Delivery>, StoreError> {
        let (receiver, max, token) = (receiver.to_owned(), limit(max), Uuid::new_v4());
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update deliveries
                   set tries = tries + 1, token = $3, due_at = $5 + $4
                 where id in (select d.id from deliveries d
                               where d.receiver = $1 and d.dead_at is null and d.due_at <= $5
                                 and not exists (select 1 from deliveries b
                                                  where b.receiver = d.receiver and b.job = d.job
                                                    and b.sequence < d.sequence and b.dead_at is null)
                               order by d.due_at, d.id
                               limit $2)
                returning id, url, job, sequence, owner, kind, event, at, attempt, worker, code, tries, $5 - since as age
                ",
            )
            .bind(receiver)
            .bind(max)
            .bind(token)
            .bind(as_micros(hold))
            .bind(tx.now);
            let mut taken =
                tx.rows(query).await?.iter().map(|row| delivery(row, token)).collect::<Result<Vec<_>, _>>()?;
            taken.sort_by_key(|delivery| delivery.id);
            Ok(taken)
        })
        .await
    }

    async fn told(&self, answers: &[Told]) -> Result<(), StoreError> {
        if answers.is_empty() {
            return Ok(());
        }
        let answers = answers.to_vec();
        self.write(async move |tx| {
            for told in answers {
                let (wait, code, dead) = match told.answer {
                    Answer::Taken => {
                        let query = sqlx::query("delete from deliveries where id = $1 and token = $2");
                        tx.run(query.bind(key(told.id)).bind(told.token)).await?;
                        continue;
                    }
                    Answer::Later { wait, code } => (wait, code, false),
                    Answer::Dead { code } => (Duration::ZERO, code, true),
                };
                let query = sqlx::query(
                    "
                    update deliveries
                       set token = null, refusal = $3, due_at = $4 + $5, dead_at = case when $6 then $4 end
                     where id = $1 and token = $2
                    returning receiver, job, sequence
                    ",
                )
                .bind(key(told.id))
                .bind(told.token)
                .bind(code)
                .bind(tx.now)
                .bind(as_micros(wait))
                .bind(dead);
                let Some(row) = tx.rows(query).await?.pop().filter(|_| !dead) else { continue };
                let query = sqlx::query(
                    "
                    update deliveries set due_at = max(due_at, $4 + $5)
                     where receiver = $1 and job = $2 and sequence > $3 and dead_at is null
                    ",
                )
                .bind(row.try_get::<String, _>("receiver")?)
                .bind(row.try_get::<Uuid, _>("job")?)
                .bind(row.try_get::<i64, _>("sequence")?)
                .bind(tx.now)
                .bind(as_micros(wait));
                tx.run(query).await?;
            }
            Ok(())
        })
        .await
    }

    async fn give_up(&self, age: Duration, max: usize) -> Result<usize, StoreError> {
        let max = limit(max);
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update deliveries set dead_at = $3, token = null, refusal = coalesce(refusal, $4)
                 where id in (select id from deliveries
                               where dead_at is null and since <= $3 - $1 and (token is null or due_at <= $3)
                               order by since limit $2)
                ",
            )
            .bind(as_micros(age))
            .bind(max)
            .bind(tx.now)
            .bind(NOT_IN_TIME);
            Ok(usize::try_from(tx.run(query).await?).unwrap_or(usize::MAX))
        })
        .await
    }

    async fn crowd(&self, receiver: &str, most: usize, max: usize) -> Result<Crowd, StoreError> {
        let (receiver, most, max) = (receiver.to_owned(), limit(most), limit(max));
        self.write(async move |tx| {
            // Counted from the end that stays, so that what is within bounds costs no more than itself.
            let given_up = sqlx::query(
                "
                update deliveries set dead_at = $4, token = null, refusal = coalesce(refusal, $5)
                 where id in (select id from deliveries
                               where receiver = $1 and dead_at is null
                                 and (due_at, id) <= (select due_at, id from deliveries
                                                       where receiver = $1 and dead_at is null
                                                       order by due_at desc, id desc limit 1 offset $2)
                                 and (token is null or due_at <= $4)
                               order by due_at, id limit $3)
                ",
            )
            .bind(receiver.clone())
            .bind(most)
            .bind(max)
            .bind(tx.now)
            .bind(NOT_IN_TIME);
            let given_up = tx.run(given_up).await?;
            let forgotten = sqlx::query(
                "
                delete from deliveries
                 where id in (select id from deliveries
                               where receiver = $1 and dead_at is not null
                                 and id <= (select id from deliveries where receiver = $1 and dead_at is not null
                                             order by id desc limit 1 offset $2)
                               order by id limit $3)
                ",
            )
            .bind(receiver)
            .bind(most)
            .bind(max);
            let forgotten = tx.run(forgotten).await?;
            let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
            Ok(Crowd { given_up: count(given_up), forgotten: count(forgotten) })
        })
        .await
    }

    async fn undelivered(
        &self,
        scope: &Scope,
        receiver: Option<&str>,
        before: Option<u64>,
        max: usize,
    ) -> Result<Vec<Undelivered>, StoreError> {
        let mut query = String::from(
            "select id, receiver, job, sequence, owner, kind, event, tries, refusal, dead_at
               from deliveries where dead_at is not null",
        );
        for (given, condition) in [
            (scope.owner().is_some(), " and owner = $1 and url is not null"),
            (receiver.is_some(), " and receiver = $2"),
            (before.is_some(), " and id < $3"),
        ] {
            if given {
                query.push_str(condition);
            }
        }
        query.push_str(" order by id desc limit $4");
        let query = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(scope.owner().map(str::to_owned))
            .bind(receiver.map(str::to_owned))
            .bind(before.map(key))
            .bind(limit(max));
        self.rows(query).await?.iter().map(undelivered).collect()
    }

    async fn resend(&self, scope: &Scope, ids: &[u64]) -> Result<Vec<u64>, StoreError> {
        let (owner, ids) = (scope.owner().map(str::to_owned), keys(ids));
        self.write(async move |tx| {
            let query = sqlx::query(concat!(
                "
                update deliveries set dead_at = null, refusal = null, tries = 0, since = $3, due_at = $3
                 where ",
                chosen_dead!(),
                " returning id",
            ))
            .bind(owner)
            .bind(ids)
            .bind(tx.now);
            tx.rows(query).await?.iter().map(|row| big(row.try_get("id")?)).collect()
        })
        .await
    }

    async fn forgo(&self, scope: &Scope, ids: &[u64]) -> Result<Vec<u64>, StoreError> {
        let (owner, ids) = (scope.owner().map(str::to_owned), keys(ids));
        self.write(async move |tx| {
            let query =
                sqlx::query(concat!("delete from deliveries where ", chosen_dead!(), " returning id"))
                    .bind(owner)
                    .bind(ids);
            tx.rows(query).await?.iter().map(|row| big(row.try_get("id")?)).collect()
        })
        .await
    }

    async fn replay(&self, receiver: &str, events: &[(JobId, u64)]) -> Result<usize, StoreError> {
        let given: Value = events.iter().map(|(job, sequence)| json!([hex(job.0), sequence])).collect();
        let receiver = receiver.to_owned();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                insert into deliveries (receiver, job, sequence, owner, kind, event, at, attempt, worker, code, since,
                                        due_at)
                select $1, e.job, e.sequence, e.owner, e.kind, e.event, e.at, e.attempt, e.worker, e.code, $3, $3
                  from json_each($2) g
                 cross join events e on e.job = unhex(g.value->>0) and e.sequence = g.value->>1
                 order by e.number
                on conflict (receiver, job, sequence) do update
                   set dead_at = null, refusal = null, tries = 0, since = excluded.since, due_at = excluded.due_at
                 where dead_at is not null
                ",
            )
            .bind(receiver)
            .bind(given)
            .bind(tx.now);
            Ok(usize::try_from(tx.run(query).await?).unwrap_or(usize::MAX))
        })
        .await
    }

    async fn rename(&self, from: &str, to: &str, max: usize) -> Result<usize, StoreError> {
        let (from, to, max) = (from.to_owned(), to.to_owned(), limit(max));
        self.write(async move |tx| {
            let twice = sqlx::query(
                "
                delete from deliveries
                 where id in (select d.id from deliveries d
                               where d.receiver = $1
                                 and exists (select 1 from deliveries o
                                              where o.receiver = $2 and o.job = d.job and o.sequence = d.sequence)
                               order by d.job, d.sequence limit $3)
                ",
            );
            let twice = tx.run(twice.bind(from.clone()).bind(to.clone()).bind(max)).await?;
            let moved = sqlx::query(
                "
                update or ignore deliveries set receiver = $2
                 where id in (select id from deliveries where receiver = $1 order by job, sequence limit $3)
                ",
            );
            let moved = tx.run(moved.bind(from).bind(to).bind(max)).await?;
            Ok(usize::try_from(twice + moved).unwrap_or(usize::MAX))
        })
        .await
    }

    async fn queues(&self, of: Option<&[String]>, cap: usize) -> Result<Vec<Queue>, StoreError> {
        let query = sqlx::query(concat!(
            "
            with recursive lines (name) as (
                select (select receiver from deliveries where receiver > '' order by receiver limit 1)
                union all
                select (select d.receiver from deliveries d where d.receiver > l.name order by d.receiver limit 1)
                  from lines l where l.name is not null
            ), wanted (name) as (
                select name from lines where $2 is null
                union all
                select value from json_each($2) where $2 is not null
            )
            select l.name,
                   (select count(*) from (select 1 from deliveries d
                                           where d.receiver = l.name and d.dead_at is null limit $1)) as waiting,
                   (select count(*) from (select 1 from deliveries d
                                           where d.receiver = l.name and d.dead_at is not null limit $1)) as dead,
                   (select ",
            now!(),
            " - min(since) from (select since from deliveries d
                                  where d.receiver = l.name and d.dead_at is null limit $1)) as oldest
              from wanted l
             where l.name is not null
             limit $1
            ",
        ))
        .bind(limit(cap))
        .bind(of.map(|names| names.iter().cloned().collect::<Value>()));
        self.rows(query)
            .await?
            .iter()
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

fn key(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

fn keys(ids: &[u64]) -> Value {
    ids.iter().map(|id| key(*id)).collect()
}

fn delivery(row: &SqliteRow, token: Uuid) -> Result<Delivery, StoreError> {
    delivery_row!(row, token)
}

fn undelivered(row: &SqliteRow) -> Result<Undelivered, StoreError> {
    undelivered_row!(row)
}
