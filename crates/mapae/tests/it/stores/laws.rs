//! One law, one test, over every back end.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use mapae::job::event::{Event, EventKind, Position};
use mapae::job::lease::{Holder, Token};
use mapae::job::name::{IdempotencyKey, JobId, Lane, Priority};
use mapae::job::record::{Checkpoint, FirstRing, NewJob, Output, Progress, Source};
use mapae::job::retry::{Failure, Verdict};
use mapae::job::{State, name::Class};
use mapae::store::contract::{
    AcceptError, Accepted, Beat, Claim, ControlError, DOUBLINGS_MAX, EventFilter, JobFilter, LaneQuota,
    NewKey, Page, Pruned, Retention, RingPlan, Scope, SettleError,
};
use serde_json::json;

use super::{Bench, LEASE, beat, everywhere, failure, job, kind, lane, owner, plan, retry, soon};

impl Bench {
    async fn state(&self, id: JobId) -> State {
        self.store.job(&Scope::All, id).await.unwrap().expect("the job is there").state
    }

    /// The job's history, once all of it can be read.
    async fn history(&self, id: JobId) -> Vec<Event> {
        let filter = EventFilter { job: Some(id), after: Position::default() };
        soon("the whole history can be read", async || {
            let told = self.store.job(&Scope::All, id).await.unwrap().expect("the job is there").sequence;
            let events = self.store.events(&Scope::All, &filter, 1000).await.unwrap();
            (events.len() as u64 == told).then_some(events)
        })
        .await
    }

    async fn kinds_told(&self, id: JobId) -> Vec<&'static str> {
        self.history(id).await.iter().map(|event| event.event.as_str()).collect()
    }

    /// Claims and fails the job until its budget is spent.
    async fn fail(&self, holder: &Holder, id: JobId) {
        let held = self.claim(holder, id).await;
        let verdict = Verdict::Fail { failure: Failure::terminal("damaged", "The file is damaged.") };
        assert_eq!(self.settle(&held.lease, verdict).await.unwrap(), State::Failed);
    }

    async fn prune(&self, after: Duration) -> Pruned {
        let retention = Retention { finished: after, failed: after, memory: 1000 * LEASE };
        self.store.prune(&retention, 1000).await.unwrap()
    }
}

fn lost(answer: Result<State, SettleError>) -> Option<State> {
    match answer {
        Err(SettleError::LeaseLost(state)) => state,
        other => panic!("{other:?} instead of a lost lease"),
    }
}

