//! Installing what a step needs and the machine lacks.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failure, Outcome, cargo, persist, run, succeeds};

/// Where tools are kept that only this repository needs. Not under version control.
pub(crate) const TOOLS: &str = "tools";
/// For a mirror that is slow or stuck, and for another apt that is at work, as a fresh machine's own often is.
const PATIENT: [&str; 8] = [
    "-o",
    "Acquire::Retries=3",
    "-o",
    "Acquire::http::Timeout=30",
    "-o",
    "Acquire::https::Timeout=30",
    "-o",
    "DPkg::Lock::Timeout=120",
];
const CARGO_DENY: &str = "0.20.2";

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Installs one of the packages: the first that the distribution has.
///
/// `before` is a shell line to run first, with the same rights.
pub(crate) fn debian_package(packages: &[&str], before: &str) -> Outcome<()> {
    let by_hand = |package: &str| format!("install it by hand: apt-get install {package}");
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return Err(Failure::new(
            format!("{} is missing and this is not a Debian system", packages[0]),
            by_hand(packages[0]),
        ));
    }
    let as_root = || -> Outcome<Command> {
        if is_root() {
            return Ok(Command::new("env"));
        }
        if succeeds(Command::new("sudo").args(["-n", "true"])) {
            let mut sudo = Command::new("sudo");
            sudo.args(["-n", "env"]);
            return Ok(sudo);
        }
        Err(Failure::new(
            format!("{} is missing, and installing it needs root or sudo without a password", packages[0]),
            by_hand(packages[0]),
        ))
    };
    let network = "is the package mirror reachable?";
    let mut update = as_root()?;
    // Lists that could not be fetched are a failure, not a package that does not exist.
    update.args(["apt-get", "update", "-qq", "-o", "APT::Update::Error-Mode=any"]).args(PATIENT);
    persist(&mut update, network)?;
    let offered = |package: &&&str| succeeds(Command::new("apt-cache").args(["show", package]));
    let package = packages.iter().find(offered).ok_or_else(|| {
        Failure::new(format!("this distribution has none of {}", packages.join(", ")), by_hand(packages[0]))
    })?;
    run(as_root()?.args(["sh", "-c", before]), "see the message above")?;
    let arguments = [
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        "-o",
        "Dpkg::Options::=--force-confold",
        package,
    ];
    let mut install = as_root()?;
    install.args(arguments).args(PATIENT);
    persist(&mut install, &by_hand(package))
}

/// What reads text on pictures, Hangul too, and a font with Hangul for the pictures that tests make.
pub(crate) fn recogniser() -> Outcome<()> {
    for package in ["tesseract-ocr", "tesseract-ocr-kor", "fonts-nanum"] {
        if !succeeds(Command::new("dpkg").args(["--status", package])) {
            debian_package(&[package], "true")?;
        }
    }
    Ok(())
}

/// The program that fetches packages of the Python index, installed where it is missing.
pub(crate) fn pip() -> Outcome<Command> {
    let pip = || {
        let mut python = Command::new("python3");
        python.args(["-m", "pip"]);
        python
    };
    if !succeeds(pip().arg("--version")) {
        debian_package(&["python3-pip"], "true")?;
    }
    Ok(pip())
}

/// Unpacks a package of the Python index, pinned to a version, into a folder of our own.
pub(crate) fn python_package(package: &str, folder: &Path) -> Outcome<()> {
    let mut pip = pip()?;
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]);
    persist(
        pip.args(["--no-deps", "--target"]).arg(folder).arg(package),
        "is the Python package index reachable?",
    )
}

/// The program cargo-deny: the one in PATH, or our own copy, built the first time.
pub(crate) fn cargo_deny() -> Outcome<PathBuf> {
    if let Some(there) = find_cargo_deny() {
        return Ok(there);
    }
    persist(&mut install_cargo_deny(), "is the package registry reachable?")?;
    Ok(own_cargo_deny())
}

pub(crate) fn has_cargo_deny() -> bool {
    find_cargo_deny().is_some()
}

/// Without optimisation: it looks through one lock file, and takes longer to build than to run either way.
pub(crate) fn install_cargo_deny() -> Command {
    let mut command = cargo(&["install", "--quiet", "--locked", "--debug", "--root", TOOLS]);
    command.args(["--version", CARGO_DENY, "cargo-deny"]).env("CARGO_PROFILE_DEV_DEBUG", "false");
    command
}

fn find_cargo_deny() -> Option<PathBuf> {
    let places = [PathBuf::from("cargo-deny"), own_cargo_deny()];
    places.into_iter().find(|place| succeeds(Command::new(place).arg("--version")))
}

fn own_cargo_deny() -> PathBuf {
    Path::new(TOOLS).join("bin/cargo-deny")
}
