//! Looking at jobs, and what their owner may do to them.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mapae::job::State;
use mapae::job::event::{Event, Position};
use mapae::job::limit::{Ledger, Limit, Stop};
use mapae::job::name::{JobId, Kind, Owner};
use mapae::job::record::Job;
use mapae::job::timestamp::Timestamp;
use mapae::store::contract::{Accepted, ControlError, EventFilter, Found, JobFilter, Page, Scope, WorkerRow};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use utoipa::IntoParams;

use super::Api;
use super::auth::{Caller, JobsRead, JobsWrite, Retry};
use super::extract::{Id, Query, preferred_wait};
use super::model::{FollowUpBody, JobBody, JobList, ProgressBody, TimelineEntry, stages, timeline};
use super::problem::{self, Problem, ProblemBody};
use crate::credential::hex;
use crate::runtime::Runtime;
use crate::why::{Facts, why_waiting};

/// Longest history that is shown with a job; all of it is in its events.
const TIMELINE_MAX: usize = 500;

/// How often somebody who waits for a job's end looks by himself.
const LOOK: std::time::Duration = std::time::Duration::from_millis(500);

/// Jobs on a page.
const LIMIT: usize = 50;
const LIMIT_MAX: usize = 200;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// `pending`, `running`, `succeeded`, `failed`, `cancelled` or `stale`.
    pub state: Option<String>,
    pub kind: Option<String>,
    /// For keys of all owners.
    pub owner: Option<String>,
    /// Part of the file's name, or the beginning of an id.
    pub q: Option<String>,
    /// From the page before.
    pub cursor: Option<String>,
    /// 1 to 200, 50 where it is not given.
    pub limit: Option<usize>,
}

impl Filter {
    /// The jobs that this asks for, within what `scope` allows. `None` where those can be none.
    pub(super) fn read(&self, scope: Scope) -> Result<(Option<Scope>, JobFilter, Page), Problem> {
        let bad = |what: &str| Problem::from(&problem::QUERY_INVALID).detail(what);
        let state = match &self.state {
            Some(text) => {
                let known = State::ALL.map(State::as_str).join(", ");
                Some(State::parse(text).ok_or_else(|| bad(&format!("`state` is one of {known}.")))?)
            }
            None => None,
        };
        let kind = match &self.kind {
            Some(text) => Some(Kind::new(text).map_err(|error| bad(&format!("`kind`: {error}.")))?),
            None => None,
        };
        let owner = match &self.owner {
            Some(text) => Some(Owner::new(text).map_err(|error| bad(&format!("`owner`: {error}.")))?),
            None => None,
        };
        if self.q.as_ref().is_some_and(|text| text.len() > 200) {
            return Err(bad("`q` is at most 200 bytes."));
        }
        let limit = self.limit.unwrap_or(LIMIT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(bad("`limit` is 1 to 200."));
        }
        let after = self.cursor.as_deref().map(read_cursor).transpose()?;
        let text = self.q.clone().filter(|text| !text.is_empty());
        Ok((narrow(scope, owner), JobFilter { state, kind, text }, Page { after, limit }))
    }
}

/// `scope` restricted to `owner`; `None` where they exclude each other.
pub(super) fn narrow(scope: Scope, owner: Option<Owner>) -> Option<Scope> {
    match (scope, owner) {
        (scope, None) => Some(scope),
        (Scope::All, Some(owner)) => Some(Scope::Owner(owner)),
        (Scope::Owner(own), Some(owner)) => (own == owner).then_some(Scope::Owner(own)),
    }
}

/// Cursors say where a page ended; the letter leaves room for other kinds.
pub(super) fn write_cursor(last: JobId) -> String {
    format!("j{}", last.0.simple())
}

fn read_cursor(text: &str) -> Result<JobId, Problem> {
    let id = text.strip_prefix('j').filter(|hex| hex.len() == 32).and_then(|hex| hex.parse().ok());
    id.ok_or_else(|| (&problem::CURSOR_INVALID).into())
}

