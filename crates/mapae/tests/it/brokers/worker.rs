//! The whole runtime over a real broker and every real database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mapae::broker::contract::Pointer;
use mapae::handler::{Context, Handlers};
use mapae::job::State;
use mapae::job::lease::Holder;
use mapae::job::name::{JobId, Lane};
use mapae::job::retry::Failure;
use mapae::store;
use mapae::worker::WorkerPlan;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{Server, read, reader, servers};
use crate::site::{Database, PATIENCE, Site, databases, owner};
use crate::stores::soon;

/// Longer than any test: nothing is rung again because of its age.
const NEVER: Duration = Duration::from_secs(3600);

/// Holds a law with every broker over every database, all at a time.
async fn everywhere(law: impl AsyncFn(&Server, &Database)) {
    let mut pairs = Vec::new();
    for database in 0..databases().await.len() {
        for server in servers() {
            pairs.push((server, databases().await.swap_remove(database)));
        }
    }
    join_all(pairs.iter().map(async |(server, database)| {
        law(server, database).await;
        eprintln!("held with {} over {}", server.name, database.name);
    }))
    .await;
}

async fn site(server: &Server, database: &Database, rescan_after: Duration) -> Site {
    let store = store::open(&database.url, false).await.unwrap();
    store.migrate().await.unwrap();
    let mut site = Site::around(store, server.broker(), rescan_after);
    site.keep();
    site
}

fn counted(runs: &Arc<AtomicUsize>, gate: &Arc<Semaphore>) -> Handlers {
    let (runs, gate) = (runs.clone(), gate.clone());
    let mut handlers = Handlers::default();
    handlers.add_fn("k", move |(): (), _: Context| {
        let gate = gate.clone();
        runs.fetch_add(1, Ordering::SeqCst);
        async move {
            gate.acquire().await.expect("the gate stays").forget();
            Ok(())
        }
    });
    handlers
}

async fn submit(site: &Site, count: usize) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for at in 0..count {
        let priority = [1, 5, 9][at % 3].try_into().unwrap();
        jobs.push(site.submit("k", Value::Null, |job| job.priority = priority).await);
    }
    jobs
}

async fn all_succeeded_once(site: &Site, jobs: &[JobId], name: &str) {
    for id in jobs {
        let job = site.ended(*id).await;
        assert_eq!((job.state, job.attempt), (State::Succeeded, 1), "{name}: {job:?}");
    }
}

