//! `/metrics` in Prometheus' text form. Labels are kinds, lanes and outcomes, never jobs or owners.
//!
//! Counters and timings are this process's; gauges are of the whole runtime, counted every few seconds.

use std::fmt::Write;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use mapae::broker::contract::BrokerStats;
use mapae::job::limit::Gate;
use mapae::metrics::{BUCKETS, Times};
use mapae::store::contract::{GateRow, LaneStats, Queue};
use mapae::worker::slots::Slots;

use super::Api;
use super::auth::{Caller, JobsRead};
use super::figures::{Counted, OTHER, lanes, rest};
use super::problem::{Problem, ProblemBody};
use crate::runtime::Runtime;

/// A counter of the runtime: its name, its labels (given as `a/b` where there are two), and what it says.
const COUNTERS: &[(&str, &[&str], &str)] = &[
    ("mapae_jobs_accepted_total", &["kind"], "Jobs accepted by this process."),
    ("mapae_jobs_duplicate_total", &["kind"], "Submissions answered with a job that is the same work."),
    ("mapae_jobs_finished_total", &["outcome"], "Jobs that ended in this process."),
    ("mapae_batches_ended_total", &[], "Batches all of whose parts have ended, found by this process."),
    ("mapae_deliveries_total", &["answer"], "Pointers and rows taken, by what the row said."),
    ("mapae_lease_lost_total", &["kind"], "Leases lost while the job ran."),
    ("mapae_taken_over_total", &[], "Pointers taken over from workers that stopped."),
    (
        "mapae_events_told_total",
        &["outcome"],
        "Events offered to receivers: taken, put off, given up, or forgotten because too many were.",
    ),
    ("mapae_reaped_total", &["kind"], "Leases ended because their worker was gone."),
    ("mapae_rescanned_total", &["path"], "Pointers handed out again."),
    ("mapae_published_total", &["path"], "Pointers handed out for the first time."),
    ("mapae_retries_total", &["kind"], "Attempts that ended and will be followed by another."),
    ("mapae_read_failures_total", &[], "Reads that failed."),
    (
        "mapae_reader_losses_total",
        &["class", "reading"],
        "Processes that a document ended (crash, timeout, memory, forbidden), by what they were reading.",
    ),
    (
        "mapae_ai_requests_total",
        &["provider", "outcome"],
        "Questions to models, this program's own among them.",
    ),
];

/// A timing of the runtime: its name, its labels (given as `a/b` where there are two), and what it says.
const TIMINGS: &[(&str, &[&str], &str)] = &[
    ("mapae_job_wait_seconds", &["kind"], "From due to started."),
    ("mapae_job_run_seconds", &["kind"], "From started to settled."),
    ("mapae_ai_seconds", &["provider"], "One question to a model, whatever came of it."),
    ("mapae_stage_seconds", &["kind", "stage"], "One stage of a job."),
    (
        "mapae_resource_wait_seconds",
        &["resource"],
        "How long jobs that were due waited for a resource, or for a limit of their kind.",
    ),
];

