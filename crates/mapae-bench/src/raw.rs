//! The yardstick: one connection that claims and completes in batches, hand-written, with nothing of what the contract
//! asks for beyond a token and a lease. Two commits a batch.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, PgConnection, Row, SqliteConnection};
use uuid::Uuid;

use crate::site::{Database, fresh};

/// How long so many jobs take in batches of that size.
pub(crate) async fn drain(database: &Database, jobs: usize, batch: usize) -> Duration {
    match database {
        Database::Sqlite => sqlite(jobs, batch).await,
        Database::Postgres(server) => postgres(server, jobs, batch).await,
    }
}

async fn postgres(server: &str, jobs: usize, batch: usize) -> Duration {
    let url = fresh(server).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(
        "
        create table job (
            id uuid primary key, state text not null, attempt integer not null, token uuid, leased_until timestamptz,
            params jsonb not null, due_at timestamptz not null
        ) with (fillfactor = 60);
        create index job_due on job (due_at, id) where state = 'pending';
        ",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    sqlx::query("insert into job select gen_random_uuid(), 'pending', 0, null, null, '{\"n\": 1}', now() from generate_series(1, $1)")
        .bind(jobs as i64)
        .execute(&mut connection)
        .await
        .unwrap();
    let began = Instant::now();
    loop {
        let token = Uuid::new_v4();
        let rows = sqlx::query(
            "
            update job set state = 'running', attempt = attempt + 1, token = $1, leased_until = now() + interval '30 seconds'
             where id = any(array(select id from job where state = 'pending' and due_at <= now()
                                   order by due_at, id limit $2 for update skip locked))
            returning id, params
            ",
        )
        .bind(token)
        .bind(batch as i64)
        .fetch_all(&mut connection)
        .await
        .unwrap();
        if rows.is_empty() {
            break;
        }
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get("id")).collect();
        sqlx::query(
            "update job set state = 'succeeded', token = null, leased_until = null
              where id = any($1) and state = 'running' and token = $2",
        )
        .bind(ids)
        .bind(token)
        .execute(&mut connection)
        .await
        .unwrap();
    }
    let took = began.elapsed();
    connection.close().await.unwrap();
    let name = url.rsplit('/').next().unwrap();
    crate::site::execute(server, &format!("drop database {name} with (force)")).await;
    took
}

/// A new file that loses nothing it has answered for.
pub(crate) async fn sqlite_in(folder: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("raw.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    SqliteConnection::connect_with(&options).await.unwrap()
}

async fn sqlite(jobs: usize, batch: usize) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = sqlite_in(folder.path()).await;
    sqlx::raw_sql(
        "
        create table job (
            id blob primary key, state text not null, attempt integer not null, token blob, leased_until integer,
            params text not null, due_at integer not null
        );
        create index job_due on job (due_at, id) where state = 'pending';
        ",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    sqlx::query(
        "insert into job with recursive n (n) as (select 1 union all select n + 1 from n where n < $1)
         select randomblob(16), 'pending', 0, null, null, '{\"n\": 1}', 0 from n",
    )
    .bind(jobs as i64)
    .execute(&mut connection)
    .await
    .unwrap();
    let began = Instant::now();
    loop {
        let token = Uuid::new_v4();
        let rows = sqlx::query(
            "
            update job set state = 'running', attempt = attempt + 1, token = $1, leased_until = unixepoch() + 30
             where id in (select id from job where state = 'pending' and due_at <= unixepoch()
                           order by due_at, id limit $2)
            returning id, params
            ",
        )
        .bind(token)
        .bind(batch as i64)
        .fetch_all(&mut connection)
        .await
        .unwrap();
        if rows.is_empty() {
            break;
        }
        let ids: Vec<String> = rows
            .iter()
            .map(|row| row.get::<Vec<u8>, _>("id").iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        sqlx::query(
            "update job set state = 'succeeded', token = null, leased_until = null
              where id in (select unhex(value) from json_each($1)) and state = 'running' and token = $2",
        )
        .bind(serde_json::json!(ids).to_string())
        .bind(token)
        .execute(&mut connection)
        .await
        .unwrap();
    }
    let took = began.elapsed();
    connection.close().await.unwrap();
    took
}
