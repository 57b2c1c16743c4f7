//! Batches: a job that goes on once its parts have ended, once.

use mapae::job::State;
use mapae::job::batch::{AWAITED, BatchState, WAITING};
use mapae::job::name::{IdempotencyKey, JobId};
use mapae::job::record::NewJob;
use mapae::job::retry::{Failure, Verdict};
use mapae::store::contract::{AcceptError, AddError, Claim, ControlError, Retention, Scope, SettleError};

use super::lost;
use crate::stores::{Bench, LEASE, everywhere, failure, job, owner, soon};

fn whole() -> NewJob {
    NewJob { run_at: Some(WAITING), ..job() }
}

impl Bench {
    async fn batch(&self, parts: Vec<NewJob>, sealed: bool) -> (JobId, Vec<JobId>) {
        let ids = parts.iter().map(|part| part.id).collect();
        let accepted = self.store.accept_batch(whole(), parts, sealed).await.unwrap();
        assert!(!accepted.again);
        (accepted.id, ids)
    }

    async fn stands(&self, parent: JobId) -> BatchState {
        self.store.batch(&Scope::All, parent).await.unwrap().expect("it has parts")
    }

    async fn woken(&self) -> usize {
        self.store.wake(10).await.unwrap()
    }

    async fn ends(&self, parent: JobId) -> Vec<Option<State>> {
        let members = self.store.members(&Scope::All, parent, None, 10).await.unwrap();
        assert!(members.iter().enumerate().all(|(at, member)| member.number as usize == at), "{members:?}");
        members.into_iter().map(|member| member.state).collect()
    }
}

#[tokio::test]
async fn a_batch_wakes_its_parent_once_when_the_last_part_has_ended_however_it_did() {
    everywhere(async |bench| {
        let (parent, parts) = bench.batch(vec![job(), job(), job()], true).await;
        let worker = bench.join("w").await;
        assert!(matches!(bench.try_claim(worker.holder(), parent).await, Claim::NotDue(_)));
        assert_eq!(bench.ring().await.len(), 3, "only its parts");
        let held = bench.claim(worker.holder(), parts[1]).await;
        assert_eq!(held.job.state, State::Running);
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        bench.fail(worker.holder(), parts[0]).await;
        assert_eq!(bench.woken().await, 0, "one is left");
        assert_eq!(bench.ends(parent).await, [Some(State::Failed), Some(State::Succeeded), None]);
        let now = BatchState { sealed: true, parts: 3, succeeded: 1, failed: 1, ..BatchState::default() };
        assert_eq!((bench.stands(parent).await, now.ended()), (now, 2));
        bench.store.cancel(&Scope::All, parts[2]).await.unwrap();
        assert_eq!((bench.woken().await, bench.woken().await), (1, 0), "once");
        let members = bench.store.members(&Scope::All, parent, Some(0), 10).await.unwrap();
        assert_eq!(members.iter().map(|member| member.job).collect::<Vec<_>>(), parts[1..]);
        assert!(members[0].output.is_some() && members[1].failure.is_none(), "{members:?}");
        let held = bench.claim(worker.holder(), parent).await;
        assert_eq!(held.job.attempt, 1, "the only attempt");
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        assert_eq!(bench.kinds_told(parent).await, ["accepted", "batch-ended", "claimed", "succeeded"]);
        assert_eq!(bench.store.batch_of(&Scope::All, parts[0]).await.unwrap(), Some(parent));
    })
    .await;
}

#[tokio::test]
async fn of_many_keepers_one_wakes_it() {
    everywhere(async |bench| {
        let (_, parts) = bench.batch(vec![job()], true).await;
        bench.store.cancel(&Scope::All, parts[0]).await.unwrap();
        let keepers = (0..8).map(|_| {
            let store = bench.store.clone();
            tokio::spawn(async move { store.wake(10).await.unwrap() })
        });
        let mut woken = 0;
        for keeper in keepers.collect::<Vec<_>>() {
            woken += keeper.await.unwrap();
        }
        assert_eq!(woken, 1);
    })
    .await;
}

