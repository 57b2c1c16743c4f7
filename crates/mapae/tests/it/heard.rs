//! What sqlx tells while tests run: the statements, and what a server says beside its answers.
//!
//! A process has one listener, so a test that wants to hear, and to hear nothing of others, has a process of its own
//! ([`crate::child`]).

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

#[derive(Default)]
struct Heard {
    statements: HashSet<String>,
    notices: Vec<String>,
}

static HEARD: OnceLock<Mutex<Heard>> = OnceLock::new();

fn heard() -> std::sync::MutexGuard<'static, Heard> {
    HEARD.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on it is heard. Once in a process.
pub(crate) fn listen() {
    tracing::subscriber::set_global_default(Listener).unwrap();
}

/// Every statement of this process so far, once.
pub(crate) fn statements() -> HashSet<String> {
    heard().statements.clone()
}

/// Every notice of a PostgreSQL server so far.
pub(crate) fn notices() -> Vec<String> {
    heard().notices.clone()
}

struct Listener;

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        ["sqlx::query", "sqlx::postgres::notice"].contains(&metadata.target())
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Event { notice: event.metadata().target() == "sqlx::postgres::notice" });
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

struct Event {
    notice: bool,
}

impl tracing::field::Visit for Event {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        match field.name() {
            "db.statement" => {
                heard().statements.insert(value.trim().to_owned());
            }
            "message" if self.notice => heard().notices.push(value.to_owned()),
            _ => {}
        }
    }
    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
}
