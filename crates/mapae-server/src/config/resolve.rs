//! Settings to [`Config`]: every value is read, every mistake is kept, so that all are told at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mapae::handler::http::{Body, FieldPath};
use mapae::handler::signature::Secrets;
use mapae::job::follow::Next;
use mapae::job::lease::Timing;
use mapae::job::limit::Limit;
use mapae::job::name::{Kind, Owner, Priority, ScheduleName};
use mapae::job::resource::Needs;
use mapae::job::retry::RetryPolicy;
use mapae::job::schedule::{Cron, Missed, Plan};
use mapae::job::unique::UniqueRule;
use mapae::outgoing::Allowed;
use mapae::store::contract::Retention;
use toml::Value;

use super::error::ConfigError;
use super::key;
use super::layer::{Setting, Settings, default_value};
use super::nearest::nearest;
use super::secret::Address;
use super::{
    Broker, Complete, Config, Handler, Hook, Http, KindSettings, Level, Limits, Log, LogFormat, Pattern,
    Probe, Resource, Worker,
};
use super::{value, write};
use crate::plans::UniqueBody;

/// Largest secret file that is read.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

impl Config {
    pub fn resolve(settings: &Settings) -> Result<Self, Vec<ConfigError>> {
        let mut read = Reader { settings, errors: Vec::new() };
        let mut config = read.config();
        config.schedules = read.schedules(&config);
        read.check(&config);
        if read.errors.is_empty() { Ok(config) } else { Err(read.errors) }
    }
}

pub(super) struct Reader<'a> {
    pub(super) settings: &'a Settings,
    pub(super) errors: Vec<ConfigError>,
}

