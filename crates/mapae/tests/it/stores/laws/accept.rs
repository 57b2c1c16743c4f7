//! Submissions: kept once, and answered the same when asked again.

use std::collections::HashSet;

use mapae::job::event::Position;
use mapae::job::name::IdempotencyKey;
use mapae::job::record::{FirstRing, NewJob};
use mapae::job::unique::{Part, UniqueRule};
use mapae::store::contract::{AcceptError, Accepted, EventFilter, JobFilter, Page, Retention, Scope};

use super::quota;
use crate::stores::{LEASE, everywhere, job, lane, owner, soon};

#[tokio::test]
async fn the_same_submission_twice_makes_one_job() {
    everywhere(async |bench| {
        let keyed = |body: u8| NewJob {
            idempotency: Some((IdempotencyKey::new("upload-7").unwrap(), [body; 32])),
            ..job()
        };
        let first = bench.accept(keyed(1)).await;
        let again = bench.store.accept(keyed(1)).await.unwrap();
        assert_eq!(again, Accepted { id: first, again: true, duplicate: false });

        let other_owner = NewJob { owner: owner("globex"), ..keyed(2) };
        assert!(!bench.store.accept(other_owner).await.unwrap().again);
        assert_eq!(bench.kinds_told(first).await, ["accepted"]);
    })
    .await;
}

#[tokio::test]
async fn many_submissions_at_once_under_one_key_make_one_job() {
    everywhere(async |bench| {
        let tasks = (0..16).map(|_| {
            let store = bench.store.clone();
            let idempotency = Some((IdempotencyKey::new("upload-7").unwrap(), [1; 32]));
            tokio::spawn(async move { store.accept(NewJob { idempotency, ..job() }).await.unwrap() })
        });
        let mut answers = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            answers.push(task.await.unwrap());
        }
        assert_eq!(answers.iter().filter(|answer| !answer.again).count(), 1);
        assert_eq!(answers.iter().map(|answer| answer.id).collect::<HashSet<_>>().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_accept_whose_answer_was_lost_can_be_asked_again() {
    everywhere(async |bench| {
        let new = job();
        assert!(!bench.store.accept(new.clone()).await.unwrap().again);
        let again = bench.store.accept(new.clone()).await.unwrap();
        assert_eq!((again.id, again.again), (new.id, true));
        let filter = EventFilter { job: Some(new.id), after: Position::default() };
        let told = soon("its events can be read", async || {
            Some(bench.store.events(&Scope::All, &filter, 9).await.unwrap()).filter(|told| !told.is_empty())
        });
        assert_eq!(told.await.len(), 1, "accepted once");
        let foreign = NewJob { owner: owner("globex"), ..new };
        assert!(!matches!(bench.store.accept(foreign).await, Ok(Accepted { again: true, .. })));
    })
    .await;
}

#[tokio::test]
async fn another_body_under_the_same_key_is_refused() {
    everywhere(async |bench| {
        let keyed = |body: u8| NewJob {
            idempotency: Some((IdempotencyKey::new("upload-7").unwrap(), [body; 32])),
            ..job()
        };
        bench.accept(keyed(1)).await;
        assert!(matches!(bench.store.accept(keyed(2)).await, Err(AcceptError::KeyReused)));
        let all = bench.store.jobs(&Scope::All, &JobFilter::default(), &Page { after: None, limit: 9 }).await;
        assert_eq!(all.unwrap().jobs.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_key_whose_job_is_gone_is_free_again() {
    everywhere(async |bench| {
        let key = IdempotencyKey::new("upload-7").unwrap();
        let keyed = |body: u8| NewJob { idempotency: Some((key.clone(), [body; 32])), ..job() };
        let known = async || bench.store.submission(&keyed(0).owner, &key).await.unwrap();
        let first = bench.accept(keyed(1)).await;
        assert_eq!(known().await, Some((first, [1; 32])));
        assert_eq!(bench.store.submission(&owner("globex"), &key).await.unwrap(), None);

        bench.store.delete(&Scope::All, first).await.unwrap();
        assert_eq!(known().await, None, "deleted, not removed yet");
        // Of several at once under the key that is free again one is made.
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (store, job) = (bench.store.clone(), keyed(2));
                tokio::spawn(async move { store.accept(job).await.unwrap() })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap());
        }
        let made: Vec<_> = answers.iter().filter(|answer| !answer.again).collect();
        assert_eq!(made.len(), 1, "{answers:?}");
        assert!(answers.iter().all(|answer| answer.id == made[0].id && answer.id != first), "{answers:?}");
        let second = made[0].id;
        assert_eq!(known().await, Some((second, [2; 32])));
        let reused = bench.store.accept(keyed(1)).await;
        assert!(matches!(reused, Err(AcceptError::KeyReused)), "{reused:?}");

        bench.store.cancel(&Scope::All, second).await.unwrap();
        bench.harness.pass(2 * LEASE).await;
        let retention = Retention { finished: LEASE, failed: LEASE, memory: 99 * LEASE };
        bench.store.prune(&retention, 1000).await.unwrap();
        let rule = UniqueRule { by: vec![Part::Key], ..UniqueRule::by_params() };
        let sole = NewJob { unique: rule.of(&keyed(3), Some("sole")), ..keyed(3) };
        let third = bench.store.accept(sole.clone()).await.unwrap();
        assert_eq!(third, Accepted { id: sole.id, again: false, duplicate: false }, "pruned");
        assert_eq!(known().await, Some((third.id, [3; 32])));
    })
    .await;
}

#[tokio::test]
async fn a_job_that_is_rung_when_accepted_needs_no_keeper() {
    everywhere(async |bench| {
        let id = bench.accept(NewJob { rung: Some(FirstRing { turn: 1, again: LEASE }), ..job() }).await;
        assert_eq!(bench.ring().await, []);
        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 9, LEASE).await.unwrap();
        assert_eq!(held.iter().map(|holding| holding.job.id).collect::<Vec<_>>(), [id]);
    })
    .await;
}

#[tokio::test]
async fn a_key_is_forgotten_some_time_after_its_job_has_ended() {
    everywhere(async |bench| {
        let keyed = |body: u8| NewJob {
            idempotency: Some((IdempotencyKey::new("upload-7").unwrap(), [body; 32])),
            ..job()
        };
        let first = bench.accept(keyed(1)).await;
        let retention = Retention { finished: 99 * LEASE, failed: 99 * LEASE, memory: LEASE };
        let later = async || {
            bench.harness.pass(2 * LEASE).await;
            bench.store.prune(&retention, 1000).await.unwrap();
        };
        for _ in 0..3 {
            later().await;
            let again = bench.store.accept(keyed(1)).await.unwrap();
            assert_eq!(again, Accepted { id: first, again: true, duplicate: false }, "its job still waits");
        }
        bench.store.cancel(&Scope::All, first).await.unwrap();
        later().await;
        assert!(!bench.store.accept(keyed(2)).await.unwrap().again);
    })
    .await;
}
