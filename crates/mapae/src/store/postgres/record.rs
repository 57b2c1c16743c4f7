//! Jobs submitted by SQL, and what is written when they end: the database's own business
//! (`migrations/postgres/0007_records.sql`), by what stands in `mapae.kinds`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgConnection, PgListener, PgPoolOptions};
use sqlx::{Connection, Row};

use super::Postgres;
use super::ask::{Ask, within};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Configuration, Described, KindPlan, Records, Settlement, StoreError};
use crate::store::row::{as_micros, stored};

/// Where programs ring.
const CHANNEL: &str = "mapae_ring";

/// A configuration that some process has was seen so long ago at most, and one that was not seen for so long is
/// forgotten.
const LIVE: Duration = Duration::from_secs(90);
const REMEMBERED: Duration = Duration::from_secs(600);

/// After so long without a ring the line is looked at.
const SILENCE: Duration = Duration::from_secs(15);

#[async_trait]
impl Records for Postgres {
    async fn describe(&self, kinds: &[KindPlan]) -> Result<Described, StoreError> {
        let mark = mark(kinds, self.outbox);
        for statement in [
            "delete from mapae.configurations where seen_at < now() - $2 * interval '1 microsecond' and mark <> $1",
            // One that nobody has had for so long is a new one when it comes again.
            "insert into mapae.configurations (mark) values ($1)
             on conflict (mark) do update
                set first_at = case when configurations.seen_at < now() - $2 * interval '1 microsecond' then now()
                                    else configurations.first_at end,
                    seen_at = now()",
        ] {
            sqlx::query(statement).bind(&mark).bind(as_micros(REMEMBERED)).done(&self.pool).await?;
        }
        let mut connection = within(self.pool.acquire()).await?;
        let Standing { mut described, written } = standing(&mut connection, &mark).await?;
        if described.in_force && !written {
            described = self.write_kinds(&mut connection, kinds, &mark).await?;
        }
        let row = sqlx::query("select exists (select from mapae.kinds where writes <> '{}') as writing")
            .one(&mut *connection)
            .await?;
        // As the configuration in force has it, whatever this process's says.
        self.writing.store(row.try_get("writing")?, Ordering::Relaxed);
        Ok(described)
    }

    async fn configurations(&self) -> Result<Vec<Configuration>, StoreError> {
        let rows = sqlx::query(
            "
            select c.mark, (extract(epoch from c.first_at) * 1000000)::bigint as first_at,
                   (extract(epoch from c.seen_at) * 1000000)::bigint as seen_at,
                   exists (select from mapae.settings s where s.mark = c.mark) as in_force
              from mapae.configurations c
             where c.seen_at >= now() - $1 * interval '1 microsecond'
             order by in_force desc, c.first_at desc
             limit 100
            ",
        )
        .bind(as_micros(LIVE))
        .rows(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Configuration {
                    mark: row.try_get("mark")?,
                    first_at: Timestamp::from_micros(row.try_get("first_at")?),
                    seen_at: Timestamp::from_micros(row.try_get("seen_at")?),
                    in_force: row.try_get("in_force")?,
                })
            })
            .collect()
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

/// What the database is told of each kind.
fn follows(plan: &KindPlan) -> Value {
    let next = plan.on.iter().map(|follow| (follow.after.as_str().to_owned(), stored(&follow.next)));
    Value::Object(next.collect())
}

fn writes(plan: &KindPlan) -> Value {
    let texts = plan.writes.iter().map(|(end, text)| (end.as_str().to_owned(), text.clone().into()));
    Value::Object(texts.collect::<Map<_, _>>())
}

/// The same for configurations that say the same.
fn mark(kinds: &[KindPlan], outbox: bool) -> String {
    let said = |plan: &KindPlan| {
        let (first, max) = (as_micros(plan.retry.backoff.first), as_micros(plan.retry.backoff.max));
        let retry = json!([plan.retry.attempts, first, max]);
        (plan.kind.to_string(), json!([retry, plan.singular, follows(plan), writes(plan)]))
    };
    let said: BTreeMap<String, Value> = kinds.iter().map(said).collect();
    let said = json!([outbox, said]).to_string();
    Sha256::digest(said.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Where a configuration stands among those that processes have.
struct Standing {
    described: Described,
    /// mapae.kinds is of this one.
    written: bool,
}

async fn standing(connection: &mut PgConnection, mark: &str) -> Result<Standing, StoreError> {
    let row = sqlx::query(
        "
        with live as (
            select mark, first_at from mapae.configurations where seen_at >= now() - $2 * interval '1 microsecond'
        )
        select (select l.mark from live l order by l.first_at desc, l.mark limit 1) is not distinct from $1 as newest,
               (select count(*) from live l where l.mark <> $1) as others,
               exists (select from mapae.settings s where s.mark = $1) as written
        ",
    )
    .bind(mark)
    .bind(as_micros(LIVE))
    .one(connection)
    .await?;
    let others = usize::try_from(row.try_get::<i64, _>("others")?).unwrap_or_default();
    let described = Described { in_force: row.try_get("newest")?, others };
    Ok(Standing { described, written: row.try_get("written")? })
}

impl Postgres {
    /// The kinds are those of this configuration, where it is still the newest; answers where it stands now.
    async fn write_kinds(
        &self,
        connection: &mut PgConnection,
        kinds: &[KindPlan],
        mark: &str,
    ) -> Result<Described, StoreError> {
        let mut transaction = within(connection.begin()).await?;
        // Processes that start together come one after the other.
        sqlx::query("lock table mapae.kinds in exclusive mode").done(&mut *transaction).await?;
        let Standing { described, .. } = standing(&mut transaction, mark).await?;
        if !described.in_force {
            return Ok(described);
        }
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
        .bind(kinds.iter().map(follows).collect::<Vec<_>>())
        .bind(kinds.iter().map(writes).collect::<Vec<_>>())
        .done(&mut *transaction)
        .await?;
        sqlx::query(
            "
            insert into mapae.settings (outbox, mark) values ($1, $2)
            on conflict (sole) do update set outbox = excluded.outbox, mark = excluded.mark
            ",
        )
        .bind(self.outbox)
        .bind(mark)
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
        Ok(described)
    }

    /// Whether the end of any kind is written back.
    pub(super) fn writes_any(&self) -> bool {
        self.writing.load(Ordering::Relaxed)
    }

    /// Whether a statement of the user's runs when this job ends: it may wait for a row, and nobody else's settle is
    /// to wait with it.
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
