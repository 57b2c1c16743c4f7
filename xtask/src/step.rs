//! Steps with a heading and a time, and the one kind of failure: what is wrong, and what to do.

use std::ffi::OsStr;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub(crate) type Outcome<T> = Result<T, Failure>;

/// Between the tries of [`persist`]: little of the time that a run may take, more than a passing trouble lasts.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(10), Duration::from_secs(20), Duration::from_secs(40)];

/// Why a command ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: String,
    pub(crate) help: String,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: what.into(), help: help.into() }
    }
}

/// Prints a heading, does the work, prints how long it took.
pub(crate) fn step<T>(title: &str, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    eprintln!("\n== {title}");
    let begun = Instant::now();
    let result = work()?;
    eprintln!("   {title}: {:.1} s", begun.elapsed().as_secs_f64());
    Ok(result)
}

/// Runs a command, showing it and its output.
///
/// `help` is for the reader when it fails.
pub(crate) fn run(command: &mut Command, help: &str) -> Outcome<()> {
    eprintln!("   {}", line(command));
    let status = status(command)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("`{}` failed ({status})", line(command)), help))
}

/// As [`run`], and again after a pause where it fails: for what a network, or a lock of somebody else's, may fail.
pub(crate) fn persist(command: &mut Command, help: &str) -> Outcome<()> {
    persist_over(&PAUSES, command, help)
}

fn persist_over(pauses: &[Duration], command: &mut Command, help: &str) -> Outcome<()> {
    for pause in pauses {
        match run(command, help) {
            Ok(()) => return Ok(()),
            Err(failure) => eprintln!("   {}; once more in {} s", failure.what, pause.as_secs()),
        }
        std::thread::sleep(*pause);
    }
    run(command, help)
}

/// Runs a command without a word and returns how it ended.
pub(crate) fn status(command: &mut Command) -> Outcome<ExitStatus> {
    command.status().map_err(|error| cannot_start(command, &error))
}

/// Passes the end of a command on as our own.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Whether a command can be started and succeeds, its output unseen.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

pub(crate) fn cargo(args: &[&str]) -> Command {
    // Cargo tells the programs it runs which cargo that is.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

pub(crate) fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    let program = command.get_program().to_string_lossy().into_owned();
    Failure::new(format!("cannot start `{program}`: {error}"), "is it installed and in PATH?")
}

fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words: Vec<_> =
        std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_for_a_while_is_tried_again_and_not_for_ever() {
        let file = std::env::temp_dir().join(format!("mapae-xtask-{}", std::process::id()));
        // Succeeds the third time.
        let mut third = Command::new("sh");
        third.args(["-c", "echo x >> \"$0\"; test $(wc -l < \"$0\") -ge 3"]).arg(&file);
        let gave_up = persist_over(&[Duration::ZERO], &mut third, "");
        assert!(gave_up.is_err_and(|failure| failure.what.contains("failed")));
        assert!(persist_over(&[Duration::ZERO], &mut third, "").is_ok());
        std::fs::remove_file(&file).unwrap();
    }
}
