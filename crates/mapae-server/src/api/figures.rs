//! The whole at a glance: states, lanes, workers, resources. Counted at most every few seconds, however
//! many ask, and with every key there from the first moment: who scales by a number needs its zero.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use mapae::broker::contract::{BrokerStats, Figure};
use mapae::job::name::{Class, Kind, Lane};
use mapae::store::contract::{GateRow, LaneStats, Queue, Stats, StoreError, WorkerRow};
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Admin, Caller, JobsRead};
use super::problem::{Problem, ProblemBody};
use super::resources::ResourceBody;
use crate::runtime::Runtime;

/// How old a count may be.
const FRESH: Duration = Duration::from_secs(5);

/// How long the broker may take to tell of all lanes, and of how many it is asked.
const BROKER_PATIENCE: Duration = Duration::from_secs(2);
const BROKER_LANES_MAX: usize = 200;

/// Up to this what stands before a receiver is counted.
const STANDING_MAX: usize = 10_000;

/// Lanes of kinds that this server does not know, shown to keys of all owners.
const LANES_SHOWN: usize = 200;

/// What stands for all lanes that are not shown by their names.
pub(super) const OTHER: &str = "other";

/// The last counts, and when they were made.
#[derive(Default)]
pub(super) struct Figures(Mutex<Option<Last>>);

/// The last counts, or that there are none, and when they were asked for.
type Last = (Instant, Option<Arc<Counted>>);

pub(super) struct Counted {
    pub stats: Stats,
    pub workers: Vec<WorkerRow>,
    /// What the broker tells of each lane. What it does not tell, or not in time, is not there.
    pub broker: Vec<(Lane, BrokerStats)>,
    /// What holds over all workers, without single owners.
    pub gates: Vec<GateRow>,
    /// What stands before the receivers of this configuration.
    pub receivers: Vec<Queue>,
}

impl Counted {
    /// All lanes together.
    pub(super) fn broker(&self) -> BrokerStats {
        let mut all = BrokerStats::default();
        for (_, one) in &self.broker {
            add(&mut all, one);
        }
        all
    }
}

impl Figures {
    /// Asked by many at once, the store is asked once.
    pub(super) async fn get(&self, api: &Api, runtime: &Runtime) -> Result<Arc<Counted>, StoreError> {
        let mut last = self.0.lock().await;
        if let Some((at, counted)) = &*last
            && at.elapsed() < FRESH
        {
            // Those who queued up while the database was silent do not each wait for it in turn.
            return counted.clone().ok_or_else(|| StoreError::Unavailable("a moment ago".into()));
        }
        let counted = count(api, runtime).await;
        *last = Some((Instant::now(), counted.as_ref().ok().cloned()));
        counted
    }
}

async fn count(api: &Api, runtime: &Runtime) -> Result<Arc<Counted>, StoreError> {
    let mut stats = runtime.store.stats().await?;
    for lane in runtime.store.paused().await? {
        // Paused, and nothing waits in it yet.
        if !stats.lanes.iter().any(|known| known.lane == lane) {
            stats.lanes.push(LaneStats { paused: true, ..nothing_in(lane) });
        }
    }
    let workers = runtime.store.workers().await?;
    let broker = broker_stats(api, runtime, &stats).await;
    let gates = runtime.store.gates(None).await?;
    let names: Vec<String> =
        api.config.events.receivers.iter().map(|receiver| receiver.to.name.clone()).collect();
    let receivers = runtime.store.queues(Some(&names), STANDING_MAX).await?;
    Ok(Arc::new(Counted { stats, workers, broker, gates, receivers }))
}

/// Of every lane or of none: a sum of some would be taken for that of all.
async fn broker_stats(api: &Api, runtime: &Runtime, stats: &Stats) -> Vec<(Lane, BrokerStats)> {
    let asking = async {
        let mut all = Vec::new();
        for lane in lanes(api, stats, BROKER_LANES_MAX) {
            let Ok(one) = runtime.broker.stats(&lane.lane).await else { return Vec::new() };
            all.push((lane.lane, one));
        }
        all
    };
    tokio::time::timeout(BROKER_PATIENCE, asking).await.unwrap_or_default()
}

