//! What keeps due work waiting here: for the report, for the metric, and for when to ask again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::job::limit::{Gate, Stop};
use crate::job::name::{Kind, Owner};

#[derive(Default)]
pub(super) struct Waits(Mutex<State>);

#[derive(Default)]
struct State {
    /// What the last claim said of each kind that has gates.
    stops: BTreeMap<Kind, Vec<Stop>>,
    /// Which kinds wait for what, and from when to when.
    times: BTreeMap<(Kind, String), (Instant, Option<Instant>)>,
    /// Jobs of this kind, or of this owner's of it, are not asked for before then.
    later: HashMap<(Kind, Option<Owner>), Instant>,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store was asked for jobs of these kinds, and this is what kept some of them waiting.
    pub(super) fn told<'a>(&self, kinds: impl IntoIterator<Item = &'a Kind>, stops: &[Stop]) {
        let (mut state, now) = (self.lock(), Instant::now());
        for kind in kinds {
            state.stops.remove(kind);
        }
        for stop in stops {
            state.stops.entry(stop.kind.clone()).or_default().push(stop.clone());
            state.later.insert((stop.kind.clone(), stop.owner.clone()), now + stop.again);
        }
    }

    /// Takes up what waits now: for this process's own resources, as given, and at gates. Answers all of it.
    pub(super) fn now(&self, own: Vec<(Kind, String)>) -> Vec<(Kind, String)> {
        let (mut state, now) = (self.lock(), Instant::now());
        let mut waiting = own;
        for (kind, stops) in &state.stops {
            waiting.extend(stops.iter().map(|stop| (kind.clone(), label(&stop.gate))));
        }
        waiting.sort_unstable();
        waiting.dedup();
        for (what, time) in &mut state.times {
            if !waiting.contains(what) {
                time.1.get_or_insert(now);
            }
        }
        for what in &waiting {
            let time = state.times.entry(what.clone()).or_insert((now, None));
            if time.1.is_some() {
                *time = (now, None);
            }
        }
        waiting
    }

    /// A job of the kind starts that has been due for so long: how much of that it waited for what.
    pub(super) fn of(&self, kind: &Kind, due_for: Duration) -> Vec<(String, Duration)> {
        let now = Instant::now();
        let due = now.checked_sub(due_for).unwrap_or(now);
        let state = self.lock();
        let of_kind = state.times.iter().filter(|((waits, _), _)| waits == kind);
        of_kind
            .map(|((_, what), (since, until))| {
                (what.clone(), until.unwrap_or(now).saturating_duration_since(due.max(*since)))
            })
            .filter(|(_, waited)| !waited.is_zero())
            .collect()
    }

    /// Whether asking for such a job would be in vain.
    pub(super) fn holds(&self, kind: &Kind, owner: &Owner) -> bool {
        let state = self.lock();
        let until =
            |owner| state.later.get(&(kind.clone(), owner)).is_some_and(|until| *until > Instant::now());
        until(None) || until(Some(owner.clone()))
    }

    /// Whether asking for any job of the kind would be in vain.
    pub(super) fn holds_all(&self, kind: &Kind) -> bool {
        self.lock().later.get(&(kind.clone(), None)).is_some_and(|until| *until > Instant::now())
    }

    /// How long until something may be asked for again that was refused; at most `most`.
    pub(super) fn next(&self, most: Duration) -> Duration {
        let (mut state, now) = (self.lock(), Instant::now());
        state.later.retain(|_, until| *until > now);
        state.later.values().map(|until| *until - now).min().map_or(most, |next| next.min(most))
    }

    /// Something was given back: everything may be asked for again.
    pub(super) fn freed(&self) {
        self.lock().later.clear();
    }
}

/// A resource by its name, a limit of a kind or of its owners by its gate's.
fn label(gate: &Gate) -> String {
    match gate {
        Gate::Resource(name) => name.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_waited_for_a_resource_only_while_it_was_due_and_the_resource_used_up() {
        let (waits, ai) = (Waits::default(), Kind::new("ai").unwrap());
        let hour = Duration::from_secs(3600);
        assert_eq!(waits.of(&ai, hour), []);
        let began = Instant::now();
        waits.now(vec![(ai.clone(), "gpu".into())]);
        let [(what, waited)] = <[_; 1]>::try_from(waits.of(&ai, hour)).unwrap();
        assert!(what == "gpu" && waited <= began.elapsed(), "not the hour it was due");
        assert_eq!(waits.of(&ai, Duration::ZERO), [], "it has just become due");
        assert_eq!(waits.of(&Kind::new("other").unwrap(), hour), []);
        waits.now(Vec::new());
        let [(_, then)] = <[_; 1]>::try_from(waits.of(&ai, hour)).unwrap();
        assert_eq!(waits.of(&ai, hour)[0].1, then, "it is free again: no more is added");
    }

    #[test]
    fn an_owner_that_waits_holds_only_its_own_jobs_back() {
        let (waits, ai) = (Waits::default(), Kind::new("ai").unwrap());
        let owner = |name| Owner::new(name).unwrap();
        let stop = Stop {
            kind: ai.clone(),
            gate: Gate::Owner(ai.clone()),
            owner: Some(owner("a")),
            again: Duration::from_secs(60),
            paced: false,
            asked: false,
        };
        waits.told([&ai], &[stop]);
        assert!(waits.holds(&ai, &owner("a")) && !waits.holds(&ai, &owner("b")) && !waits.holds_all(&ai));
        assert!(waits.next(Duration::from_secs(100)) > Duration::from_secs(50));
        waits.freed();
        assert!(!waits.holds(&ai, &owner("a")));
        assert_eq!(waits.next(Duration::from_secs(1)), Duration::from_secs(1));
    }
}
