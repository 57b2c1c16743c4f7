//! What the operator says: defaults, then `mapae.toml`, then `MAPAE_…` variables, then flags.
//!
//! ```text
//! layer (what was set, and where) ──► resolve (what it means, all mistakes at once) ──► Config
//!        both read key, the table of every key there is
//! ```

mod ai;
mod error;
mod events;
mod explain;
pub mod key;
mod layer;
mod nearest;
mod reference;
mod resolve;
mod secret;
mod value;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use mapae::handler::http::{Body, FieldPath};
use mapae::handler::signature::Secrets;
use mapae::job::End;
use mapae::job::lease::Timing;
use mapae::job::limit::{self, Limit, Rate};
use mapae::job::name::Kind;
use mapae::job::resource::{Amounts, Needs};
use mapae::job::retry::{Backoff, RetryPolicy};
use mapae::job::schedule::Plan;
use mapae::job::unique::UniqueRule;
use mapae::outgoing::{Allowed, Destinations};
use mapae::store::contract::{KindPlan, Receiver, Retention};

pub use self::error::ConfigError;
pub use self::layer::{Flag, Origin, Settings};
pub use self::nearest::nearest;
pub use self::reference::reference;
pub use self::secret::{Address, Secret};
pub use self::value::{parse_duration, show_duration};
use crate::plans::OnBody;

/// A configuration that has passed its checks.
#[derive(Clone, Debug)]
pub struct Config {
    pub database: Address,
    pub broker: Broker,
    pub files: Address,
    pub http: Http,
    pub worker: Worker,
    pub rescan_after: Duration,
    pub kinds: BTreeMap<Kind, KindSettings>,
    pub schedules: Vec<Plan>,
    pub resources: BTreeMap<String, Resource>,
    pub handlers: BTreeMap<Kind, Handler>,
    pub events: Events,
    /// Where calls to the outside may go beyond what everybody may reach.
    /// Who is asked for what a model can say, in this order.
    pub providers: Vec<Provider>,
    pub allowed: Vec<Allowed>,
    pub limits: Limits,
    pub retention: Retention,
    pub log: Log,
}

#[derive(Clone, Debug)]
pub struct Broker {
    pub url: Address,
    pub window: usize,
}

#[derive(Clone, Debug)]
pub struct Http {
    pub listen: SocketAddr,
    /// For a request to be answered; for an upload, to send nothing.
    pub timeout: Duration,
    pub wait: Duration,
    /// Where services and clients reach the API, as configured.
    pub url: Option<String>,
}

impl Http {
    /// Where the API that listens there is reached, unless the configuration says.
    pub fn reached_at(&mut self, listen: SocketAddr) {
        let ip = match listen.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        self.url.get_or_insert_with(|| format!("http://{}", SocketAddr::new(ip, listen.port())));
    }
}

#[derive(Clone, Debug)]
pub struct Worker {
    /// `None`: the host's name, and `name-2` beside a second worker there.
    pub name: Option<String>,
    pub slots: usize,
    pub prefetch: usize,
    pub kinds: Vec<Pattern>,
    pub timing: Timing,
}

/// A kind, or the kinds that begin with something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    Exactly(String),
    BeginsWith(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct KindSettings {
    pub retry: RetryPolicy,
    pub timeout: Duration,
    pub needs: Needs,
    pub unique: Option<UniqueRule>,
    /// What comes after each job of the kind, unless its submission says otherwise.
    pub on: OnBody,
    /// Statements that run in the transaction that ends a job of the kind.
    pub writes: BTreeMap<End, String>,
    /// Of all jobs of the kind together, over all workers.
    pub whole: Limit,
    /// Of each owner's jobs of the kind, over all workers.
    pub per_owner: Limit,
}

/// What there is of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Resource {
    pub limit: Limit,
    /// Over all workers, not in each process.
    pub global: bool,
}

/// A kind whose work an HTTP service does.
#[derive(Clone, Debug)]
pub struct Handler {
    pub url: Address,
    pub body: Body,
    pub timeout: Duration,
    pub concurrent: usize,
    pub retry: Option<RetryPolicy>,
    /// Answers that mean: accepted, the end is told later.
    pub accepted: Vec<u16>,
    /// How long that may take.
    pub deadline: Duration,
    /// What calls are signed with, and hooks too.
    pub secrets: Option<Secrets>,
    pub complete: Complete,
}

/// How the end of accepted work is told by what the service itself calls it.
#[derive(Clone, Debug, Default)]
pub struct Complete {
    /// Where in a job's params that stands.
    pub key: Option<FieldPath>,
    pub callback: Option<Hook>,
    pub probe: Option<Probe>,
}

/// An address at which a service says how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// With `{key}` for the job's key.
    pub url: Address,
    /// Where in its answer the status stands.
    pub status: FieldPath,
    pub done: Vec<String>,
    pub failed: Vec<String>,
    pub every: Duration,
}

/// An address at which a service tells the end of its work, in words of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `/hooks/…`
    pub path: String,
    /// Where in the body the key stands.
    pub key: FieldPath,
    pub status: FieldPath,
    /// Values of the status that end the job.
    pub done: Vec<String>,
    pub failed: Vec<String>,
}

/// Who is told of what happens.
#[derive(Clone, Debug)]
pub struct Events {
    pub receivers: Vec<ReceiverSettings>,
    /// For jobs' own callbacks, which may be given only where this is.
    pub callbacks: Option<Secrets>,
    pub timeout: Duration,
    pub backoff: Backoff,
    pub give_up: Duration,
    /// Most events that stand before one receiver.
    pub backlog: usize,
}

