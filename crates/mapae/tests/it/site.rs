//! A whole runtime in this process for a test: store, broker, files, door, keeper, and workers at will.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use mapae::accept::{Accept, Window};
use mapae::blob::Blobs;
use mapae::broker::contract::Broker;
use mapae::broker::{self, BrokerPlan};
use mapae::handler::Handlers;
use mapae::job::lease::{Holder, Timing};
use mapae::job::name::{JobId, Kind, Owner};
use mapae::job::record::{Job, NewJob};
use mapae::job::resource::Amounts;
use mapae::job::timestamp::Timestamp;
use mapae::keeper::tell::TellPlan;
use mapae::keeper::{self, KeeperHandle, KeeperPlan};
use mapae::metrics::Metrics;
use mapae::store;
use mapae::store::contract::{Claim, Retention, Scope, Store};
use mapae::worker::{self, Parts, WorkerHandle, WorkerPlan};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// The longest a test waits for anything: far beyond what a slow machine needs, so that only a fault
/// reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where a test's jobs live.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    pub(crate) _folder: Arc<Option<tempfile::TempDir>>,
}

/// An empty database of every sort that this run tests.
pub(crate) async fn databases() -> Vec<Database> {
    let mut databases = Vec::new();
    if store::STORES.iter().any(|(scheme, _)| *scheme == "sqlite") {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("mapae.db").display());
        databases.push(Database { name: "sqlite", url, _folder: Arc::new(Some(folder)) });
    }
    if let Some(server) = postgres() {
        databases.push(Database { name: "postgres", url: fresh(&server).await, _folder: Arc::default() });
    }
    databases
}

/// The server that `cargo xtask test` started. Without one only a run that says so may pass.
pub(crate) fn postgres() -> Option<String> {
    let server = std::env::var("MAPAE_TEST_POSTGRES").ok();
    let embedded = std::env::var_os("MAPAE_TEST_EMBEDDED").is_some();
    assert!(
        server.is_some() || embedded,
        "no PostgreSQL: run `cargo xtask test`, or set MAPAE_TEST_EMBEDDED=1"
    );
    server
}

/// A new, empty database on the server.
pub(crate) async fn fresh(server: &str) -> String {
    use sqlx::Connection;
    let name = format!("mapae_{}", uuid::Uuid::new_v4().simple());
    let mut connection = sqlx::PgConnection::connect(server).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("create database {name}")))
        .execute(&mut connection)
        .await
        .unwrap();
    let (before, _) = server.rsplit_once('/').unwrap();
    format!("{before}/{name}")
}

/// The runtime around one database.
pub(crate) struct Site {
    pub(crate) parts: Parts,
    pub(crate) accept: Accept,
    pub(crate) window: Arc<Window>,
    rescan_after: Duration,
    keeper: Option<KeeperHandle>,
    _files: tempfile::TempDir,
}

impl Site {
    pub(crate) async fn new(database: &Database) -> Self {
        let mut site = Self::without_keeper(database).await;
        site.keep();
        site
    }

    pub(crate) async fn without_keeper(database: &Database) -> Self {
        let store = store::open(&database.url, false).await.unwrap();
        store.migrate().await.unwrap();
        let plan = BrokerPlan { url: "embedded:".into(), database_url: database.url.clone() };
        Self::around(store, broker::open(&plan).unwrap(), Duration::from_secs(60))
    }

