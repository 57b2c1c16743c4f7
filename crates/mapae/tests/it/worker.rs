//! A worker, a keeper and a store together, over every database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mapae::blob::BlobName;
use mapae::broker::{self, BrokerPlan};
use mapae::handler::{Context, Gathered, Handlers};
use mapae::job::State;
use mapae::job::batch::Part;
use mapae::job::name::Kind;
use mapae::job::record::{NewJob, Output, Source};
use mapae::job::resource::Amounts;
use mapae::job::retry::{Failure, FailureClass};
use mapae::store::contract::Scope;
use mapae::store::memory::Memory;
use mapae::worker::{self, IDLE_WAIT, StartError};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::site::{Gate, PATIENCE, Site, databases, plan};
use crate::stores::soon;

#[tokio::test(flavor = "multi_thread")]
async fn a_submitted_job_runs_and_its_result_is_stored() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("double", |n: u64, _: Context| async move { Ok(n * 2) });
        let worker = site.worker(handlers, |_| {}).await;

        let id = site.submit("double", json!(21), |_| {}).await;
        let job = site.ended(id).await;

        assert_eq!((job.state, job.attempt, job.failure), (State::Succeeded, 1, None), "{}", database.name);
        assert_eq!(site.store().output(&Scope::All, id).await.unwrap(), Some(Output::Inline(json!(42))));
        assert_eq!(site.story(id).await, ["accepted", "claimed", "succeeded"]);
        worker.drain().await;
        site.close().await;
    }
}

