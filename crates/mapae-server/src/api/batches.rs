//! Batches: many jobs submitted as one, whose end is told once all have ended.
//!
//! The whole is a job, the parent, of any kind: it waits until its parts have ended and then runs. What may be done to a job
//! may be done to it: it is watched, awaited, cancelled (which cancels its parts) and told of at `/v1/jobs/{id}`.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use mapae::job::batch::{BatchState, Member, PARTS_MAX, WAITING, part_id};
use mapae::job::name::{JobId, Lane, Owner};
use mapae::job::record::NewJob;
use mapae::store::contract::ControlError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, JobsRead, JobsWrite};
use super::extract::{Id, Query, idempotency_key, preferred_wait, read_json, trace};
use super::jobs::accepted;
use super::model::JobBody;
use super::paging;
use super::problem::{self, Problem, ProblemBody};
use super::submit::{Submission, first_answer};
use crate::batches;

/// The largest body, in bytes: the params of a thousand parts.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Parts on a page.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchSubmission {
    /// The parts, at most 1,000; more are added to an open batch. Of each: `kind`, `params`, `priority`, `run_at`,
    /// `deadline`.
    jobs: Vec<Submission>,
    /// The job that runs once all have ended; one of the kind `batch`, which only counts them, where it is not given.
    whole: Option<Submission>,
    /// More parts are added later: it does not end before it is sealed.
    #[serde(default)]
    open: bool,
}

/// A batch: the job that waits, and how its parts stand.
#[derive(Serialize, ToSchema)]
#[schema(as = Batch)]
pub(super) struct BatchBody {
    /// That of the job that waits for its parts.
    pub id: String,
    /// No part is added any more.
    pub sealed: bool,
    pub parts: u32,
    pub ended: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub stale: u32,
    pub links: BatchLinks,
}

#[derive(Serialize, ToSchema)]
pub(super) struct BatchLinks {
    pub job: String,
    pub jobs: String,
}

impl BatchBody {
    fn of(id: JobId, batch: &BatchState) -> Self {
        Self {
            id: id.to_string(),
            sealed: batch.sealed,
            parts: batch.parts,
            ended: batch.ended(),
            succeeded: batch.succeeded,
            failed: batch.failed,
            cancelled: batch.cancelled,
            stale: batch.stale,
            links: BatchLinks { job: format!("/v1/jobs/{id}"), jobs: format!("/v1/batches/{id}/jobs") },
        }
    }
}