fn quota(lane: Lane) -> [LaneQuota; 1] {
    [LaneQuota { lane, max: 1000 }]
}

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
        assert_eq!(
            bench.store.reap(10).await.unwrap(),
            [(id, kind("analyze"))],
            "it ends when it would have"
        );
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
async fn the_same_submission_twice_makes_one_job() {
    everywhere(async |bench| {
        let keyed = |body: u8| NewJob {
            idempotency: Some((IdempotencyKey::new("upload-7").unwrap(), [body; 32])),
            ..job()
        };
        let first = bench.accept(keyed(1)).await;
        let again = bench.store.accept(keyed(1)).await.unwrap();
        assert_eq!(again, Accepted { id: first, again: true });

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
        assert_eq!(all.unwrap().len(), 1);
    })
    .await;
}

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
        assert_eq!(bench.store.jobs(&foreign, &JobFilter::default(), &page).await.unwrap(), []);
        assert_eq!(bench.store.events(&foreign, &EventFilter::default(), 9).await.unwrap(), []);

        let mine = Scope::Owner(owner("acme"));
        assert!(bench.store.output(&mine, id).await.unwrap().is_some());
        assert_eq!(bench.store.jobs(&mine, &JobFilter::default(), &page).await.unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_pointer_with_another_owner_starts_nothing() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let pointers = [(id, owner("globex")), (JobId::new(), owner("acme")), (id, owner("acme"))];
        let answers = bench.store.claim(worker.holder(), &pointers, LEASE).await.unwrap();
        assert!(matches!(answers[..], [Claim::Foreign, Claim::Stale, Claim::Run(_)]), "{answers:?}");
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
        assert_eq!(bench.store.reap(10).await.unwrap(), [(reaped, kind("analyze"))]);
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
        assert_eq!(bench.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap(), []);
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
async fn a_crash_counts_one_attempt() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        let crashed = held.job.holder.clone();
        drop(worker);
        let reaped = soon("its keeper notices", async || {
            let reaped = bench.store.reap(10).await.unwrap();
            (!reaped.is_empty()).then_some(reaped)
        });
        assert_eq!(reaped.await, [(id, kind("analyze"))]);
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
        assert_eq!(bench.try_claim(worker.holder(), bad).await, Claim::Finished(State::Failed));
        let directly = bench.store.accept(NewJob {
            params: (0..200).fold(1.into(), |v: serde_json::Value, _| vec![v].into()),
            ..job()
        });
        let directly = directly.await.unwrap().id;
        assert_eq!(bench.try_claim(worker.holder(), directly).await, Claim::Finished(State::Failed));
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
async fn an_event_reader_misses_nothing_however_many_write() {
    everywhere(async |bench| {
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let store = bench.store.clone();
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let id = store.accept(job()).await.unwrap().id;
                        store.cancel(&Scope::All, id).await.unwrap();
                    }
                })
            })
            .collect();
        let mut seen: BTreeMap<JobId, Vec<EventKind>> = BTreeMap::new();
        let (mut after, mut count) = (Position::default(), 0);
        while count < 8 * 20 * 2 {
            let filter = EventFilter { job: None, after };
            let page = soon("more events", async || {
                let page = bench.store.events(&Scope::All, &filter, 7).await.unwrap();
                (!page.is_empty()).then_some(page)
            });
            for event in page.await {
                assert!(event.position > after, "positions only rise");
                after = event.position;
                count += 1;
                let told = seen.entry(event.job).or_default();
                told.push(event.event);
                assert_eq!(event.sequence, told.len() as u64, "no gap, and in order");
            }
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert!(seen.values().all(|told| told[..] == [EventKind::Accepted, EventKind::Cancelled]));
        assert!(bench.store.last_position().await.unwrap() >= after);
    })
    .await;
}

#[tokio::test]
async fn events_are_handed_out_in_order_until_they_are_sent() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        bench.store.cancel(&Scope::All, id).await.unwrap();
        let mut told = Vec::new();
        for _ in 0..2 {
            let unsent = soon("the outbox is read", async || {
                let unsent = bench.store.unsent(10).await.unwrap();
                (!unsent.is_empty()).then_some(unsent)
            });
            let lowest = unsent.await.remove(0);
            assert_eq!(bench.store.unsent(10).await.unwrap()[0], lowest, "again until it is marked");
            bench.store.sent(&[(id, lowest.sequence)]).await.unwrap();
            told.push(lowest.event);
        }
        assert_eq!(told, [EventKind::Accepted, EventKind::Cancelled]);
        assert_eq!(bench.store.unsent(10).await.unwrap(), []);
        assert_eq!(bench.store.stats().await.unwrap().outbox, 0);
    })
    .await;
}

#[tokio::test]
async fn an_event_is_sent_even_when_its_job_is_gone_before() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        bench.store.delete(&Scope::All, id).await.unwrap();
        assert_eq!(bench.prune(1000 * LEASE).await, Pruned { buried: 1, expired: 0 });
        let mut told = Vec::new();
        while let Some(event) = bench.store.unsent(10).await.unwrap().pop() {
            bench.store.sent(&[(id, event.sequence)]).await.unwrap();
            told.push(event.event);
        }
        assert_eq!(told, [EventKind::Accepted, EventKind::Cancelled]);
    })
    .await;
}

