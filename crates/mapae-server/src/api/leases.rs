//! Work that others do: leasing over HTTP, and what holders of leases tell of their jobs.
//!
//! A lease's token is a right of its own: whoever has it may end this one attempt and nothing else. A
//! service is given it within an address (`Mapae-Callback`), so the token may stand in the query or in the
//! header `Mapae-Token`, and then no key is needed. A client that pulls has a key with `jobs:work` and sends
//! its tokens in bodies.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header;
use axum::http::request::Parts;
use futures_util::future::join_all;
use mapae::job::State as JobState;
use mapae::job::lease::Token;
use mapae::job::name::{ClientName, JobId, Kind, StageName};
use mapae::job::record::{Job, Progress};
use mapae::job::retry::Failure;
use mapae::remote::{self, End, Pull, RemoteError};
use mapae::store::contract::{Beat, Holding, Puller, Scope};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Identity, JobsWork};
use super::extract::{Id, Json, read_json};
use super::model::SourceBody;
use super::problem::{self, Problem, ProblemBody};
use crate::config::parse_duration;
use crate::runtime::Runtime;

/// Most jobs leased by one call, and most kinds asked for.
const LEASES_MAX: u32 = 100;
const KINDS_MAX: usize = 100;

/// How long a client's lease may last without a heartbeat.
const LEASE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);

/// The largest body of a report, in bytes: results travel in it.
const REPORT_BYTES_MAX: usize = 16 << 20;

/// The same for whoever has a token that is worth nothing any more.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// Most reports in one batch.
const BATCH_MAX: usize = 1_000;

/// A time: seconds, or text such as `30s`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Span {
    Seconds(u32),
    Text(String),
}

