//! Schedules: what comes when, and pausing, resuming and running one by hand.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use mapae::job::name::ScheduleName;
use mapae::job::schedule::{Cron, Plan};
use mapae::store::contract::{Schedule, Scope};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Admin, Caller, JobsRead};
use super::jobs::accepted;
use super::model::JobBody;
use super::problem::{self, Problem, ProblemBody};

/// A schedule and when it ticks.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(super) struct ScheduleBody {
    #[schema(example = "nightly-report")]
    name: String,
    owner: String,
    kind: String,
    #[schema(example = "30 2 * * MON-FRI")]
    cron: String,
    #[schema(example = "Asia/Seoul")]
    zone: String,
    /// What becomes of missed ticks: `skip`, `one` or `all`.
    missed: &'static str,
    paused: bool,
    /// `null` where it is paused or never ticks again.
    next_at: Option<String>,
    /// The last tick that there is a job for, and that job.
    last_at: Option<String>,
    last_job: Option<String>,
    /// Whether the server that answers has it in its configuration. One that no process has does not tick.
    configured: bool,
}

/// All schedules, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ScheduleList {
    items: Vec<ScheduleBody>,
}

impl ScheduleBody {
    fn of(schedule: &Schedule, configured: bool) -> Self {
        Self {
            name: schedule.name.to_string(),
            owner: schedule.owner.to_string(),
            kind: schedule.kind.to_string(),
            cron: schedule.cron.clone(),
            zone: schedule.zone.clone(),
            missed: schedule.missed.as_str(),
            paused: schedule.paused,
            next_at: schedule.next_at.filter(|_| !schedule.paused).map(|at| at.to_string()),
            last_at: schedule.last.map(|(at, _)| at.to_string()),
            last_job: schedule.last.map(|(_, job)| job.to_string()),
            configured,
        }
    }
}

/// What comes when. A key of one owner is shown that owner's schedules.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "runtime", security(("key" = ["jobs:read"])),
    responses((status = 200, body = ScheduleList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller<JobsRead>,
) -> Result<axum::Json<ScheduleList>, Problem> {
    let scope = caller.scope();
    let all = caller.runtime.store.schedules().await?;
    let shown = all.iter().filter(|schedule| match &scope {
        Scope::All => true,
        Scope::Owner(owner) => *owner == schedule.owner,
    });
    let items = shown.map(|schedule| ScheduleBody::of(schedule, planned(&api, &schedule.name).is_some()));
    Ok(axum::Json(ScheduleList { items: items.collect() }))
}

/// It makes no job until it is resumed.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/pause", tag = "runtime", security(("key" = ["admin"])),
    params(("name" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn pause(caller: Caller<Admin>, Named(name): Named) -> Result<StatusCode, Problem> {
    there(caller.runtime.store.pause_schedule(&name).await?)
}

/// It goes on with its next tick. What came while it was paused was not missed.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/resume", tag = "runtime", security(("key" = ["admin"])),
    params(("name" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn resume(caller: Caller<Admin>, Named(name): Named) -> Result<StatusCode, Problem> {
    let store = &caller.runtime.store;
    let known = store.schedules().await?.into_iter().find(|schedule| schedule.name == name);
    let known = known.ok_or(&problem::SCHEDULE_NOT_FOUND)?;
    let now = store.now().await?;
    // The time table as it is kept: the configuration of this process may be another by now.
    let next = Cron::new(&known.cron, &known.zone).ok().and_then(|cron| cron.after(now));
    there(store.resume_schedule(&name, next).await?)
}

/// Its job now, apart from its ticks.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/run", tag = "runtime", security(("key" = ["admin"])),
    params(("name" = String, Path)),
    responses(
        (status = 202, description = "The job is kept.", body = JobBody, headers(("Location" = String))),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn run(
    State(api): State<Api>,
    caller: Caller<Admin>,
    Named(name): Named,
) -> Result<Response, Problem> {
    let plan = planned(&api, &name).ok_or(&problem::SCHEDULE_NOT_FOUND)?;
    let mut job = plan.job(caller.runtime.store.now().await?);
    job.run_at = None;
    let kept = caller.runtime.accept.accept(job).await?;
    accepted(&api, &caller.runtime, &caller.scope(), kept, None).await
}

fn planned<'a>(api: &'a Api, name: &ScheduleName) -> Option<&'a Plan> {
    api.config.schedules.iter().find(|plan| plan.name == *name)
}

fn there(found: bool) -> Result<StatusCode, Problem> {
    if found { Ok(StatusCode::NO_CONTENT) } else { Err((&problem::SCHEDULE_NOT_FOUND).into()) }
}

/// The schedule in the path. A text that is no name of one names none.
pub(super) struct Named(ScheduleName);

impl FromRequestParts<Api> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let name = Path::<String>::from_request_parts(parts, api).await.ok();
        let name = name.and_then(|name| ScheduleName::new(name.0).ok());
        name.map(Self).ok_or_else(|| (&problem::SCHEDULE_NOT_FOUND).into())
    }
}
