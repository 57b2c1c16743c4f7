//! How jobs and workers end when something else does.

use mapae::broker::{self, BrokerPlan};
use mapae::store::memory::Memory;

use super::*;

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
pub(super) fn gated(gate: &Arc<Semaphore>, runs: &Arc<AtomicU32>) -> Handlers {
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

/// On a clock that goes on only while everything waits.
#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_heed_its_time_is_dropped_and_its_slot_comes_back() {
    let plan = BrokerPlan { url: "embedded:".into(), database_url: "memory:".into() };
    let (store, broker) = (Arc::new(Memory::in_real_time()), broker::open(&plan).unwrap());
    let site = Site::around(store, broker, Duration::from_secs(3600));
    let mut handlers = Handlers::default();
    handlers.add_fn("deaf", |(): (), _: Context| std::future::pending::<Result<(), Failure>>()).timeout =
        Duration::from_millis(50);
    handlers.add_fn("k", |(): (), _: Context| async move { Ok(()) });
    let worker = site.worker(handlers, |plan| plan.slots = 1).await;
    let deaf = site.submit("deaf", Value::Null, |job| job.retry = once()).await;
    let job = site.ended(deaf).await;
    assert_eq!((job.state, &*job.failure.unwrap().code), (State::Failed, "job-timeout"));
    let next = site.submit("k", Value::Null, |_| {}).await;
    assert_eq!(site.ended(next).await.state, State::Succeeded);
    worker.drain().await;
}
