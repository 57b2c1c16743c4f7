//! What a broker in front of the database costs, beside none in the same run: a backlog worked off, and an idle worker.

use std::time::{Duration, Instant};

use crate::RUNS;
use crate::cost::{Cost, rate};
use crate::site::{Database, Site};
use crate::table::{Row, median};

const JOBS: usize = 10_000;
const SLOTS: usize = 100;
const IDLE_SECONDS: u64 = 10;

/// Each broker, the variable that says where it is, and which part of the speed without one it has to keep.
const BROKERS: [(&str, &str, f64, &str); 3] = [
    ("Valkey", "MAPAE_TEST_VALKEY", 0.9, "≥ 0.9 ×, idle < 1 %"),
    ("RabbitMQ", "MAPAE_TEST_RABBITMQ", 0.6, "≥ 0.6 ×, idle < 1 %"),
    ("Kafka", "MAPAE_TEST_KAFKA", 0.6, "≥ 0.6 ×, idle < 1 %"),
];

/// Of the brokers that are there.
pub(crate) async fn measure(database: &Database) -> Vec<Row> {
    let there: Vec<_> = BROKERS
        .into_iter()
        .filter_map(|(name, variable, least, goal)| {
            let address = std::env::var(variable).ok()?;
            // What stands behind a `#` is for tests.
            Some((name, address.split('#').next()?.to_owned(), least, goal))
        })
        .collect();
    let (mut alone, mut through) = (Vec::new(), vec![Vec::new(); there.len()]);
    for run in 0..=RUNS {
        let without = drain(database, "embedded:").await;
        for ((_, address, ..), rates) in there.iter().zip(&mut through) {
            let with = drain(database, &corner(address)).await;
            // The first warms up.
            if run > 0 {
                rates.push(with / without);
            }
        }
        if run > 0 {
            alone.push(without);
        }
    }
    let alone = median(alone);
    let mut rows = Vec::new();
    for ((name, address, least, goal), ratios) in there.into_iter().zip(through) {
        let (ratio, idle) = (median(ratios), idle(database, &corner(&address)).await);
        rows.push(Row {
            what: format!("{}: drain of {JOBS} through {name}, concurrency {SLOTS}", database.name()),
            found: format!("{ratio:.2} × of {alone:.0}/s without a broker; idle {idle:.2} % of a core"),
            goal,
            held: ratio >= least && idle < 1.0,
        });
    }
    rows
}

/// The broker, with nothing of ours in it yet.
fn corner(address: &str) -> String {
    format!("{address}?prefix=bench{}", uuid::Uuid::new_v4().simple())
}

async fn drain(database: &Database, broker: &str) -> f64 {
    let site = Site::over(database, broker).await;
    site.fill(JOBS).await;
    let began = Instant::now();
    let (worker, _told) = site.worker(SLOTS).await;
    site.ended(JOBS).await;
    let took = began.elapsed();
    worker.drain().await;
    site.close().await;
    rate(JOBS, took)
}

/// Which part of a core this process takes while nothing happens, in percent.
async fn idle(database: &Database, broker: &str) -> f64 {
    let site = Site::over(database, broker).await;
    let (worker, _told) = site.worker(4).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let cost = Cost::of(&Database::Sqlite).await;
    let before = cost.seconds();
    tokio::time::sleep(Duration::from_secs(IDLE_SECONDS)).await;
    let share = cost.seconds().since(before).all() / IDLE_SECONDS as f64 * 100.0;
    worker.drain().await;
    site.close().await;
    share
}