/// Accepts many jobs as the parts of one, all of them or none.
#[utoipa::path(
    post, path = "/v1/batches", tag = "batches", request_body = BatchSubmission,
    security(("key" = ["jobs:write"])),
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Sent twice, one batch is made."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: answer with 200 if all end within N seconds."),
    ),
    responses(
        (status = 200, description = "All have ended already.", body = JobBody),
        (status = 202, description = "All are kept; this is the job that waits for them.", body = JobBody,
            headers(("Location" = String), ("Retry-After" = u64))),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn submit(
    State(api): State<Api>,
    caller: Caller<JobsWrite>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let idempotency = idempotency_key(&headers)?;
    let body: Value = read_json(&api, request, BODY_BYTES_MAX).await?.unwrap_or_default();
    let fingerprint: [u8; 32] = Sha256::digest(format!("batches{body}").as_bytes()).into();
    let submission: BatchSubmission =
        serde_json::from_value(body).map_err(|_| Problem::from(&problem::BODY_INVALID))?;
    let whole = submission.whole.unwrap_or_else(|| Submission::of_kind(batches::KIND));
    let mut parent = whole.whole(&api, &caller)?;
    parent.idempotency = idempotency.map(|key| (key, fingerprint));
    if let Some(first) = first_answer(&caller.runtime, &parent).await? {
        return accepted(&api, &caller.runtime, &caller.scope(), first, preferred_wait(&headers)).await;
    }
    parent.trace = trace(&headers);
    parent.run_at = Some(WAITING);
    let parts = parts_of(&api, &caller, &parent, submission.jobs)?;
    let all = caller.identity.owner.is_none();
    api.admit(&*caller.runtime.store, &parent.lane(), &parent.on, &parent.owner, all, 1).await?;
    admit(&api, &caller, &parts).await?;
    let kept = caller.runtime.accept.accept_batch(parent, parts.clone(), !submission.open).await?;
    if !kept.again {
        count(&api, &caller, &parts);
        tracing::info!(job_id = %kept.id, parts = parts.len(), "batch accepted");
    }
    accepted(&api, &caller.runtime, &caller.scope(), kept, preferred_wait(&headers)).await
}

/// The jobs of these submissions, as parts of `parent`.
fn parts_of(
    api: &Api,
    caller: &Caller<JobsWrite>,
    parent: &NewJob,
    jobs: Vec<Submission>,
) -> Result<Vec<NewJob>, Problem> {
    let bad = |detail: String| Problem::from(&problem::BODY_INVALID).detail(detail);
    if jobs.len() > PARTS_MAX {
        return Err(bad(format!(
            "`jobs` has at most {PARTS_MAX} at a time: open the batch, and add the others."
        )));
    }
    let part = |(at, submission): (usize, Submission)| {
        let mut part = submission.part(api, caller, parent.owner.as_str(), at)?;
        part.parent = Some(parent.id);
        part.trace.clone_from(&parent.trace);
        part.deadline = part.deadline.or(parent.deadline);
        Ok(part)
    };
    jobs.into_iter().enumerate().map(part).collect()
}

/// Each lane is asked once for all of its parts.
async fn admit(api: &Api, caller: &Caller<JobsWrite>, parts: &[NewJob]) -> Result<(), Problem> {
    let all = caller.identity.owner.is_none();
    let mut lanes: BTreeMap<(Lane, &Owner), usize> = BTreeMap::new();
    for part in parts {
        *lanes.entry((part.lane(), &part.owner)).or_default() += 1;
    }
    for ((lane, owner), more) in lanes {
        api.admit(&*caller.runtime.store, &lane, &[], owner, all, more).await?;
    }
    Ok(())
}

fn count(api: &Api, caller: &Caller<JobsWrite>, parts: &[NewJob]) {
    for part in parts {
        let label = if api.knows(&part.kind) { part.kind.as_str() } else { "other" };
        caller.runtime.metrics.count("mapae_jobs_accepted_total", label, 1);
    }
    caller.runtime.bell.notify_one();
}

/// How a batch stands.
#[utoipa::path(
    get, path = "/v1/batches/{id}", tag = "batches", params(("id" = String, Path)),
    security(("key" = ["jobs:read"])),
    responses((status = 200, body = BatchBody), (status = "default", body = ProblemBody)),
)]
pub(super) async fn show(caller: Caller<JobsRead>, Id(id): Id) -> Result<axum::Json<BatchBody>, Problem> {
    let batch = caller.runtime.store.batch(&caller.scope(), id).await?;
    Ok(axum::Json(BatchBody::of(id, &batch.ok_or(&problem::BATCH_NOT_FOUND)?)))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// From the page before.
    cursor: Option<u32>,
    /// 1 to 1,000, 100 where it is not given. A page has at most 100.
    limit: Option<usize>,
}

