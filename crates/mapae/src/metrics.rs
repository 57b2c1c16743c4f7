//! What the runtime counts and times, to be shown as metrics. Labels are kinds and outcomes, which are
//! few, never jobs or owners.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds: from a wake-up's milliseconds to an hour's analysis.
pub const BUCKETS: [f64; 14] =
    [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1_200.0, 3_600.0];

/// Counters and timings of one process, by metric name and label.
#[derive(Debug, Default)]
pub struct Metrics {
    counts: Mutex<BTreeMap<(&'static str, String), u64>>,
    times: Mutex<BTreeMap<(&'static str, String), Times>>,
}

/// A histogram: how many fell at or below each of [`BUCKETS`], not cumulated, and beyond.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    pub buckets: [u64; BUCKETS.len()],
    pub beyond: u64,
    pub sum: f64,
}

impl Times {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum::<u64>() + self.beyond
    }
}

impl Metrics {
    pub fn count(&self, name: &'static str, label: impl Into<String>, by: u64) {
        if by > 0 {
            *lock(&self.counts).entry((name, label.into())).or_default() += by;
        }
    }

    pub fn time(&self, name: &'static str, label: impl Into<String>, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut times = lock(&self.times);
        let times = times.entry((name, label.into())).or_default();
        times.sum += seconds;
        match BUCKETS.iter().position(|bound| seconds <= *bound) {
            Some(bucket) => times.buckets[bucket] += 1,
            None => times.beyond += 1,
        }
    }

    pub fn counts(&self) -> BTreeMap<(&'static str, String), u64> {
        lock(&self.counts).clone()
    }

    pub fn times(&self) -> BTreeMap<(&'static str, String), Times> {
        lock(&self.times).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
