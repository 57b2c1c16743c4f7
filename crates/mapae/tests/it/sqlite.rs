//! What is SQLite's own: the file and its one writer, presence by locked files, and the plans of its
//! statements. What it shares with every store is in the conformance suite.

mod explain;
mod presence;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use mapae::job::State;
use mapae::job::event::EventKind;
use mapae::job::lease::Holder;
use mapae::job::name::{IdempotencyKey, JobId, Kind, Lane, Owner, Priority};
use mapae::job::record::{Checkpoint, NewJob, Output, Progress};
use mapae::job::retry::{Backoff, Failure, RetryPolicy, Verdict};
use mapae::job::timestamp::Timestamp;
use mapae::store::Sqlite;
use mapae::store::contract::{
    AcceptError, Beat, Claim, Control, EventFilter, Holding, Join, JoinError, Keep, LaneQuota, RingPlan, Run,
    Scope, SettleError, Settlement, Store, StoreError, View, WorkerReport,
};
use serde_json::json;
use sqlx::{Connection, Row};

use crate::child::in_a_child;
use crate::explain::calls::everything;
use crate::heard;

const LONG: Duration = Duration::from_secs(3600);

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

fn new_job(of: &str) -> NewJob {
    NewJob::new(owner(of), Kind::new("test.echo").unwrap(), json!({ "n": 1 }))
}

fn lane() -> Lane {
    new_job("a").lane()
}

fn quota(max: usize) -> Vec<LaneQuota> {
    vec![LaneQuota { lane: lane(), max }]
}

fn plan() -> RingPlan {
    RingPlan { window: 1_000, least: 0, again: LONG, rescan: Some(Vec::new()), max: 1_000 }
}

fn join_as(name: &str) -> Join {
    Join { name: name.into(), strict: true, kinds: vec![Kind::new("test.echo").unwrap()], slots: 4 }
}

async fn in_memory() -> Sqlite {
    let store = Sqlite::open("sqlite::memory:", true).await.unwrap();
    store.migrate().await.unwrap();
    store
}

fn url(folder: &tempfile::TempDir) -> String {
    // Its folder is not there yet.
    format!("sqlite:{}/new/jobs.db", folder.path().display())
}

async fn in_file(folder: &tempfile::TempDir) -> Sqlite {
    let store = Sqlite::open(&url(folder), true).await.unwrap();
    store.migrate().await.unwrap();
    store
}

async fn accepted(store: &Sqlite, job: NewJob) -> (JobId, Owner) {
    let owner = job.owner.clone();
    (store.accept(job).await.unwrap().id, owner)
}

async fn claimed(store: &Sqlite, holder: &Holder, pointer: &(JobId, Owner), lease: Duration) -> Holding {
    match store.claim(holder, std::slice::from_ref(pointer), lease).await.unwrap().pop().unwrap() {
        Claim::Run(holding) => *holding,
        other => panic!("not claimed: {other:?}"),
    }
}

async fn state(store: &Sqlite, id: JobId) -> State {
    store.job(&Scope::All, id).await.unwrap().unwrap().state
}

/// Kind, attempt, worker and code of each event.
async fn timeline(store: &Sqlite, job: JobId) -> Vec<(EventKind, u32, Option<String>, Option<String>)> {
    let filter = EventFilter { job: Some(job), ..EventFilter::default() };
    let events = store.events(&Scope::All, &filter, 1_000).await.unwrap();
    let gapless: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), gapless);
    events.into_iter().map(|event| (event.event, event.attempt, event.worker, event.code)).collect()
}

