//! What has to be green, in the order in which a failure is cheapest to find.

use std::process::Command;

use crate::demo;
use crate::faults;
use crate::fleet::{Fleet, hide};
use crate::install::{cargo_deny, recogniser};
use crate::models;
use crate::s3;
use crate::sdk;
use crate::step::{Outcome, cargo, run, step};

/// Tells the tests that no server was started on purpose.
const EMBEDDED: &str = "MAPAE_TEST_EMBEDDED";

pub(crate) fn everything() -> Outcome<()> {
    formatting()?;
    lints()?;
    models::make()?;
    step("Tesseract: install", recogniser)?;
    // Alive until the tests are over, and stopped by the end of the block, whatever comes first.
    {
        let fleet = Fleet::whole()?;
        tests(models::show(fleet.show(cargo(&["test", "--workspace", "--locked"]).env_remove(EMBEDDED))))?;
        // Before the faults, which leave another program in its place.
        sdk::python(&fleet, &[])?;
        faults::short(&fleet)?;
    }
    documentation()?;
    dependencies()?;
    demo::analyze_examples()?;
    eprintln!("\nAll green.");
    Ok(())
}

pub(crate) fn embedded() -> Outcome<()> {
    let warning = "THE QUICK PART ONLY: no servers, no dependency check, no demo.\n\
                   What it does not run can be broken: `cargo xtask test` decides.";
    eprintln!("{warning}");
    formatting()?;
    lints()?;
    step("Tesseract: install", recogniser)?;
    let mut command = cargo(&["test", "--workspace", "--locked"]);
    tests(models::show(hide(command.env(EMBEDDED, "1"))))?;
    documentation()?;
    eprintln!("\nGreen, but: {warning}");
    Ok(())
}

pub(crate) fn s3() -> Outcome<()> {
    let (_server, variables) = s3::start()?;
    let mut command =
        cargo(&["test", "--locked", "-p", "mapae", "--features", "test-s3", "--test", "it", "s3::"]);
    tests(command.envs(variables))
}

fn formatting() -> Outcome<()> {
    step("Formatting", || run(&mut cargo(&["fmt", "--all", "--check"]), "cargo fmt --all"))
}

fn lints() -> Outcome<()> {
    // All but `kafka-tls`, for which OpenSSL's headers would have to be there.
    let features = "mapae/test-s3,mapae-faults/faults,mapae-server/faults";
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        features,
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    step("Lints", || run(&mut cargo(&arguments), "correct what is shown above, then run this again"))
}

fn tests(command: &mut Command) -> Outcome<()> {
    let help = "run one test again by its name: cargo xtask servers all -- cargo test NAME";
    step("Tests", || run(command, help))
}

fn documentation() -> Outcome<()> {
    // The library and the program are both called mapae and would write the same pages at the same time. The
    // library's are the ones to keep, so they come last.
    step("Documentation", || {
        for kind in ["--bins", "--lib"] {
            let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked", kind]);
            command.env("RUSTDOCFLAGS", "-D warnings");
            run(&mut command, "a link or an example in a doc comment is broken; see above")?;
        }
        Ok(())
    })
}

fn dependencies() -> Outcome<()> {
    step("Dependencies", || {
        let mut command = Command::new(cargo_deny()?);
        command.args(["--all-features", "--locked", "check", "licenses", "bans", "sources"]);
        run(&mut command, "deny.toml says what is allowed and why; choose another crate or feature")
    })
}
