//! Ends that no worker tells: leases that ran out or whose holder is gone (T7), and deadlines.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection, Row, Transaction};
use tracing::warn;
use uuid::Uuid;

use super::absence::Missing;
use super::ask::{Ask, within};
use super::presence::absent;
use super::{Postgres, RECORD_WAIT};
use crate::job::lease::Holder;
use crate::job::name::{JobId, Kind};
use crate::job::retry::Failure;
use crate::store::contract::{Reaped, StoreError};
use crate::store::row::{big, state, unreadable};

/// Most jobs whose end is written back that one pass ends one by one, after it could not end all at once.
const ALONE_MAX: usize = 100;

/// Of jobs: those of kinds whose end is written back, or all others.
macro_rules! written {
    (true) => {
        " and exists (select from mapae.kinds k where k.kind = jobs.kind and k.writes <> '{}')"
    };
    (false) => {
        " and not exists (select from mapae.kinds k where k.kind = jobs.kind and k.writes <> '{}')"
    };
}

/// Jobs that are to end, each by itself: in no order, for there may be more than one pass tries.
macro_rules! alone {
    ($due:expr) => {
        concat!("select id from mapae.jobs where ", $due, written!(true), " order by random() limit $1")
    };
}

/// T7, of these jobs in this order.
macro_rules! reap {
    ($of:expr, $order:expr) => {
        concat!(
            "
            with gone as (
                select w.incarnation
                  from mapae.workers w
                 where w.incarnation = any($6)
                   and ",
            absent!(),
            "
            ), lost as (
                select j.id, j.cancel_asked, j.holder = $7 as lent,
                       case when j.holder = $7
                            then random() * least(j.backoff_first_us * power(2, least(j.attempt - 1, 31)),
                                                  j.backoff_max_us) * interval '1 microsecond'
                            when j.attempt <= 1 then interval '0'
                            else random() * least(j.backoff_first_us * power(2, least(j.attempt - 2, 31)),
                                                  j.backoff_max_us) * interval '1 microsecond' end as wait
                  from mapae.jobs j
                 where j.id = any(array(select id from mapae.jobs
                                         where state = 'running' and leased_until <= now()",
            $of,
            "
                                         order by ",
            $order,
            " limit $1 for update skip locked)
                               || array(select id from mapae.jobs
                                         where state = 'running' and leased_until > now()
                                           and incarnation in (select incarnation from gone)",
            $of,
            "
                                         limit $1 for update skip locked))
                   and j.state = 'running'
                 limit $1
                   for update of j
            ), fate as (
                select l.*, now() + l.wait as due,
                       case when l.cancel_asked then 'cancelled'
                            when j.attempt >= j.attempts_max then 'failed'
                            when j.deadline <= now() + l.wait then 'failed'
                            else 'pending' end as next,
                       case when l.cancel_asked then $3::jsonb
                            when j.attempt < j.attempts_max and j.deadline <= now() + l.wait then $5::jsonb
                            when l.lent then $8::jsonb
                            else $4::jsonb end as failure
                  from lost l
                  join mapae.jobs j on j.id = l.id
            ), reaped as (
                update mapae.jobs j
                   set state = fate.next,
                       due_at = case fate.next when 'pending' then fate.due else j.due_at end,
                       finished_at = case fate.next when 'pending' then null else now() end,
                       failure = fate.failure || jsonb_build_object('attempt', j.attempt),
                       token = null, holder = null, incarnation = null, leased_until = null, progress = null,
                       sequence = j.sequence + 1
                  from fate
                 where j.id = any(array(select id from fate)) and j.id = fate.id and j.state = 'running'
                returning j.id, j.owner, j.kind, j.state, j.sequence, j.attempt, j.failure, fate.lent
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, code, sent)
                select id, sequence, owner, kind,
                       case when state <> 'pending' then state when lent then 'retrying' else 'lost' end,
                       now(), attempt, failure->>'code', not $2
                  from reaped
            )
            select id, kind, state from reaped
            ",
        )
    };
}

