//! The keeper: its statements over every database, and what it counts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mapae::blob::{BlobName, PutLimits};
use mapae::broker::{self, BrokerPlan};
use mapae::job::State;
use mapae::job::event::{EventKind, Position};
use mapae::job::lease::Holder;
use mapae::job::name::{JobId, Kind, Owner};
use mapae::job::record::{Callback, FirstRing, NewJob, Source};
use mapae::job::retry::Backoff;
use mapae::job::timestamp::Timestamp;
use mapae::keeper::tell::{LinePlan, NotTaken, TellPlan, Then};
use mapae::keeper::{self, KeeperPlan};
use mapae::store::Postgres;
use mapae::store::contract::{
    Claim, Control, Delivery, EventFilter, LaneQuota, Receiver, Retention, RingPlan, Run, Scope, Store, Tell,
    Tidy, View,
};
use mapae::store::memory::Memory;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::site::{self, Site, databases, owner};
use crate::stores::soon;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn every_duty_can_be_done_on_an_empty_database_and_on_one_with_work() {
    for database in databases().await {
        let site = Site::without_keeper(&database).await;
        for round in 0..2 {
            let store = site.store();
            store.next_due(Duration::from_secs(1)).await.unwrap();
            let plan = RingPlan {
                window: 10,
                least: 0,
                again: Duration::from_secs(60),
                rescan: Some(Vec::new()),
                max: 10,
            };
            let rung = store.ring(&plan).await.unwrap();
            assert_eq!(rung.len(), round * 3, "{}", database.name);
            store.rung(&[], Duration::from_secs(60)).await.unwrap();
            store.windows(10).await.unwrap();
            store.reap(10).await.unwrap();
            store.expire(10).await.unwrap();
            store.spread(&[], 10).await.unwrap();
            store.told(&[]).await.unwrap();
            store.prune(&Retention::default(), 10).await.unwrap();
            store.garbage(10).await.unwrap();
            store.swept(&[]).await.unwrap();
            store.referenced(&["originals/x".into()]).await.unwrap();
            store.stats().await.unwrap();
            for kind in ["a", "b", "b"] {
                // Not due when accepted, so that the door does not ring for it.
                site.submit(kind, Value::Null, |job| job.run_at = Some(Timestamp::default())).await;
            }
        }
        site.close().await;
    }
}

