//! Telling the outside, as people look after it: who is told, what was given up, telling it again.

use axum::extract::State;
use axum::response::Response;
use mapae::job::event::Position;
use mapae::job::name::JobId;
use mapae::job::timestamp::Timestamp;
use mapae::store::contract::{EventFilter, Receiver, Scope, Undelivered};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Admin, Caller, DeadWrite, JobsRead, JobsWrite};
use super::extract::{Json, Query};
use super::paging;
use super::problem::{self, Problem, ProblemBody};

/// Most that one call acts on.
const MAX: usize = 1_000;

/// Events that one replay looks at, so many at a time.
const REPLAY_PAGES: usize = 50;

/// Up to this what stands before a receiver is counted.
const COUNTED_MAX: usize = 10_000;

/// An event that a receiver did not take.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Undelivered)]
pub(super) struct UndeliveredBody {
    id: String,
    /// A receiver of the configuration, or the owner and the host of a callback.
    receiver: String,
    job: String,
    sequence: u64,
    owner: String,
    kind: String,
    #[schema(example = "succeeded")]
    event: &'static str,
    tries: u32,
    /// Why it was not taken the last time.
    #[schema(example = "receiver-answered-500")]
    code: String,
    dead_at: String,
}

impl UndeliveredBody {
    fn of(one: &Undelivered) -> Self {
        Self {
            id: one.id.to_string(),
            receiver: one.receiver.clone(),
            job: one.job.to_string(),
            sequence: one.sequence,
            owner: one.owner.clone(),
            kind: one.kind.to_string(),
            event: one.event.as_str(),
            tries: one.tries,
            code: one.code.clone(),
            dead_at: one.dead_at.to_string(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UndeliveredList {
    items: Vec<UndeliveredBody>,
    /// Where the next page begins; `null` on the last.
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WhichDead {
    /// Only of this receiver.
    receiver: Option<String>,
    /// From the page before.
    cursor: Option<String>,
    /// 1 to 200, 50 where it is not given.
    limit: Option<usize>,
}

/// Events that were given up, the newest first.
#[utoipa::path(
    get, path = "/v1/events/dead", tag = "events", params(WhichDead), security(("key" = ["jobs:read"])),
    responses((status = 200, body = UndeliveredList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn dead(
    caller: Caller<JobsRead>,
    Query(which): Query<WhichDead>,
) -> Result<Response, Problem> {
    let limit = which.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(Problem::from(&problem::QUERY_INVALID).detail("`limit` is 1 to 200."));
    }
    let before = which.cursor.as_deref().map(str::parse).transpose();
    let before = before.map_err(|_| &problem::CURSOR_INVALID)?;
    let store = &caller.runtime.store;
    let found = store.undelivered(&caller.scope(), which.receiver.as_deref(), before, limit).await?;
    let cursor = found.last().filter(|_| found.len() == limit).map(|last| last.id.to_string());
    let next = cursor.as_ref().map(|cursor| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &limit.to_string()).append_pair("cursor", cursor);
        if let Some(receiver) = &which.receiver {
            query.append_pair("receiver", receiver);
        }
        format!("/v1/events/dead?{}", query.finish())
    });
    let list = UndeliveredList { items: found.iter().map(UndeliveredBody::of).collect(), cursor };
    Ok(paging::linked(axum::Json(list), next))
}

/// Which events that were given up: either by id, or all, or all of a receiver.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Chosen {
    ids: Option<Vec<String>>,
    /// All that there are.
    #[serde(default)]
    all: bool,
    /// All of this receiver.
    receiver: Option<String>,
}

/// What was done.
#[derive(Serialize, ToSchema)]
#[schema(as = Resent)]
pub(super) struct Acted {
    done: Vec<String>,
    /// Asked for by id and not one that was given up.
    refused: Vec<String>,
    /// There are more: ask again.
    more: bool,
}

/// Tells them again, as if they were new.
#[utoipa::path(
    post, path = "/v1/events/resend", tag = "events", request_body = Chosen, security(("key" = ["dead:write"])),
    responses((status = 200, body = Acted), (status = "default", body = ProblemBody)),
)]
pub(super) async fn resend(
    caller: Caller<DeadWrite>,
    Json(chosen): Json<Chosen>,
) -> Result<axum::Json<Acted>, Problem> {
    let (ids, more) = choose(&caller, &chosen).await?;
    let done = caller.runtime.store.resend(&caller.scope(), &ids).await?;
    Ok(acted(&ids, &done, more))
}

/// Forgets them: nobody is told.
#[utoipa::path(
    post, path = "/v1/events/resolve", tag = "events", request_body = Chosen, security(("key" = ["dead:write"])),
    responses((status = 200, body = Acted), (status = "default", body = ProblemBody)),
)]
pub(super) async fn resolve(
    caller: Caller<DeadWrite>,
    Json(chosen): Json<Chosen>,
) -> Result<axum::Json<Acted>, Problem> {
    let (ids, more) = choose(&caller, &chosen).await?;
    let done = caller.runtime.store.forgo(&caller.scope(), &ids).await?;
    Ok(acted(&ids, &done, more))
}

