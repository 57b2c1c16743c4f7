//! Pruning: what is no longer kept, and the files that go with it.

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use super::{Sqlite, Transaction, hex, hexes, limit};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Garbage, Pruned, Retention, StoreError, Tidy};
use crate::store::row::{as_micros, job_of_file};

#[async_trait]
impl Tidy for Sqlite {
    async fn prune(&self, retention: &Retention, max: usize) -> Result<Pruned, StoreError> {
        let (retention, max) = (retention.clone(), limit(max));
        self.write(async move |tx| {
            // A parent stays until its parts have been asked to stop, and what parts gave for as long as their parent
            // may read it: to the end of one that has failed, which may be redriven. Inside, for they would fill the
            // limits.
            let query = sqlx::query(
                "
                select id from (
                    select id from (select j.id from jobs j where j.delete_asked and j.finished_at is not null
                                       and not exists (select 1 from batches b where b.parent = j.id and b.over)
                                     limit $1)
                     union
                    select id from (select j.id from jobs j
                                     where j.finished_at is not null and j.state <> 'failed' and j.finished_at < $2 - $3
                                       and not exists (select 1 from batches b where b.parent = j.id and b.over)
                                       and not exists (select 1 from jobs p where p.id = j.batch
                                                          and (p.finished_at is null or p.state = 'failed'))
                                     order by j.finished_at limit $1)
                     union
                    select id from (select j.id from jobs j where j.state = 'failed' and j.finished_at < $2 - $4
                                       and not exists (select 1 from batches b where b.parent = j.id and b.over)
                                       and not exists (select 1 from jobs p where p.id = j.batch
                                                          and (p.finished_at is null or p.state = 'failed'))
                                     order by j.finished_at limit $1)
                    ) old
                 -- Where they are told is known as long as there is something to tell.
                 where not exists (select 1 from callbacks c cross join events e on e.job = c.job and not e.sent
                                    where c.job = old.id)
                 limit $1
                ",
            )
            .bind(max)
            .bind(tx.now)
            .bind(as_micros(retention.finished))
            .bind(as_micros(retention.failed));
            let mut old = Vec::new();
            for row in tx.rows(query).await? {
                old.push(row.try_get::<Uuid, _>("id")?);
            }
            let pruned = remove(tx, hexes(old)).await?;
            forget(tx, &retention, max).await?;
            Ok(pruned)
        })
        .await
    }

    async fn garbage(&self, max: usize) -> Result<Vec<Garbage>, StoreError> {
        let query = sqlx::query("select file, since from garbage order by since limit $1").bind(limit(max));
        self.rows(query)
            .await?
            .iter()
            .map(|row| {
                Ok(Garbage {
                    file: row.try_get("file")?,
                    since: Timestamp::from_micros(row.try_get("since")?),
                })
            })
            .collect()
    }

    async fn swept(&self, files: &[Garbage]) -> Result<(), StoreError> {
        let files: Value = files.iter().map(|garbage| garbage.file.as_str()).collect();
        self.write(async move |tx| {
            let query = sqlx::query("delete from garbage where file in (select value from json_each($1))");
            tx.run(query.bind(files)).await?;
            Ok(())
        })
        .await
    }

    async fn referenced(&self, files: &[String]) -> Result<Vec<String>, StoreError> {
        // A file's name begins with its job's id, so no index over names is needed.
        let named = files.iter().filter_map(|file| Some(json!([hex(job_of_file(file)?), file])));
        let query = sqlx::query(
            "
            select g.value->>1 as file
              from json_each($1) g
             where exists (select 1 from jobs j where j.id = unhex(g.value->>0)
                              and (j.finished_at is null or j.source->>'$.file' = g.value->>1))
                or exists (select 1 from results r where r.job = unhex(g.value->>0)
                              and r.output->>'$.file.name' = g.value->>1)
                or exists (select 1 from checkpoints c where c.job = unhex(g.value->>0)
                              and c.output->>'$.file.name' = g.value->>1)
            ",
        )
        .bind(named.collect::<Value>());
        self.rows(query).await?.iter().map(|row| Ok(row.try_get("file")?)).collect()
    }
}

/// Takes these jobs away with all that belongs to them; their files become garbage.
async fn remove(tx: &mut Transaction<'_>, old: Value) -> Result<Pruned, StoreError> {
    let files = sqlx::query(
        "
        with old (id) as (select unhex(value) from json_each($1))
        insert into garbage (file, since)
        select distinct file, $2 from (
            select source->>'$.file' as file from jobs where id in (select id from old)
            union all
            select output->>'$.file.name' from results where job in (select id from old)
            union all
            select output->>'$.file.name' from checkpoints where job in (select id from old)
        ) where file is not null
        on conflict do nothing
        ",
    )
    .bind(old.clone())
    .bind(tx.now);
    tx.run(files).await?;
    let buried = sqlx::query(
        "
        insert into tombstones (job, owner, at)
        select id, owner, $2 from jobs
         where id in (select unhex(value) from json_each($1)) and delete_asked
        on conflict do nothing
        ",
    )
    .bind(old.clone())
    .bind(tx.now);
    tx.run(buried).await?;
    let told =
        sqlx::query("delete from events where sent and job in (select unhex(value) from json_each($1))");
    tx.run(told.bind(old.clone())).await?;
    let gone = sqlx::query(
        "
        delete from jobs
         where id in (select unhex(value) from json_each($1)) and finished_at is not null
        returning delete_asked
        ",
    )
    .bind(old);
    let mut pruned = Pruned::default();
    for row in tx.rows(gone).await? {
        if row.try_get("delete_asked")? { pruned.buried += 1 } else { pruned.expired += 1 }
    }
    Ok(pruned)
}

/// What is remembered of jobs and workers that are no more.
async fn forget(tx: &mut Transaction<'_>, retention: &Retention, max: i64) -> Result<(), StoreError> {
    for statement in [
        // A key is as young as its unfinished job was when last looked at: so those of a long backlog do not
        // stand before the others in every pass.
        "update idempotency set created_at = $3
          where rowid in (select rowid from idempotency where created_at < $3 - $1 order by created_at limit $2)
            and exists (select 1 from jobs j where j.id = idempotency.job and j.finished_at is null)",
        "delete from idempotency
          where rowid in (select rowid from idempotency where created_at < $3 - $1 order by created_at limit $2)
            and not exists (select 1 from jobs j where j.id = idempotency.job and j.finished_at is null)",
        "delete from tombstones where rowid in (select rowid from tombstones where at < $3 - $1 limit $2)",
        "delete from workers where rowid in (select rowid from workers
          where seen_at < $3 - $1 limit $2)
            and not exists (select 1 from jobs j where j.state = 'running' and j.incarnation = workers.incarnation)",
    ] {
        tx.run(sqlx::query(statement).bind(as_micros(retention.memory)).bind(max).bind(tx.now)).await?;
    }
    let old = "delete from deliveries
                where id in (select id from deliveries where dead_at < $3 - $1 order by dead_at limit $2)";
    tx.run(sqlx::query(old).bind(as_micros(retention.failed)).bind(max).bind(tx.now)).await?;
    Ok(())
}
