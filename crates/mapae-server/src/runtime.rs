//! The runtime as this program wires it: which store, broker and files, and how they are opened.
//!
//! Everything here is a choice of the configuration; nothing here decides anything about a job.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mapae::accept::{Accept, Window};
use mapae::blob::{BlobError, Blobs};
use mapae::broker::contract::{Broker, BrokerError};
use mapae::broker::{self, BrokerPlan};
use mapae::handler::Handlers;
use mapae::handler::http::{Service, ServicePlan};
use mapae::job::limit::Limits;
use mapae::job::name::Kind;
use mapae::job::resource::Amounts;
use mapae::keeper::tell::{Courier, LinePlan, TellPlan};
use mapae::keeper::webhook::{To, Webhook};
use mapae::keeper::{self, KeeperHandle, KeeperPlan};
use mapae::metrics::Metrics;
use mapae::outgoing::NoClient;
use mapae::store::contract::{DESCRIBED_EVERY, Described, Store, StoreError};
use mapae::worker::slots::Slots;
use mapae::worker::{self, Parts, StartError, WorkerHandle, WorkerPlan};
use mapae_ai::pack::PackError;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ai::provider::Providers;
use crate::ai::taught::Taught;
use crate::config::{Address, Config};
use crate::{ai, batches, documents};

/// Callbacks of different jobs told at the same time to one host.
const CALLBACKS_CONCURRENT: usize = 4;

/// Waits between two tries to reach the database at the start, doubling.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

/// An opened runtime.
pub struct Runtime {
    pub store: Arc<dyn Store>,
    pub broker: Arc<dyn Broker>,
    pub blobs: Blobs,
    pub window: Arc<Window>,
    pub accept: Accept,
    pub metrics: Arc<Metrics>,
    /// Rung by programs that have submitted jobs in transactions of their own.
    pub bell: Arc<Notify>,
    /// What holds over all processes, as this one was told.
    pub limits: Limits,
    slots: OnceLock<Slots>,
    /// What owners have taught the classifier.
    pub taught: Arc<Taught>,
    understanding: tokio::sync::OnceCell<ai::Local>,
}

/// Why the runtime could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

impl OpenError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Broker(_) => "broker",
            Self::Blobs(error) => error.code(),
        }
    }

    /// Whether waiting may help: a person may start the database, or migrate it.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient() || matches!(error, StoreError::OlderSchema(_)),
            Self::Broker(error) => !matches!(error, BrokerError::Fatal(_)),
            Self::Blobs(error) => error.may_pass(),
        }
    }
}

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Service(#[from] NoClient),
    #[error(transparent)]
    Models(#[from] mapae_ai::pack::PackError),
}

/// Who brings the schema up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    /// This process: nobody else uses the database.
    Always,
    /// This process where there is no schema at all; otherwise a person, by `mapae migrate`.
    IfEmpty,
}

impl Runtime {
    /// Connects to everything once.
    pub async fn open(config: &Config, migrate: Migrate) -> Result<Arc<Self>, OpenError> {
        let store = open_store(config).await?;
        let opened = Self::around(config, store.clone(), migrate).await;
        if opened.is_err() {
            store.close().await;
        }
        opened
    }

    async fn around(
        config: &Config,
        store: Arc<dyn Store>,
        migrate: Migrate,
    ) -> Result<Arc<Self>, OpenError> {
        let schema = store.schema().await?;
        if schema.found > schema.known {
            return Err(StoreError::NewerSchema(schema).into());
        }
        if schema.found < schema.known {
            if migrate == Migrate::IfEmpty && schema.found > 0 {
                return Err(StoreError::OlderSchema(schema).into());
            }
            store.migrate().await?;
        }
        let plan = BrokerPlan {
            url: config.broker.url.reveal().to_owned(),
            database_url: config.database.reveal().to_owned(),
        };
        let broker = broker::open(&plan)?;
        let blobs = Blobs::open(config.files.reveal())?;
        if let Some(known) = store.files().await? {
            blobs.expect(known);
        }
        let window = Arc::new(Window::new(config.broker.window, broker.caps().source));
        // For whatever claims in this process, worker or not.
        let limits = config.limits();
        store.limit(limits.clone());
        let metrics: Arc<Metrics> = Arc::default();
        let (stored, rung) = (store.clone(), broker.clone());
        let accept = Accept::new(stored, rung, window.clone(), metrics.clone(), config.rescan_after);
        let (bell, slots) = (Arc::default(), OnceLock::new());
        let (taught, understanding) = (Arc::new(Taught::new(store.clone())), Default::default());
        let runtime = Self {
            store,
            broker,
            blobs,
            window,
            accept,
            metrics,
            bell,
            limits,
            slots,
            taught,
            understanding,
        };
        Ok(Arc::new(runtime))
    }

    async fn open_with_files(config: &Config, migrate: Migrate) -> Result<Arc<Self>, OpenError> {
        let runtime = Self::open(config, migrate).await?;
        let owned = runtime.own_files().await;
        if owned.is_err() {
            runtime.store.close().await;
        }
        owned.map(|()| runtime)
    }