#[tokio::test]
async fn an_open_batch_takes_parts_until_it_is_sealed() {
    everywhere(async |bench| {
        let (parent, parts) = bench.batch(vec![job()], false).await;
        bench.store.cancel(&Scope::All, parts[0]).await.unwrap();
        assert_eq!(bench.woken().await, 0, "there may be more");
        let (acme, other) = (Scope::Owner(owner("acme")), Scope::Owner(owner("other")));
        let more = vec![job(), job()];
        let add = async |scope: &Scope| bench.store.add_parts(scope, parent, more.clone()).await;
        assert_eq!(add(&acme).await.unwrap(), 3);
        assert_eq!(add(&acme).await.unwrap(), 3, "the same again");
        assert!(matches!(add(&other).await, Err(AddError::Control(ControlError::NotFound))));
        assert!(matches!(bench.store.seal(&other, parent).await, Err(ControlError::NotFound)));
        assert_eq!(bench.store.batch(&other, parent).await.unwrap(), None);
        assert_eq!(bench.store.members(&other, parent, None, 9).await.unwrap(), []);
        bench.store.seal(&acme, parent).await.unwrap();
        assert!(matches!(add(&acme).await, Err(AddError::Control(ControlError::Conflict(State::Pending)))));
        assert_eq!(bench.woken().await, 0);
        for part in &more {
            bench.store.cancel(&Scope::All, part.id).await.unwrap();
        }
        assert_eq!(bench.woken().await, 1);
        assert_eq!(bench.ends(parent).await, [Some(State::Cancelled); 3]);
        let none = bench.accept(job()).await;
        assert!(matches!(bench.store.seal(&acme, none).await, Err(ControlError::NotFound)), "no batch");
    })
    .await;
}