/// Deadlines, of these jobs in this order.
macro_rules! expire {
    ($of:expr, $order:expr) => {
        concat!(
            "
            with expired as (
                update mapae.jobs j
                   set state = 'failed', finished_at = now(), hint = 0, turn = null, ring_at = null,
                       failure = $3::jsonb || jsonb_build_object('attempt', j.attempt), sequence = j.sequence + 1
                 where j.id = any(array(select id from mapae.jobs where state = 'pending' and deadline <= now()",
            $of,
            "
                                         order by ",
            $order,
            " limit $1 for update skip locked))
                   and j.state = 'pending' and j.deadline <= now()
                returning j.id, j.owner, j.kind, j.state, j.sequence, j.attempt, j.failure
            ), told as (
                -- Its record may be gone: then it is stale (`mapae.write_back`).
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, code, sent)
                select id, sequence, owner, kind, state, now(), attempt, failure->>'code', not $2 from expired
            )
            select id from expired
            ",
        )
    };
}

impl Postgres {
    /// T7. All on one connection, here and below: another could find the rows of a statement that failed still held.
    pub(super) async fn reap_all(&self, max: usize) -> Result<Vec<Reaped>, StoreError> {
        let gone = self.gone().await?;
        let mut on = within(self.pool.acquire()).await?;
        let all = self.reap_by(&mut on, reap!("", "leased_until"), None, &gone, max).await;
        let Err(error) = all else { return all };
        if !self.may_be_a_record(&error) {
            return Err(error);
        }
        let mut reaped =
            self.reap_by(&mut on, reap!(written!(false), "leased_until"), None, &gone, max).await?;
        let due = alone!("state = 'running' and (leased_until <= now() or incarnation = any($2))");
        let ids = sqlx::query(due).bind(most(max)).bind(&gone).rows(&mut *on).await?;
        for row in ids {
            let id = row.try_get("id")?;
            let mut alone = briefly(&mut on).await?;
            let one =
                self.reap_by(&mut alone, reap!(" and jobs.id = $9", "leased_until"), Some(id), &gone, 1);
            match one.await {
                Ok(one) => {
                    within(alone.commit()).await?;
                    reaped.extend(one);
                }
                Err(error) => told_of(id, &error),
            }
        }
        Ok(reaped)
    }

    /// Pending jobs whose deadline passed have failed.
    pub(super) async fn expire_all(&self, max: usize) -> Result<usize, StoreError> {
        let mut on = within(self.pool.acquire()).await?;
        let all = self.expire_by(&mut on, expire!("", "deadline"), None, max).await;
        let Err(error) = all else { return all };
        if !self.may_be_a_record(&error) {
            return Err(error);
        }
        let mut expired = self.expire_by(&mut on, expire!(written!(false), "deadline"), None, max).await?;
        let due = alone!("state = 'pending' and deadline <= now()");
        for row in sqlx::query(due).bind(most(max)).rows(&mut *on).await? {
            let id = row.try_get("id")?;
            let mut alone = briefly(&mut on).await?;
            match self.expire_by(&mut alone, expire!(" and jobs.id = $4", "deadline"), Some(id), 1).await {
                Ok(one) => {
                    within(alone.commit()).await?;
                    expired += one;
                }
                Err(error) => told_of(id, &error),
            }
        }
        Ok(expired)
    }

    /// The lives of workers that have ended: nobody holds their lock, and [`Absences`](super::absence::Absences) has seen enough of that.
    async fn gone(&self) -> Result<Vec<Uuid>, StoreError> {
        let lock = || self.absences.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken away until this look has succeeded: an outage begins the count anew.
        let before = std::mem::take(&mut *lock());
        let rows = sqlx::query(concat!(
            "
            select w.incarnation, coalesce((w.report->>'heartbeat_ms')::bigint, 0) as heartbeat_ms,
                   w.seen_at > (select backend_start from pg_stat_activity where pid = pg_backend_pid()) as witnessed
              from mapae.workers w
             where w.presence is not null
               and ",
            absent!(),
            "
            ",
        ))
        .rows(&self.pool)
        .await?;
        let mut missing = Vec::with_capacity(rows.len());
        for row in rows {
            missing.push(Missing {
                life: row.try_get("incarnation")?,
                heartbeat: Duration::from_millis(big(row.try_get("heartbeat_ms")?)?),
                witnessed: row.try_get("witnessed")?,
            });
        }
        let (after, gone) = before.after(&missing, Instant::now());
        *lock() = after;
        Ok(gone)
    }

    /// Whether this may come of a record that cannot be written just now, or ever: what else is to end must not
    /// wait for that one.
    fn may_be_a_record(&self, error: &StoreError) -> bool {
        self.writes_any()
            && matches!(error, StoreError::Locked(_) | StoreError::Broken(_) | StoreError::Unavailable(_))
    }

    async fn reap_by(
        &self,
        on: &mut PgConnection,
        statement: &'static str,
        alone: Option<Uuid>,
        gone: &[Uuid],
        max: usize,
    ) -> Result<Vec<Reaped>, StoreError> {
        let query = sqlx::query(statement)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .bind(self.outbox)
            .bind(serde_json::json!(Failure::cancelled()))
            .bind(serde_json::json!(Failure::lost()))
            .bind(serde_json::json!(Failure::overdue()))
            .bind(gone)
            .bind(Holder::service().name)
            .bind(serde_json::json!(Failure::unanswered()));
        let query = match alone {
            Some(id) => query.bind(id),
            None => query,
        };
        let rows = query.rows(on).await?;
        rows.iter()
            .map(|row| {
                let kind = Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?;
                Ok(Reaped { job: JobId(row.try_get("id")?), kind, state: state(row.try_get("state")?)? })
            })
            .collect()
    }

    async fn expire_by(
        &self,
        on: &mut PgConnection,
        statement: &'static str,
        alone: Option<Uuid>,
        max: usize,
    ) -> Result<usize, StoreError> {
        let query = sqlx::query(statement)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .bind(self.outbox)
            .bind(serde_json::json!(Failure::overdue()));
        let query = match alone {
            Some(id) => query.bind(id),
            None => query,
        };
        Ok(query.rows(on).await?.len())
    }
}

/// A transaction that waits for a record no longer than a settle does: so many of them may be locked.
async fn briefly(on: &mut PgConnection) -> Result<Transaction<'_, sqlx::Postgres>, StoreError> {
    let mut transaction = within(on.begin()).await?;
    super::settle::wait_for_locks(&mut transaction, RECORD_WAIT).await?;
    Ok(transaction)
}

/// How many of them one pass tries.
fn most(max: usize) -> i64 {
    i64::try_from(max.min(ALONE_MAX)).unwrap_or(i64::MAX)
}

fn told_of(id: Uuid, error: &StoreError) {
    let (code, said) = (error.code(), error.said());
    warn!(job_id = %JobId(id), code, said, "a job cannot end: its record cannot be written");
}