impl Span {
    fn read(&self, field: &str) -> Result<Duration, Problem> {
        match self {
            Self::Seconds(seconds) => Some(Duration::from_secs((*seconds).into())),
            Self::Text(text) => parse_duration(text),
        }
        .ok_or_else(|| bad(format!("`{field}` is a number of seconds, or a time such as \"30s\".")))
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseRequest {
    /// What the client calls itself: 1 to 64 letters, digits, '.', '_' and '-'.
    #[schema(example = "embedder-1")]
    worker: String,
    kinds: Vec<String>,
    /// Most jobs, 1 to 100; 1 where it is not given.
    max: Option<u32>,
    /// How long to wait where there is nothing yet; at most `http.wait` of the server, not at all where it
    /// is not given.
    wait: Option<Span>,
    /// How long the leases last without a heartbeat; `worker.lease` of the server where it is not given.
    lease: Option<Span>,
}

/// Jobs to do, none where there was nothing in time.
#[derive(Serialize, ToSchema)]
pub(super) struct LeaseList {
    jobs: Vec<LeasedJob>,
}

/// A job and the right to do it.
#[derive(Serialize, ToSchema)]
pub(super) struct LeasedJob {
    id: String,
    owner: String,
    kind: String,
    attempt: u32,
    max_attempts: u32,
    #[schema(value_type = Object)]
    params: Value,
    source: Option<SourceBody>,
    /// After this the job fails instead of starting again.
    deadline: Option<String>,
    /// For every later call about this job.
    token: String,
    /// When the lease ends unless it is renewed.
    leased_until: String,
    lease_seconds: f64,
    /// How often to send a heartbeat.
    heartbeat_seconds: f64,
    /// For calls to the outside: the same in every attempt.
    idempotency_key: String,
    traceparent: Option<String>,
    /// What stages of earlier attempts gave, by their names.
    #[schema(value_type = Object)]
    checkpoints: Map<String, Value>,
}

/// Leases jobs. Long-polls where there are none.
#[utoipa::path(
    post, path = "/v1/leases", tag = "leases", request_body = LeaseRequest, security(("key" = ["jobs:work"])),
    responses((status = 200, body = LeaseList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn lease(
    State(api): State<Api>,
    caller: Caller<JobsWork>,
    Json(request): Json<LeaseRequest>,
) -> Result<axum::Json<LeaseList>, Problem> {
    let pull = request.read(&api, &caller.identity)?;
    let (length, runtime) = (pull.lease, caller.runtime.clone());
    // Cancelled when the client goes away or the server stops: no wait goes on, and a claim under way is
    // brought to its end, for what it gives has to be given back.
    let gone = api.stop.child_token();
    let _client = gone.clone().drop_guard();
    let (answer, pulled) = oneshot::channel();
    let wake = api.feed.follow();
    tokio::spawn(async move {
        let held = remote::pull(&runtime.parts(), &pull, wake, &gone).await;
        if let Err(Ok(unheard)) = answer.send(held) {
            give_back(&runtime, unheard).await;
        }
    });
    let held = pulled.await.map_err(|_| Problem::from(&problem::INTERNAL))??;
    let parts = caller.runtime.parts();
    let jobs = join_all(held.into_iter().map(|holding| leased(&parts, holding, length))).await;
    Ok(axum::Json(LeaseList { jobs }))
}

async fn give_back(runtime: &Runtime, held: Vec<Holding>) {
    let parts = runtime.parts();
    for holding in held {
        let _ = remote::settle(&parts, &holding.job, holding.lease.token, End::Release).await;
    }
}

impl LeaseRequest {
    fn read(self, api: &Api, identity: &Identity) -> Result<Pull, Problem> {
        let name = ClientName::new(self.worker).map_err(|error| bad(format!("`worker`: {error}.")))?;
        if !(1..=KINDS_MAX).contains(&self.kinds.len()) {
            return Err(bad(format!("`kinds` names 1 to {KINDS_MAX} kinds.")));
        }
        let kinds = self.kinds.into_iter().map(Kind::new).collect::<Result<Vec<_>, _>>();
        let kinds = kinds.map_err(|error| bad(format!("`kinds`: {error}.")))?;
        let max = self.max.unwrap_or(1);
        if !(1..=LEASES_MAX).contains(&max) {
            return Err(bad(format!("`max` is 1 to {LEASES_MAX}.")));
        }
        let wait = self.wait.map_or(Ok(Duration::ZERO), |wait| wait.read("wait"))?;
        Ok(Pull {
            client: Puller { name, owner: identity.owner.clone(), kinds, max },
            scope: identity.scope(),
            lease: length(api, self.lease.as_ref())?,
            wait: wait.min(api.config.http.wait),
        })
    }
}

/// How long a client's lease is to last.
fn length(api: &Api, asked: Option<&Span>) -> Result<Duration, Problem> {
    let length = asked.map_or(Ok(api.config.worker.timing.lease), |span| span.read("lease"))?;
    if !LEASE.contains(&length) {
        return Err(bad("`lease` is 1 second to 24 hours.".to_owned()));
    }
    Ok(length)
}

async fn leased(parts: &mapae::worker::Parts, holding: Holding, length: Duration) -> LeasedJob {
    let Holding { job, lease } = holding;
    let mut checkpoints = Map::new();
    // What cannot be read now is done again.
    for checkpoint in parts.store.checkpoints(job.id).await.unwrap_or_default() {
        if let Some(value) = remote::checkpoint_value(parts, &job, &checkpoint).await {
            checkpoints.insert(checkpoint.stage, value);
        }
    }
    LeasedJob {
        id: job.id.to_string(),
        owner: job.owner.to_string(),
        kind: job.kind.to_string(),
        attempt: job.attempt,
        max_attempts: job.retry.attempts,
        source: job.source.as_ref().map(SourceBody::of),
        deadline: job.deadline.map(|at| at.to_string()),
        token: lease.token.0.to_string(),
        leased_until: lease.until.to_string(),
        lease_seconds: length.as_secs_f64(),
        heartbeat_seconds: length.as_secs_f64() / 4.0,
        idempotency_key: format!("{}/call", job.id),
        traceparent: job.trace,
        checkpoints,
        params: job.params,
    }
}

/// Who tells something of a job: a key with its scope, or whoever has the token.
pub(super) struct Reporter {
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

fn read_token(text: &str) -> Option<Token> {
    text.trim().parse().ok().map(Token)
}

/// What a holder tells. Which fields count depends on the call.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseReport)]
pub(super) struct Report {
    /// The lease's, where it is not in the query or the header `Mapae-Token`.
    token: Option<String>,
    /// `heartbeat`: how long the lease lasts from now.
    lease: Option<Span>,
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
pub(super) struct LeaseState {
    state: &'static str,
    /// Its owner wants it stopped: end it soon, however.
    cancel_requested: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
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
        pub(super) async fn $name(
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

/// One report of a batch.
#[derive(Deserialize, ToSchema)]
pub(super) struct BatchItem {
    job: String,
    #[serde(rename = "do")]
    verb: Verb,
    #[serde(flatten)]
    report: Report,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    /// 1 to 1,000 reports. Each is answered by itself, in this order.
    items: Vec<Value>,
}

/// What became of one report.
#[derive(Serialize, ToSchema)]
pub(super) struct BatchAnswer {
    job: String,
    /// As the single call would have answered.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_requested: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct BatchAnswers {
    items: Vec<BatchAnswer>,
}

/// Many reports at once: `{"items": [{"job": …, "do": "complete", "token": …, …}]}`.
#[utoipa::path(
    post, path = "/v1/leases/batch", tag = "leases", request_body = Batch, security(("key" = ["jobs:work"])),
    responses((status = 200, body = BatchAnswers), (status = "default", body = ProblemBody)),
)]
pub(super) async fn batch(
    State(api): State<Api>,
    caller: Caller<JobsWork>,
    request: Request,
) -> Result<axum::Json<BatchAnswers>, Problem> {
    let batch: Option<Batch> = read_json(&api, request, REPORT_BYTES_MAX).await?;
    let items = batch.map(|batch| batch.items).unwrap_or_default();
    if !(1..=BATCH_MAX).contains(&items.len()) {
        return Err(bad(format!("`items` has 1 to {BATCH_MAX} reports.")));
    }
    let (parts, scope) = (caller.runtime.parts(), caller.scope());
    let items: Vec<_> = items.into_iter().map(|item| (named(&item), item_of(item))).collect();
    let beats = beats(&api, &parts, items.iter().filter_map(|(_, item)| item.as_ref().ok())).await?;
    let answers = items.into_iter().map(async |(named, item)| {
        let acted = async {
            let (id, token, verb, report) = item?;
            let beat = (verb == Verb::Heartbeat).then(|| beats.get(&(id, token)).copied()).flatten();
            if let Some(Beat::Renewed { cancel_asked }) = beat {
                return Ok(LeaseState { state: JobState::Running.as_str(), cancel_requested: cancel_asked });
            }
            // What was not renewed has an answer of its own.
            act(&api, &parts, Some(&scope), id, token, verb, report).await
        };
        answer(named, acted.await)
    });
    Ok(axum::Json(BatchAnswers { items: join_all(answers).await }))
}

type Item = (JobId, Token, Verb, Report);

fn named(item: &Value) -> String {
    item.get("job").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn item_of(item: Value) -> Result<Item, Problem> {
    let item: BatchItem = serde_json::from_value(item).map_err(|_| Problem::from(&problem::BODY_INVALID))?;
    let id = item.job.parse().map_err(|_| Problem::from(&problem::JOB_NOT_FOUND))?;
    let token = item.report.token.as_deref().and_then(read_token);
    let token = token.ok_or_else(|| bad("`token` is missing.".to_owned()))?;
    Ok((id, token, item.verb, item.report))
}

/// Renews what the batch's heartbeats name, one statement for each length of a lease. A token is a right of its own:
/// nothing else is looked up.
async fn beats(
    api: &Api,
    parts: &mapae::worker::Parts,
    items: impl Iterator<Item = &Item>,
) -> Result<HashMap<(JobId, Token), Beat>, Problem> {
    let mut leases: HashMap<Duration, Vec<(JobId, Token)>> = HashMap::new();
    for (id, token, _, report) in items.filter(|(_, _, verb, _)| *verb == Verb::Heartbeat) {
        // One that cannot be is refused by itself.
        if let Ok(length) = length(api, report.lease.as_ref()) {
            leases.entry(length).or_default().push((*id, *token));
        }
    }
    let mut beats = HashMap::new();
    for (length, leases) in leases {
        let renewed = parts.store.renew(&leases, length).await?;
        beats.extend(leases.into_iter().zip(renewed));
    }
    Ok(beats)
}

fn answer(named: String, acted: Result<LeaseState, Problem>) -> BatchAnswer {
    match acted {
        Ok(done) => BatchAnswer {
            job: named,
            status: 200,
            code: None,
            state: Some(done.state),
            cancel_requested: Some(done.cancel_requested),
        },
        Err(problem) => BatchAnswer {
            job: named,
            status: problem.refusal.status,
            code: Some(problem.refusal.code),
            state: None,
            cancel_requested: None,
        },
    }
}

/// Does what the report says, under its token.
async fn act(
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

fn bad(detail: String) -> Problem {
    Problem::from(&problem::BODY_INVALID).detail(detail)
}

/// Where the job stands is told to keys only.
pub(super) fn refused(keyed: bool, error: RemoteError) -> Problem {
    match error {
        RemoteError::LeaseLost(Some(state)) if keyed => {
            Problem::from(&problem::LEASE_LOST).detail(format!("The job is {}.", state.as_str()))
        }
        RemoteError::LeaseLost(_) => (&problem::LEASE_LOST).into(),
        RemoteError::Files => (&problem::FILES_UNAVAILABLE).into(),
        RemoteError::Store(error) => error.into(),
    }
}
