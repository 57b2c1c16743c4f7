//! What the keeper does.

use std::collections::BTreeSet;
use std::time::Duration;

use mapae::job::lease::Holder;
use mapae::job::name::{JobId, Lane};
use mapae::job::{State, Status, Step};
use mapae::store::contract::{DOUBLINGS_MAX, Reaped, Retention, RingPlan};

use super::Known;
use crate::stores::soon;
use crate::stores::walk::Walk;

impl Walk<'_> {
    pub(in crate::stores::walk) async fn expect_ring(&mut self, plan: &RingPlan) {
        let now = self.now();
        let (mut must, mut may) = (BTreeSet::new(), BTreeSet::new());
        let mut rung_before = std::collections::BTreeMap::<Lane, usize>::new();
        for (place, known) in self.jobs.iter().enumerate() {
            let (Some(hint), Status::Pending { ring_at, .. }) = (known.hint(), &known.life.status) else {
                continue;
            };
            *rung_before.entry(known.new.lane()).or_default() += usize::from(hint > 0);
            if self.paused.contains(&known.new.lane()) {
                continue;
            }
            let patience = if hint == 0 { Some(Duration::ZERO) } else { plan.patience(&known.new.lane()) };
            let Some(patience) = patience else { continue };
            let come = known.life.due_at.max(*ring_at + patience) <= now;
            if come && known.overdue(now) {
                may.insert(place);
            } else if come {
                must.insert(place);
            }
        }
        let rung = self.store.ring(plan).await.unwrap();
        self.rung = rung.iter().map(|rung| (rung.job, rung.hint)).collect();
        let names: Vec<String> =
            rung.iter().map(|rung| format!("{} hint {}", self.name(rung.job), rung.hint)).collect();
        self.log.push(format!(
            "ring window {}, least {}, again {:?}, rescan {:?}, max {} => {names:?}",
            plan.window, plan.least, plan.again, plan.rescan, plan.max
        ));
        assert!(rung.len() <= plan.max);

        let mut given = BTreeSet::new();
        for rung in &rung {
            let place = self.known(rung.job);
            assert!(must.contains(&place) || may.contains(&place), "job {place} was not to be rung");
            assert!(given.insert(place), "job {place} was rung twice");
            let known = &mut self.jobs[place];
            assert_eq!((&rung.owner, rung.lane.clone()), (&known.new.owner, known.new.lane()));
            assert_eq!(rung.trace, known.new.trace);
            let Status::Pending { ring_at, .. } = &mut known.life.status else { unreachable!() };
            *ring_at = (*ring_at).min(now);
            known.take(&Step::Ring { again: plan.again }, now).unwrap();
            assert_eq!(Some(rung.hint), known.hint());
            if rung.hint > 1 {
                self.met.insert("ring again");
            }
        }
        for (lane, before) in rung_before {
            let in_lane =
                |known: &&Known| known.new.lane() == lane && known.hint().is_some_and(|hint| hint > 0);
            let after = self.jobs.iter().filter(in_lane).count();
            let most = plan.window.max(before + plan.least);
            assert!(after <= most, "{after} rung in {lane}");
            // Only a full window or a full answer leaves a job that has never been rung.
            let left = |place: &&usize| {
                let known = &self.jobs[**place];
                known.new.lane() == lane && known.hint() == Some(0)
            };
            let left = must.difference(&given).filter(left).count();
            assert!(left == 0 || after >= most || rung.len() == plan.max, "{left} were left in {lane}");
        }
        if plan.window >= 1000 && plan.max >= 1000 {
            assert!(must.is_subset(&given), "only {given:?} of {must:?} were rung");
        }
    }

    pub(in crate::stores::walk) async fn expect_rung(&mut self, pointers: &[(JobId, u32)], age: Duration) {
        let names: Vec<String> =
            pointers.iter().map(|(job, hint)| format!("{} {hint}", self.name(*job))).collect();
        self.log.push(format!("rung {names:?}, age {age:?}"));
        self.store.rung(pointers, age).await.unwrap();
        let now = self.now();
        for (job, told) in pointers {
            let place = self.known(*job);
            let known = &mut self.jobs[place];
            if known.gone {
                continue;
            }
            if let Status::Pending { hint, ring_at } = &mut known.life.status
                && *hint == *told
            {
                *ring_at = now + age * (1 << (*told - 1).min(DOUBLINGS_MAX));
            }
        }
    }

    /// True where a job has to wait before its next attempt.
    pub(in crate::stores::walk) async fn expect_reap(&mut self) -> bool {
        let now = self.now();
        let over = |known: &Known| match &known.life.status {
            Status::Running { holder, until, .. } => {
                let gone = |holder| self.workers.iter().all(|w| w.gone || w.member.holder() != holder);
                *until <= now || (!holder.is_service() && gone(holder))
            }
            _ => false,
        };
        let all = self.jobs.iter().enumerate();
        let expected: BTreeSet<usize> =
            all.filter(|(_, known)| !known.gone && over(known)).map(|(place, _)| place).collect();
        let (mut reaped, mut states) = (BTreeSet::new(), Vec::new());
        loop {
            // A store may take a moment to see that a worker is gone.
            let some = soon("the keeper notices", async || {
                let some = self.store.reap(1000).await.unwrap();
                (!some.is_empty() || reaped.len() == expected.len()).then_some(some)
            })
            .await;
            for Reaped { job, kind, state } in some {
                let place = self.known(job);
                assert_eq!(kind, self.jobs[place].new.kind);
                states.push((place, state));
                assert!(expected.contains(&place), "job {place} was not lost");
                assert!(reaped.insert(place), "job {place} was reaped twice");
            }
            if reaped == expected {
                break;
            }
        }
        self.log.push(format!("reap => {reaped:?}"));
        let mut waits = false;
        for place in reaped {
            let known = &mut self.jobs[place];
            let live = matches!(known.life.status, Status::Running { until, .. } if until > now);
            let lent = known.holder().is_some_and(Holder::is_service);
            self.met.insert(match (lent, live) {
                (true, _) => "reap of the lent",
                (false, true) => "reap of the gone",
                (false, false) => "reap",
            });
            let backoff = known.new.retry.backoff;
            let longest = match lent {
                true => backoff.wait(known.life.attempt, 1.0),
                false => backoff.wait_after_loss(known.life.attempt, 1.0),
            };
            known.take(&Step::Reap { gone: true, delay: longest }, now).unwrap();
            assert!(states.contains(&(place, known.life.state())), "job {place}: {states:?}");
            waits |= known.life.state() == State::Pending && !longest.is_zero();
            self.look_at(place).await;
        }
        waits
    }

    pub(in crate::stores::walk) async fn expect_expire(&mut self) {
        let expired = self.store.expire(1000).await.unwrap();
        self.log.push(format!("expire => {expired}"));
        let now = self.now();
        let count = self
            .jobs
            .iter_mut()
            .filter_map(|known| (!known.gone).then(|| known.take(&Step::Expire, now).ok()).flatten())
            .count();
        assert_eq!(expired, count);
        if count > 0 {
            self.met.insert("expire");
        }
    }

    pub(in crate::stores::walk) async fn expect_prune(&mut self, retention: &Retention) {
        let pruned = self.store.prune(retention, 1000).await.unwrap();
        self.log.push(format!("prune {retention:?} => {pruned:?}"));
        let now = self.now();
        let (mut count, mut buried) = (0, 0);
        for known in self.jobs.iter_mut().filter(|known| !known.gone) {
            let Some(finished_at) = known.finished_at else { continue };
            let kept =
                if known.life.state() == State::Failed { retention.failed } else { retention.finished };
            if known.life.delete_asked || finished_at + kept <= now {
                known.gone = true;
                count += 1;
                buried += usize::from(known.life.delete_asked);
            }
        }
        self.standing.retain(|one| one.dead_at.is_none_or(|at| at + retention.failed > now));
        assert_eq!(pruned.buried + pruned.expired, count);
        assert!(pruned.buried <= buried);
        if count > 0 {
            self.met.insert("prune");
        }
        self.look_at_everything().await;
    }
}
