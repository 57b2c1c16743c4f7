//! The names a job carries: id, owner, kind, lane, idempotency key, assignee.
//!
//! Each is checked once, where it enters; after that the type is the proof. All are bounded, because
//! together they make the pointer that a broker carries.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A name that breaks its rules. The text itself is not repeated: it came from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be 1 to {max} characters of {of}")]
pub struct BadName {
    pub what: &'static str,
    pub max: usize,
    pub of: &'static str,
}

/// A job's id: UUIDv7, so that ids made later sort later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl JobId {
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for JobId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let id = Uuid::try_parse(text).map_err(|_| BadName { what: "a job id", max: 36, of: "a UUID" })?;
        Ok(Self(id))
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $max:literal, $of:literal, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            pub const MAX: usize = $max;

            pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
                let text = text.into();
                let allowed: fn(char) -> bool = $allowed;
                if text.is_empty() || text.len() > Self::MAX || !text.chars().all(allowed) {
                    return Err(BadName { what: $what, max: $max, of: $of });
                }
                Ok(Self(text))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl FromStr for $type {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The scope a job belongs to (S0-5): every statement that reads or changes a job names it.
    Owner,
    "an owner",
    64,
    "a-z, A-Z, 0-9, '.', '_', '-', '@', ':'",
    |c| c.is_ascii_alphanumeric() || "._-@:".contains(c)
);
name!(
    /// What a job is, and so which handler runs it: `document.analyze`.
    Kind,
    "a kind",
    64,
    "a-z, 0-9, '.', '_', '-'",
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c)
);
name!(
    /// What a client calls one submission, so that sending it twice makes one job.
    IdempotencyKey,
    "an idempotency key",
    255,
    "printable ASCII",
    |c| c.is_ascii_graphic()
);
name!(
    /// A handler's name for one part of its work.
    StageName,
    "a stage name",
    64,
    "a-z, 0-9, '.', '_', '-'",
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c)
);
name!(
    /// What a schedule is called in the configuration.
    ScheduleName,
    "the name of a schedule",
    64,
    "a-z, 0-9, '.', '_', '-'",
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c)
);
name!(
    /// What an owner calls a set of labelled examples.
    SetName,
    "the name of a set of labels",
    64,
    "a-z, A-Z, 0-9, '.', '_', '-'",
    |c| c.is_ascii_alphanumeric() || "._-".contains(c)
);
name!(
    /// What something belongs to, as its owner calls it. At most 128 bytes.
    LabelName,
    "a label",
    128,
    "text without control characters",
    |c| !c.is_control()
);
name!(
    /// What a client that leases over HTTP calls itself.
    ClientName,
    "a worker's name",
    64,
    "a-z, A-Z, 0-9, '.', '_', '-'",
    |c| c.is_ascii_alphanumeric() || "._-".contains(c)
);
name!(
    /// What the outside calls the thing a job is about: `7`, a record's id. At most 256 bytes.
    BusinessKey,
    "a business key",
    256,
    "text without control characters",
    |c| !c.is_control()
);
name!(
    /// Who looks after a dead letter: a person or a team, as they call themselves. At most 128 bytes.
    Assignee,
    "an assignee",
    128,
    "text without control characters",
    |c| !c.is_control()
);

/// How soon a job is taken compared with others of its kind: 1 is first, 9 last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

impl Priority {
    pub const NORMAL: Self = Self(5);

    pub fn new(value: u8) -> Result<Self, BadName> {
        if !(1..=9).contains(&value) {
            return Err(BadName { what: "a priority", max: 1, of: "the digits 1 (first) to 9 (last)" });
        }
        Ok(Self(value))
    }

    pub fn get(self) -> u8 {
        self.0
    }

    pub fn class(self) -> Class {
        match self.0 {
            ..=3 => Class::High,
            4..=6 => Class::Normal,
            _ => Class::Low,
        }
    }
}

impl TryFrom<u8> for Priority {
    type Error = BadName;
    fn try_from(value: u8) -> Result<Self, BadName> {
        Self::new(value)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> u8 {
        priority.0
    }
}

/// The three groups of priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    High,
    Normal,
    Low,
}

impl Class {
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Share of reads while all classes have work.
    pub fn weight(self) -> u32 {
        match self {
            Self::High => 8,
            Self::Normal => 3,
            Self::Low => 1,
        }
    }
}

/// The queue a job waits in: one for each kind and class, so that neither a kind that nobody runs nor
/// a flood of unimportant work stands in the way of the rest.
///
/// Written `document.analyze`, `document.analyze:high`, `document.analyze:low`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    pub kind: Kind,
    pub class: Class,
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.class {
            Class::High => ":high",
            Class::Normal => "",
            Class::Low => ":low",
        };
        write!(f, "{}{suffix}", self.kind)
    }
}

impl FromStr for Lane {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let (kind, class) = match text.split_once(':') {
            None => (text, Class::Normal),
            Some((kind, "high")) => (kind, Class::High),
            Some((kind, "low")) => (kind, Class::Low),
            Some(_) => {
                return Err(BadName {
                    what: "a lane",
                    max: 69,
                    of: "a kind, then ':high', ':low' or nothing",
                });
            }
        };
        Ok(Self { kind: Kind::new(kind)?, class })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_written_and_read() {
        for class in Class::ALL {
            let lane = Lane { kind: Kind::new("document.analyze").unwrap(), class };
            assert_eq!(lane.to_string().parse(), Ok(lane));
        }
        assert!("document.analyze:urgent".parse::<Lane>().is_err());
    }

    #[test]
    fn names_with_tricks_in_them_are_refused() {
        for text in ["", "../x", "a/b", "a b", "ㄱ", "A"] {
            assert!(Kind::new(text).is_err(), "{text:?}");
        }
        assert!(Owner::new("x".repeat(65)).is_err());
        assert!(IdempotencyKey::new("two words").is_err());
        assert!(Assignee::new("김 민수, night shift").is_ok());
        for text in ["", "two\nlines", "\u{1b}[31m"] {
            assert!(Assignee::new(text).is_err(), "{text:?}");
        }
    }
}
