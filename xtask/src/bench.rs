//! What it costs: builds the benchmarks for release and runs them beside a PostgreSQL of their own that syncs to disk.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::fleet::Fleet;
use crate::install::debian_package;
use crate::step::{self, Outcome, cargo, exit_code, status, step};
use crate::{models, postgres};

/// What understanding texts costs, with the packs.
pub(crate) fn ai() -> Outcome<()> {
    models::make()?;
    let mut command = cargo(&["run", "--release", "--locked", "-p", "mapae-ai", "--example", "speed", "--"]);
    step("Bench: texts", || step::run(command.arg(models::MODELS), "see the message above"))
}

/// What reading a long PDF costs, beside `pdftotext`.
pub(crate) fn documents() -> Outcome<()> {
    if !step::succeeds(Command::new("pdftotext").arg("-v")) {
        step("Poppler: install", || debian_package(&["poppler-utils"], "true"))?;
    }
    let mut command = cargo(&["run", "--release", "--locked", "-p", "mapae-document", "--example", "pages"]);
    step("Bench: documents", || step::run(&mut command, "see the message above"))
}

pub(crate) fn run(names: &[&str]) -> Outcome<ExitCode> {
    // Some of it measures the program itself.
    let packages = ["--package", "mapae-bench", "--package", "mapae-server"];
    let mut build = cargo(&["build", "--release", "--locked"]);
    build.args(packages);
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
