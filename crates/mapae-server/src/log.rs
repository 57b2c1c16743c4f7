//! Log lines on stderr: JSON for programs, short lines for people.
//!
//! What is logged is chosen where it is logged, and never is a file's name, a job's params, a key or a
//! document's content. A panic is told by its place alone: its message may hold any of those.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Level, Log, LogFormat};

/// Call once, first thing after the configuration is known.
pub(crate) fn start(log: &Log) {
    let level = match log.level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    // Libraries quote statements and addresses when they are asked for much: only ours may speak up.
    let filter = EnvFilter::new(format!("off,mapae={level},mapae_server={level},mapae_document={level}"));
    let terminal = std::io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !terminal,
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Both fail only where somebody has set one already, as a test may have.
    if json {
        let _ = lines.json().flatten_event(true).with_current_span(false).try_init();
    } else {
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
        let _ = lines.with_ansi(colour).with_target(false).try_init();
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(%place, "a panic");
    }));
}
