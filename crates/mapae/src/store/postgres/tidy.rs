//! Pruning: what is no longer kept, and the files that go with it.

use async_trait::async_trait;
use sqlx::Row;
use uuid::Uuid;

use super::Postgres;
use super::ask::Ask;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Garbage, Pruned, Retention, StoreError, Tidy};
use crate::store::row::{as_micros, job_of_file};

#[async_trait]
impl Tidy for Postgres {
    async fn prune(&self, retention: &Retention, max: usize) -> Result<Pruned, StoreError> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        // A parent stays until its parts have been asked to stop, and what parts gave for as long as their parent may
        // read it: to the end of one that has failed, which may be redriven. Inside, for they would fill the limits.
        let rows = sqlx::query(
            "
            with old as (
                select id, owner, delete_asked, source->>'file' as source from mapae.jobs
                 where id = any(array(
                       (select j.id from mapae.jobs j
                         where j.delete_asked and j.finished_at is not null
                           and not exists (select from mapae.batches b where b.parent = j.id and b.over) limit $1)
                       union
                       (select j.id from mapae.jobs j
                         where j.state <> 'failed' and j.finished_at < now() - $2 * interval '1 microsecond'
                           and not exists (select from mapae.batches b where b.parent = j.id and b.over)
                           and not exists (select from mapae.jobs p where p.id = j.batch
                                              and (p.finished_at is null or p.state = 'failed'))
                         order by j.finished_at limit $1)
                       union
                       (select j.id from mapae.jobs j
                         where j.state = 'failed' and j.finished_at < now() - $3 * interval '1 microsecond'
                           and not exists (select from mapae.batches b where b.parent = j.id and b.over)
                           and not exists (select from mapae.jobs p where p.id = j.batch
                                              and (p.finished_at is null or p.state = 'failed'))
                         order by j.finished_at limit $1)))
                   and finished_at is not null
                   -- Where they are told is known as long as there is something to tell.
                   and not exists (select from mapae.callbacks c join mapae.events e on e.job = c.job and not e.sent
                                    where c.job = jobs.id)
                 limit $1
                   for update skip locked
            ), files as (
                insert into mapae.garbage (file, since)
                select distinct file, now() from (
                    select source from old
                    union all
                    select output->'file'->>'name' from mapae.results where job in (select id from old)
                    union all
                    select output->'file'->>'name' from mapae.checkpoints where job in (select id from old)
                ) f (file) where file is not null
                on conflict do nothing
            ), buried as (
                insert into mapae.tombstones (job, owner, at)
                select id, owner, now() from old where delete_asked
                on conflict do nothing
            ), told as (
                delete from mapae.events where job = any(array(select id from old)) and sent
            ), gone as (
                delete from mapae.jobs where id = any(array(select id from old))
            )
            select delete_asked from old
            ",
        )
        .bind(max)
        .bind(as_micros(retention.finished))
        .bind(as_micros(retention.failed))
        .rows(&self.pool)
        .await?;
        let mut pruned = Pruned::default();
        for row in rows {
            if row.try_get("delete_asked")? { pruned.buried += 1 } else { pruned.expired += 1 }
        }
        self.forget(retention, max).await?;
        self.take_in_foreign_events(max).await?;
        Ok(pruned)
    }

    async fn garbage(&self, max: usize) -> Result<Vec<Garbage>, StoreError> {
        let rows = sqlx::query(
            "
            select file, (extract(epoch from since) * 1000000)::bigint as since
              from mapae.garbage order by since limit $1
            ",
        )
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Garbage {
                    file: row.try_get("file")?,
                    since: Timestamp::from_micros(row.try_get("since")?),
                })
            })
            .collect()
    }

    async fn swept(&self, files: &[Garbage]) -> Result<(), StoreError> {
        sqlx::query("delete from mapae.garbage where file = any($1)")
            .bind(files.iter().map(|garbage| garbage.file.clone()).collect::<Vec<_>>())
            .done(&self.pool)
            .await?;
        Ok(())
    }

    async fn referenced(&self, files: &[String]) -> Result<Vec<String>, StoreError> {
        // A file's name begins with its job's id, so no index over names is needed.
        let named: Vec<(Uuid, &String)> =
            files.iter().filter_map(|file| Some((job_of_file(file)?, file))).collect();
        let rows = sqlx::query(
            "
            select g.file
              from unnest($1::uuid[], $2::text[]) g (job, file)
             where exists (select from mapae.jobs j where j.id = g.job
                              and (j.finished_at is null or j.source->>'file' = g.file))
                or exists (select from mapae.results r where r.job = g.job and r.output->'file'->>'name' = g.file)
                or exists (select from mapae.checkpoints c where c.job = g.job and c.output->'file'->>'name' = g.file)
            ",
        )
        .bind(named.iter().map(|(job, _)| *job).collect::<Vec<_>>())
        .bind(named.iter().map(|(_, file)| (*file).clone()).collect::<Vec<_>>())
        .rows(&self.pool)
        .await?;
        rows.iter().map(|row| Ok(row.try_get("file")?)).collect()
    }
}

