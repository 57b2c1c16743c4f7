//! Limits over all processes, with real workers: two of them on one database, each with a store of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mapae::handler::{Context, Handlers};
use mapae::job::State;
use mapae::job::limit::{Limit, Limits, Rate};
use mapae::job::name::{ClientName, JobId, Kind, Owner};
use mapae::job::record::{NewJob, Source};
use mapae::job::resource::Need;
use mapae::job::retry::{Failure, Verdict};
use mapae::remote::{self, Pull};
use mapae::store::contract::{Holding, Puller, RingPlan, Scope, Settlement};
use mapae::worker::{IDLE_WAIT, WorkerHandle, WorkerPlan};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::site::{Site, databases};
use crate::stores::soon;

/// How many jobs run, and the most that ever did at once. Each ends when it is let go.
#[derive(Clone)]
struct Crowd {
    running: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    go: Arc<Semaphore>,
}

impl Crowd {
    fn new() -> Self {
        Self { running: Arc::default(), most: Arc::default(), go: Arc::new(Semaphore::new(0)) }
    }

    async fn stay(&self) -> Result<(), Failure> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.go.acquire().await.map_err(|_| Failure::cancelled())?.forget();
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    async fn are(&self, count: u32) {
        soon("so many run", async || (self.running.load(Ordering::SeqCst) == count).then_some(())).await;
    }

    fn handlers(&self, kind: &str) -> Handlers {
        let (crowd, mut handlers) = (self.clone(), Handlers::default());
        handlers.add_fn(kind, move |_: Value, _: Context| {
            let crowd = crowd.clone();
            async move { crowd.stay().await }
        });
        handlers
    }
}

fn at_a_time(concurrent: u64) -> Limit {
    Limit { concurrent: Some(concurrent), rate: None }
}

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

