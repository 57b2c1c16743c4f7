//! What a worker reads, holds and hands back.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_holds_no_more_than_its_slots_and_prefetch() {
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, Moods { delay: 30, ..Moods::default() }, 8);
        let stage = Stage::new(ground, broker, Watch::shut(), NEVER).ensured().await;
        let worker = stage.worker(sized(2, 3)).await;
        let jobs = stage.submit_many(20).await;
        let unstarted = if way == Settling::AtFinish { 5 } else { 3 };
        soon("it reads ahead", async || (stage.broker.depth().1 == unstarted).then_some(())).await;
        // Reading goes on as jobs end.
        for ended in (4..=20).step_by(4) {
            stage.watch.let_pass(4);
            soon("they end", async || (stage.watch.ended() == ended).then_some(())).await;
        }
        for id in jobs {
            stage.succeeded(id, 1).await;
        }
        assert!(stage.broker.held_most() <= 5, "held {}", stage.broker.held_most());
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_hands_back_what_has_not_started() {
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 9);
        let stage = Stage::new(ground, broker, Watch::shut(), NEVER).ensured().await;
        let worker = stage.worker(sized(1, 3)).await;
        let jobs = stage.submit_many(4).await;
        stage.watch.until_running(1).await;
        let read = if way == Settling::AtFinish { 4 } else { 3 };
        soon("all are read", async || (stage.broker.depth() == (0, read)).then_some(())).await;

        let draining = tokio::spawn(worker.drain());
        // At once, while the one that runs goes on.
        stage.waiting(3).await;
        assert_eq!(stage.watch.order().len(), 1, "nothing starts any more");
        stage.watch.let_pass(ALL);
        tokio::time::timeout(PATIENCE, draining).await.expect("drains").unwrap();

        let mut attempts = Vec::new();
        for id in &jobs {
            attempts.push(stage.site.job(*id).await.attempt);
        }
        attempts.sort_unstable();
        assert_eq!(attempts, [0, 0, 0, 1]);
        let next = stage.worker(named("next")).await;
        for id in jobs {
            stage.succeeded(id, 1).await;
        }
        stage.broker_is_empty().await;
        next.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_life_left_comes_before_anything_new() {
    everywhere(&[Settling::AtFinish], async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 10);
        let stage = Stage::new(ground, broker, Watch::open(), NEVER).ensured().await;
        let left = stage.submit_many(12).await;
        stage.waiting(12).await;
        let plan = IntakePlan { lanes: vec![lane()], consumer: Holder::new("w"), take_over_idle: NEVER };
        let earlier = stage.broker.open(&plan).await.unwrap();
        assert_eq!(earlier.next(100, &[], Duration::ZERO).await.unwrap().len(), 12);
        drop(earlier);
        let new = stage.submit_many(6).await;
        stage.waiting(6).await;

        let worker = stage.worker(sized(1, 1)).await;
        for id in left.iter().chain(&new) {
            stage.succeeded(*id, 1).await;
        }
        let first: BTreeSet<JobId> = stage.watch.order()[..12].iter().copied().collect();
        assert_eq!(first, left.into_iter().collect());
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_fail_make_it_unready_and_reads_that_work_ready_again() {
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 11);
        let stage = Stage::new(ground, broker, Watch::open(), NEVER).ensured().await;
        let worker = stage.worker(|_| {}).await;
        let mut readiness = worker.readiness();
        let mut phase = async |wanted: Phase| {
            let reached = readiness.wait_for(|now| now.phase == wanted);
            let now = *tokio::time::timeout(PATIENCE, reached).await.expect("bounded").unwrap();
            now.failures_in_a_row
        };
        phase(Phase::Consuming).await;
        stage.broker.fail_reads(true);
        assert!(phase(Phase::Unhealthy).await >= 3, "one hiccup is not enough");
        stage.broker.fail_reads(false);
        assert_eq!(phase(Phase::Consuming).await, 0);
        let id = stage.submit(1).await;
        stage.succeeded(id, 1).await;
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_for_orphans_that_fails_is_a_failed_read_and_loses_nothing_that_was_read() {
    everywhere(&[Settling::AtFinish], async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 12);
        let stage = Stage::new(ground, broker, Watch::shut(), NEVER).ensured().await;
        // Room for one more than there is.
        let worker = stage
            .worker(|plan| {
                sized(1, 3)(plan);
                watchful("w")(plan);
            })
            .await;
        let jobs = stage.submit_many(3).await;
        stage.watch.until_running(1).await;
        soon("all are read", async || (stage.broker.depth() == (0, 3)).then_some(())).await;
        let mut readiness = worker.readiness();
        let before = stage.broker.failed_reads();
        stage.broker.fail_reads(true);
        soon("looks fail", async || {
            let broker = &stage.broker;
            (broker.failed_looks() >= 1 && broker.failed_reads() >= before + 4).then_some(())
        })
        .await;
        assert_eq!(readiness.borrow_and_update().phase, Phase::Unhealthy, "not started over");
        // What was read before can run although nothing can be read.
        stage.watch.let_pass(ALL);
        for id in jobs {
            stage.site.ended(id).await;
        }
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pointer_that_waits_is_not_taken_in_twice() {
    everywhere(&[Settling::AtFinish], async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 13);
        let stage = Stage::new(ground, broker, Watch::shut(), NEVER).ensured().await;
        let worker = stage
            .worker(|plan| {
                sized(1, 4)(plan);
                watchful("w")(plan);
            })
            .await;
        let jobs = stage.submit_many(3).await;
        stage.watch.until_running(1).await;
        soon("all are read", async || (stage.broker.depth() == (0, 3)).then_some(())).await;
        stage.broker.pass(NEVER / 2);
        soon("they are offered again", async || (stage.broker.offered_again() >= 2).then_some(())).await;

        stage.watch.let_pass(ALL);
        for id in jobs {
            stage.succeeded(id, 1).await;
        }
        stage.broker_is_empty().await;
        assert_eq!(stage.count("mapae_deliveries_total", "run"), 3);
        assert_eq!(stage.count("mapae_deliveries_total", "finished"), 0);
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_resource_takes_no_place_of_what_could_start() {
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 16);
        let stage = Stage::new(ground, broker, Watch::open(), NEVER).ensured().await;
        // A pointer that comes before its lane would be refused, and there is no keeper to publish it again.
        let heavy = NewJob::new(owner(), Kind::new("heavy").unwrap(), Value::Null).lane();
        stage.broker.ensure(&[heavy]).await.unwrap();
        let hold = Arc::new(Semaphore::new(0));
        let mut handlers = stage.watch.handlers();
        let begun = Arc::new(AtomicUsize::new(0));
        let (held, begins) = (hold.clone(), begun.clone());
        let heavy = handlers.add_fn("heavy", move |(): (), _: Context| {
            let held = held.clone();
            begins.fetch_add(1, Ordering::SeqCst);
            async move { held.acquire().await.map(|permit| permit.forget()).map_err(|_| Failure::cancelled()) }
        });
        heavy.needs = [("ai", 1)].into_iter().collect();
        let worker = stage
            .site
            .worker(handlers, |plan| {
                sized(4, 4)(plan);
                plan.capacity = [("ai", 1)].into_iter().collect();
            })
            .await;
        let mut heavy = Vec::new();
        for _ in 0..30 {
            heavy.push(stage.site.submit("heavy", Value::Null, |_| {}).await);
        }
        soon("one has the resource", async || (begun.load(Ordering::SeqCst) == 1).then_some(())).await;

        for id in stage.submit_many(10).await {
            stage.succeeded(id, 1).await;
        }

        hold.add_permits(heavy.len());
        for id in heavy {
            let job = stage.site.ended(id).await;
            assert_eq!((job.state, job.attempt), (State::Succeeded, 1));
        }
        stage.broker_is_empty().await;
        worker.drain().await;
    })
    .await;
}

