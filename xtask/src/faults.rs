//! Real processes, killed and frozen at every step: builds them with their faults and runs the harness.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::ahead::Ahead;
use crate::fleet::Fleet;
use crate::install::debian_package;
use crate::step::{Outcome, cargo, exit_code, run, status, step};

/// What needs no server.
const WITHOUT_SERVER: [&str; 3] = ["--help", "--list", "sqlite"];

/// For workers whose clock is wrong.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Runs `mapae-faults` with these words, beside a PostgreSQL of its own where it needs one.
pub(crate) fn faults(words: &[&str]) -> Outcome<ExitCode> {
    build()?;
    if words.iter().any(|word| WITHOUT_SERVER.contains(word)) {
        return harness(&mut harness_command(words));
    }
    let fleet = Fleet::named("postgres")?;
    harness(fleet.show(&mut harness_command(words)))
}

/// The short run and the broken promises, as a part of all tests.
///
/// They mostly wait: meanwhile what later steps need is built.
pub(crate) fn short(fleet: &Fleet) -> Outcome<()> {
    build()?;
    let ahead = Ahead::start();
    for (title, words) in [("Faults", "--short"), ("Faults: broken promises", "--mutants")] {
        step(title, || {
            let mut command = harness_command(&[words]);
            let help = "each failure above ends with the command that shows it again";
            run(fleet.show(&mut command), help)
        })?;
    }
    step("Faults: builds beside them", || {
        ahead.finish();
        Ok(())
    })
}

fn build() -> Outcome<()> {
    if !Path::new(FAKETIME).exists() {
        step("Faults: install faketime", || debian_package(&["faketime"], "true"))?;
    }
    let features = "mapae-server/faults,mapae-faults/faults";
    let mut command = cargo(&["build", "--locked", "--workspace", "--bins"]);
    step("Faults: build", || run(command.args(["--features", features]), "see the compiler's message above"))
}

fn harness(command: &mut Command) -> Outcome<ExitCode> {
    status(command).map(exit_code)
}

fn harness_command(words: &[&str]) -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let mut command = Command::new(Path::new(&target).join("debug/mapae-faults"));
    command.args(words);
    command
}