    /// A site without a keeper. `rescan_after` is how long a published pointer may go unclaimed.
    pub(crate) fn around(store: Arc<dyn Store>, broker: Arc<dyn Broker>, rescan_after: Duration) -> Self {
        let files = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&format!("file:{}", files.path().display())).unwrap();
        let window = Arc::new(Window::new(1_000, broker.caps().source));
        let metrics = Arc::new(Metrics::default());
        let accept =
            Accept::new(store.clone(), broker.clone(), window.clone(), metrics.clone(), rescan_after);
        let parts = Parts { store, broker, blobs, metrics };
        Self { parts, accept, window, rescan_after, keeper: None, _files: files }
    }

    pub(crate) fn keep(&mut self) {
        self.keep_and_tell(TellPlan::default());
    }

    /// With a keeper that tells events.
    pub(crate) fn keep_and_tell(&mut self, tell: TellPlan) {
        let plan = KeeperPlan {
            window: self.window.clone(),
            rescan_after: self.rescan_after,
            retention: Retention::default(),
            tell,
            bell: Arc::default(),
            schedules: Vec::new(),
        };
        self.keeper = Some(keeper::start(self.parts.clone(), plan));
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.parts.store
    }

    pub(crate) async fn worker(
        &self,
        handlers: Handlers,
        change: impl FnOnce(&mut WorkerPlan),
    ) -> WorkerHandle {
        let mut plan = plan("w");
        change(&mut plan);
        worker::start(self.parts.clone(), handlers, plan, CancellationToken::new()).await.unwrap()
    }

    pub(crate) async fn submit(&self, kind: &str, params: Value, change: impl FnOnce(&mut NewJob)) -> JobId {
        let mut job = NewJob::new(owner(), Kind::new(kind).unwrap(), params);
        job.retry.backoff.first = Duration::from_millis(20);
        change(&mut job);
        self.accept.accept(job).await.unwrap().id
    }

    pub(crate) async fn job(&self, id: JobId) -> Job {
        self.store().job(&Scope::All, id).await.unwrap().expect("the job is there")
    }

    /// The job once `condition` holds.
    pub(crate) async fn job_when(&self, id: JobId, condition: impl Fn(&Job) -> bool) -> Job {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let job = self.job(id).await;
            if condition(&job) {
                return job;
            }
            assert!(Instant::now() < deadline, "still waiting for {job:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn ended(&self, id: JobId) -> Job {
        self.job_when(id, |job| job.state.is_terminal()).await
    }

    /// When the lease of the running job ends, as the database has it.
    async fn leased_until(&self, id: JobId) -> Timestamp {
        let other = Holder::new("another");
        let answers = self.store().claim(&other, &[(id, owner())], Duration::from_secs(1)).await.unwrap();
        match answers[..] {
            [Claim::Busy(until)] => until,
            ref other => panic!("{other:?} instead of a live lease"),
        }
    }

    /// Waits until the lease of the running job has been renewed three times from now on: the first may have
    /// been on its way.
    pub(crate) async fn renewed(&self, id: JobId) {
        let deadline = Instant::now() + PATIENCE;
        let mut until = self.leased_until(id).await;
        for _ in 0..3 {
            let before = until;
            while until == before {
                assert!(Instant::now() < deadline, "the lease of {id} is not renewed");
                tokio::time::sleep(Duration::from_millis(5)).await;
                until = self.leased_until(id).await;
            }
        }
    }

    /// What has happened to the job, in words. Waits for all of it: an event is told only once no transaction
    /// on the whole server can come before it, and other tests have theirs there.
    pub(crate) async fn story(&self, id: JobId) -> Vec<&'static str> {
        use mapae::store::contract::EventFilter;
        let filter = EventFilter { job: Some(id), ..EventFilter::default() };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let known = self.job(id).await.sequence;
            let events = self.store().events(&Scope::All, &filter, 1_000).await.unwrap();
            let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
            assert_eq!(sequences, (1..=events.len() as u64).collect::<Vec<_>>(), "events are gapless");
            if events.len() as u64 >= known {
                return events.into_iter().map(|event| event.event.as_str()).collect();
            }
            assert!(Instant::now() < deadline, "still waiting for the events of {id}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn close(mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop().await;
        }
        self.parts.store.close().await;
    }
}

/// Where threads wait, each of them whole, until the key is dropped; a test that fails drops it as well.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Mutex<mpsc::Receiver<()>>>);

pub(crate) struct Key(#[expect(dead_code, reason = "what counts is when it is dropped")] mpsc::Sender<()>);

impl Gate {
    pub(crate) fn shut() -> (Self, Key) {
        let (key, gate) = mpsc::channel();
        (Self(Arc::new(Mutex::new(gate))), Key(key))
    }

    pub(crate) fn block(&self) {
        let _ = self.0.lock().unwrap().recv();
    }
}

pub(crate) fn owner() -> Owner {
    Owner::new("acme").unwrap()
}

pub(crate) fn plan(name: &str) -> WorkerPlan {
    WorkerPlan {
        name: name.into(),
        strict_name: false,
        slots: 4,
        prefetch: 4,
        timing: Timing {
            lease: Duration::from_secs(20),
            heartbeat: Duration::from_millis(200),
            drain: Duration::from_secs(20),
        },
        capacity: Amounts::default(),
        rates: Default::default(),
        limits: Default::default(),
    }
}