/// The ids meant, and whether there are more.
async fn choose(caller: &Caller<DeadWrite>, chosen: &Chosen) -> Result<(Vec<u64>, bool), Problem> {
    let bad = |detail: &str| Problem::from(&problem::BODY_INVALID).detail(detail);
    match (&chosen.ids, &chosen.receiver, chosen.all) {
        (Some(ids), None, false) if ids.len() > MAX => Err(bad("`ids` are at most 1000.")),
        (Some(ids), None, false) => {
            let ids: Result<Vec<u64>, _> = ids.iter().map(|id| id.parse()).collect();
            Ok((ids.map_err(|_| bad("An entry of `ids` is no id."))?, false))
        }
        (None, receiver, all) if all != receiver.is_some() => {
            let store = &caller.runtime.store;
            let found = store.undelivered(&caller.scope(), receiver.as_deref(), None, MAX).await?;
            Ok((found.iter().map(|one| one.id).collect(), found.len() == MAX))
        }
        _ => Err(bad("Give either `ids`, `receiver` or `all`.")),
    }
}

fn acted(asked: &[u64], done: &[u64], more: bool) -> axum::Json<Acted> {
    let (done, refused): (Vec<&u64>, Vec<&u64>) = asked.iter().partition(|id| done.contains(id));
    let text = |ids: Vec<&u64>| ids.into_iter().map(ToString::to_string).collect();
    axum::Json(Acted { done: text(done), refused: text(refused), more })
}

/// What is to be told again, and to whom.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replay {
    /// A receiver of the configuration.
    receiver: String,
    /// Only what happened at this time or later.
    since: Option<String>,
    /// Only what happened before this time.
    until: Option<String>,
    /// Only of this job.
    job: Option<String>,
    /// From the answer before: where the next call goes on.
    cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Replayed {
    /// Events that stand before the receiver again.
    replayed: usize,
    /// There may be more: ask again with it.
    cursor: Option<String>,
}

/// Tells a receiver again what it wants of the events that are kept, from the oldest on.
#[utoipa::path(
    post, path = "/v1/events/replay", tag = "events", request_body = Replay, security(("key" = ["admin"])),
    responses((status = 200, body = Replayed), (status = "default", body = ProblemBody)),
)]
pub(super) async fn replay(
    State(api): State<Api>,
    caller: Caller<Admin>,
    Json(replay): Json<Replay>,
) -> Result<axum::Json<Replayed>, Problem> {
    let receiver = configured(&api, &replay.receiver).ok_or(&problem::RECEIVER_NOT_FOUND)?;
    let bad = |detail: &str| Problem::from(&problem::BODY_INVALID).detail(detail);
    let time = |text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => Timestamp::parse(text).map(Some).ok_or_else(|| bad("A time is as in RFC 3339.")),
    };
    let (since, until) = (time(&replay.since)?, time(&replay.until)?);
    let job = replay.job.as_deref().map(str::parse::<JobId>).transpose();
    let job = job.map_err(|_| bad("`job` is no id."))?;
    let after = replay.cursor.as_deref().map(str::parse::<Position>).transpose();
    let mut filter =
        EventFilter { job, after: after.map_err(|()| &problem::CURSOR_INVALID)?.unwrap_or_default() };
    let store = &caller.runtime.store;
    let mut answer = Replayed { replayed: 0, cursor: None };
    for _ in 0..REPLAY_PAGES {
        let events = store.events(&Scope::All, &filter, MAX).await?;
        let Some(last) = events.last() else {
            answer.cursor = None;
            break;
        };
        filter.after = last.position;
        answer.cursor = Some(filter.after.to_string());
        let in_time =
            |at: Timestamp| since.is_none_or(|since| at >= since) && until.is_none_or(|until| at < until);
        let wanted = events.iter().filter(|event| receiver.wants(event) && in_time(event.at));
        let wanted: Vec<(JobId, u64)> = wanted.map(|event| (event.job, event.sequence)).collect();
        if !wanted.is_empty() {
            answer.replayed += store.replay(&receiver.name, &wanted).await?;
        }
    }
    Ok(axum::Json(answer))
}

