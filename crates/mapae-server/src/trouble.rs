//! What a command says when it cannot do what it was asked: a code, a sentence, what to do next, and the
//! exit code that scripts go by.

use std::fmt::Write;

use mapae::blob::BlobError;
use mapae::store::contract::StoreError;

use crate::config::ConfigError;
use crate::runtime::{OpenError, WorkerError};

/// Exit codes. 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The output was no longer wanted: a closed pipe is no error.
    Unwanted = 0,
    /// The job failed.
    Failed = 1,
    Usage = 2,
    Partly = 3,
    NotFound = 4,
    Conflict = 5,
    Unavailable = 69,
    TryAgain = 75,
    NotPermitted = 77,
    TimedOut = 124,
}

#[derive(Debug, thiserror::Error)]
#[error("{sentence} ({code})")]
pub struct Trouble {
    pub exit: Exit,
    pub code: String,
    pub sentence: String,
    pub help: String,
}

impl Trouble {
    pub fn new(
        exit: Exit,
        code: impl Into<String>,
        sentence: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { exit, code: code.into(), sentence: sentence.into(), help: help.into() }
    }

    pub fn usage(code: &str, sentence: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, sentence, help)
    }

    /// As it is written to stderr.
    pub fn tell(&self) -> String {
        let mut text = String::new();
        for line in self.sentence.lines() {
            let _ = writeln!(text, "error: {line}");
        }
        let _ = writeln!(text, "code: {}", self.code);
        let _ = writeln!(text, "help: {}", self.help);
        text
    }
}

impl From<Vec<ConfigError>> for Trouble {
    fn from(errors: Vec<ConfigError>) -> Self {
        let sentences: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let help = "correct the above; `mapae config explain KEY` says what a key may be";
        Self::usage("config-invalid", sentences.join("\n"), help)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        let (exit, help) = match &error {
            StoreError::Unavailable(_) => {
                (Exit::Unavailable, "start the database, or correct database.url; `mapae doctor` checks it")
            }
            StoreError::Locked(_) => (Exit::TryAgain, "try again; end transactions that were left open"),
            StoreError::Full(_) => (Exit::Unavailable, "free space, or make the database writable"),
            StoreError::NewerSchema(_) => {
                (Exit::Unavailable, "use the newer mapae that wrote it; nothing was changed")
            }
            StoreError::OlderSchema(_) => (Exit::Unavailable, "run `mapae migrate`"),
            StoreError::Broken(_) => (Exit::Unavailable, "run `mapae doctor`, and report it"),
            StoreError::Address(_) => (Exit::Usage, "correct database.url"),
        };
        let mut sentence = error.to_string();
        sentence[..1].make_ascii_uppercase();
        Self::new(exit, error.code(), format!("{sentence}."), help)
    }
}

impl From<BlobError> for Trouble {
    fn from(error: BlobError) -> Self {
        let exit = if matches!(error, BlobError::Address(_)) { Exit::Usage } else { Exit::Unavailable };
        Self::new(exit, error.code(), format!("{error}"), error.help())
    }
}

impl From<OpenError> for Trouble {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => error.into(),
            OpenError::Blobs(error) => error.into(),
            OpenError::Broker(error) => {
                Self::new(Exit::Unavailable, "broker", error.to_string(), "correct broker.url")
            }
        }
    }
}

impl From<WorkerError> for Trouble {
    fn from(error: WorkerError) -> Self {
        let help = "correct the configuration of the worker; `mapae config explain worker.name`";
        Self::new(Exit::Usage, "worker-start", error.to_string(), help)
    }
}

impl From<std::io::Error> for Trouble {
    /// For what a command itself reads and writes: files it was named, and its own output.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::new(Exit::Unwanted, "", "", ""),
            std::io::ErrorKind::NotFound => {
                let sentence = "A file or folder that was named is not there.";
                Self::new(Exit::NotFound, "file-not-found", sentence, "check the path")
            }
            std::io::ErrorKind::PermissionDenied => {
                let sentence = "A file or folder may not be read or written.";
                Self::new(
                    Exit::NotPermitted,
                    "file-not-permitted",
                    sentence,
                    "check whose it is, and its permissions",
                )
            }
            kind => Self::new(Exit::Unavailable, "io", format!("{kind}."), "check the file or folder"),
        }
    }
}