/// A part, in the order given.
#[derive(Serialize, ToSchema)]
pub(super) struct PartBody {
    /// Its place, from 0.
    number: u32,
    id: String,
    /// `succeeded`, `failed`, `cancelled` or `stale`; `null` while it has not ended.
    state: Option<&'static str>,
    failure: Option<String>,
    link: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct PartList {
    items: Vec<PartBody>,
    /// For the next page; `null` on the last.
    cursor: Option<u32>,
}

impl PartBody {
    fn of(member: &Member) -> Self {
        Self {
            number: member.number,
            id: member.job.to_string(),
            state: member.state.map(mapae::job::State::as_str),
            failure: member.failure.as_ref().map(|failure| failure.code.clone()),
            link: format!("/v1/jobs/{}", member.job),
        }
    }
}

/// The parts of a batch, in their order.
#[utoipa::path(
    get, path = "/v1/batches/{id}/jobs", tag = "batches", params(("id" = String, Path), Paging),
    security(("key" = ["jobs:read"])),
    responses((status = 200, body = PartList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn list(
    caller: Caller<JobsRead>,
    Id(id): Id,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let (store, scope) = (&caller.runtime.store, caller.scope());
    let limit = paging.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("`limit` is 1 to {LIMIT_MAX}.");
        return Err(Problem::from(&problem::QUERY_INVALID).detail(detail));
    }
    store.batch(&scope, id).await?.ok_or(&problem::BATCH_NOT_FOUND)?;
    // With each comes what it gave.
    let limit = limit.min(LIMIT);
    let members = store.members(&scope, id, paging.cursor, limit).await?;
    let cursor = members.last().map(|last| last.number).filter(|_| members.len() == limit);
    let list = PartList { items: members.iter().map(PartBody::of).collect(), cursor };
    let next = cursor.map(|cursor| format!("/v1/batches/{id}/jobs?limit={limit}&cursor={cursor}"));
    Ok(paging::linked(axum::Json(list), next))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MoreParts {
    /// At most 1,000, as in the batch's submission.
    jobs: Vec<Submission>,
}

/// Adds parts to a batch that is open. Each call adds its parts, but for one that is sent again under its key.
#[utoipa::path(
    post, path = "/v1/batches/{id}/jobs", tag = "batches", request_body = MoreParts,
    security(("key" = ["jobs:write"])),
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Sent twice, the parts are there once."),
    ),
    responses((status = 200, body = BatchBody), (status = "default", body = ProblemBody)),
)]
pub(super) async fn add(
    State(api): State<Api>,
    caller: Caller<JobsWrite>,
    Id(id): Id,
    headers: HeaderMap,
    request: Request,
) -> Result<axum::Json<BatchBody>, Problem> {
    let idempotency = idempotency_key(&headers)?;
    let body: Value = read_json(&api, request, BODY_BYTES_MAX).await?.unwrap_or_default();
    let fingerprint: [u8; 32] = Sha256::digest(format!("batches/{id}{body}").as_bytes()).into();
    let more: MoreParts = serde_json::from_value(body).map_err(|_| Problem::from(&problem::BODY_INVALID))?;
    let (store, scope) = (&caller.runtime.store, caller.scope());
    let job = store.job(&scope, id).await?.ok_or(&problem::BATCH_NOT_FOUND)?;
    let parent = NewJob {
        id,
        deadline: job.deadline,
        trace: job.trace,
        ..NewJob::new(job.owner, job.kind, Value::Null)
    };
    let mut parts = parts_of(&api, &caller, &parent, more.jobs)?;
    if let Some(key) = idempotency {
        for (number, part) in parts.iter_mut().enumerate() {
            part.id = part_id(id, &key, &fingerprint, number);
        }
        if let Some(first) = parts.first_mut() {
            first.idempotency = Some((key, fingerprint));
            if first_answer(&caller.runtime, first).await?.is_some() {
                return show_now(&caller, id).await;
            }
        }
    }
    admit(&api, &caller, &parts).await?;
    caller.runtime.accept.add_parts(&scope, id, parts.clone()).await.map_err(refused)?;
    count(&api, &caller, &parts);
    show_now(&caller, id).await
}

/// No part is added any more: the batch ends once those it has have ended.
#[utoipa::path(
    post, path = "/v1/batches/{id}/seal", tag = "batches", params(("id" = String, Path)),
    security(("key" = ["jobs:write"])),
    responses((status = 200, body = BatchBody), (status = "default", body = ProblemBody)),
)]
pub(super) async fn seal(caller: Caller<JobsWrite>, Id(id): Id) -> Result<axum::Json<BatchBody>, Problem> {
    caller.runtime.store.seal(&caller.scope(), id).await.map_err(|error| refused(error.into()))?;
    show_now(&caller, id).await
}

async fn show_now(caller: &Caller<JobsWrite>, id: JobId) -> Result<axum::Json<BatchBody>, Problem> {
    let batch = caller.runtime.store.batch(&caller.scope(), id).await?;
    Ok(axum::Json(BatchBody::of(id, &batch.ok_or(&problem::BATCH_NOT_FOUND)?)))
}

fn refused(error: mapae::accept::PartsError) -> Problem {
    use mapae::accept::PartsError;
    match error {
        PartsError::Submit(error) => error.into(),
        PartsError::Control(ControlError::NotFound) => (&problem::BATCH_NOT_FOUND).into(),
        PartsError::Control(ControlError::Conflict(state)) => {
            let detail = format!("It is sealed or full, or its job has ended: that is {}.", state.as_str());
            Problem::from(&problem::BATCH_CLOSED).detail(detail)
        }
        PartsError::Control(ControlError::Store(error)) => error.into(),
    }
}
