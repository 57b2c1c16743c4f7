//! Presence in PostgreSQL: a lost line, lost sessions, a pooler, a name that goes to another.

use std::sync::Arc;
use std::time::Duration;

use mapae::job::State;
use mapae::job::record::NewJob;
use mapae::store;
use mapae::store::contract::{Beat, Scope, WorkerReport};
use mapae::worker::WorkerPlan;
use serde_json::Value;
use sqlx::{Connection, PgConnection, Row};
use tokio::sync::Semaphore;

use super::ends::gated;
use super::pooler::Pooler;
use super::{LONG, at, claim, lined, new, once, strict, waiting, within};
use crate::site::{Site, fresh, postgres};
use crate::stores::soon;

const ALIVE: [Beat; 1] = [Beat::Renewed { cancel_asked: false }];

#[tokio::test(flavor = "multi_thread")]
async fn a_presence_cut_off_silently_is_taken_up_again() {
    let Some((url, line)) = lined().await else { return };
    let near = store::open(&url, false).await.unwrap();
    let far = store::open(&line.url, false).await.unwrap();
    let mut member = far.join(&strict("w", "k")).await.unwrap();
    let id = near.accept(NewJob { retry: once(), ..new() }).await.unwrap().id;
    let held = [(id, claim(&*near, &*member, id).await.token)];
    let mut watcher = PgConnection::connect(&url).await.unwrap();

    // The server believes in the sessions still, so their locks are not to be had by new ones.
    line.freeze();
    let beats = member.beat(&held, LONG, &WorkerReport::default()).await.unwrap();
    assert_eq!(beats, ALIVE);
    assert_eq!(near.reap(10).await.unwrap(), []);

    line.hang_up();
    loop {
        let beats = member.beat(&held, LONG, &WorkerReport::default()).await.unwrap();
        assert_eq!(beats, ALIVE);
        assert_eq!(near.reap(10).await.unwrap(), [], "a worker whose beats are answered is not dead");
        let row = sqlx::query("select presence is not null as present from mapae.workers");
        if row.fetch_one(&mut watcher).await.unwrap().get("present") {
            break;
        }
    }
    assert_eq!(near.reap(10).await.unwrap(), [], "its presence is there, and not only said to be");

    // What is believed in again is missed again.
    drop(member);
    soon("its death is noticed", async || near.reap(10).await.unwrap().pop()).await;
    assert_eq!(near.job(&Scope::All, id).await.unwrap().unwrap().state, State::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_presence_that_answers_too_late_is_given_up_without_looking_dead() {
    let Some((url, line)) = lined().await else { return };
    let near = store::open(&url, false).await.unwrap();
    let far = store::open(&line.url, false).await.unwrap();
    let mut member = far.join(&strict("w", "k")).await.unwrap();
    let id = near.accept(NewJob { retry: once(), ..new() }).await.unwrap().id;
    let held = [(id, claim(&*near, &*member, id).await.token)];
    // The keeper's session has stood while the worker told of itself: it believes in an absence at once.
    assert_eq!(near.reap(10).await.unwrap(), []);
    member.beat(&held, LONG, &WorkerReport::default()).await.unwrap();

    // What comes first is the presence. The word that there is none any more is held up on its way.
    line.mute(1);
    let mut holder = PgConnection::connect(&url).await.unwrap();
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    let mut hold = holder.begin().await.unwrap();
    sqlx::query("select from mapae.workers for update").execute(&mut *hold).await.unwrap();
    let beating = tokio::spawn(async move {
        // No statement waits long for a row.
        while member.beat(&held, LONG, &WorkerReport::default()).await.is_err() {}
        member
    });
    waiting(&mut watcher, 1).await;
    for _ in 0..10 {
        assert_eq!(near.reap(10).await.unwrap(), [], "a worker that beats is not dead");
    }
    hold.rollback().await.unwrap();

    let member = within("the beat is answered", beating).await.unwrap();
    assert_eq!(near.reap(10).await.unwrap(), []);
    drop(member);
    assert_eq!(near.job(&Scope::All, id).await.unwrap().unwrap().state, State::Running);
}

/// As a fail-over or the restart of a pooler does.
#[tokio::test(flavor = "multi_thread")]
async fn losing_every_session_at_once_takes_no_live_lease_and_keeps_no_dead_one() {
    let Some(server) = postgres() else { return };
    let database = at(&fresh(&server).await);
    let site = Site::new(&database).await;
    let gate = Arc::new(Semaphore::new(0));
    // Keepers look many times before this worker can show itself again.
    let rare = |plan: &mut WorkerPlan| {
        plan.timing.lease = LONG;
        plan.timing.heartbeat = Duration::from_secs(5);
    };
    let worker = site.worker(gated(&gate, &Arc::default()), rare).await;
    let live = site.submit("gated", Value::Null, |job| job.retry.attempts = 1).await;
    site.job_when(live, |job| job.state == State::Running).await;
    let dying = site.store().join(&strict("dying", "other")).await.unwrap();
    let dead = site.submit("other", Value::Null, |job| job.retry.attempts = 1).await;
    claim(&**site.store(), &*dying, dead).await;

    let mut killer = PgConnection::connect(&database.url).await.unwrap();
    sqlx::query(
        "select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid()",
    )
    .execute(&mut killer)
    .await
    .unwrap();
    drop(dying);

    let read = async |id| site.store().job(&Scope::All, id).await.ok().flatten();
    let ended =
        soon("the dead one's job has ended", async || read(dead).await.filter(|job| job.state.is_terminal()));
    assert_eq!(ended.await.failure.unwrap().code, "worker-lost");
    assert_eq!(site.job(live).await.state, State::Running);
    gate.add_permits(1);
    let job = site.ended(live).await;
    assert_eq!((job.state, job.failure), (State::Succeeded, None));
    worker.drain().await;
    site.close().await;
}

/// Whether the row of this worker says that its presence can be seen.
async fn claims(watcher: &mut PgConnection, name: &str) -> bool {
    let row = sqlx::query("select presence is not null as claims from mapae.workers where name = $1");
    row.bind(name).fetch_one(watcher).await.unwrap().get("claims")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_presence_whose_session_a_pooler_gave_to_others_is_never_claimed_again() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let near = store::open(&url, false).await.unwrap();
    near.migrate().await.unwrap();
    let pooler = Pooler::before(&url).await;
    let far = store::open(&pooler.url, false).await.unwrap();
    let mut member = far.join(&strict("w", "k")).await.unwrap();
    let id = near.accept(NewJob { retry: once(), ..new() }).await.unwrap().id;
    let held = [(id, claim(&*near, &*member, id).await.token)];
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    member.beat(&held, LONG, &WorkerReport::default()).await.unwrap();
    assert!(claims(&mut watcher, "w").await);

    pooler.share();
    for _ in 0..3 {
        assert_eq!(member.beat(&held, LONG, &WorkerReport::default()).await.unwrap(), ALIVE);
        assert!(!claims(&mut watcher, "w").await, "what may vanish without a word is not claimed");
        assert_eq!(near.reap(10).await.unwrap(), [], "a worker that beats is not dead");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_joins_through_a_pooler_claims_no_presence_and_doctor_can_tell() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let near = store::open(&url, false).await.unwrap();
    near.migrate().await.unwrap();
    assert!(near.sees_presence().await.unwrap());
    let pooler = Pooler::before(&url).await;
    pooler.share();
    let far = store::open(&pooler.url, false).await.unwrap();
    assert!(!far.sees_presence().await.unwrap());

    let _member = far.join(&strict("w", "k")).await.unwrap();
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    assert!(!claims(&mut watcher, "w").await);
}

/// The lock of the name may be free while that of a life is not: its session was lost and it is back, and the
/// name has not been taken up again yet.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_a_name_takes_no_lease_of_a_life_that_is_still_there() {
    let Some((url, line)) = lined().await else { return };
    let near = store::open(&url, false).await.unwrap();
    let far = store::open(&line.url, false).await.unwrap();
    let former = far.join(&strict("w", "k")).await.unwrap();
    let id = near.accept(NewJob { retry: once(), ..new() }).await.unwrap().id;
    claim(&*near, &*former, id).await;
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    let life: i64 =
        sqlx::query("select presence from mapae.workers").fetch_one(&mut watcher).await.unwrap().get(0);

    drop(former);
    sqlx::query("select pg_advisory_lock($1)").bind(life).execute(&mut watcher).await.unwrap();
    let latter = soon("the name is free", async || near.join(&strict("w", "k")).await.ok()).await;

    assert_eq!(near.reap(10).await.unwrap(), [], "its life is there");
    assert_eq!(near.job(&Scope::All, id).await.unwrap().unwrap().state, State::Running);

    drop(latter);
    watcher.close().await.unwrap();
    let _latest = soon("the name is free", async || near.join(&strict("w", "k")).await.ok()).await;
    assert_eq!(near.reap(10).await.unwrap().len(), 1, "now it is gone");
}

/// As a worker finds it that starts right after the server did: no lock of anybody is there yet.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_a_name_after_a_restart_of_the_server_leaves_its_leases_to_the_keepers() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let near = store::open(&url, false).await.unwrap();
    near.migrate().await.unwrap();
    let far = store::open(&url, false).await.unwrap();
    let former = far.join(&strict("w", "k")).await.unwrap();
    let id = near.accept(NewJob { retry: once(), ..new() }).await.unwrap().id;
    claim(&*near, &*former, id).await;
    drop(former);
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    sqlx::query("update mapae.workers set seen_at = pg_postmaster_start_time() - interval '1 second'")
        .execute(&mut watcher)
        .await
        .unwrap();

    let _latter = soon("the name is free", async || near.join(&strict("w", "k")).await.ok()).await;
    let open = "select leased_until > now() as open from mapae.jobs";
    assert!(sqlx::query(open).fetch_one(&mut watcher).await.unwrap().get::<bool, _>("open"));
}
