//! What is said of a job's uniqueness and of what comes after it: the same words in a submission and in the
//! configuration of a kind.

use mapae::job::follow::{DEPTH_MAX, Follow, Next};
use mapae::job::name::{Kind, Priority};
use mapae::job::unique::{PARTS_MAX, Part, UniqueRule};
use mapae::job::{End, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::config::{Config, parse_duration};

/// When two submissions of one owner are the same work. While the first job holds its key, it is the answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Unique)]
pub struct UniqueBody {
    /// A text to compare, at most 255 bytes; compared with the kind where `by` does not say otherwise.
    pub key: Option<String>,
    /// Parts that have to be equal: `kind`, `params`, `params.FIELD`, `source` (the file's SHA-256), `key`.
    #[schema(example = json!(["kind", "params.customer"]))]
    pub by: Option<Vec<String>>,
    /// How long at most, from the first job's acceptance on: `1h`. As long as `states` hold where it is not given.
    pub period: Option<String>,
    /// The first job holds its key in these states. `pending` and `running` where it is not given; with a
    /// period `succeeded`, too.
    pub states: Option<Vec<String>>,
}

/// What comes after a job, by how it ends.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = On)]
pub struct OnBody {
    #[schema(no_recursion)]
    pub succeeded: Option<Box<NextBody>>,
    #[schema(no_recursion)]
    pub failed: Option<Box<NextBody>>,
    #[schema(no_recursion)]
    pub stale: Option<Box<NextBody>>,
    #[schema(no_recursion)]
    pub cancelled: Option<Box<NextBody>>,
}

/// A job that is made when another ends. Its owner is the other's.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Next)]
pub struct NextBody {
    pub kind: String,
    #[schema(value_type = Option<Object>)]
    pub params: Option<Value>,
    /// 1 (first) to 9 (last).
    pub priority: Option<u8>,
    /// How long after the other's end it is due: `10m`. At once where it is not given.
    pub delay: Option<String>,
    /// What comes after it in turn.
    #[schema(no_recursion)]
    pub on: Option<Box<OnBody>>,
}

impl UniqueBody {
    /// The rule, with what is not said here taken from that of the kind.
    pub fn rule(&self, of_kind: Option<&UniqueRule>) -> Result<UniqueRule, String> {
        let default = UniqueRule::by_params();
        let base = of_kind.unwrap_or(&default);
        let by = match (&self.by, &self.key) {
            (Some(parts), _) => parts
                .iter()
                .map(|part| part.parse::<Part>())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| format!("`unique.by`: {error}"))?,
            (None, Some(_)) => vec![Part::Kind, Part::Key],
            (None, None) => base.by.clone(),
        };
        if by.is_empty() || by.len() > PARTS_MAX {
            return Err(format!("`unique.by` has 1 to {PARTS_MAX} parts"));
        }
        if self.key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 255) {
            return Err("`unique.key` has 1 to 255 bytes".into());
        }
        let period = match &self.period {
            None => base.period,
            Some(text) => Some(
                parse_duration(text)
                    .filter(|period| !period.is_zero())
                    .ok_or("`unique.period` is a time such as `30s`, `5m` or `7d`")?,
            ),
        };
        let states = match &self.states {
            None if self.period.is_some() => UniqueRule::states_of(period),
            None => base.states.clone(),
            Some(states) => states
                .iter()
                .map(|state| State::parse(state))
                .collect::<Option<Vec<_>>>()
                .filter(|states| !states.is_empty())
                .ok_or("`unique.states` is a list of states, such as `pending`")?,
        };
        Ok(UniqueRule { by, period, states })
    }
}

impl OnBody {
    fn get(&self, end: End) -> Option<&NextBody> {
        match end {
            End::Succeeded => self.succeeded.as_deref(),
            End::Failed => self.failed.as_deref(),
            End::Stale => self.stale.as_deref(),
            End::Cancelled => self.cancelled.as_deref(),
        }
    }
}

/// What comes after a job of this kind: what its submission says of an end goes before what the kind does.
pub fn follows(config: &Config, kind: &Kind, on: Option<&OnBody>) -> Result<Vec<Follow>, String> {
    follows_below(config, kind, on, 0)
}

fn follows_below(
    config: &Config,
    kind: &Kind,
    on: Option<&OnBody>,
    depth: usize,
) -> Result<Vec<Follow>, String> {
    if depth > DEPTH_MAX {
        return Err(format!("at most {DEPTH_MAX} jobs come after each other, and none in a circle"));
    }
    let of_kind = config.kinds.get(kind).map(|settings| &settings.on);
    let mut follows = Vec::new();
    for after in End::ALL {
        let declared = on.and_then(|on| on.get(after)).or_else(|| of_kind.and_then(|on| on.get(after)));
        let Some(next) = declared else { continue };
        let at = |what: &str| format!("`on.{}.{what}`", after.as_str());
        let kind = Kind::new(&next.kind).map_err(|error| format!("{}: {error}", at("kind")))?;
        let priority = match next.priority {
            None => Priority::NORMAL,
            Some(priority) => Priority::new(priority).map_err(|_| format!("{} is 1 to 9", at("priority")))?,
        };
        let delay = match &next.delay {
            None => std::time::Duration::ZERO,
            Some(text) => {
                parse_duration(text).ok_or_else(|| format!("{} is a time such as `10m`", at("delay")))?
            }
        };
        let params = next.params.clone().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let on = follows_below(config, &kind, next.on.as_deref(), depth + 1)?;
        let retry = config.retry(&kind);
        follows.push(Follow { after, next: Next { kind, params, priority, retry, delay, on } });
    }
    Ok(follows)
}