/// Takes what one lane has into the whole.
fn add(all: &mut BrokerStats, one: &BrokerStats) {
    let sum = |into: &mut Option<Figure<u64>>, from: Option<Figure<u64>>| {
        if let Some(from) = from {
            let figure = into.get_or_insert(Figure { value: 0, ..from });
            figure.value += from.value;
            figure.exact &= from.exact;
        }
    };
    sum(&mut all.depth, one.depth);
    sum(&mut all.unacknowledged, one.unacknowledged);
    let oldest = one.oldest_unacknowledged.into_iter().chain(all.oldest_unacknowledged);
    all.oldest_unacknowledged = oldest.max_by_key(|figure| figure.value);
    let most = one.deliveries_max.into_iter().chain(all.deliveries_max);
    all.deliveries_max = most.max_by_key(|figure| figure.value);
    if let Some(consumers) = &one.consumers {
        let known = all.consumers.get_or_insert(Figure { value: Vec::new(), ..*consumers });
        for (name, idle) in &consumers.value {
            // Who has been busy in one lane is busy.
            match known.value.iter_mut().find(|(known, _)| known == name) {
                Some((_, least)) => *least = *idle.min(least),
                None => known.value.push((name.clone(), *idle)),
            }
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub(super) struct StatsBody {
    /// How many jobs are in each state, counted up to 50,000: that number means at least as many.
    #[schema(value_type = BTreeMap<String, u64>)]
    jobs: BTreeMap<&'static str, u64>,
    /// Those of the kinds that this server knows, and all others together as `other`; for keys of all owners,
    /// some of those by their names. What waits in one is counted up to 10,000.
    lanes: Vec<LaneBody>,
    broker: BrokerBody,
    dead: DeadBody,
    /// Events that have not been sent yet, where they are sent somewhere.
    outbox: u64,
    workers: WorkersBody,
    resources: Vec<ResourceBody>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Lane)]
struct LaneBody {
    lane: String,
    ready: u64,
    scheduled: u64,
    running: u64,
    /// 0 where nothing waits.
    oldest_ready_seconds: f64,
    paused: bool,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Broker)]
struct BrokerBody {
    kind: &'static str,
    /// `null`: this broker cannot tell.
    depth: Option<u64>,
    unacknowledged: Option<u64>,
    oldest_seconds: Option<f64>,
    deliveries_max: Option<u64>,
    consumers: Option<Vec<ConsumerBody>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Consumer)]
struct ConsumerBody {
    name: String,
    idle_seconds: f64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Dead)]
struct DeadBody {
    jobs: u64,
    oldest_seconds: f64,
    /// Nobody has been assigned.
    unassigned: u64,
}

#[derive(Serialize, ToSchema)]
struct WorkersBody {
    alive: u64,
    slots: u64,
    busy: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Worker)]
pub(super) struct WorkerBody {
    name: String,
    kinds: Vec<String>,
    slots: u32,
    busy: u32,
    phase: String,
    /// Kinds that wait although due, with the resource they wait for.
    waiting: Vec<WaitingBody>,
    started_at: String,
    seen_at: String,
}

#[derive(Serialize, ToSchema)]
struct WaitingBody {
    kind: String,
    resource: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct WorkerList {
    items: Vec<WorkerBody>,
}

/// Counts of the whole runtime, without owners.
#[utoipa::path(
    get, path = "/v1/stats", tag = "runtime", security(("key" = ["jobs:read"])),
    responses((status = 200, body = StatsBody), (status = "default", body = ProblemBody)),
)]
pub(super) async fn stats(
    State(api): State<Api>,
    caller: Caller<JobsRead>,
) -> Result<axum::Json<StatsBody>, Problem> {
    let counted = api.figures.get(&api, &caller.runtime).await?;
    let (stats, broker) = (&counted.stats, counted.broker());
    // What other owners make up is theirs.
    let everything = caller.identity.owner.is_none();
    Ok(axum::Json(StatsBody {
        jobs: stats.states.iter().map(|(state, count)| (state.as_str(), *count)).collect(),
        lanes: {
            let lanes = lanes(&api, stats, if everything { LANES_SHOWN } else { 0 });
            let rest = rest(&lanes, stats).map(|rest| LaneBody { lane: OTHER.into(), ..lane_body(&rest) });
            lanes.iter().map(lane_body).chain(rest).collect()
        },
        broker: BrokerBody {
            kind: caller.runtime.broker.name(),
            depth: broker.depth.map(|figure| figure.value),
            unacknowledged: broker.unacknowledged.map(|figure| figure.value),
            oldest_seconds: broker.oldest_unacknowledged.map(|figure| figure.value.as_secs_f64()),
            deliveries_max: broker.deliveries_max.map(|figure| figure.value),
            consumers: broker.consumers.as_ref().map(|figure| {
                let body = |(name, idle): &(String, Duration)| ConsumerBody {
                    name: name.clone(),
                    idle_seconds: idle.as_secs_f64(),
                };
                figure.value.iter().map(body).collect()
            }),
        },
        dead: DeadBody {
            jobs: stats.dead,
            oldest_seconds: stats.dead_oldest.unwrap_or_default().as_secs_f64(),
            unassigned: stats.dead_unassigned,
        },
        outbox: stats.outbox,
        workers: WorkersBody {
            alive: counted.workers.len() as u64,
            slots: counted.workers.iter().map(|row| u64::from(row.slots)).sum(),
            busy: counted.workers.iter().map(|row| u64::from(row.report.busy)).sum(),
        },
        resources: super::resources::bodies(&api, &counted),
    }))
}

