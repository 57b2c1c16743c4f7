//! One database, and one broker after the other.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use mapae::broker::{self, BrokerPlan};
use mapae::handler::{Context, Handlers};
use mapae::job::State;
use mapae::job::record::NewJob;
use mapae::job::retry::Failure;
use mapae::store;
use mapae::worker::WorkerPlan;
use tokio::sync::Semaphore;

use super::servers;
use crate::site::{Database, Site, databases};
use crate::stores::soon;

#[tokio::test(flavor = "multi_thread")]
async fn moving_from_broker_to_broker_with_jobs_in_every_state_loses_none_and_ends_none_twice() {
    let moved = async |database: &Database| {
        let servers = servers();
        let embedded = || {
            let plan = BrokerPlan { url: "embedded:".into(), database_url: database.url.clone() };
            ("embedded", broker::open(&plan).unwrap())
        };
        let mut road = vec![embedded()];
        road.extend(servers.iter().map(|server| (server.name, server.broker())));
        road.push(embedded());
        let (ends, gate): (Arc<Mutex<HashMap<u64, u32>>>, _) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let failed: Arc<Mutex<HashSet<u64>>> = Arc::default();
        let handlers = || {
            let (ends, gate, failed) = (ends.clone(), gate.clone(), failed.clone());
            let mut handlers = Handlers::default();
            handlers.add_fn("k", move |number: u64, _: Context| {
                let (ends, gate, failed) = (ends.clone(), gate.clone(), failed.clone());
                async move {
                    if number.is_multiple_of(4) && failed.lock().unwrap().insert(number) {
                        return Err(Failure::retryable("once", "it fails once"));
                    }
                    gate.acquire().await.expect("the gate stays").forget();
                    *ends.lock().unwrap().entry(number).or_default() += 1;
                    Ok(())
                }
            });
            handlers
        };
        let (mut jobs, mut number, last) = (Vec::new(), 0, road.len() - 1);

        for (at, (name, broker)) in road.into_iter().enumerate() {
            let store = store::open(&database.url, false).await.unwrap();
            store.migrate().await.unwrap();
            let mut site = Site::around(store, broker, Duration::from_millis(500));
            site.keep();
            for _ in 0..10 {
                number += 1;
                let now = site.store().now().await.unwrap();
                let change = |job: &mut NewJob| {
                    job.priority = [1, 5, 9][number as usize % 3].try_into().unwrap();
                    // Some are due only when the next broker is there.
                    job.run_at = Some(now + Duration::from_secs(number % 3));
                    job.retry.backoff.first = Duration::from_secs(1);
                };
                jobs.push(site.submit("k", number.into(), change).await);
            }
            let before = ends.lock().unwrap().len();
            gate.add_permits(if at == last { 1_000 } else { 4 });
            let change =
                |plan: &mut WorkerPlan| (plan.slots, plan.timing.drain) = (3, Duration::from_millis(50));
            let worker = site.worker(handlers(), change).await;
            soon("four have ended", async || (ends.lock().unwrap().len() >= before + 4).then_some(())).await;
            if at == last {
                for id in &jobs {
                    assert_eq!(site.ended(*id).await.state, State::Succeeded, "{}", database.name);
                }
            }
            // Three run, others are in hand, rung, in backoff, or not due.
            worker.drain().await;
            site.close().await;
            eprintln!("left {name} over {} after {} ends", database.name, ends.lock().unwrap().len());
        }

        let ends = ends.lock().unwrap();
        assert!(ends.len() == jobs.len() && ends.values().all(|times| *times == 1), "{ends:?}");
    };
    join_all(databases().await.iter().map(moved)).await;
}
