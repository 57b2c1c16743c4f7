//! What people do to jobs, and what they may see.

use std::collections::HashSet;
use std::time::Duration;

use mapae::job::State;
use mapae::job::event::Position;
use mapae::job::name::{Assignee, JobId};
use mapae::job::record::{Checkpoint, Job, NewJob, Output, Source};
use mapae::job::retry::Verdict;
use mapae::store::contract::{
    Beat, Claim, ControlError, EventFilter, Found, JobFilter, LOOK_MAX, NewKey, Page, Pruned, Retention,
    RingPlan, Scope,
};
use serde_json::json;

use super::quota;
use crate::stores::{LEASE, beat, everywhere, job, kind, lane, owner, plan, retry};

#[tokio::test]
async fn a_foreign_id_answers_like_a_missing_one() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        let dead = bench.accept(job()).await;
        bench.fail(worker.holder(), dead).await;

        let foreign = Scope::Owner(owner("globex"));
        for asked in [id, dead, JobId::new()] {
            let store = &bench.store;
            let filter = EventFilter { job: Some(asked), after: Position::default() };
            assert_eq!(store.job(&foreign, asked).await.unwrap(), None);
            assert_eq!(store.output(&foreign, asked).await.unwrap(), None);
            assert_eq!(store.events(&foreign, &filter, 9).await.unwrap(), []);
            assert!(matches!(store.cancel(&foreign, asked).await, Err(ControlError::NotFound)));
            assert!(matches!(store.delete(&foreign, asked).await, Err(ControlError::NotFound)));
            assert!(matches!(store.redrive(&foreign, asked).await, Err(ControlError::NotFound)));
        }
        let page = Page { after: None, limit: 9 };
        assert_eq!(bench.store.jobs(&foreign, &JobFilter::default(), &page).await.unwrap(), Found::default());
        assert_eq!(bench.store.events(&foreign, &EventFilter::default(), 9).await.unwrap(), []);

        let mine = Scope::Owner(owner("acme"));
        assert!(bench.store.output(&mine, id).await.unwrap().is_some());
        assert_eq!(bench.store.jobs(&mine, &JobFilter::default(), &page).await.unwrap().jobs.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn cancel_wins_over_completion() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let mut worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        assert_eq!(bench.store.cancel(&Scope::All, id).await.unwrap(), State::Running);
        assert_eq!(bench.store.cancel(&Scope::All, id).await.unwrap(), State::Running);
        let beats = beat(&mut *worker, &[(id, held.lease.token)], LEASE).await;
        assert_eq!(beats, [Beat::Renewed { cancel_asked: true }]);

        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Cancelled);
        assert_eq!(bench.store.output(&Scope::All, id).await.unwrap(), None);
        let told = bench.kinds_told(id).await;
        assert_eq!(told, ["accepted", "claimed", "cancel-requested", "cancelled"]);
        let again = bench.store.cancel(&Scope::All, id).await;
        assert!(matches!(again, Err(ControlError::Conflict(State::Cancelled))));
    })
    .await;
}

#[tokio::test]
async fn a_job_cancelled_while_its_worker_was_lost_does_not_run_again() {
    everywhere(async |bench| {
        let worker = bench.join("w").await;
        let (reaped, claimed) = (bench.accept(job()).await, bench.accept(job()).await);
        for id in [reaped, claimed] {
            bench.claim(worker.holder(), id).await;
            bench.store.cancel(&Scope::All, id).await.unwrap();
        }
        bench.harness.pass(LEASE).await;
        assert_eq!(bench.try_claim(worker.holder(), claimed).await, Claim::Cancelled);
        assert_eq!(bench.reaped().await, [(reaped, State::Cancelled)]);
        for id in [reaped, claimed] {
            assert_eq!(bench.try_claim(worker.holder(), id).await, Claim::Finished(State::Cancelled));
        }
    })
    .await;
}