/// How often this was counted.
fn counted(site: &Site, name: &'static str, label: &str) -> u64 {
    site.parts.metrics.counts().get(&(name, label.to_owned())).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ends_without_a_worker_is_counted_by_the_keeper_that_ended_it() {
    for database in databases().await {
        let mut site = Site::without_keeper(&database).await;
        let overdue = site.submit("a", Value::Null, |job| job.deadline = Some(Timestamp::default())).await;
        let lost = site.submit("a", Value::Null, |job| job.retry.attempts = 1).await;
        let lost_once = site.submit("a", Value::Null, |_| {}).await;
        let stranger = Holder::new("stranger");
        let pointers = [(lost, owner()), (lost_once, owner())];
        let claims = site.store().claim(&stranger, &pointers, Duration::ZERO).await.unwrap();
        assert!(matches!(claims[..], [Claim::Run(_), Claim::Run(_)]), "{claims:?}");
        site.keep();
        for id in [overdue, lost] {
            assert_eq!(site.ended(id).await.state, State::Failed, "{}", database.name);
        }
        site.job_when(lost_once, |job| job.state == State::Pending).await;
        let count = |name, label: &str| counted(&site, name, label);
        soon("all is counted", async || (count("mapae_reaped_total", "a") == 2).then_some(())).await;
        soon("both ends", async || (count("mapae_jobs_finished_total", "failed") >= 2).then_some(())).await;
        soon("the door", async || (count("mapae_published_total", "accept") >= 3).then_some(())).await;
        assert_eq!(count("mapae_jobs_finished_total", "failed"), 2, "{}", database.name);
        assert_eq!(count("mapae_published_total", "accept"), 3);
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_the_database_for_long_is_not_taken_for_lost() {
    let (memory, mut site) = in_memory();
    let waits = site.submit("a", Value::Null, |_| {}).await;
    assert_eq!(site.job(waits).await.hint, 1);
    memory.advance(Duration::from_secs(600));
    site.keep();
    // Deadlines are looked at before what is to be rung again: after the second there was a whole pass.
    for _ in 0..2 {
        let overdue = site.submit("b", Value::Null, |job| job.deadline = Some(Timestamp::default())).await;
        site.ended(overdue).await;
    }
    assert_eq!(site.job(waits).await.hint, 1);
    assert_eq!(counted(&site, "mapae_rescanned_total", "keeper"), 0);
    site.close().await;
}

#[tokio::test]
async fn events_of_another_server_are_told_before_those_of_the_one_they_were_restored_on() {
    let Some(server) = site::postgres() else { return };
    let url = site::fresh(&server).await;
    let store = Postgres::open(&url, false).await.unwrap();
    store.migrate().await.unwrap();
    let new = || NewJob::new(owner(), Kind::new("a").unwrap(), json!({}));
    let jobs = |after: Position| {
        let store = &store;
        async move {
            let filter = EventFilter { job: None, after };
            let events = store.events(&Scope::All, &filter, 100).await.unwrap();
            events.into_iter().map(|event| event.job).collect::<Vec<JobId>>()
        }
    };
    let old = [store.accept(new()).await.unwrap().id, store.accept(new()).await.unwrap().id];
    // As a dump of a server that had come further has it.
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let forged = "update mapae.events
                     set transaction = (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000)::text::xid8";
    sqlx::query(forged).execute(&mut connection).await.unwrap();
    let there: (i64,) = sqlx::query_as("select max(transaction::text::bigint) from mapae.events")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(jobs(Position::default()).await, [], "they stand where this server has not come to");

    store.prune(&Retention::default(), 100).await.unwrap();
    let young = store.accept(new()).await.unwrap().id;
    let all = [old[0], old[1], young];
    soon("all are told", async || (jobs(Position::default()).await == all).then_some(())).await;
    // Whoever had read the old server's events is told everything again, rather than nothing for long.
    let read = Position { transaction: there.0.unsigned_abs(), number: 2, at: 0 };
    assert_eq!(jobs(read).await, all);
    // Nothing is left to do, and what has been told stays where it is.
    let last = store.events(&Scope::All, &EventFilter::default(), 100).await.unwrap();
    store.prune(&Retention::default(), 100).await.unwrap();
    assert_eq!(store.events(&Scope::All, &EventFilter::default(), 100).await.unwrap(), last);
    store.close().await;
}

/// A site on a store in memory whose clock stands still.
fn in_memory() -> (Memory, Site) {
    let memory = Memory::new();
    let plan = BrokerPlan { url: "embedded:".into(), database_url: String::new() };
    let after = Duration::from_secs(60);
    let site = Site::around(Arc::new(memory.clone()), broker::open(&plan).unwrap(), after);
    (memory, site)
}

/// Time is counted and not waited for.
#[tokio::test(start_paused = true)]
async fn what_is_past_its_retention_goes_pass_after_pass_without_a_pause() {
    let (memory, mut site) = in_memory();
    let mut last = None;
    for _ in 0..3_500 {
        let id = site.submit("a", Value::Null, |_| {}).await;
        memory.cancel(&Scope::All, id).await.unwrap();
        last = Some(id);
    }
    memory.advance(2 * Retention::default().finished);
    let began = Instant::now();
    site.keep();
    let last = last.unwrap();
    let gone = async || memory.job(&Scope::All, last).await.unwrap().is_none().then_some(());
    soon("all are gone", gone).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}: a pass takes a thousand", began.elapsed());
    site.close().await;
}

/// Time is counted and not waited for.
#[tokio::test(start_paused = true)]
async fn a_job_is_rung_within_a_quarter_of_a_second_of_its_time() {
    let (memory, mut site) = in_memory();
    let now = memory.now().await.unwrap();
    let id = site.submit("a", Value::Null, |job| job.run_at = Some(now + 2 * HOUR)).await;
    site.keep();
    // It has looked, and found nothing to do for long.
    tokio::time::sleep(Duration::from_secs(60)).await;
    memory.advance(3 * HOUR);
    let began = Instant::now();
    let rung = async || memory.job(&Scope::All, id).await.unwrap().filter(|job| job.hint > 0).map(drop);
    soon("it is rung", rung).await;
    let took = began.elapsed();
    assert!(took <= Duration::from_millis(250), "{took:?}");
    site.close().await;
}

#[tokio::test]
async fn nothing_is_removed_from_a_file_store_that_is_not_the_databases() {
    let (memory, mut site) = in_memory();
    let mut name = None;
    let with_file = |job: &mut NewJob| {
        let file = BlobName::original(job.id.0);
        let source = Source {
            name: "a.txt".into(),
            bytes: 1,
            sha256: "0".into(),
            media_type: "text/plain".into(),
            file: file.to_string(),
        };
        job.source = Some(source);
        name = Some(file);
    };
    let id = site.submit("a", Value::Null, with_file).await;
    let (name, blobs) = (name.unwrap(), site.parts.blobs.clone());
    let body = futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"x"))]);
    blobs.put(&name, body, PutLimits { bytes_max: 9 }).await.unwrap();
    memory.delete(&Scope::All, id).await.unwrap();
    // Another disk is mounted there now.
    blobs.expect(uuid::Uuid::new_v4());
    site.keep();
    soon("its row is gone", async || (memory.garbage(9).await.unwrap().len() == 1).then_some(())).await;
    // The keeper ends its pass first.
    site.close().await;
    assert_eq!(memory.garbage(9).await.unwrap().len(), 1, "it is still to be removed");
}