/// Metrics of this process and gauges of the runtime.
#[utoipa::path(
    get, path = "/metrics", tag = "runtime", security((), ("key" = ["jobs:read"])),
    responses(
        (status = 200, content_type = "text/plain", description = "On a loopback address no key is needed."),
        (status = "default", body = ProblemBody),
    ),
)]
pub async fn metrics(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let runtime = if api.config.http.listen.ip().is_loopback() {
        api.runtime()?
    } else {
        let (mut parts, _) = request.into_parts();
        Caller::<JobsRead>::from_request_parts(&mut parts, &api).await?.runtime
    };
    let text = render(&api, &runtime).await;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

async fn render(api: &Api, runtime: &Runtime) -> String {
    let mut page = Page::default();
    let counts = runtime.metrics.counts();
    for (name, labels, help) in COUNTERS {
        page.head(name, "counter", help);
        let mut any = false;
        for ((_, value), count) in counts.iter().filter(|((counted, _), _)| counted == name) {
            any = true;
            let values = value.splitn(labels.len(), '/');
            let pairs: Vec<(&str, &str)> = labels.iter().copied().zip(values).collect();
            page.line(name, &pairs, *count as f64);
        }
        if !any && labels.is_empty() {
            page.line(name, &[], 0.0);
        }
    }
    let times = runtime.metrics.times();
    for (name, labels, help) in TIMINGS {
        page.head(name, "histogram", help);
        for ((_, value), times) in times.iter().filter(|((timed, _), _)| timed == name) {
            let values = value.splitn(labels.len(), '/');
            let pairs: Vec<(&str, &str)> = labels.iter().copied().zip(values).collect();
            page.histogram(name, &pairs, times);
        }
    }
    gauges(api, runtime, &mut page).await;
    page.text
}

async fn gauges(api: &Api, runtime: &Runtime, page: &mut Page) {
    if let Some(slots) = runtime.slots() {
        page.gauge("mapae_worker_slots", "Jobs that this process runs at a time.", slots.total() as f64);
        page.gauge("mapae_worker_slots_busy", "Jobs running in this process.", slots.busy() as f64);
        let ready = api.health.worker_unready().is_none();
        page.gauge(
            "mapae_worker_ready",
            "Whether this process's worker is ready.",
            f64::from(u8::from(ready)),
        );
    }
    if let Some(protection) = api.health.sandbox() {
        page.head("mapae_sandbox", "gauge", "Whether a protection holds where this process reads documents.");
        for (name, holds) in protection.parts() {
            page.line("mapae_sandbox", &[("protection", name)], f64::from(u8::from(holds)));
        }
    }
    // Counters are shown whether or not the database answers.
    let counted = api.figures.get(api, runtime).await;
    resources(runtime, page, counted.as_ref().map_or(&[], |counted| &counted.gates));
    let Ok(counted) = counted else { return };
    let stats = &counted.stats;
    page.head("mapae_jobs", "gauge", "Jobs by state, counted up to 50,000.");
    for (state, count) in &stats.states {
        page.line("mapae_jobs", &[("state", state.as_str())], *count as f64);
    }
    page.gauge("mapae_outbox_pending", "Events not sent yet.", stats.outbox as f64);
    page.gauge("mapae_dead_jobs", "Jobs that failed for good.", stats.dead as f64);
    let oldest = stats.dead_oldest.unwrap_or_default().as_secs_f64();
    page.gauge("mapae_dead_oldest_seconds", "Since the oldest dead letter failed.", oldest);
    page.gauge(
        "mapae_dead_unassigned",
        "Dead letters that nobody has been assigned.",
        stats.dead_unassigned as f64,
    );
    page.head("mapae_lane_ready", "gauge", "Due jobs waiting in a lane, counted up to 10,000.");
    // Clients may make up any number of kinds: none of those has a label.
    let lanes = lanes(api, stats, 0);
    let rest = rest(&lanes, stats).map(|rest| (OTHER.to_owned(), rest));
    let lanes: Vec<(String, LaneStats)> =
        lanes.into_iter().map(|lane| (lane.lane.to_string(), lane)).chain(rest).collect();
    for (name, lane) in &lanes {
        page.line("mapae_lane_ready", &[("lane", name)], lane.ready as f64);
    }
    page.head(
        "mapae_lane_oldest_ready_seconds",
        "gauge",
        "How long the longest waiting due job has been due.",
    );
    for (name, lane) in &lanes {
        let oldest = lane.oldest_ready.unwrap_or_default().as_secs_f64();
        page.line("mapae_lane_oldest_ready_seconds", &[("lane", name)], oldest);
    }
    receivers(page, &counted.receivers);
    broker(api, page, &counted);
}

/// Whom the configuration names: what stands before them. Callbacks go to as many hosts as there are.
fn receivers(page: &mut Page, receivers: &[Queue]) {
    type Standing = (&'static str, &'static str, fn(&Queue) -> f64);
    let figures: [Standing; 3] = [
        ("mapae_events_waiting", "Events that stand before a receiver, counted up to 10,000.", |queue| {
            queue.waiting as f64
        }),
        ("mapae_events_dead", "Events that a receiver did not take, counted up to 10,000.", |queue| {
            queue.dead as f64
        }),
        (
            "mapae_events_oldest_seconds",
            "How long the oldest of those that stand there has waited.",
            |queue| queue.oldest.unwrap_or_default().as_secs_f64(),
        ),
    ];
    for (name, help, figure) in figures {
        page.head(name, "gauge", help);
        for queue in receivers {
            page.line(name, &[("receiver", &queue.receiver)], figure(queue));
        }
    }
}

/// A figure of the broker: its name, what it says, and its value of one lane.
type BrokerFigure = (&'static str, &'static str, fn(&BrokerStats) -> Option<f64>);

const BROKER: &[BrokerFigure] = &[
    ("mapae_broker_depth", "Pointers in the broker.", |stats| Some(stats.depth?.value as f64)),
    ("mapae_broker_unacked", "Pointers taken and not settled.", |stats| {
        Some(stats.unacknowledged?.value as f64)
    }),
    ("mapae_broker_oldest_unacked_seconds", "How long the oldest of them has been taken.", |stats| {
        Some(stats.oldest_unacknowledged?.value.as_secs_f64())
    }),
    ("mapae_broker_deliveries_max", "How often the most delivered pointer was delivered.", |stats| {
        Some(stats.deliveries_max?.value as f64)
    }),
];
/// What there is of each resource and what is in use: of this process's own, and of those of all together.
fn resources(runtime: &Runtime, page: &mut Page, gates: &[GateRow]) {
    let own = runtime.slots().map(Slots::in_use).unwrap_or_default();
    let own = own.iter().map(|(name, used, all)| ("process", name.as_str(), *used, *all));
    let in_use = |name: &str| {
        let of = |row: &&GateRow| matches!(&row.gate, Gate::Resource(known) if known == name);
        gates.iter().find(of).map_or(0, |row| row.account.in_use)
    };
    let global = runtime.limits.resources();
    let global = global.filter_map(|(name, limit)| Some(("global", name, in_use(name), limit.concurrent?)));
    let all: Vec<_> = own.chain(global).collect();
    page.head(
        "mapae_resource_in_use",
        "gauge",
        "What running jobs hold of a resource: in this process, or over all.",
    );
    for (scope, name, used, _) in &all {
        page.line("mapae_resource_in_use", &[("resource", name), ("scope", scope)], *used as f64);
    }
    page.head("mapae_resource_limit", "gauge", "What there is of a resource: in this process, or over all.");
    for (scope, name, _, limit) in &all {
        page.line("mapae_resource_limit", &[("resource", name), ("scope", scope)], *limit as f64);
    }
}

/// What the broker can tell; what it cannot is left out, never made up.
fn broker(api: &Api, page: &mut Page, counted: &Counted) {
    for (name, help, figure) in BROKER {
        let told: Vec<(String, f64)> = counted
            .broker
            .iter()
            .filter(|(lane, _)| api.knows(&lane.kind))
            .filter_map(|(lane, stats)| Some((lane.to_string(), figure(stats)?)))
            .collect();
        if !told.is_empty() {
            page.head(name, "gauge", help);
        }
        for (lane, value) in told {
            page.line(name, &[("lane", &lane)], value);
        }
    }
    if let Some(consumers) = counted.broker().consumers {
        page.head("mapae_consumer_idle_seconds", "gauge", "How long a consumer has been inactive.");
        for (name, idle) in &consumers.value {
            page.line("mapae_consumer_idle_seconds", &[("consumer", name)], idle.as_secs_f64());
        }
    }
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, form: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {form}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.line(name, &[], value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(name);
        let mut labels = labels.iter().filter(|(name, _)| !name.is_empty()).peekable();
        if labels.peek().is_some() {
            let pairs: Vec<String> =
                labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = write!(self.text, "{{{}}}", pairs.join(","));
        }
        let _ = writeln!(self.text, " {value}");
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], times: &Times) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound, count) in BUCKETS.iter().zip(times.buckets) {
            below += count;
            let bound = bound.to_string();
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.line(&bucket, &labels, below as f64);
        }
        let all: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        self.line(&bucket, &all, times.count() as f64);
        self.line(&format!("{name}_sum"), labels, times.sum);
        self.line(&format!("{name}_count"), labels, times.count() as f64);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_broker_have_the_names_that_others_rely_on() {
        let names = ["depth", "unacked", "oldest_unacked_seconds", "deliveries_max"];
        assert!(BROKER.iter().map(|(name, ..)| *name).eq(names.map(|name| format!("mapae_broker_{name}"))));
    }

    #[test]
    fn a_histogram_is_cumulative_and_labels_are_escaped() {
        let mut page = Page::default();
        let mut times = Times { beyond: 1, sum: 4000.5, ..Times::default() };
        times.buckets[0] = 2;
        times.buckets[2] = 1;
        page.histogram("x", &[("kind", "a\"b")], &times);
        for line in [
            "x_bucket{kind=\"a\\\"b\",le=\"0.005\"} 2",
            "x_bucket{kind=\"a\\\"b\",le=\"0.05\"} 3",
            "x_bucket{kind=\"a\\\"b\",le=\"3600\"} 3",
            "x_bucket{kind=\"a\\\"b\",le=\"+Inf\"} 4",
            "x_sum{kind=\"a\\\"b\"} 4000.5",
            "x_count{kind=\"a\\\"b\"} 4",
        ] {
            assert!(page.text.lines().any(|written| written == line), "{line} in\n{}", page.text);
        }
    }
}
