//! The runtime while something around it fails: dead lines, lost sessions, answers a database refuses,
//! receivers that hang, handles that are dropped.

mod claims;
mod ends;
pub(crate) mod line;
mod pooler;
mod presence;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use mapae::handler::{Context, Handlers, Outcome, Stopped, Task};
use mapae::job::State;
use mapae::job::lease::{Holder, Lease};
use mapae::job::limit::{Limit, Limits};
use mapae::job::name::{IdempotencyKey, JobId, Kind};
use mapae::job::record::{Checkpoint, NewJob, Output};
use mapae::job::retry::{Backoff, Failure, RetryPolicy, Verdict};
use mapae::keeper::tell::{Courier, LinePlan, NotTaken, TellPlan};
use mapae::keeper::{self, KeeperPlan};
use mapae::store::contract::{
    Beat, Claim, Control, Delivery, Join, Member, Receiver, Retention, Scope, SettleError, Settlement, Store,
    StoreError, WorkerReport,
};
use mapae::store::{self, Postgres};
use mapae::worker::{self, WorkerPlan};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row, SqliteConnection};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use self::line::Line;
use crate::site::{Database, Gate, PATIENCE, Site, databases, fresh, owner, plan, postgres};
use crate::stores::soon;

/// So long that in these tests only a worker's presence can end a lease.
const LONG: Duration = Duration::from_secs(600);

fn at(url: &str) -> Database {
    Database { name: "postgres", url: url.into(), _folder: Arc::default() }
}

/// A database and a line to it, where there is a server.
async fn lined() -> Option<(String, Line)> {
    let url = fresh(&postgres()?).await;
    store::open(&url, false).await.unwrap().migrate().await.unwrap();
    let line = Line::to(&url).await;
    Some((url, line))
}

fn new() -> NewJob {
    NewJob::new(owner(), Kind::new("k").unwrap(), Value::Null)
}

fn once() -> RetryPolicy {
    RetryPolicy { attempts: 1, ..RetryPolicy::default() }
}

fn keyed(key: &str) -> NewJob {
    NewJob { idempotency: Some((IdempotencyKey::new(key).unwrap(), [0; 32])), ..new() }
}

fn short(plan: &mut WorkerPlan) {
    plan.timing.lease = Duration::from_secs(1);
}

