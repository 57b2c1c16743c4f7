//! The worker where a broker delivers pointers, on a broker that is no better than it has to be, over every
//! store and in both ways of settling.

mod reading;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mapae::broker::contract::{Broker, IntakePlan, Pointer, Settle, Settling};
use mapae::handler::{Context, Handlers};
use mapae::job::State;
use mapae::job::lease::Holder;
use mapae::job::name::{JobId, Kind, Owner};
use mapae::job::record::{NewJob, Output};
use mapae::job::retry::Failure;
use mapae::store;
use mapae::store::contract::{Scope, Store};
use mapae::store::memory::Memory;
use mapae::worker::readiness::Phase;
use mapae::worker::{IDLE_WAIT, WorkerHandle, WorkerPlan};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::site::{Database, PATIENCE, Site, databases, owner};
use crate::unruly::{Moods, Unruly};

const BOTH: [Settling; 2] = [Settling::AtFinish, Settling::AtClaim];

/// More jobs than any test has.
const ALL: usize = 1_000;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

/// A store to stand on, with a hand on its leases.
struct Ground {
    name: &'static str,
    store: Arc<dyn Store>,
    memory: Option<Memory>,
    database: Option<Database>,
}

async fn grounds() -> Vec<Ground> {
    let memory = Memory::in_real_time();
    let store = Arc::new(memory.clone());
    let mut grounds = vec![Ground { name: "memory", store, memory: Some(memory), database: None }];
    for database in databases().await {
        let store = store::open(&database.url, false).await.unwrap();
        store.migrate().await.unwrap();
        grounds.push(Ground { name: database.name, store, memory: None, database: Some(database) });
    }
    grounds
}

/// Holds a law on every ground and in the given ways of settling, all at a time.
async fn everywhere(ways: &[Settling], law: impl AsyncFn(&Ground, Settling)) {
    for way in ways {
        let grounds = grounds().await;
        join_all(grounds.iter().map(async |ground| {
            law(ground, *way).await;
            eprintln!("held on {} {way:?}", ground.name);
        }))
        .await;
    }
}

impl Ground {
    /// No worker has been heard of for too long.
    async fn end_leases(&self) {
        if let Some(memory) = &self.memory {
            memory.advance(Duration::from_secs(30));
        }
        if let Some(database) = &self.database {
            let text = match database.name {
                "sqlite" => "update jobs set leased_until = 0 where state = 'running'",
                _ => "update mapae.jobs set leased_until = now() - interval '1 s' where state = 'running'",
            };
            execute(&database.url, text).await;
        }
    }

    /// The job's worker has not been heard of for too long, and a keeper has found out.
    async fn lose_lease(&self, job: JobId) {
        soon("the lease is lost", async || {
            self.end_leases().await;
            // A heartbeat may come between, and then the lease lives.
            self.store.reap(10).await.unwrap().iter().any(|reaped| reaped.job == job).then_some(())
        })
        .await;
    }
}

async fn execute(url: &str, statement: &'static str) {
    use sqlx::Connection;
    if url.starts_with("sqlite") {
        let mut connection = sqlx::SqliteConnection::connect(url).await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    } else {
        let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }
}

/// Asks until there is an answer.
async fn soon<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the handlers of a test have seen, and the gate at which they wait.
#[derive(Clone)]
struct Watch {
    seen: Arc<Mutex<Seen>>,
    gate: Arc<Semaphore>,
}

#[derive(Default)]
struct Seen {
    order: Vec<JobId>,
    running: BTreeSet<JobId>,
    twice: Vec<JobId>,
}

impl Watch {
    fn open() -> Self {
        let watch = Self::shut();
        watch.let_pass(ALL);
        watch
    }