#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    pub to: Receiver,
    /// What it was called while its name came from the whole address.
    pub former: Option<String>,
    pub url: Address,
    pub secrets: Option<Secrets>,
    pub concurrent: usize,
}

/// Who is asked for what a model can say.
#[derive(Clone, Debug)]
pub enum Provider {
    /// This program itself.
    Local,
    Remote(ProviderSettings),
}

/// A server that speaks OpenAI's chat API.
#[derive(Clone, Debug)]
pub struct ProviderSettings {
    pub name: String,
    pub url: Address,
    pub key: Option<Secret>,
    pub model: String,
    pub timeout: Duration,
    /// What is of persons is taken out before a text is sent.
    pub redact: bool,
    pub shape: Shape,
    /// Tokens of an answer.
    pub answer_tokens: u64,
}

/// How the form of an answer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// By a JSON schema that the server keeps to.
    Strict,
    /// As a JSON object; the schema is told in words.
    Object,
    /// In words only.
    Prompt,
}

impl Events {
    /// Whether anybody is told of anything.
    pub fn any(&self) -> bool {
        !self.receivers.is_empty() || self.callbacks.is_some()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one file.
    pub upload: u64,
    pub uploads: usize,
    /// Bytes of all uploads under way.
    pub uploading: u64,
    /// Waiting jobs of one owner.
    pub pending: usize,
    pub streams: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Log {
    pub level: Level,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Human,
    Json,
    /// Human on a terminal, JSON elsewhere.
    Auto,
}

impl Config {
    /// The configuration of this process: its files and its environment, under these flags.
    pub fn load(file: Option<&Path>, flags: &[Flag]) -> Result<Self, Vec<ConfigError>> {
        Self::resolve(&Settings::of_process(file, flags)?)
    }

    /// What each worker process has of the resources that are its own.
    pub fn capacity(&self) -> Amounts {
        let own = self.resources.iter().filter(|(_, resource)| !resource.global);
        own.filter_map(|(name, resource)| Some((name.as_str(), resource.limit.concurrent?))).collect()
    }

    /// How often each worker process may begin to use them.
    pub fn rates(&self) -> BTreeMap<String, Rate> {
        let own = self.resources.iter().filter(|(_, resource)| !resource.global);
        own.filter_map(|(name, resource)| Some((name.clone(), resource.limit.rate?))).collect()
    }

    /// What holds over all workers.
    pub fn limits(&self) -> limit::Limits {
        let mut limits = limit::Limits::default();
        for (name, resource) in self.resources.iter().filter(|(_, resource)| resource.global) {
            limits.resource(name.as_str(), resource.limit);
        }
        for (kind, settings) in &self.kinds {
            limits.kind(kind.clone(), settings.whole, settings.per_owner);
            limits.need(kind.clone(), settings.needs.clone());
        }
        limits
    }

    /// Kinds that need a resource of which nothing says how much there is, so that the need limits nothing.
    pub fn undefined_needs(&self) -> Vec<(&Kind, &str)> {
        let needs = self
            .kinds
            .iter()
            .flat_map(|(kind, settings)| settings.needs.iter().map(move |(resource, _)| (kind, resource)));
        needs.filter(|(_, resource)| !self.resources.contains_key(*resource)).collect()
    }

    /// Where the services of this configuration may be.
    pub fn operators(&self) -> Destinations {
        Destinations::operators(self.allowed.as_slice())
    }

    /// Where callbacks of jobs may be.
    pub fn strangers(&self) -> Destinations {
        Destinations::strangers(self.allowed.as_slice())
    }

    /// What the database is to know of the kinds.
    pub fn kind_plans(&self) -> Vec<KindPlan> {
        let kinds: BTreeSet<&Kind> = self.kinds.keys().chain(self.handlers.keys()).collect();
        let plan = |kind: &Kind| KindPlan {
            kind: kind.clone(),
            retry: self.retry(kind),
            singular: self.unique(kind).is_some(),
            // A circle of kinds is no configuration.
            on: crate::plans::follows(self, kind, None).unwrap_or_default(),
            writes: self.kinds.get(kind).map(|settings| settings.writes.clone()).unwrap_or_default(),
        };
        kinds.into_iter().map(plan).collect()
    }

    /// When two jobs of this kind are the same work.
    pub fn unique(&self, kind: &Kind) -> Option<&UniqueRule> {
        self.kinds.get(kind).and_then(|settings| settings.unique.as_ref())
    }

    /// What a job of this kind may cost.
    pub fn retry(&self, kind: &Kind) -> RetryPolicy {
        let beside_handler = self.handlers.get(kind).and_then(|handler| handler.retry);
        let of_kind = self.kinds.get(kind).map(|settings| settings.retry);
        beside_handler.or(of_kind).unwrap_or_default()
    }
}

impl Settings {
    pub fn of_process(file: Option<&Path>, flags: &[Flag]) -> Result<Self, Vec<ConfigError>> {
        let environment = std::env::vars_os()
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
        Self::gather(file, environment, flags)
    }
}

impl Pattern {
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('*') {
            Some("") => Some(Self::BeginsWith(String::new())),
            Some(start) => Kind::new(start).ok().map(|start| Self::BeginsWith(start.into())),
            None => Kind::new(text).ok().map(|kind| Self::Exactly(kind.into())),
        }
    }

    pub fn matches(&self, kind: &Kind) -> bool {
        match self {
            Self::Exactly(name) => kind.as_str() == name,
            Self::BeginsWith(start) => kind.as_str().starts_with(start),
        }
    }
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "error" => Self::Error,
            "warn" => Self::Warn,
            "info" => Self::Info,
            "debug" => Self::Debug,
            "trace" => Self::Trace,
            _ => return None,
        })
    }
}
