//! Ends that no worker tells: leases that ran out or whose holder is gone (T7), and deadlines.

use serde_json::json;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Sqlite, Told, hexes, limit, tell};
use crate::job::lease::Holder;
use crate::job::name::{JobId, Kind};
use crate::job::retry::Failure;
use crate::store::contract::{Reaped, StoreError};
use crate::store::row::{state, unreadable};

impl Sqlite {
    /// T7.
    pub(super) async fn reap_some(&self, max: usize) -> Result<Vec<Reaped>, StoreError> {
        let gone = self.gone().await?;
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                with lost as materialized (
                    select j.id, j.holder = $7 as lent,
                           case when j.holder = $7
                                then cast(min(j.backoff_first_us * (1 << min(j.attempt - 1, 31)), j.backoff_max_us)
                                          * (abs(random() % 1000001) / 1000000.0) as integer)
                                when j.attempt <= 1 then 0
                                else cast(min(j.backoff_first_us * (1 << min(j.attempt - 2, 31)), j.backoff_max_us)
                                          * (abs(random() % 1000001) / 1000000.0) as integer) end as wait
                      from jobs j
                     where j.id in (
                           select id from (select id from jobs where state = 'running' and leased_until <= $2
                                            order by leased_until limit $1)
                           union all
                           select id from (select id from jobs where state = 'running' and leased_until > $2
                                              and incarnation in (select unhex(value) from json_each($6))
                                            limit $1))
                     limit $1
                ), fate as (
                    select l.id, l.lent, $2 + l.wait as due,
                           case when j.cancel_asked then 'cancelled'
                                when j.attempt >= j.attempts_max then 'failed'
                                when j.deadline <= $2 + l.wait then 'failed'
                                else 'pending' end as next,
                           case when j.cancel_asked then $3
                                when j.attempt < j.attempts_max and j.deadline <= $2 + l.wait then $5
                                when l.lent then $8
                                else $4 end as failure
                      from lost l
                      join jobs j on j.id = l.id
                )
                update jobs as j
                   set state = fate.next,
                       due_at = case fate.next when 'pending' then fate.due else j.due_at end,
                       finished_at = case fate.next when 'pending' then null else $2 end,
                       failure = json_set(fate.failure, '$.attempt', j.attempt),
                       token = null, holder = null, incarnation = null, leased_until = null, progress = null,
                       sequence = j.sequence + 1
                  from fate
                 where j.id = fate.id and j.state = 'running'
                returning id, kind, state, attempt, failure->>'code' as code,
                          case when state <> 'pending' then state
                               when failure->>'code' = $8->>'code' then 'retrying' else 'lost' end as event
                ",
            )
            .bind(limit(max))
            .bind(tx.now)
            .bind(json!(Failure::cancelled()))
            .bind(json!(Failure::lost()))
            .bind(json!(Failure::overdue()))
            .bind(hexes(gone))
            .bind(Holder::service().name)
            .bind(json!(Failure::unanswered()));
            let rows = tx.rows(query).await?;
            tell(tx, &rows.iter().map(told).collect::<Result<Vec<_>, _>>()?).await?;
            rows.iter()
                .map(|row| {
                    let kind = Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?;
                    Ok(Reaped { job: JobId(row.try_get("id")?), kind, state: state(row.try_get("state")?)? })
                })
                .collect()
        })
        .await
    }

    /// Pending jobs whose deadline has passed.
    pub(super) async fn expire_some(&self, max: usize) -> Result<usize, StoreError> {
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update jobs
                   set state = 'failed', finished_at = $2, hint = 0, turn = null, ring_at = null,
                       failure = json_set($3, '$.attempt', attempt), sequence = sequence + 1
                 where id in (select id from jobs where state = 'pending' and deadline <= $2 order by deadline limit $1)
                   and state = 'pending' and deadline <= $2
                returning id, state as event, attempt, failure->>'code' as code
                ",
            )
            .bind(limit(max))
            .bind(tx.now)
            .bind(json!(Failure::overdue()));
            let rows = tx.rows(query).await?;
            tell(tx, &rows.iter().map(told).collect::<Result<Vec<_>, _>>()?).await?;
            Ok(rows.len())
        })
        .await
    }

    /// The lives that have ended without a word: nobody holds their lock.
    async fn gone(&self) -> Result<Vec<Uuid>, StoreError> {
        let mut gone = Vec::new();
        for row in self.rows(sqlx::query("select incarnation, presence from workers")).await? {
            if self.presence.is_gone(row.try_get("presence")?) {
                gone.push(row.try_get("incarnation")?);
            }
        }
        Ok(gone)
    }
}

/// Of a row with `id`, `event`, `attempt` and `code`.
fn told(row: &SqliteRow) -> Result<Told, StoreError> {
    Ok(Told {
        job: row.try_get("id")?,
        event: row.try_get("event")?,
        attempt: row.try_get("attempt")?,
        worker: None,
        code: row.try_get("code")?,
    })
}
