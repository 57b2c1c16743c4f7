//! What the holder of a lease tells of its job.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header;
use axum::http::request::Parts;
use mapae::job::State as JobState;
use mapae::job::lease::Token;
use mapae::job::name::{JobId, StageName};
use mapae::job::record::{Job, Progress};
use mapae::job::retry::Failure;
use mapae::remote::{self, End, RemoteError};
use mapae::store::contract::{Beat, Scope};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

use crate::api::Api;
use crate::api::auth::{Caller, Identity, JobsWork};
use crate::api::extract::{Id, read_json};
use crate::api::problem::{self, Problem, ProblemBody};
use crate::runtime::Runtime;

use super::{Span, bad, length};

/// The largest body of a report, in bytes: results travel in it.
pub(in crate::api) const REPORT_BYTES_MAX: usize = 16 << 20;

/// The same for whoever has a token that is worth nothing any more.
pub(in crate::api) const IDLE_BYTES_MAX: usize = 64 << 10;

/// Who tells something of a job: a key with its scope, or whoever has the token.
pub(in crate::api) struct Reporter {
    runtime: Arc<Runtime>,
    /// `None`: by the token alone.
    scope: Option<Scope>,
    /// From the query or the header.
    token: Option<Token>,
}

impl FromRequestParts<Api> for Reporter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let token = token_of(parts);
        let keyed =
            parts.headers.contains_key(header::AUTHORIZATION) || parts.extensions.get::<Identity>().is_some();
        if token.is_some() && !keyed {
            return Ok(Self { runtime: api.runtime()?, scope: None, token });
        }
        let caller = Caller::<JobsWork>::from_request_parts(parts, api).await?;
        Ok(Self { scope: Some(caller.scope()), runtime: caller.runtime, token })
    }
}

fn token_of(parts: &Parts) -> Option<Token> {
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let in_query = query.into_iter().find(|(name, _)| name == "token").map(|(_, token)| token.into_owned());
    let in_header = parts.headers.get("mapae-token").and_then(|value| value.to_str().ok());
    read_token(in_query.as_deref().or(in_header)?)
}

pub(super) fn read_token(text: &str) -> Option<Token> {
    text.trim().parse().ok().map(Token)
}

/// What a holder tells. Which fields count depends on the call.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseReport)]
pub(in crate::api) struct Report {
    /// The lease's, where it is not in the query or the header `Mapae-Token`.
    pub(super) token: Option<String>,
    /// `heartbeat`: how long the lease lasts from now.
    pub(super) lease: Option<Span>,
    /// `progress`, `checkpoint`: the stage's name.
    stage: Option<String>,
    /// `progress`: how far, of how much.
    done: Option<u64>,
    of: Option<u64>,
    /// `checkpoint`: what the stage gave, and how long it took.
    #[schema(value_type = Option<Object>)]
    output: Option<Value>,
    seconds: Option<f64>,
    /// `complete`: what the job gave.
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
    /// `fail`: a stable code of a-z, 0-9, '.', '_' and '-', and one sentence without content.
    code: Option<String>,
    message: Option<String>,
    /// `fail`: `retryable` (where it is not given), `terminal` or `stale`.
    class: Option<String>,
    /// `fail`: when to try again; no attempt is used.
    retry_after: Option<Span>,
}

/// Where the job stands now.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct LeaseState {
    pub(super) state: &'static str,
    /// Its owner wants it stopped: end it soon, however.
    pub(super) cancel_requested: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::api) enum Verb {
    Heartbeat,
    Progress,
    Checkpoint,
    Complete,
    Fail,
    Release,
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident $verb:ident $path:literal;)*) => {
        $($(#[$doc])*
        #[utoipa::path(
            post, path = $path, tag = "leases", request_body = Report,
            params(
                ("id" = String, Path),
                ("token" = Option<String>, Query, description = "Instead of a key."),
                ("Mapae-Token" = Option<String>, Header, description = "Instead of a key."),
            ),
            security(("key" = ["jobs:work"]), ()),
            responses(
                (status = 200, body = LeaseState),
                (status = 409, description = "`lease-lost`: the token is not the job's any more. Nothing has changed.", body = ProblemBody),
                (status = "default", body = ProblemBody),
            ),
        )]
        pub(in crate::api) async fn $name(
            State(api): State<Api>,
            reporter: Reporter,
            Id(id): Id,
            request: Request,
        ) -> Result<axum::Json<LeaseState>, Problem> {
            report(&api, reporter, id, Verb::$verb, request).await
        })*
    };
}

verbs! {
    /// The client still works on it. A lease that a service holds is not extended.
    heartbeat Heartbeat "/v1/leases/{id}/heartbeat";
    /// How far it has come.
    progress Progress "/v1/leases/{id}/progress";
    /// A stage is done; later attempts are given its output.
    checkpoint Checkpoint "/v1/leases/{id}/checkpoint";
    /// It is done. Told twice, the first answer stands.
    complete Complete "/v1/leases/{id}/complete";
    /// It went wrong.
    fail Fail "/v1/leases/{id}/fail";
    /// It goes back, no attempt used.
    release Release "/v1/leases/{id}/release";
}

async fn report(
    api: &Api,
    reporter: Reporter,
    id: JobId,
    verb: Verb,
    request: Request,
) -> Result<axum::Json<LeaseState>, Problem> {
    let parts = reporter.runtime.parts();
    // Nobody fills the memory or the file store by a token that is none.
    let held = match (&reporter.scope, reporter.token) {
        (None, Some(token)) => beat(&parts, id, token, Duration::ZERO).await?.is_some(),
        _ => true,
    };
    let max = if held { REPORT_BYTES_MAX } else { IDLE_BYTES_MAX };
    let report: Report = read_json(api, request, max).await?.unwrap_or_default();
    let token = match &report.token {
        Some(text) => Some(read_token(text).ok_or_else(|| bad("`token` is none.".to_owned()))?),
        None => reporter.token,
    };
    let token = token.ok_or_else(|| bad("`token` is missing: the lease's, as it was given.".to_owned()))?;
    act(api, &parts, reporter.scope.as_ref(), id, token, verb, report).await.map(axum::Json)
}

