//! A backlog of jobs that do nothing, worked off by one worker, beside the hand-written loop.

use std::time::Instant;

use crate::cost::{Cost, Seconds, rate};
use crate::site::{Database, Site};
use crate::table::{Row, median};
use crate::{RUNS, raw};

const JOBS: usize = 10_000;

pub(crate) async fn measure(database: &Database) -> Vec<Row> {
    let against = match database {
        Database::Sqlite => vec![(100, 100, 0.3, f64::INFINITY, "≥ 0.3 × the loop")],
        Database::Postgres(_) => vec![
            (100, 100, 0.8, 1.6, "≥ 0.8 × the loop, CPU ≤ 1.6 ×"),
            (10, 10, 0.8, f64::INFINITY, "≥ 0.8 × the loop"),
        ],
    };
    let mut rows = Vec::new();
    for (slots, batch, speed_min, cpu_max, goal) in against {
        let (mut ours, mut theirs) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let mut own = Vec::new();
        let (mut speeds, mut costs) = (Vec::new(), Vec::new());
        for run in 0..=RUNS {
            let (raw_rate, raw_cpu) = yardstick(database, batch).await;
            let (rate, cpu) = drain(database, slots).await;
            // The first warms up.
            if run > 0 {
                speeds.push(rate / raw_rate);
                costs.push(cpu.all() / raw_cpu.all());
                ours.0.push(rate);
                ours.1.push(cpu.all());
                own.push(cpu.own);
                theirs.0.push(raw_rate);
                theirs.1.push(raw_cpu.all());
            }
        }
        let (speed, cost) = (median(speeds), median(costs));
        rows.push(Row {
            what: format!(
                "{}: drain of {JOBS}, concurrency {slots}, beside a raw loop at batch {batch}",
                database.name()
            ),
            found: format!(
                "{:.0}/s against {:.0}/s: {speed:.2} ×; CPU s per 10,000: {:.2} ({:.2} without the server) against {:.2}: {cost:.2} ×",
                median(ours.0),
                median(theirs.0),
                median(ours.1),
                median(own),
                median(theirs.1)
            ),
            goal,
            held: speed >= speed_min && cost <= cpu_max,
        });
    }
    rows
}

async fn yardstick(database: &Database, batch: usize) -> (f64, Seconds) {
    let cost = Cost::of(database).await;
    let before = cost.seconds();
    let took = raw::drain(database, JOBS, batch).await;
    (rate(JOBS, took), cost.seconds().since(before).per_ten_thousand(JOBS))
}

async fn drain(database: &Database, slots: usize) -> (f64, Seconds) {
    let site = Site::new(database).await;
    site.fill(JOBS).await;
    let cost = Cost::of(database).await;
    let before = cost.seconds();
    let began = Instant::now();
    let (worker, _told) = site.worker(slots).await;
    site.ended(JOBS).await;
    let took = began.elapsed();
    let cpu = cost.seconds().since(before).per_ten_thousand(JOBS);
    worker.drain().await;
    site.close().await;
    (rate(JOBS, took), cpu)
}
