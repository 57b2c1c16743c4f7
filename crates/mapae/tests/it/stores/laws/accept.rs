//! Submissions: kept once, and answered the same when asked again.

use std::collections::HashSet;

use mapae::job::event::Position;
use mapae::job::name::IdempotencyKey;
use mapae::job::record::{FirstRing, NewJob};
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
