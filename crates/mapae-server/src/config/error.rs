//! What can be wrong with a configuration. Each says the key, what was found and what is possible, and
//! none repeats the value of a secret.

use std::path::{Path, PathBuf};

use mapae::job::lease::UnsafeTiming;

use super::layer::Origin;

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration file {} cannot be read: {why}", .path.display())]
    Unreadable { path: PathBuf, why: std::io::ErrorKind },

    #[error("{}, line {line}, column {column}: {message}", .path.display())]
    Syntax { path: PathBuf, line: usize, column: usize, message: String },

    #[error("{key} ({origin}) is no key of the configuration{}", suggestion(.nearest))]
    Unknown { key: String, origin: Origin, nearest: Option<String> },

    #[error("{key} ({origin}) is not in this version: remove it")]
    Later { key: String, origin: Origin },

    #[error("{key} ({origin}) is {found}; possible is {possible}")]
    Bad { key: String, origin: Origin, found: String, possible: String },

    #[error("the file of {key} ({origin}) cannot be read: {why}")]
    SecretFile { key: String, origin: Origin, why: std::io::ErrorKind },

    #[error(
        "events.to names one place twice: what tells two addresses apart must be more than a user, a password or a query; give each a table [receiver.NAME]"
    )]
    SamePlace,

    #[error("receiver.{name:?} has the name of an address in events.to; give it another")]
    SameName { name: String },

    #[error("{0}")]
    Timing(#[from] UnsafeTiming),

    #[error("schedule.{name:?}: {why}")]
    Schedule { name: String, why: String },

    #[error("kind.{kind:?}.on: {why}")]
    Follows { kind: String, why: String },

    #[error("kind.{kind:?}.needs asks for {needs} of {resource}, but resource.{resource} is {all}")]
    NeverEnough { kind: String, resource: String, needs: u64, all: u64 },
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |nearest| format!("; did you mean {nearest}?"))
}

impl ConfigError {
    /// The parser's own rendering quotes the line, which may hold a password: only its place and its
    /// message are kept.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let before = text.get(..at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self::Syntax { path: path.to_owned(), line, column, message: error.message().to_owned() }
    }
}
