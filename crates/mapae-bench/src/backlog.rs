//! Whether a job costs more to claim when a million others wait.

use std::time::Instant;

use sqlx::{Connection, SqliteConnection};

use crate::cost::Cost;
use crate::site::{Database, Site, execute};
use crate::table::{Row, median};

/// Worked off each time.
const JOBS: usize = 4_000;
const SMALL: usize = 5_000;
const LARGE: usize = 1_000_000;
const RUNS: usize = 3;

pub(crate) async fn measure(database: &Database) -> Row {
    let mut shares = Vec::new();
    let mut costs = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let small = drain(database, SMALL).await;
        let large = drain(database, LARGE).await;
        shares.push(large / small);
        costs.0.push(small);
        costs.1.push(large);
    }
    let share = median(shares);
    Row {
        what: format!("{}: CPU of a job with {LARGE} waiting, beside {SMALL}", database.name()),
        found: format!("{:.2} s against {:.2} s per 10,000: {share:.2} ×", median(costs.1), median(costs.0)),
        goal: "≤ 1.3 ×",
        held: share <= 1.3,
    }
}

async fn drain(database: &Database, backlog: usize) -> f64 {
    let site = Site::new(database).await;
    site.fill(500).await;
    more(&site, database, backlog).await;
    let cost = Cost::of(database).await;
    let before = cost.seconds();
    let began = Instant::now();
    let (worker, _told) = site.worker(100).await;
    // What has begun is what counts; counting states would cost by the million.
    while site.done.load(std::sync::atomic::Ordering::Relaxed) < JOBS {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert!(began.elapsed().as_secs() < 120, "the worker starts nothing");
    }
    let cpu = cost.seconds().since(before).per_ten_thousand(JOBS);
    worker.drain().await;
    site.close().await;
    cpu.all()
}

/// Copies of a job that is there, of many owners.
async fn more(site: &Site, database: &Database, backlog: usize) {
    let columns =
        "kind, lane, priority, params, attempts_max, backoff_first_us, backoff_max_us, created_at, due_at";
    match database {
        Database::Sqlite => {
            let path = site.url.strip_prefix("sqlite:").unwrap();
            let mut connection = SqliteConnection::connect(path).await.unwrap();
            let copy = format!(
                "pragma busy_timeout = 60000;
                 insert into jobs (id, owner, {columns})
                 with recursive n (n) as (select 1 union all select n + 1 from n where n < {backlog})
                 select randomblob(16), 'o' || n % 100, {columns} from n cross join (select * from jobs limit 1);"
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(copy)).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
        Database::Postgres(_) => {
            let copy = format!(
                "insert into mapae.jobs (id, owner, {columns})
                 select gen_random_uuid(), 'o' || n % 100, {columns}
                   from generate_series(1, {backlog}) n cross join (select * from mapae.jobs limit 1) j"
            );
            execute(&site.url, &copy).await;
            execute(&site.url, "vacuum analyze mapae.jobs").await;
        }
    }
}
