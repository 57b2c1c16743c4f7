//! Kinds whose services are left alone, as all workers have told each other through the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{IDLE_WAIT, Worker};
use crate::job::name::Kind;

/// Until when each kind rests, by this process's clock.
#[derive(Default)]
pub(super) struct Rests(Mutex<HashMap<Kind, Instant>>);

impl Rests {
    pub(super) fn has(&self, kind: &Kind) -> bool {
        let rests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rests.get(kind).is_some_and(|until| *until > Instant::now())
    }
}

/// Looks until the worker drains. Without an answer what was known goes on: that is bounded by its own time.
pub(super) async fn watch(worker: Arc<Worker>) {
    if !worker.handlers.iter().any(|registered| registered.task.calls_a_service()) {
        return;
    }
    while !worker.drain.is_cancelled() {
        if let Ok(resting) = worker.parts.store.rests().await {
            let now = Instant::now();
            let rests = resting.into_iter().map(|rest| (rest.kind, now + rest.left)).collect();
            *worker.rests.0.lock().unwrap_or_else(PoisonError::into_inner) = rests;
        }
        let _ = worker.drain.run_until_cancelled(tokio::time::sleep(IDLE_WAIT)).await;
    }
}
