//! `/v1/labels`: examples that teach the classifier, in sets of their owner.
//!
//! A correction of a result is an example like any other: its label, and the job in place of a text.

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use mapae::job::name::{JobId, LabelName, Owner, SetName};
use mapae::store::contract::{Example, ExampleId, LabelSet, SET_EXAMPLES_MAX, Scope, TeachError};
use mapae_ai::classify::LabelFigures;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, JobsRead, JobsWrite};
use super::extract::{Query, parse, read_body};
use super::paging;
use super::problem::{self, Problem, ProblemBody};
use super::result::text_of;
use crate::ai::taught::TaughtError;
use crate::runtime::Runtime;

/// Bytes of a call that teaches.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Items of a call that are the result of a job: each is a file that is read.
const JOBS_MAX: usize = 50;
/// Examples on a page.
const LIMIT: usize = 50;
const LIMIT_MAX: usize = 200;

/// A set of labels.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LabelSet)]
pub(super) struct SetBody {
    #[schema(example = "post")]
    name: String,
    /// Descriptions of labels among them.
    examples: u32,
    labels: u32,
    /// Of titles and texts.
    bytes: u64,
    changed_at: String,
}

/// All of an owner's, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LabelSetList {
    items: Vec<SetBody>,
}

/// One example: a label with either a text that belongs under it, the job whose document does, or a description of
/// what belongs there.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewExample {
    #[schema(example = "invoice")]
    label: String,
    title: Option<String>,
    /// The first 6,000 characters are kept.
    text: Option<String>,
    /// The id of a job that has made a document: its text.
    job: Option<String>,
    /// In a few words, what belongs under the label.
    description: Option<String>,
}

/// What a set is to learn.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lesson {
    items: Vec<NewExample>,
}

/// An example of a set.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Example)]
pub(super) struct ExampleBody {
    id: String,
    label: String,
    title: Option<String>,
    text: Option<String>,
    description: Option<String>,
}

/// A page of them, in no order that means anything.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExampleList {
    items: Vec<ExampleBody>,
    cursor: Option<String>,
}

/// What was learnt of a set, and how well it answers for examples that it has not seen.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Report {
    set: SetBody,
    labels: Vec<String>,
    /// What decides: `model`, `examples` or `label-text`.
    by: &'static str,
    /// `null` where there are too few examples for one: four of each label are needed.
    validation: Option<Validation>,
    /// What made it poorer than it could be.
    warnings: Vec<&'static str>,
}

/// Shares are from 0 to 1.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Validation {
    examples: usize,
    accuracy: f64,
    /// The mean over labels.
    macro_f1: f64,
    /// Of the answers that were not `unsure`.
    accuracy_when_sure: f64,
    /// Answers that were not `unsure`.
    sure: f64,
    /// What is looked at, by its share: letters, words, meaning.
    blend: [f32; 3],
    labels: Vec<OfLabel>,
}

/// How the answers about one label were.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OfLabel {
    label: String,
    examples: usize,
    /// Of the answers that named it, the share that was right; `null` where none did.
    precision: Option<f64>,
    /// Of its examples, the share that was found.
    recall: Option<f64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// For keys of all owners; `default` where it is not given.
    owner: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// For keys of all owners; `default` where it is not given.
    owner: Option<String>,
    /// From the page before.
    cursor: Option<String>,
    /// 1 to 200, 50 where it is not given.
    limit: Option<usize>,
}

impl SetBody {
    fn of(set: &LabelSet) -> Self {
        Self {
            name: set.name.to_string(),
            examples: set.examples,
            labels: set.labels,
            bytes: set.bytes,
            changed_at: set.changed_at.to_string(),
        }
    }
}

impl ExampleBody {
    fn of(example: &Example) -> Self {
        let text = Some(example.text.clone());
        let (text, description) = if example.describes { (None, text) } else { (text, None) };
        Self {
            id: example.id().0.simple().to_string(),
            label: example.label.to_string(),
            title: Some(example.title.clone()).filter(|title| !title.is_empty()),
            text,
            description,
        }
    }
}