/// On one thread, so that which task runs when is the same each time, of the scheduler that takes first whoever was
/// woken last.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn jobs_that_end_at_one_moment_make_room_for_one_claim() {
    const JOBS: usize = 60;
    const SLOTS: usize = 10;
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut ids = Vec::new();
        for _ in 0..JOBS {
            ids.push(site.submit("idle", json!(null), |_| {}).await);
        }
        let mut handlers = Handlers::default();
        handlers.add_fn("idle", |(): (), _: Context| async move { Ok(()) });
        let worker = site.worker(handlers, |plan| plan.slots = SLOTS).await;

        let mut claims = BTreeSet::new();
        for id in ids {
            claims.insert(site.ended(id).await.started_at);
        }

        // As few as there can be, and some leave for what the worker does beside.
        assert!(claims.len() <= JOBS / SLOTS + 3, "{} claims in {}", claims.len(), database.name);
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_done_by_parts_waits_without_a_slot_and_puts_them_together_in_order() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("page", |page: u64, ctx: Context| async move {
            if page == 3 {
                return Err(Failure::terminal("blank", "The page is blank."));
            }
            assert_eq!(ctx.job().retry.attempts, 7, "as the whole has it");
            Ok(format!("page {page}"))
        });
        handlers.add_fn("document", |pages: u64, ctx: Context| async move {
            let kind = Kind::new("page").unwrap();
            let parts =
                ctx.gather(|| (0..pages).map(|page| Part::new(kind.clone(), json!(page))).collect()).await?;
            let told = |part: Gathered| part.output.unwrap_or_else(|| json!(part.failure.unwrap().code));
            Ok(parts.into_iter().map(told).collect::<Vec<Value>>())
        });
        // One slot: a parent that kept it would wait for ever.
        let worker = site.worker(handlers, |plan| plan.slots = 1).await;
        let id = site.submit("document", json!(5), |job| job.retry.attempts = 7).await;
        let job = site.ended(id).await;
        assert_eq!((job.state, job.attempt, &job.failure), (State::Succeeded, 1, &None), "{}", database.name);
        let whole = json!(["page 0", "page 1", "page 2", "blank", "page 4"]);
        assert_eq!(site.store().output(&Scope::All, id).await.unwrap(), Some(Output::Inline(whole)));
        assert_eq!(
            site.story(id).await,
            ["accepted", "claimed", "awaiting", "batch-ended", "claimed", "succeeded"]
        );
        let empty = site.submit("document", json!(0), |_| {}).await;
        assert_eq!(site.ended(empty).await.state, State::Succeeded, "no parts are soon done");
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_job_that_is_cancelled_are_stopped() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("slow", |(): (), ctx: Context| async move {
            ctx.stopped().await;
            ctx.check()
        });
        handlers.add_fn("whole", |(): (), ctx: Context| async move {
            let kind = Kind::new("slow").unwrap();
            ctx.gather(|| vec![Part::new(kind, Value::Null); 4]).await.map(drop)
        });
        // Two parts run, and two wait.
        let worker = site.worker(handlers, |plan| plan.slots = 2).await;
        let id = site.submit("whole", Value::Null, |_| {}).await;
        let members = || site.store().members(&Scope::All, id, None, 10);
        let parts = soon("two parts run", async || {
            let parts: Vec<_> = members().await.unwrap().into_iter().map(|part| part.job).collect();
            let states = futures_util::future::join_all(parts.iter().map(|part| site.job(*part))).await;
            let running = states.iter().filter(|job| job.state == State::Running).count();
            (running == 2).then_some(parts)
        });
        let parts = parts.await;
        assert_eq!(site.store().cancel(&Scope::All, id).await.unwrap(), State::Cancelled);
        for part in parts {
            assert_eq!(site.ended(part).await.state, State::Cancelled, "{}", database.name);
        }
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_may_pass_is_tried_again_and_the_last_one_is_a_dead_letter() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("flaky", |good_at: u32, ctx: Context| async move {
            if ctx.job().attempt < good_at { Err(Failure::retryable("flaky", "Not yet.")) } else { Ok(()) }
        });
        let worker = site.worker(handlers, |_| {}).await;

        let passes = site.submit("flaky", json!(3), |job| job.retry.attempts = 3).await;
        let fails = site.submit("flaky", json!(9), |job| job.retry.attempts = 2).await;

        assert_eq!(site.ended(passes).await.state, State::Succeeded, "{}", database.name);
        assert_eq!(
            site.story(passes).await,
            ["accepted", "claimed", "retrying", "claimed", "retrying", "claimed", "succeeded"]
        );
        let dead = site.ended(fails).await;
        let failure = dead.failure.expect("a dead letter says why");
        assert_eq!((dead.state, dead.attempt), (State::Failed, 2));
        assert_eq!(
            (failure.code.as_str(), failure.class, failure.attempt),
            ("flaky", FailureClass::Retryable, 2)
        );
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_file_is_gone_is_stale_before_its_work_begins() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let ran = Arc::new(AtomicU32::new(0));
        let runs = ran.clone();
        let mut handlers = Handlers::default();
        handlers.add_fn("file", move |_: Value, _: Context| {
            runs.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        });
        let worker = site.worker(handlers, |_| {}).await;
        let with_file = |job: &mut NewJob| {
            let file = BlobName::original(job.id.0).to_string();
            let (name, media_type) = ("a.txt".into(), "text/plain".into());
            job.source = Some(Source { name, bytes: 1, sha256: "0".into(), media_type, file });
        };
        let gone = site.submit("file", Value::Null, with_file).await;
        let job = site.ended(gone).await;
        assert_eq!((job.state, job.attempt), (State::Stale, 1), "{}", database.name);
        assert_eq!(job.failure.unwrap().code, "source-gone");
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failed_attempt_and_nothing_else() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("bomb", |(): (), _: Context| async move {
            if true {
                panic!("the secret content");
            }
            Ok(())
        });
        handlers.add_fn("calm", |(): (), _: Context| async move { Ok(()) });
        let worker = site.worker(handlers, |_| {}).await;

        let bomb = site.submit("bomb", Value::Null, |job| job.retry.attempts = 1).await;
        let calm = site.submit("calm", Value::Null, |_| {}).await;

        let failure = site.ended(bomb).await.failure.unwrap();
        assert_eq!(failure.code, "handler-panicked");
        assert!(!failure.message.contains("secret"), "a panic's words are not repeated");
        assert_eq!(site.ended(calm).await.state, State::Succeeded, "{}", database.name);
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_that_is_cancelled_is_told_and_ends_cancelled() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("endless", |(): (), ctx: Context| async move {
            ctx.stopped().await;
            ctx.check()
        });
        let worker = site.worker(handlers, |_| {}).await;
        let id = site.submit("endless", Value::Null, |_| {}).await;
        site.job_when(id, |job| job.state == State::Running).await;

        assert_eq!(site.store().cancel(&Scope::All, id).await.unwrap(), State::Running, "asked, not done");
        assert_eq!(site.ended(id).await.state, State::Cancelled, "{}", database.name);
        assert_eq!(site.story(id).await, ["accepted", "claimed", "cancel-requested", "cancelled"]);
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_takes_too_long_is_stopped_and_its_slot_comes_back() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers
            .add_fn("slow", |(): (), ctx: Context| async move {
                ctx.stopped().await;
                Err::<(), _>(Failure::retryable("interrupted", "Stopped in the middle."))
            })
            .timeout = Duration::from_millis(50);
        let worker = site.worker(handlers, |plan| plan.slots = 1).await;

        let id = site.submit("slow", Value::Null, |job| job.retry.attempts = 2).await;
        let failure = site.ended(id).await.failure.unwrap();

        assert_eq!(
            (failure.code.as_str(), failure.class),
            ("job-timeout", FailureClass::Timeout),
            "{}",
            database.name
        );
        assert_eq!(failure.attempt, 2, "a timeout is tried again");
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_hands_back_what_does_not_end_and_uses_no_attempt() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let started = Arc::new(Notify::new());
        let mut handlers = Handlers::default();
        let told = started.clone();
        handlers.add_fn("long", move |(): (), ctx: Context| {
            let told = told.clone();
            async move {
                told.notify_one();
                ctx.stopped().await;
                ctx.check()
            }
        });
        let worker = site.worker(handlers, |plan| plan.timing.drain = Duration::from_millis(50)).await;
        let id = site.submit("long", Value::Null, |_| {}).await;
        tokio::time::timeout(PATIENCE, started.notified()).await.unwrap();

        worker.drain().await;

        let job = site.job(id).await;
        assert_eq!((job.state, job.attempt), (State::Pending, 0), "{}", database.name);
        assert_eq!(site.story(id).await, ["accepted", "claimed", "released"]);
        assert_eq!(site.store().workers().await.unwrap(), [], "its name is free");
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_is_done_is_not_done_again() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let converted = Arc::new(AtomicU32::new(0));
        let count = converted.clone();
        let mut handlers = Handlers::default();
        handlers.add_fn("staged", move |(): (), ctx: Context| {
            let count = count.clone();
            async move {
                let pages: u32 =
                    ctx.stage("convert", || async { Ok(count.fetch_add(1, Ordering::SeqCst) + 7) }).await?;
                let text: String = ctx.stage("text", || async { Ok("가".repeat(200_000)) }).await?;
                if ctx.job().attempt == 1 {
                    return Err(Failure::retryable("later", "Fails after its stages."));
                }
                Ok(json!({ "pages": pages, "text": text.chars().count() }))
            }
        });
        let worker = site.worker(handlers, |_| {}).await;

        let id = site.submit("staged", Value::Null, |_| {}).await;
        assert_eq!(site.ended(id).await.state, State::Succeeded, "{}", database.name);

        assert_eq!(converted.load(Ordering::SeqCst), 1);
        let output = site.store().output(&Scope::All, id).await.unwrap();
        assert_eq!(
            output,
            Some(Output::Inline(json!({ "pages": 7, "text": 200_000 }))),
            "large ones come from a file"
        );
        assert_eq!(
            site.story(id).await,
            ["accepted", "claimed", "stage", "stage", "retrying", "claimed", "succeeded"]
        );
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_its_resource_without_an_attempt_while_others_run() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let gate = Arc::new(Semaphore::new(0));
        let mut handlers = Handlers::default();
        let held = gate.clone();
        handlers
            .add_fn("ai", move |(): (), _: Context| {
                let held = held.clone();
                async move {
                    held.acquire().await.map_err(|_| Failure::cancelled())?.forget();
                    Ok(())
                }
            })
            .needs = [("ai", 1)].into_iter().collect();
        handlers.add_fn("plain", |(): (), _: Context| async move { Ok(()) });
        let worker = site.worker(handlers, |plan| plan.capacity = [("ai", 1)].into_iter().collect()).await;

        let first = site.submit("ai", Value::Null, |_| {}).await;
        site.job_when(first, |job| job.state == State::Running).await;
        let second = site.submit("ai", Value::Null, |_| {}).await;
        let plain = site.submit("plain", Value::Null, |_| {}).await;
        assert_eq!(site.ended(plain).await.state, State::Succeeded, "{}", database.name);
        let waiting = site.job(second).await;
        assert_eq!((waiting.state, waiting.attempt), (State::Pending, 0), "waits for `ai`");

        gate.add_permits(2);
        assert_eq!(site.ended(first).await.state, State::Succeeded);
        assert_eq!(site.ended(second).await.attempt, 1);
        worker.drain().await;
        site.close().await;
    }
}