impl Reader<'_> {
    fn config(&mut self) -> Config {
        Config {
            database: self.address("database.url"),
            broker: Broker {
                url: self.address("broker.url"),
                window: self.count("broker.window", 1, 100_000),
            },
            files: self.address("files.url"),
            http: Http {
                listen: self.read("http.listen", |value| value.as_str()?.parse().ok()),
                timeout: self.duration("http.timeout"),
                wait: self.duration("http.wait"),
                url: self.optional(key::parse("http.url"), |value| {
                    value::text(value)
                        .filter(|url| is_http(url))
                        .map(|url| url.trim_end_matches('/').to_owned())
                }),
            },
            worker: self.worker(),
            rescan_after: self.duration("rescan.after"),
            kinds: self.kinds(),
            // Read last: what they make is described by the kinds.
            schedules: Vec::new(),
            resources: self.resources(),
            handlers: self.handlers(),
            events: self.events(),
            providers: self.providers(),
            allowed: self.read("outgoing.allow", |value| {
                value::list(value)?.iter().map(|text| Allowed::parse(text)).collect()
            }),
            limits: Limits {
                upload: self.read("limits.upload", value::size),
                uploads: self.count("limits.uploads", 1, 10_000),
                uploading: self.read("limits.uploading", value::size),
                pending: self.count("limits.pending", 1, 100_000_000),
                streams: self.count("limits.streams", 1, 100_000),
            },
            retention: Retention {
                finished: self.duration("retention.finished"),
                failed: self.duration("retention.failed"),
                memory: self.duration("retention.memory"),
            },
            log: Log {
                level: self.read("log.level", |value| Level::parse(value.as_str()?)),
                format: self.read("log.format", |value| match value.as_str()? {
                    "human" => Some(LogFormat::Human),
                    "json" => Some(LogFormat::Json),
                    "auto" => Some(LogFormat::Auto),
                    _ => None,
                }),
            },
        }
    }

    fn worker(&mut self) -> Worker {
        let name = self.read("worker.name", |value| {
            let name = value::text(value)?;
            let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            (name.len() <= 64 && name.chars().all(allowed)).then_some(name)
        });
        Worker {
            name: Some(name).filter(|name| name != "host"),
            slots: self.count("worker.slots", 1, 1024),
            prefetch: self.count("worker.prefetch", 0, 1024),
            kinds: self.read("worker.kinds", |value| {
                value::list(value)?.iter().map(|text| Pattern::parse(text)).collect()
            }),
            timing: Timing {
                lease: self.duration("worker.lease"),
                heartbeat: self.duration("worker.heartbeat"),
                drain: self.duration("worker.drain"),
            },
        }
    }

    fn kinds(&mut self) -> BTreeMap<Kind, KindSettings> {
        let mut kinds = BTreeMap::new();
        for name in self.settings.names_below("kind") {
            let Some(kind) = self.kind("kind", name) else { continue };
            let at = |key: &str| ["kind", name, key].map(str::to_owned).to_vec();
            let attempts = self.at(at("attempts"), attempts);
            let backoff = self.at(at("backoff"), value::backoff);
            let timeout = self.at(at("timeout"), positive_duration);
            let needs = self.at(at("needs"), needs);
            let whole = Limit {
                concurrent: self.optional(at("concurrent"), at_least_one),
                rate: self.optional(at("rate"), value::rate),
            };
            let known = self.names_known(&at("per_owner"), &["concurrent", "rate", "burst"]);
            let per_owner =
                known.then(|| self.optional(at("per_owner"), limit)).flatten().unwrap_or_default();
            let unique = self.optional(at("unique"), unique);
            let on = self.at(at("on"), |value| described(&write::without_statements(value)?));
            let writes = self.at(at("on"), write::statements);
            let retry = RetryPolicy { attempts, backoff };
            kinds.insert(kind, KindSettings { retry, timeout, needs, whole, per_owner, unique, on, writes });
        }
        kinds
    }

    fn handlers(&mut self) -> BTreeMap<Kind, Handler> {
        let mut handlers = BTreeMap::new();
        for name in self.settings.names_below("handler") {
            let Some(kind) = self.kind("handler", name) else { continue };
            let at = |key: &str| ["handler", name, key].map(str::to_owned).to_vec();
            if self.settings.get(&at("url")).is_none() {
                self.missing(&at("url"));
                continue;
            }
            let url = self.secret(at("url")).and_then(|url| {
                let valid = is_http(&url);
                if !valid {
                    self.bad(&at("url"), None);
                }
                valid.then(|| Address::new(url))
            });
            let body = self.at(at("body"), |value| match value.as_str()? {
                "job" => Some(Body::Job),
                "raw" => Some(Body::Raw),
                _ => None,
            });
            let timeout = self.at(at("timeout"), positive_duration);
            let concurrent = self.at(at("concurrent"), |value| counted(value, 1, 1024));
            let retry = self.optional(at("retry"), retry);
            let accepted = self.at(at("accepted"), statuses);
            let deadline = self.at(at("deadline"), positive_duration);
            let secrets = self.secrets(at("secret"));
            let complete = self.complete(name);
            if let Some(url) = url {
                let handler =
                    Handler { url, body, timeout, concurrent, retry, accepted, deadline, secrets, complete };
                handlers.insert(kind, handler);
            }
        }
        handlers
    }

    /// One secret or several, each as text or in a file.
    pub(super) fn secrets(&mut self, path: Vec<String>) -> Option<Secrets> {
        let setting = self.settings.get(&path)?;
        let texts: Option<Vec<String>> = match &setting.value {
            Value::Array(items) => items.iter().map(value::text).collect(),
            _ => Some(vec![self.secret(path.clone())?]),
        };
        let secrets =
            texts.and_then(|texts| Secrets::parse(texts.iter().flat_map(|text| text.split_whitespace())));
        if secrets.is_none() {
            self.bad(&path, None);
        }
        secrets
    }

    fn complete(&mut self, name: &str) -> Complete {
        let at = |key: &str| ["handler", name, "complete", key].map(str::to_owned).to_vec();
        let key = self.optional(at("key"), |value| FieldPath::parse("params", value.as_str()?));
        let callback = self.optional(at("callback"), hook);
        let probe = self.optional(at("probe"), probe);
        if (callback.is_some() || probe.is_some()) && key.is_none() {
            // Without it no job is found by what the service says.
            let (key, possible) = (key::show(&at("key")), describe(&at("key")));
            let origin = super::layer::Origin::Default;
            self.errors.push(ConfigError::Bad { key, origin, found: "missing".into(), possible });
        }
        Complete { key, callback, probe }
    }

    fn schedules(&mut self, config: &Config) -> Vec<Plan> {
        let mut schedules = Vec::new();
        for text in self.settings.names_below("schedule") {
            let at = |key: &str| ["schedule", text, key].map(str::to_owned).to_vec();
            let Some(name) = self.needed(at("kind"), at("cron")).then(|| ScheduleName::new(text)) else {
                continue;
            };
            let (pattern, zone) = (self.optional(at("cron"), value::text), self.at(at("zone"), value::text));
            let kind = self.optional(at("kind"), |value| Kind::new(value.as_str()?).ok());
            let params = self.at(at("params"), |value| {
                value.as_table()?;
                serde_json::to_value(value).ok()
            });
            let owner = self.at(at("owner"), |value| Owner::new(value.as_str()?).ok());
            let priority = self.at(at("priority"), |value| {
                counted(value, 1, 9).and_then(|n| Priority::new(u8::try_from(n).ok()?).ok())
            });
            let missed = self.at(at("missed"), |value| Missed::parse(value.as_str()?));
            let (Some(pattern), Some(kind)) = (pattern, kind) else { continue };
            let wrong = |why: String| ConfigError::Schedule { name: text.to_owned(), why };
            let (name, cron) = match (name, Cron::new(&pattern, &zone)) {
                (Ok(name), Ok(cron)) => (name, cron),
                (Err(bad), _) => {
                    self.errors.push(wrong(bad.to_string()));
                    continue;
                }
                (_, Err(bad)) => {
                    self.errors.push(wrong(bad.to_string()));
                    continue;
                }
            };
            // A circle of kinds is told of where the kinds are checked.
            let on = crate::plans::follows(config, &kind, None).unwrap_or_default();
            let (retry, unique) = (config.retry(&kind), config.unique(&kind).cloned());
            let next = Next { kind, params, priority, retry, delay: Duration::ZERO, on };
            schedules.push(Plan { name, owner, next, unique, cron, missed });
        }
        schedules
    }

    /// Whether both keys are given; one that is not is a mistake.
    fn needed(&mut self, one: Vec<String>, other: Vec<String>) -> bool {
        let mut there = true;
        for path in [one, other] {
            if self.settings.get(&path).is_none() {
                self.missing(&path);
                there = false;
            }
        }
        there
    }

    pub(super) fn missing(&mut self, path: &[String]) {
        self.errors.push(ConfigError::Bad {
            key: key::show(path),
            origin: super::layer::Origin::Default,
            found: "missing".into(),
            possible: describe(path),
        });
    }

    fn resources(&mut self) -> BTreeMap<String, Resource> {
        let mut resources = BTreeMap::new();
        for name in self.settings.names_below("resource") {
            let path = vec!["resource".to_owned(), name.to_owned()];
            if !self.names_known(&path, &["concurrent", "rate", "burst", "scope"]) {
                continue;
            }
            if let Some(resource) = self.optional(path, resource) {
                resources.insert(name.to_owned(), resource);
            }
        }
        resources
    }

    /// Whether the value at `path`, where it is a table, has only these names. Each other one is a mistake.
    fn names_known(&mut self, path: &[String], names: &[&str]) -> bool {
        let Some(setting) = self.settings.get(path) else { return true };
        let Value::Table(table) = &setting.value else { return true };
        let unknown: Vec<&String> = table.keys().filter(|name| !names.contains(&name.as_str())).collect();
        for name in &unknown {
            let below = |name: &str| key::show(&[path, &[name.to_owned()]].concat());
            self.errors.push(ConfigError::Unknown {
                key: below(name),
                origin: setting.origin.clone(),
                nearest: nearest(name, names.iter().copied()).map(below),
            });
        }
        unknown.is_empty()
    }

    /// What is right by itself and wrong together.
    fn check(&mut self, config: &Config) {
        self.check_follows(config);
        self.check_writes(config);
        if let Err(unsafe_timing) = config.worker.timing.check() {
            self.errors.push(unsafe_timing.into());
        }
        for (kind, settings) in &config.kinds {
            for (name, need) in settings.needs.iter() {
                let all = config.resources.get(name).and_then(|resource| resource.limit.concurrent);
                if let Some(all) = all.filter(|all| *all < need.base) {
                    self.errors.push(ConfigError::NeverEnough {
                        kind: kind.to_string(),
                        resource: name.to_owned(),
                        needs: need.base,
                        all,
                    });
                }
            }
        }
    }

    /// Statements run where the user's records can be.
    fn check_writes(&mut self, config: &Config) {
        let there = ["postgres", "postgresql"].contains(&config.database.scheme());
        for (kind, settings) in config.kinds.iter().filter(|_| !there) {
            if !settings.writes.is_empty() {
                let why = "a statement runs only where database.url is PostgreSQL".to_owned();
                self.errors.push(ConfigError::Follows { kind: kind.to_string(), why });
            }
        }
    }

    /// Chains of jobs that come after each other end.
    fn check_follows(&mut self, config: &Config) {
        for kind in config.kinds.keys() {
            if let Err(why) = crate::plans::follows(config, kind, None) {
                self.errors.push(ConfigError::Follows { kind: kind.to_string(), why });
            }
        }
    }

    fn kind(&mut self, table: &str, name: &str) -> Option<Kind> {
        let kind = Kind::new(name).ok();
        if kind.is_none() {
            let path = vec![table.to_owned(), name.to_owned()];
            let origin = self
                .settings
                .iter()
                .find(|(set, _)| set.starts_with(&path))
                .map_or(super::layer::Origin::Default, |(_, setting)| setting.origin.clone());
            self.errors.push(ConfigError::Bad {
                key: key::show(&path),
                origin,
                found: "no name of a kind".into(),
                possible: "1 to 64 characters of a-z, 0-9, '.', '_' and '-'".into(),
            });
        }
        kind
    }

    pub(super) fn duration(&mut self, path: &str) -> Duration {
        self.read(path, positive_duration)
    }

    fn count(&mut self, path: &str, min: u64, max: u64) -> usize {
        self.read(path, |value| counted(value, min, max))
    }

    pub(super) fn read<T>(&mut self, path: &str, read: impl Fn(&Value) -> Option<T>) -> T {
        self.at(key::parse(path), read)
    }

    /// The value at `path`; where it cannot be read the mistake is kept and the default stands in.
    pub(super) fn at<T>(&mut self, path: Vec<String>, read: impl Fn(&Value) -> Option<T>) -> T {
        self.optional(path.clone(), &read).unwrap_or_else(|| {
            let default = key::find(&path).and_then(|key| key.default).expect("the key has a default");
            read(&default_value(default)).expect("defaults can be read")
        })
    }

    pub(super) fn optional<T>(&mut self, path: Vec<String>, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let setting = self.settings.get(&path)?;
        let read = read(&setting.value);
        if read.is_none() {
            self.bad(&path, Some(setting));
        }
        read
    }

    fn address(&mut self, path: &str) -> Address {
        let path = key::parse(path);
        let text = self.secret(path.clone());
        let named = text.filter(|text| text.contains(':'));
        if named.is_none() {
            self.bad(&path, None);
        }
        Address::new(named.unwrap_or_default())
    }

    /// A secret's text, from the value itself or from the file it names.
    pub(super) fn secret(&mut self, path: Vec<String>) -> Option<String> {
        let setting = self.settings.get(&path)?;
        let file = match &setting.value {
            Value::String(text) => return Some(text.clone()),
            Value::Table(table) if table.len() == 1 => table.get("file").and_then(Value::as_str),
            _ => None,
        };
        let Some(file) = file else {
            self.bad(&path, Some(setting));
            return None;
        };
        match read_secret(Path::new(file)) {
            Ok(text) => Some(text),
            Err(why) => {
                let (key, origin) = (key::show(&path), setting.origin.clone());
                self.errors.push(ConfigError::SecretFile { key, origin, why });
                None
            }
        }
    }

    /// Keeps one mistake a key.
    pub(super) fn bad(&mut self, path: &[String], setting: Option<&Setting>) {
        let key = key::show(path);
        let told = |error: &ConfigError| matches!(error, ConfigError::Bad { key: told, .. } | ConfigError::SecretFile { key: told, .. } if *told == key);
        if self.errors.iter().any(told) {
            return;
        }
        let Some(setting) = setting.or_else(|| self.settings.get(path)) else { return };
        let secret = key::find(path).is_some_and(|key| key.secret);
        let found = if secret { "not one".to_owned() } else { setting.value.to_string() };
        let origin = setting.origin.clone();
        self.errors.push(ConfigError::Bad { key, origin, found, possible: describe(path) });
    }
}

