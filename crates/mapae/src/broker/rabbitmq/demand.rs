//! What a worker asks of its queues, and how much a queue may send ahead of that.

use std::time::Instant;

use crate::job::name::Lane;

/// The last call of `next`.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub(super) permits: usize,
    /// How many of them it has not been given.
    pub(super) short: usize,
    pub(super) shut: Vec<Lane>,
    /// Until when it says something: whoever has not asked again by then has no use for deliveries.
    pub(super) until: Instant,
}

impl Demand {
    /// Nothing, and for ever.
    pub(super) fn none() -> Self {
        Self { permits: 0, short: 0, shut: Vec::new(), until: Instant::now() }
    }

    pub(super) fn wants(&self, lane: &Lane, now: Instant) -> bool {
        self.permits > 0 && now < self.until && !self.shut.contains(lane)
    }
}

/// Most messages that one queue sends ahead.
const PREFETCH_MAX: usize = 1_000;

/// How many unsettled messages a queue may have sent at first: with all of them, no more than are asked for, but
/// one from each.
pub(super) fn first(permits: usize, lanes: usize) -> u16 {
    narrow(permits / lanes.max(1))
}

/// How many it may have sent from now on. A queue that has sent all it may, while there is not enough in hand
/// for what is missing, may send twice as many: so one long queue fills a worker, and many queues do not send
/// many times what it can run. What it has sent and is not settled is `held`; `ready` is in hand of all queues.
pub(super) fn next(now: u16, held: usize, ready: usize, short: usize) -> u16 {
    if held < usize::from(now) || ready >= short {
        return now;
    }
    narrow((2 * usize::from(now)).min(held + short)).max(now)
}

fn narrow(messages: usize) -> u16 {
    u16::try_from(messages.clamp(1, PREFETCH_MAX)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_queue_fills_a_worker() {
        // All it sent waits here for a slot, and there is room for more.
        let mut prefetch = first(8, 9);
        let mut steps = vec![prefetch];
        while usize::from(prefetch) < 8 {
            prefetch = next(prefetch, usize::from(prefetch), 0, 8 - usize::from(prefetch));
            steps.push(prefetch);
        }
        assert_eq!(steps, [1, 2, 4, 8]);
    }

    #[test]
    fn many_queues_send_little_more_than_is_asked_for() {
        assert_eq!(first(8, 9), 1);
        assert_eq!(next(1, 1, 9, 8), 1, "each has sent one, and that is enough");
        assert_eq!(next(8, 8, 0, 0), 8, "all that was asked for was given");
        assert_eq!(next(4, 3, 0, 8), 4, "it could have sent one more and has none");
        assert_eq!(first(100_000, 1), 1_000);
        assert_eq!(next(1_000, 1_000, 0, 100_000), 1_000);
    }

    #[test]
    fn what_was_asked_for_long_ago_is_not_asked_for_any_more() {
        let lane: Lane = "k".parse().unwrap();
        let now = Instant::now();
        let demand = Demand { permits: 1, short: 1, shut: Vec::new(), until: now };
        assert!(!demand.wants(&lane, now));
        let demand = Demand { until: now + std::time::Duration::from_secs(1), ..demand };
        assert!(demand.wants(&lane, now));
        assert!(!Demand { shut: vec![lane.clone()], ..demand.clone() }.wants(&lane, now));
        assert!(!Demand { permits: 0, ..demand }.wants(&lane, now));
    }
}
