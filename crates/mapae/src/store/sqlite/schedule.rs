//! Schedules.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::Sqlite;
use super::control::accept_on;
use crate::job::name::ScheduleName;
use crate::job::record::NewJob;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{AcceptError, Schedule, Schedules, StoreError};
use crate::store::row::schedule_row;

/// How long ticks are remembered, in microseconds: enough to show, and to keep one from coming twice where a
/// clock is set back.
const REMEMBERED: i64 = 7 * 24 * 3600 * 1_000_000;

#[async_trait]
impl Schedules for Sqlite {
    async fn define(&self, schedules: &[Schedule]) -> Result<(), StoreError> {
        let schedules = schedules.to_vec();
        self.write(async move |tx| {
            for schedule in schedules {
                let query = sqlx::query(
                    "
                    insert into schedules as s (name, owner, kind, cron, zone, missed, next_at)
                    values ($1, $2, $3, $4, $5, $6, $7)
                    on conflict (name) do update
                       set owner = excluded.owner, kind = excluded.kind, cron = excluded.cron, zone = excluded.zone,
                           missed = excluded.missed,
                           next_at = case when (s.cron, s.zone) = (excluded.cron, excluded.zone) then s.next_at
                                          else excluded.next_at end
                    ",
                )
                .bind(String::from(schedule.name))
                .bind(String::from(schedule.owner))
                .bind(String::from(schedule.kind))
                .bind(schedule.cron)
                .bind(schedule.zone)
                .bind(schedule.missed.as_str())
                .bind(schedule.next_at.map(Timestamp::micros));
                tx.run(query).await?;
            }
            Ok(())
        })
        .await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>, StoreError> {
        let query = sqlx::query(
            "
            select s.name, s.owner, s.kind, s.cron, s.zone, s.missed, s.paused, s.next_at,
                   t.at as last_at, t.job
              from schedules s
              left join ticks t on t.schedule = s.name
                               and t.at = (select max(l.at) from ticks l where l.schedule = s.name)
             order by s.name
            ",
        );
        self.rows(query).await?.iter().map(schedule).collect()
    }

    async fn tick(
        &self,
        name: &ScheduleName,
        from: Timestamp,
        to: Option<Timestamp>,
        jobs: &[(Timestamp, NewJob)],
    ) -> Result<bool, StoreError> {
        let (name, jobs) = (String::from(name.clone()), jobs.to_vec());
        self.write(async move |tx| {
            let query = sqlx::query(
                "update schedules set next_at = $3 where name = $1 and next_at = $2 and not paused",
            )
            .bind(name.clone())
            .bind(from.micros())
            .bind(to.map(Timestamp::micros));
            if tx.run(query).await? == 0 {
                return Ok(false);
            }
            for (at, job) in &jobs {
                let query = sqlx::query(
                    "insert into ticks (schedule, at, job) values ($1, $2, $3) on conflict do nothing",
                )
                .bind(name.clone())
                .bind(at.micros())
                .bind(job.id.0);
                if tx.run(query).await? == 0 {
                    continue;
                }
                let accepted = accept_on(tx, job).await.map_err(AcceptError::without_key)?;
                // The same work waits or runs already: that is the tick's job.
                if accepted.duplicate {
                    let query = sqlx::query("update ticks set job = $3 where schedule = $1 and at = $2")
                        .bind(name.clone())
                        .bind(at.micros())
                        .bind(accepted.id.0);
                    tx.run(query).await?;
                }
            }
            let query = sqlx::query("delete from ticks where schedule = $1 and at < $2")
                .bind(name)
                .bind(tx.now - REMEMBERED);
            tx.run(query).await?;
            Ok(true)
        })
        .await
    }

    async fn pause_schedule(&self, name: &ScheduleName) -> Result<bool, StoreError> {
        let name = String::from(name.clone());
        self.write(async move |tx| {
            let query = sqlx::query("update schedules set paused = 1 where name = $1").bind(name);
            Ok(tx.run(query).await? > 0)
        })
        .await
    }

    async fn resume_schedule(
        &self,
        name: &ScheduleName,
        next_at: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let name = String::from(name.clone());
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update schedules
                   set next_at = case when paused then $2 else next_at end, paused = 0
                 where name = $1
                ",
            )
            .bind(name)
            .bind(next_at.map(Timestamp::micros));
            Ok(tx.run(query).await? > 0)
        })
        .await
    }
}

fn schedule(row: &SqliteRow) -> Result<Schedule, StoreError> {
    schedule_row!(row)
}