#[tokio::test]
async fn two_handles_on_one_file_claim_each_job_once() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (in_file(&folder).await, in_file(&folder).await);
    join_all((0..200).map(|_| one.accept(new_job("a")))).await.into_iter().for_each(|answer| {
        answer.unwrap();
    });
    one.ring(&plan()).await.unwrap();
    let take = async |store: &Sqlite, holder: Holder| {
        let mut mine = Vec::new();
        loop {
            let holdings = store.claim_rung(&holder, &quota(7), 7, LONG).await.unwrap();
            if holdings.is_empty() {
                return mine;
            }
            mine.extend(holdings.into_iter().map(|holding| holding.job.id));
        }
    };
    let (here, there) = tokio::join!(take(&one, Holder::new("here")), take(&other, Holder::new("there")));
    assert_eq!(here.len() + there.len(), 200, "each job is claimed");
    assert_eq!(here.iter().chain(&there).collect::<HashSet<_>>().len(), 200, "and by one only");
}

#[tokio::test]
async fn many_may_migrate_one_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut stores = Vec::new();
    for _ in 0..8 {
        stores.push(Sqlite::open(&url(&folder), false).await.unwrap());
    }
    for answer in join_all(stores.iter().map(|store| store.migrate())).await {
        answer.unwrap();
    }
    let schema = stores[0].schema().await.unwrap();
    assert!(schema.found > 0 && schema.found == schema.known, "{schema:?}");
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&url(&folder), false).await.unwrap();
    assert_eq!(store.schema().await.unwrap().found, 0, "no file yet");
    store.migrate().await.unwrap();
    let mut connection = sqlx::SqliteConnection::connect(&url(&folder)).await.unwrap();
    sqlx::query("insert into migrations (number, applied_at) values (999, 0)")
        .execute(&mut connection)
        .await
        .unwrap();
    let StoreError::NewerSchema(schema) = store.migrate().await.unwrap_err() else { panic!() };
    assert_eq!(schema.found, 999);
    let later = Sqlite::open(&url(&folder), false).await.unwrap();
    assert_eq!(later.schema().await.unwrap().found, 999);
}

#[tokio::test]
async fn one_bad_request_takes_nothing_of_its_neighbours_with_it() {
    let store = in_memory().await;
    let (first, _) = accepted(&store, new_job("a")).await;
    let jobs = (0..50).map(|n| {
        let mut job = new_job("a");
        if n == 25 {
            // Refused by the table, after its key has been written.
            job.id = first;
            job.idempotency = Some((IdempotencyKey::new("k").unwrap(), [0; 32]));
        }
        job
    });
    let answers = join_all(jobs.map(|job| store.accept(job))).await;
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Ok(accepted) => assert_eq!(state(&store, accepted.id).await, State::Pending),
            Err(AcceptError::Store(StoreError::Broken(_))) => assert_eq!(n, 25),
            Err(error) => panic!("{n}: {error}"),
        }
    }
    let mut again = new_job("a");
    again.idempotency = Some((IdempotencyKey::new("k").unwrap(), [1; 32]));
    assert!(!store.accept(again).await.unwrap().again, "nothing is left of the request that failed");
}

#[tokio::test]
async fn a_job_accepted_in_the_callers_transaction_shares_its_fate() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    let mut connection = sqlx::SqliteConnection::connect(&url(&folder)).await.unwrap();
    let mut transaction = connection.begin_with("begin immediate").await.unwrap();
    let gone = store.accept_in(&mut transaction, new_job("a")).await.unwrap().id;
    transaction.rollback().await.unwrap();
    let mut transaction = connection.begin_with("begin immediate").await.unwrap();
    let kept = store.accept_in(&mut transaction, new_job("a")).await.unwrap().id;
    transaction.commit().await.unwrap();
    assert_eq!(store.job(&Scope::All, gone).await.unwrap(), None);
    assert_eq!(state(&store, kept).await, State::Pending);
    assert_eq!(timeline(&store, kept).await, [(EventKind::Accepted, 0, None, None)]);
}

