//! `POST /v1/jobs`: work of any kind, without a file of its own or with a small one in the body.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mapae::accept::SubmitError;
use mapae::job::event::EventKind;
use mapae::job::name::{JobId, Kind, Priority};
use mapae::job::record::{Callback, NewJob};
use mapae::job::timestamp::Timestamp;
use mapae::job::unique::{Part, UniqueRule};
use mapae::store::contract::{AcceptError, Accepted};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, JobsWrite};
use super::documents::store;
use super::extract::{Json, idempotency_key, preferred_wait, trace};
use super::jobs::accepted;
use super::model::JobBody;
use super::problem::{self, Problem, ProblemBody};
use crate::media::UNKNOWN;
use crate::plans::{self, OnBody, UniqueBody};
use crate::runtime::Runtime;
use crate::upload::{Taken, remove_later};

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
    /// A small file to work on; a larger one goes to `/v1/documents`.
    source: Option<InlineFile>,
    /// When another submission is the same work.
    unique: Option<UniqueBody>,
    /// The job that is made when this one has ended, by how it ended.
    on: Option<OnBody>,
    /// Where this job's end is told: an address, or one with the events it is to be told of.
    callback: Option<CallbackBody>,
}

/// Where a job's own events are told, signed as Standard Webhooks with the owner's secret.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum CallbackBody {
    /// Told of the end.
    Url(String),
    Chosen(ChosenCallback),
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChosenCallback {
    #[schema(example = "https://app.example/hooks/mapae")]
    url: String,
    /// `succeeded`, `failed`, `cancelled` and `stale` where it is not given.
    events: Option<Vec<String>>,
}

impl CallbackBody {
    fn read(&self, api: &Api) -> Result<Callback, Problem> {
        let (url, events) = match self {
            Self::Url(url) => (url, None),
            Self::Chosen(chosen) => (&chosen.url, chosen.events.as_ref()),
        };
        if api.config.events.callbacks.is_none() {
            return Err((&problem::CALLBACKS_NOT_CONFIGURED).into());
        }
        let url = api.config.strangers().check(url).map_err(|_| &problem::CALLBACK_REFUSED)?;
        let ends = || EventKind::ALL.into_iter().filter(|event| event.is_terminal()).collect();
        let events = match events {
            None => ends(),
            Some(names) => {
                let named: Option<Vec<_>> = names.iter().map(|name| EventKind::parse(name)).collect();
                named.filter(|events| !events.is_empty() && events.len() <= EventKind::ALL.len()).ok_or_else(
                    || {
                        let known = EventKind::ALL.map(EventKind::as_str).join(", ");
                        Problem::from(&problem::BODY_INVALID)
                            .detail(format!("`callback.events` are of {known}."))
                    },
                )?
            }
        };
        Ok(Callback { url: url.into(), events })
    }
}

/// A file within the body. The body's limit of 1 MiB holds for all of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InlineFile {
    name: String,
    /// Told from the file's first bytes and its name; one that contradicts them is refused.
    media_type: Option<String>,
    /// Base64 with padding (RFC 4648, section 4).
    #[schema(format = Byte)]
    data: String,
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
    let sameness = Sameness::of(&api, &submission)?;
    let (mut job, file) = submission.read(&api, &caller)?;
    job.idempotency = idempotency.map(|key| (key, fingerprint));
    if let Some(first) = first_answer(&caller.runtime, &job).await? {
        return accepted(&api, &caller.runtime, &caller.scope(), first, preferred_wait(&headers)).await;
    }
    let all = caller.identity.owner.is_none();
    api.admit(&*caller.runtime.store, &job.lane(), &job.on, &job.owner, all, 1).await?;
    job.trace = trace(&headers);
    let kept = match file {
        Some(file) => {
            let taken = file.take(&api, &caller.runtime, job.id).await?;
            accept_with_file(&api, &caller.runtime, job, taken, sameness).await?
        }
        None => accept(&api, &caller.runtime, job, sameness).await?,
    };
    accepted(&api, &caller.runtime, &caller.scope(), kept, preferred_wait(&headers)).await
}

/// The answer of before, where this very submission was accepted already: no limit is asked then, for there is
/// nothing more to let in.
pub(super) async fn first_answer(runtime: &Runtime, job: &NewJob) -> Result<Option<Accepted>, Problem> {
    let Some((key, fingerprint)) = &job.idempotency else { return Ok(None) };
    match runtime.store.submission(&job.owner, key).await? {
        None => Ok(None),
        Some((id, first)) if first == *fingerprint => {
            Ok(Some(Accepted { id, again: true, duplicate: false }))
        }
        Some(_) => Err(SubmitError::from(AcceptError::KeyReused).into()),
    }
}

