//! What comes after a job: made exactly when it ends so, and once.

use std::time::Duration;

use mapae::job::follow::{Follow, Followed, Next};
use mapae::job::name::{IdempotencyKey, JobId, Priority};
use mapae::job::record::{Job, NewJob};
use mapae::job::retry::{Failure, Verdict};
use mapae::job::unique::UniqueRule;
use mapae::job::{End, State};
use mapae::store::contract::{JobFilter, Page, Scope};
use serde_json::json;

use crate::stores::{Bench, LEASE, everywhere, job, kind, owner, retry};

fn next(name: &str) -> Next {
    Next {
        kind: kind(name),
        params: json!({ "for": name, "list": [1, { "가": null }] }),
        priority: Priority::new(2).unwrap(),
        retry: job().retry,
        delay: Duration::ZERO,
        on: Vec::new(),
    }
}

/// A job of which something comes after every end.
fn parent() -> NewJob {
    let on = End::ALL.map(|after| Follow { after, next: next(&format!("after-{}", after.as_str())) });
    NewJob { on: on.to_vec(), trace: Some("00-trace".into()), ..job() }
}

impl Bench {
    /// The jobs that were made after this one.
    async fn after(&self, id: JobId) -> Vec<Job> {
        let page = Page { after: None, limit: 1000 };
        let all = self.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap();
        all.jobs.into_iter().filter(|job| job.parent == Some(id)).collect()
    }

    /// Exactly the one that comes after this end, as the parent tells it.
    async fn one_after(&self, id: JobId, end: End) -> Job {
        let made = self.after(id).await;
        let kinds: Vec<String> = made.iter().map(|job| job.kind.to_string()).collect();
        assert_eq!(kinds, [format!("after-{}", end.as_str())]);
        let told = self.store.followed(&Scope::All, id).await.unwrap();
        for followed in &told {
            let expected = (followed.after == end).then_some(made[0].id);
            assert_eq!(followed.made.map(|(job, _)| job), expected, "{:?}", followed.after);
        }
        made.into_iter().next().unwrap()
    }
}

#[tokio::test]
async fn a_job_that_ends_is_followed_by_the_one_declared_for_that_end() {
    everywhere(async |bench| {
        let worker = bench.join("w").await;
        let terminal = || Failure::terminal("damaged", "The file is damaged.");
        let gone = || Failure::stale("gone", "It is gone.");
        for (verdict, end) in [
            (Verdict::Succeed, End::Succeeded),
            (Verdict::Fail { failure: terminal() }, End::Failed),
            (Verdict::Stale { failure: gone() }, End::Stale),
        ] {
            let id = bench.accept(parent()).await;
            let held = bench.claim(worker.holder(), id).await;
            assert_eq!(bench.after(id).await, [], "not before it ends");
            bench.settle(&held.lease, verdict.clone()).await.unwrap();
            bench.settle(&held.lease, verdict).await.unwrap();
            let made = bench.one_after(id, end).await;
            let ended = bench.store.job(&Scope::All, id).await.unwrap().unwrap().finished_at;
            assert_eq!((made.owner.clone(), made.state, made.attempt), (owner("acme"), State::Pending, 0));
            assert_eq!(made.params, next(made.kind.as_str()).params);
            assert_eq!((made.priority.get(), made.retry), (2, job().retry));
            assert_eq!((Some(made.created_at), Some(made.due_at)), (ended, ended));
            assert_eq!(made.trace.as_deref(), Some("00-trace"));
            assert_eq!(bench.kinds_told(made.id).await, ["accepted"]);
        }
    })
    .await;
}

#[tokio::test]
async fn whoever_ends_a_job_makes_what_comes_after_it() {
    everywhere(async |bench| {
        let worker = bench.join("w").await;
        let last =
            || NewJob { retry: mapae::job::retry::RetryPolicy { attempts: 1, ..job().retry }, ..parent() };
        let (reaped, claimed) = (bench.accept(last()).await, bench.accept(last()).await);
        let stopped = bench.accept(parent()).await;
        for id in [reaped, claimed, stopped] {
            bench.claim(worker.holder(), id).await;
        }
        bench.store.cancel(&Scope::All, stopped).await.unwrap();
        let (cancelled, deleted) = (bench.accept(parent()).await, bench.accept(parent()).await);
        bench.store.cancel(&Scope::All, cancelled).await.unwrap();
        bench.store.delete(&Scope::All, deleted).await.unwrap();
        let deadline = Some(bench.store.now().await.unwrap() + LEASE);
        let expired = bench.accept(NewJob { deadline, ..parent() }).await;
        bench.harness.pass(LEASE).await;

        bench.try_claim(worker.holder(), claimed).await;
        bench.store.reap(10).await.unwrap();
        bench.store.expire(10).await.unwrap();
        for (id, end) in [
            (reaped, End::Failed),
            (claimed, End::Failed),
            (expired, End::Failed),
            (stopped, End::Cancelled),
            (cancelled, End::Cancelled),
        ] {
            bench.one_after(id, end).await;
        }
        assert_eq!(bench.after(deleted).await.len(), 1);
        assert_eq!(bench.store.followed(&Scope::All, deleted).await.unwrap(), [], "nobody is shown it");
    })
    .await;
}