/// A receiver that says when it is asked, and answers once it may, or never.
struct Slow {
    asked: Arc<Notify>,
    may: Option<Arc<Notify>>,
}

#[async_trait]
impl mapae::keeper::tell::Courier for Slow {
    async fn take(&self, _: &Delivery) -> Result<(), NotTaken> {
        self.asked.notify_one();
        match &self.may {
            Some(may) => may.notified().await,
            None => std::future::pending().await,
        }
        Ok(())
    }
}

fn receiver(name: &str) -> Receiver {
    Receiver { name: name.into(), events: Vec::new(), kinds: Vec::new() }
}

fn line(courier: impl mapae::keeper::tell::Courier) -> LinePlan {
    LinePlan {
        courier: Arc::new(courier),
        concurrent: 4,
        patience: Duration::from_secs(30),
        backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_secs(2) },
    }
}

fn telling(courier: impl mapae::keeper::tell::Courier) -> TellPlan {
    TellPlan { receivers: vec![(receiver("slow"), line(courier))], ..TellPlan::default() }
}

/// A keeper of this site that tells events.
fn keeper_telling(site: &Site, tell: TellPlan) -> keeper::KeeperHandle {
    let plan = KeeperPlan {
        window: site.window.clone(),
        rescan_after: Duration::from_secs(60),
        retention: Retention::default(),
        tell,
        bell: Arc::default(),
        schedules: Vec::new(),
    };
    keeper::start(site.parts.clone(), plan)
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_is_told_to_stop_does_not_wait_for_what_hangs() {
    let (_, site) = in_memory();
    site.submit("a", Value::Null, |_| {}).await;
    let asked = Arc::new(Notify::new());
    let keeper = keeper_telling(&site, telling(Slow { asked: asked.clone(), may: None }));
    asked.notified().await;
    let began = Instant::now();
    keeper.stop().await;
    // The receiver would have been given up after thirty.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    site.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_is_told_to_stop_waits_for_what_a_receiver_is_about_to_take() {
    let (memory, site) = in_memory();
    site.submit("a", Value::Null, |_| {}).await;
    let (asked, may) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let keeper = keeper_telling(&site, telling(Slow { asked: asked.clone(), may: Some(may.clone()) }));
    asked.notified().await;
    let stopped = tokio::spawn(keeper.stop());
    tokio::task::yield_now().await;
    may.notify_one();
    stopped.await.unwrap();
    assert_eq!(memory.queues(None, 9).await.unwrap(), [], "it was taken, and is not told again");
    site.close().await;
}

/// Takes nothing and never answers, or counts what it takes.
struct Courier(Option<Arc<Notify>>);

#[async_trait]
impl mapae::keeper::tell::Courier for Courier {
    async fn take(&self, _: &Delivery) -> Result<(), NotTaken> {
        match &self.0 {
            Some(took) => took.notify_one(),
            None => std::future::pending().await,
        }
        Ok(())
    }
}

/// Time is counted and not waited for.
#[tokio::test(start_paused = true)]
async fn hosts_of_callbacks_that_never_answer_keep_no_configured_receiver_from_its_events() {
    let (_, mut site) = in_memory();
    // More hosts than there are places for.
    for host in 0..70 {
        let url = format!("https://h{host}.example/");
        let callback = Some(Callback { url, events: vec![EventKind::Accepted] });
        site.submit("a", Value::Null, |job| job.callback = callback).await;
    }
    let took = Arc::new(Notify::new());
    // Its name comes last.
    let plan = TellPlan {
        receivers: vec![(receiver("zulu"), line(Courier(Some(took.clone()))))],
        callbacks: Some(line(Courier(None))),
        ..TellPlan::default()
    };
    site.keep_and_tell(plan);
    // After thirty seconds those hosts are given up.
    tokio::time::timeout(Duration::from_secs(20), took.notified()).await.expect("it is told");
    site.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_stands_before_a_receiver_that_is_gone_is_given_up_and_never_soon_after_a_start() {
    let (memory, mut site) = in_memory();
    site.submit("a", Value::Null, |_| {}).await;
    // Before one that nobody knows any more, and longer than an event is offered: nothing ran meanwhile.
    memory.spread(&[receiver("gone")], 9).await.unwrap();
    memory.advance(Duration::from_secs(10 * 24 * 3600));
    site.keep();
    let dead = async || memory.queues(None, 9).await.unwrap()[0].dead;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(dead().await, 0, "whoever tells it may have just been started, too");
    tokio::time::sleep(Duration::from_secs(1900)).await;
    assert_eq!(dead().await, 1);
    site.close().await;
}

#[derive(Clone, Default)]
struct Asked(Arc<ByOwner>);

/// Behaves as the owner whose callback it is: `many` never answers, `bad` takes nothing. Counts how often each is asked.
struct ByOwner {
    many: tokio::sync::Semaphore,
    bad: tokio::sync::Semaphore,
    few: Notify,
}

impl Default for ByOwner {
    fn default() -> Self {
        let none = || tokio::sync::Semaphore::new(0);
        Self { many: none(), bad: none(), few: Notify::new() }
    }
}

#[async_trait]
impl mapae::keeper::tell::Courier for Asked {
    async fn take(&self, delivery: &Delivery) -> Result<(), NotTaken> {
        match delivery.event.owner.as_str() {
            "many" => {
                self.0.many.add_permits(1);
                std::future::pending().await
            }
            "bad" => {
                self.0.bad.add_permits(1);
                Err(NotTaken { code: "receiver-answered-500".into(), then: Then::Again })
            }
            _ => {
                self.0.few.notify_one();
                Ok(())
            }
        }
    }
}

/// Time is counted and not waited for.
#[tokio::test(start_paused = true)]
async fn no_owners_callbacks_wait_for_anothers_broken_endpoint_or_for_its_many() {
    let (_, mut site) = in_memory();
    let called = |owner: &str, url: String| {
        let callback = Some(Callback { url, events: vec![EventKind::Accepted] });
        let job = NewJob::new(Owner::new(owner).unwrap(), Kind::new("k").unwrap(), Value::Null);
        NewJob { callback, ..job }
    };
    let shared = || "https://hub.example/hook".to_owned();
    for host in 0..200 {
        site.accept.accept(called("many", format!("https://h{host}.example/"))).await.unwrap();
    }
    for _ in 0..10 {
        site.accept.accept(called("bad", shared())).await.unwrap();
    }
    let by_owner = Asked::default();
    let plan = TellPlan { callbacks: Some(line(by_owner.clone())), ..TellPlan::default() };
    site.keep_and_tell(plan);
    // All the places that one may have, and as many failures as open a breaker.
    let _many = by_owner.0.many.acquire_many(32).await.unwrap();
    let _bad = by_owner.0.bad.acquire_many(5).await.unwrap();
    site.accept.accept(called("few", shared())).await.unwrap();
    // Those that never answer are given up after thirty seconds, and a breaker rests for five.
    tokio::time::timeout(Duration::from_secs(2), by_owner.0.few.notified()).await.expect("it is told");
    assert_eq!(by_owner.0.many.available_permits(), 0, "the other places are for whoever comes");
    site.close().await;
}

#[cfg(all(feature = "streams", feature = "rabbitmq", feature = "kafka"))]
#[tokio::test(flavor = "multi_thread")]
async fn events_are_put_into_a_stream_each_job_in_order() {
    use mapae::keeper::stream::Stream;
    use mapae::store;

    let Ok(server) = std::env::var("MAPAE_TEST_VALKEY") else { return };
    let key = format!("events-{}", uuid::Uuid::new_v4().simple());
    let address = format!("{}/{key}", server.trim_end_matches('/'));
    let database = databases().await.remove(0);
    let mut site = Site::without_keeper(&database).await;
    site.parts.store = store::open(&database.url, true).await.unwrap();
    let job = mapae::job::record::NewJob::new(
        crate::site::owner(),
        mapae::job::name::Kind::new("k").unwrap(),
        Value::Null,
    );
    let id = site.store().accept(job).await.unwrap().id;
    site.store().cancel(&Scope::All, id).await.unwrap();
    let keeper = keeper_telling(&site, telling(Stream::parse(&address, "https://jobs.example").unwrap()));
    let client = redis::Client::open(server).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let entries = crate::stores::soon("both are there", async || {
        let mut range = redis::cmd("XRANGE");
        range.arg(&key).arg("-").arg("+");
        let found: Vec<(String, Vec<String>)> = range.query_async(&mut connection.clone()).await.unwrap();
        (found.len() >= 2).then_some(found)
    })
    .await;
    let mut told = Vec::new();
    for (place, (_, fields)) in entries.iter().enumerate() {
        let [_, event_id, _, kind, _, event] = &fields[..] else { panic!("{fields:?}") };
        assert_eq!(*event_id, format!("{id}/{}", place + 1));
        let event: Value = serde_json::from_str(event).unwrap();
        assert_eq!(
            (&event["type"], &event["subject"]),
            (&Value::from(kind.as_str()), &Value::from(id.to_string()))
        );
        told.push(kind.clone());
    }
    let kinds =
        [EventKind::Accepted, EventKind::Cancelled].map(|kind| format!("mapae.job.{}", kind.as_str()));
    assert_eq!(told, kinds);
    keeper.stop().await;
    let _: i64 = redis::cmd("DEL").arg(&key).query_async(&mut connection).await.unwrap();
    site.close().await;
}

#[tokio::test]
async fn who_had_a_backlog_before_the_process_was_started_comes_behind_it() {
    let (memory, mut site) = in_memory();
    let new = |owner: &str| NewJob::new(Owner::new(owner).unwrap(), Kind::new("k").unwrap(), Value::Null);
    // Dealt out by a process that is no more.
    for turn in 1..=3 {
        let rung = Some(FirstRing { turn, again: Duration::from_secs(60) });
        memory.accept(NewJob { rung, ..new("many") }).await.unwrap();
    }
    site.keep();
    soon("the keeper has looked", async || (!site.window.is_empty()).then_some(())).await;
    let many = site.accept.accept(new("many")).await.unwrap().id;
    let few = site.accept.accept(new("few")).await.unwrap().id;
    let quota = [LaneQuota { lane: new("few").lane(), max: 9 }];
    let held = memory.claim_rung(&Holder::new("w"), &quota, 9, Duration::from_secs(60)).await.unwrap();
    let order: Vec<JobId> = held.into_iter().map(|held| held.job.id).collect();
    assert_eq!((order.len(), order.last()), (5, Some(&many)), "{few} is before it: {order:?}");
    site.close().await;
}
