//! Workers whose presence is missing, and for how long that has been seen. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::job::lease::HEARTBEAT_MAX;

/// How much longer than a heartbeat a presence may take to be back.
const RETURN: Duration = Duration::from_secs(2);

/// The most that lies between two looks of a keeper that is awake. Whatever lies between them beyond that
/// counts for nothing: the machine stood still, and the missing worker may have stood still with it.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// A worker whose lock nobody holds.
pub(super) struct Missing {
    pub(super) life: Uuid,
    /// How often it says that it beats; zero where it has not said.
    pub(super) heartbeat: Duration,
    /// It told of itself while the session that misses it stood.
    pub(super) witnessed: bool,
}

/// What the looks so far have seen.
#[derive(Default)]
pub(super) struct Absences {
    looked: Option<Instant>,
    lasted: HashMap<Uuid, Duration>,
}

impl Absences {
    /// After a look at `now` that found these missing; and the lives that have ended.
    ///
    /// That all locks are free at once (a restart, a fail-over, a pooler that dropped every session) proves
    /// nothing, so an absence counts at once only where it was witnessed. Otherwise it has to last for longer
    /// than a worker that lives takes to show itself again.
    pub(super) fn after(&self, missing: &[Missing], now: Instant) -> (Self, Vec<Uuid>) {
        let since = self.looked.map_or(Duration::ZERO, |looked| now.duration_since(looked).min(LOOK_MAX));
        let mut lasted = HashMap::with_capacity(missing.len());
        let mut gone = Vec::new();
        for one in missing {
            let heartbeat = match one.heartbeat {
                Duration::ZERO => HEARTBEAT_MAX,
                told => told.min(HEARTBEAT_MAX),
            };
            let so_long = self.lasted.get(&one.life).map_or(Duration::ZERO, |before| *before + since);
            if one.witnessed || so_long > heartbeat + RETURN {
                gone.push(one.life);
            }
            lasted.insert(one.life, so_long);
        }
        (Self { looked: Some(now), lasted }, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(5);

    /// A worker that is missing in every look, after these pauses; in which look it counts as gone.
    fn gone_at(pauses: &[Duration]) -> Option<usize> {
        let missing = [Missing { life: Uuid::new_v4(), heartbeat: BEAT, witnessed: false }];
        let (mut absences, mut now) = (Absences::default(), Instant::now());
        pauses.iter().position(|pause| {
            now += *pause;
            let (after, gone) = absences.after(&missing, now);
            absences = after;
            !gone.is_empty()
        })
    }

    #[test]
    fn an_absence_counts_once_it_has_lasted_longer_than_a_live_worker_takes() {
        let looks = [Duration::from_millis(500); 30];
        assert_eq!(gone_at(&looks), Some(15), "the first look and 7 seconds, and not a moment sooner");
    }

    #[test]
    fn time_in_which_nobody_looked_counts_for_nothing() {
        let stood_still = [Duration::ZERO, Duration::from_secs(3600), Duration::from_secs(3600)];
        assert_eq!(gone_at(&stood_still), None);
    }

    #[test]
    fn whoever_was_here_again_is_missed_anew() {
        let life = Uuid::new_v4();
        let missing = |witnessed| [Missing { life, heartbeat: BEAT, witnessed }];
        let (mut absences, mut now) = (Absences::default(), Instant::now());
        let mut look = |missing: &[Missing]| {
            now += Duration::from_millis(900);
            let (after, gone) = absences.after(missing, now);
            absences = after;
            gone
        };
        for _ in 0..7 {
            assert!(look(&missing(false)).is_empty());
        }
        assert!(look(&[]).is_empty());
        for _ in 0..7 {
            assert!(look(&missing(false)).is_empty());
        }
        assert_eq!(look(&missing(true)), [life], "at once where it was witnessed");
    }
}