/// On a clock that goes on only while everything waits.
#[tokio::test(start_paused = true)]
async fn a_resource_given_back_starts_the_next_job_at_once_whatever_other_kinds_there_are() {
    let plan = BrokerPlan { url: "embedded:".into(), database_url: "memory:".into() };
    let (store, broker) = (Arc::new(Memory::in_real_time()), broker::open(&plan).unwrap());
    let site = Site::around(store, broker, Duration::from_secs(3600));
    let mut handlers = Handlers::default();
    handlers.add_fn("ai", |(): (), _: Context| async move { Ok(()) }).needs =
        [("ai", 1)].into_iter().collect();
    handlers.add_fn("plain", |(): (), _: Context| async move { Ok(()) });
    let mut jobs = Vec::new();
    for _ in 0..10 {
        jobs.push(site.submit("ai", Value::Null, |_| {}).await);
    }
    let worker = site.worker(handlers, |plan| plan.capacity = [("ai", 1)].into_iter().collect()).await;
    site.ended(jobs[0]).await;
    let began = tokio::time::Instant::now();
    for id in jobs {
        site.ended(id).await;
    }
    assert!(began.elapsed() < 2 * IDLE_WAIT, "waited for nothing: {:?}", began.elapsed());
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_need_that_can_never_be_met_is_refused_at_the_start() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("big", |(): (), _: Context| async move { Ok(()) }).needs =
            [("memory", 8)].into_iter().collect();
        let mut plan = plan("w");
        plan.capacity = [("memory", 4)].into_iter().collect::<Amounts>();
        let refused = worker::start(site.parts.clone(), handlers, plan, CancellationToken::new()).await.err();
        assert!(matches!(refused, Some(StartError::NeverEnough { .. })), "{}", database.name);
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_worker_of_one_name_takes_another_or_is_refused_where_it_was_configured() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let first = site.worker(Handlers::default(), |_| {}).await;
        let second = site.worker(Handlers::default(), |_| {}).await;
        assert_eq!(
            (first.holder().name.as_str(), second.holder().name.as_str()),
            ("w", "w-2"),
            "{}",
            database.name
        );

        let mut strict = plan("w");
        strict.strict_name = true;
        let refused =
            worker::start(site.parts.clone(), Handlers::default(), strict, CancellationToken::new()).await;
        assert!(matches!(refused.err(), Some(StartError::Join(_))));

        first.drain().await;
        let third = site.worker(Handlers::default(), |plan| plan.strict_name = true).await;
        assert_eq!(third.holder().name, "w", "the name is free again");
        second.drain().await;
        third.drain().await;
        site.close().await;
    }
}

