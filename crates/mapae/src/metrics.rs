//! What the runtime counts and times, to be shown as metrics. Labels are kinds and outcomes, which are
//! few, never jobs or owners.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds: from a wake-up's milliseconds to an hour's analysis.
pub const BUCKETS: [f64; 14] =
    [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1_200.0, 3_600.0];

/// Labels of one metric: whatever else is counted goes under `other`. Kinds are what clients call their jobs.
const LABELS_MAX: usize = 300;

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
            *entry(&mut lock(&self.counts), name, label.into()) += by;
        }
    }

    pub fn time(&self, name: &'static str, label: impl Into<String>, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut times = lock(&self.times);
        let times = entry(&mut times, name, label.into());
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

/// What this label has of the metric, or the label `other` where there are [`LABELS_MAX`] already.
fn entry<'a, T: Default>(
    all: &'a mut BTreeMap<(&'static str, String), T>,
    name: &'static str,
    label: String,
) -> &'a mut T {
    let known = all.contains_key(&(name, label.clone()));
    let many = || all.range((name, String::new())..).take_while(|((of, _), _)| *of == name).count();
    let label = if known || many() < LABELS_MAX { label } else { "other".to_owned() };
    all.entry((name, label)).or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_labels_are_counted_together() {
        let metrics = Metrics::default();
        for number in 0..10_000 {
            metrics.count("mapae_reaped_total", format!("made-up-{number}"), 1);
            metrics.time("mapae_job_run_seconds", format!("made-up-{number}"), Duration::ZERO);
        }
        metrics.count("mapae_retries_total", "another metric", 1);
        let counts = metrics.counts();
        assert!(counts.len() <= LABELS_MAX + 2, "{}", counts.len());
        assert_eq!(counts.values().sum::<u64>(), 10_001);
        assert_eq!(counts[&("mapae_retries_total", "another metric".to_owned())], 1);
        assert!(metrics.times().len() <= LABELS_MAX + 1);
    }
}