#[tokio::test]
async fn what_waits_is_finished_when_the_store_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    let (answers, ()) = tokio::join!(join_all((0..100).map(|_| store.accept(new_job("a")))), async {
        tokio::task::yield_now().await;
        store.close().await;
    });
    let answered: Vec<JobId> = answers.into_iter().flatten().map(|accepted| accepted.id).collect();
    assert!(!answered.is_empty());
    assert!(matches!(store.accept(new_job("a")).await, Err(AcceptError::Store(StoreError::Unavailable(_)))));
    let later = in_file(&folder).await;
    for id in answered {
        assert_eq!(state(&later, id).await, State::Pending);
    }
}

#[tokio::test]
async fn a_claim_answers_each_pointer_by_its_row() {
    let store = in_memory().await;
    let holder = Holder::new("w");
    let short = Duration::from_micros(0);
    let once = |mut job: NewJob| {
        job.retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
        job
    };
    let due = accepted(&store, new_job("a")).await;
    let foreign = (accepted(&store, new_job("a")).await.0, owner("b"));
    let later =
        accepted(&store, NewJob { run_at: Some(store.now().await.unwrap() + LONG), ..new_job("a") }).await;
    let busy = accepted(&store, new_job("a")).await;
    let until = claimed(&store, &holder, &busy, LONG).await.lease.until;
    let lost = accepted(&store, new_job("a")).await;
    claimed(&store, &holder, &lost, short).await;
    let spent = accepted(&store, once(new_job("a"))).await;
    claimed(&store, &holder, &spent, short).await;
    let cancelled = accepted(&store, new_job("a")).await;
    claimed(&store, &holder, &cancelled, short).await;
    store.cancel(&Scope::All, cancelled.0).await.unwrap();
    let overdue =
        accepted(&store, NewJob { deadline: Some(Timestamp::from_micros(1)), ..new_job("a") }).await;
    let deleted = accepted(&store, new_job("a")).await;
    store.delete(&Scope::All, deleted.0).await.unwrap();
    let unknown = (JobId::new(), owner("a"));

    let pointers = [
        due.clone(),
        due.clone(),
        foreign,
        later.clone(),
        busy,
        lost.clone(),
        spent,
        cancelled,
        overdue.clone(),
        deleted,
        unknown,
    ];
    let answers = store.claim(&holder, &pointers, LONG).await.unwrap();
    let due_at = store.job(&Scope::All, later.0).await.unwrap().unwrap().due_at;
    let mut answers = answers.into_iter();
    assert!(matches!(answers.next(), Some(Claim::Run(holding)) if holding.job.attempt == 1));
    assert!(matches!(answers.next(), Some(Claim::Busy(_))), "its first pointer has the lease");
    assert_eq!(answers.next(), Some(Claim::Foreign));
    assert_eq!(answers.next(), Some(Claim::NotDue(due_at)));
    assert_eq!(answers.next(), Some(Claim::Busy(until)));
    assert!(matches!(answers.next(), Some(Claim::Run(holding)) if holding.job.attempt == 2));
    assert_eq!(answers.next(), Some(Claim::Failed));
    assert_eq!(answers.next(), Some(Claim::Cancelled));
    assert_eq!(answers.next(), Some(Claim::Failed));
    assert_eq!(answers.next(), Some(Claim::Stale));
    assert_eq!(answers.next(), Some(Claim::Stale));

    let w = Some("w".to_owned());
    let worker_lost = Some("worker-lost".to_owned());
    assert_eq!(
        timeline(&store, lost.0).await,
        [
            (EventKind::Accepted, 0, None, None),
            (EventKind::Claimed, 1, w.clone(), None),
            (EventKind::Lost, 1, None, worker_lost),
            (EventKind::Claimed, 2, w, None),
        ]
    );
    let failure = store.job(&Scope::All, overdue.0).await.unwrap().unwrap().failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.attempt), ("deadline-passed", 0));
}

