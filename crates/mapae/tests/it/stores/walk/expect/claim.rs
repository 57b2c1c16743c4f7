//! Claims.

use std::time::Duration;

use mapae::job::lease::Token;
use mapae::job::name::{JobId, Lane, Owner};
use mapae::job::{Refused, State, Step};
use mapae::store::contract::{Claim, Holding, LaneQuota, Scope};

use super::{Answer, Held, Known};
use crate::stores::walk::{WORKERS, Walk};

impl Walk<'_> {
    /// Claims one pointer in the books. `token` is what a lease would carry; `repeated` pointers stood in
    /// the same batch before.
    fn claim_in_books(
        &mut self,
        worker: usize,
        (job, owner): &(JobId, Owner),
        lease: Duration,
        token: Token,
        repeated: bool,
    ) -> Vec<Answer> {
        let now = self.now();
        let holder = self.workers[worker].member.holder().clone();
        let Some(place) = self.jobs.iter().position(|known| known.new.id == *job && !known.gone) else {
            return vec![Answer::Stale];
        };
        let paused = self.paused.contains(&self.jobs[place].new.lane());
        let known = &mut self.jobs[place];
        let deleted = known.life.delete_asked && known.life.state().is_terminal();
        if known.new.owner != *owner {
            // Both are acknowledged and counted; of a deleted job either is true.
            return if known.life.delete_asked {
                vec![Answer::Foreign, Answer::Stale]
            } else {
                vec![Answer::Foreign]
            };
        }
        if deleted && repeated {
            // Ended by the same call, a moment before.
            return vec![Answer::Stale, Answer::Finished(known.life.state())];
        }
        if deleted {
            return vec![Answer::Stale];
        }
        if known.life.state().is_terminal() {
            return vec![Answer::Finished(known.life.state())];
        }
        let step = Step::Claim { holder, token, lease };
        match known.life.after(&step, now) {
            Err(Refused::NotDue(at)) if paused => vec![Answer::NotDue(at), Answer::Paused],
            Err(Refused::NotDue(at)) => vec![Answer::NotDue(at)],
            Err(Refused::Busy(until)) => vec![Answer::Busy(until)],
            Err(other) => panic!("{other}"),
            Ok(_) if paused => vec![Answer::Paused],
            Ok(_) => {
                known.take(&step, now).unwrap();
                vec![match known.life.state() {
                    State::Running => Answer::Run,
                    State::Cancelled => Answer::Cancelled,
                    _ => Answer::Failed,
                }]
            }
        }
    }

    fn assert_holding(&mut self, place: usize, worker: usize, holding: &Holding, lease: Duration) {
        let known = &self.jobs[place];
        let given = &holding.lease;
        assert_eq!(holding.job.id, known.new.id);
        assert_eq!((given.job, given.epoch), (known.new.id, known.life.epoch));
        self.assert_at("the lease ends", given.until, self.now() + lease);
        assert_eq!(holding.job.attempt, known.life.attempt);
        assert_eq!(holding.job.holder.as_ref(), Some(self.workers[worker].member.holder()));
        self.assert_job(place, &holding.job);
        let new = self.leases.iter().all(|held| held.lease.token != given.token);
        assert!(new, "a token is never given twice");
        self.leases.push(Held { known: place, lease: given.clone() });
    }

    pub(in crate::stores::walk) async fn expect_claim(
        &mut self,
        worker: usize,
        pointers: &[(JobId, Owner)],
        lease: Duration,
    ) {
        let holder = self.workers[worker].member.holder().clone();
        let answers = self.store.claim(&holder, pointers, lease).await.unwrap();
        let line: Vec<String> = pointers
            .iter()
            .zip(&answers)
            .map(|((job, owner), answer)| {
                let answer = match answer {
                    Claim::Run(holding) => format!("Run(attempt {})", holding.job.attempt),
                    other => format!("{other:?}"),
                };
                format!("{} of {owner} => {answer}", self.name(*job))
            })
            .collect();
        self.log.push(format!("{} claims for {lease:?}: {}", WORKERS[worker], line.join(", ")));
        assert_eq!(answers.len(), pointers.len());
        for (number, (pointer, answer)) in pointers.iter().zip(answers).enumerate() {
            let token = match &answer {
                Claim::Run(holding) => holding.lease.token,
                _ => Token::random(),
            };
            let repeated = pointers[..number].contains(pointer);
            let expected = self.claim_in_books(worker, pointer, lease, token, repeated);
            let fits = match &answer {
                Claim::Run(_) => expected.contains(&Answer::Run),
                Claim::Finished(state) => expected.contains(&Answer::Finished(*state)),
                Claim::Paused => expected.contains(&Answer::Paused),
                // Nothing is limited on a walk, and nobody else holds a row.
                Claim::Waits(_) | Claim::Later(_) => false,
                Claim::Failed => expected.contains(&Answer::Failed),
                Claim::Cancelled => expected.contains(&Answer::Cancelled),
                Claim::Stale => expected.contains(&Answer::Stale),
                Claim::Foreign => expected.contains(&Answer::Foreign),
                Claim::NotDue(at) => matches!(expected[0], Answer::NotDue(due) if self.near(*at, due)),
                Claim::Busy(at) => matches!(expected[0], Answer::Busy(until) if self.near(*at, until)),
            };
            self.met.insert(match &answer {
                Claim::Run(_) => "claim run",
                Claim::Finished(_) => "claim finished",
                Claim::Paused => "claim paused",
                Claim::Waits(_) | Claim::Later(_) => "claim waits",
                Claim::Failed => "claim failed",
                Claim::Cancelled => "claim cancelled",
                Claim::Stale => "claim stale",
                Claim::Foreign => "claim foreign",
                Claim::NotDue(_) => "claim not due",
                Claim::Busy(_) => "claim busy",
            });
            assert!(fits, "pointer {number}: {answer:?} instead of {expected:?}");
            // Its pointer is dropped, so a keeper is to ring anew.
            if answer == Claim::Paused {
                let place = self.known(pointer.0);
                self.jobs[place].unring();
            }
            if let Claim::Run(holding) = &answer {
                let place = self.known(pointer.0);
                self.assert_holding(place, worker, holding, lease);
            }
        }
        for (job, _) in pointers {
            if let Some(place) = self.jobs.iter().position(|known| known.new.id == *job) {
                self.look_at(place).await;
            }
        }
    }

    pub(in crate::stores::walk) async fn expect_claim_rung(
        &mut self,
        worker: usize,
        lanes: &[Lane],
        quota: usize,
        max: usize,
        lease: Duration,
    ) {
        let now = self.now();
        let waits = |known: &Known| known.hint().is_some_and(|hint| hint > 0) && known.life.due_at <= now;
        let in_lane = |walk: &Self, lane: &Lane| -> Vec<usize> {
            let all = walk.jobs.iter().enumerate();
            let there = all.filter(|(_, known)| {
                known.new.lane() == *lane && waits(known) && !walk.paused.contains(lane)
            });
            there.map(|(place, _)| place).collect()
        };
        let (mut left, mut expected) = (max, Vec::new());
        for lane in lanes {
            let ready =
                in_lane(self, lane).into_iter().filter(|place| !self.jobs[*place].overdue(now)).count();
            let count = ready.min(quota).min(left);
            left -= count;
            expected.push(count);
        }

        let holder = self.workers[worker].member.holder().clone();
        let quotas: Vec<LaneQuota> =
            lanes.iter().map(|lane| LaneQuota { lane: lane.clone(), max: quota }).collect();
        let held = self.store.claim_rung(&holder, &quotas, max, lease).await.unwrap();
        let names: Vec<String> = held.iter().map(|holding| self.name(holding.job.id)).collect();
        self.log.push(format!(
            "{} claims rung jobs for {lease:?}, {quota} a lane, at most {max} => {names:?}",
            WORKERS[worker]
        ));

        let mut given = Vec::new();
        for (lane, count) in lanes.iter().zip(expected) {
            let there = in_lane(self, lane);
            let from_lane: Vec<&Holding> =
                held.iter().filter(|holding| holding.job.lane() == *lane).collect();
            assert_eq!(from_lane.len(), count, "from {lane}");
            for holding in from_lane {
                let place = self.known(holding.job.id);
                assert!(there.contains(&place) && !self.jobs[place].overdue(now));
                let step = Step::Claim { holder: holder.clone(), token: holding.lease.token, lease };
                self.jobs[place].take(&step, now).unwrap();
                self.assert_holding(place, worker, holding, lease);
                given.push(place);
                self.met.insert("claim rung");
            }
            // A job past its deadline may have been ended in passing.
            for place in there.into_iter().filter(|place| !given.contains(place)) {
                let job = self.store.job(&Scope::All, self.jobs[place].new.id).await.unwrap();
                if self.jobs[place].overdue(now) && job.is_some_and(|job| job.state == State::Failed) {
                    self.jobs[place].take(&Step::Expire, now).unwrap();
                }
            }
        }
        let order: Vec<Lane> = held.iter().map(|holding| holding.job.lane()).collect();
        let places: Vec<usize> =
            order.iter().map(|lane| lanes.iter().position(|known| known == lane).unwrap()).collect();
        assert!(places.is_sorted(), "lanes come in the given order");
        self.look_at_everything().await;
    }
}
