//! SQLite on the bench: one file a harness, emptied between stores.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mapae::store::Sqlite;
use mapae::store::contract::Store;
use sqlx::SqlitePool;

use super::Harness;
use super::postgres::MOMENTS;

pub(super) struct InSqlite {
    store: Arc<Sqlite>,
    pool: SqlitePool,
    shifted: Mutex<Duration>,
    _folder: tempfile::TempDir,
}

impl InSqlite {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("mapae.db").display());
        let store = Arc::new(Sqlite::open(&url, true).await.unwrap());
        store.migrate().await.unwrap();
        let pool = SqlitePool::connect_lazy(&url).unwrap();
        Self { store, pool, shifted: Mutex::default(), _folder: folder }
    }

    async fn run(&self, statements: String) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&self.pool).await.unwrap();
    }
}

#[async_trait]
impl Harness for InSqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn walks(&self) -> u64 {
        2_000
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        let tables: Vec<String> = MOMENTS.iter().map(|(table, _)| format!("delete from {table};")).collect();
        self.run(format!(
            "begin immediate; {} delete from workers; delete from shares; delete from file_store; delete from batches; delete from label_sets; commit",
            tables.join(" ")
        ))
        .await;
        *self.shifted.lock().unwrap() = Duration::ZERO;
        self.store.clone()
    }

    async fn pass(&self, by: Duration) {
        let moved = MOMENTS.iter().map(|(table, columns)| {
            let columns: Vec<String> =
                columns.iter().map(|column| format!("{column} = {column} - {}", by.as_micros())).collect();
            format!("update {table} set {};", columns.join(", "))
        });
        self.run(format!("begin immediate; {} commit", moved.collect::<String>())).await;
        *self.shifted.lock().unwrap() += by;
    }

    fn shifted(&self) -> Duration {
        *self.shifted.lock().unwrap()
    }
}
