//! Jobs submitted by SQL, and what is written when they end: the database's own business
//! (`migrations/postgres/0007_records.sql`), by what stands in `mapae.kinds`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Connection, Row};

use super::Postgres;
use super::ask::{Ask, within};
use crate::store::contract::{KindPlan, Records, Settlement, StoreError};
use crate::store::row::{as_micros, stored};

/// Where programs ring.
const CHANNEL: &str = "mapae_ring";

/// After so long without a ring the line is looked at.
const SILENCE: Duration = Duration::from_secs(15);

#[async_trait]
impl Records for Postgres {
    async fn describe(&self, kinds: &[KindPlan]) -> Result<(), StoreError> {
        let on = |plan: &KindPlan| -> Value {
            let next = plan.on.iter().map(|follow| (follow.after.as_str().to_owned(), stored(&follow.next)));
            Value::Object(next.collect())
        };
        let writes = |plan: &KindPlan| -> Value {
            let texts = plan.writes.iter().map(|(end, text)| (end.as_str().to_owned(), text.clone().into()));
            Value::Object(texts.collect::<Map<_, _>>())
        };
        let mut connection = within(self.pool.acquire()).await?;
        let mut transaction = within(connection.begin()).await?;
        // Processes that start together come one after the other.
        sqlx::query("lock table mapae.kinds in exclusive mode").done(&mut *transaction).await?;
        sqlx::query("delete from mapae.kinds where kind <> all($1)")
            .bind(kinds.iter().map(|plan| plan.kind.as_str().to_owned()).collect::<Vec<_>>())
            .done(&mut *transaction)
            .await?;
        sqlx::query(
            "
            insert into mapae.kinds (kind, attempts_max, backoff_first_us, backoff_max_us, singular, follows, writes)
            select * from unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[], $5::boolean[], $6::jsonb[],
                                 $7::jsonb[])
            on conflict (kind) do update
               set attempts_max = excluded.attempts_max, backoff_first_us = excluded.backoff_first_us,
                   backoff_max_us = excluded.backoff_max_us, singular = excluded.singular,
                   follows = excluded.follows, writes = excluded.writes
            ",
        )
        .bind(kinds.iter().map(|plan| plan.kind.as_str().to_owned()).collect::<Vec<_>>())
        .bind(
            kinds.iter().map(|plan| i32::try_from(plan.retry.attempts).unwrap_or(i32::MAX)).collect::<Vec<_>>(),
        )
        .bind(kinds.iter().map(|plan| as_micros(plan.retry.backoff.first)).collect::<Vec<_>>())
        .bind(kinds.iter().map(|plan| as_micros(plan.retry.backoff.max)).collect::<Vec<_>>())
        .bind(kinds.iter().map(|plan| plan.singular).collect::<Vec<_>>())
        .bind(kinds.iter().map(on).collect::<Vec<_>>())
        .bind(kinds.iter().map(writes).collect::<Vec<_>>())
        .done(&mut *transaction)
        .await?;
        sqlx::query(
            "
            insert into mapae.settings (outbox) values ($1)
            on conflict (sole) do update set outbox = excluded.outbox
            ",
        )
        .bind(self.outbox)
        .done(&mut *transaction)
        .await?;
        let writing = kinds.iter().any(|plan| !plan.writes.is_empty());
        let row = sqlx::query(
            "
            select tgenabled <> 'D' as enabled from pg_trigger
             where tgrelid = 'mapae.jobs'::regclass and tgname = 'write_back'
            ",
        )
        .one(&mut *transaction)
        .await?;
        // It locks the table for a moment: only where it is to change.
        if row.try_get::<bool, _>("enabled")? != writing {
            let change = if writing {
                "alter table mapae.jobs enable trigger write_back"
            } else {
                "alter table mapae.jobs disable trigger write_back"
            };
            sqlx::query(change).done(&mut *transaction).await?;
        }
        within(transaction.commit()).await?;
        self.writing.store(writing, Ordering::Relaxed);
        Ok(())
    }

    async fn heard(&self) -> Result<(), StoreError> {
        let mut kept = self.listener.lock().await;
        if kept.is_none() {
            let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(self.options.clone());
            let mut listener = within(PgListener::connect_with(&pool)).await?;
            within(listener.listen(CHANNEL)).await?;
            *kept = Some(listener);
            // Whatever rang while nobody listened.
            return Ok(());
        }
        let Some(listener) = kept.as_mut() else { return Ok(()) };
        loop {
            let heard = tokio::time::timeout(SILENCE, listener.try_recv()).await;
            let lost = match heard {
                Ok(Ok(Some(_))) => return Ok(()),
                Ok(Ok(None) | Err(_)) => true,
                // Whether the line still stands.
                Err(_) => within(sqlx::query("select 1").execute(&mut *listener)).await.is_err(),
            };
            if lost {
                *kept = None;
                return Err(StoreError::Unavailable("the line was cut".into()));
            }
        }
    }
}

impl Postgres {
    /// Whether a statement of the user's runs when this job ends: it may wait for a row, and nobody else's settle is
    /// to wait with it.
    /// Whether the end of any kind is written back.
    pub(super) fn writes_any(&self) -> bool {
        self.writing.load(Ordering::Relaxed)
    }

    pub(super) async fn writes_back(&self, settlement: &Settlement) -> Result<bool, StoreError> {
        if !self.writes_any() {
            return Ok(false);
        }
        let found = sqlx::query(
            "
            select k.kind from mapae.jobs j
              join mapae.kinds k on k.kind = j.kind and k.writes <> '{}'
             where j.id = $1
            ",
        )
        .bind(settlement.lease.job.0)
        .maybe(&self.pool)
        .await?;
        Ok(found.is_some())
    }
}
