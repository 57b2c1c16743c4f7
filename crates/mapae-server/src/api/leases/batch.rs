//! Many reports in one call.

use axum::extract::{Request, State};
use futures_util::future::join_all;
use mapae::job::State as JobState;
use mapae::job::lease::Token;
use mapae::job::name::JobId;
use mapae::store::contract::Beat;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;
use utoipa::ToSchema;

use crate::api::Api;
use crate::api::auth::{Caller, JobsWork};
use crate::api::extract::read_json;
use crate::api::problem::{self, Problem, ProblemBody};

use super::report::{LeaseState, REPORT_BYTES_MAX, Report, Verb, act, read_token};
use super::{bad, length};

/// Most reports in one batch.
const BATCH_MAX: usize = 1_000;

/// One report of a batch.
#[derive(Deserialize, ToSchema)]
pub(in crate::api) struct BatchItem {
    job: String,
    #[serde(rename = "do")]
    verb: Verb,
    #[serde(flatten)]
    report: Report,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Batch {
    /// 1 to 1,000 reports. Each is answered by itself, in this order.
    items: Vec<Value>,
}

/// What became of one report.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct BatchAnswer {
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
pub(in crate::api) struct BatchAnswers {
    items: Vec<BatchAnswer>,
}

/// Many reports at once: `{"items": [{"job": …, "do": "complete", "token": …, …}]}`.
#[utoipa::path(
    post, path = "/v1/leases/batch", tag = "leases", request_body = Batch, security(("key" = ["jobs:work"])),
    responses((status = 200, body = BatchAnswers), (status = "default", body = ProblemBody)),
)]
pub(in crate::api) async fn batch(
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
