//! PostgreSQL on the bench: one database a harness, emptied between stores.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mapae::store::Postgres;
use mapae::store::contract::Store;
use sqlx::PgPool;

use super::Harness;
use crate::site;

/// Every column that holds a moment.
pub(super) const MOMENTS: [(&str, &[&str]); 16] = [
    ("jobs", &["created_at", "due_at", "deadline", "started_at", "finished_at", "leased_until", "ring_at"]),
    ("results", &["stored_at"]),
    ("checkpoints", &["at"]),
    ("events", &["at"]),
    ("deliveries", &["at", "since", "due_at", "dead_at"]),
    ("idempotency", &["created_at"]),
    ("tombstones", &["at"]),
    ("garbage", &["since"]),
    ("pauses", &["at"]),
    ("gates", &["next_at", "shut_until"]),
    ("uniques", &["until"]),
    ("follows", &["made_at"]),
    ("schedules", &["next_at"]),
    ("ticks", &["at"]),
    ("pullers", &["started_at", "seen_at"]),
    ("keys", &["created_at", "expires_at", "revoked_at"]),
];

pub(super) struct InPostgres {
    store: Arc<Postgres>,
    pool: PgPool,
    shifted: Mutex<Duration>,
}

impl InPostgres {
    pub(super) async fn new(server: &str) -> Self {
        let url = site::fresh(server).await;
        let store = Arc::new(Postgres::open(&url, true).await.unwrap());
        store.migrate().await.unwrap();
        let pool = PgPool::connect_lazy(&url).unwrap();
        Self { store, pool, shifted: Mutex::default() }
    }

    /// All in one round trip and one transaction.
    async fn run(&self, statements: String) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&self.pool).await.unwrap();
    }
}

#[async_trait]
impl Harness for InPostgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn walks(&self) -> u64 {
        2_000
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        let mut tables: Vec<String> =
            MOMENTS.iter().map(|(table, _)| format!("delete from mapae.{table};")).collect();
        tables.push(
            "delete from mapae.workers; delete from mapae.shares; delete from mapae.file_store; delete from mapae.batches; delete from mapae.label_sets;".into(),
        );
        // Rows that others refer to go last.
        tables.reverse();
        self.run(tables.concat()).await;
        *self.shifted.lock().unwrap() = Duration::ZERO;
        self.store.clone()
    }

    async fn pass(&self, by: Duration) {
        let moved = MOMENTS.iter().map(|(table, columns)| {
            let columns: Vec<String> = columns
                .iter()
                .map(|column| format!("{column} = {column} - interval '{} seconds'", by.as_secs()))
                .collect();
            format!("update mapae.{table} set {};", columns.join(", "))
        });
        self.run(moved.collect()).await;
        *self.shifted.lock().unwrap() += by;
    }

    fn shifted(&self) -> Duration {
        *self.shifted.lock().unwrap()
    }
}
