//! Where settings come from: defaults, the file, the environment, flags. A later layer wins, key by key.
//!
//! Here keys are found and collected; what their values mean is `resolve`'s business.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Value;

use super::error::ConfigError;
use super::key::{self, KEYS};
use super::nearest::nearest;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
            Self::Flag(name) => write!(f, "the flag {name}"),
        }
    }
}

/// A value as it was given, with where.
#[derive(Clone, Debug)]
pub struct Setting {
    pub value: Value,
    pub origin: Origin,
}

/// What the command line sets: key, value, and the flag that said so.
pub type Flag = (&'static str, String, &'static str);

/// Everything that was set, by path.
#[derive(Clone, Debug, Default)]
pub struct Settings(BTreeMap<Vec<String>, Setting>);

impl Settings {
    /// `file` must exist where it was asked for by name; the default one need not.
    pub fn gather(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[Flag],
    ) -> Result<Self, Vec<ConfigError>> {
        let mut settings = Self::default();
        let mut errors = Vec::new();
        settings.defaults();
        settings.file(file, &mut errors);
        settings.environment(environment, &mut errors);
        for (path, value, flag) in flags {
            settings.set(key::parse(path), Value::String(value.clone()), Origin::Flag(flag));
        }
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }

    pub fn get(&self, path: &[String]) -> Option<&Setting> {
        self.0.get(path)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[String], &Setting)> {
        self.0.iter().map(|(path, setting)| (path.as_slice(), setting))
    }

    /// The names an operator chose below a table: the kinds below `kind`.
    pub fn names_below(&self, table: &str) -> Vec<&str> {
        let above: Vec<&str> = table.split('.').collect();
        let mut names: Vec<&str> = self
            .0
            .keys()
            .filter(|path| path.len() > above.len() && path.iter().zip(&above).all(|(a, b)| a == b))
            .filter_map(|path| path.get(above.len()))
            .map(String::as_str)
            .collect();
        names.dedup();
        names
    }

    fn set(&mut self, path: Vec<String>, value: Value, origin: Origin) {
        self.0.insert(path, Setting { value, origin });
    }

    fn defaults(&mut self) {
        for key in KEYS.iter().filter(|key| !key.path.contains('*')) {
            if let Some(default) = key.default {
                self.set(key::parse(key.path), default_value(default), Origin::Default);
            }
        }
    }

    fn file(&mut self, file: Option<&Path>, errors: &mut Vec<ConfigError>) {
        let path = file.unwrap_or(Path::new("mapae.toml"));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file.is_none() => return,
            Err(error) => {
                return errors.push(ConfigError::Unreadable { path: path.to_owned(), why: error.kind() });
            }
        };
        match toml::from_str::<toml::Table>(&text) {
            Ok(table) => self.collect(&table, &mut Vec::new(), path, errors),
            Err(error) => errors.push(ConfigError::syntax(path, &text, &error)),
        }
    }

    fn collect(
        &mut self,
        table: &toml::Table,
        above: &mut Vec<String>,
        file: &Path,
        errors: &mut Vec<ConfigError>,
    ) {
        for (name, value) in table {
            above.push(name.clone());
            let origin = Origin::File(file.to_owned());
            if key::is_later(above) {
                errors.push(ConfigError::Later { key: key::show(above), origin });
            } else if key::find(above).is_some() {
                self.set(above.clone(), value.clone(), origin);
            } else if !key::is_table(above) {
                errors.push(unknown(above, origin));
            } else if let Value::Table(below) = value {
                self.collect(below, above, file, errors);
            } else {
                errors.push(ConfigError::Bad {
                    key: key::show(above),
                    origin,
                    found: value.type_str().to_owned(),
                    possible: format!("a table, written [{}]", key::show(above)),
                });
            }
            above.pop();
        }
    }

    /// `database.url` is `MAPAE_DATABASE_URL`, or `MAPAE_DATABASE_URL_FILE` where it is a secret that
    /// stands in a file. A misspelt variable is an error like any other unknown key.
    fn environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
        errors: &mut Vec<ConfigError>,
    ) {
        for (name, text) in variables {
            if !name.starts_with("MAPAE_") || is_of_others(&name) {
                continue;
            }
            let plain = KEYS.iter().find(|key| key.variable().as_deref() == Some(&name));
            let filed = name.strip_suffix("_FILE").and_then(|stem| {
                KEYS.iter().find(|key| key.secret && key.variable().as_deref() == Some(stem))
            });
            let origin = Origin::Environment(name.clone());
            match (plain, filed) {
                (Some(key), _) => self.set(key::parse(key.path), Value::String(text), origin),
                (None, Some(key)) => {
                    let table = toml::Table::from_iter([("file".to_owned(), Value::String(text))]);
                    self.set(key::parse(key.path), Value::Table(table), origin);
                }
                (None, None) => {
                    let known: Vec<String> = KEYS.iter().filter_map(|key| key.variable()).collect();
                    let nearest = nearest(&name, known.iter().map(String::as_str)).map(str::to_owned);
                    errors.push(ConfigError::Unknown { key: name, origin, nearest });
                }
            }
        }
    }
}

/// What other parts of the command line read, and what Kubernetes sets for a service named `mapae`.
fn is_of_others(name: &str) -> bool {
    ["MAPAE_CONFIG", "MAPAE_URL", "MAPAE_KEY", "MAPAE_OUTPUT"].contains(&name)
        || name.starts_with("MAPAE_SERVICE_")
        || name.starts_with("MAPAE_PORT")
        || (mapae::fault::BUILT_IN && name.starts_with("MAPAE_FAULT"))
}

fn unknown(path: &[String], origin: Origin) -> ConfigError {
    // Known keys are compared with the operator's own names in place of the `*`.
    let known: Vec<String> = KEYS
        .iter()
        .map(|key| {
            let parts = key.path.split('.').enumerate().map(|(at, part)| match path.get(at) {
                Some(given) if part == "*" => given.clone(),
                _ => part.to_owned(),
            });
            key::show(&parts.collect::<Vec<_>>())
        })
        .collect();
    let tables = known.iter().filter_map(|key| key.split('.').next());
    let text = key::show(path);
    let nearest = if path.len() == 1 {
        nearest(&text, tables)
    } else {
        nearest(&text, known.iter().map(String::as_str))
    };
    ConfigError::Unknown { nearest: nearest.map(str::to_owned), key: text, origin }
}

/// A default of the table of keys, which a test reads through once.
pub(super) fn default_value(text: &str) -> Value {
    let document = toml::from_str::<toml::Table>(&format!("value = {text}"));
    document.ok().and_then(|mut table| table.remove("value")).expect("defaults are TOML")
}
