//! Work that others do: leasing over HTTP, and what holders of leases tell of their jobs.
//!
//! A lease's token is a right of its own: whoever has it may end this one attempt and nothing else. A
//! service is given it within an address (`Mapae-Callback`), so the token may stand in the query or in the
//! header `Mapae-Token`, and then no key is needed. A client that pulls has a key with `jobs:work` and sends
//! its tokens in bodies.

use axum::extract::State;
use futures_util::future::join_all;
use mapae::job::name::{ClientName, Kind};
use mapae::remote::{self, End, Pull};
use mapae::store::contract::{Holding, Puller};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::sync::oneshot;
use utoipa::ToSchema;

pub(super) mod batch;
pub(super) mod report;

use super::Api;
use super::auth::{Caller, Identity, JobsWork};
use super::extract::Json;
use super::model::SourceBody;
use super::problem::{self, Problem, ProblemBody};
use crate::config::parse_duration;
use crate::runtime::Runtime;

/// Most jobs leased by one call, and most kinds asked for.
const LEASES_MAX: u32 = 100;
const KINDS_MAX: usize = 100;

/// How long a client's lease may last without a heartbeat.
const LEASE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);

/// A time: seconds, or text such as `30s`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Span {
    Seconds(u32),
    Text(String),
}

impl Span {
    fn read(&self, field: &str) -> Result<Duration, Problem> {
        match self {
            Self::Seconds(seconds) => Some(Duration::from_secs((*seconds).into())),
            Self::Text(text) => parse_duration(text),
        }
        .ok_or_else(|| bad(format!("`{field}` is a number of seconds, or a time such as \"30s\".")))
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseRequest {
    /// What the client calls itself: 1 to 64 letters, digits, '.', '_' and '-'.
    #[schema(example = "embedder-1")]
    worker: String,
    kinds: Vec<String>,
    /// Most jobs, 1 to 100; 1 where it is not given.
    max: Option<u32>,
    /// How long to wait where there is nothing yet; at most `http.wait` of the server, not at all where it
    /// is not given.
    wait: Option<Span>,
    /// How long the leases last without a heartbeat; `worker.lease` of the server where it is not given.
    lease: Option<Span>,
}

/// Jobs to do, none where there was nothing in time.
#[derive(Serialize, ToSchema)]
pub(super) struct LeaseList {
    jobs: Vec<LeasedJob>,
}

/// A job and the right to do it.
#[derive(Serialize, ToSchema)]
pub(super) struct LeasedJob {
    id: String,
    owner: String,
    kind: String,
    attempt: u32,
    max_attempts: u32,
    #[schema(value_type = Object)]
    params: Value,
    source: Option<SourceBody>,
    /// After this the job fails instead of starting again.
    deadline: Option<String>,
    /// For every later call about this job.
    token: String,
    /// When the lease ends unless it is renewed.
    leased_until: String,
    lease_seconds: f64,
    /// How often to send a heartbeat.
    heartbeat_seconds: f64,
    /// For calls to the outside: the same in every attempt.
    idempotency_key: String,
    traceparent: Option<String>,
    /// What stages of earlier attempts gave, by their names.
    #[schema(value_type = Object)]
    checkpoints: Map<String, Value>,
}

/// Leases jobs. Long-polls where there are none.
#[utoipa::path(
    post, path = "/v1/leases", tag = "leases", request_body = LeaseRequest, security(("key" = ["jobs:work"])),
    responses((status = 200, body = LeaseList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn lease(
    State(api): State<Api>,
    caller: Caller<JobsWork>,
    Json(request): Json<LeaseRequest>,
) -> Result<axum::Json<LeaseList>, Problem> {
    let pull = request.read(&api, &caller.identity)?;
    let (length, runtime) = (pull.lease, caller.runtime.clone());
    // Cancelled when the client goes away or the server stops: no wait goes on, and a claim under way is
    // brought to its end, for what it gives has to be given back.
    let gone = api.stop.child_token();
    let _client = gone.clone().drop_guard();
    let (answer, pulled) = oneshot::channel();
    let wake = api.feed.follow();
    tokio::spawn(async move {
        let held = remote::pull(&runtime.parts(), &pull, wake, &gone).await;
        if let Err(Ok(unheard)) = answer.send(held) {
            give_back(&runtime, unheard).await;
        }
    });
    let held = pulled.await.map_err(|_| Problem::from(&problem::INTERNAL))??;
    let parts = caller.runtime.parts();
    let jobs = join_all(held.into_iter().map(|holding| leased(&parts, holding, length))).await;
    Ok(axum::Json(LeaseList { jobs }))
}

async fn give_back(runtime: &Runtime, held: Vec<Holding>) {
    let parts = runtime.parts();
    for holding in held {
        let _ = remote::settle(&parts, &holding.job, holding.lease.token, End::Release).await;
    }
}

impl LeaseRequest {
    fn read(self, api: &Api, identity: &Identity) -> Result<Pull, Problem> {
        let name = ClientName::new(self.worker).map_err(|error| bad(format!("`worker`: {error}.")))?;
        if !(1..=KINDS_MAX).contains(&self.kinds.len()) {
            return Err(bad(format!("`kinds` names 1 to {KINDS_MAX} kinds.")));
        }
        let kinds = self.kinds.into_iter().map(Kind::new).collect::<Result<Vec<_>, _>>();
        let kinds = kinds.map_err(|error| bad(format!("`kinds`: {error}.")))?;
        let max = self.max.unwrap_or(1);
        if !(1..=LEASES_MAX).contains(&max) {
            return Err(bad(format!("`max` is 1 to {LEASES_MAX}.")));
        }
        let wait = self.wait.map_or(Ok(Duration::ZERO), |wait| wait.read("wait"))?;
        Ok(Pull {
            client: Puller { name, owner: identity.owner.clone(), kinds, max },
            scope: identity.scope(),
            lease: length(api, self.lease.as_ref())?,
            wait: wait.min(api.config.http.wait),
        })
    }
}

/// How long a client's lease is to last.
fn length(api: &Api, asked: Option<&Span>) -> Result<Duration, Problem> {
    let length = asked.map_or(Ok(api.config.worker.timing.lease), |span| span.read("lease"))?;
    if !LEASE.contains(&length) {
        return Err(bad("`lease` is 1 second to 24 hours.".to_owned()));
    }
    Ok(length)
}

async fn leased(parts: &mapae::worker::Parts, holding: Holding, length: Duration) -> LeasedJob {
    let Holding { job, lease } = holding;
    let mut checkpoints = Map::new();
    // What cannot be read now is done again.
    for checkpoint in parts.store.checkpoints(job.id).await.unwrap_or_default() {
        if let Some(value) = remote::checkpoint_value(parts, &job, &checkpoint).await {
            checkpoints.insert(checkpoint.stage, value);
        }
    }
    LeasedJob {
        id: job.id.to_string(),
        owner: job.owner.to_string(),
        kind: job.kind.to_string(),
        attempt: job.attempt,
        max_attempts: job.retry.attempts,
        source: job.source.as_ref().map(SourceBody::of),
        deadline: job.deadline.map(|at| at.to_string()),
        token: lease.token.0.to_string(),
        leased_until: lease.until.to_string(),
        lease_seconds: length.as_secs_f64(),
        heartbeat_seconds: length.as_secs_f64() / 4.0,
        idempotency_key: format!("{}/call", job.id),
        traceparent: job.trace,
        checkpoints,
        params: job.params,
    }
}

fn bad(detail: String) -> Problem {
    Problem::from(&problem::BODY_INVALID).detail(detail)
}
