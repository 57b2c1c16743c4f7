//! A moment, to the microsecond, in UTC.
//!
//! Moments that decide anything (due, deadline, lease end) come from the database's clock. The type
//! therefore has no `now()`: whoever needs one asks a store.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Time from `earlier` to `self`, zero where `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }

    /// From 1970 on: there was no job before, and not every store knows such times.
    pub fn is_plausible(&self) -> bool {
        self.micros() >= 0
    }

    /// Reads an RFC 3339 date and time.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|at| Self(at.as_microsecond()))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the far end: "never" stays "never".
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, to the millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => f.write_str(if self.0 < 0 {
                "-009999-01-01T00:00:00.000Z"
            } else {
                "9999-12-31T23:59:59.999Z"
            }),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("not an RFC 3339 date and time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_and_read_as_rfc_3339() {
        let at = Timestamp::from_micros(1_796_000_000_123_000);
        assert_eq!(at.to_string(), "2026-11-30T00:53:20.123Z");
        assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn adding_a_long_time_saturates() {
        assert_eq!(Timestamp::from_micros(5) + Duration::MAX, Timestamp::from_micros(i64::MAX));
    }
}
