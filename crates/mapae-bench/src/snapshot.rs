//! Load while another session holds an old snapshot open, so that no dead row can be removed (PostgreSQL).

use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection};

use crate::cost::Cost;
use crate::site::{Database, Site};
use crate::table::Row;

/// How long it is held, and how long it may take until things are as before.
const HELD: Duration = Duration::from_secs(600);
const AFTER: Duration = Duration::from_secs(60);

/// Accepted and worked off before each look: some hundreds a second.
const JOBS: usize = 2_000;

pub(crate) async fn measure(database: &Database) -> Option<Row> {
    let Database::Postgres(_) = database else { return None };
    let site = Site::new(database).await;
    let (worker, _told) = site.worker(100).await;
    let mut load = Load { site: &site, database, done: 0 };
    load.turn().await;
    let start = load.turn().await;
    let mut session = PgConnection::connect(&site.url).await.unwrap();
    session.execute("begin isolation level repeatable read; select count(*) from mapae.jobs").await.unwrap();
    let began = Instant::now();
    let mut end = start;
    while began.elapsed() < HELD {
        end = load.turn().await;
    }
    let jobs = load.done;
    session.execute("rollback").await.unwrap();
    let began = Instant::now();
    let mut after = end;
    while began.elapsed() < AFTER {
        after = load.turn().await;
    }
    worker.drain().await;
    site.close().await;
    Some(Row {
        what: format!("{jobs} jobs in 10 minutes while another session holds a snapshot: CPU of a job"),
        found: format!(
            "{start:.2} s per 10,000 at the start, {end:.2} s at the end ({:.2} ×), {after:.2} s a minute after",
            end / start
        ),
        goal: "≤ 3 ×, and back within a minute",
        held: end <= 3.0 * start && after <= 1.5 * start,
    })
}

struct Load<'a> {
    site: &'a Site,
    database: &'a Database,
    done: usize,
}

impl Load<'_> {
    /// Accepts some jobs and waits for their end. Answers the processor time, in seconds per 10,000.
    async fn turn(&mut self) -> f64 {
        let cost = Cost::of(self.database).await;
        let (before, began) = (cost.seconds(), Instant::now());
        self.site.fill(JOBS).await;
        self.done += JOBS;
        self.site.begun(self.done).await;
        let cpu = cost.seconds().since(before).per_ten_thousand(JOBS);
        // A load that leaves the machine some room.
        tokio::time::sleep(Duration::from_secs(2).saturating_sub(began.elapsed())).await;
        cpu.all()
    }
}
