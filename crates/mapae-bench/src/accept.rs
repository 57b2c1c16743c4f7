//! Accepting over HTTP, many callers at once, beside one caller that commits row by row.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use crate::RUNS;
use crate::cost::rate;
use crate::http::Caller;
use crate::program::Program;
use crate::raw::sqlite_in;
use crate::site::{Database, execute, fresh};
use crate::table::{Row, median, quantile};

const CALLERS: usize = 128;
const JOBS: usize = 10_000;
const COMMITS: usize = 500;
const BODY: &str = r#"{"kind":"bench.nothing","params":{"n":1}}"#;

pub(crate) async fn measure(database: &Database) -> Row {
    let program = Program::serve(database, "").await;
    let (mut rates, mut singles, mut ratios, mut halves) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut syncs = Vec::new();
    for run in 0..=RUNS {
        let single = one_by_one(database).await;
        let (rate, half) = many(&program).await;
        // The first warms up.
        if run > 0 {
            rates.push(rate);
            singles.push(single);
            ratios.push(rate / single);
            halves.push(half);
            syncs.push(sync());
        }
    }
    let alone = alone(&program).await;
    program.close().await;
    let (ratio, half, sync) = (median(ratios), median(halves), median(syncs));
    Row {
        what: format!(
            "{}: accept over HTTP, {CALLERS} callers, beside one commit at a time",
            database.name()
        ),
        found: format!(
            "{:.0}/s against {:.0}/s: {ratio:.1} ×; p50 {half:.2} ms ({alone:.2} ms for a caller alone), a disk sync {sync:.2} ms",
            median(rates),
            median(singles),
        ),
        goal: "≥ 10 ×, p50 under two disk syncs",
        held: ratio >= 10.0 && half < 2.0 * sync,
    }
}

/// Accepts a second, and the milliseconds that half of them took at most.
async fn many(program: &Program) -> (f64, f64) {
    let left = Arc::new(AtomicUsize::new(JOBS));
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        callers.push(Caller::to(&program.address, &program.key).await.unwrap());
    }
    let began = Instant::now();
    let calling = callers.into_iter().map(|mut caller| {
        let left = left.clone();
        tokio::spawn(async move {
            let mut took = Vec::new();
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                let asked = Instant::now();
                let (status, _) = caller.post("/v1/jobs", BODY).await.unwrap();
                assert_eq!(status, 202);
                took.push(asked.elapsed().as_secs_f64() * 1000.0);
            }
            took
        })
    });
    let took = futures_util::future::join_all(calling.collect::<Vec<_>>()).await;
    let all = began.elapsed();
    let mut took: Vec<f64> = took.into_iter().flat_map(Result::unwrap).collect();
    (rate(JOBS, all), quantile(&mut took, 0.5))
}

async fn alone(program: &Program) -> f64 {
    let mut caller = Caller::to(&program.address, &program.key).await.unwrap();
    let mut took = Vec::new();
    for _ in 0..COMMITS {
        let asked = Instant::now();
        caller.post("/v1/jobs", BODY).await.unwrap();
        took.push(asked.elapsed().as_secs_f64() * 1000.0);
    }
    quantile(&mut took, 0.5)
}

/// Rows a second of one connection that commits each.
async fn one_by_one(database: &Database) -> f64 {
    const TABLE: &str = "create table job (id integer primary key, params text not null)";
    const ROW: &str = "insert into job (params) values ('{\"n\": 1}')";
    match database {
        Database::Sqlite => {
            let folder = tempfile::tempdir().unwrap();
            let mut connection = sqlite_in(folder.path()).await;
            sqlx::query(TABLE).execute(&mut connection).await.unwrap();
            let began = Instant::now();
            for _ in 0..COMMITS {
                sqlx::query(ROW).execute(&mut connection).await.unwrap();
            }
            let took = began.elapsed();
            connection.close().await.unwrap();
            rate(COMMITS, took)
        }
        Database::Postgres(server) => {
            let url = fresh(server).await;
            execute(&url, &TABLE.replace("integer", "bigint generated always as identity")).await;
            let mut connection = PgConnection::connect(&url).await.unwrap();
            let began = Instant::now();
            for _ in 0..COMMITS {
                sqlx::query(ROW).execute(&mut connection).await.unwrap();
            }
            let took = began.elapsed();
            connection.close().await.unwrap();
            execute(server, &format!("drop database {} with (force)", url.rsplit('/').next().unwrap())).await;
            rate(COMMITS, took)
        }
    }
}

/// Milliseconds until eight kilobytes that were appended to a file are on the disk.
fn sync() -> f64 {
    let mut file = tempfile::tempfile().unwrap();
    let mut took = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        file.write_all(&[7; 8192]).unwrap();
        file.sync_data().unwrap();
        took.push(began.elapsed());
    }
    took.sort();
    took.get(100).copied().unwrap_or(Duration::ZERO).as_secs_f64() * 1000.0
}
