//! Who holds a job, and what becomes of it when nobody does.

use std::time::Duration;

use mapae::job::State;
use mapae::job::event::EventKind;
use mapae::job::lease::Token;
use mapae::job::record::{Checkpoint, NewJob, Output, Progress};
use mapae::job::retry::{Failure, Verdict};
use mapae::store::contract::{Beat, Claim, Scope};
use serde_json::json;

use super::{lost, quota};
use crate::stores::{LEASE, beat, everywhere, failure, job, kind, lane, retry, soon};

#[tokio::test]
async fn a_worker_that_lost_its_lease_cannot_settle() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let (mut frozen, other) = (bench.join("frozen").await, bench.join("other").await);
        let first = bench.claim(frozen.holder(), id).await;
        bench.harness.pass(LEASE).await;
        let second = bench.claim(other.holder(), id).await;
        assert_eq!((second.job.attempt, second.lease.epoch), (2, first.lease.epoch + 1));

        // While the second run is going: later the terminal state would refuse for another reason.
        let progress = Progress { stage: "convert".into(), done: 1, of: 2 };
        let stage =
            Checkpoint { stage: "convert".into(), output: Output::Inline(json!(1)), took: Duration::ZERO };
        assert_eq!(lost(bench.settle(&first.lease, Verdict::Succeed).await), Some(State::Running));
        assert!(bench.store.progress(&first.lease, &progress).await.is_err());
        assert!(bench.store.checkpoint(&first.lease, &stage).await.is_err());
        assert_eq!(beat(&mut *frozen, &[(id, first.lease.token)], LEASE).await, [Beat::Lost]);
        assert_eq!(bench.store.checkpoints(id).await.unwrap(), []);

        assert_eq!(bench.settle(&second.lease, Verdict::Succeed).await.unwrap(), State::Succeeded);
        assert_eq!(lost(bench.settle(&first.lease, Verdict::Succeed).await), Some(State::Succeeded));
        let told = bench.kinds_told(id).await;
        assert_eq!(told, ["accepted", "claimed", "lost", "claimed", "succeeded"]);
    })
    .await;
}

#[tokio::test]
async fn a_heartbeat_with_a_token_that_is_not_the_rows_extends_nothing() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let (mut frozen, mut other) = (bench.join("frozen").await, bench.join("other").await);
        let first = bench.claim(frozen.holder(), id).await;
        bench.harness.pass(LEASE).await;
        let second = bench.claim(other.holder(), id).await;

        for token in [first.lease.token, Token::random()] {
            assert_eq!(beat(&mut *frozen, &[(id, token)], 100 * LEASE).await, [Beat::Lost]);
            assert_eq!(beat(&mut *other, &[(id, token)], 100 * LEASE).await, [Beat::Lost]);
        }
        bench.harness.pass(LEASE).await;
        assert_eq!(bench.reaped().await, [(id, State::Pending)], "it ends when it would have");
        assert_eq!(lost(bench.settle(&second.lease, Verdict::Succeed).await), Some(State::Pending));
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_ran_out_is_still_its_holders_until_another_takes_it() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let mut worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        bench.harness.pass(2 * LEASE).await;
        let beats = beat(&mut *worker, &[(id, held.lease.token)], LEASE).await;
        assert_eq!(beats, [Beat::Renewed { cancel_asked: false }]);
        assert!(bench.store.reap(10).await.unwrap().is_empty());
        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Succeeded);
    })
    .await;
}

#[tokio::test]
async fn what_a_holder_has_taken_of_late_is_known_for_a_claim_whose_answer_was_lost() {
    everywhere(async |bench| {
        let (worker, other) = (bench.join("w").await, bench.join("other").await);
        let (old, new) = (bench.accept(job()).await, bench.accept(job()).await);
        let (ended, theirs) = (bench.accept(job()).await, bench.accept(job()).await);
        bench.claim(worker.holder(), old).await;
        bench.harness.pass(LEASE / 2).await;
        let kept = bench.claim(worker.holder(), new).await.lease;
        let over = bench.claim(worker.holder(), ended).await.lease;
        bench.settle(&over, Verdict::Succeed).await.unwrap();
        bench.claim(other.holder(), theirs).await;
        let taken = bench.store.taken(worker.holder(), LEASE / 4).await.unwrap();
        assert_eq!(taken, [(new, kept.token)]);
    })
    .await;
}

