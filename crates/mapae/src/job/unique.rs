//! What makes of two submissions one job: the parts of them that are compared, for how long, and in which
//! states of the first one.
//!
//! Apart from an idempotency key, which names one submission and outlives its job: this is about the work.
//! While the first job holds its unique key, whoever submits the same is given that job.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::State;
use super::record::NewJob;

/// Most parts that a rule compares.
pub const PARTS_MAX: usize = 16;

/// When two submissions of one owner are the same work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueRule {
    /// What has to be equal: 1 to [`PARTS_MAX`] parts. The owner always has to be.
    pub by: Vec<Part>,
    /// Counted from the first job's acceptance, by the database's clock; as long as `states` hold where `None`.
    pub period: Option<Duration>,
    /// The first job holds its key in these states and in no other.
    pub states: Vec<State>,
}

/// A part of a submission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Kind,
    Params,
    /// One field of the params, by its path: `params.customer.id`. A missing one equals `null`.
    Param(String),
    /// The SHA-256 of the file.
    Source,
    /// A text that the submission gives for this purpose.
    Key,
}

/// A rule applied to a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    pub key: [u8; 32],
    pub period: Option<Duration>,
    pub states: Vec<State>,
}

impl UniqueRule {
    /// The states in which a job holds its key unless said otherwise: while it waits and runs, and where a
    /// period is given, also once it has succeeded.
    pub fn states_of(period: Option<Duration>) -> Vec<State> {
        match period {
            None => vec![State::Pending, State::Running],
            Some(_) => vec![State::Pending, State::Running, State::Succeeded],
        }
    }

    /// Kind and params, while the first job waits or runs.
    pub fn by_params() -> Self {
        Self { by: vec![Part::Kind, Part::Params], period: None, states: Self::states_of(None) }
    }

    /// What this rule makes of a submission: nothing where the rule compares a key and none is given.
    pub fn of(&self, job: &NewJob, key: Option<&str>) -> Option<Unique> {
        let mut by = self.by.clone();
        by.sort();
        by.dedup();
        let mut text = String::new();
        canonical(&Value::from(job.owner.as_str()), &mut text);
        for part in &by {
            let value = match part {
                Part::Kind => Value::from(job.kind.as_str()),
                Part::Params => job.params.clone(),
                Part::Param(path) => {
                    let found = path.split('.').try_fold(&job.params, |value, name| value.get(name));
                    found.cloned().unwrap_or_default()
                }
                Part::Source => Value::from(job.source.as_ref().map(|source| source.sha256.clone())),
                Part::Key => Value::from(key?),
            };
            text.push('\n');
            canonical(&Value::from(part.to_string()), &mut text);
            canonical(&value, &mut text);
        }
        let key = Sha256::digest(text.as_bytes()).into();
        Some(Unique { key, period: self.period, states: self.states.clone() })
    }
}

/// JSON with the names of every object in order: equal values are equal texts, whoever wrote them.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            text.push('{');
            for name in names {
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                canonical(&fields[name], text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => f.write_str("kind"),
            Self::Params => f.write_str("params"),
            Self::Param(path) => write!(f, "params.{path}"),
            Self::Source => f.write_str("source"),
            Self::Key => f.write_str("key"),
        }
    }
}

/// A text that names no part of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part is `kind`, `params`, `params.FIELD`, `source` or `key`")]
pub struct NoPart;

impl FromStr for Part {
    type Err = NoPart;

    fn from_str(text: &str) -> Result<Self, NoPart> {
        Ok(match text {
            "kind" => Self::Kind,
            "params" => Self::Params,
            "source" => Self::Source,
            "key" => Self::Key,
            other => match other.strip_prefix("params.") {
                Some(path) if path.len() <= 255 && path.split('.').all(|name| !name.is_empty()) => {
                    Self::Param(path.to_owned())
                }
                _ => return Err(NoPart),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::name::{Kind, Owner};

    fn key(by: &[&str], owner: &str, kind: &str, params: Value, given: Option<&str>) -> Option<[u8; 32]> {
        let by = by.iter().map(|part| part.parse().unwrap()).collect();
        let job = NewJob::new(Owner::new(owner).unwrap(), Kind::new(kind).unwrap(), params);
        UniqueRule { by, ..UniqueRule::by_params() }.of(&job, given).map(|unique| unique.key)
    }

    #[test]
    fn what_is_compared_decides_and_nothing_else_does() {
        let one = |by: &[&str], kind: &str, params: Value| key(by, "acme", kind, params, None);
        let all = ["kind", "params"];
        assert_eq!(one(&all, "mail", json!({"a": 1, "b": 2})), one(&all, "mail", json!({"b": 2, "a": 1})));
        assert_eq!(one(&all, "mail", json!({})), one(&["params", "kind", "kind"], "mail", json!({})));
        assert_ne!(one(&all, "mail", json!({"a": 1})), one(&all, "mail", json!({"a": 2})));
        assert_ne!(one(&all, "mail", json!({})), one(&all, "call", json!({})));
        assert_ne!(one(&all, "mail", json!({})), key(&all, "globex", "mail", json!({}), None));
        assert_eq!(one(&["params"], "mail", json!({})), one(&["params"], "call", json!({})));

        let field = ["kind", "params.customer.id"];
        let of = |customer: Value, rest: u32| json!({ "customer": { "id": customer }, "rest": rest });
        assert_eq!(one(&field, "mail", of(json!(7), 1)), one(&field, "mail", of(json!(7), 2)));
        assert_ne!(one(&field, "mail", of(json!(7), 1)), one(&field, "mail", of(json!("7"), 1)));
        assert_eq!(one(&field, "mail", json!({})), one(&field, "mail", of(json!(null), 1)));
    }

    #[test]
    fn a_rule_by_key_says_nothing_of_a_submission_without_one() {
        assert_eq!(key(&["kind", "key"], "acme", "mail", json!({}), None), None);
        let given = |text| key(&["kind", "key"], "acme", "mail", json!({}), Some(text));
        assert!(given("a").is_some() && given("a") != given("b"));
    }

    #[test]
    fn parts_are_written_and_read() {
        for text in ["kind", "params", "params.a.b", "source", "key"] {
            assert_eq!(text.parse::<Part>().unwrap().to_string(), text);
        }
        for text in ["", "owner", "params.", "params.a..b"] {
            assert_eq!(text.parse::<Part>(), Err(NoPart));
        }
    }
}
