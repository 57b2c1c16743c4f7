//! Settings to [`Config`]: every value is read, every mistake is kept, so that all are told at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mapae::handler::http::Body;
use mapae::job::lease::Timing;
use mapae::job::limit::Limit;
use mapae::job::name::Kind;
use mapae::job::resource::Needs;
use mapae::job::retry::RetryPolicy;
use mapae::store::contract::Retention;
use toml::Value;

use super::error::ConfigError;
use super::key;
use super::layer::{Setting, Settings, default_value};
use super::nearest::nearest;
use super::secret::Address;
use super::value;
use super::{
    Broker, Config, Handler, Http, KindSettings, Level, Limits, Log, LogFormat, Pattern, Resource, Worker,
};

/// Largest secret file that is read.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

impl Config {
    pub fn resolve(settings: &Settings) -> Result<Self, Vec<ConfigError>> {
        let mut read = Reader { settings, errors: Vec::new() };
        let config = read.config();
        read.check(&config);
        if read.errors.is_empty() { Ok(config) } else { Err(read.errors) }
    }
}

struct Reader<'a> {
    settings: &'a Settings,
    errors: Vec<ConfigError>,
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
            },
            worker: self.worker(),
            rescan_after: self.duration("rescan.after"),
            kinds: self.kinds(),
            resources: self.resources(),
            handlers: self.handlers(),
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
            let retry = RetryPolicy { attempts, backoff };
            kinds.insert(kind, KindSettings { retry, timeout, needs, whole, per_owner });
        }
        kinds
    }

    fn handlers(&mut self) -> BTreeMap<Kind, Handler> {
        let mut handlers = BTreeMap::new();
        for name in self.settings.names_below("handler") {
            let Some(kind) = self.kind("handler", name) else { continue };
            let at = |key: &str| ["handler", name, key].map(str::to_owned).to_vec();
            if self.settings.get(&at("url")).is_none() {
                self.errors.push(ConfigError::Bad {
                    key: key::show(&at("url")),
                    origin: super::layer::Origin::Default,
                    found: "missing".into(),
                    possible: describe(&at("url")),
                });
                continue;
            }
            let url = self.secret(at("url")).and_then(|url| {
                let valid = url::Url::parse(&url)
                    .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
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
            if let Some(url) = url {
                handlers.insert(kind, Handler { url, body, timeout, concurrent, retry });
            }
        }
        handlers
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

    fn duration(&mut self, path: &str) -> Duration {
        self.read(path, positive_duration)
    }

    fn count(&mut self, path: &str, min: u64, max: u64) -> usize {
        self.read(path, |value| counted(value, min, max))
    }

    fn read<T>(&mut self, path: &str, read: impl Fn(&Value) -> Option<T>) -> T {
        self.at(key::parse(path), read)
    }

    /// The value at `path`; where it cannot be read the mistake is kept and the default stands in.
    fn at<T>(&mut self, path: Vec<String>, read: impl Fn(&Value) -> Option<T>) -> T {
        self.optional(path.clone(), &read).unwrap_or_else(|| {
            let default = key::find(&path).and_then(|key| key.default).expect("the key has a default");
            read(&default_value(default)).expect("defaults can be read")
        })
    }

    fn optional<T>(&mut self, path: Vec<String>, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
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
    fn secret(&mut self, path: Vec<String>) -> Option<String> {
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
    fn bad(&mut self, path: &[String], setting: Option<&Setting>) {
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

fn counted(value: &Value, min: u64, max: u64) -> Option<usize> {
    let count = value::count(value).filter(|count| (min..=max).contains(count))?;
    usize::try_from(count).ok()
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