#[tokio::test]
async fn jobs_that_are_submitted_at_one_moment_share_commits() {
    let store = in_memory().await;
    let mut commits = HashSet::new();
    for (id, _) in join_all((0..64).map(|_| accepted(&store, new_job("a")))).await {
        // A transaction has one time.
        commits.insert(store.job(&Scope::All, id).await.unwrap().unwrap().created_at);
    }
    assert!(commits.len() < 16, "{} commits for 64 jobs", commits.len());
}

#[tokio::test]
async fn a_paused_lane_gives_nothing_until_it_is_resumed() {
    let store = in_memory().await;
    let holder = Holder::new("w");
    let (waits, lost) = (accepted(&store, new_job("a")).await, accepted(&store, new_job("a")).await);
    claimed(&store, &holder, &lost, Duration::ZERO).await;
    store.pause(&lane()).await.unwrap();
    assert_eq!(store.ring(&plan()).await.unwrap(), []);
    assert_eq!(store.claim_rung(&holder, &quota(9), 9, LONG).await.unwrap(), []);
    let answers = store.claim(&holder, &[waits.clone(), lost.clone()], LONG).await.unwrap();
    assert_eq!(answers, [Claim::Paused, Claim::Paused]);
    store.resume(&lane()).await.unwrap();
    let answers = store.claim(&holder, &[waits, lost], LONG).await.unwrap();
    assert!(answers.iter().all(|claim| matches!(claim, Claim::Run(_))));
}