    /// Whoever runs waits, deaf to everything, until it is let pass.
    fn shut() -> Self {
        Self { seen: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    fn let_pass(&self, jobs: usize) {
        self.gate.add_permits(jobs);
    }

    fn order(&self) -> Vec<JobId> {
        self.seen.lock().unwrap().order.clone()
    }

    fn ended(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.order.len() - seen.running.len()
    }

    async fn until_running(&self, jobs: usize) {
        soon("so many jobs run", async || (self.seen.lock().unwrap().running.len() == jobs).then_some(()))
            .await;
    }

    /// A job succeeds at the attempt that its params name, with its own id.
    fn handlers(&self) -> Handlers {
        let mut handlers = Handlers::default();
        let watch = self.clone();
        handlers.add_fn("work", move |good_at: u32, ctx: Context| {
            let watch = watch.clone();
            async move {
                let id = ctx.job().id;
                let _running = Running::begin(&watch, id);
                watch.gate.acquire().await.map_err(|_| Failure::cancelled())?.forget();
                tokio::time::sleep(Duration::from_millis(2)).await;
                if ctx.job().attempt < good_at {
                    return Err(Failure::retryable("not-yet", "Not yet."));
                }
                Ok(id.to_string())
            }
        });
        handlers
    }
}

struct Running {
    watch: Watch,
    id: JobId,
}

impl Running {
    fn begin(watch: &Watch, id: JobId) -> Self {
        let mut seen = watch.seen.lock().unwrap();
        seen.order.push(id);
        if !seen.running.insert(id) {
            seen.twice.push(id);
        }
        Self { watch: watch.clone(), id }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.watch.seen.lock().unwrap().running.remove(&self.id);
    }
}

/// A site on the ground with the broker, and a watch over its handlers.
struct Stage {
    site: Site,
    broker: Unruly,
    watch: Watch,
}

impl Stage {
    fn new(ground: &Ground, broker: Unruly, watch: Watch, rescan_after: Duration) -> Self {
        let site = Site::around(ground.store.clone(), Arc::new(broker.clone()), rescan_after);
        Self { site, broker, watch }
    }

    async fn ensured(self) -> Self {
        self.broker.ensure(&[lane()]).await.unwrap();
        self
    }

    async fn worker(&self, change: impl FnOnce(&mut WorkerPlan)) -> WorkerHandle {
        self.site.worker(self.watch.handlers(), change).await
    }

    async fn submit(&self, good_at: u32) -> JobId {
        self.site.submit("work", json!(good_at), |_| {}).await
    }

    async fn submit_many(&self, jobs: usize) -> Vec<JobId> {
        join_all((0..jobs).map(|_| self.submit(1))).await
    }

    /// Waits until every pointer of these jobs has been published.
    async fn waiting(&self, entries: usize) {
        soon("the pointers are there", async || (self.broker.depth().0 == entries).then_some(())).await;
    }

    fn count(&self, name: &'static str, label: &str) -> u64 {
        self.site.parts.metrics.counts().get(&(name, label.to_owned())).copied().unwrap_or_default()
    }

    async fn counted(&self, name: &'static str, label: &str, count: u64) {
        soon("it is counted", async || (self.count(name, label) >= count).then_some(())).await;
    }

    /// The job succeeded once, at this attempt, with its own result, and never ran twice at a time.
    async fn succeeded(&self, id: JobId, attempt: u32) {
        let job = self.site.ended(id).await;
        assert_eq!((job.state, job.attempt, job.failure), (State::Succeeded, attempt, None));
        let output = self.site.store().output(&Scope::All, id).await.unwrap();
        assert_eq!(output, Some(Output::Inline(json!(id.to_string()))));
        let story = self.site.story(id).await;
        let times = |event: &str| story.iter().filter(|told| **told == event).count();
        // Claimed while a drain began it is handed back, and that uses no attempt.
        let begun = times("claimed") - times("released");
        assert_eq!((begun, times("succeeded")), (attempt as usize, 1), "{story:?}");
        assert_eq!(self.watch.seen.lock().unwrap().twice, [], "ran twice at a time");
    }

    /// Nothing waits and nothing is left unacknowledged. Entries that were left are idle by now.
    async fn broker_is_empty(&self) {
        soon("the broker is empty", async || {
            self.broker.pass(Duration::from_secs(1));
            (self.broker.depth() == (0, 0)).then_some(())
        })
        .await;
    }
}

fn lane() -> mapae::job::name::Lane {
    NewJob::new(owner(), Kind::new("work").unwrap(), Value::Null).lane()
}

fn pointer_to(job: JobId, owner: Owner) -> Vec<u8> {
    Pointer::new(job, owner, Kind::new("work").unwrap(), 1, None).encode()
}

fn named(name: &'static str) -> impl FnOnce(&mut WorkerPlan) {
    move |plan| plan.name = name.into()
}

fn sized(slots: usize, prefetch: usize) -> impl FnOnce(&mut WorkerPlan) {
    move |plan| {
        plan.slots = slots;
        plan.prefetch = prefetch;
    }
}

/// Looks for orphans every other second.
fn watchful(name: &'static str) -> impl FnOnce(&mut WorkerPlan) {
    move |plan| {
        plan.name = name.into();
        plan.timing.lease = Duration::from_secs(8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_broker_does_every_job_succeeds_exactly_once() {
    let moods =
        Moods { lose: 10, double: 25, delay: 30, garble: 5, refuse: 5, unknown: 5, fail_read: 5, forget: 10 };
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, moods, 1);
        let mut stage = Stage::new(ground, broker, Watch::open(), Duration::from_millis(300)).ensured().await;
        stage.site.keep();
        let mut workers = vec![stage.worker(watchful("one")).await, stage.worker(watchful("two")).await];
        let mut jobs = Vec::new();
        for number in 0..40 {
            let good_at = 1 + number % 3;
            jobs.push((stage.submit(good_at).await, good_at));
            if number == 10 {
                stage.broker.inject(&lane(), b"\xffgarbage".to_vec());
                stage.broker.inject(&lane(), pointer_to(jobs[0].0, Owner::new("other").unwrap()));
                stage.broker.inject(&lane(), pointer_to(JobId::new(), owner()));
            }
            if number == 20 {
                stage.broker.wipe();
            }
            if number == 30 {
                workers.remove(0).drain().await;
                workers.push(stage.worker(watchful("three")).await);
            }
        }
        for (id, good_at) in jobs {
            stage.succeeded(id, good_at).await;
        }
        stage.broker_is_empty().await;
        let parked = stage.broker.parked().len() as u64;
        assert!(stage.count("mapae_deliveries_total", "foreign") >= parked);
        for worker in workers {
            worker.drain().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rescan_and_keeper_the_pending_list_brings_every_job_to_its_end() {
    let moods = Moods { double: 30, delay: 30, fail_read: 5, forget: 20, ..Moods::default() };
    everywhere(&[Settling::AtFinish], async |ground, way| {
        let stage = Stage::new(ground, Unruly::new(way, moods, 3), Watch::shut(), NEVER).ensured().await;
        let jobs = stage.submit_many(12).await;
        // Dies in the middle of four jobs and with others read; its leases and what it has read grow old.
        crash(&stage, 4).await;
        ground.end_leases().await;
        stage.broker.pass(NEVER);
        stage.watch.let_pass(ALL);
        let other = stage.worker(named("other")).await;
        for id in jobs {
            let job = stage.site.ended(id).await;
            assert_eq!(job.state, State::Succeeded);
            stage.succeeded(id, job.attempt).await;
            assert!(job.attempt <= 2, "one crash costs one attempt at most");
        }
        stage.broker_is_empty().await;
        other.drain().await;
    })
    .await;
}

/// A worker of its own runtime that ends without a word while `running` of its jobs run.
async fn crash(stage: &Stage, running: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let plan = crate::site::plan("w");
    let (parts, handlers) = (stage.site.parts.clone(), stage.watch.handlers());
    let starting = runtime.spawn(async move {
        mapae::worker::start(parts, handlers, plan, tokio_util::sync::CancellationToken::new()).await.unwrap()
    });
    let worker = starting.await.unwrap();
    stage.watch.until_running(running).await;
    // The handle goes last, or it would begin to drain.
    tokio::task::spawn_blocking(|| runtime.shutdown_timeout(PATIENCE)).await.unwrap();
    drop(worker);
    stage.watch.until_running(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_loses_everything_delays_and_loses_nothing() {
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 4);
        let mut stage = Stage::new(ground, broker, Watch::shut(), Duration::from_millis(200)).ensured().await;
        stage.site.keep();
        let worker = stage.worker(sized(2, 2)).await;
        let mut readiness = worker.readiness();
        let jobs = stage.submit_many(10).await;
        stage.watch.until_running(2).await;
        for _ in 0..2 {
            let ready = readiness.wait_for(|now| now.phase == Phase::Consuming);
            tokio::time::timeout(PATIENCE, ready).await.expect("ready").unwrap();
            // Until it has been seen: otherwise it may be ready again before anybody looks.
            stage.broker.be_silent(true);
            stage.broker.wipe();
            // Read in vain: with its slots busy a worker has no need to see the broker for a while.
            stage.watch.let_pass(2);
            let red = readiness.wait_for(|now| now.phase != Phase::Consuming);
            tokio::time::timeout(PATIENCE, red).await.expect("not ready").unwrap();
            stage.broker.be_silent(false);
        }
        stage.watch.let_pass(ALL);
        for id in jobs {
            stage.succeeded(id, 1).await;
        }
        stage.broker_is_empty().await;
        assert_eq!(readiness.borrow().phase, Phase::Consuming, "ready again without a restart");
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lost_its_lease_acknowledges_nothing() {
    everywhere(&[Settling::AtFinish], async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 5);
        let mut stage = Stage::new(ground, broker, Watch::shut(), NEVER).ensured().await;
        let first = stage.worker(sized(1, 0)).await;
        let id = stage.submit(1).await;
        stage.watch.until_running(1).await;
        let [entry] = stage.broker.pending()[..] else { panic!("one entry is unacknowledged") };

        ground.lose_lease(id).await;
        stage.counted("mapae_lease_lost_total", "work", 1).await;
        assert!(stage.broker.pending().contains(&entry), "not acknowledged");
        assert_eq!(stage.broker.settled_by(first.holder()), []);

        stage.watch.let_pass(ALL);
        stage.site.keep();
        assert_eq!(stage.site.ended(id).await.attempt, 2);
        assert_eq!(stage.site.story(id).await, ["accepted", "claimed", "lost", "claimed", "succeeded"]);
        first.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_pointer_is_left_at_finish_and_acknowledged_at_claim() {
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 6);
        let stage = Stage::new(ground, broker, Watch::shut(), NEVER).ensured().await;
        let worker = stage.worker(watchful("w")).await;
        let id = stage.submit(1).await;
        stage.watch.until_running(1).await;

        let again = stage.broker.inject(&lane(), pointer_to(id, owner()));
        stage.counted("mapae_deliveries_total", "busy", 1).await;
        if way == Settling::AtFinish {
            assert!(stage.broker.pending().contains(&again), "it comes again once the lease can be taken");
            assert_eq!(stage.broker.settled_by(worker.holder()), []);
        } else {
            soon("acknowledged", async || (!stage.broker.pending().contains(&again)).then_some(())).await;
            assert!(stage.broker.settled_by(worker.holder()).contains(&(again, Settle::Drop)));
        }

        stage.watch.let_pass(ALL);
        stage.succeeded(id, 1).await;
        stage.broker_is_empty().await;
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_to_read_is_kept_apart_and_counted() {
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 7);
        let stage = Stage::new(ground, broker, Watch::shut(), NEVER).ensured().await;
        let worker = stage.worker(|_| {}).await;
        let id = stage.submit(1).await;
        stage.watch.until_running(1).await;
        stage.broker.inject(&lane(), b"not a pointer".to_vec());
        stage.broker.inject(&lane(), vec![b' '; Pointer::BYTES_MAX + 1]);
        stage.broker.inject(&lane(), pointer_to(id, Owner::new("other").unwrap()));
        stage.counted("mapae_deliveries_total", "foreign", 3).await;
        stage.broker.inject(&lane(), pointer_to(JobId::new(), owner()));
        stage.counted("mapae_deliveries_total", "stale", 1).await;

        stage.watch.let_pass(1);
        stage.succeeded(id, 1).await;
        stage.broker_is_empty().await;
        let mut parked = stage.broker.parked();
        parked.sort_unstable();
        assert_eq!(
            parked,
            ["not a pointer", "not a pointer", "owner differs"],
            "the unknown job's is dropped"
        );
        assert_eq!(stage.count("mapae_deliveries_total", "foreign"), 3);
        worker.drain().await;
    })
    .await;
}