/// Jobs, newest first.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(Filter), security(("key" = ["jobs:read"])),
    responses((status = 200, body = JobList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn list(
    caller: Caller<JobsRead>,
    Query(filter): Query<Filter>,
) -> Result<Response, Problem> {
    page_of(&caller.runtime, caller.scope(), &filter, "/v1/jobs").await
}

/// One page of `filter` as an answer, with the address of the next.
pub(super) async fn page_of(
    runtime: &Runtime,
    scope: Scope,
    filter: &Filter,
    address: &str,
) -> Result<Response, Problem> {
    let (scope, wanted, page) = filter.read(scope)?;
    let now = runtime.store.now().await?;
    let found = match scope {
        Some(scope) => match by_id(runtime, &scope, &wanted, &page).await? {
            Some(job) => Found { jobs: vec![job], next: None },
            None => runtime.store.jobs(&scope, &wanted, &page).await?,
        },
        None => Found::default(),
    };
    let cursor = found.next.map(write_cursor);
    let next = cursor.as_ref().map(|cursor| next_link(address, filter, cursor));
    let items = found.jobs.iter().map(|job| JobBody::brief(job, now)).collect();
    let mut response = axum::Json(JobList { items, cursor }).into_response();
    if let Some(link) = next.and_then(|link| HeaderValue::from_str(&link).ok()) {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

/// The job whose whole id is asked for: however old, it is not looked for among the others.
async fn by_id(
    runtime: &Runtime,
    scope: &Scope,
    wanted: &JobFilter,
    page: &Page,
) -> Result<Option<Job>, Problem> {
    let Some(Ok(id)) = wanted.text.as_deref().map(str::parse::<JobId>) else { return Ok(None) };
    if page.after.is_some() {
        return Ok(None);
    }
    Ok(runtime.store.job(scope, id).await?.filter(|job| wanted.fits(job)))
}

fn next_link(address: &str, filter: &Filter, cursor: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let given =
        [("state", &filter.state), ("kind", &filter.kind), ("owner", &filter.owner), ("q", &filter.q)];
    for (name, value) in given {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    if let Some(limit) = filter.limit {
        query.append_pair("limit", &limit.to_string());
    }
    query.append_pair("cursor", cursor);
    format!("<{address}?{}>; rel=\"next\"", query.finish())
}

/// One job with its stages, its history and why it waits.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs",
    params(
        ("id" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: answer once it has ended, or after N seconds; at most `http.wait`."),
    ),
    security(("key" = ["jobs:read"])),
    responses(
        (status = 200, body = JobBody, headers(("ETag" = String))),
        (status = 304, description = "It is as `If-None-Match` has it."),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn show(
    axum::extract::State(api): axum::extract::State<Api>,
    caller: Caller<JobsRead>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wait = preferred_wait(&headers);
    if let Some(wait) = wait {
        wait_for_end(&api, &caller.runtime, &caller.scope(), id, wait.min(api.config.http.wait)).await?;
    }
    let body = full(&caller.runtime, &caller.scope(), id).await?.ok_or(&problem::JOB_NOT_FOUND)?;
    let bytes = serde_json::to_vec(&body).expect("a job is JSON");
    let mut response = tagged(&headers, bytes, "application/json");
    if wait.is_some() {
        response.headers_mut().insert("preference-applied", HeaderValue::from_static("wait"));
    }
    Ok(response)
}

/// An answer with an `ETag` over its bytes, or 304 where the client has them.
pub(super) fn tagged(request: &HeaderMap, bytes: Vec<u8>, media_type: &'static str) -> Response {
    let tag = format!("\"{}\"", hex(&Sha256::digest(&bytes)[..12]));
    let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let fresh = known.is_some_and(|tags| tags.split(',').any(|known| known.trim() == tag));
    let headers = [(header::ETAG, tag), (header::CONTENT_TYPE, media_type.to_owned())];
    if fresh { (StatusCode::NOT_MODIFIED, headers).into_response() } else { (headers, bytes).into_response() }
}

/// Everything that is shown of a job.
pub(super) async fn full(runtime: &Runtime, scope: &Scope, id: JobId) -> Result<Option<JobBody>, Problem> {
    shown(runtime, scope, id, Ahead::Counted).await
}

/// Whether the jobs ahead of it are counted. Of many submissions at once each would count those of the others.
#[derive(Clone, Copy, PartialEq)]
enum Ahead {
    Counted,
    Left,
}

async fn shown(
    runtime: &Runtime,
    scope: &Scope,
    id: JobId,
    ahead: Ahead,
) -> Result<Option<JobBody>, Problem> {
    let Some(job) = runtime.store.job(scope, id).await? else { return Ok(None) };
    let facts = facts(runtime, &job, ahead).await?;
    let mut body = JobBody::brief(&job, facts.now);
    body.why_waiting = why_waiting(&job, &facts);
    if let Some(batch) = facts.batch {
        body.progress = Some(ProgressBody::of(&batch.progress()));
    }
    body.batch = runtime.store.batch_of(scope, id).await?.map(|batch| batch.to_string());
    let followed = runtime.store.followed(scope, id).await?;
    body.follow_ups = Some(followed.iter().map(FollowUpBody::of).collect());
    if job.sequence == 1 {
        // It was accepted, and nothing else has happened.
        body.stages = Some(Vec::new());
        body.timeline = Some(vec![TimelineEntry::accepted(job.created_at)]);
    } else {
        body.stages = Some(stages(&job, &runtime.store.checkpoints(id).await?));
        body.timeline = Some(timeline(&history(runtime, scope, id).await?, &followed));
    }
    Ok(Some(body))
}

async fn history(runtime: &Runtime, scope: &Scope, id: JobId) -> Result<Vec<Event>, Problem> {
    let filter = EventFilter { job: Some(id), after: Position::default() };
    Ok(runtime.store.events(scope, &filter, TIMELINE_MAX).await?)
}

/// What keeps a pending job from running. Costs nothing for any other.
async fn facts(runtime: &Runtime, job: &Job, ahead: Ahead) -> Result<Facts, Problem> {
    let store = &runtime.store;
    let mut facts = Facts { now: store.now().await?, ..Facts::default() };
    if job.is_awaiting() {
        facts.batch = store.batch(&Scope::All, job.id).await?;
    }
    if job.state != State::Pending || job.due_at > facts.now {
        return Ok(facts);
    }
    facts.lane_paused = store.paused().await?.contains(&job.lane());
    let workers = store.workers().await?;
    let of_kind: Vec<&WorkerRow> = workers.iter().filter(|row| row.kinds.contains(&job.kind)).collect();
    facts.workers = workers.len();
    facts.workers_of_kind = of_kind.len();
    let waits = |row: &WorkerRow| {
        let found = row.report.waiting.iter().find(|(kind, _)| *kind == job.kind);
        found.map(|(_, resource)| resource.clone())
    };
    let waiting: Vec<String> = of_kind.iter().filter_map(|row| waits(row)).collect();
    facts.resource = waiting.first().filter(|_| waiting.len() == of_kind.len()).cloned();
    facts.stop = stop(runtime, job, facts.now).await?;
    if ahead == Ahead::Counted {
        facts.ahead = store.ahead(job, Facts::AHEAD_MAX).await?;
    }
    Ok(facts)
}

/// The gate over all workers that would be closed to the job if it were claimed now.
async fn stop(runtime: &Runtime, job: &Job, now: Timestamp) -> Result<Option<(Stop, Limit)>, Problem> {
    let rows = runtime.store.gates(Some(&job.owner)).await?;
    let accounts = rows.into_iter().map(|row| ((row.gate, row.owner), row.account)).collect();
    let tolls = runtime.limits.tolls(&job.kind, &[]);
    let bytes = job.source.as_ref().map_or(0, |source| source.bytes);
    let stop = Ledger::new(now, accounts, &[]).admit(&job.kind, &tolls, &job.owner, bytes).err();
    Ok(stop.map(|stop| {
        let toll = tolls.iter().find(|toll| toll.gate == stop.gate);
        let limit = toll.map_or(Limit::default(), |toll| toll.limit);
        (stop, limit)
    }))
}

/// A pending job is cancelled; a running one is asked to stop.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path)),
    security(("key" = ["jobs:write"])),
    responses(
        (status = 200, description = "It is cancelled.", body = JobBody),
        (status = 202, description = "Its worker has been asked.", body = JobBody),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn cancel(caller: Caller<JobsWrite>, Id(id): Id) -> Result<Response, Problem> {
    let scope = caller.scope();
    let state = match caller.runtime.store.cancel(&scope, id).await {
        Ok(state) => {
            if state == State::Cancelled {
                ended(&caller.runtime);
            }
            state
        }
        // Asked twice, done once.
        Err(ControlError::Conflict(State::Cancelled)) => State::Cancelled,
        Err(error) => return Err(error.into()),
    };
    let body = full(&caller.runtime, &scope, id).await?.ok_or(&problem::JOB_NOT_FOUND)?;
    let status = if state == State::Cancelled { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, axum::Json(body)).into_response())
}

/// A request has ended a job that had not begun.
fn ended(runtime: &Runtime) {
    runtime.metrics.count("mapae_jobs_finished_total", State::Cancelled.as_str(), 1);
}

/// A failed job is sent back to work with a fresh budget.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/retry", tag = "jobs", params(("id" = String, Path)),
    security(("key" = ["jobs:write"]), ("key" = ["dead:write"])),
    responses((status = 202, body = JobBody), (status = "default", body = ProblemBody)),
)]
pub(super) async fn retry(caller: Caller<Retry>, Id(id): Id) -> Result<Response, Problem> {
    let scope = caller.scope();
    caller.runtime.store.redrive(&scope, id).await?;
    let body = full(&caller.runtime, &scope, id).await?.ok_or(&problem::JOB_NOT_FOUND)?;
    Ok((StatusCode::ACCEPTED, axum::Json(body)).into_response())
}

/// The job and its files go. A running one is stopped first.
#[utoipa::path(
    delete, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path)),
    security(("key" = ["jobs:write"])),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn delete(caller: Caller<JobsWrite>, Id(id): Id) -> Result<StatusCode, Problem> {
    if caller.runtime.store.delete(&caller.scope(), id).await? {
        ended(&caller.runtime);
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A job that has been accepted, as the answer to whoever submitted it: 202, or 200 where it ended
/// within the time the client preferred to wait.
pub(super) async fn accepted(
    api: &Api,
    runtime: &Runtime,
    scope: &Scope,
    kept: Accepted,
    wait: Option<std::time::Duration>,
) -> Result<Response, Problem> {
    let id = kept.id;
    let waited = match wait {
        Some(wait) => wait_for_end(api, runtime, scope, id, wait.min(api.config.http.wait)).await?,
        None => false,
    };
    let mut body = shown(runtime, scope, id, Ahead::Left).await?.ok_or(&problem::JOB_NOT_FOUND)?;
    body.duplicate = kept.duplicate.then_some(true);
    let status = if waited { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (status, axum::Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::try_from(format!("/v1/jobs/{id}")).expect("ids are ASCII"));
    if !waited {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if wait.is_some() {
        headers.insert("preference-applied", HeaderValue::from_static("wait"));
    }
    Ok(response)
}

/// Whether the job ended within `wait`.
async fn wait_for_end(
    api: &Api,
    runtime: &Runtime,
    scope: &Scope,
    id: JobId,
    wait: std::time::Duration,
) -> Result<bool, Problem> {
    let mut feed = api.feed.follow();
    let until = tokio::time::Instant::now() + wait;
    loop {
        match runtime.store.job(scope, id).await? {
            None => return Ok(true),
            Some(job) if job.state.is_terminal() => return Ok(true),
            Some(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep_until(until) => return Ok(false),
            () = api.stop.cancelled() => return Ok(false),
            _ = feed.changed() => {}
            // The feed stands still behind a transaction that is open anywhere in the server; the job does not.
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