/// Workers that are alive, or were a moment ago.
#[utoipa::path(
    get, path = "/v1/workers", tag = "runtime", security(("key" = ["admin"])),
    responses((status = 200, body = WorkerList), (status = "default", body = ProblemBody)),
)]
pub(super) async fn workers(caller: Caller<Admin>) -> Result<axum::Json<WorkerList>, Problem> {
    let rows = caller.runtime.store.workers().await?;
    Ok(axum::Json(WorkerList { items: rows.iter().map(worker_body).collect() }))
}

/// The lanes of every kind this server knows, and up to `others` of those that have jobs besides, in order.
pub(super) fn lanes(api: &Api, stats: &Stats, others: usize) -> Vec<LaneStats> {
    let kinds: BTreeSet<Kind> = api.known_kinds().into_iter().collect();
    let (known, made_up): (Vec<&LaneStats>, Vec<&LaneStats>) =
        stats.lanes.iter().partition(|lane| kinds.contains(&lane.lane.kind));
    let shown = known.into_iter().chain(made_up.into_iter().take(others));
    let mut lanes: BTreeMap<Lane, LaneStats> = shown.map(|lane| (lane.lane.clone(), lane.clone())).collect();
    for kind in kinds {
        let lane = Lane { kind, class: Class::Normal };
        lanes.entry(lane.clone()).or_insert_with(|| nothing_in(lane));
    }
    lanes.into_values().collect()
}

/// All lanes that are not among those shown, as one; its name says nothing. None where there are none.
pub(super) fn rest(shown: &[LaneStats], stats: &Stats) -> Option<LaneStats> {
    let others = stats.lanes.iter().filter(|lane| shown.iter().all(|shown| shown.lane != lane.lane));
    others.cloned().reduce(|all, lane| LaneStats {
        ready: all.ready + lane.ready,
        scheduled: all.scheduled + lane.scheduled,
        running: all.running + lane.running,
        oldest_ready: all.oldest_ready.max(lane.oldest_ready),
        paused: all.paused && lane.paused,
        lane: all.lane,
        owner: None,
    })
}

fn nothing_in(lane: Lane) -> LaneStats {
    LaneStats { lane, owner: None, ready: 0, scheduled: 0, running: 0, oldest_ready: None, paused: false }
}

fn lane_body(stats: &LaneStats) -> LaneBody {
    LaneBody {
        lane: stats.lane.to_string(),
        ready: stats.ready,
        scheduled: stats.scheduled,
        running: stats.running,
        oldest_ready_seconds: stats.oldest_ready.unwrap_or_default().as_secs_f64(),
        paused: stats.paused,
    }
}

fn worker_body(row: &WorkerRow) -> WorkerBody {
    WorkerBody {
        name: row.holder.name.clone(),
        kinds: row.kinds.iter().map(ToString::to_string).collect(),
        slots: row.slots,
        busy: row.report.busy,
        phase: row.report.phase.clone(),
        waiting: row
            .report
            .waiting
            .iter()
            .map(|(kind, resource)| WaitingBody { kind: kind.to_string(), resource: resource.clone() })
            .collect(),
        started_at: row.started_at.to_string(),
        seen_at: row.seen_at.to_string(),
    }
}
