//! `POST /hooks/…`: a service tells the end of its work in words of its own. The job is found by the business
//! key that the worker wrote before it called; what ends it is the job's own token, as ever.
//!
//! Believed is whatever is signed with the handler's secret (Standard Webhooks), or comes under a key with
//! `jobs:work`, which then ends its owner's jobs only.

use std::time::SystemTime;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use mapae::job::name::{BusinessKey, Kind};
use mapae::remote::{self, End};
use mapae::store::contract::Scope;
use serde::Serialize;
use serde_json::Value;

use super::Api;
use super::auth::{Caller, JobsWork};
use super::extract::{parse, read_body};
use super::leases::report::refused;
use super::problem::{self, Problem};
use crate::config::{Handler, Hook};
use crate::probe::end;

/// The largest body that is believed: it becomes the job's result.
const BODY_BYTES_MAX: usize = 1 << 20;

/// How many running jobs of one key are looked through for one within the caller's scope.
const AWAITED_MAX: usize = 100;

#[derive(Serialize)]
pub(super) struct Heard {
    /// The job that has ended by it, if one has.
    job: Option<String>,
    state: Option<&'static str>,
}

/// Answers once what was told is kept. Told twice, the second finds no job that waits.
pub(super) async fn hear(State(api): State<Api>, request: Request) -> Result<axum::Json<Heard>, Problem> {
    let runtime = api.runtime()?;
    let (mut parts, body) = request.into_parts();
    let found = api.config.handlers.iter().find_map(|(kind, handler)| {
        let hook = handler.complete.callback.as_ref()?;
        (hook.path == parts.uri.path()).then_some((kind, handler, hook))
    });
    let Some((kind, handler, hook)) = found else { return Err((&problem::ROUTE_NOT_FOUND).into()) };
    let keyed = match parts.headers.contains_key(header::AUTHORIZATION) {
        true => Some(Caller::<JobsWork>::from_request_parts(&mut parts, &api).await?.scope()),
        false => None,
    };
    let signed = parts.headers.contains_key("webhook-signature") && handler.secrets.is_some();
    if keyed.is_none() && !signed {
        return Err((&problem::UNAUTHENTICATED).into());
    }
    let headers = parts.headers.clone();
    let request = Request::from_parts(parts, body);
    let bytes = read_body(request, BODY_BYTES_MAX, api.config.http.timeout).await?;
    let scope = match keyed {
        Some(scope) => scope,
        None if proved(handler, &headers, &bytes) => Scope::All,
        None => return Err((&problem::UNAUTHENTICATED).into()),
    };
    let body: Value = parse(&bytes)?;
    let Some((key, end)) = read(hook, body)? else { return Ok(axum::Json(Heard { job: None, state: None })) };
    settle(&runtime.parts(), kind, &key, &scope, end).await.map(axum::Json)
}

fn proved(handler: &Handler, headers: &HeaderMap, body: &Bytes) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(id), Some(at)) = (header("webhook-id"), header("webhook-timestamp")) else { return false };
    let (Some(signatures), Some(secrets)) = (header("webhook-signature"), &handler.secrets) else {
        return false;
    };
    let Ok(at) = at.parse() else { return false };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    secrets.prove(id, at, signatures, body, i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// What the body tells; `None` where the status is not one that ends the job.
fn read(hook: &Hook, body: Value) -> Result<Option<(BusinessKey, End)>, Problem> {
    let bad = |detail: &str| Problem::from(&problem::BODY_INVALID).detail(detail);
    let key = hook.key.read(&body).and_then(|key| BusinessKey::new(key).ok());
    let key = key.ok_or_else(|| bad("The body has no key where the handler's `callback.key` says."))?;
    if hook.status.read(&body).is_none() {
        return Err(bad("The body has no status where the handler's `callback.status` says."));
    }
    Ok(end(&hook.status, &hook.done, &hook.failed, body).map(|end| (key, end)))
}

/// Ends the job of that key that has run longest.
async fn settle(
    parts: &mapae::worker::Parts,
    kind: &Kind,
    key: &BusinessKey,
    scope: &Scope,
    end: End,
) -> Result<Heard, Problem> {
    for awaited in parts.store.awaited(kind, Some(key), false, AWAITED_MAX).await? {
        let Some(job) = parts.store.job(scope, awaited.job).await? else { continue };
        match remote::settle(parts, &job, awaited.token, end.clone()).await {
            Ok(state) => {
                return Ok(Heard { job: Some(job.id.to_string()), state: Some(state.as_str()) });
            }
            // Another was quicker to end that one.
            Err(remote::RemoteError::LeaseLost(_)) => {}
            Err(error) => return Err(refused(true, error)),
        }
    }
    let detail = "No running job waits for this key: it has ended, was given up, or never was.";
    Err(Problem::from(&problem::LEASE_LOST).detail(detail))
}
