//! What it costs: builds the benchmarks for release and runs them beside a PostgreSQL of their own that syncs to disk.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::fleet::Fleet;
use crate::postgres;
use crate::step::{self, Outcome, cargo, exit_code, status, step};

pub(crate) fn run(names: &[&str]) -> Outcome<ExitCode> {
    let mut build = cargo(&["build", "--release", "--locked", "--package", "mapae-bench"]);
    step("Bench: build", || step::run(&mut build, "see the compiler's message above"))?;
    let (_server, address) = postgres::start_durable()?;
    // Those that keep what they are given while they are not stopped; the jobs are in the database.
    let brokers = names.is_empty() || names.contains(&"brokers");
    let fleet = brokers.then(|| Fleet::named("valkey,rabbitmq,kafka")).transpose()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let mut bench = Command::new(Path::new(&target).join("release/mapae-bench"));
    if let Some(fleet) = &fleet {
        fleet.show(&mut bench);
    }
    status(bench.args(names).env("MAPAE_TEST_POSTGRES", address)).map(exit_code)
}