/// The owner's sets of labels.
#[utoipa::path(
    get, path = "/v1/labels", tag = "labels", params(Whose), security(("key" = ["jobs:read"])),
    responses((status = 200, body = LabelSetList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn sets(
    caller: Caller<JobsRead>,
    Query(whose): Query<Whose>,
) -> Result<axum::Json<LabelSetList>, Problem> {
    let owner = caller.identity.owner_of_new(whose.owner.as_deref())?;
    let sets = caller.runtime.store.label_sets(&owner).await?;
    Ok(axum::Json(LabelSetList { items: sets.iter().map(SetBody::of).collect() }))
}

/// Teaches the set, which is made where it is not there; all of the items or none. The same text again has its label
/// corrected.
#[utoipa::path(
    post, path = "/v1/labels/{set}", tag = "labels", params(("set" = String, Path), Whose),
    security(("key" = ["jobs:write"])),
    request_body(content((Lesson = "application/json"), (NewExample = "application/x-ndjson"))),
    responses((status = 200, body = SetBody), (status = "default", body = ProblemBody)),
)]
pub(super) async fn teach(
    State(api): State<Api>,
    caller: Caller<JobsWrite>,
    SetOf(set): SetOf,
    Query(whose): Query<Whose>,
    request: Request,
) -> Result<axum::Json<SetBody>, Problem> {
    let owner = caller.identity.owner_of_new(whose.owner.as_deref())?;
    let lines = is_lines(request.headers());
    let bytes = read_body(request, BODY_BYTES_MAX, api.config.http.timeout).await?;
    let items = if lines { parse_lines(&bytes)? } else { parse::<Lesson>(&bytes)?.items };
    // More than a set may have: nothing is read or written for them.
    if items.len() > SET_EXAMPLES_MAX {
        let detail = format!("A call has at most {SET_EXAMPLES_MAX} items, as many as a set has examples.");
        return Err(Problem::from(&problem::LABEL_SET_FULL).detail(detail));
    }
    if items.iter().filter(|item| item.job.is_some()).count() > JOBS_MAX {
        let detail = format!("At most {JOBS_MAX} items of a call may name a job.");
        return Err(Problem::from(&problem::BODY_INVALID).detail(detail));
    }
    let mut examples = Vec::with_capacity(items.len());
    for (number, item) in items.into_iter().enumerate() {
        examples.push(item.read(&api, &caller.runtime, &owner, number + 1).await?);
    }
    if examples.is_empty() {
        return Err(Problem::from(&problem::BODY_INVALID).detail("There are no items."));
    }
    let set = caller.runtime.store.teach(&owner, &set, &examples).await.map_err(refused)?;
    Ok(axum::Json(SetBody::of(&set)))
}

/// The examples of a set.
#[utoipa::path(
    get, path = "/v1/labels/{set}", tag = "labels", params(("set" = String, Path), Which),
    security(("key" = ["jobs:read"])),
    responses((status = 200, body = ExampleList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn show(
    caller: Caller<JobsRead>,
    SetOf(set): SetOf,
    Query(which): Query<Which>,
) -> Result<Response, Problem> {
    let owner = caller.identity.owner_of_new(which.owner.as_deref())?;
    let limit = which.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::from(&problem::QUERY_INVALID).detail("`limit` is 1 to 200."));
    }
    let after = which.cursor.as_deref().map(|text| example_id(text).ok_or(&problem::CURSOR_INVALID));
    let store = &caller.runtime.store;
    store.label_set(&owner, &set).await?.ok_or(&problem::LABELS_NOT_FOUND)?;
    let found = store.examples(&owner, &set, after.transpose()?, limit).await?;
    let items: Vec<ExampleBody> = found.iter().map(ExampleBody::of).collect();
    let cursor = items.last().filter(|_| items.len() == limit).map(|last| last.id.clone());
    let next = cursor.as_ref().map(|cursor| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &limit.to_string()).append_pair("cursor", cursor);
        if let Some(owner) = &which.owner {
            query.append_pair("owner", owner);
        }
        format!("/v1/labels/{set}?{}", query.finish())
    });
    Ok(paging::linked(axum::Json(ExampleList { items, cursor }), next))
}

/// Deletes a set with all its examples.
#[utoipa::path(
    delete, path = "/v1/labels/{set}", tag = "labels", params(("set" = String, Path), Whose),
    security(("key" = ["jobs:write"])),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn forget(
    caller: Caller<JobsWrite>,
    SetOf(set): SetOf,
    Query(whose): Query<Whose>,
) -> Result<StatusCode, Problem> {
    let owner = caller.identity.owner_of_new(whose.owner.as_deref())?;
    there(caller.runtime.store.forget(&owner, &set).await?)
}

/// Deletes one example.
#[utoipa::path(
    delete, path = "/v1/labels/{set}/{example}", tag = "labels",
    params(("set" = String, Path), ("example" = String, Path), Whose),
    security(("key" = ["jobs:write"])),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn unteach(
    caller: Caller<JobsWrite>,
    SetOf(set): SetOf,
    Path(path): Path<std::collections::HashMap<String, String>>,
    Query(whose): Query<Whose>,
) -> Result<StatusCode, Problem> {
    let owner = caller.identity.owner_of_new(whose.owner.as_deref())?;
    let id = path.get("example").and_then(|text| example_id(text));
    let id = id.ok_or(&problem::LABELS_NOT_FOUND)?;
    there(caller.runtime.store.unteach(&owner, &set, id).await?)
}