/// The broker holds nothing any more.
async fn emptied(server: &Server) {
    let broker = server.broker();
    let lanes = ["k", "k:high", "k:low"].map(|lane| lane.parse().unwrap());
    let deadline = Instant::now() + PATIENCE;
    for lane in &lanes {
        loop {
            let stats = broker.stats(lane).await;
            let held = stats.as_ref().ok().and_then(|stats| {
                // A lane that is gone is not empty: it is made again first.
                let depth = stats.depth.as_ref()?.value;
                Some(depth + stats.unacknowledged.as_ref().map_or(0, |it| it.value))
            });
            if held == Some(0) {
                break;
            }
            assert!(Instant::now() < deadline, "{} still holds {lane}: {stats:?}", server.name);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_runs_once_and_the_broker_is_empty_afterwards() {
    everywhere(async |server, database| {
        let site = site(server, database, NEVER).await;
        let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(1_000)));
        let first = site.worker(counted(&runs, &gate), |plan| plan.name = "a".into()).await;
        let second = site.worker(counted(&runs, &gate), |plan| plan.name = "b".into()).await;

        let jobs = submit(&site, 60).await;

        all_succeeded_once(&site, &jobs, &format!("{} {}", server.name, database.name)).await;
        assert_eq!(runs.load(Ordering::SeqCst), 60);
        emptied(server).await;
        first.drain().await;
        second.drain().await;
        site.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_wiped_twice_delays_and_loses_nothing() {
    everywhere(async |server, database| {
        let site = site(server, database, Duration::from_millis(500)).await;
        let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let worker = site.worker(counted(&runs, &gate), |plan| plan.slots = 2).await;
        let mut jobs = submit(&site, 10).await;
        soon("two run", async || (runs.load(Ordering::SeqCst) == 2).then_some(())).await;

        server.wipe().await;
        jobs.extend(submit(&site, 5).await);
        gate.add_permits(5);
        soon("five have ended", async || (runs.load(Ordering::SeqCst) >= 7).then_some(())).await;
        server.wipe().await;
        gate.add_permits(1_000);

        all_succeeded_once(&site, &jobs, &format!("{} {}", server.name, database.name)).await;
        emptied(server).await;
        worker.drain().await;
        site.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pending_list_alone_brings_what_a_worker_left_to_the_next_life_of_its_name() {
    everywhere(async |server, database| {
        let site = site(server, database, NEVER).await;
        let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(1_000)));
        let jobs = submit(&site, 6).await;
        // Taken by an earlier life of the worker, which is gone before it could claim them.
        let broker = server.broker();
        let lanes = ["k", "k:high", "k:low"].map(|lane| lane.parse().unwrap());
        broker.ensure(&lanes).await.unwrap();
        let earlier = Holder::new("w");
        let intake = broker.open(&reader(&lanes, &earlier, NEVER)).await.unwrap();
        read(&*intake, 6).await;
        drop(intake);

        let worker = site.worker(counted(&runs, &gate), |_| {}).await;

        all_succeeded_once(&site, &jobs, &format!("{} {}", server.name, database.name)).await;
        emptied(server).await;
        worker.drain().await;
        site.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pointer_five_times_runs_each_job_once() {
    everywhere(async |server, database| {
        let site = site(server, database, NEVER).await;
        let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(1_000)));
        let jobs = submit(&site, 20).await;
        let lane: Lane = "k".parse().unwrap();
        let again = jobs.iter().flat_map(|id| {
            let pointer = Pointer::new(*id, owner(), lane.kind.clone(), 1, None);
            std::iter::repeat_n((lane.clone(), pointer), 4)
        });
        server.broker().publish(&again.collect::<Vec<_>>()).await;

        // A pointer to a job that runs is left until its idle time shows that it does not run any more.
        let change = |plan: &mut WorkerPlan| (plan.slots, plan.timing.lease) = (8, Duration::from_secs(5));
        let worker = site.worker(counted(&runs, &gate), change).await;

        all_succeeded_once(&site, &jobs, &format!("{} {}", server.name, database.name)).await;
        emptied(server).await;
        assert_eq!(runs.load(Ordering::SeqCst), 20, "{}", server.name);
        worker.drain().await;
        site.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_behind_a_busy_worker_are_not_rung_again_and_again_and_lost_ones_are() {
    everywhere(async |server, database| {
        let name = format!("{} {}", server.name, database.name);
        let site = site(server, database, Duration::from_millis(500)).await;
        let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let lanes = ["k", "k:high", "k:low", "other"].map(|lane| lane.parse().unwrap());
        server.broker().ensure(&lanes).await.unwrap();
        let worker = site.worker(counted(&runs, &gate), |plan| (plan.slots, plan.prefetch) = (2, 2)).await;
        let jobs = submit(&site, 60).await;
        soon("two run", async || (runs.load(Ordering::SeqCst) == 2).then_some(())).await;

        // One that nobody runs, and whose pointer is lost again and again: each time that it comes back, all
        // those that wait are older than what it waited.
        let other = site.submit("other", Value::Null, |_| {}).await;
        let lane: Lane = "other".parse().unwrap();
        let broker = server.broker();
        let back = async || {
            soon("it is rung", async || {
                let depth = broker.stats(&lane).await.ok()?.depth?;
                (depth.value > 0).then_some(())
            })
            .await;
        };
        back().await;
        for _ in 0..3 {
            server.lose(&lane).await;
            back().await;
        }

        // Counted once the broker has answered, and so after it can be seen there.
        let again = soon("the lost one was rung three times", async || {
            let counts = site.parts.metrics.counts();
            let again = counts.get(&("mapae_rescanned_total", "keeper".to_owned())).copied()?;
            (again >= 3).then_some(again)
        })
        .await;
        eprintln!("{name}: {again} pointers more than 61 jobs");
        assert!(again <= 3 + 60 / 5, "{name}: {again} pointers more for 60 jobs");

        server.wipe().await;
        gate.add_permits(1_000);
        all_succeeded_once(&site, &jobs, &name).await;
        assert_eq!(site.job(other).await.state, State::Pending);
        emptied(server).await;
        worker.drain().await;
        site.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_always_fails_fails_after_its_budget_however_often_it_is_delivered() {
    everywhere(async |server, database| {
        let site = site(server, database, NEVER).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let mut handlers = Handlers::default();
        let counted = runs.clone();
        handlers.add_fn("k", move |(): (), _: Context| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Err::<(), _>(Failure::retryable("always", "it always fails")) }
        });
        let poison = site.submit("k", Value::Null, |job| job.retry.attempts = 3).await;
        let lane: Lane = "k".parse().unwrap();
        let pointer = Pointer::new(poison, owner(), lane.kind.clone(), 1, None);
        let worker = site.worker(handlers, |_| {}).await;
        for _ in 0..10 {
            server.broker().publish(&vec![(lane.clone(), pointer.clone()); 10]).await;
        }

        let job = site.ended(poison).await;

        let name = format!("{} {}", server.name, database.name);
        assert_eq!((job.state, job.attempt), (State::Failed, 3), "{name}");
        emptied(server).await;
        assert_eq!(runs.load(Ordering::SeqCst), 3, "{name}");
        worker.drain().await;
        site.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_are_restarted_again_and_again_with_all_they_may_hold_lose_nothing() {
    everywhere(async |server, database| {
        let name = format!("{} {}", server.name, database.name);
        let site = site(server, database, NEVER).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let handlers = || {
            let runs = runs.clone();
            let mut handlers = Handlers::default();
            handlers.add_fn("k", move |(): (), _: Context| {
                let runs = runs.clone();
                async move {
                    runs.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    Ok(())
                }
            });
            handlers
        };
        let jobs = submit(&site, 200).await;

        for _ in 0..25 {
            let before = runs.load(Ordering::SeqCst);
            let worker = site.worker(handlers(), |plan| (plan.slots, plan.prefetch) = (1, 20)).await;
            soon("it runs one", async || {
                let now = runs.load(Ordering::SeqCst);
                (now > before || now == 200).then_some(())
            })
            .await;
            worker.drain().await;
        }
        let last = site.worker(handlers(), |_| {}).await;

        all_succeeded_once(&site, &jobs, &name).await;
        assert_eq!(runs.load(Ordering::SeqCst), 200, "{name}");
        emptied(server).await;
        last.drain().await;
        site.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_to_the_broker_that_is_cut_again_and_again_delays_and_loses_nothing() {
    everywhere(async |server, database| {
        let name = format!("{} {}", server.name, database.name);
        let line = server.over_a_line().await;
        let store = store::open(&database.url, false).await.unwrap();
        store.migrate().await.unwrap();
        let mut site = Site::around(store, super::opened(&line.url), Duration::from_millis(500));
        site.keep();
        let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let worker = site.worker(counted(&runs, &gate), |plan| plan.slots = 2).await;

        let mut jobs = Vec::new();
        for cut in 1..=10 {
            jobs.extend(submit(&site, 6).await);
            line.freeze();
            line.hang_up();
            gate.add_permits(6);
            soon("some more have run", async || (runs.load(Ordering::SeqCst) >= 4 * cut).then_some(())).await;
        }

        all_succeeded_once(&site, &jobs, &name).await;
        assert_eq!(runs.load(Ordering::SeqCst), 60, "{name}");
        emptied(server).await;
        worker.drain().await;
        site.close().await;
    })
    .await;
}