#[tokio::test]
async fn of_parts_whose_key_was_used_for_something_else_none_is_added() {
    everywhere(async |bench| {
        let (parent, _) = bench.batch(vec![], false).await;
        let key: IdempotencyKey = "k".parse().unwrap();
        let keyed = |body: u8| NewJob { idempotency: Some((key.clone(), [body; 32])), ..job() };
        let (first, other) = (vec![keyed(1), job()], vec![keyed(2), job()]);
        let add = async |parts: &[NewJob]| bench.store.add_parts(&Scope::All, parent, parts.to_vec()).await;
        assert_eq!(add(&first).await.unwrap(), 2);
        assert_eq!(add(&first).await.unwrap(), 2, "the same again");
        assert!(matches!(add(&other).await, Err(AddError::Accept(AcceptError::KeyReused))));
        assert_eq!(bench.stands(parent).await.parts, 2);
        // Deleted and buried: they are not made again.
        for part in &first {
            assert!(bench.store.delete(&Scope::All, part.id).await.is_ok());
        }
        let retention = Retention { finished: LEASE, failed: LEASE, memory: LEASE };
        assert_eq!(bench.store.prune(&retention, 9).await.unwrap().buried, 2);
        assert_eq!(add(&first).await.unwrap(), 2);
        assert_eq!(bench.store.job(&Scope::All, first[0].id).await.unwrap(), None);
        assert_eq!(bench.store.job(&Scope::All, other[1].id).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_batch_submitted_again_is_the_first_one() {
    everywhere(async |bench| {
        let (whole, parts) = (whole(), vec![job(), job()]);
        for again in [false, true] {
            let accepted = bench.store.accept_batch(whole.clone(), parts.clone(), true).await.unwrap();
            assert_eq!((accepted.id, accepted.again), (whole.id, again));
        }
        assert_eq!(bench.stands(whole.id).await.parts, 2);
        let empty = bench.store.accept_batch(self::whole(), vec![], true).await.unwrap().id;
        assert_eq!(bench.woken().await, 1, "nothing is waited for");
        assert_eq!(bench.stands(empty).await, BatchState { sealed: true, ..BatchState::default() });
    })
    .await;
}

#[tokio::test]
async fn a_running_job_gives_parts_once_under_its_lease_and_waits_without_an_attempt() {
    everywhere(async |bench| {
        let id = bench.accept(NewJob { deadline: None, ..job() }).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        let stolen =
            mapae::job::lease::Lease { token: mapae::job::lease::Token::random(), ..held.lease.clone() };
        let refused = bench.store.fan_out(&stolen, vec![job()]).await;
        assert!(matches!(refused, Err(SettleError::LeaseLost(Some(State::Running)))), "{refused:?}");
        assert_eq!(bench.store.batch(&Scope::All, id).await.unwrap(), None, "nothing was written");
        let part = job();
        assert!(bench.store.fan_out(&held.lease, vec![part.clone()]).await.unwrap());
        assert!(!bench.store.fan_out(&held.lease, vec![job(), job()]).await.unwrap(), "another attempt's");
        assert_eq!(bench.stands(id).await.parts, 1);
        // It ends before its parent waits: that is no reason to wait for ever.
        bench.store.cancel(&Scope::All, part.id).await.unwrap();
        assert_eq!(bench.woken().await, 0, "it runs");
        assert_eq!(bench.settle(&held.lease, Verdict::Await).await.unwrap(), State::Pending);
        assert_eq!(lost(bench.settle(&stolen, Verdict::Await).await), Some(State::Pending));
        let waiting = bench.store.job(&Scope::All, id).await.unwrap().unwrap();
        assert!(waiting.attempt == 0 && waiting.due_at >= AWAITED, "{waiting:?}");
        assert_eq!(bench.woken().await, 1);
        assert_eq!(bench.claim(worker.holder(), id).await.job.attempt, 1);
    })
    .await;
}

#[tokio::test]
async fn a_job_in_backoff_is_not_woken_by_its_parts() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        bench.store.fan_out(&held.lease, vec![]).await.unwrap();
        let verdict = Verdict::Retry { failure: failure(), delay: LEASE };
        bench.settle(&held.lease, verdict).await.unwrap();
        assert_eq!(bench.woken().await, 0);
    })
    .await;
}

#[tokio::test]
async fn the_deadline_of_a_job_that_waits_for_its_parts_holds() {
    everywhere(async |bench| {
        let now = bench.store.now().await.unwrap();
        let id = bench.accept(NewJob { deadline: Some(now + LEASE), ..job() }).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        let part = job();
        bench.store.fan_out(&held.lease, vec![part.clone()]).await.unwrap();
        assert_eq!(bench.settle(&held.lease, Verdict::Await).await.unwrap(), State::Pending);
        assert_eq!(bench.store.strays(9).await.unwrap(), []);
        bench.harness.pass(2 * LEASE).await;
        assert_eq!(bench.store.expire(9).await.unwrap(), 1);
        assert_eq!(bench.state(id).await, State::Failed);
        assert_eq!(bench.store.strays(9).await.unwrap(), [part.id], "its part is left");
    })
    .await;
}

#[tokio::test]
async fn what_is_left_of_a_batch_whose_parent_has_ended_is_named_until_it_is_asked_to_stop() {
    everywhere(async |bench| {
        let (parent, parts) = bench.batch(vec![job(), job(), job()], true).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), parts[0]).await;
        bench.fail(worker.holder(), parts[1]).await;
        assert_eq!(bench.store.strays(9).await.unwrap(), []);
        bench.store.delete(&Scope::All, parent).await.unwrap();
        let strays = bench.store.strays(9).await.unwrap();
        assert_eq!(strays.len(), 2, "not the one that has ended: {strays:?}");
        bench.prune(1000 * LEASE).await;
        assert_eq!(bench.store.strays(9).await.unwrap(), strays, "the parent's row is kept for them");
        for stray in strays {
            bench.store.cancel(&Scope::All, stray).await.unwrap();
        }
        assert_eq!(bench.store.strays(9).await.unwrap(), [], "one was asked, one has ended");
        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Cancelled);
        assert_eq!(bench.woken().await, 0, "a deleted parent stays ended");
        // Its row goes, and takes the batch along.
        soon("the parent is buried", async || {
            bench.prune(1000 * LEASE).await;
            bench.store.batch(&Scope::All, parent).await.unwrap().is_none().then_some(())
        })
        .await;
        assert_eq!(bench.state(parts[1]).await, State::Failed);
    })
    .await;
}

