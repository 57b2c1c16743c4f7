//! Whether a service, or a receiver of events, is left alone: after some failures in a row for a while, then longer and longer, until
//! a call goes well again. Pure but for the lock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many calls in a row without an answer, or with one of 5xx, open it.
const FAILURES: u32 = 5;

/// The first rest and the longest, doubling.
const REST: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// One for each handler or receiver, and process. Other processes are told of a rest through the store.
#[derive(Default)]
pub(crate) struct Breaker(Mutex<Known>);

#[derive(Default)]
struct Known {
    failures: u32,
    /// How often it has opened since a call went well.
    opened: u32,
    until: Option<Instant>,
}

impl Breaker {
    /// How long the service is left alone from now.
    pub(crate) fn rests(&self, now: Instant) -> Option<Duration> {
        let until = self.known().until?;
        until.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// It has opened and no call has gone well since: calls go one at a time.
    pub(crate) fn doubts(&self) -> bool {
        self.known().opened > 0
    }

    /// A call has gone well or has not; how long to leave the service alone now, where that is new.
    pub(crate) fn heard(&self, well: bool, now: Instant) -> Option<Duration> {
        let mut known = self.known();
        if well {
            *known = Known::default();
            return None;
        }
        known.failures += 1;
        let resting = known.until.is_some_and(|until| until > now);
        if resting || (known.opened == 0 && known.failures < FAILURES) {
            return None;
        }
        let rest = REST.0.saturating_mul(1 << known.opened.min(16)).min(REST.1);
        known.opened += 1;
        known.until = Some(now + rest);
        Some(rest)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_rests_longer_each_time_and_closes_when_a_call_goes_well() {
        let (breaker, mut now) = (Breaker::default(), Instant::now());
        for _ in 0..2 {
            for _ in 1..FAILURES {
                assert_eq!(breaker.heard(false, now), None);
            }
            assert_eq!(breaker.heard(true, now), None, "one that goes well begins the count anew");
        }
        for _ in 1..FAILURES {
            breaker.heard(false, now);
        }
        assert!(!breaker.doubts());
        let mut rests = Vec::new();
        for _ in 0..9 {
            let rest = breaker.heard(false, now).expect("it opens");
            assert_eq!((breaker.rests(now), breaker.doubts()), (Some(rest), true));
            assert_eq!(breaker.heard(false, now), None, "what was on its way opens nothing again");
            now += rest;
            assert_eq!(breaker.rests(now), None);
            rests.push(rest.as_secs());
        }
        assert_eq!(rests, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        breaker.heard(true, now);
        assert!(!breaker.doubts());
        assert_eq!(breaker.heard(false, now), None);
    }
}
