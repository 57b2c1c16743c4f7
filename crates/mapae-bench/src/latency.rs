//! From the answer to an accept to the start of its handler, on a worker that has nothing to do.

use std::time::{Duration, Instant};

use crate::site::{Database, Site};
use crate::table::{Row, quantile};

const JOBS: usize = 300;

pub(crate) async fn measure(database: &Database) -> Row {
    let site = Site::new(database).await;
    let (worker, mut told) = site.worker(4).await;
    let mut waits = Vec::with_capacity(JOBS);
    for _ in 0..JOBS {
        let id = site.accept.accept(Site::job()).await.unwrap().id;
        let answered = Instant::now();
        let (started, at) = told.recv().await.unwrap();
        assert_eq!(started, id);
        waits.push(at.saturating_duration_since(answered).as_secs_f64() * 1000.0);
        site.ended(waits.len()).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.drain().await;
    site.close().await;
    let (half, most) = (quantile(&mut waits, 0.5), quantile(&mut waits, 0.99));
    Row {
        what: format!("{}: accept answered to handler started, idle worker", database.name()),
        found: format!("p50 {half:.2} ms, p99 {most:.2} ms"),
        goal: "p50 ≤ 3 ms, p99 ≤ 20 ms",
        held: half <= 3.0 && most <= 20.0,
    }
}