fn configured<'a>(api: &'a Api, name: &str) -> Option<&'a Receiver> {
    api.config.events.receivers.iter().map(|receiver| &receiver.to).find(|receiver| receiver.name == name)
}

/// One that is told of events, and what stands before it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Receiver)]
pub(super) struct ReceiverBody {
    /// Its name, or the owner and the host of callbacks.
    #[schema(example = "audit")]
    name: String,
    /// Whether the server that answers has it in its configuration. What stands before one that no process has is
    /// not told.
    configured: bool,
    /// Counted up to 10000.
    waiting: usize,
    dead: usize,
    oldest_seconds: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReceiverList {
    items: Vec<ReceiverBody>,
}

/// Who is told of events.
#[utoipa::path(
    get, path = "/v1/receivers", tag = "events", security(("key" = ["admin"])),
    responses((status = 200, body = ReceiverList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn receivers(
    State(api): State<Api>,
    caller: Caller<Admin>,
) -> Result<axum::Json<ReceiverList>, Problem> {
    // Those that are configured, however many lines of callbacks there are.
    let names: Vec<String> =
        api.config.events.receivers.iter().map(|receiver| receiver.to.name.clone()).collect();
    let store = &caller.runtime.store;
    let mut queues = store.queues(Some(&names), COUNTED_MAX).await?;
    let others = store.queues(None, COUNTED_MAX).await?;
    queues.extend(others.into_iter().filter(|queue| !names.contains(&queue.receiver)));
    let known = |name: &str| {
        configured(&api, name).is_some() || (name.contains('/') && api.config.events.callbacks.is_some())
    };
    let mut items: Vec<ReceiverBody> = queues
        .into_iter()
        .map(|queue| ReceiverBody {
            configured: known(&queue.receiver),
            name: queue.receiver,
            waiting: queue.waiting,
            dead: queue.dead,
            oldest_seconds: queue.oldest.map(|oldest| oldest.as_secs_f64()),
        })
        .collect();
    for receiver in &api.config.events.receivers {
        if !items.iter().any(|item| item.name == receiver.to.name) {
            let name = receiver.to.name.clone();
            items.push(ReceiverBody { name, configured: true, waiting: 0, dead: 0, oldest_seconds: None });
        }
    }
    items.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(axum::Json(ReceiverList { items }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// For keys of all owners.
    owner: Option<String>,
}

/// What proves that a callback came from here.
#[derive(Serialize, ToSchema)]
pub(super) struct Proofs {
    owner: String,
    /// `whsec_…`: to be kept secret. `whpk_…`: an ed25519 public key. Several while they are rotated; one that
    /// proves is enough.
    secrets: Vec<String>,
}

/// What an owner's callbacks are signed with.
#[utoipa::path(
    get, path = "/v1/callbacks/secrets", tag = "events", params(Whose), security(("key" = ["jobs:write"])),
    responses((status = 200, body = Proofs), (status = "default", body = ProblemBody)),
)]
pub(super) async fn secrets(
    State(api): State<Api>,
    caller: Caller<JobsWrite>,
    Query(whose): Query<Whose>,
) -> Result<axum::Json<Proofs>, Problem> {
    let secrets = api.config.events.callbacks.as_ref().ok_or(&problem::CALLBACKS_NOT_CONFIGURED)?;
    let owner = caller.identity.owner_of_new(whose.owner.as_deref())?;
    Ok(axum::Json(Proofs { secrets: secrets.of_owner(&owner).for_receiver(), owner: owner.into() }))
}
