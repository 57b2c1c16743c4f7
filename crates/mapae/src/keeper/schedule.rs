//! Schedules: a job for each tick, whichever keeper comes first.

use std::time::Duration;

use tracing::info;

use crate::job::schedule::Plan;
use crate::store::contract::{Schedule, Store, StoreError};

/// How often the schedules are looked at, at least: what a person pauses or another process configures is
/// seen within this.
const LOOK: Duration = Duration::from_secs(1);

/// All of these are known to the store.
pub(super) async fn define(store: &dyn Store, plans: &[Plan]) -> Result<(), StoreError> {
    let now = store.now().await?;
    let defined: Vec<Schedule> = plans
        .iter()
        .map(|plan| Schedule {
            name: plan.name.clone(),
            owner: plan.owner.clone(),
            kind: plan.next.kind.clone(),
            cron: plan.cron.pattern().to_owned(),
            zone: plan.cron.zone().to_owned(),
            missed: plan.missed,
            next_at: plan.cron.after(now),
            last: None,
            paused: false,
        })
        .collect();
    store.define(&defined).await
}

/// One pass; answers how long to wait for the next. By the database's clock: a tick that this process's clock
/// would have now waits for the other.
pub(super) async fn pass(store: &dyn Store, plans: &[Plan]) -> Result<Duration, StoreError> {
    let now = store.now().await?;
    let mut wait = LOOK;
    for known in store.schedules().await? {
        // One that only another process configures is that one's to keep.
        let Some(plan) = plans.iter().find(|plan| plan.name == known.name) else { continue };
        let Some(next_at) = known.next_at.filter(|_| !known.paused) else { continue };
        let due = plan.due(next_at, now);
        if next_at <= now {
            let jobs: Vec<_> = due.ticks.iter().map(|tick| (*tick, plan.job(*tick))).collect();
            if store.tick(&plan.name, next_at, due.next, &jobs).await? && !jobs.is_empty() {
                info!(schedule = %plan.name, kind = %plan.next.kind, jobs = jobs.len(), "a schedule ticked");
            }
        }
        if let Some(next) = due.next {
            wait = wait.min(next.since(now));
        }
    }
    Ok(wait.max(Duration::from_millis(20)))
}
