//! Whether this process is alive, has started, and is ready for more.
//!
//! Alive says only that it can still answer: a database that is down must not get the process killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use mapae::worker::IDLE_WAIT;
use mapae::worker::readiness::Readiness;
use mapae_document::child::sandbox::Protection;
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use super::Api;
use super::problem::{self, Problem, ProblemBody};

/// How long the database may take to answer a probe.
const PATIENCE: Duration = Duration::from_secs(2);

/// What readiness is made of.
#[derive(Default)]
pub struct Health {
    trouble: Mutex<Option<&'static str>>,
    /// This process is to have a worker.
    works: AtomicBool,
    worker: OnceLock<Watched>,
    /// What holds where this process's worker reads documents.
    sandbox: OnceLock<Protection>,
}

/// The worker of this process, where it has one.
pub struct Watched {
    pub readiness: watch::Receiver<Readiness>,
    /// How long the database may be silent.
    pub lease: Duration,
}

impl Health {
    /// Why the runtime could not be opened at the last attempt.
    pub fn trouble(&self, code: &'static str) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
    }

    /// This process is not ready before its worker is.
    pub fn expect_worker(&self) {
        self.works.store(true, Ordering::Relaxed);
    }

    pub fn watch(&self, worker: Watched) {
        let _ = self.worker.set(worker);
    }

    /// Why the worker is not ready; `None` where it is, or where there is none.
    pub fn worker_unready(&self) -> Option<&'static str> {
        let Some(worker) = self.worker.get() else {
            return self.works.load(Ordering::Relaxed).then_some("it has not joined yet");
        };
        let readiness = *worker.readiness.borrow();
        readiness.unready(Instant::now(), IDLE_WAIT, worker.lease)
    }

    /// What holds in the processes that read documents, where this one has any.
    pub fn reads_documents_under(&self, protection: Protection) {
        let _ = self.sandbox.set(protection);
    }

    pub fn sandbox(&self) -> Option<Protection> {
        self.sandbox.get().copied()
    }

    pub fn has_worker(&self) -> bool {
        self.works.load(Ordering::Relaxed) || self.worker.get().is_some()
    }
}

/// One thing that readiness asks for.
#[derive(Serialize, ToSchema)]
pub(super) struct Check {
    name: &'static str,
    ok: bool,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// What is less than it could be. It keeps nothing from being ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Checks {
    status: &'static str,
    checks: Vec<Check>,
}

fn check(name: &'static str, why: Option<String>) -> Check {
    Check { name, ok: why.is_none(), why, degraded: None }
}

/// A document is read with what protection there is: less of it is no reason to read none.
fn sandbox(protection: Protection) -> Check {
    let missing = protection.missing();
    let degraded =
        (!missing.is_empty()).then(|| format!("documents are read without {}", missing.join(", ")));
    Check { degraded, ..check("document-sandbox", None) }
}

async fn checks(api: &Api) -> Vec<Check> {
    let stopping = api.stop.is_cancelled().then(|| "the process is stopping".to_owned());
    let mut checks = vec![check("running", stopping)];
    let database = match api.runtime.get() {
        None => {
            let trouble = *api.health.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            Some(trouble.unwrap_or("not connected yet").to_owned())
        }
        Some(runtime) => match tokio::time::timeout(PATIENCE, runtime.store.now()).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.code().to_owned()),
            Err(_) => Some("no answer within 2 s".to_owned()),
        },
    };
    checks.push(check("database", database));
    if api.health.has_worker() {
        checks.push(check("worker", api.health.worker_unready().map(str::to_owned)));
    }
    checks.extend(api.health.sandbox().map(sandbox));
    checks
}

/// The process can still answer.
#[utoipa::path(get, path = "/livez", tag = "runtime", responses((status = 200, content_type = "text/plain")))]
pub(super) async fn livez(uri: Uri) -> Response {
    answer(&uri, "alive", vec![check("running", None)])
}

/// The process has reached its database once.
#[utoipa::path(
    get, path = "/startupz", tag = "runtime",
    params(("verbose" = Option<String>, Query, description = "Names what is checked.")),
    responses((status = 200, content_type = "text/plain"), (status = 503, body = ProblemBody)),
)]
pub(super) async fn startupz(State(api): State<Api>, uri: Uri) -> Response {
    let trouble = api.runtime.get().is_none().then(|| {
        let trouble = *api.health.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.unwrap_or("not connected yet").to_owned()
    });
    answer(&uri, "started", vec![check("database", trouble)])
}

/// The process can take more work.
#[utoipa::path(
    get, path = "/readyz", tag = "runtime",
    params(("verbose" = Option<String>, Query, description = "Names what is checked.")),
    responses((status = 200, content_type = "text/plain"), (status = 503, body = ProblemBody)),
)]
pub(super) async fn readyz(State(api): State<Api>, uri: Uri) -> Response {
    answer(&uri, "ready", checks(&api).await)
}

fn answer(uri: &Uri, status: &'static str, checks: Vec<Check>) -> Response {
    let verbose = uri.query().is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    let failing: Vec<String> =
        checks.iter().filter_map(|check| Some(format!("{}: {}", check.name, check.why.as_ref()?))).collect();
    if !failing.is_empty() {
        let problem = Problem::from(&problem::NOT_READY).retry_after(1);
        let problem = if verbose { problem.detail(failing.join("; ")) } else { problem };
        return problem.into_response();
    }
    if verbose { axum::Json(Checks { status, checks }).into_response() } else { status.into_response() }
}
