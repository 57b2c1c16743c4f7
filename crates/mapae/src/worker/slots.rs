//! What a process has to give: slots and named resources.
//!
//! Reading and running are apart: how many pointers are read is for the network, a slot and resources
//! are for running. Waiting for either uses no attempt and no connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::job::limit::Rate;
use crate::job::name::{Kind, Lane};
use crate::job::resource::{Amounts, Room};
use crate::job::timestamp::Timestamp;
use crate::store::contract::LaneQuota;

/// Slots and resources of one process. Cheap to clone.
#[derive(Clone)]
pub struct Slots {
    inner: Arc<Inner>,
}

struct Inner {
    slots: usize,
    capacity: Amounts,
    /// How often a resource may be begun to be used in this process.
    rates: BTreeMap<String, Rate>,
    began: Instant,
    used: Mutex<Used>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Used {
    slots: usize,
    amounts: BTreeMap<String, u64>,
    /// When the next start would be due at an even pace, as time since the process began.
    next: BTreeMap<String, Timestamp>,
}

/// A slot and its resources, given back when dropped.
pub struct Permit {
    inner: Arc<Inner>,
    needs: Amounts,
}

impl Slots {
    pub fn new(slots: usize, capacity: Amounts, rates: BTreeMap<String, Rate>) -> Self {
        let inner = Inner {
            slots,
            capacity,
            rates,
            began: Instant::now(),
            used: Mutex::default(),
            freed: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn total(&self) -> usize {
        self.inner.slots
    }

    pub fn busy(&self) -> usize {
        self.inner.used().slots
    }

    pub fn free(&self) -> usize {
        self.inner.slots - self.busy()
    }

    /// Each limited resource with what is used of it.
    pub fn in_use(&self) -> Vec<(String, u64, u64)> {
        let used = self.inner.used();
        let limits = self.inner.capacity.iter();
        limits.map(|(name, all)| (name.into(), used.amounts.get(name).copied().unwrap_or(0), all)).collect()
    }

    /// What there is of a resource.
    pub fn room(&self, name: &str) -> Room {
        let (used, now) = (self.inner.used(), self.inner.now());
        Room {
            name: name.to_owned(),
            used: used.amounts.get(name).copied().unwrap_or(0),
            all: self.inner.capacity.get(name),
            rate: self.inner.rates.get(name).copied(),
            ahead: used.next.get(name).map_or(Duration::ZERO, |next| next.since(now)),
        }
    }

    /// A job that needs these resources starts: their paces go on.
    pub fn started(&self, needs: &Amounts) {
        let (mut used, now) = (self.inner.used(), self.inner.now());
        for (name, _) in needs.iter() {
            if let Some(rate) = self.inner.rates.get(name) {
                let next = rate.after(used.next.get(name).copied(), now);
                used.next.insert(name.into(), next);
            }
        }
    }

    /// What of the limited resources is left.
    pub fn left(&self) -> Amounts {
        self.in_use().into_iter().map(|(name, used, all)| (name, all.saturating_sub(used))).collect()
    }

    /// The first resource that `needs` would have to wait for.
    pub fn waits_for(&self, needs: &Amounts) -> Option<String> {
        self.left().never_enough(needs).map(str::to_owned)
    }

    /// A slot and all of `needs`, or nothing.
    pub fn take(&self, needs: &Amounts) -> Option<Permit> {
        let mut used = self.inner.used();
        let needs = &self.at_most_all(needs);
        let in_use = |name: &str| used.amounts.get(name).copied().unwrap_or(0);
        let fits = |(name, amount): (&str, u64)| {
            self.inner.capacity.get(name).is_none_or(|all| all.saturating_sub(in_use(name)) >= amount)
        };
        if used.slots >= self.inner.slots || !needs.iter().all(fits) {
            return None;
        }
        used.slots += 1;
        for (name, amount) in needs.iter() {
            *used.amounts.entry(name.into()).or_default() += amount;
        }
        Some(Permit { inner: self.inner.clone(), needs: needs.clone() })
    }

    /// What would need more than there is takes all of it, and so runs alone.
    fn at_most_all(&self, needs: &Amounts) -> Amounts {
        needs
            .iter()
            .map(|(name, need)| (name, self.inner.capacity.get(name).map_or(need, |all| need.min(all))))
            .collect()
    }

    /// Returns once something was given back since the last call.
    pub async fn freed(&self) {
        self.inner.freed.notified().await;
    }
}

impl Permit {
    /// With what of `needs` was not taken yet. That there is room for it is known to whoever asks.
    pub fn grown(mut self, needs: &Amounts) -> Self {
        let needs = Slots { inner: self.inner.clone() }.at_most_all(needs);
        let mut used = self.inner.used();
        for (name, amount) in needs.iter() {
            let more = amount.saturating_sub(self.needs.get(name).unwrap_or(0));
            *used.amounts.entry(name.into()).or_default() += more;
        }
        drop(used);
        for (name, amount) in needs.iter() {
            let amount = amount.max(self.needs.get(name).unwrap_or(0));
            self.needs.set(name, amount);
        }
        self
    }
}

impl Inner {
    fn now(&self) -> Timestamp {
        Timestamp::default() + self.began.elapsed()
    }

    fn used(&self) -> std::sync::MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut used = self.inner.used();
        used.slots -= 1;
        for (name, amount) in self.needs.iter() {
            if let Some(in_use) = used.amounts.get_mut(name) {
                *in_use -= amount;
            }
        }
        drop(used);
        self.inner.freed.notify_one();
    }
}

/// How many jobs of each lane may be claimed at once, in the order of `lanes`, so that whatever comes
/// back can start: no two lanes are promised the same amount of a resource.
///
/// Answers the lanes that got nothing only because another was asked first, too: they go first next
/// time, or a lane without work would keep the resource from one with.
pub fn quotas(lanes: &[(Lane, Amounts)], free: usize, left: &Amounts) -> (Vec<LaneQuota>, Vec<Lane>) {
    let mut remaining: BTreeMap<&str, u64> = left.iter().collect();
    let mut quotas = Vec::new();
    let mut shut_out = Vec::new();
    for (lane, needs) in lanes {
        let limited = needs.iter().filter(|(name, amount)| *amount > 0 && left.get(name).is_some());
        let fits = |amounts: &BTreeMap<&str, u64>| {
            let limits =
                limited.clone().map(|(name, amount)| amounts.get(name).copied().unwrap_or(0) / amount);
            limits.min().map_or(free, |most| usize::try_from(most).unwrap_or(usize::MAX)).min(free)
        };
        let max = fits(&remaining);
        if max > 0 {
            for (name, amount) in limited.clone() {
                if let Some(amount_left) = remaining.get_mut(name) {
                    *amount_left -= amount * max as u64;
                }
            }
            quotas.push(LaneQuota { lane: lane.clone(), max });
        } else if fits(&left.iter().collect()) > 0 {
            shut_out.push(lane.clone());
        }
    }
    (quotas, shut_out)
}

/// The kinds that cannot start here for want of a resource, with its name.
pub fn waiting(lanes: &[(Lane, Amounts)], left: &Amounts) -> Vec<(Kind, String)> {
    let mut waiting: Vec<(Kind, String)> = lanes
        .iter()
        .filter_map(|(lane, needs)| left.never_enough(needs).map(|name| (lane.kind.clone(), name.to_owned())))
        .collect();
    waiting.dedup();
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(all: &[(&str, u64)]) -> Amounts {
        all.iter().map(|(name, amount)| (*name, *amount)).collect()
    }

    fn lane(text: &str) -> Lane {
        text.parse().unwrap()
    }

    #[test]
    fn a_job_starts_only_with_a_slot_and_every_resource() {
        let slots = Slots::new(2, amounts(&[("ai", 1)]), BTreeMap::new());
        let needs = amounts(&[("ai", 1)]);
        let first = slots.take(&needs).expect("free");
        assert!(slots.take(&needs).is_none(), "the resource is taken");
        assert_eq!(slots.waits_for(&needs).as_deref(), Some("ai"));
        let second = slots.take(&Amounts::default()).expect("a slot is free");
        assert!(slots.take(&Amounts::default()).is_none(), "no slot is free");
        drop(first);
        assert!(slots.take(&needs).is_some());
        drop(second);
        assert_eq!(slots.busy(), 0);
    }

    #[test]
    fn two_lanes_are_not_promised_the_same_resource() {
        let lanes = [
            (lane("a"), amounts(&[("ai", 1)])),
            (lane("b"), amounts(&[("ai", 1)])),
            (lane("c"), amounts(&[])),
        ];
        let (quotas, shut_out) = quotas(&lanes, 4, &amounts(&[("ai", 1)]));
        assert_eq!(quotas, [LaneQuota { lane: lane("a"), max: 1 }, LaneQuota { lane: lane("c"), max: 4 }]);
        assert_eq!(shut_out, [lane("b")]);
    }

    #[test]
    fn a_lane_whose_resource_is_used_up_is_not_shut_out_but_waits() {
        let lanes = [(lane("a"), amounts(&[("ai", 2)]))];
        let left = amounts(&[("ai", 1)]);
        assert_eq!(quotas(&lanes, 4, &left), (vec![], vec![]));
        assert_eq!(waiting(&lanes, &left), [(lane("a").kind, "ai".to_owned())]);
    }
}
