//! What a worker and its keeper cost while there is nothing to do.

use std::time::Duration;

use crate::cost::{Cost, resident_mib};
use crate::site::{Database, Site};
use crate::table::Row;

const SECONDS: u64 = 20;

pub(crate) async fn measure(database: &Database) -> Row {
    let site = Site::new(database).await;
    let (worker, _told) = site.worker(4).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let cost = Cost::of(&Database::Sqlite).await;
    let before = cost.seconds();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let share = cost.seconds().since(before).all() / SECONDS as f64 * 100.0;
    let resident = resident_mib();
    worker.drain().await;
    site.close().await;
    Row {
        what: format!("{}: idle worker", database.name()),
        found: format!("{share:.2} % of a core, {resident:.0} MiB resident"),
        goal: "< 1 %, ≤ 30 MiB",
        held: share < 1.0 && resident <= 30.0,
    }
}
