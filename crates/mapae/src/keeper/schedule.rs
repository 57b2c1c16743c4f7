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
    let (mut wait, mut failed) = (LOOK, None);
    for known in store.schedules().await? {
        // One that only another process configures, or that one configures otherwise by now, is that one's to keep.
        let ours = |plan: &&Plan| {
            plan.name == known.name && plan.cron.pattern() == known.cron && plan.cron.zone() == known.zone
        };
        let Some(plan) = plans.iter().find(ours) else { continue };
        let Some(next_at) = known.next_at.filter(|_| !known.paused) else { continue };
        let due = plan.due(next_at, now);
        if next_at <= now {
            let jobs: Vec<_> = due.ticks.iter().map(|tick| (*tick, plan.job(*tick))).collect();
            match store.tick(&plan.name, next_at, due.next, &jobs).await {
                Ok(ticked) if ticked && !jobs.is_empty() => {
                    info!(schedule = %plan.name, kind = %plan.next.kind, jobs = jobs.len(), "a schedule ticked");
                }
                Ok(_) => {}
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                // It keeps none of the others from ticking.
                Err(error) => failed = Some(error),
            }
        }
        if let Some(next) = due.next {
            wait = wait.min(next.since(now));
        }
    }
    failed.map_or(Ok(wait.max(Duration::from_millis(20))), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::follow::Next;
    use crate::job::name::{Kind, Owner, Priority, ScheduleName};
    use crate::job::schedule::{Cron, Missed};
    use crate::job::timestamp::Timestamp;
    use crate::store::contract::Schedules;
    use crate::store::memory::Memory;

    fn plan(name: &str, cron: &str) -> Plan {
        Plan {
            name: ScheduleName::new(name).unwrap(),
            owner: Owner::new("acme").unwrap(),
            next: Next {
                kind: Kind::new("report").unwrap(),
                params: serde_json::json!({}),
                priority: Priority::NORMAL,
                retry: Default::default(),
                delay: Duration::ZERO,
                on: Vec::new(),
            },
            unique: None,
            cron: Cron::new(cron, "UTC").unwrap(),
            missed: Missed::One,
        }
    }

    #[tokio::test]
    async fn a_keeper_of_an_older_configuration_does_not_move_a_schedule() {
        let store = Memory::new();
        let (old, new) = (plan("daily", "0 2 * * *"), plan("daily", "0 9 * * *"));
        define(&store, std::slice::from_ref(&new)).await.unwrap();
        let mut known = store.schedules().await.unwrap();
        let late = Timestamp::from_micros(store.now().await.unwrap().micros() - 1_000_000);
        known[0].next_at = Some(late);
        known[0].name = ScheduleName::new("moved").unwrap();
        store.define(&known).await.unwrap();
        let named = |plan: &Plan| Plan { name: known[0].name.clone(), ..plan.clone() };
        let next = async || {
            let all = store.schedules().await.unwrap();
            all.into_iter().find(|schedule| schedule.name == known[0].name).unwrap().next_at
        };

        pass(&store, &[named(&old)]).await.unwrap();
        assert_eq!(next().await, Some(late), "it is the new one's to make");
        pass(&store, &[named(&new)]).await.unwrap();
        assert!(next().await > Some(late));
    }
}
