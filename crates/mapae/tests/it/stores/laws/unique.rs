//! Unique keys: the same work is one job while the first holds its key.

use std::collections::HashSet;
use std::time::Duration;

use mapae::job::State;
use mapae::job::name::{IdempotencyKey, JobId};
use mapae::job::record::NewJob;
use mapae::job::retry::Verdict;
use mapae::job::unique::{Part, Unique, UniqueRule};
use mapae::store::contract::{AcceptError, Accepted, JobFilter, Page, Scope};
use serde_json::json;

use crate::stores::{Bench, LEASE, everywhere, job, owner};

fn rule() -> UniqueRule {
    UniqueRule { by: vec![Part::Kind, Part::Param("page".into())], ..UniqueRule::by_params() }
}

fn unique(rule: &UniqueRule, new: NewJob) -> NewJob {
    let unique = rule.of(&new, None);
    assert!(unique.is_some());
    NewJob { unique, ..new }
}

fn same() -> NewJob {
    unique(&rule(), job())
}

fn duplicate_of(id: JobId) -> Accepted {
    Accepted { id, again: true, duplicate: true }
}

impl Bench {
    async fn count(&self) -> usize {
        let page = Page { after: None, limit: 1000 };
        self.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap().jobs.len()
    }
}

#[tokio::test]
async fn the_same_work_is_one_job_while_the_first_waits_or_runs() {
    everywhere(async |bench| {
        let first = bench.accept(same()).await;
        assert_eq!(bench.store.accept(same()).await.unwrap(), duplicate_of(first));

        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), first).await;
        assert_eq!(bench.store.accept(same()).await.unwrap(), duplicate_of(first), "it runs");
        let snooze = Verdict::Snooze { delay: Duration::ZERO };
        bench.settle(&held.lease, snooze).await.unwrap();
        assert_eq!(bench.store.accept(same()).await.unwrap(), duplicate_of(first), "it waits again");
        assert_eq!(bench.count().await, 1);

        let held = bench.claim(worker.holder(), first).await;
        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Succeeded);
        let second = bench.accept(same()).await;
        assert_eq!(bench.store.accept(same()).await.unwrap(), duplicate_of(second));
        assert_eq!(bench.kinds_told(second).await, ["accepted"]);
    })
    .await;
}

#[tokio::test]
async fn other_work_and_other_owners_have_jobs_of_their_own() {
    everywhere(async |bench| {
        bench.accept(same()).await;
        bench.accept(unique(&rule(), NewJob { owner: owner("globex"), ..job() })).await;
        bench.accept(unique(&rule(), NewJob { params: json!({ "page": 2 }), ..job() })).await;
        bench.accept(job()).await;
        assert_eq!(bench.count().await, 4);
    })
    .await;
}

#[tokio::test]
async fn many_submissions_of_the_same_work_at_once_make_one_job() {
    everywhere(async |bench| {
        // Now and then the first ends meanwhile: then there is one that comes after it, and no more.
        for _ in 0..8 {
            let (first, store) = (bench.store.accept(same()).await.unwrap().id, bench.store.clone());
            let cancel = tokio::spawn(async move { store.cancel(&Scope::All, first).await.map(drop) });
            let tasks: Vec<_> = (0..16)
                .map(|_| {
                    let store = bench.store.clone();
                    tokio::spawn(async move { store.accept(same()).await.unwrap() })
                })
                .collect();
            let mut made = HashSet::new();
            let mut named = HashSet::new();
            for task in tasks {
                let accepted = task.await.unwrap();
                named.insert(accepted.id);
                if !accepted.duplicate {
                    made.insert(accepted.id);
                }
            }
            cancel.await.unwrap().unwrap();
            assert!(made.len() <= 1, "{made:?}");
            named.remove(&first);
            assert_eq!(named, made, "whoever was refused was told of a job that is there");
            for id in made {
                bench.store.cancel(&Scope::All, id).await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_key_is_held_for_its_period_in_its_states() {
    everywhere(async |bench| {
        let hourly = || {
            let period = Some(10 * LEASE);
            unique(&UniqueRule { period, states: UniqueRule::states_of(period), ..rule() }, job())
        };
        let worker = bench.join("w").await;
        let first = bench.accept(hourly()).await;
        let held = bench.claim(worker.holder(), first).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        bench.harness.pass(9 * LEASE).await;
        assert_eq!(bench.store.accept(hourly()).await.unwrap(), duplicate_of(first), "done, and still so");
        bench.harness.pass(LEASE).await;
        let second = bench.accept(hourly()).await;
        bench.fail(worker.holder(), second).await;
        let third = bench.accept(hourly()).await;
        assert_ne!(third, second, "what failed may be tried anew");
        bench.harness.pass(10 * LEASE).await;
        bench.accept(hourly()).await;
        assert_eq!(bench.state(third).await, State::Pending, "its time is over, though it waits");
    })
    .await;
}

#[tokio::test]
async fn a_deleted_or_forgotten_job_holds_no_key() {
    everywhere(async |bench| {
        let always = || {
            let states = State::ALL.to_vec();
            unique(&UniqueRule { states, ..rule() }, job())
        };
        let first = bench.accept(always()).await;
        bench.store.delete(&Scope::All, first).await.unwrap();
        let second = bench.accept(always()).await;
        bench.store.cancel(&Scope::All, second).await.unwrap();
        assert_eq!(bench.store.accept(always()).await.unwrap(), duplicate_of(second));
        bench.harness.pass(LEASE).await;
        bench.prune(Duration::ZERO).await;
        let third = bench.accept(always()).await;
        assert_eq!(bench.store.accept(always()).await.unwrap(), duplicate_of(third));
    })
    .await;
}

#[tokio::test]
async fn an_idempotency_key_of_a_duplicate_names_the_job_it_was_answered_with() {
    everywhere(async |bench| {
        let keyed = |body: u8| NewJob {
            idempotency: Some((IdempotencyKey::new("upload-7").unwrap(), [body; 32])),
            ..same()
        };
        let first = bench.accept(same()).await;
        assert_eq!(bench.store.accept(keyed(1)).await.unwrap(), duplicate_of(first));
        bench.store.cancel(&Scope::All, first).await.unwrap();
        let again = Accepted { id: first, again: true, duplicate: false };
        assert_eq!(bench.store.accept(keyed(1)).await.unwrap(), again, "the key outlives the work");
        assert!(matches!(bench.store.accept(keyed(2)).await, Err(AcceptError::KeyReused)));
    })
    .await;
}

#[tokio::test]
async fn the_very_same_job_asked_again_is_no_duplicate_of_itself() {
    everywhere(async |bench| {
        let new = same();
        let id = bench.accept(new.clone()).await;
        let again = Accepted { id, again: true, duplicate: false };
        assert_eq!(bench.store.accept(new).await.unwrap(), again);
    })
    .await;
}

#[test]
fn a_key_is_the_hash_of_what_is_compared() {
    let of = |new: NewJob| rule().of(&new, None).map(|Unique { key, .. }| key);
    assert_eq!(of(job()), of(NewJob { params: json!({ "page": 1, "other": true }), ..job() }));
}