/// What is learnt of the set, by cross-validation on its examples.
#[utoipa::path(
    get, path = "/v1/labels/{set}/report", tag = "labels", params(("set" = String, Path), Whose),
    security(("key" = ["jobs:read"])),
    responses((status = 200, body = Report), (status = "default", body = ProblemBody)),
)]
pub(super) async fn report(
    caller: Caller<JobsRead>,
    SetOf(set): SetOf,
    Query(whose): Query<Whose>,
) -> Result<axum::Json<Report>, Problem> {
    let owner = caller.identity.owner_of_new(whose.owner.as_deref())?;
    let runtime = &caller.runtime;
    let local = runtime.understanding().await.map_err(|error| {
        tracing::warn!(%error, "a pack of models cannot be used");
        Problem::from(&problem::INTERNAL)
    })?;
    let learnt = runtime.taught.classifier(&owner, &set, local).await;
    let (set, classifier) = learnt.map_err(|error| match error {
        TaughtError::Unknown => (&problem::LABELS_NOT_FOUND).into(),
        TaughtError::Train(why) => Problem::from(&problem::LABELS_NOT_ENOUGH).detail(format!("{why}.")),
        TaughtError::Store(error) => error.into(),
        TaughtError::Ended => (&problem::INTERNAL).into(),
    })?;
    let validation = classifier.validation.as_ref().map(|v| Validation {
        examples: v.examples,
        accuracy: v.accuracy,
        macro_f1: v.macro_f1,
        accuracy_when_sure: v.accuracy_when_sure,
        sure: v.sure,
        blend: v.blend,
        labels: v.labels.iter().map(OfLabel::of).collect(),
    });
    Ok(axum::Json(Report {
        set: SetBody::of(&set),
        labels: classifier.labels().to_vec(),
        by: classifier.by().as_str(),
        validation,
        warnings: if local.embedder().is_some() { Vec::new() } else { vec!["models-missing"] },
    }))
}

impl OfLabel {
    fn of(figures: &LabelFigures) -> Self {
        let share = |of: usize| (of > 0).then(|| figures.right as f64 / of as f64);
        Self {
            label: figures.label.clone(),
            examples: figures.examples,
            precision: share(figures.told),
            recall: share(figures.examples),
        }
    }
}

impl NewExample {
    /// The example that this is. What is wrong with it is told by its number, never by what stood in it.
    async fn read(
        self,
        api: &Api,
        runtime: &Runtime,
        owner: &Owner,
        number: usize,
    ) -> Result<Example, Problem> {
        let bad =
            |what: &str| Problem::from(&problem::BODY_INVALID).detail(format!("Item {number}: {what}."));
        let label = LabelName::new(self.label.trim()).map_err(|error| bad(&format!("`label`: {error}")))?;
        let title = self.title.unwrap_or_default();
        let (text, describes) = match (self.text, self.job, self.description) {
            (Some(text), None, None) => (text, false),
            (None, None, Some(text)) => (text, true),
            (None, Some(job), None) => {
                let id: JobId = job.parse().map_err(|error| bad(&format!("`job`: {error}")))?;
                let text = text_of(api, runtime, &Scope::Owner(owner.clone()), id).await;
                (text.map_err(|problem| problem.detail(format!("Item {number}.")))?, false)
            }
            _ => return Err(bad("give one of `text`, `job` and `description`")),
        };
        Example::new(label, &title, &text, describes).ok_or_else(|| bad("its text is empty"))
    }
}

fn refused(error: TeachError) -> Problem {
    match error {
        TeachError::Store(error) => error.into(),
        full => Problem::from(&problem::LABEL_SET_FULL).detail(format!("{full}.")),
    }
}

fn parse_lines(bytes: &[u8]) -> Result<Vec<NewExample>, Problem> {
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    lines
        .map(|(number, line)| {
            parse(line).map_err(|problem| problem.detail(format!("Line {} cannot be read.", number + 1)))
        })
        .collect()
}

/// Whether the body has an item on each line, by any of the names that are in use for that.
fn is_lines(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    ["application/x-ndjson", "application/jsonl", "application/x-jsonlines"].contains(&essence.as_str())
}

fn example_id(text: &str) -> Option<ExampleId> {
    (text.len() == 32).then(|| text.parse().ok().map(ExampleId)).flatten()
}

fn there(found: bool) -> Result<StatusCode, Problem> {
    if found { Ok(StatusCode::NO_CONTENT) } else { Err((&problem::LABELS_NOT_FOUND).into()) }
}

/// The set in the path. A text that is no name of one names none.
pub(super) struct SetOf(SetName);

impl FromRequestParts<Api> for SetOf {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let path = Path::<std::collections::HashMap<String, String>>::from_request_parts(parts, api).await;
        let name = path.ok().and_then(|path| SetName::new(path.get("set")?.as_str()).ok());
        name.map(Self).ok_or_else(|| (&problem::LABELS_NOT_FOUND).into())
    }
}