/// On a clock that goes on only while everything waits.
#[tokio::test(start_paused = true)]
async fn a_worker_without_prefetch_reads_on_as_soon_as_a_job_is_settled() {
    let memory = Memory::in_real_time();
    let store = Arc::new(memory.clone());
    let ground = Ground { name: "memory", store, memory: Some(memory), database: None };
    let broker = Unruly::new(Settling::AtFinish, Moods::default(), 15);
    let stage = Stage::new(&ground, broker, Watch::open(), NEVER).ensured().await;
    let jobs = stage.submit_many(20).await;
    stage.waiting(20).await;
    let worker = stage.worker(sized(1, 0)).await;
    stage.watch.until_running(1).await;
    let began = tokio::time::Instant::now();
    for id in jobs {
        stage.succeeded(id, 1).await;
    }
    assert!(began.elapsed() < IDLE_WAIT, "waited for nothing: {:?}", began.elapsed());
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_answer_does_not_hold_up_draining() {
    everywhere(&BOTH, async |ground, way| {
        let broker = Unruly::new(way, Moods::default(), 14);
        let stage = Stage::new(ground, broker, Watch::open(), NEVER);
        stage.broker.be_silent(true);
        let worker = stage.worker(|_| {}).await;
        tokio::time::timeout(PATIENCE, worker.drain()).await.expect("drains");
    })
    .await;
}
