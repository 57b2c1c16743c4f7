//! Named resources: what a kind needs to run and what a process has to give.
//!
//! Amounts are plain whole numbers; memory is counted in bytes, everything else in places.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limit::Rate;

/// Resource name to amount. An absent name is an amount of 0 in needs and no limit in capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amounts(BTreeMap<String, u64>);

impl Amounts {
    pub fn set(&mut self, name: impl Into<String>, amount: u64) {
        self.0.insert(name.into(), amount);
    }

    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> + Clone {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// The first resource of which `needs` asks for more than there is at all.
    pub fn never_enough<'a>(&self, needs: &'a Amounts) -> Option<&'a str> {
        needs
            .iter()
            .find(|(name, amount)| self.get(name).is_some_and(|all| all < *amount))
            .map(|(name, _)| name)
    }
}

impl<N: Into<String>> FromIterator<(N, u64)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(all: I) -> Self {
        Self(all.into_iter().map(|(name, amount)| (name.into(), amount)).collect())
    }
}

/// What a process has for itself of a resource, and how much of that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub name: String,
    pub used: u64,
    /// `None`: as much as anybody needs.
    pub all: Option<u64>,
    pub rate: Option<Rate>,
    /// How far the next start, were all spread evenly, is ahead of now.
    pub ahead: Duration,
}

/// What one job needs of a resource: so much, and so much more for each byte of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    pub base: u64,
    pub per_byte: u64,
}

impl Need {
    pub const fn fixed(base: u64) -> Self {
        Self { base, per_byte: 0 }
    }

    /// What a job with a source of so many bytes needs.
    pub fn of(&self, bytes: u64) -> u64 {
        self.base.saturating_add(self.per_byte.saturating_mul(bytes))
    }
}

impl From<u64> for Need {
    fn from(base: u64) -> Self {
        Self::fixed(base)
    }
}

/// Resource name to what a kind's jobs need of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs(BTreeMap<String, Need>);

impl Needs {
    pub fn set(&mut self, name: impl Into<String>, need: impl Into<Need>) {
        self.0.insert(name.into(), need.into());
    }

    pub fn get(&self, name: &str) -> Option<Need> {
        self.0.get(name).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Need)> + Clone {
        self.0.iter().map(|(name, need)| (name.as_str(), *need))
    }

    /// What every job needs, whatever its size, of the resources of which the size decides nothing.
    pub fn fixed(&self) -> Amounts {
        let fixed = self.iter().filter(|(_, need)| need.per_byte == 0);
        fixed.map(|(name, need)| (name, need.base)).collect()
    }

    /// What a job with a source of so many bytes needs.
    pub fn of(&self, bytes: u64) -> Amounts {
        self.iter().map(|(name, need)| (name, need.of(bytes))).collect()
    }
}

impl<N: Into<String>, A: Into<Need>> FromIterator<(N, A)> for Needs {
    fn from_iter<I: IntoIterator<Item = (N, A)>>(all: I) -> Self {
        Self(all.into_iter().map(|(name, need)| (name.into(), need.into())).collect())
    }
}