#[tokio::test]
async fn a_newcomers_first_job_comes_next_however_much_of_anothers_is_rung() {
    everywhere(async |bench| {
        let rung = |turn| Some(FirstRing { turn, again: LEASE });
        for place in 1..=100 {
            bench.accept(NewJob { rung: rung(place), ..job() }).await;
        }
        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 10, LEASE).await.unwrap();
        assert_eq!(held.len(), 10);
        let newcomer = bench.accept(NewJob { owner: owner("globex"), rung: rung(12), ..job() }).await;
        let waiting = bench.accept(NewJob { owner: owner("initech"), ..job() }).await;
        assert_eq!(bench.ring().await.len(), 1);
        let next = bench.store.claim_rung(worker.holder(), &quota(lane()), 4, LEASE).await.unwrap();
        let next: Vec<JobId> = next.iter().map(|holding| holding.job.id).collect();
        assert!(next.contains(&newcomer), "rung with its accept");
        assert!(next.contains(&waiting), "rung by a keeper");
    })
    .await;
}

#[tokio::test]
async fn one_owner_with_a_thousand_jobs_does_not_starve_another() {
    everywhere(async |bench| {
        for _ in 0..1000 {
            bench.accept(job()).await;
        }
        let small = bench.accept(NewJob { owner: owner("globex"), ..job() }).await;
        let plan = RingPlan { window: 10, again: LEASE, max: 100 };
        let rung = bench.store.ring(&plan).await.unwrap();
        assert_eq!(rung.len(), 10, "no more than the window");
        assert!(rung.iter().any(|rung| rung.job == small), "the small owner's job is among the first");
        assert!(bench.store.ring(&plan).await.unwrap().is_empty(), "the window is full");

        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 4, LEASE).await.unwrap();
        assert_eq!(held.len(), 4);
        assert_eq!(bench.store.ring(&plan).await.unwrap().len(), 4, "four places are free again");
    })
    .await;
}

