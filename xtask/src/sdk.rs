//! The packages and examples in other languages, against the program that the tests before have built.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fleet::Fleet;
use crate::install::{TOOLS, debian_package};
use crate::step::{Failure, Outcome, persist, run, step, succeeds};

const PYTHON: &str = "sdk/python";

/// The longest first, as they are begun in this order.
const TESTS: [&str; 3] = ["examples/records-fastapi", "examples/pull-worker-python", "sdk/python/tests"];

/// Tests at the same time: they wait far more than they work.
const AT_A_TIME: &str = "4";

/// Types and tests of the Python package, and the examples that use it.
pub(crate) fn python(fleet: &Fleet, options: &[&str]) -> Outcome<()> {
    let python = environment()?;
    let package = absolute(Path::new(PYTHON))?;
    step("Python: types", || {
        let mut types = Command::new(&python);
        run(types.args(["-m", "mypy"]).current_dir(&package), "correct what is shown above")
    })?;
    step("Python: tests", || {
        let mut tests = Command::new(&python);
        tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", AT_A_TIME]);
        tests.arg("-c").arg(package.join("pyproject.toml")).args(TESTS).args(options);
        tests.env("PYTHONPATH", package.join("src"));
        // The tests hide every other such variable from it.
        tests.env("MAPAE_BINARY", program()?);
        run(fleet.show(&mut tests), "one test alone: cargo xtask python -k NAME")
    })
}

/// The interpreter that has what the tests need, and nothing that the machine has.
fn environment() -> Outcome<PathBuf> {
    let folder = Path::new(TOOLS).join("python");
    let python = folder.join("bin/python");
    let wanted = Path::new(PYTHON).join("requirements-test.txt");
    // Copied last: what is half installed has none.
    let installed = folder.join("installed.txt");
    let up_to_date = std::fs::read(&wanted)
        .is_ok_and(|wanted| std::fs::read(&installed).is_ok_and(|installed| installed == wanted));
    if !up_to_date || !succeeds(Command::new(&python).arg("--version")) {
        step("Python: install", || {
            let make = || {
                let mut venv = Command::new("python3");
                venv.args(["-m", "venv", "--clear"]).arg(&folder);
                venv
            };
            if !succeeds(&mut make()) {
                debian_package(&["python3-venv"], "true")?;
                run(&mut make(), "see the message above")?;
            }
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            // Not compiled: most of it is never imported.
            pip.args(["--only-binary=:all:", "--no-compile", "-r"]).arg(&wanted);
            persist(&mut pip, "is the Python package index reachable?")?;
            std::fs::copy(&wanted, &installed).map(drop).map_err(|error| {
                Failure::new(format!("cannot write {}: {error}", installed.display()), "is the disk full?")
            })
        })?;
    }
    absolute(&python)
}

fn program() -> Outcome<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let program = absolute(&Path::new(&target).join("debug/mapae"))?;
    if program.is_file() {
        return Ok(program);
    }
    Err(Failure::new(format!("there is no {}", program.display()), "build it: cargo build -p mapae-server"))
}

fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        Failure::new(format!("cannot tell where {} is: {error}", path.display()), "check its permissions")
    })
}