    /// As [`Runtime::open`] with [`own_files`](Runtime::own_files), again and again while waiting may help. `told`
    /// hears of every failure.
    pub async fn open_patiently(
        config: &Config,
        migrate: Migrate,
        told: impl Fn(&OpenError),
    ) -> Result<Arc<Self>, OpenError> {
        let mut wait = FIRST;
        loop {
            match Self::open_with_files(config, migrate).await {
                Ok(runtime) => return Ok(runtime),
                Err(error) if !error.may_pass() => return Err(error),
                Err(error) => told(&error),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST);
        }
    }
}

impl Runtime {
    /// For what works under leases in this process.
    pub fn parts(&self) -> Parts {
        Parts {
            store: self.store.clone(),
            broker: self.broker.clone(),
            blobs: self.blobs.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// What this process understands of texts; the packs are opened by the first who asks.
    ///
    /// # Errors
    /// [`PackError`] of a pack that is there and broken.
    pub(crate) async fn understanding(&self) -> Result<&ai::Local, PackError> {
        let open = || async {
            let opened = tokio::task::spawn_blocking(ai::Local::open).await;
            let opened = opened.map_err(|error| PackError::Read(std::io::Error::other(error)))?;
            opened.map(|local| local.with(self.taught.clone(), self.metrics.clone()))
        };
        self.understanding.get_or_try_init(open).await
    }

    /// The slots of this process's worker, where it has one.
    pub fn slots(&self) -> Option<&Slots> {
        self.slots.get()
    }

    /// The database knows of the kinds of this configuration; again and again while waiting may help. For processes
    /// that stay: a command that looks in is to change nothing. `told` hears of every failure.
    pub async fn describe_patiently(
        &self,
        config: &Config,
        told: impl Fn(&StoreError),
    ) -> Result<Described, StoreError> {
        let mut wait = FIRST;
        loop {
            match self.store.describe(&config.kind_plans()).await {
                Ok(described) => return Ok(described),
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => told(&error),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// Says from time to time with which kinds this process runs, and tells when processes run with others. `first` is
    /// what came of it the first time.
    pub async fn keep_described(&self, config: &Config, first: Described) {
        let (kinds, mut last) = (config.kind_plans(), Described { in_force: true, others: 0 });
        let mut now = first;
        loop {
            if now != last {
                tell_described(now);
                last = now;
            }
            tokio::time::sleep(DESCRIBED_EVERY).await;
            match self.store.describe(&kinds).await {
                Ok(described) => now = described,
                Err(error) => tracing::debug!(code = error.code(), "the kinds could not be told; trying on"),
            }
        }
    }

    pub fn start_keeper(&self, config: &Config) -> Result<KeeperHandle, NoClient> {
        let plan = KeeperPlan {
            window: self.window.clone(),
            rescan_after: config.rescan_after,
            retention: config.retention.clone(),
            tell: tell(config)?,
            bell: self.bell.clone(),
            schedules: config.schedules.clone(),
        };
        Ok(keeper::start(self.parts(), plan))
    }

    /// A worker for every kind that this program and its configuration know and `worker.kinds` allows.
    pub async fn start_worker(
        &self,
        config: &Config,
        stop: CancellationToken,
    ) -> Result<WorkerHandle, WorkerError> {
        let plan = WorkerPlan {
            name: config.worker.name.clone().unwrap_or_else(host_name),
            strict_name: config.worker.name.is_some(),
            slots: config.worker.slots,
            prefetch: config.worker.prefetch,
            timing: config.worker.timing,
            capacity: capacity(config),
            rates: config.rates(),
            limits: config.limits(),
        };
        let providers = Providers::new(&config.providers, &config.operators(), self.metrics.clone())?;
        let local = self.understanding().await?.clone().asking(providers);
        let handlers = handlers(config, &local, &self.metrics)?;
        for (kind, resource) in config.undefined_needs() {
            tracing::warn!(%kind, resource, "a kind needs a resource that [resource] does not define: it is not limited");
        }
        if handlers.kinds().is_empty() {
            tracing::warn!("worker.kinds names no kind that this program runs: this worker runs nothing");
        }
        let handle = worker::start(self.parts(), handlers, plan, stop).await?;
        let _ = self.slots.set(handle.slots().clone());
        Ok(handle)
    }
}

fn tell_described(Described { in_force, others }: Described) {
    match (in_force, others) {
        (true, 0) => tracing::info!("every process runs with this configuration of kinds"),
        (true, others) => tracing::warn!(
            others,
            "processes run with other configurations of kinds; this one is the newest and in force"
        ),
        (false, others) => tracing::warn!(
            others,
            "another configuration of kinds is newer and in force: what is written back, and what `mapae.submit` makes, is as that one says"
        ),
    }
}

/// The kinds that this program runs by itself, unless the configuration gives them to a service.
pub const BUILT_IN: [&str; 3] = [documents::KIND, ai::KIND, batches::KIND];

/// What this process can run, as the configuration wants it run.
fn handlers(config: &Config, local: &ai::Local, metrics: &Arc<Metrics>) -> Result<Handlers, WorkerError> {
    let mut handlers = Handlers::default();
    if !config.handlers.keys().any(|kind| kind.as_str() == documents::KIND) {
        handlers.add(documents::handler(config, local.clone(), metrics.clone()));
    }
    if !config.handlers.keys().any(|kind| kind.as_str() == ai::KIND) {
        handlers.add(ai::Process(local.clone()));
    }
    if !config.handlers.keys().any(|kind| kind.as_str() == batches::KIND) {
        handlers.add(batches::Whole);
    }
    for (kind, handler) in &config.handlers {
        let plan = ServicePlan {
            url: handler.url.reveal().to_owned(),
            destinations: config.operators(),
            body: handler.body,
            timeout: handler.timeout,
            concurrent: handler.concurrent,
            accepted: handler.accepted.clone(),
            deadline: handler.deadline,
            secrets: handler.secrets.clone(),
            callback: config.http.url.clone(),
            key: handler.complete.key.clone(),
        };
        handlers.add_task(kind.clone(), Arc::new(Service::new(plan)?));
    }
    for kind in handlers.kinds() {
        let Some(plan) = handlers.plan_mut(&kind) else { continue };
        plan.retry = config.retry(&kind);
        if let Some(settings) = config.kinds.get(&kind) {
            plan.timeout = settings.timeout;
            plan.needs = settings.needs.clone();
        }
        if config.handlers.contains_key(&kind) {
            plan.needs.set(handler_resource(&kind), 1);
        }
    }
    handlers.retain(|kind| config.worker.kinds.iter().any(|pattern| pattern.matches(kind)));
    Ok(handlers)
}

/// The resource that a call to the kind's service takes one of, in each process. A job that would have to wait for
/// its call waits without a slot.
pub(crate) fn handler_resource(kind: &Kind) -> String {
    format!("handler.{kind}")
}

/// What each worker process has of the resources that are its own, calls to services among them.
fn capacity(config: &Config) -> Amounts {
    let mut capacity = config.capacity();
    for (kind, handler) in &config.handlers {
        capacity.set(handler_resource(kind), handler.concurrent as u64);
    }
    capacity
}

/// Whom this process tells of events.
fn tell(config: &Config) -> Result<TellPlan, NoClient> {
    let events = &config.events;
    let base = config.http.url.as_deref().unwrap_or_default();
    let line = |to: To, destinations, secrets, concurrent| -> Result<LinePlan, NoClient> {
        let courier = match stream(&to, base) {
            Some(stream) => stream,
            None => Arc::new(Webhook::new(to, destinations, events.timeout, secrets, base)?),
        };
        let patience = events.timeout;
        Ok(LinePlan { courier, concurrent, patience, backoff: events.backoff })
    };
    let mut plan = TellPlan { give_up: events.give_up, most: events.backlog, ..TellPlan::default() };
    for receiver in &events.receivers {
        let to = To::Receiver(receiver.url.reveal().to_owned());
        let line = line(to, config.operators(), receiver.secrets.clone(), receiver.concurrent)?;
        plan.receivers.push((receiver.to.clone(), line));
        let renamed = receiver.former.iter().map(|former| (former.clone(), receiver.to.name.clone()));
        plan.renamed.extend(renamed);
    }
    if events.callbacks.is_some() {
        let secrets = events.callbacks.clone();
        plan.callbacks = Some(line(To::Callbacks, config.strangers(), secrets, CALLBACKS_CONCURRENT)?);
    }
    Ok(plan)
}

/// `None` where it is no stream, and so called.
#[cfg(feature = "streams")]
fn stream(to: &To, base: &str) -> Option<Arc<dyn Courier>> {
    let To::Receiver(url) = to else { return None };
    Some(Arc::new(mapae::keeper::stream::Stream::parse(url, base)?))
}

#[cfg(not(feature = "streams"))]
fn stream(_: &To, _: &str) -> Option<Arc<dyn Courier>> {
    None
}

/// The kinds that a worker of this configuration runs.
pub fn kinds(config: &Config) -> Vec<Kind> {
    let built_in = BUILT_IN.iter().filter_map(|name| Kind::new(*name).ok());
    let mut kinds: Vec<Kind> = built_in.chain(config.handlers.keys().cloned()).collect();
    kinds.retain(|kind| config.worker.kinds.iter().any(|pattern| pattern.matches(kind)));
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "host".to_owned() } else { name.to_owned() }
}

/// The configured database, whatever its schema.
pub async fn open_store(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
    prepare_folder(&config.database);
    mapae::store::open(config.database.reveal(), config.events.any()).await
}

/// A database file needs its folder. What goes wrong here is told by whoever opens the file.
fn prepare_folder(database: &Address) {
    if database.scheme() == "sqlite"
        && !database.path().starts_with(':')
        && let Some(folder) = std::path::Path::new(database.path()).parent()
    {
        let _ = std::fs::create_dir_all(folder);
    }
}