fn describe(path: &[String]) -> String {
    key::find(path).map_or_else(String::new, |key| key.possible.to_owned())
}

fn read_secret(path: &Path) -> Result<String, std::io::ErrorKind> {
    use std::io::Read;
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| error.kind())?;
    file.take(SECRET_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.kind())?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

fn positive_duration(value: &Value) -> Option<Duration> {
    value::duration(value).filter(|duration| !duration.is_zero())
}

pub(super) fn counted(value: &Value, min: u64, max: u64) -> Option<usize> {
    let count = value::count(value).filter(|count| (min..=max).contains(count))?;
    usize::try_from(count).ok()
}

pub(super) fn is_http(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Statuses that mean accepted: any that would be no failure.
fn statuses(value: &Value) -> Option<Vec<u16>> {
    let items = value.as_array()?.iter().map(|item| u16::try_from(value::count(item)?).ok());
    items.collect::<Option<Vec<u16>>>().filter(|all| all.iter().all(|status| (200..300).contains(status)))
}

fn hook(value: &Value) -> Option<Hook> {
    let table = only(value, &["path", "key", "status", "done", "failed"])?;
    let path = value::text(table.get("path")?)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let named = path.strip_prefix("/hooks/").is_some_and(|name| !name.is_empty() && name.chars().all(plain));
    let hook = Hook {
        key: field(table, "key")?,
        status: field(table, "status")?,
        done: words(table, "done", "DONE")?,
        failed: words(table, "failed", "FAILED")?,
        path,
    };
    named.then_some(hook)
}

fn probe(value: &Value) -> Option<Probe> {
    let table = only(value, &["url", "status", "done", "failed", "every"])?;
    let url = value::text(table.get("url")?)?;
    let probe = Probe {
        status: field(table, "status")?,
        done: words(table, "done", "DONE")?,
        failed: words(table, "failed", "FAILED")?,
        every: table.get("every").map_or(Some(Duration::from_secs(15)), positive_duration)?,
        url: Address::new(url.clone()),
    };
    (is_http(&url) && url.contains("{key}")).then_some(probe)
}

/// A table with these names and no others.
fn only<'a>(value: &'a Value, known: &[&str]) -> Option<&'a toml::Table> {
    value.as_table().filter(|table| table.keys().all(|name| known.contains(&name.as_str())))
}

