//! What mapae costs: each figure beside a hand-written loop, or beside itself under another load, in one run on one
//! machine. Figures are medians; what is compared is a ratio, since absolute figures are the machine's.
//!
//! `cargo xtask bench` starts a PostgreSQL that syncs to disk and runs this in release. `mapae-bench NAME…` runs some.

// A benchmark says what is wrong by panicking.
#![allow(clippy::unwrap_used)]

mod accept;
mod backlog;
mod brokers;
mod cost;
mod drain;
mod http;
mod idle;
mod latency;
mod program;
mod raw;
mod recovery;
mod site;
mod snapshot;
mod table;

use std::process::ExitCode;

use crate::site::Database;
use crate::table::Row;

/// How often each figure is taken.
const RUNS: usize = 5;

const NAMES: [&str; 8] = ["drain", "latency", "idle", "backlog", "accept", "recovery", "snapshot", "brokers"];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = words.iter().find(|word| !NAMES.contains(&word.as_str())) {
        eprintln!("no benchmark is called {unknown}; there are {}", NAMES.join(", "));
        return ExitCode::from(2);
    }
    let Ok(server) = std::env::var("MAPAE_TEST_POSTGRES") else {
        eprintln!("no PostgreSQL: run `cargo xtask bench`");
        return ExitCode::from(2);
    };
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut rows: Vec<Row> = Vec::new();
    for sort in [Database::Sqlite, Database::Postgres(server)] {
        runtime.block_on(async {
            if wanted("drain") {
                rows.extend(drain::measure(&sort).await);
            }
            if wanted("latency") {
                rows.push(latency::measure(&sort).await);
            }
            if wanted("idle") {
                rows.push(idle::measure(&sort).await);
            }
            if wanted("backlog") {
                rows.push(backlog::measure(&sort).await);
            }
            if wanted("accept") {
                rows.push(accept::measure(&sort).await);
            }
            if wanted("recovery") {
                rows.extend(recovery::measure(&sort).await);
            }
            if wanted("snapshot") {
                rows.extend(snapshot::measure(&sort).await);
            }
            // Where several processes share the work, the database is a server too.
            if wanted("brokers") && matches!(sort, Database::Postgres(_)) {
                rows.extend(brokers::measure(&sort).await);
            }
        });
    }
    table::print(&rows);
    ExitCode::SUCCESS
}
