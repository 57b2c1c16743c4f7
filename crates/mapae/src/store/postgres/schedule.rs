//! Schedules.

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Connection, Row};

use super::Postgres;
use super::ask::{Ask, within};
use crate::job::name::ScheduleName;
use crate::job::record::NewJob;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{AcceptError, Schedule, Schedules, StoreError};
use crate::store::row::schedule_row;

#[async_trait]
impl Schedules for Postgres {
    async fn define(&self, schedules: &[Schedule]) -> Result<(), StoreError> {
        for schedule in schedules {
            sqlx::query(
                "
                insert into mapae.schedules as s (name, owner, kind, cron, zone, missed, next_at)
                values ($1, $2, $3, $4, $5, $6, timestamptz 'epoch' + $7 * interval '1 microsecond')
                on conflict (name) do update
                   set owner = excluded.owner, kind = excluded.kind, cron = excluded.cron, zone = excluded.zone,
                       missed = excluded.missed,
                       next_at = case when (s.cron, s.zone) = (excluded.cron, excluded.zone) then s.next_at
                                      else excluded.next_at end
                ",
            )
            .bind(schedule.name.as_str())
            .bind(schedule.owner.as_str())
            .bind(schedule.kind.as_str())
            .bind(&schedule.cron)
            .bind(&schedule.zone)
            .bind(schedule.missed.as_str())
            .bind(schedule.next_at.map(Timestamp::micros))
            .done(&self.pool)
            .await?;
        }
        Ok(())
    }

    async fn schedules(&self) -> Result<Vec<Schedule>, StoreError> {
        let rows = sqlx::query(
            "
            select s.name, s.owner, s.kind, s.cron, s.zone, s.missed, s.paused, t.job,
                   (extract(epoch from s.next_at) * 1000000)::bigint as next_at,
                   (extract(epoch from t.at) * 1000000)::bigint      as last_at
              from mapae.schedules s
              left join lateral (select at, job from mapae.ticks t where t.schedule = s.name
                                  order by at desc limit 1) t on true
             order by s.name
            ",
        )
        .rows(&self.views)
        .await?;
        rows.iter().map(schedule).collect()
    }

    async fn tick(
        &self,
        name: &ScheduleName,
        from: Timestamp,
        to: Option<Timestamp>,
        jobs: &[(Timestamp, NewJob)],
    ) -> Result<bool, StoreError> {
        let mut connection = within(self.pool.acquire()).await?;
        let mut transaction = within(connection.begin()).await?;
        let moved = sqlx::query(
            "
            update mapae.schedules
               set next_at = timestamptz 'epoch' + $3 * interval '1 microsecond'
             where name = $1 and next_at = timestamptz 'epoch' + $2 * interval '1 microsecond' and not paused
            ",
        )
        .bind(name.as_str())
        .bind(from.micros())
        .bind(to.map(Timestamp::micros))
        .done(&mut *transaction)
        .await?;
        if moved.rows_affected() == 0 {
            return Ok(false);
        }
        for (at, job) in jobs {
            let first = sqlx::query(
                "
                insert into mapae.ticks (schedule, at, job)
                values ($1, timestamptz 'epoch' + $2 * interval '1 microsecond', $3)
                on conflict do nothing
                ",
            )
            .bind(name.as_str())
            .bind(at.micros())
            .bind(job.id.0)
            .done(&mut *transaction)
            .await?;
            if first.rows_affected() == 0 {
                continue;
            }
            let accepted = super::unique::accept_on(&mut transaction, job, self.outbox)
                .await?
                .map_err(AcceptError::without_key)?;
            // The same work waits or runs already: that is the tick's job.
            if accepted.duplicate {
                sqlx::query("update mapae.ticks set job = $3 where schedule = $1 and at = timestamptz 'epoch' + $2 * interval '1 microsecond'")
                    .bind(name.as_str())
                    .bind(at.micros())
                    .bind(accepted.id.0)
                    .done(&mut *transaction)
                    .await?;
            }
        }
        // Enough to show, and to keep a tick from coming twice where a clock is set back.
        sqlx::query("delete from mapae.ticks where schedule = $1 and at < now() - interval '7 days'")
            .bind(name.as_str())
            .done(&mut *transaction)
            .await?;
        within(transaction.commit()).await?;
        Ok(true)
    }

    async fn pause_schedule(&self, name: &ScheduleName) -> Result<bool, StoreError> {
        let done = sqlx::query("update mapae.schedules set paused = true where name = $1")
            .bind(name.as_str())
            .done(&self.pool)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    async fn resume_schedule(
        &self,
        name: &ScheduleName,
        next_at: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "
            update mapae.schedules
               set next_at = case when paused then timestamptz 'epoch' + $2 * interval '1 microsecond' else next_at end,
                   paused = false
             where name = $1
            ",
        )
        .bind(name.as_str())
        .bind(next_at.map(Timestamp::micros))
        .done(&self.pool)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}

fn schedule(row: &PgRow) -> Result<Schedule, StoreError> {
    schedule_row!(row)
}