/// Says that jobs were submitted in a transaction that has committed by now (`mapae.submit`): they are looked for at
/// once instead of within 200 ms.
#[utoipa::path(
    post, path = "/v1/ring", tag = "jobs", security(("key" = ["jobs:write"])),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn ring(caller: Caller<JobsWrite>) -> StatusCode {
    caller.runtime.bell.notify_one();
    StatusCode::NO_CONTENT
}

/// What makes a submission the same work as another; applied once its file is known.
pub(super) struct Sameness {
    rule: Option<UniqueRule>,
    key: Option<String>,
}

impl Sameness {
    /// As the kind has it.
    pub(super) fn of_kind(api: &Api, kind: &Kind) -> Self {
        Self { rule: api.config.unique(kind).cloned(), key: None }
    }

    fn of(api: &Api, submission: &Submission) -> Result<Self, Problem> {
        let kind = Kind::new(submission.kind.as_str()).ok();
        let of_kind = kind.as_ref().and_then(|kind| api.config.unique(kind));
        let Some(unique) = &submission.unique else {
            return Ok(Self { rule: of_kind.cloned(), key: None });
        };
        let bad = |detail: String| Problem::from(&problem::BODY_INVALID).detail(format!("{detail}."));
        let rule = unique.rule(of_kind).map_err(bad)?;
        if rule.by.contains(&Part::Key) && unique.key.is_none() {
            return Err(bad("`unique.by` names `key`, and `unique.key` is not given".into()));
        }
        Ok(Self { rule: Some(rule), key: unique.key.clone() })
    }
}

/// Through the door, counted. Kinds that this server does not know are counted together: clients may
/// make up any number of them.
async fn accept(
    api: &Api,
    runtime: &Runtime,
    mut job: NewJob,
    sameness: Sameness,
) -> Result<Accepted, SubmitError> {
    job.unique = sameness.rule.and_then(|rule| rule.of(&job, sameness.key.as_deref()));
    let kind = job.kind.clone();
    let accepted = runtime.accept.accept(job).await?;
    let label = if api.knows(&kind) { kind.as_str() } else { "other" };
    if accepted.duplicate {
        runtime.metrics.count("mapae_jobs_duplicate_total", label, 1);
    }
    if !accepted.again {
        runtime.metrics.count("mapae_jobs_accepted_total", label, 1);
        tracing::info!(job_id = %accepted.id, %kind, "job accepted");
    }
    Ok(accepted)
}

/// As [`accept`], with a file that is in the file store by now. It stays there only where the job does.
pub(super) async fn accept_with_file(
    api: &Api,
    runtime: &Runtime,
    mut job: NewJob,
    mut taken: Taken,
    sameness: Sameness,
) -> Result<Accepted, Problem> {
    job.source = Some(taken.source.clone());
    let (file, id) = (taken.keep(), job.id);
    let kept = accept(api, runtime, job, sameness).await;
    let wanted = match &kept {
        Ok(kept) => kept.id == id,
        // Whether the row was written is not known: then the file has to stay. If no row names it, it is
        // swept later.
        Err(SubmitError::Accept(AcceptError::Store(_))) => true,
        Err(_) => false,
    };
    if !wanted && let Some((blobs, name)) = file {
        remove_later(blobs, name);
    }
    kept.map_err(Problem::from)
}

/// A file of a submission, decoded.
struct Inline {
    name: String,
    media_type: Option<String>,
    bytes: Bytes,
}

impl InlineFile {
    fn read(self) -> Result<Inline, Problem> {
        let bad = |detail: &str| Problem::from(&problem::BODY_INVALID).detail(detail);
        let bytes = STANDARD.decode(self.data).map_err(|_| bad("`source.data` is not base64."))?;
        let media_type = match self.media_type {
            None => None,
            Some(text) => Some(media_essence(&text).ok_or_else(|| bad("`source.media_type` is none."))?),
        };
        Ok(Inline { name: self.name, media_type, bytes: bytes.into() })
    }
}

