//! `POST /v1/jobs`: work of any kind, without a file of its own.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use mapae::accept::SubmitError;
use mapae::job::name::{Kind, Priority};
use mapae::job::record::NewJob;
use mapae::job::timestamp::Timestamp;
use mapae::store::contract::Accepted;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, JobsWrite};
use super::extract::{Json, idempotency_key, preferred_wait, trace};
use super::jobs::accepted;
use super::model::JobBody;
use super::problem::{self, Problem, ProblemBody};
use crate::runtime::Runtime;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Submission {
    #[schema(example = "context.process")]
    kind: String,
    /// At most 256 KiB of JSON; `{}` where it is not given.
    #[serde(default)]
    #[schema(value_type = Object)]
    params: Option<Value>,
    /// 1 (first) to 9 (last).
    priority: Option<u8>,
    /// When it is first due; at once where it is not given.
    run_at: Option<String>,
    /// After this it fails instead of starting again.
    deadline: Option<String>,
    /// For keys of all owners.
    owner: Option<String>,
    /// Of a later version.
    #[schema(value_type = Object)]
    source: Option<Value>,
    /// Of a later version.
    #[schema(value_type = Object)]
    callback: Option<Value>,
}

/// Accepts a job. The answer means that it is kept, not that it is done.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", request_body = Submission, security(("key" = ["jobs:write"])),
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Sent twice, one job is made."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: answer with 200 if it ends within N seconds."),
    ),
    responses(
        (status = 200, description = "It has ended already.", body = JobBody),
        (status = 202, description = "It is kept.", body = JobBody, headers(("Location" = String), ("Retry-After" = u64))),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn submit(
    State(api): State<Api>,
    caller: Caller<JobsWrite>,
    headers: HeaderMap,
    Json(submission): Json<Submission>,
) -> Result<Response, Problem> {
    let idempotency = idempotency_key(&headers)?;
    let fingerprint = submission.fingerprint();
    let mut job = submission.read(&api, &caller)?;
    api.admission.pending(&*caller.runtime.store, job.lane(), job.owner.clone()).await?;
    job.trace = trace(&headers);
    job.idempotency = idempotency.map(|key| (key, fingerprint));
    let kept = accept(&api, &caller.runtime, job).await?;
    accepted(&api, &caller.runtime, &caller.scope(), kept.id, preferred_wait(&headers)).await
}

/// Through the door, counted. Kinds that this server does not know are counted together: clients may
/// make up any number of them.
pub(super) async fn accept(api: &Api, runtime: &Runtime, job: NewJob) -> Result<Accepted, SubmitError> {
    let kind = job.kind.clone();
    let accepted = runtime.accept.accept(job).await?;
    if !accepted.again {
        let label = if api.knows(&kind) { kind.as_str() } else { "other" };
        runtime.metrics.count("mapae_jobs_accepted_total", label, 1);
        tracing::info!(job_id = %accepted.id, %kind, "job accepted");
    }
    Ok(accepted)
}

impl Submission {
    /// The same for the same submission, however its JSON was written.
    fn fingerprint(&self) -> [u8; 32] {
        let parts = serde_json::json!([
            "jobs",
            self.kind,
            self.params,
            self.priority,
            self.run_at,
            self.deadline,
            self.owner
        ]);
        Sha256::digest(parts.to_string().as_bytes()).into()
    }

    fn read(self, api: &Api, caller: &Caller<JobsWrite>) -> Result<NewJob, Problem> {
        let bad = |detail: String| Problem::from(&problem::BODY_INVALID).detail(detail);
        for (field, given) in [("source", &self.source), ("callback", &self.callback)] {
            if given.is_some() {
                let detail = format!("`{field}` is not taken yet.");
                return Err(Problem::from(&problem::NOT_IN_THIS_VERSION).detail(detail));
            }
        }
        let owner = caller.identity.owner_of_new(self.owner.as_deref())?;
        let kind = Kind::new(self.kind).map_err(|error| bad(format!("`kind`: {error}.")))?;
        let time = |field: &str, text: Option<String>| match text {
            None => Ok(None),
            Some(text) => Timestamp::parse(&text)
                .map(Some)
                .ok_or_else(|| bad(format!("`{field}` is a time as in RFC 3339."))),
        };
        let params = self.params.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let mut job = NewJob::new(owner, kind, params);
        job.retry = api.config.retry(&job.kind);
        job.run_at = time("run_at", self.run_at)?;
        job.deadline = time("deadline", self.deadline)?;
        if let Some(priority) = self.priority {
            job.priority = Priority::new(priority).map_err(|_| bad("`priority` is 1 to 9.".into()))?;
        }
        Ok(job)
    }
}
