//! Dead letters: jobs that failed for good. A person looks, then sends them back to work or closes them.
//!
//! Closing (`resolve`) deletes the job and its files: somebody has seen to it by other means.

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use mapae::job::State;
use mapae::job::name::{Assignee, JobId};
use mapae::job::record::Job;
use mapae::job::retry::Failure;
use mapae::store::contract::{ControlError, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, DeadWrite, JobsRead};
use super::extract::{Json, Query};
use super::jobs::{Filter, page_of, write_cursor};
use super::model::JobList;
use super::problem::{self, Problem, ProblemBody};
use crate::runtime::Runtime;

/// Most dead letters that one call acts on, and most pages it looks at for them; what is left is told by `more`.
const MAX: usize = 1000;
const PAGES_MAX: usize = 50;

/// Which dead letters: either by id, or all that fit a filter.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    ids: Option<Vec<String>>,
    filter: Option<WhichFilter>,
    /// Nothing is done; the answer says what would be.
    #[serde(default)]
    dry_run: bool,
}

/// Which dead letters, and whose they are from now on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Assign {
    ids: Option<Vec<String>>,
    filter: Option<WhichFilter>,
    /// Nothing is done; the answer says what would be.
    #[serde(default)]
    dry_run: bool,
    /// A person or a team: 1 to 128 bytes of text without control characters. `null`: nobody's.
    #[schema(required, min_length = 1, max_length = 128)]
    #[serde(deserialize_with = "given")]
    assignee: Option<String>,
}

/// `null` has to be said: a forgotten field takes nobody's work away.
fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(from)
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhichFilter {
    kind: Option<String>,
    /// For keys of all owners.
    owner: Option<String>,
    /// Part of the file's name, or the beginning of an id.
    q: Option<String>,
    /// The code of the failure.
    code: Option<String>,
    /// Only those that nobody looks after.
    #[serde(default)]
    unassigned: bool,
    /// From the answer before.
    cursor: Option<String>,
}

/// What was done, or would be.
#[derive(Serialize, ToSchema)]
pub(super) struct Done {
    pub dry_run: bool,
    /// Acted on.
    pub done: Vec<String>,
    /// Asked for by id and not a dead letter of the caller's.
    pub refused: Vec<String>,
    /// There may be more that fit the filter: ask again with its `cursor`.
    pub more: bool,
    /// Where the next call goes on.
    pub cursor: Option<String>,
}

/// Dead letters, newest first.
#[utoipa::path(
    get, path = "/v1/dead", tag = "dead", params(Filter), security(("key" = ["jobs:read"])),
    responses((status = 200, body = JobList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn list(
    caller: Caller<JobsRead>,
    Query(mut filter): Query<Filter>,
) -> Result<Response, Problem> {
    if filter.state.is_some() {
        return Err(Problem::from(&problem::QUERY_INVALID).detail("Dead letters have one `state`: failed."));
    }
    filter.state = Some(State::Failed.as_str().to_owned());
    page_of(&caller.runtime, caller.scope(), &filter, "/v1/dead").await
}

/// Sends dead letters back to work, each with a fresh budget and its history.
#[utoipa::path(
    post, path = "/v1/dead/redrive", tag = "dead", request_body = Which, security(("key" = ["dead:write"])),
    responses((status = 200, body = Done), (status = "default", body = ProblemBody)),
)]
pub(super) async fn redrive(
    Shared(api): Shared<Api>,
    caller: Caller<DeadWrite>,
    Json(which): Json<Which>,
) -> Result<Response, Problem> {
    act(&api, &caller, &which, &Act::Redrive).await
}

/// Closes dead letters: the jobs and their files go.
#[utoipa::path(
    post, path = "/v1/dead/resolve", tag = "dead", request_body = Which, security(("key" = ["dead:write"])),
    responses((status = 200, body = Done), (status = "default", body = ProblemBody)),
)]
pub(super) async fn resolve(
    Shared(api): Shared<Api>,
    caller: Caller<DeadWrite>,
    Json(which): Json<Which>,
) -> Result<Response, Problem> {
    act(&api, &caller, &which, &Act::Resolve).await
}

/// Says who looks after dead letters, until they are sent back to work.
#[utoipa::path(
    post, path = "/v1/dead/assign", tag = "dead", request_body = Assign, security(("key" = ["dead:write"])),
    responses((status = 200, body = Done), (status = "default", body = ProblemBody)),
)]
pub(super) async fn assign(
    Shared(api): Shared<Api>,
    caller: Caller<DeadWrite>,
    Json(body): Json<Assign>,
) -> Result<Response, Problem> {
    let assignee = body.assignee.map(Assignee::new).transpose();
    let assignee = assignee.map_err(|bad| Problem::from(&problem::BODY_INVALID).detail(format!("{bad}.")))?;
    let which = Which { ids: body.ids, filter: body.filter, dry_run: body.dry_run };
    act(&api, &caller, &which, &Act::Assign(assignee)).await
}