fn field(table: &toml::Table, name: &str) -> Option<FieldPath> {
    FieldPath::parse("$", table.get(name)?.as_str()?)
}

/// The values of a status, or the usual one.
fn words(table: &toml::Table, name: &str, usual: &str) -> Option<Vec<String>> {
    table.get(name).map_or_else(|| Some(vec![usual.to_owned()]), value::list)
}

fn attempts(value: &Value) -> Option<u32> {
    counted(value, 1, 1000).and_then(|count| u32::try_from(count).ok())
}

fn retry(value: &Value) -> Option<RetryPolicy> {
    let table = value.as_table()?;
    let mut policy = RetryPolicy::default();
    for (name, value) in table {
        match name.as_str() {
            "attempts" => policy.attempts = attempts(value)?,
            "backoff" => policy.backoff = value::backoff(value)?,
            _ => return None,
        }
    }
    Some(policy)
}

/// A table that the API knows as JSON.
fn described<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(serde_json::to_value(value).ok()?).ok()
}

fn unique(value: &Value) -> Option<UniqueRule> {
    let body: UniqueBody = described(value)?;
    // A key is a submission's to give.
    body.rule(None).ok().filter(|_| body.key.is_none())
}

fn needs(value: &Value) -> Option<Needs> {
    let table = value.as_table()?;
    table.iter().map(|(name, value)| Some((name.clone(), value::need(value)?))).collect()
}