#[tokio::test]
async fn a_deleted_job_is_unreadable_at_once_and_buried_after_it_ends() {
    everywhere(async |bench| {
        let new = job();
        let source = format!("originals/{}", new.id);
        let stage = format!("results/{}/1/stage.json", new.id);
        let under_way = format!("results/{}/1/result.json", new.id);
        let another = format!("originals/{}", JobId::new());
        let original = Source {
            name: "비밀.pdf".into(),
            bytes: 9,
            sha256: "00".into(),
            media_type: "application/pdf".into(),
            file: source.clone(),
        };
        let id = bench.accept(NewJob { source: Some(original), ..new }).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        let output = Output::File { name: stage.clone(), bytes: 3 };
        let convert = Checkpoint { stage: "convert".into(), output, took: Duration::ZERO };
        bench.store.checkpoint(&held.lease, &convert).await.unwrap();
        // What a job that has not ended may yet refer to counts as referred to.
        let files = [source.clone(), under_way, stage.clone(), another];
        let mut known = bench.store.referenced(&files).await.unwrap();
        known.sort();
        assert_eq!(known, files[..3]);

        bench.store.delete(&Scope::All, id).await.unwrap();
        assert_eq!(bench.store.job(&Scope::All, id).await.unwrap(), None);
        let filter = EventFilter { job: Some(id), after: Position::default() };
        assert_eq!(bench.store.events(&Scope::All, &filter, 9).await.unwrap(), []);
        let page = Page { after: None, limit: 9 };
        assert_eq!(
            bench.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap(),
            Found::default()
        );
        assert!(matches!(bench.store.delete(&Scope::All, id).await, Err(ControlError::NotFound)));
        assert_eq!(bench.prune(1000 * LEASE).await, Pruned::default());

        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Cancelled);
        assert_eq!(bench.try_claim(worker.holder(), id).await, Claim::Stale);
        assert_eq!(bench.prune(1000 * LEASE).await, Pruned { buried: 1, expired: 0 });
        assert_eq!(bench.try_claim(worker.holder(), id).await, Claim::Stale);
        assert_eq!(bench.store.referenced(&files).await.unwrap(), Vec::<String>::new());
        let garbage = bench.store.garbage(9).await.unwrap();
        let mut names: Vec<&str> = garbage.iter().map(|garbage| garbage.file.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, [source.as_str(), stage.as_str()]);
        bench.store.swept(&garbage).await.unwrap();
        assert_eq!(bench.store.garbage(9).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn finished_jobs_go_after_their_time_and_dead_letters_wait_longer() {
    everywhere(async |bench| {
        let worker = bench.join("w").await;
        let (done, dead, waiting) =
            (bench.accept(job()).await, bench.accept(job()).await, bench.accept(job()).await);
        let held = bench.claim(worker.holder(), done).await;
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        bench.fail(worker.holder(), dead).await;
        bench.harness.pass(2 * LEASE).await;
        let retention = Retention { finished: LEASE, failed: 3 * LEASE, memory: 1000 * LEASE };
        let gone = bench.store.prune(&retention, 1000).await.unwrap();
        assert_eq!(gone, Pruned { buried: 0, expired: 1 });
        assert_eq!(bench.store.job(&Scope::All, done).await.unwrap(), None);
        bench.harness.pass(LEASE).await;
        assert_eq!(bench.store.prune(&retention, 1000).await.unwrap(), gone);
        assert_eq!(bench.state(waiting).await, State::Pending);
    })
    .await;
}

#[tokio::test]
async fn a_paused_lane_gives_nothing() {
    everywhere(async |bench| {
        let (rung, unrung, running) =
            (bench.accept(job()).await, bench.accept(job()).await, bench.accept(job()).await);
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), running).await;
        let lost = bench.accept(job()).await;
        bench.claim(worker.holder(), lost).await;
        let one = RingPlan { max: 1, again: 1000 * LEASE, ..plan() };
        assert_eq!(bench.store.ring(&one).await.unwrap()[0].job, rung);

        bench.store.pause(&lane()).await.unwrap();
        bench.store.pause(&lane()).await.unwrap();
        assert_eq!(bench.store.paused().await.unwrap(), [lane()]);
        bench.harness.pass(2 * LEASE).await;
        assert_eq!(bench.ring().await, []);
        assert_eq!(bench.try_claim(worker.holder(), unrung).await, Claim::Paused);
        assert_eq!(bench.try_claim(worker.holder(), rung).await, Claim::Paused, "and its pointer is dropped");
        assert_eq!(
            bench.try_claim(worker.holder(), lost).await,
            Claim::Paused,
            "nor one whose lease ran out"
        );
        let none = bench.store.claim_rung(worker.holder(), &quota(lane()), 9, LEASE).await.unwrap();
        assert_eq!(none, []);
        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Succeeded);

        bench.store.resume(&lane()).await.unwrap();
        assert_eq!(bench.store.paused().await.unwrap(), []);
        let back: HashSet<JobId> = bench.ring().await.into_iter().map(|rung| rung.job).collect();
        assert_eq!(back, HashSet::from([rung, unrung]));
    })
    .await;
}