#[tokio::test]
async fn a_settle_whose_answer_was_lost_can_be_asked_again() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let first = bench.claim(worker.holder(), id).await;
        for _ in 0..2 {
            assert_eq!(bench.settle(&first.lease, retry()).await.unwrap(), State::Pending);
        }
        let second = bench.claim(worker.holder(), id).await;
        assert_eq!(bench.settle(&first.lease, retry()).await.unwrap(), State::Running);
        for _ in 0..2 {
            assert_eq!(bench.settle(&second.lease, Verdict::Succeed).await.unwrap(), State::Succeeded);
        }
        assert_eq!(lost(bench.settle(&first.lease, retry()).await), Some(State::Succeeded));
        let told = bench.kinds_told(id).await;
        assert_eq!(told, ["accepted", "claimed", "retrying", "claimed", "succeeded"]);
    })
    .await;
}

#[tokio::test]
async fn a_crash_counts_one_attempt() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        let crashed = held.job.holder.clone();
        drop(worker);
        let reaped = soon("its keeper notices", async || {
            let reaped = bench.reaped().await;
            (!reaped.is_empty()).then_some(reaped)
        });
        assert_eq!(reaped.await, [(id, State::Pending)]);
        assert!(bench.store.reap(10).await.unwrap().is_empty());

        let found = bench.store.job(&Scope::All, id).await.unwrap().unwrap();
        assert_eq!((found.state, found.attempt, found.holder), (State::Pending, 1, None));
        let failure = found.failure.expect("the loss is told");
        assert_eq!((failure.code.as_str(), failure.attempt), ("worker-lost", 1));
        let worker = bench.join("w").await;
        assert_ne!(Some(worker.holder()), crashed.as_ref());
        assert_eq!(bench.claim(worker.holder(), id).await.job.attempt, 2);
        assert_eq!(bench.kinds_told(id).await, ["accepted", "claimed", "lost", "claimed"]);
    })
    .await;
}

#[tokio::test]
async fn a_restarted_worker_finds_the_leases_of_its_former_life_ended() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        drop(worker);
        let worker = bench.join("w").await;
        assert_eq!(bench.claim(worker.holder(), id).await.job.attempt, 2);
        assert_eq!(lost(bench.settle(&held.lease, Verdict::Succeed).await), Some(State::Running));
    })
    .await;
}

#[tokio::test]
async fn a_second_worker_of_one_name_is_another_or_is_refused() {
    everywhere(async |bench| {
        use mapae::store::contract::{Join, JoinError};
        let first = bench.join("w").await;
        let join = |strict| Join { name: "w".into(), strict, kinds: vec![kind("analyze")], slots: 2 };
        assert!(
            matches!(bench.store.join(&join(true)).await, Err(JoinError::NameTaken(name)) if name == "w")
        );
        let second = bench.store.join(&join(false)).await.unwrap();
        assert_eq!(second.holder().name, "w-2");

        let id = bench.accept(job()).await;
        let held = bench.claim(first.holder(), id).await;
        assert!(matches!(bench.try_claim(second.holder(), id).await, Claim::Busy(_)));
        assert_eq!(bench.store.workers().await.unwrap().len(), 2);
        second.leave().await.unwrap();
        assert_eq!(bench.store.workers().await.unwrap().len(), 1);
        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Succeeded);
    })
    .await;
}

