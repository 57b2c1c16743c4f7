//! Databases for a while, and those that take no writes.

use mapae::job::name::{Kind, Owner};
use mapae::job::record::NewJob;
use mapae::store::contract::{AcceptError, StoreError};
use mapae::store::{self, Scratch};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::site::{databases, fresh, postgres};

fn job() -> NewJob {
    NewJob::new(Owner::new("o").unwrap(), Kind::new("k").unwrap(), Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scratch_database_is_beside_the_other_and_leaves_nothing() {
    for database in databases().await {
        let scratch = Scratch::beside(&database.url).await.unwrap();
        let store = store::open(scratch.url(), false).await.unwrap();
        store.migrate().await.unwrap();
        store.accept(job()).await.unwrap();
        store.close().await;
        let untouched = store::open(&database.url, false).await.unwrap();
        assert_eq!(untouched.schema().await.unwrap().found, 0, "{}", database.name);
        untouched.close().await;
        let url = scratch.url().to_owned();
        scratch.remove().await.unwrap();
        match url.strip_prefix("sqlite:") {
            Some(file) => {
                let folder = std::path::Path::new(file).parent().unwrap();
                assert!(!folder.exists() && folder.parent().unwrap().exists());
            }
            None => {
                let mut server = PgConnection::connect(&postgres().unwrap()).await.unwrap();
                let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
                let query = sqlx::query("select count(*) from pg_database where datname = $1").bind(name);
                assert_eq!(query.fetch_one(&mut server).await.unwrap().get::<i64, _>(0), 0);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_takes_no_writes_accepts_nothing_and_says_so() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    store::open(&url, false).await.unwrap().migrate().await.unwrap();
    let name = url.rsplit('/').next().unwrap();
    let mut connection = PgConnection::connect(&server).await.unwrap();
    let statement = format!("alter database {name} set default_transaction_read_only = on");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    let store = store::open(&url, false).await.unwrap();
    let refused = store.accept(job()).await.unwrap_err();
    assert!(matches!(refused, AcceptError::Store(StoreError::Full(_))), "{refused:?}");
}