enum Act {
    Redrive,
    Resolve,
    Assign(Option<Assignee>),
}

impl Act {
    /// Whether this does anything to the dead letter: who asks again while there are `more` comes to an end.
    fn changes(&self, job: &Job) -> bool {
        match self {
            Self::Redrive | Self::Resolve => true,
            Self::Assign(to) => job.assignee != *to,
        }
    }
}

impl WhichFilter {
    /// What the store's own filter leaves open.
    fn fits(&self, job: &Job) -> bool {
        let code = |failure: &Failure| self.code.as_ref().is_none_or(|code| failure.code == *code);
        job.failure.as_ref().is_none_or(code) && !(self.unassigned && job.assignee.is_some())
    }
}

async fn act(api: &Api, caller: &Caller<DeadWrite>, which: &Which, act: &Act) -> Result<Response, Problem> {
    let scope = caller.scope();
    let runtime = &caller.runtime;
    let chosen = choose(runtime, &scope, which, act).await?;
    let mut done = Done {
        dry_run: which.dry_run,
        done: Vec::new(),
        refused: chosen.unknown,
        more: chosen.next.is_some(),
        cursor: chosen.next.map(write_cursor),
    };
    for id in chosen.jobs {
        if api.stop.is_cancelled() {
            done.more = true;
            done.cursor = which.filter.as_ref().and_then(|filter| filter.cursor.clone());
            break;
        }
        let acted = if which.dry_run { Ok(()) } else { one(runtime, &scope, id, act).await };
        match acted {
            Ok(()) => done.done.push(id.to_string()),
            Err(ControlError::NotFound | ControlError::Conflict(_)) => done.refused.push(id.to_string()),
            Err(ControlError::Store(error)) => return Err(error.into()),
        }
    }
    Ok(axum::Json(done).into_response())
}

async fn one(runtime: &Runtime, scope: &Scope, id: JobId, act: &Act) -> Result<(), ControlError> {
    match act {
        Act::Redrive => runtime.store.redrive(scope, id).await,
        Act::Resolve => runtime.store.resolve(scope, id).await,
        Act::Assign(to) => runtime.store.assign(scope, id, to.as_ref()).await,
    }
}

/// The dead letters meant.
#[derive(Default)]
struct Chosen {
    jobs: Vec<JobId>,
    /// Ids that are none.
    unknown: Vec<String>,
    /// After which there may be more.
    next: Option<JobId>,
}

async fn choose(runtime: &Runtime, scope: &Scope, which: &Which, act: &Act) -> Result<Chosen, Problem> {
    let bad = |detail: String| Problem::from(&problem::BODY_INVALID).detail(detail);
    match (&which.ids, &which.filter) {
        (Some(ids), None) if ids.len() > MAX => Err(bad(format!("`ids` are at most {MAX}."))),
        (Some(ids), None) => {
            let mut chosen = Chosen::default();
            for text in ids {
                let id = text.parse::<JobId>().map_err(|_| bad("An entry of `ids` is no id.".into()))?;
                match runtime.store.job(scope, id).await? {
                    Some(job) if job.state == State::Failed => chosen.jobs.push(id),
                    _ => chosen.unknown.push(id.to_string()),
                }
            }
            Ok(chosen)
        }
        (None, Some(filter)) => by_filter(runtime, scope, filter, act).await,
        _ => Err(bad("Give either `ids` or `filter`.".into())),
    }
}

async fn by_filter(
    runtime: &Runtime,
    scope: &Scope,
    wanted: &WhichFilter,
    act: &Act,
) -> Result<Chosen, Problem> {
    let filter = Filter {
        state: Some(State::Failed.as_str().to_owned()),
        kind: wanted.kind.clone(),
        owner: wanted.owner.clone(),
        q: wanted.q.clone(),
        cursor: wanted.cursor.clone(),
        ..Filter::default()
    };
    let (scope, filter, mut page) = filter.read(scope.clone())?;
    let mut chosen = Chosen::default();
    let Some(scope) = scope else { return Ok(chosen) };
    for _ in 0..PAGES_MAX {
        page.limit = (MAX - chosen.jobs.len()).min(200);
        let found = runtime.store.jobs(&scope, &filter, &page).await?;
        let fitting = found.jobs.iter().filter(|job| wanted.fits(job) && act.changes(job));
        chosen.jobs.extend(fitting.map(|job| job.id));
        page.after = found.next;
        if found.next.is_none() || chosen.jobs.len() == MAX {
            break;
        }
    }
    chosen.next = page.after;
    Ok(chosen)
}