#[tokio::test]
async fn a_row_that_cannot_be_read_fails_and_takes_no_neighbour_along() {
    everywhere(async |bench| {
        if bench.harness.name() == "memory" {
            return; // Nothing is read back from anywhere.
        }
        // Deeper than JSON is read back; at the door this is refused.
        let deep = (0..200).fold(serde_json::json!(1), |value, _| serde_json::json!([value]));
        let bad = bench.accept(NewJob { params: deep, ..job() }).await;
        let good = bench.accept(job()).await;
        bench.ring().await;
        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 9, LEASE).await.unwrap();
        assert_eq!(held.iter().map(|holding| holding.job.id).collect::<Vec<_>>(), [good]);
        assert_eq!(bench.store.take_unreadable(), 1, "for whoever counts what has ended");
        assert_eq!(bench.try_claim(worker.holder(), bad).await, Claim::Finished(State::Failed));
        let directly = bench.store.accept(NewJob {
            params: (0..200).fold(1.into(), |v: serde_json::Value, _| vec![v].into()),
            ..job()
        });
        let directly = directly.await.unwrap().id;
        assert_eq!(bench.try_claim(worker.holder(), directly).await, Claim::Finished(State::Failed));
        assert_eq!((bench.store.take_unreadable(), bench.store.take_unreadable()), (1, 0), "once each");
    })
    .await;
}

#[tokio::test]
async fn a_poison_job_fails_after_its_budget() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        for _ in 0..3 {
            bench.claim(worker.holder(), id).await;
            bench.harness.pass(LEASE).await;
        }
        assert_eq!(bench.try_claim(worker.holder(), id).await, Claim::Failed);
        assert_eq!(bench.try_claim(worker.holder(), id).await, Claim::Finished(State::Failed));
        let found = bench.store.job(&Scope::All, id).await.unwrap().unwrap();
        assert_eq!((found.attempt, found.failure.unwrap().code.as_str()), (3, "worker-lost"));
        assert_eq!(bench.store.stats().await.unwrap().dead, 1);
    })
    .await;
}

#[tokio::test]
async fn throttling_and_handing_back_use_no_attempt() {
    everywhere(async |bench| {
        let id = bench
            .accept(NewJob { retry: mapae::job::retry::RetryPolicy { attempts: 1, ..job().retry }, ..job() });
        let id = id.await;
        let worker = bench.join("w").await;
        for throttled in 0..3 {
            let held = bench.claim(worker.holder(), id).await;
            assert_eq!((held.job.attempt, held.job.throttled), (1, throttled));
            let busy = Failure::retry_after(LEASE, "quota", "");
            let verdict = Verdict::Throttle { failure: busy, delay: LEASE };
            assert_eq!(bench.settle(&held.lease, verdict).await.unwrap(), State::Pending);
            assert!(matches!(bench.try_claim(worker.holder(), id).await, Claim::NotDue(_)));
            bench.harness.pass(LEASE).await;
        }
        for _ in 0..3 {
            let held = bench.claim(worker.holder(), id).await;
            assert_eq!(held.job.attempt, 1);
            assert_eq!(bench.settle(&held.lease, Verdict::HandBack).await.unwrap(), State::Pending);
        }
        let told = bench.history(id).await;
        let epochs = told.iter().filter(|event| event.event == EventKind::Claimed).count();
        assert_eq!(epochs, 6);
        assert!(
            told.iter().filter(|event| event.event != EventKind::Accepted).all(|event| event.attempt == 1)
        );
    })
    .await;
}