impl Inline {
    /// Into the file store.
    async fn take(self, api: &Api, runtime: &Runtime, job: JobId) -> Result<Taken, Problem> {
        let body = futures_util::stream::iter([Ok::<_, std::io::Error>(self.bytes)]);
        let mut taken = store(api, runtime, job, &self.name, body).await?;
        match self.media_type {
            Some(said) if taken.source.media_type == UNKNOWN => taken.source.media_type = said,
            Some(said) if taken.source.media_type != said => {
                let detail =
                    format!("It is {}, and `source.media_type` says otherwise.", taken.source.media_type);
                return Err(Problem::from(&problem::MEDIA_TYPE_MISMATCH).detail(detail));
            }
            _ => {}
        }
        Ok(taken)
    }
}

/// `type/subtype` in lower case, without parameters.
fn media_essence(text: &str) -> Option<String> {
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/')?;
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    (essence.len() <= 127 && token(kind) && token(subtype)).then_some(essence)
}

impl Submission {
    /// With nothing but a kind.
    pub(super) fn of_kind(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            params: None,
            priority: None,
            run_at: None,
            deadline: None,
            owner: None,
            source: None,
            unique: None,
            on: None,
            callback: None,
        }
    }

    /// The job that waits for the parts of a batch.
    pub(super) fn whole(self, api: &Api, caller: &Caller<JobsWrite>) -> Result<NewJob, Problem> {
        if self.source.is_some() || self.unique.is_some() || self.run_at.is_some() {
            let detail = "`whole` has no `source`, no `unique` and no `run_at`.";
            return Err(Problem::from(&problem::BODY_INVALID).detail(detail));
        }
        Ok(self.read(api, caller)?.0)
    }

    /// A part of a batch of that owner's.
    pub(super) fn part(
        mut self,
        api: &Api,
        caller: &Caller<JobsWrite>,
        owner: &str,
        at: usize,
    ) -> Result<NewJob, Problem> {
        let more = self.source.is_some() || self.unique.is_some() || self.on.is_some();
        if more || self.callback.is_some() || self.owner.is_some() {
            let detail =
                format!("`jobs[{at}]`: a part has `kind`, `params`, `priority`, `run_at` and `deadline`.");
            return Err(Problem::from(&problem::BODY_INVALID).detail(detail));
        }
        self.owner = Some(owner.to_owned());
        let mut part = self.read(api, caller)?.0;
        // What the configuration has come after jobs of the kind comes after those that stand alone.
        part.on = Vec::new();
        Ok(part)
    }

    /// The same for the same submission, however its JSON was written.
    fn fingerprint(&self) -> [u8; 32] {
        let mut parts = serde_json::json!([
            "jobs",
            self.kind,
            self.params,
            self.priority,
            self.run_at,
            self.deadline,
            self.owner,
            self.source.as_ref().map(|file| (&file.name, &file.media_type, &file.data))
        ]);
        // Only where they are given: a key of before there were such things stays good.
        if let (Some(parts), true) = (parts.as_array_mut(), self.unique.is_some() || self.on.is_some()) {
            parts.push(serde_json::json!([self.unique, self.on]));
        }
        if let (Some(parts), Some(callback)) = (parts.as_array_mut(), &self.callback) {
            parts.push(serde_json::json!({ "callback": callback }));
        }
        Sha256::digest(parts.to_string().as_bytes()).into()
    }

    fn read(self, api: &Api, caller: &Caller<JobsWrite>) -> Result<(NewJob, Option<Inline>), Problem> {
        let bad = |detail: String| Problem::from(&problem::BODY_INVALID).detail(detail);
        let callback = self.callback.as_ref().map(|callback| callback.read(api)).transpose()?;
        let owner = caller.identity.owner_of_new(self.owner.as_deref())?;
        let kind = Kind::new(self.kind).map_err(|error| bad(format!("`kind`: {error}.")))?;
        let time = |field: &str, text: Option<String>| match text {
            None => Ok(None),
            Some(text) => Timestamp::parse(&text)
                .filter(Timestamp::is_plausible)
                .map(Some)
                .ok_or_else(|| bad(format!("`{field}` is a time as in RFC 3339."))),
        };
        let params = self.params.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let mut job = NewJob::new(owner, kind, params);
        job.retry = api.config.retry(&job.kind);
        job.callback = callback;
        job.on =
            plans::follows(&api.config, &job.kind, self.on.as_ref()).map_err(|why| bad(format!("{why}.")))?;
        job.run_at = time("run_at", self.run_at)?;
        job.deadline = time("deadline", self.deadline)?;
        if let Some(priority) = self.priority {
            job.priority = Priority::new(priority).map_err(|_| bad("`priority` is 1 to 9.".into()))?;
        }
        Ok((job, self.source.map(InlineFile::read).transpose()?))
    }
}