impl Postgres {
    /// Events of another server, which a backup was restored from, that stand where this one's have not come yet:
    /// readers would wait for them, and those who had read them would miss what comes now. They come before all
    /// of this server's, in the order in which they were written.
    ///
    /// No transaction has a number at or beyond the snapshot's end and is visible in it, so these are foreign for
    /// sure; without any it is one look at an index.
    async fn take_in_foreign_events(&self, max: i64) -> Result<(), StoreError> {
        sqlx::query(
            "
            update mapae.events e
               set transaction = '0'::xid8
             where e.ctid = any(array(select ctid from mapae.events
                                       where transaction >= pg_snapshot_xmax(pg_current_snapshot())
                                       order by transaction desc, number desc limit $1 for update skip locked))
               and e.transaction >= pg_snapshot_xmax(pg_current_snapshot())
            ",
        )
        .bind(max)
        .done(&self.pool)
        .await?;
        Ok(())
    }

    /// What is remembered of jobs and workers that are no more.
    async fn forget(&self, retention: &Retention, max: i64) -> Result<(), StoreError> {
        for statement in [
            // A key is as young as its unfinished job was when last looked at: so those of a long backlog do not
            // stand before the others in every pass.
            "update mapae.idempotency i set created_at = now()
              where i.ctid = any(array(select ctid from mapae.idempotency
                                        where created_at < now() - $1 * interval '1 microsecond'
                                        order by created_at limit $2 for update skip locked))
                and exists (select from mapae.jobs j where j.id = i.job and j.finished_at is null)",
            "delete from mapae.idempotency i
              where i.ctid = any(array(select ctid from mapae.idempotency
                                        where created_at < now() - $1 * interval '1 microsecond'
                                        order by created_at limit $2 for update skip locked))
                and not exists (select from mapae.jobs j where j.id = i.job and j.finished_at is null)",
            "delete from mapae.tombstones where ctid = any(array(select ctid from mapae.tombstones
              where at < now() - $1 * interval '1 microsecond' limit $2))",
            "delete from mapae.workers w where w.ctid = any(array(select ctid from mapae.workers
              where seen_at < now() - $1 * interval '1 microsecond' limit $2))
                and not exists (select from mapae.jobs j where j.state = 'running' and j.incarnation = w.incarnation)",
        ] {
            sqlx::query(statement).bind(as_micros(retention.memory)).bind(max).done(&self.pool).await?;
        }
        sqlx::query(
            "delete from mapae.deliveries where id = any(array(select id from mapae.deliveries
              where dead_at < now() - $1 * interval '1 microsecond' order by dead_at limit $2))
                and dead_at is not null",
        )
        .bind(as_micros(retention.failed))
        .bind(max)
        .done(&self.pool)
        .await?;
        Ok(())
    }
}
