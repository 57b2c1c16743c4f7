//! Accepting: in the caller's own transaction, and what is refused at the door.

use std::time::Duration;

use mapae::accept::SubmitError;
use mapae::handler::{Context, Handlers};
use mapae::job::State;
use mapae::job::name::{IdempotencyKey, Kind};
use mapae::job::record::{FirstRing, NewJob, PARAMS_BYTES_MAX};
use mapae::job::unique::UniqueRule;
use mapae::store::contract::{Control, Scope, Store};
use mapae::store::{Postgres, Sqlite};
use serde_json::{Value, json};

use crate::site::{self, Database, Site, databases, owner};
use crate::stores::soon;

fn job() -> NewJob {
    NewJob::new(owner(), Kind::new("note").unwrap(), Value::Null)
}

/// Accepts a job in a transaction of the caller's own, which then commits or does not.
async fn accept_in(database: &Database, job: NewJob, commit: bool) {
    match database.name {
        "postgres" => {
            let store = Postgres::open(&database.url, false).await.unwrap();
            let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
            let mut transaction = pool.begin().await.unwrap();
            store.accept_in(&mut transaction, job).await.unwrap();
            if commit {
                transaction.commit().await.unwrap()
            } else {
                transaction.rollback().await.unwrap()
            }
            store.close().await;
        }
        "sqlite" => {
            let store = Sqlite::open(&database.url, false).await.unwrap();
            let pool = sqlx::SqlitePool::connect(&database.url).await.unwrap();
            let mut transaction = pool.begin_with("begin immediate").await.unwrap();
            store.accept_in(&mut transaction, job).await.unwrap();
            if commit {
                transaction.commit().await.unwrap()
            } else {
                transaction.rollback().await.unwrap()
            }
            store.close().await;
        }
        other => panic!("how is a transaction of {other} begun?"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_accepted_in_the_callers_transaction_is_there_if_and_only_if_that_commits() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("note", |(): (), _: Context| async move { Ok(()) });
        let worker = site.worker(handlers, |_| {}).await;

        let undone = job();
        accept_in(&database, undone.clone(), false).await;
        let kept = job();
        accept_in(&database, kept.clone(), true).await;

        assert_eq!(site.ended(kept.id).await.state, State::Succeeded, "{}: a keeper rings", database.name);
        assert_eq!(site.store().job(&Scope::All, undone.id).await.unwrap(), None, "{}", database.name);
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn params_that_no_store_could_keep_are_refused_at_the_door() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let submit = async |params| site.accept.accept(NewJob { params, ..job() }).await;
        let nul = submit(json!({ "text": ["a\0b"] })).await;
        assert!(matches!(nul, Err(SubmitError::ParamsNul)), "{}", database.name);
        let large = submit(json!("x".repeat(PARAMS_BYTES_MAX))).await;
        assert!(matches!(large, Err(SubmitError::ParamsTooLarge)), "{}", database.name);
        assert!(submit(json!("the words \\u0000 are no such character")).await.is_ok());
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_although_its_answer_was_lost_is_no_earlier_submission() {
    for database in databases().await {
        let site = Site::without_keeper(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("noop", |_: Value, _: Context| async move { Ok(()) });
        let worker = site.worker(handlers, |_| {}).await;
        let rung = Some(FirstRing { turn: 1, again: Duration::from_secs(3600) });
        let lost = NewJob { kind: Kind::new("noop").unwrap(), rung, ..job() };
        site.store().accept(lost.clone()).await.unwrap();

        let accepted = site.accept.accept(lost.clone()).await.unwrap();

        // Whoever takes it for another's would delete the file it points at, and ring nobody.
        assert_eq!((accepted.id, accepted.again), (lost.id, false), "{}", database.name);
        assert_eq!(site.ended(lost.id).await.state, State::Succeeded);
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_with_a_character_that_one_store_cannot_keep_is_kept_on_both() {
    for database in databases().await {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("note", |(): (), ctx: Context| async move {
            ctx.stage("read", || async { Ok("a\0b".to_owned()) }).await
        });
        let worker = site.worker(handlers, |_| {}).await;
        let id = site.submit("note", Value::Null, |_| {}).await;
        assert_eq!(site.ended(id).await.state, State::Succeeded, "{}", database.name);
        worker.drain().await;
        site.close().await;
    }
}

#[tokio::test]
async fn a_key_that_an_open_transaction_holds_is_not_taken_for_free() {
    let Some(server) = site::postgres() else { return };
    let url = site::fresh(&server).await;
    let store = Postgres::open(&url, false).await.unwrap();
    store.migrate().await.unwrap();
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let keyed = || NewJob { idempotency: Some((IdempotencyKey::new("once").unwrap(), [7; 32])), ..job() };
    let sole = NewJob { unique: UniqueRule::by_params().of(&keyed(), None), ..keyed() };
    for second in [keyed(), sole] {
        sqlx::raw_sql("delete from mapae.jobs; delete from mapae.idempotency").execute(&pool).await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        let first = store.accept_in(&mut transaction, keyed()).await.unwrap();
        let asked = tokio::spawn({
            let store = store.clone();
            async move { store.accept(second).await }
        });
        let waits = "select count(*) from pg_stat_activity
                      where datname = current_database() and wait_event_type = 'Lock'";
        soon("the second waits for the first", async || {
            let (waiting,): (i64,) = sqlx::query_as(waits).fetch_one(&pool).await.unwrap();
            (waiting > 0).then_some(())
        })
        .await;
        transaction.commit().await.unwrap();
        let answer = asked.await.unwrap().unwrap();
        assert_eq!((answer.id, answer.again), (first.id, true));
    }
    store.close().await;
}