/// Every peer that renews leases on the runtime of its handlers runs such a job twice.
#[test]
fn a_handler_that_blocks_every_thread_keeps_its_lease() {
    let blocked = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for database in other.block_on(databases()) {
        let (gate, key) = Gate::shut();
        let runs = Arc::new(AtomicU32::new(0));
        let handlers = || {
            let (gate, runs) = (gate.clone(), runs.clone());
            let mut handlers = Handlers::default();
            handlers.add_fn("block", move |(): (), _: Context| {
                let (gate, runs) = (gate.clone(), runs.clone());
                async move {
                    runs.fetch_add(1, Ordering::SeqCst);
                    gate.block();
                    Ok(())
                }
            });
            handlers
        };
        let first = blocked.block_on(async {
            let site = Site::new(&database).await;
            let worker = site.worker(handlers(), |_| {}).await;
            (site, worker)
        });
        // Everything else stands on another runtime, as another process would.
        other.block_on(async {
            let site = Site::new(&database).await;
            let mut ids = Vec::new();
            for _ in 0..2 {
                ids.push(site.submit("block", Value::Null, |_| {}).await);
            }
            soon("both threads are blocked", async || (runs.load(Ordering::SeqCst) == 2).then_some(())).await;
            let second = site.worker(handlers(), |plan| plan.name = "v".into()).await;
            for id in &ids {
                site.renewed(*id).await;
            }
            drop(key);
            for id in ids {
                let job = site.ended(id).await;
                assert_eq!((job.state, job.attempt), (State::Succeeded, 1), "{}", database.name);
            }
            second.drain().await;
            site.close().await;
        });
        assert_eq!(runs.load(Ordering::SeqCst), 2, "{}: none ran twice", database.name);
        blocked.block_on(async {
            first.1.drain().await;
            first.0.close().await;
        });
    }
}