#[tokio::test]
async fn a_verdict_becomes_state_event_and_result_and_is_answered_again() {
    let store = in_memory().await;
    let holder = Holder::new("w");
    let w = Some("w".to_owned());
    let busy = || Failure::retryable("busy", "It is busy.");
    let pointer = accepted(&store, new_job("a")).await;
    let mut expected = vec![(EventKind::Accepted, 0, None, None)];
    for (verdict, attempt, event, code) in [
        (Verdict::HandBack, 1, EventKind::Released, None),
        (Verdict::Throttle { failure: busy(), delay: Duration::ZERO }, 1, EventKind::Throttled, Some("busy")),
        (Verdict::Snooze { delay: Duration::ZERO }, 1, EventKind::Snoozed, None),
        (Verdict::Retry { failure: busy(), delay: Duration::ZERO }, 1, EventKind::Retrying, Some("busy")),
        (Verdict::Succeed, 2, EventKind::Succeeded, None),
    ] {
        let lease = claimed(&store, &holder, &pointer, LONG).await.lease;
        let ends = verdict == Verdict::Succeed;
        let settlement = Settlement { lease, verdict, output: Some(Output::Inline(json!([1, "둘"]))) };
        let state = store.settle(settlement.clone()).await.unwrap();
        assert_eq!(state, if ends { State::Succeeded } else { State::Pending });
        assert_eq!(store.settle(settlement).await.unwrap(), state, "the answer may be asked for again");
        expected.push((EventKind::Claimed, attempt, w.clone(), None));
        expected.push((event, attempt, w.clone(), code.map(str::to_owned)));
    }
    assert_eq!(timeline(&store, pointer.0).await, expected);
    let job = store.job(&Scope::All, pointer.0).await.unwrap().unwrap();
    assert_eq!((job.attempt, job.throttled, job.failure), (2, 1, None));
    let output = store.output(&Scope::Owner(owner("a")), pointer.0).await.unwrap();
    assert_eq!(output, Some(Output::Inline(json!([1, "둘"]))));
    assert_eq!(store.output(&Scope::Owner(owner("b")), pointer.0).await.unwrap(), None);
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_can_change_nothing() {
    let store = in_memory().await;
    let mut member = store.join(&join_as("w")).await.unwrap();
    let pointer = accepted(&store, new_job("a")).await;
    let old = claimed(&store, member.holder(), &pointer, Duration::ZERO).await.lease;
    let new = claimed(&store, &Holder::new("other"), &pointer, LONG).await.lease;
    let before = (store.job(&Scope::All, pointer.0).await.unwrap(), timeline(&store, pointer.0).await);
    let output = Output::Inline(json!(1));
    let progress = Progress { stage: "s".into(), done: 1, of: 2 };
    let checkpoint = Checkpoint { stage: "s".into(), output: output.clone(), took: LONG };
    let settlement = Settlement { lease: old.clone(), verdict: Verdict::Succeed, output: Some(output) };
    for refused in [
        store.progress(&old, &progress).await,
        store.checkpoint(&old, &checkpoint).await,
        store.settle(settlement).await.map(drop),
    ] {
        assert!(matches!(refused, Err(SettleError::LeaseLost(Some(State::Running)))), "{refused:?}");
    }
    let beats = member.beat(&[(pointer.0, old.token)], 2 * LONG, &WorkerReport::default()).await.unwrap();
    assert_eq!(beats, [Beat::Lost]);
    let busy = store.claim(member.holder(), std::slice::from_ref(&pointer), LONG).await.unwrap();
    assert_eq!(busy, [Claim::Busy(new.until)], "the lease of another is as long as it was");
    let after = (store.job(&Scope::All, pointer.0).await.unwrap(), timeline(&store, pointer.0).await);
    assert_eq!(after, before);
    assert_eq!(store.checkpoints(pointer.0).await.unwrap(), []);
}

#[tokio::test]
async fn stages_come_back_in_the_order_they_were_done_last() {
    let store = in_memory().await;
    let pointer = accepted(&store, new_job("a")).await;
    let lease = claimed(&store, &Holder::new("w"), &pointer, LONG).await.lease;
    // All within a tick of the clock, or nearly.
    for stage in ["tables", "convert", "intents", "tables"] {
        let output = Output::Inline(json!(stage));
        let checkpoint = Checkpoint { stage: stage.into(), output, took: Duration::from_micros(7) };
        store.checkpoint(&lease, &checkpoint).await.unwrap();
    }
    let done = store.checkpoints(pointer.0).await.unwrap();
    let stages: Vec<&str> = done.iter().map(|checkpoint| checkpoint.stage.as_str()).collect();
    assert_eq!(stages, ["convert", "intents", "tables"]);
}

#[tokio::test]
async fn rung_jobs_come_lane_by_lane_as_asked() {
    let store = in_memory().await;
    let low = Priority::new(9).unwrap();
    let (normal, late) = (
        accepted(&store, new_job("a")).await.0,
        accepted(&store, NewJob { priority: low, ..new_job("a") }).await.0,
    );
    store.ring(&plan()).await.unwrap();
    let low = LaneQuota { lane: Lane { class: low.class(), ..lane() }, max: 5 };
    let lanes = [low, LaneQuota { lane: lane(), max: 5 }];
    let order: Vec<JobId> = store
        .claim_rung(&Holder::new("w"), &lanes, 9, LONG)
        .await
        .unwrap()
        .into_iter()
        .map(|holding| holding.job.id)
        .collect();
    assert_eq!(order, [late, normal]);
}

#[tokio::test]
async fn backing_off_after_a_loss_stays_within_the_kinds_bound() {
    let store = in_memory().await;
    let backoff = Backoff { first: Duration::from_secs(2), max: Duration::from_secs(3) };
    let retry = RetryPolicy { attempts: 100, backoff };
    let pointer = accepted(&store, NewJob { retry, ..new_job("a") }).await;
    let holder = Holder::new("w");
    claimed(&store, &holder, &pointer, Duration::ZERO).await;
    for _ in 0..40 {
        claimed(&store, &holder, &pointer, Duration::ZERO).await; // lost again
    }
    let now = store.now().await.unwrap();
    assert_eq!(store.reap(1).await.unwrap().len(), 1);
    let job = store.job(&Scope::All, pointer.0).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt), (State::Pending, 41));
    assert!(job.due_at.since(now) <= backoff.max + Duration::from_secs(1));
}
