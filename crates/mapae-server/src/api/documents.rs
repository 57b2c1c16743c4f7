//! `POST /v1/documents`: a file and the job that works on it, as multipart or as the raw body.
//!
//! ```text
//! admission ─► file, chunk by chunk, into the file store ─► row ─► 202
//! ```
//! The answer is given only when both the file and the row are durable.

use axum::extract::multipart::Field;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use mapae::blob::{BlobError, PutLimits};
use mapae::job::name::{Class, JobId, Kind, Lane, Owner, SetName};
use mapae::job::record::{NewJob, PARAMS_BYTES_MAX};
use mapae::store::contract::Store;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, JobsWrite};
use super::extract::{Query, content_length, idempotency_key, parse, preferred_wait, trace};
use super::jobs::accepted;
use super::model::JobBody;
use super::problem::{self, Problem, ProblemBody};
use super::submit::{Sameness, accept_with_file};
use crate::documents::KIND;
use crate::plans;
use crate::runtime::Runtime;
use crate::upload::{Names, Taken, UploadError, patient, take};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Upload {
    /// The file's name, for a raw body.
    name: Option<String>,
    /// `document.analyze` where it is not given.
    kind: Option<String>,
    /// JSON.
    params: Option<String>,
    /// The set of labels that decides on the document's class.
    labels: Option<String>,
    /// For keys of all owners.
    owner: Option<String>,
}

/// The parts of a multipart body.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document; it is read part by part")]
pub(super) struct UploadForm {
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
    /// `document.analyze` where it is not given.
    kind: Option<String>,
    /// JSON.
    params: Option<String>,
    /// The set of labels that decides on the document's class.
    labels: Option<String>,
}

