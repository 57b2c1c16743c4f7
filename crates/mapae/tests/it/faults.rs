//! The runtime while something around it fails: dead lines, lost sessions, answers a database refuses,
//! receivers that hang, handles that are dropped.

pub(crate) mod line;
mod pooler;
mod presence;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use mapae::handler::{Context, Handlers, Outcome, Stopped, Task};
use mapae::job::State;
use mapae::job::event::Event;
use mapae::job::lease::{Holder, Lease};
use mapae::job::limit::{Limit, Limits};
use mapae::job::name::{IdempotencyKey, JobId, Kind};
use mapae::job::record::{Checkpoint, NewJob, Output};
use mapae::job::retry::{Failure, RetryPolicy, Verdict};
use mapae::keeper::{self, EventSink, KeeperPlan};
use mapae::store::contract::{
    Beat, Claim, Control, Join, Member, Retention, Scope, SettleError, Settlement, Store, StoreError,
    WorkerReport,
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
impl EventSink for Bad {
    async fn send(&self, _: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
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
            let receiver = Bad { asked: Arc::default(), how: how.clone() };
            let keeper = keeper::start(
                site.parts.clone(),
                KeeperPlan {
                    window: site.window.clone(),
                    rescan_after: Duration::from_secs(60),
                    retention: Retention::default(),
                    sink: Some(Arc::new(receiver.clone())),
                    tell: None,
                    bell: Arc::default(),
                    schedules: Vec::new(),
                },
            );
            site.store().accept(new()).await.unwrap();
            within("the receiver is asked", receiver.asked.notified()).await;

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
    assert!(matches!(claim().await, Claim::Waits(_)));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_cut_off_stops_its_job_before_another_starts_it() {
    let Some((url, line)) = lined().await else { return };
    let (far, near) = (Site::without_keeper(&at(&line.url)).await, Site::new(&at(&url)).await);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut handlers = Handlers::default();
    let tell = told.clone();
    handlers.add_fn("k", move |(): (), ctx: Context| {
        let tell = tell.clone();
        async move {
            ctx.stopped().await;
            tell.lock().unwrap().push(format!("{:?}", ctx.why_stopped()));
            ctx.check()
        }
    });
    // It stops a heartbeat before its lease ends: as long as this machine may stand still here.
    let timing = |plan: &mut WorkerPlan| {
        plan.timing.lease = Duration::from_secs(12);
        plan.timing.heartbeat = Duration::from_secs(3);
    };
    let _cut_off = far.worker(handlers, timing).await;
    let id = near.submit("k", Value::Null, |_| {}).await;
    near.job_when(id, |job| job.state == State::Running).await;

    // For good: it could otherwise come back and be the one that takes the job again.
    line.cut();
    let mut handlers = Handlers::default();
    let tell = told.clone();
    handlers.add_fn("k", move |(): (), _: Context| {
        tell.lock().unwrap().push("another starts".into());
        async { Ok(()) }
    });
    let other = near.worker(handlers, |plan| plan.name = "other".into()).await;

    assert_eq!(near.ended(id).await.attempt, 2);
    assert_eq!(*told.lock().unwrap(), [format!("{:?}", Some(Stopped::LeaseLost)), "another starts".into()]);
    other.drain().await;
    near.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_gives_after_its_lease_was_given_up_is_dropped() {
    let Some((url, line)) = lined().await else { return };
    let far = Site::without_keeper(&at(&line.url)).await;
    let (stopped, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let mut handlers = Handlers::default();
    let (tell, wait) = (stopped.clone(), gate.clone());
    handlers.add_fn("gated", move |(): (), ctx: Context| {
        let (tell, wait) = (tell.clone(), wait.clone());
        async move {
            ctx.stopped().await;
            tell.notify_one();
            wait.acquire().await.map_err(|_| Failure::cancelled())?.forget();
            Ok("too late")
        }
    });
    let worker = far.worker(handlers, short).await;
    let id = far.submit("gated", Value::Null, |_| {}).await;
    far.job_when(id, |job| job.state == State::Running).await;

    line.freeze();
    within("the job is told to stop", stopped.notified()).await;
    // The line is good again, nobody else has the job, and the store would take the result.
    line.hang_up();
    soon("the database answers", async || far.store().now().await.ok()).await;
    gate.add_permits(1);
    within("the worker has drained", worker.drain()).await;

    let near = Site::new(&at(&url)).await;
    assert_ne!(near.job(id).await.state, State::Succeeded);
    let next = near.worker(gated(&Arc::new(Semaphore::new(1)), &Arc::default()), |_| {}).await;
    let job = near.ended(id).await;
    assert_eq!((job.state, job.attempt), (State::Succeeded, 2));
    next.drain().await;
    near.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_nested_deeper_than_a_row_takes_is_kept_as_a_file() {
    let deep = || (0..200).fold(json!(1), |inner, _| json!([inner]));
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("deep", move |(): (), _: Context| async move { Ok(deep()) });
        let worker = site.worker(handlers, |_| {}).await;
        let id = site.submit("deep", Value::Null, |job| job.retry.attempts = 1).await;
        let job = site.ended(id).await;
        assert_eq!((job.state, job.failure), (State::Succeeded, None), "{}", database.name);
        let output = site.store().output(&Scope::All, id).await.unwrap();
        assert!(matches!(output, Some(Output::File { .. })), "{output:?}");
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_may_take_for_ever_runs() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("k", |(): (), _: Context| async move { Ok(()) }).timeout = Duration::MAX;
        let worker = site.worker(handlers, |_| {}).await;
        let job = site.ended(site.submit("k", Value::Null, |_| {}).await).await;
        assert_eq!((job.state, job.attempt), (State::Succeeded, 1), "{}", database.name);
        worker.drain().await;
        site.close().await;
    }
}

/// A handler that ends when `gate` gives a permit, and counts its runs.
fn gated(gate: &Arc<Semaphore>, runs: &Arc<AtomicU32>) -> Handlers {
    let (gate, runs) = (gate.clone(), runs.clone());
    let mut handlers = Handlers::default();
    handlers.add_fn("gated", move |(): (), _: Context| {
        let gate = gate.clone();
        runs.fetch_add(1, Ordering::SeqCst);
        async move {
            gate.acquire().await.map_err(|_| Failure::cancelled())?.forget();
            Ok(())
        }
    });
    handlers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_handle_is_dropped_drains_and_loses_no_lease() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::default());
        let worker = site.worker(gated(&gate, &runs), |plan| plan.timing.drain = LONG).await;
        let id = site.submit("gated", Value::Null, |_| {}).await;
        // What has not begun when the drain does is handed back.
        soon("it runs", async || (runs.load(Ordering::SeqCst) == 1).then_some(())).await;

        drop(worker);
        let later = site.submit("gated", Value::Null, |_| {}).await;
        site.renewed(id).await;
        gate.add_permits(1);

        let job = site.ended(id).await;
        assert_eq!((job.state, job.attempt), (State::Succeeded, 1), "{}", database.name);
        soon("its name is free", async || site.store().workers().await.unwrap().is_empty().then_some(()))
            .await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert_eq!(site.job(later).await.state, State::Pending, "a worker that drains starts nothing");
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_claimed_while_a_drain_begins_is_handed_back_unstarted() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let site = Site::without_keeper(&at(&url)).await;
    let (gate, runs) = (Arc::new(Semaphore::new(100)), Arc::default());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let worker = site.worker(gated(&gate, &runs), |_| {}).await;
        // A claim looks at the pauses and an accept does not, so this holds up the first and not the second.
        let mut other = PgConnection::connect(&url).await.unwrap();
        let mut hold = other.begin().await.unwrap();
        sqlx::query("lock table mapae.pauses in access exclusive mode").execute(&mut *hold).await.unwrap();
        // Within one transaction the server tells of its sessions as they were at first.
        let mut watcher = PgConnection::connect(&url).await.unwrap();
        waiting(&mut watcher, 1).await;
        let id = site.submit("gated", Value::Null, |_| {}).await;
        // To the waiting claim it is still the time at which it was asked.
        sqlx::query("update mapae.jobs set due_at = due_at - interval '1 hour'")
            .execute(&mut *hold)
            .await
            .unwrap();

        drop(worker);
        hold.commit().await.unwrap();

        soon("its name is free", async || site.store().workers().await.unwrap().is_empty().then_some(()))
            .await;
        let job = site.job(id).await;
        assert_eq!((job.state, job.attempt, runs.load(Ordering::SeqCst)), (State::Pending, 0, 0));
        if job.sequence > 1 {
            break;
        }
        // The claim had not waited so long: nothing has been seen.
        assert!(Instant::now() < deadline, "it was never claimed and handed back: {job:?}");
        site.store().cancel(&Scope::All, id).await.unwrap();
    }
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_that_gives_up_a_start_ends_nothing_after_it() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::default());
        let give_up = CancellationToken::new();
        let started =
            worker::start(site.parts.clone(), gated(&gate, &runs), plan("w"), give_up.clone()).await;
        let worker = started.unwrap();
        let id = site.submit("gated", Value::Null, |_| {}).await;
        site.job_when(id, |job| job.state == State::Running).await;

        give_up.cancel();
        let later = site.submit("gated", Value::Null, |_| {}).await;
        site.renewed(id).await;
        gate.add_permits(2);

        for id in [id, later] {
            let job = site.ended(id).await;
            assert_eq!((job.state, job.attempt), (State::Succeeded, 1), "{}", database.name);
        }
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        worker.drain().await;
        site.close().await;
    }
}
