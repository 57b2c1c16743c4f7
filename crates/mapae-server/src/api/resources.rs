//! What is limited, and how much of it is in use.

use std::collections::BTreeMap;

use axum::extract::State;
use mapae::job::limit::{Gate, Limit, Rate};
use mapae::job::name::Kind;
use mapae::job::timestamp::Timestamp;
use mapae::store::contract::GateRow;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, JobsRead};
use super::figures::Counted;
use super::problem::{Problem, ProblemBody};
use crate::config::show_duration;
use crate::runtime::handler_resource;

#[derive(Serialize, ToSchema)]
#[schema(as = Resource)]
pub(super) struct ResourceBody {
    name: String,
    /// `process`: what each worker process has for itself. `global`: what there is over all of them.
    #[schema(value_type = String)]
    scope: &'static str,
    /// `null` where it is not limited.
    limit: Option<u64>,
    /// What running jobs hold of it over all workers; `null` where each process counts for itself.
    in_use: Option<u64>,
    /// How many jobs that need it may start in a time, as in `300/min`.
    rate: Option<String>,
    /// Nobody may use it before, because a service is left alone.
    shut_until: Option<String>,
    /// Per job of each kind that needs it, whatever the size of its file.
    #[schema(value_type = BTreeMap<String, u64>)]
    needs: BTreeMap<String, u64>,
    /// What is needed besides for each byte of a job's file.
    #[schema(value_type = BTreeMap<String, u64>)]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    needs_per_byte: BTreeMap<String, u64>,
    /// Kinds that wait for it now, on any worker.
    waiting: Vec<String>,
}

/// What limits a kind's jobs over all workers.
#[derive(Serialize, ToSchema)]
pub(super) struct KindLimitBody {
    kind: String,
    limit: Option<u64>,
    /// `null` where it is not limited, and so not counted.
    in_use: Option<u64>,
    rate: Option<String>,
    /// None of them starts before, because their service is left alone.
    shut_until: Option<String>,
    owner_limit: Option<u64>,
    owner_rate: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct ResourceList {
    items: Vec<ResourceBody>,
    kinds: Vec<KindLimitBody>,
}

/// The resources that jobs need and workers have, and the limits of kinds.
#[utoipa::path(
    get, path = "/v1/resources", tag = "runtime", security(("key" = ["jobs:read"])),
    responses((status = 200, body = ResourceList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn resources(
    State(api): State<Api>,
    caller: Caller<JobsRead>,
) -> Result<axum::Json<ResourceList>, Problem> {
    let now = caller.runtime.store.now().await?;
    let counted = api.figures.get(&api, &caller.runtime).await?;
    let items = bodies_at(&api, &counted, now);
    Ok(axum::Json(ResourceList { items, kinds: kinds(&api, &counted, now) }))
}

/// As of when they were counted: what was shut then is told even where that is over.
pub(super) fn bodies(api: &Api, counted: &Counted) -> Vec<ResourceBody> {
    bodies_at(api, counted, Timestamp::default())
}

fn bodies_at(api: &Api, counted: &Counted, now: Timestamp) -> Vec<ResourceBody> {
    let (config, workers) = (&api.config, &counted.workers);
    let mut names: Vec<&str> = config.resources.keys().map(String::as_str).collect();
    names.extend(config.kinds.values().flat_map(|kind| kind.needs.iter()).map(|(name, _)| name));
    let calls: BTreeMap<String, (&Kind, u64)> = config
        .handlers
        .iter()
        .map(|(kind, handler)| (handler_resource(kind), (kind, handler.concurrent as u64)))
        .collect();
    names.extend(calls.keys().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    let waiting = |name: &str| {
        let all = workers.iter().flat_map(|row| &row.report.waiting);
        let mut kinds: Vec<String> =
            all.filter(|(_, resource)| resource == name).map(|(kind, _)| kind.to_string()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    let needs = |name: &str| {
        let all = config.kinds.iter();
        all.filter_map(|(kind, settings)| Some((kind.to_string(), settings.needs.get(name)?)))
            .collect::<Vec<_>>()
    };
    names
        .into_iter()
        .map(|name| {
            let resource = config.resources.get(name).copied().unwrap_or_default();
            let call = calls.get(name);
            let called_by = call.map(|(kind, _)| (kind.to_string(), 1));
            let row = gate(counted, &Gate::Resource(name.to_owned()));
            ResourceBody {
                name: name.to_owned(),
                scope: if resource.global { "global" } else { "process" },
                limit: call.map(|(_, concurrent)| *concurrent).or(resource.limit.concurrent),
                in_use: resource.global.then(|| row.map_or(0, |row| row.account.in_use)),
                rate: resource.limit.rate.map(show_rate),
                shut_until: shut(row, now),
                needs: needs(name)
                    .into_iter()
                    .map(|(kind, need)| (kind, need.base))
                    .chain(called_by)
                    .collect(),
                needs_per_byte: needs(name)
                    .into_iter()
                    .filter(|(_, need)| need.per_byte > 0)
                    .map(|(kind, need)| (kind, need.per_byte))
                    .collect(),
                waiting: waiting(name),
            }
        })
        .collect()
}

fn kinds(api: &Api, counted: &Counted, now: Timestamp) -> Vec<KindLimitBody> {
    api.known_kinds()
        .into_iter()
        .filter_map(|kind| {
            let settings = api.config.kinds.get(&kind);
            let whole = settings.map_or(Limit::default(), |settings| settings.whole);
            let owner = settings.map_or(Limit::default(), |settings| settings.per_owner);
            let row = gate(counted, &Gate::Kind(kind.clone()));
            let shut_until = shut(row, now);
            let told = !whole.is_none() || !owner.is_none() || shut_until.is_some();
            told.then(|| KindLimitBody {
                kind: kind.to_string(),
                limit: whole.concurrent,
                in_use: whole.concurrent.map(|_| row.map_or(0, |row| row.account.in_use)),
                rate: whole.rate.map(show_rate),
                shut_until,
                owner_limit: owner.concurrent,
                owner_rate: owner.rate.map(show_rate),
            })
        })
        .collect()
}

fn gate<'a>(counted: &'a Counted, gate: &Gate) -> Option<&'a GateRow> {
    counted.gates.iter().find(|row| row.gate == *gate && row.owner.is_none())
}

fn shut(row: Option<&GateRow>, now: Timestamp) -> Option<String> {
    row?.account.shut_until.filter(|until| *until > now).map(|until| until.to_string())
}

/// As the configuration has it.
pub(crate) fn show_rate(rate: Rate) -> String {
    let per = match rate.per.as_secs() {
        1 => "s".to_owned(),
        60 => "min".to_owned(),
        3600 => "h".to_owned(),
        86_400 => "d".to_owned(),
        _ => show_duration(rate.per),
    };
    format!("{}/{per}", rate.starts)
}