/// Accepts a file and makes the job that works on it.
#[utoipa::path(
    post, path = "/v1/documents", tag = "jobs", security(("key" = ["jobs:write"])),
    params(
        Upload,
        ("Idempotency-Key" = Option<String>, Header, description = "Sent twice, one job is made."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: answer with 200 if it ends within N seconds."),
    ),
    request_body(content((UploadForm = "multipart/form-data"), (Vec<u8> = "application/octet-stream"))),
    responses(
        (status = 200, description = "It has ended already.", body = JobBody),
        (status = 202, description = "File and job are kept.", body = JobBody,
         headers(("Location" = String), ("Retry-After" = u64))),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn upload(
    State(api): State<Api>,
    caller: Caller<JobsWrite>,
    Query(query): Query<Upload>,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let idempotency = idempotency_key(&headers)?;
    let owner = caller.identity.owner_of_new(query.owner.as_deref())?;
    let mut form = Form::of_query(query)?;
    let lane = Lane { kind: form.kind.clone(), class: Class::Normal };
    // One that was accepted before is no more work, whatever its owner's limit says; whether it is the same is
    // seen when its body has been read.
    let all = caller.identity.owner.is_none();
    let first = match &idempotency {
        Some(key) => caller.runtime.store.submission(&owner, key).await?,
        None => None,
    };
    if first.is_none() {
        api.admit(&*caller.runtime.store, &lane, &[], &owner, all, 1).await?;
    }
    let _place = api.admission.upload(content_length(&headers))?;

    let id = JobId::new();
    let taken = if is_multipart(&headers) {
        form.read(&api, &caller.runtime, id, request).await?
    } else {
        let name = form.name.clone().or_else(|| disposition_name(&headers)).unwrap_or_default();
        let body = request.into_body().into_data_stream();
        store(&api, &caller.runtime, id, &name, body).await?
    };
    // A part of the form may have named another kind than the query.
    if first.is_none() && form.kind != lane.kind {
        let lane = Lane { kind: form.kind.clone(), class: Class::Normal };
        api.admit(&*caller.runtime.store, &lane, &[], &owner, all, 1).await?;
    }

    form.join_labels(&owner, &*caller.runtime.store).await?;
    let fingerprint = form.fingerprint(&owner, &taken);
    let mut job = NewJob::new(owner, form.kind, form.params);
    job.id = id;
    job.retry = api.config.retry(&job.kind);
    job.on = plans::follows(&api.config, &job.kind, None)
        .map_err(|why| Problem::from(&problem::BODY_INVALID).detail(format!("{why}.")))?;
    let sameness = Sameness::of_kind(&api, &job.kind);
    job.trace = trace(&headers);
    job.idempotency = idempotency.map(|key| (key, fingerprint));
    let kept = accept_with_file(&api, &caller.runtime, job, taken, sameness).await?;
    accepted(&api, &caller.runtime, &caller.scope(), kept, preferred_wait(&headers)).await
}

/// What was said about the file.
struct Form {
    name: Option<String>,
    kind: Kind,
    params: Value,
    labels: Option<SetName>,
}

impl Form {
    fn of_query(query: Upload) -> Result<Self, Problem> {
        let mut form = Self {
            name: query.name,
            kind: Kind::new(KIND).expect("a valid kind"),
            params: Value::Object(serde_json::Map::new()),
            labels: None,
        };
        if let Some(kind) = query.kind {
            form.set_kind(&kind)?;
        }
        if let Some(params) = query.params {
            form.set_params(params.as_bytes())?;
        }
        if let Some(labels) = query.labels {
            form.set_labels(&labels)?;
        }
        Ok(form)
    }

    fn set_kind(&mut self, text: &str) -> Result<(), Problem> {
        let bad = |error| Problem::from(&problem::BODY_INVALID).detail(format!("`kind`: {error}."));
        self.kind = Kind::new(text).map_err(bad)?;
        Ok(())
    }

    fn set_labels(&mut self, text: &str) -> Result<(), Problem> {
        let bad = |error| Problem::from(&problem::BODY_INVALID).detail(format!("`labels`: {error}."));
        self.labels = Some(SetName::new(text).map_err(bad)?);
        Ok(())
    }

    /// The labels are one of the params, and are there: better refused now than failed later.
    async fn join_labels(&mut self, owner: &Owner, store: &dyn Store) -> Result<(), Problem> {
        let Some(set) = self.labels.take() else { return Ok(()) };
        store.label_set(owner, &set).await?.ok_or(&problem::LABELS_NOT_FOUND)?;
        let bad = "`params` is to be an object where `labels` is given.";
        let params = self.params.as_object_mut();
        let params = params.ok_or_else(|| Problem::from(&problem::BODY_INVALID).detail(bad))?;
        params.insert("labels".to_owned(), set.to_string().into());
        Ok(())
    }

    fn set_params(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.params = parse(bytes)?;
        Ok(())
    }

    /// Reads the parts in whatever order they come; the file goes to the file store as it comes.
    async fn read(
        &mut self,
        api: &Api,
        runtime: &Runtime,
        id: JobId,
        request: Request,
    ) -> Result<Taken, Problem> {
        let malformed = |detail: &str| Problem::from(&problem::MULTIPART_INVALID).detail(detail);
        let mut parts = Multipart::from_request(request, api)
            .await
            .map_err(|_| malformed("The Content-Type has no boundary."))?;
        let mut taken: Option<Taken> = None;
        let patience = api.config.http.timeout;
        loop {
            let next = tokio::time::timeout(patience, parts.next_field()).await;
            let next = next.map_err(|_| Problem::from(&problem::REQUEST_TIMEOUT))?;
            let Some(mut part) = next.map_err(|error| of_multipart(&error))? else { break };
            match part.name().unwrap_or_default() {
                "file" if taken.is_some() => return Err(malformed("There is more than one part `file`.")),
                "file" => {
                    let name = part.file_name().map(str::to_owned);
                    let name = self.name.clone().or(name).unwrap_or_default();
                    taken = Some(store(api, runtime, id, &name, part).await?);
                }
                "kind" => {
                    let text = small(&mut part, Kind::MAX + 1, patience).await?;
                    self.set_kind(&String::from_utf8_lossy(&text))?;
                }
                "params" => {
                    let bytes = small(&mut part, 2 * PARAMS_BYTES_MAX, patience).await?;
                    self.set_params(&bytes)?;
                }
                "labels" => {
                    let text = small(&mut part, SetName::MAX + 1, patience).await?;
                    self.set_labels(&String::from_utf8_lossy(&text))?;
                }
                _ => return Err(malformed("The parts are `file`, `kind`, `params` and `labels`.")),
            }
        }
        taken.ok_or_else(|| malformed("There is no part `file`."))
    }

    fn fingerprint(&self, owner: &Owner, taken: &Taken) -> [u8; 32] {
        let source = &taken.source;
        let parts = serde_json::json!([
            "documents",
            owner,
            self.kind,
            self.params,
            source.name,
            source.bytes,
            source.sha256
        ]);
        Sha256::digest(parts.to_string().as_bytes()).into()
    }
}

/// Into the file store, checked; nothing is kept on an error.
pub(super) async fn store<S, E>(
    api: &Api,
    runtime: &Runtime,
    id: JobId,
    name: &str,
    body: S,
) -> Result<Taken, Problem>
where
    S: futures_util::Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let body = patient(body, api.config.http.timeout);
    let limits = PutLimits { bytes_max: api.config.limits.upload };
    take(&runtime.blobs, id, name, Names::Checked, body, limits).await.map_err(|error| match error {
        UploadError::Empty => (&problem::FILE_EMPTY).into(),
        UploadError::Mismatch { named, found } => Problem::from(&problem::MEDIA_TYPE_MISMATCH)
            .detail(format!("The name says {named}, the content is {found}.")),
        UploadError::Blobs(error) => of_blobs(api, error),
    })
}

/// The one place where an error of the file store meets a request, so it is logged here.
pub(super) fn of_blobs(api: &Api, error: BlobError) -> Problem {
    match error {
        BlobError::TooLarge { .. } => return api.admission.too_large(),
        BlobError::BodyCut(cause) if cause.kind() == std::io::ErrorKind::TimedOut => {
            return (&problem::REQUEST_TIMEOUT).into();
        }
        BlobError::BodyCut(_) => return (&problem::BODY_CUT).into(),
        _ => {}
    }
    tracing::warn!(code = error.code(), "a request met an error of the file store");
    match error {
        BlobError::Missing => (&problem::RESULT_EXPIRED).into(),
        BlobError::Full(_) | BlobError::ReadOnly(_) => (&problem::STORAGE_FULL).into(),
        _ => (&problem::FILES_UNAVAILABLE).into(),
    }
}

/// A whole part of at most `max` bytes.
async fn small(part: &mut Field<'_>, max: usize, patience: std::time::Duration) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    loop {
        let next = tokio::time::timeout(patience, part.next()).await;
        let Some(chunk) = next.map_err(|_| Problem::from(&problem::REQUEST_TIMEOUT))? else { break };
        bytes.extend_from_slice(&chunk.map_err(|error| of_multipart(&error))?);
        if bytes.len() > max {
            let detail = format!("A part other than the file may be at most {max} bytes.");
            return Err(Problem::from(&problem::BODY_TOO_LARGE).detail(detail));
        }
    }
    Ok(bytes)
}

