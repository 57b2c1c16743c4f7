//! The names of metrics: dashboards and alerts of other people rely on them.

use super::binary::{Server, until};
use super::understand::body;

/// Of `interface.md`, and those that came since. Those of a broker are there where it can tell them.
const NAMES: [&str; 41] = [
    "mapae_ai_requests_total",
    "mapae_ai_seconds",
    "mapae_batches_ended_total",
    "mapae_dead_jobs",
    "mapae_dead_oldest_seconds",
    "mapae_dead_unassigned",
    "mapae_deliveries_total",
    "mapae_events_dead",
    "mapae_events_oldest_seconds",
    "mapae_events_told_total",
    "mapae_events_waiting",
    "mapae_job_run_seconds",
    "mapae_job_wait_seconds",
    "mapae_jobs",
    "mapae_jobs_accepted_total",
    "mapae_jobs_duplicate_total",
    "mapae_jobs_finished_total",
    "mapae_lane_oldest_ready_seconds",
    "mapae_lane_ready",
    "mapae_lease_lost_total",
    "mapae_outbox_pending",
    "mapae_published_total",
    "mapae_read_failures_total",
    "mapae_reader_losses_total",
    "mapae_reaped_total",
    "mapae_rescanned_total",
    "mapae_resource_in_use",
    "mapae_resource_limit",
    "mapae_resource_wait_seconds",
    "mapae_retries_total",
    "mapae_sandbox",
    "mapae_stage_seconds",
    "mapae_taken_over_total",
    "mapae_worker_ready",
    "mapae_worker_slots",
    "mapae_worker_slots_busy",
    "mapae_broker_depth",
    "mapae_broker_unacked",
    "mapae_broker_oldest_unacked_seconds",
    "mapae_broker_deliveries_max",
    "mapae_consumer_idle_seconds",
];

#[test]
fn every_metric_has_the_name_that_others_rely_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::dev(folder.path(), &[]);
    let page = || body(&server, "/metrics");
    until("the database has been counted", || page().contains("mapae_jobs{"));
    let page = page();
    let there: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let missing: Vec<&&str> = NAMES.iter().filter(|name| !there.contains(*name)).collect();
    assert!(
        missing.iter().all(|name| name.contains("_broker_") || name.contains("_consumer_")),
        "{missing:?}"
    );
    let unknown: Vec<&&str> = there.iter().filter(|name| !NAMES.contains(*name)).collect();
    assert!(unknown.is_empty(), "add them to this list and to the reference: {unknown:?}");
}