/// Does what the report says, under its token.
pub(super) async fn act(
    api: &Api,
    parts: &mapae::worker::Parts,
    scope: Option<&Scope>,
    id: JobId,
    token: Token,
    verb: Verb,
    report: Report,
) -> Result<LeaseState, Problem> {
    let lost = |error| refused(scope.is_some(), error);
    if verb == Verb::Heartbeat {
        let length = length(api, report.lease.as_ref())?;
        let Some(job) = job_of(parts, scope, id).await? else {
            return Err(lost(RemoteError::LeaseLost(None)));
        };
        let Some(cancel_requested) = beat(parts, id, token, length).await? else {
            return Err(lost(RemoteError::LeaseLost(Some(job.state))));
        };
        return Ok(LeaseState { state: JobState::Running.as_str(), cancel_requested });
    }
    let Some(job) = job_of(parts, scope, id).await? else { return Err(lost(RemoteError::LeaseLost(None))) };
    let end = match verb {
        Verb::Heartbeat => unreachable!("answered above"),
        Verb::Progress => {
            let stage = report.stage.unwrap_or_default();
            if !stage.is_empty() {
                StageName::new(stage.as_str()).map_err(|error| bad(format!("`stage`: {error}.")))?;
            }
            let to =
                Progress { stage, done: report.done.unwrap_or_default(), of: report.of.unwrap_or_default() };
            remote::progress(parts, id, token, &to).await.map_err(lost)?;
            return Ok(LeaseState { state: JobState::Running.as_str(), cancel_requested: job.cancel_asked });
        }
        Verb::Checkpoint => {
            let stage = report.stage.ok_or_else(|| bad("`stage` is missing.".to_owned()))?;
            let stage = StageName::new(stage).map_err(|error| bad(format!("`stage`: {error}.")))?;
            let took = Duration::try_from_secs_f64(report.seconds.unwrap_or_default())
                .map_err(|_| bad("`seconds` is a time.".to_owned()))?;
            let output = report.output.unwrap_or_default();
            remote::checkpoint(parts, &job, token, stage.as_str(), output, took).await.map_err(lost)?;
            return Ok(LeaseState { state: JobState::Running.as_str(), cancel_requested: job.cancel_asked });
        }
        Verb::Complete => End::Complete(report.result),
        Verb::Fail => End::Fail(report.failure()?),
        Verb::Release => End::Release,
    };
    let state = remote::settle(parts, &job, token, end).await.map_err(lost)?;
    Ok(LeaseState { state: state.as_str(), cancel_requested: job.cancel_asked })
}

/// The job, where the caller may know of it. To whoever has only a token there is no telling whether it is.
async fn job_of(
    parts: &mapae::worker::Parts,
    scope: Option<&Scope>,
    id: JobId,
) -> Result<Option<Job>, Problem> {
    match (scope, parts.store.job(scope.unwrap_or(&Scope::All), id).await?) {
        (Some(_), None) => Err((&problem::JOB_NOT_FOUND).into()),
        (_, found) => Ok(found),
    }
}

/// Renews the lease; whether its job should stop, or `None` where the lease is lost.
async fn beat(
    parts: &mapae::worker::Parts,
    id: JobId,
    token: Token,
    length: Duration,
) -> Result<Option<bool>, Problem> {
    let beats = parts.store.renew(&[(id, token)], length).await?;
    Ok(match beats.first() {
        Some(Beat::Renewed { cancel_asked }) => Some(*cancel_asked),
        // Nothing was renewed and nothing is lost: the lease stands as it is.
        Some(Beat::Busy) => Some(false),
        Some(Beat::Lost) | None => None,
    })
}

impl Report {
    fn failure(&self) -> Result<Failure, Problem> {
        let code = self.code.as_deref().unwrap_or("remote-failed");
        StageName::new(code)
            .map_err(|_| bad("`code` is 1 to 64 of a-z, 0-9, '.', '_' and '-'.".to_owned()))?;
        let message = self.message.as_deref().unwrap_or("Whoever did the work told that it failed.");
        match (self.class.as_deref().unwrap_or("retryable"), &self.retry_after) {
            ("retryable", Some(after)) => Ok(Failure::retry_after(after.read("retry_after")?, code, message)),
            ("retryable", None) => Ok(Failure::retryable(code, message)),
            ("terminal", None) => Ok(Failure::terminal(code, message)),
            ("stale", None) => Ok(Failure::stale(code, message)),
            ("terminal" | "stale", Some(_)) => {
                Err(bad("`retry_after` is for a failure that is retryable.".to_owned()))
            }
            _ => Err(bad("`class` is `retryable`, `terminal` or `stale`.".to_owned())),
        }
    }
}

/// Where the job stands is told to keys only.
pub(in crate::api) fn refused(keyed: bool, error: RemoteError) -> Problem {
    match error {
        RemoteError::LeaseLost(Some(state)) if keyed => {
            Problem::from(&problem::LEASE_LOST).detail(format!("The job is {}.", state.as_str()))
        }
        RemoteError::LeaseLost(_) => (&problem::LEASE_LOST).into(),
        RemoteError::Files => (&problem::FILES_UNAVAILABLE).into(),
        RemoteError::Store(error) => error.into(),
    }
}
