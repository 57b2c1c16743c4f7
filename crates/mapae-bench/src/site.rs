//! A whole runtime in this process: store, broker, files, keeper, and a worker that does nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use mapae::accept::{Accept, Window};
use mapae::blob::Blobs;
use mapae::broker::{self, BrokerPlan};
use mapae::handler::{Context, Handlers};
use mapae::job::lease::Timing;
use mapae::job::limit::Limits;
use mapae::job::name::{JobId, Kind, Owner};
use mapae::job::record::NewJob;
use mapae::job::resource::Amounts;
use mapae::keeper::tell::TellPlan;
use mapae::keeper::{self, KeeperHandle, KeeperPlan};
use mapae::metrics::Metrics;
use mapae::store;
use mapae::store::contract::Retention;
use mapae::worker::{self, Parts, WorkerHandle, WorkerPlan};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const WINDOW: usize = 1_000;
const RESCAN: Duration = Duration::from_secs(60);

/// Where the jobs of a benchmark live.
pub(crate) enum Database {
    Sqlite,
    /// The server's address.
    Postgres(String),
}

impl Database {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }
}

pub(crate) struct Site {
    parts: Parts,
    pub(crate) accept: Accept,
    pub(crate) url: String,
    pub(crate) done: Arc<AtomicUsize>,
    keeper: KeeperHandle,
    server: Option<String>,
    _folder: tempfile::TempDir,
}

impl Site {
    pub(crate) async fn new(database: &Database) -> Self {
        Self::over(database, "embedded:").await
    }

    /// With the broker at this address.
    pub(crate) async fn over(database: &Database, broker: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (url, server) = match database {
            Database::Sqlite => (format!("sqlite:{}", folder.path().join("mapae.db").display()), None),
            Database::Postgres(server) => (fresh(server).await, Some(server.clone())),
        };
        let store = store::open(&url, false).await.unwrap();
        store.migrate().await.unwrap();
        let broker = broker::open(&BrokerPlan { url: broker.into(), database_url: url.clone() }).unwrap();
        let blobs = Blobs::open(&format!("file:{}", folder.path().join("files").display())).unwrap();
        let window = Arc::new(Window::new(WINDOW, broker.caps().source));
        let metrics = Arc::new(Metrics::default());
        let accept = Accept::new(store.clone(), broker.clone(), window.clone(), metrics.clone(), RESCAN);
        let parts = Parts { store, broker, blobs, metrics };
        let plan = KeeperPlan {
            window,
            rescan_after: RESCAN,
            retention: Retention::default(),
            tell: TellPlan::default(),
            bell: Arc::default(),
            schedules: Vec::new(),
        };
        let keeper = keeper::start(parts.clone(), plan);
        Self { parts, accept, url, done: Arc::default(), keeper, server, _folder: folder }
    }

    pub(crate) fn job() -> NewJob {
        NewJob::new(Owner::new("bench").unwrap(), Kind::new("bench.nothing").unwrap(), json!({ "n": 1 }))
    }

    /// So many jobs, accepted as many callers at once would.
    pub(crate) async fn fill(&self, jobs: usize) {
        for _ in 0..jobs / 500 {
            try_join_all((0..500).map(|_| self.accept.accept(Self::job()))).await.unwrap();
        }
    }

    /// A worker whose handler does nothing, and what it tells of each job that has started.
    pub(crate) async fn worker(
        &self,
        slots: usize,
    ) -> (WorkerHandle, mpsc::UnboundedReceiver<(JobId, Instant)>) {
        let mut handlers = Handlers::default();
        let (tell, told) = mpsc::unbounded_channel();
        let done = self.done.clone();
        handlers.add_fn("bench.nothing", move |_: serde_json::Value, ctx: Context| {
            let _ = tell.send((ctx.job().id, Instant::now()));
            done.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        });
        let plan = WorkerPlan {
            name: "bench".into(),
            strict_name: false,
            slots,
            prefetch: slots,
            timing: Timing {
                lease: Duration::from_secs(30),
                heartbeat: Duration::from_secs(5),
                drain: Duration::from_secs(20),
            },
            capacity: Amounts::default(),
            rates: BTreeMap::new(),
            limits: Limits::default(),
        };
        let started = worker::start(self.parts.clone(), handlers, plan, CancellationToken::new()).await;
        (started.unwrap(), told)
    }

    /// Until the handlers have begun so many.
    pub(crate) async fn begun(&self, jobs: usize) {
        while self.done.load(Ordering::Relaxed) < jobs {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Until the handlers have begun so many and no job is left that has not ended, of those that began.
    pub(crate) async fn ended(&self, jobs: usize) {
        self.begun(jobs).await;
        loop {
            let stats = self.parts.store.stats().await.unwrap();
            let succeeded = stats.states.iter().find(|(state, _)| state.as_str() == "succeeded").unwrap().1;
            if succeeded >= jobs as u64 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn close(self) {
        self.keeper.stop().await;
        self.parts.store.close().await;
        if let Some(server) = self.server {
            let name = self.url.rsplit('/').next().unwrap().to_owned();
            execute(&server, &format!("drop database {name} with (force)")).await;
        }
    }
}

/// A new database on the server.
pub(crate) async fn fresh(server: &str) -> String {
    let name = format!("bench_{}", uuid::Uuid::new_v4().simple());
    execute(server, &format!("create database {name}")).await;
    format!("{}/{name}", server.rsplit_once('/').unwrap().0)
}

pub(crate) async fn execute(url: &str, statement: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