#[tokio::test]
async fn nothing_follows_a_job_that_goes_on() {
    everywhere(async |bench| {
        let id = bench.accept(parent()).await;
        let worker = bench.join("w").await;
        let put_off = [retry(), Verdict::Snooze { delay: Duration::ZERO }, Verdict::HandBack];
        for verdict in put_off {
            let held = bench.claim(worker.holder(), id).await;
            assert_eq!(bench.settle(&held.lease, verdict).await.unwrap(), State::Pending);
        }
        let lost = bench.claim(worker.holder(), id).await;
        bench.harness.pass(LEASE).await;
        bench.store.reap(10).await.unwrap();
        bench.harness.pass(LEASE).await;
        assert!(bench.settle(&lost.lease, Verdict::Succeed).await.is_err(), "it is another's by now");
        assert_eq!(bench.after(id).await, []);
        let told = bench.store.followed(&Scope::All, id).await.unwrap();
        assert!(told.len() == 4 && told.iter().all(|followed| followed.made.is_none()), "{told:?}");
    })
    .await;
}

#[tokio::test]
async fn a_job_that_fails_again_after_a_redrive_is_followed_once() {
    everywhere(async |bench| {
        let id = bench.accept(parent()).await;
        let worker = bench.join("w").await;
        bench.fail(worker.holder(), id).await;
        let made = bench.one_after(id, End::Failed).await;
        bench.store.redrive(&Scope::All, id).await.unwrap();
        bench.fail(worker.holder(), id).await;
        assert_eq!(bench.one_after(id, End::Failed).await.id, made.id);
        bench.store.redrive(&Scope::All, id).await.unwrap();
        let held = bench.claim(worker.holder(), id).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        assert_eq!(bench.after(id).await.len(), 2, "one for each way it has ended");
    })
    .await;
}

#[tokio::test]
async fn what_comes_after_may_be_followed_itself_and_in_its_time() {
    everywhere(async |bench| {
        let third = Follow { after: End::Succeeded, next: next("third") };
        let second = Next { delay: LEASE, on: vec![third], ..next("second") };
        let id =
            bench.accept(NewJob { on: vec![Follow { after: End::Cancelled, next: second }], ..job() }).await;
        bench.store.cancel(&Scope::All, id).await.unwrap();
        let [second] = <[Job; 1]>::try_from(bench.after(id).await).unwrap();
        let told = bench.store.followed(&Scope::All, id).await.unwrap();
        let made = Some((second.id, second.created_at));
        assert_eq!(told, [Followed { after: End::Cancelled, kind: kind("second"), made }]);
        assert_eq!(second.due_at, second.created_at + LEASE);
        bench.harness.pass(LEASE).await;
        let worker = bench.join("w").await;
        assert!(bench.ring().await.iter().any(|rung| rung.job == second.id), "a keeper rings for it");
        let held = bench.claim(worker.holder(), second.id).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        let [third] = <[Job; 1]>::try_from(bench.after(second.id).await).unwrap();
        assert_eq!((third.kind, third.due_at), (kind("third"), third.created_at));
    })
    .await;
}

#[tokio::test]
async fn only_the_submission_that_made_a_job_says_what_comes_after_it() {
    everywhere(async |bench| {
        let unique = UniqueRule::by_params().of(&job(), None);
        let idempotency = Some((IdempotencyKey::new("k").unwrap(), [1; 32]));
        let first =
            bench.accept(NewJob { unique: unique.clone(), idempotency: idempotency.clone(), ..job() }).await;
        for new in [
            NewJob { unique, ..parent() },
            NewJob { idempotency, ..parent() },
            NewJob { id: first, ..parent() },
        ] {
            assert_eq!(bench.store.accept(new).await.unwrap().id, first);
        }
        bench.store.cancel(&Scope::All, first).await.unwrap();
        assert_eq!(bench.after(first).await, []);
    })
    .await;
}