#[tokio::test]
async fn a_full_lane_leaves_room_in_the_others() {
    everywhere(async |bench| {
        let low = || NewJob { priority: Priority::new(9).unwrap(), ..job() };
        for _ in 0..5 {
            bench.accept(job()).await;
        }
        let other = bench.accept(low()).await;
        let plan = RingPlan { window: 2, again: LEASE, max: 100 };
        let rung = bench.store.ring(&plan).await.unwrap();
        assert_eq!(rung.len(), 3);
        assert_eq!(rung.iter().filter(|rung| rung.lane.class == Class::Low).count(), 1);

        let worker = bench.join("w").await;
        let lanes = [LaneQuota { lane: low().lane(), max: 4 }, LaneQuota { lane: lane(), max: 1 }];
        let held = bench.store.claim_rung(worker.holder(), &lanes, 9, LEASE).await.unwrap();
        assert_eq!(held.len(), 2, "one there, and one for the other lane's quota");
        assert_eq!(held[0].job.id, other, "lanes come in the given order");
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
        let one = RingPlan { max: 1, ..plan() };
        assert_eq!(bench.store.ring(&one).await.unwrap()[0].job, rung);

        bench.store.pause(&lane()).await.unwrap();
        bench.store.pause(&lane()).await.unwrap();
        assert_eq!(bench.store.paused().await.unwrap(), [lane()]);
        bench.harness.pass(2 * LEASE).await;
        assert_eq!(bench.ring().await, []);
        assert_eq!(bench.try_claim(worker.holder(), unrung).await, Claim::Paused);
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
async fn two_keepers_at_once_ring_a_job_once() {
    everywhere(async |bench| {
        for _ in 0..50 {
            bench.accept(job()).await;
        }
        let keepers: Vec<_> = (0..8)
            .map(|_| {
                let store = bench.store.clone();
                tokio::spawn(async move { store.ring(&plan()).await.unwrap() })
            })
            .collect();
        let mut rung = Vec::new();
        for keeper in keepers {
            rung.extend(keeper.await.unwrap());
        }
        // A keeper may leave to another what that one is just looking at.
        rung.extend(bench.ring().await);
        assert!(rung.iter().all(|rung| rung.hint == 1));
        assert_eq!(rung.len(), 50);
        assert_eq!(rung.iter().map(|rung| rung.job).collect::<HashSet<_>>().len(), 50);
    })
    .await;
}

#[tokio::test]
async fn a_pointer_that_was_not_published_comes_back_and_a_published_one_waits_for_its_age() {
    everywhere(async |bench| {
        let (lost, published) = (bench.accept(job()).await, bench.accept(job()).await);
        let plan = RingPlan { again: LEASE, ..plan() };
        assert_eq!(bench.store.ring(&plan).await.unwrap().len(), 2);
        bench.store.rung(&[(published, 1)], 3 * LEASE).await.unwrap();
        assert_eq!(bench.store.ring(&plan).await.unwrap(), []);
        bench.harness.pass(LEASE).await;
        let back = bench.store.ring(&plan).await.unwrap();
        assert_eq!(back.iter().map(|rung| (rung.job, rung.hint)).collect::<Vec<_>>(), [(lost, 2)]);
        bench.store.rung(&[(lost, 2)], LEASE).await.unwrap();
        bench.harness.pass(LEASE).await;
        assert_eq!(bench.store.ring(&plan).await.unwrap(), [], "the age doubles with the hint");
        bench.harness.pass(LEASE).await;
        let both: HashSet<JobId> =
            bench.store.ring(&plan).await.unwrap().iter().map(|rung| rung.job).collect();
        assert_eq!(both, HashSet::from([lost, published]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claims_of_one_pointer_give_one_lease() {
    everywhere(async |bench| {
        for round in 0..20 {
            let id = bench.accept(job()).await;
            let claimers: Vec<_> = (0..16)
                .map(|number| {
                    let (store, holder) = (bench.store.clone(), Holder::new(format!("w{round}-{number}")));
                    tokio::spawn(async move {
                        store.claim(&holder, &[(id, owner("acme"))], LEASE).await.unwrap().remove(0)
                    })
                })
                .collect();
            let (mut leases, mut busy) = (0, 0);
            for claimer in claimers {
                match claimer.await.unwrap() {
                    Claim::Run(_) => leases += 1,
                    Claim::Busy(_) => busy += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((leases, busy), (1, 15));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claimers_of_rung_jobs_share_them_without_overlap() {
    everywhere(async |bench| {
        for _ in 0..60 {
            bench.accept(job()).await;
        }
        assert_eq!(bench.ring().await.len(), 60);
        let claimers: Vec<_> = (0..8)
            .map(|number| {
                let (store, holder) = (bench.store.clone(), Holder::new(format!("w{number}")));
                tokio::spawn(async move {
                    let mut held = Vec::new();
                    for _ in 0..10 {
                        let some = store.claim_rung(&holder, &quota(lane()), 2, LEASE).await.unwrap();
                        held.extend(some.into_iter().map(|holding| holding.job.id));
                    }
                    held
                })
            })
            .collect();
        let mut held = Vec::new();
        for claimer in claimers {
            held.extend(claimer.await.unwrap());
        }
        assert_eq!(held.len(), 60);
        assert_eq!(held.iter().collect::<HashSet<_>>().len(), 60);
    })
    .await;
}

#[tokio::test]
async fn rung_jobs_are_claimed_in_the_order_they_were_rung() {
    everywhere(async |bench| {
        let run_at = Some(bench.store.now().await.unwrap() + LEASE);
        let later = bench.accept(NewJob { run_at, ..job() }).await;
        let sooner = bench.accept(job()).await;
        assert_eq!(bench.ring().await.len(), 1);
        bench.harness.pass(LEASE).await;
        let plan = RingPlan { again: 100 * LEASE, ..plan() };
        bench.store.rung(&[(sooner, 1)], 100 * LEASE).await.unwrap();
        assert_eq!(bench.store.ring(&plan).await.unwrap().len(), 1);

        let worker = bench.join("w").await;
        let mut order = Vec::new();
        for _ in 0..3 {
            let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 1, LEASE).await.unwrap();
            order.extend(held.into_iter().map(|holding| holding.job.id));
        }
        assert_eq!(order, [sooner, later]);
    })
    .await;
}

#[tokio::test]
async fn a_newcomers_job_comes_next_however_much_of_anothers_waits() {
    everywhere(async |bench| {
        for _ in 0..20 {
            bench.accept(job()).await;
        }
        assert_eq!(bench.ring().await.len(), 20);
        let newcomer = bench.accept(NewJob { owner: owner("globex"), ..job() }).await;
        assert_eq!(bench.ring().await.len(), 1);
        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 3, LEASE).await.unwrap();
        assert!(held.iter().any(|holding| holding.job.id == newcomer));
        let [window] = <[_; 1]>::try_from(bench.store.windows(100).await.unwrap()).unwrap();
        assert_eq!((window.lane, window.waiting), (lane(), 18));
        assert!(window.turn > 1, "the lane has come further");
        assert_eq!(bench.store.windows(5).await.unwrap()[0].waiting, 5, "counted up to the cap");
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
        assert_eq!(bench.try_claim(worker.holder(), claimed).await, Claim::Finished(State::Failed));
        assert_eq!(bench.store.expire(10).await.unwrap(), 1);
        for id in [expired, claimed] {
            let found = bench.store.job(&Scope::All, id).await.unwrap().unwrap();
            assert_eq!((found.attempt, found.failure.unwrap().code.as_str()), (0, "deadline-passed"));
        }
    })
    .await;
}

#[tokio::test]
async fn a_keeper_is_told_when_the_next_job_becomes_due() {
    everywhere(async |bench| {
        assert_eq!(bench.store.next_due(10 * LEASE).await.unwrap(), None);
        let run_at = Some(bench.store.now().await.unwrap() + 2 * LEASE);
        let id = bench.accept(NewJob { run_at, ..job() }).await;
        assert_eq!(bench.ring().await, []);
        assert_eq!(bench.store.next_due(LEASE).await.unwrap(), None);
        let wait = bench.store.next_due(10 * LEASE).await.unwrap().expect("it is within the horizon");
        assert!(wait > LEASE && wait <= 2 * LEASE, "{wait:?}");
        bench.harness.pass(2 * LEASE).await;
        assert_eq!(bench.store.next_due(LEASE).await.unwrap(), Some(Duration::ZERO));
        assert_eq!(bench.ring().await[0].job, id);
        assert_eq!(bench.store.next_due(10 * LEASE).await.unwrap(), None);
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
            found.into_iter().map(|job| job.id).collect::<Vec<_>>()
        };
        assert_eq!(list(JobFilter::default(), None, 2).await, [ids[2], ids[1]]);
        assert_eq!(list(JobFilter::default(), Some(ids[1]), 2).await, [ids[0]]);
        let filter = JobFilter { text: Some("budget".into()), ..JobFilter::default() };
        assert_eq!(list(filter, None, 9).await, [ids[2], ids[0]]);
        let filter = JobFilter { text: Some(ids[1].to_string()), ..JobFilter::default() };
        assert_eq!(list(filter, None, 9).await, [ids[1]]);
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
async fn a_forgotten_key_can_be_used_again() {
    everywhere(async |bench| {
        let keyed = |body: u8| NewJob {
            idempotency: Some((IdempotencyKey::new("upload-7").unwrap(), [body; 32])),
            ..job()
        };
        bench.accept(keyed(1)).await;
        bench.harness.pass(2 * LEASE).await;
        let retention = Retention { finished: 9 * LEASE, failed: 9 * LEASE, memory: LEASE };
        bench.store.prune(&retention, 1000).await.unwrap();
        assert!(!bench.store.accept(keyed(2)).await.unwrap().again);
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

#[tokio::test]
async fn a_pointer_rung_in_vain_for_long_is_not_believed_for_longer_than_the_bound() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let again = RingPlan { again: Duration::from_secs(1), ..plan() };
        // A broker that is down: rung over and over, and never confirmed.
        for hint in 1..=30 {
            let rung = bench.store.ring(&again).await.unwrap();
            assert_eq!(rung.iter().map(|rung| rung.hint).collect::<Vec<_>>(), [hint]);
            bench.harness.pass(Duration::from_secs(2)).await;
        }
        let age = Duration::from_secs(60);
        bench.store.rung(&[(id, 30)], age).await.unwrap();
        bench.harness.pass(age * (1 << DOUBLINGS_MAX) / 2).await;
        assert_eq!(bench.ring().await, [], "believed for a while");
        bench.harness.pass(age * (1 << DOUBLINGS_MAX)).await;
        assert_eq!(bench.ring().await.len(), 1, "it may have been lost after all");
    })
    .await;
}
