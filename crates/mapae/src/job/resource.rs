//! Named resources: what a kind needs to run and what a process has to give.
//!
//! Amounts are plain whole numbers; memory is counted in bytes, everything else in places.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
