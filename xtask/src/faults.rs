//! Real processes, killed and frozen at every step: builds them with their faults and runs the harness.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::ahead::Ahead;
use crate::fleet::Fleet;
use crate::install::debian_package;
use crate::step::{Outcome, cargo, exit_code, run, status, step};

/// What needs no server.
const WITHOUT_SERVER: [&str; 3] = ["--help", "-h", "--list"];

/// What names its own cells or kills: without a broker, unless one is named with it.
const NAMED: [&str; 3] = ["--only", "--random", "--broker"];

/// The brokers that have a server.
const BROKERS: [&str; 4] = ["valkey", "redis", "rabbitmq", "kafka"];

/// For workers whose clock is wrong.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Runs `mapae-faults` with these words, beside servers of its own where it needs any.
pub(crate) fn faults(words: &[&str]) -> Outcome<ExitCode> {
    build()?;
    let servers = servers(words);
    if servers.is_empty() {
        return harness(&mut harness_command(words));
    }
    let fleet = Fleet::named(&servers.join(","))?;
    harness(fleet.show(&mut harness_command(words)))
}

/// Those that these words need.
fn servers(words: &[&str]) -> Vec<&'static str> {
    if words.iter().any(|word| WITHOUT_SERVER.contains(word)) {
        return Vec::new();
    }
    let says = |name: &str| words.iter().any(|word| word.contains(name));
    let every = words.contains(&"all")
        || words.iter().any(|word| word.ends_with('+'))
        || !words.iter().any(|word| NAMED.contains(word));
    let brokers = BROKERS.into_iter().filter(|broker| every || says(broker));
    let postgres = (says("postgres") || !says("sqlite")).then_some("postgres");
    postgres.into_iter().chain(brokers).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_servers_are_started_that_are_needed() {
        assert_eq!(servers(&["--list"]), [""; 0]);
        assert_eq!(servers(&[]), ["postgres", "valkey", "redis", "rabbitmq", "kafka"]);
        assert_eq!(servers(&["--random", "7", "--store", "sqlite"]), [""; 0]);
        assert_eq!(servers(&["--only", "work/settle.asked/postgres/freeze"]), ["postgres"]);
        assert_eq!(servers(&["--only", "work/settle.asked/sqlite+kafka/kill"]), ["kafka"]);
        assert_eq!(servers(&["--only", "work/settle.asked/sqlite+"]), BROKERS);
        assert_eq!(servers(&["--broker", "valkey"]), ["postgres", "valkey"]);
        assert_eq!(servers(&["--random", "7", "--store", "sqlite", "--broker", "all"]), BROKERS);
    }
}