#[tokio::test]
async fn a_redriven_dead_letter_keeps_its_id_and_history() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let stage =
            Checkpoint { stage: "convert".into(), output: Output::Inline(json!(7)), took: Duration::ZERO };
        let held = bench.claim(worker.holder(), id).await;
        bench.store.checkpoint(&held.lease, &stage).await.unwrap();
        bench.settle(&held.lease, retry()).await.unwrap();
        bench.fail(worker.holder(), id).await;

        bench.store.redrive(&Scope::All, id).await.unwrap();
        let found = bench.store.job(&Scope::All, id).await.unwrap().unwrap();
        assert_eq!((found.state, found.attempt, found.redrives), (State::Pending, 0, 1));
        assert_eq!(found.finished_at, None);
        let again = bench.store.redrive(&Scope::All, id).await;
        assert!(matches!(again, Err(ControlError::Conflict(State::Pending))));

        let held = bench.claim(worker.holder(), id).await;
        assert_eq!(bench.store.checkpoints(id).await.unwrap(), [stage]);
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        let told = bench.kinds_told(id).await;
        assert_eq!(
            told,
            [
                "accepted",
                "claimed",
                "stage",
                "retrying",
                "claimed",
                "failed",
                "redriven",
                "claimed",
                "succeeded"
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn a_dead_letter_is_its_assignees_until_it_is_redriven() {
    everywhere(async |bench| {
        let worker = bench.join("w").await;
        let (id, other, waiting) =
            (bench.accept(job()).await, bench.accept(job()).await, bench.accept(job()).await);
        bench.fail(worker.holder(), id).await;
        bench.fail(worker.holder(), other).await;
        let unassigned = async || bench.store.stats().await.unwrap().dead_unassigned;
        let found = async || bench.store.job(&Scope::All, id).await.unwrap().unwrap();
        let before = found().await;
        assert_eq!((before.assignee.clone(), unassigned().await), (None, 2));

        let ops = Assignee::new("김 민수").unwrap();
        bench.store.assign(&Scope::All, id, Some(&ops)).await.unwrap();
        assert_eq!(found().await, Job { assignee: Some(ops.clone()), ..before });
        assert_eq!(unassigned().await, 1);
        let foreign = bench.store.assign(&Scope::Owner(owner("other")), id, None).await;
        assert!(matches!(foreign, Err(ControlError::NotFound)), "{foreign:?}");
        let alive = bench.store.assign(&Scope::All, waiting, Some(&ops)).await;
        assert!(matches!(alive, Err(ControlError::Conflict(State::Pending))), "{alive:?}");

        bench.store.assign(&Scope::All, other, Some(&ops)).await.unwrap();
        bench.store.assign(&Scope::All, other, None).await.unwrap();
        assert_eq!(unassigned().await, 1);
        bench.store.redrive(&Scope::All, id).await.unwrap();
        assert_eq!((found().await.assignee, found().await.state), (None, State::Pending));
        bench.fail(worker.holder(), id).await;
        assert_eq!((found().await.assignee, unassigned().await), (None, 2));
    })
    .await;
}

#[tokio::test]
async fn a_dead_letter_that_went_back_to_work_is_not_closed() {
    everywhere(async |bench| {
        let worker = bench.join("w").await;
        let (closed, revived) = (bench.accept(job()).await, bench.accept(job()).await);
        bench.fail(worker.holder(), closed).await;
        bench.fail(worker.holder(), revived).await;
        bench.store.redrive(&Scope::All, revived).await.unwrap();

        let foreign = bench.store.resolve(&Scope::Owner(owner("other")), closed).await;
        assert!(matches!(foreign, Err(ControlError::NotFound)), "{foreign:?}");
        bench.store.resolve(&Scope::All, closed).await.unwrap();
        let alive = bench.store.resolve(&Scope::All, revived).await;
        assert!(matches!(alive, Err(ControlError::Conflict(State::Pending))), "{alive:?}");

        assert_eq!(bench.store.job(&Scope::All, closed).await.unwrap(), None);
        let held = bench.claim(worker.holder(), revived).await;
        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Succeeded);
    })
    .await;
}

#[tokio::test]
async fn lists_are_filtered_and_paged_newest_first() {
    everywhere(async |bench| {
        let mut ids = Vec::new();
        for name in ["budget.pdf", "report.pdf", "budget-2.xlsx"] {
            let source = Source {
                name: name.into(),
                bytes: 1,
                sha256: "00".into(),
                media_type: "application/pdf".into(),
                file: format!("originals/{name}"),
            };
            ids.push(bench.accept(NewJob { source: Some(source), ..job() }).await);
        }
        bench.store.cancel(&Scope::All, ids[0]).await.unwrap();
        let list = async |filter: JobFilter, after, limit| {
            let page = Page { after, limit };
            let found = bench.store.jobs(&Scope::All, &filter, &page).await.unwrap();
            found.jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
        };
        assert_eq!(list(JobFilter::default(), None, 2).await, [ids[2], ids[1]]);
        assert_eq!(list(JobFilter::default(), Some(ids[1]), 2).await, [ids[0]]);
        let filter = JobFilter { text: Some("budget".into()), ..JobFilter::default() };
        assert_eq!(list(filter, None, 9).await, [ids[2], ids[0]]);
        let filter = JobFilter { text: Some(ids[1].to_string()), ..JobFilter::default() };
        assert_eq!(list(filter, None, 9).await, [ids[1]]);
        let filter = JobFilter { text: Some(ids[1].to_string()), state: Some(State::Cancelled), kind: None };
        assert_eq!(list(filter, None, 9).await, []);
        let filter = JobFilter { text: Some("%".into()), ..JobFilter::default() };
        assert_eq!(list(filter, None, 9).await, [], "text is text, no pattern");
        let filter = JobFilter { state: Some(State::Cancelled), ..JobFilter::default() };
        assert_eq!(list(filter, None, 9).await, [ids[0]]);
        let filter = JobFilter { kind: Some(kind("other")), ..JobFilter::default() };
        assert_eq!(list(filter, None, 9).await, []);
    })
    .await;
}

#[tokio::test]
async fn what_no_index_leads_to_is_found_page_by_page() {
    everywhere(async |bench| {
        let rare = bench.accept(NewJob { kind: kind("rare"), ..job() }).await;
        let accepts = (0..=LOOK_MAX).map(|_| bench.store.accept(job()));
        futures_util::future::try_join_all(accepts).await.unwrap();
        let filter = JobFilter { kind: Some(kind("rare")), ..JobFilter::default() };
        let mut page = Page { after: None, limit: 2 };
        let mut found = Vec::new();
        for _ in 0..3 {
            let one = bench.store.jobs(&Scope::All, &filter, &page).await.unwrap();
            found.extend(one.jobs.iter().map(|job| job.id));
            page.after = one.next;
            if page.after.is_none() {
                break;
            }
        }
        assert_eq!((found, page.after), (vec![rare], None));
    })
    .await;
}

#[tokio::test]
async fn a_waiting_job_knows_how_many_stand_before_it() {
    everywhere(async |bench| {
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(bench.accept(job()).await);
        }
        let last = bench.store.job(&Scope::All, ids[3]).await.unwrap().unwrap();
        assert_eq!(bench.store.ahead(&last, 100).await.unwrap(), 3);
        assert_eq!(bench.store.ahead(&last, 2).await.unwrap(), 2);
        bench.ring().await;
        assert_eq!(bench.store.ahead(&last, 100).await.unwrap(), 3);
        let first = bench.store.job(&Scope::All, ids[0]).await.unwrap().unwrap();
        assert_eq!(bench.store.ahead(&first, 100).await.unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_key_opens_until_it_is_revoked_or_expires() {
    everywhere(async |bench| {
        let key = |id: &str, byte, lifetime| NewKey {
            id: id.into(),
            hash: [byte; 32],
            owner: Some(owner("acme")),
            scopes: vec!["jobs:read".into()],
            lifetime,
        };
        let made = bench.store.add_key(key("k1", 1, None)).await.unwrap();
        bench.store.add_key(key("k2", 2, Some(LEASE))).await.unwrap();
        let found = bench.store.key(&[1; 32]).await.unwrap().expect("it opens");
        assert_eq!((&found.id, &found.owner, &found.scopes), (&made.id, &made.owner, &made.scopes));
        assert!(bench.store.key(&[2; 32]).await.unwrap().is_some());
        assert!(bench.store.key(&[3; 32]).await.unwrap().is_none());
        bench.harness.pass(LEASE).await;
        assert!(bench.store.key(&[2; 32]).await.unwrap().is_none());
        assert!(bench.store.revoke_key("k1").await.unwrap());
        assert!(!bench.store.revoke_key("k9").await.unwrap());
        assert!(bench.store.key(&[1; 32]).await.unwrap().is_none());
        assert_eq!(bench.store.keys().await.unwrap().len(), 2);
    })
    .await;
}