fn at_least_one(value: &Value) -> Option<u64> {
    value::size(value).filter(|count| *count > 0)
}

/// What `concurrent`, `rate` and `burst` of a table say. At least one of the first two is there.
fn limit(value: &Value) -> Option<Limit> {
    let table = value.as_table()?;
    let concurrent = table.get("concurrent").map(|value| at_least_one(value).ok_or(()));
    let rate = table.get("rate").map(|value| value::rate(value).ok_or(()));
    let burst = table.get("burst").map(|value| at_least_one(value).ok_or(()));
    let (concurrent, mut rate) = (concurrent.transpose().ok()?, rate.transpose().ok()?);
    match (burst.transpose().ok()?, &mut rate) {
        (Some(burst), Some(rate)) => rate.burst = burst.min(rate.starts),
        // There is nothing that it could be a burst of.
        (Some(_), None) => return None,
        (None, _) => {}
    }
    Some(Limit { concurrent, rate }).filter(|limit| !limit.is_none())
}

/// A number, a size, or a table with what is limited and where.
fn resource(value: &Value) -> Option<Resource> {
    let Value::Table(table) = value else {
        // A resource of which there is none may be written: whoever needs it is told.
        let limit = Limit { concurrent: Some(value::size(value)?), rate: None };
        return Some(Resource { limit, global: false });
    };
    let global = match table.get("scope") {
        None => false,
        Some(scope) => match scope.as_str()? {
            "process" => false,
            "global" => true,
            _ => return None,
        },
    };
    Some(Resource { limit: limit(value)?, global })
}