#[tokio::test]
async fn a_part_that_is_redriven_is_waited_for_again_and_what_parts_gave_is_kept_meanwhile() {
    everywhere(async |bench| {
        let (parent, parts) = bench.batch(vec![job(), job()], true).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), parts[0]).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        bench.fail(worker.holder(), parts[1]).await;
        bench.store.redrive(&Scope::All, parts[1]).await.unwrap();
        assert_eq!(bench.woken().await, 0);
        assert_eq!(bench.ends(parent).await, [Some(State::Succeeded), None]);
        // Long past their retention: their parent has yet to read them.
        bench.harness.pass(3 * LEASE).await;
        bench.prune(LEASE).await;
        let members = bench.store.members(&Scope::All, parent, None, 9).await.unwrap();
        assert!(members[0].output.is_some(), "{members:?}");
        let held = bench.claim(worker.holder(), parts[1]).await;
        let verdict = Verdict::Stale { failure: Failure::stale("gone", "It is gone.") };
        bench.settle(&held.lease, verdict).await.unwrap();
        assert_eq!(bench.woken().await, 1);
        let held = bench.claim(worker.holder(), parent).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        bench.harness.pass(3 * LEASE).await;
        bench.prune(LEASE).await;
        assert_eq!(bench.store.job(&Scope::All, parts[0]).await.unwrap(), None, "and then no longer");
    })
    .await;
}

#[tokio::test]
async fn parts_that_are_kept_keep_nobody_else_and_a_deleted_one_goes_at_once() {
    everywhere(async |bench| {
        let (_, parts) = bench.batch(vec![job(), job()], false).await;
        let worker = bench.join("w").await;
        for part in &parts {
            let held = bench.claim(worker.holder(), *part).await;
            bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        }
        let other = bench.accept(job()).await;
        let held = bench.claim(worker.holder(), other).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        bench.harness.pass(3 * LEASE).await;
        let retention = Retention { finished: LEASE, failed: LEASE, memory: LEASE };
        assert_eq!(bench.store.prune(&retention, 1).await.unwrap().expired, 1);
        assert_eq!(bench.store.job(&Scope::All, other).await.unwrap(), None, "behind two that are kept");
        bench.store.delete(&Scope::All, parts[0]).await.unwrap();
        assert_eq!(bench.store.prune(&retention, 1).await.unwrap().buried, 1, "its batch is still open");
    })
    .await;
}

#[tokio::test]
async fn what_parts_gave_is_kept_for_a_parent_that_has_failed() {
    everywhere(async |bench| {
        let (parent, parts) = bench.batch(vec![job()], true).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), parts[0]).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        assert_eq!(bench.woken().await, 1);
        bench.fail(worker.holder(), parent).await;
        bench.harness.pass(3 * LEASE).await;
        let retention = Retention { finished: LEASE, failed: 1000 * LEASE, memory: LEASE };
        bench.store.prune(&retention, 9).await.unwrap();
        bench.store.redrive(&Scope::All, parent).await.unwrap();
        let members = bench.store.members(&Scope::All, parent, None, 9).await.unwrap();
        assert!(members[0].output.is_some(), "{members:?}");
    })
    .await;
}