/// Two workers that share nothing but the database.
async fn two_workers(
    sites: [&Site; 2],
    handlers: impl Fn() -> Handlers,
    change: impl Fn(&mut WorkerPlan),
) -> [WorkerHandle; 2] {
    let start = async |site: &Site| site.worker(handlers(), |plan| change(plan)).await;
    [start(sites[0]).await, start(sites[1]).await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_workers_together_run_no_more_than_a_resource_allows() {
    for database in databases().await {
        let (site, other) = (Site::new(&database).await, Site::new(&database).await);
        let crowd = Crowd::new();
        let needing = || {
            let mut handlers = crowd.handlers("ai");
            handlers.plan_mut(&kind("ai")).unwrap().needs = [("gpu", 1)].into_iter().collect();
            handlers
        };
        let workers = two_workers([&site, &other], needing, |plan| {
            plan.limits.resource("gpu", at_a_time(3));
        })
        .await;
        let mut jobs: Vec<JobId> = Vec::new();
        for _ in 0..10 {
            jobs.push(site.submit("ai", Value::Null, |_| {}).await);
        }
        crowd.are(3).await;
        // One at a time is let go; another takes its place, wherever.
        for gone in 1..=10_u32 {
            crowd.go.add_permits(1);
            crowd.are((10 - gone).min(3)).await;
        }
        for id in jobs {
            let job = site.ended(id).await;
            assert_eq!((job.state, job.attempt), (State::Succeeded, 1), "{}", database.name);
            assert_eq!(site.story(id).await, ["accepted", "claimed", "succeeded"], "waiting leaves no trace");
        }
        assert_eq!(crowd.most.load(Ordering::SeqCst), 3, "{}", database.name);
        for worker in workers {
            worker.drain().await;
        }
        let timed: u64 = [&site, &other]
            .iter()
            .flat_map(|site| site.parts.metrics.times())
            .filter(|((name, label), _)| *name == "mapae_resource_wait_seconds" && label == "gpu")
            .map(|(_, times)| times.count())
            .sum();
        assert!(timed > 0, "how long they waited is told");
        site.close().await;
        other.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_share_given_back_elsewhere_is_taken_within_a_moment() {
    for database in databases().await {
        let (site, other) = (Site::new(&database).await, Site::new(&database).await);
        let crowd = Crowd::new();
        let mut limits = Limits::default();
        limits.kind(kind("ai"), at_a_time(1), Limit::default());
        let first = site.worker(crowd.handlers("ai"), |plan| plan.limits = limits.clone()).await;
        let one = site.submit("ai", Value::Null, |_| {}).await;
        site.job_when(one, |job| job.state == State::Running).await;
        // The first reads no more; what it runs it runs to its end.
        let draining = tokio::spawn(first.drain());
        let second = other.worker(crowd.handlers("ai"), |plan| plan.limits = limits.clone()).await;
        let two = site.submit("ai", Value::Null, |_| {}).await;
        soon("the second worker says that it waits", async || {
            let times = other.parts.metrics.times();
            let waited = times.keys().any(|(name, _)| *name == "mapae_resource_wait_seconds");
            // It is told once a job has waited: until then nothing runs there.
            (!waited && second.slots().busy() == 0).then_some(())
        })
        .await;
        assert_eq!(site.job(two).await.attempt, 0, "{}", database.name);
        crowd.go.add_permits(2);
        draining.await.unwrap();
        let gone = Instant::now();
        assert_eq!(site.ended(two).await.state, State::Succeeded);
        assert!(gone.elapsed() < 20 * IDLE_WAIT, "it was looked for");
        second.drain().await;
        site.close().await;
        other.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rate_spreads_the_starts_of_two_workers() {
    for database in databases().await {
        let (site, other) = (Site::new(&database).await, Site::new(&database).await);
        let handlers = || {
            let mut handlers = Handlers::default();
            handlers.add_fn("mail", |(): (), _: Context| async move { Ok(()) });
            handlers
        };
        let rate = Rate { starts: 10, per: Duration::from_secs(1), burst: 2 };
        let workers = two_workers([&site, &other], handlers, |plan| {
            let limit = Limit { concurrent: None, rate: Some(rate) };
            plan.limits.kind(kind("mail"), limit, Limit::default());
        })
        .await;
        let mut jobs = Vec::new();
        for _ in 0..12 {
            jobs.push(site.submit("mail", Value::Null, |_| {}).await);
        }
        let mut started = Vec::new();
        for id in jobs {
            started.push(site.ended(id).await.started_at.unwrap());
        }
        started.sort_unstable();
        // Twelve starts, two of them at once: the last one comes no sooner than ten tenths of a second after
        // the first, by the database's clock.
        let took = started[11].since(started[0]);
        assert!(took >= Duration::from_millis(990), "{}: {took:?}", database.name);
        for worker in workers {
            worker.drain().await;
        }
        site.close().await;
        other.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_retry_after_holds_for_every_worker_and_uses_no_attempt() {
    for database in databases().await {
        let (site, other) = (Site::new(&database).await, Site::new(&database).await);
        let calls = Arc::new(AtomicU32::new(0));
        let handlers = || {
            let (mut handlers, calls) = (Handlers::default(), calls.clone());
            handlers.add_fn("call", move |(): (), _: Context| {
                let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    let busy = || Failure::retry_after(Duration::from_secs(3), "busy", "Not now.");
                    if first { Err(busy()) } else { Ok(()) }
                }
            });
            handlers.add_fn("plain", |(): (), _: Context| async move { Ok(()) });
            handlers
        };
        let told = site.worker(handlers(), |_| {}).await;
        let one = site.submit("call", Value::Null, |_| {}).await;
        let put_off = site.job_when(one, |job| job.throttled == 1).await;
        assert_eq!((put_off.state, put_off.attempt), (State::Pending, 0), "{}", database.name);
        // Another worker, which nobody has told anything.
        let unaware = other.worker(handlers(), |_| {}).await;
        let two = site.submit("call", Value::Null, |_| {}).await;
        let plain = site.submit("plain", Value::Null, |_| {}).await;
        site.ended(plain).await;
        let ended = site.ended(two).await;
        let asked_at = put_off.due_at;
        assert!(
            ended.started_at.unwrap() + Duration::from_millis(500) >= asked_at,
            "it started before its time"
        );
        assert_eq!(site.ended(one).await.state, State::Succeeded);
        told.drain().await;
        unaware.drain().await;
        site.close().await;
        other.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_with_a_great_backlog_keeps_nobody_waiting() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let crowd = Crowd::new();
        let worker = site
            .worker(crowd.handlers("ai"), |plan| plan.limits.kind(kind("ai"), Limit::default(), at_a_time(1)))
            .await;
        // More than the hot window holds.
        let many: Vec<_> = (0..1_100).map(|_| site.submit("ai", json!("many"), |_| {})).collect();
        futures_util::future::join_all(many).await;
        crowd.are(1).await;
        let few = site.submit("ai", json!("few"), |job| job.owner = Owner::new("globex").unwrap()).await;
        site.job_when(few, |job| job.state == State::Running).await;
        crowd.are(2).await;
        assert_eq!(crowd.most.load(Ordering::SeqCst), 2, "{}", database.name);
        crowd.go.close();
        worker.drain().await;
        site.close().await;
    }
}

/// What a client that pulls is given at once.
async fn pulled(site: &Site, kinds: &[&str]) -> Vec<Holding> {
    let name = ClientName::new("puller").unwrap();
    let kinds = kinds.iter().map(|name| kind(name)).collect();
    let client = Puller { name, owner: None, kinds, max: 1 };
    let pull = Pull { client, scope: Scope::All, lease: Duration::from_secs(60), wait: Duration::ZERO };
    let (_, wake) = watch::channel(0);
    remote::pull(&site.parts, &pull, wake, &CancellationToken::new()).await.unwrap()
}

#[tokio::test]
async fn a_client_that_pulls_is_given_what_may_start_behind_what_may_not() {
    for database in databases().await {
        let site = Site::without_keeper(&database).await;
        let mut limits = Limits::default();
        limits.kind(kind("a"), at_a_time(1), Limit::default());
        limits.kind(kind("b"), Limit::default(), at_a_time(1));
        site.parts.store.limit(limits);
        // The first of a kind that is at its limit by now.
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(site.submit("a", Value::Null, |_| {}).await);
        }
        assert_eq!(pulled(&site, &["a"]).await.len(), 1);
        assert_eq!(pulled(&site, &["a"]).await, []);
        let other = site.submit("c", Value::Null, |_| {}).await;
        let plan =
            RingPlan { window: 1_000, least: 0, max: 1_000, again: Duration::from_secs(60), rescan: None };
        let ring = async || site.parts.store.ring(&plan).await.unwrap();
        // Whatever the order in which it looks at kinds.
        for kinds in [["a", "c"], ["c", "a"]] {
            let [held] = <[Holding; 1]>::try_from(pulled(&site, &kinds).await).unwrap();
            assert_eq!(held.job.id, other, "{}", database.name);
            let back = Settlement { lease: held.lease, verdict: Verdict::HandBack, output: None };
            site.parts.store.settle(back).await.unwrap();
            ring().await;
        }

        let acme = |job: &mut NewJob| job.owner = Owner::new("acme").unwrap();
        for _ in 0..4 {
            site.submit("b", Value::Null, acme).await;
        }
        ring().await;
        assert_eq!(pulled(&site, &["b"]).await.len(), 1);
        ring().await;
        let few = site.submit("b", Value::Null, |job| job.owner = Owner::new("globex").unwrap()).await;
        ring().await;
        let [held] = <[Holding; 1]>::try_from(pulled(&site, &["b"]).await).unwrap();
        assert_eq!(held.job.id, few, "{}", database.name);
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_run_beside_each_other_as_far_as_their_sizes_allow() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let crowd = Crowd::new();
        let mut handlers = crowd.handlers("convert");
        handlers.plan_mut(&kind("convert")).unwrap().needs =
            [("memory", Need { base: 10, per_byte: 2 })].into_iter().collect();
        let worker =
            site.worker(handlers, |plan| plan.capacity = [("memory", 100)].into_iter().collect()).await;
        let submit = async |bytes| {
            let source = Source {
                name: "a.pdf".into(),
                bytes,
                sha256: "0".repeat(64),
                media_type: "application/pdf".into(),
                file: "originals/x".into(),
            };
            site.submit("convert", Value::Null, |job| job.source = Some(source)).await
        };
        let (one, two) = (submit(20).await, submit(20).await);
        crowd.are(2).await;
        let huge = submit(1_000_000).await;
        let small = submit(1).await;
        crowd.go.add_permits(2);
        for id in [one, two] {
            site.ended(id).await;
        }
        site.job_when(huge, |job| job.state == State::Running).await;
        assert_eq!(site.job(small).await.attempt, 0, "{}: what needs all of it runs alone", database.name);
        crowd.go.add_permits(2);
        for id in [huge, small] {
            assert_eq!(site.ended(id).await.attempt, 1);
        }
        assert_eq!(crowd.most.load(Ordering::SeqCst), 2);
        worker.drain().await;
        site.close().await;
    }
}