fn of_multipart(error: &axum::extract::multipart::MultipartError) -> Problem {
    // The connection ended, or what came is no multipart body: the first is told by its own words.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if text.contains("incomplete") || text.contains("connection") || text.contains("reading a body") {
            return (&problem::BODY_CUT).into();
        }
        cause = error.source();
    }
    (&problem::MULTIPART_INVALID).into()
}

fn is_multipart(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.trim_start().to_ascii_lowercase().starts_with("multipart/form-data")
}

/// The name in `Content-Disposition: attachment; filename="…"` (RFC 6266), `filename*` first.
fn disposition_name(headers: &HeaderMap) -> Option<String> {
    let text = std::str::from_utf8(headers.get(header::CONTENT_DISPOSITION)?.as_bytes()).ok()?;
    let parameter = |name: &str| {
        text.split(';').find_map(|part| part.trim().strip_prefix(name)?.trim_start().strip_prefix('='))
    };
    if let Some(extended) = parameter("filename*") {
        let encoded = extended.trim().rsplit('\'').next().unwrap_or_default();
        return Some(percent_decoded(encoded));
    }
    parameter("filename").map(|name| name.trim().trim_matches('"').to_owned())
}

fn percent_decoded(text: &str) -> String {
    // A form is percent-encoded but for `+`, which here stands for itself.
    let query = format!("x={}", text.replace('+', "%2B"));
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}