#[tokio::test]
async fn a_snoozed_job_comes_back_in_its_time_with_its_attempt() {
    everywhere(async |bench| {
        let id = bench
            .accept(NewJob { retry: mapae::job::retry::RetryPolicy { attempts: 2, ..job().retry }, ..job() })
            .await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        assert_eq!(bench.settle(&held.lease, retry()).await.unwrap(), State::Pending);
        for snoozed in 0..3 {
            let held = bench.claim(worker.holder(), id).await;
            assert_eq!((held.job.attempt, held.job.snoozed), (2, snoozed));
            let code = held.job.failure.as_ref().map(|failure| failure.code.as_str());
            assert_eq!(code, Some("vendor-down"), "the last failure is kept, for a snooze is none");
            let verdict = Verdict::Snooze { delay: LEASE };
            assert_eq!(bench.settle(&held.lease, verdict.clone()).await.unwrap(), State::Pending);
            assert_eq!(bench.settle(&held.lease, verdict).await.unwrap(), State::Pending, "asked again");
            assert!(matches!(bench.try_claim(worker.holder(), id).await, Claim::NotDue(_)));
            bench.harness.pass(LEASE).await;
        }
        let told = bench.history(id).await;
        let snoozes: Vec<_> = told.iter().filter(|event| event.event == EventKind::Snoozed).collect();
        assert_eq!(snoozes.len(), 3);
        assert!(snoozes.iter().all(|event| event.code.is_none() && event.worker.as_deref() == Some("w")));
    })
    .await;
}

#[tokio::test]
async fn a_snooze_beyond_the_deadline_fails_the_job_at_once() {
    everywhere(async |bench| {
        let deadline = Some(bench.store.now().await.unwrap() + LEASE);
        let id = bench.accept(NewJob { deadline, ..job() }).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        let verdict = Verdict::Snooze { delay: 2 * LEASE };
        assert_eq!(bench.settle(&held.lease, verdict).await.unwrap(), State::Failed);
        let told = bench.history(id).await;
        assert_eq!(told.last().unwrap().code.as_deref(), Some("snoozed-too-long"));
    })
    .await;
}

#[tokio::test]
async fn a_job_past_its_deadline_fails_without_running() {
    everywhere(async |bench| {
        let deadline = Some(bench.store.now().await.unwrap() + LEASE);
        let (expired, claimed) = (
            bench.accept(NewJob { deadline, ..job() }).await,
            bench.accept(NewJob { deadline, ..job() }).await,
        );
        assert_eq!(bench.store.expire(10).await.unwrap(), 0);
        bench.harness.pass(LEASE).await;
        let worker = bench.join("w").await;
        assert_eq!(bench.try_claim(worker.holder(), claimed).await, Claim::Failed);
        assert_eq!(bench.store.expire(10).await.unwrap(), 1);
        for id in [expired, claimed] {
            let found = bench.store.job(&Scope::All, id).await.unwrap().unwrap();
            assert_eq!((found.attempt, found.failure.unwrap().code.as_str()), (0, "deadline-passed"));
        }
    })
    .await;
}

#[tokio::test]
async fn progress_and_stages_are_shown_and_a_stage_done_twice_is_kept_once() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        let progress = Progress { stage: "tables".into(), done: 3, of: 12 };
        bench.store.progress(&held.lease, &progress).await.unwrap();
        assert_eq!(bench.store.job(&Scope::All, id).await.unwrap().unwrap().progress, Some(progress));
        let stage = |name: &str, value| Checkpoint {
            stage: name.into(),
            output: Output::Inline(json!(value)),
            took: Duration::from_millis(1500),
        };
        for done in [stage("convert", 1), stage("tables", 2), stage("convert", 3)] {
            bench.store.checkpoint(&held.lease, &done).await.unwrap();
        }
        let kept = bench.store.checkpoints(id).await.unwrap();
        assert_eq!(kept.len(), 2);
        assert!(kept.contains(&stage("convert", 3)) && kept.contains(&stage("tables", 2)));
        let told = bench.history(id).await;
        let stages: Vec<_> = told.iter().filter_map(|event| event.code.as_deref()).collect();
        assert_eq!(stages, ["convert", "tables", "convert"]);
    })
    .await;
}

#[tokio::test]
async fn a_failure_is_kept_while_later_attempts_run() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        bench.settle(&held.lease, retry()).await.unwrap();
        let failed = bench.claim(worker.holder(), id).await.job.failure.expect("it is kept");
        assert_eq!((failed.code, failed.attempt), (failure().code, 1));
    })
    .await;
}