/// Within what a test waits for anything.
async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Until `sessions` of the database wait for a lock.
async fn waiting(connection: &mut PgConnection, sessions: i64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let row = sqlx::query(
            "select count(*) as n from pg_stat_activity
              where datname = current_database() and wait_event_type = 'Lock'",
        )
        .fetch_one(&mut *connection)
        .await
        .unwrap();
        if row.get::<i64, _>("n") >= sessions {
            return;
        }
        assert!(Instant::now() < deadline, "{sessions} sessions never waited for a lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn claim(store: &dyn Store, member: &dyn Member, id: JobId) -> Lease {
    let mut answers = store.claim(member.holder(), &[(id, owner())], LONG).await.unwrap();
    match answers.remove(0) {
        Claim::Run(holding) => holding.lease,
        other => panic!("{other:?} instead of a lease"),
    }
}

fn strict(name: &str, kind: &str) -> Join {
    Join { name: name.into(), strict: true, kinds: vec![Kind::new(kind).unwrap()], slots: 1 }
}

/// A task written without the care that [`Context::keep`] takes.
struct Careless;

#[async_trait]
impl Task for Careless {
    async fn run(&self, _: &Context) -> Result<Outcome, Failure> {
        Ok(Outcome::Done(Some(Output::Inline(json!("half a \0 line")))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_the_database_refuses_ends_its_job() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("quoted", |(): (), _: Context| async move {
            Err::<(), _>(Failure::terminal("vendor", "a bad byte \0 in the answer"))
        });
        handlers.add_fn("built", |(): (), _: Context| async move {
            Err::<(), _>(Failure { message: "a bad byte \0".into(), ..Failure::terminal("vendor", "") })
        });
        handlers.add_task(Kind::new("careless").unwrap(), Arc::new(Careless));
        let worker = site.worker(handlers, |_| {}).await;

        let mut codes = Vec::new();
        for kind in ["quoted", "built", "careless"] {
            let job = site.ended(site.submit(kind, Value::Null, |_| {}).await).await;
            assert_eq!(job.attempt, 1, "{}: {kind}", database.name);
            codes.push(job.failure.map(|failure| failure.code));
        }

        assert_eq!(codes[0].as_deref(), Some("vendor"), "a control character costs nobody the reason");
        if database.name == "postgres" {
            assert_eq!(codes[1].as_deref(), Some("outcome-refused"));
            assert_eq!(codes[2].as_deref(), Some("outcome-refused"));
        }
        worker.drain().await;
        site.close().await;
    }
}

/// A receiver that tells when it is given an event, and then behaves badly.
#[derive(Clone)]
struct Bad {
    asked: Arc<Notify>,
    how: Badly,
}

#[derive(Clone)]
enum Badly {
    Hangs,
    /// Its thread with it: nobody's patience ends this.
    Blocks(Gate),
    Panics,
}

#[async_trait]
impl Courier for Bad {
    async fn take(&self, _: &Delivery) -> Result<(), NotTaken> {
        self.asked.notify_one();
        match &self.how {
            Badly::Hangs => std::future::pending().await,
            Badly::Blocks(gate) => gate.block(),
            Badly::Panics => panic!("a receiver's own fault"),
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_receiver_of_events_that_hangs_blocks_or_panics_stops_no_ring_and_no_reap() {
    let (gate, _key) = Gate::shut();
    for how in [Badly::Hangs, Badly::Blocks(gate), Badly::Panics] {
        for database in databases().await {
            let mut site = Site::without_keeper(&database).await;
            site.parts.store = store::open(&database.url, true).await.unwrap();
            let mut handlers = Handlers::default();
            handlers.add_fn("k", |_: Value, _: Context| async move { Ok(()) });
            let worker = site.worker(handlers, |_| {}).await;
            let bad = Bad { asked: Arc::default(), how: how.clone() };
            let line = LinePlan {
                courier: Arc::new(bad.clone()),
                concurrent: 4,
                patience: Duration::from_secs(30),
                backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_secs(2) },
            };
            let receiver = Receiver { name: "bad".into(), events: Vec::new(), kinds: Vec::new() };
            let keeper = keeper::start(
                site.parts.clone(),
                KeeperPlan {
                    window: site.window.clone(),
                    rescan_after: Duration::from_secs(60),
                    retention: Retention::default(),
                    tell: TellPlan { receivers: vec![(receiver, line)], ..TellPlan::default() },
                    bell: Arc::default(),
                    schedules: Vec::new(),
                },
            );
            site.store().accept(new()).await.unwrap();
            within("the receiver is asked", bad.asked.notified()).await;

            // Nothing but a keeper rings for a job that was accepted by the store alone, or ends the
            // lease of a worker that is gone.
            let rung = site.store().accept(new()).await.unwrap().id;
            let abandoned = NewJob::new(owner(), Kind::new("abandoned").unwrap(), Value::Null);
            let abandoned = site.store().accept(NewJob { retry: once(), ..abandoned }).await.unwrap().id;
            let gone = site.store().join(&strict("gone", "abandoned")).await.unwrap();
            claim(&**site.store(), &*gone, abandoned).await;
            drop(gone);

            assert_eq!(site.ended(rung).await.state, State::Succeeded, "{}", database.name);
            assert_eq!(site.ended(abandoned).await.failure.unwrap().code, "worker-lost");
            worker.drain().await;
            // A receiver that hangs is waited for as long as its patience, which is nothing to a test.
            drop(keeper);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_ends_although_the_line_is_dead_and_accepts_work_again_once_it_is_good() {
    let Some((url, line)) = lined().await else { return };
    let store = store::open(&line.url, false).await.unwrap();
    let mut holder = PgConnection::connect(&url).await.unwrap();
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    let mut transaction = holder.begin().await.unwrap();
    sqlx::query("lock table mapae.jobs in access exclusive mode").execute(&mut *transaction).await.unwrap();

    // All are in the middle of their statements when the line dies, both ways to accept among them. None waits
    // long for a lock, so they ask again until then.
    let dead = CancellationToken::new();
    let mut calls = Vec::new();
    for (n, job) in [new(), new(), keyed("k1"), keyed("k2")].into_iter().enumerate() {
        let (store, dead) = (store.clone(), dead.clone());
        calls.push(tokio::spawn(async move {
            while !dead.is_cancelled() {
                drop(store.accept(job.clone()).await);
            }
        }));
        waiting(&mut watcher, n as i64 + 1).await;
    }
    let (reading, still) = (store.clone(), dead.clone());
    calls.push(tokio::spawn(async move {
        while !still.is_cancelled() {
            drop(reading.job(&Scope::All, JobId::new()).await);
        }
    }));
    waiting(&mut watcher, 5).await;
    line.freeze();
    dead.cancel();
    transaction.rollback().await.unwrap();

    for call in calls {
        within("the call ends", call).await.unwrap();
    }
    for job in [new(), keyed("k3")] {
        soon("a job is accepted", async || store.accept(job.clone()).await.ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_ends_although_the_line_is_dead() {
    let Some((url, line)) = lined().await else { return };
    let site = Site::without_keeper(&at(&line.url)).await;
    let mut handlers = Handlers::default();
    handlers.add_fn("k", |(): (), _: Context| async move { Ok(()) });
    let change = |plan: &mut WorkerPlan| {
        short(plan);
        plan.timing.drain = Duration::from_secs(1);
    };
    let worker = site.worker(handlers, change).await;
    let mut holder = PgConnection::connect(&url).await.unwrap();
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    let mut transaction = holder.begin().await.unwrap();
    sqlx::query("lock table mapae.jobs in access exclusive mode").execute(&mut *transaction).await.unwrap();
    // A claim and a heartbeat are in the middle of their statements.
    waiting(&mut watcher, 2).await;
    line.freeze();
    transaction.rollback().await.unwrap();

    within("the worker has drained", worker.drain()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_that_holds_a_key_does_not_hold_up_other_accepts() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let store = Arc::new(Postgres::open(&url, false).await.unwrap());
    store.migrate().await.unwrap();
    let mut holder = PgConnection::connect(&url).await.unwrap();
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    let mut transaction = holder.begin().await.unwrap();
    let first = store.accept_in(&mut transaction, keyed("k")).await.unwrap().id;

    // Clients that try again and again under the key fill whatever way theirs takes.
    let mut clients = Vec::new();
    for _ in 0..8 {
        let store = store.clone();
        clients.push(tokio::spawn(async move {
            loop {
                if let Ok(accepted) = store.accept(keyed("k")).await {
                    return accepted;
                }
            }
        }));
    }
    waiting(&mut watcher, 2).await;
    for _ in 0..5 {
        store.accept(new()).await.expect("a job without a key waits for nobody's transaction");
    }
    transaction.commit().await.unwrap();

    for client in clients {
        let accepted = within("the key is free", client).await.unwrap();
        assert_eq!((accepted.id, accepted.again), (first, true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_another_transaction_holds_costs_no_other_job_its_lease_or_its_end() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let store = store::open(&url, false).await.unwrap();
    store.migrate().await.unwrap();
    let mut member = store.join(&strict("w", "k")).await.unwrap();
    let mut leases = Vec::new();
    for _ in 0..8 {
        let id = store.accept(new()).await.unwrap().id;
        leases.push(claim(&*store, &*member, id).await);
    }
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut hold = other.begin().await.unwrap();
    let row = sqlx::query("select from mapae.jobs where id = $1 for update").bind(leases[0].job.0);
    row.execute(&mut *hold).await.unwrap();

    let held: Vec<_> = leases.iter().map(|lease| (lease.job, lease.token)).collect();
    let beats = member.beat(&held, LONG, &WorkerReport::default()).await.unwrap();
    assert_eq!(beats[0], Beat::Busy);
    assert_eq!(beats[1..], [Beat::Renewed { cancel_asked: false }; 7]);
    let settle = |lease: &Lease| {
        store.settle(Settlement { lease: lease.clone(), verdict: Verdict::Succeed, output: None })
    };
    let mut ended = futures_util::future::join_all(leases.iter().map(settle)).await.into_iter();
    let stuck = ended.next().unwrap();
    assert!(matches!(stuck, Err(SettleError::Store(StoreError::Locked(_)))), "{stuck:?}");
    assert!(ended.all(|ended| ended.unwrap() == State::Succeeded));

    hold.rollback().await.unwrap();
    assert_eq!(settle(&leases[0]).await.unwrap(), State::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_job_whose_row_is_held_just_now_is_asked_for_again_and_not_given_up() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let store = store::open(&url, false).await.unwrap();
    store.migrate().await.unwrap();
    let mut limits = Limits::default();
    limits.resource("ai", Limit { concurrent: Some(1), rate: None });
    limits.need(new().kind, [("ai", 1)].into_iter().collect());
    store.limit(limits);
    let id = store.accept(new()).await.unwrap().id;
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut hold = other.begin().await.unwrap();
    let row = sqlx::query("select from mapae.jobs where id = $1 for update").bind(id.0);
    row.execute(&mut *hold).await.unwrap();

    let claim = async || store.claim(&Holder::new("w"), &[(id, new().owner)], LONG).await.unwrap().remove(0);
    // As paused its pointer would be dropped, and rung again when it counts as lost.
    assert!(matches!(claim().await, Claim::Later(_)));
    hold.rollback().await.unwrap();
    assert!(matches!(claim().await, Claim::Run(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_tells_nothing_of_itself_any_more_is_not_shown() {
    for database in databases().await {
        let store = store::open(&database.url, false).await.unwrap();
        store.migrate().await.unwrap();
        let mut member = store.join(&strict("w", "k")).await.unwrap();
        let report = WorkerReport { heartbeat_ms: 60_000, ..WorkerReport::default() };
        for (seconds, shown) in [(170, 1), (200, 0)] {
            member.beat(&[], LONG, &report).await.unwrap();
            assert_eq!(store.workers().await.unwrap().len(), 1, "{}", database.name);
            if database.name == "sqlite" {
                let mut file = SqliteConnection::connect(&database.url).await.unwrap();
                let past =
                    sqlx::query("update workers set seen_at = seen_at - $1").bind(seconds * 1_000_000_i64);
                past.execute(&mut file).await.unwrap();
            } else {
                let mut other = PgConnection::connect(&database.url).await.unwrap();
                let past = "update mapae.workers set seen_at = seen_at - $1 * interval '1 second'";
                sqlx::query(past).bind(seconds).execute(&mut other).await.unwrap();
            }
            assert_eq!(store.workers().await.unwrap().len(), shown, "{} {seconds}", database.name);
        }
    }
}

/// It can be read by no program, nor by the next attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_cannot_be_read_uses_up_the_budget_instead_of_coming_back_for_ever() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let store = site.store().clone();
        let mut handlers = Handlers::default();
        handlers.add_fn("k", move |(): (), ctx: Context| {
            let store = store.clone();
            async move {
                let deep = (0..200).fold(json!(1), |value, _| json!([value]));
                let output = Output::Inline(deep);
                let stage = Checkpoint { stage: "s".into(), output, took: Duration::ZERO };
                store.checkpoint(ctx.lease(), &stage).await.map_err(|_| Failure::terminal("x", "x"))?;
                Err::<(), _>(Failure::retryable("again", "Once more."))
            }
        });
        let worker = site.worker(handlers, |_| {}).await;
        let id = site.submit("k", Value::Null, |job| job.retry.attempts = 3).await;
        let job = site.ended(id).await;
        assert_eq!((job.state, job.attempt), (State::Failed, 3), "{}", database.name);
        assert_eq!(job.failure.unwrap().code, "checkpoint-unreadable");
        worker.drain().await;
        site.close().await;
    }
}
