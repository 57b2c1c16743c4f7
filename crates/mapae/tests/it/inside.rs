//! Completing a job, and keeping a stage, in the handler's own transaction.

use std::sync::Arc;
use std::time::Duration;

use mapae::job::State;
use mapae::job::event::Position;
use mapae::job::lease::{Lease, Token};
use mapae::job::name::{JobId, Kind};
use mapae::job::record::{Checkpoint, NewJob, Output};
use mapae::job::retry::Verdict;
use mapae::store::contract::{Claim, EventFilter, Join, Scope, SettleError, Settlement, Store};
use mapae::store::{Postgres, Sqlite};
use serde_json::{Value, json};

use crate::site::{Database, databases, owner};

const LEASE: Duration = Duration::from_secs(600);

/// A store, and the same database as the handler's own.
enum Both {
    Postgres(Arc<Postgres>, sqlx::PgPool),
    Sqlite(Arc<Sqlite>, sqlx::SqlitePool),
}

/// What the handler does beside its own write.
enum Act {
    Complete(Output),
    Keep(Checkpoint),
}

impl Both {
    async fn open(database: &Database) -> Self {
        let table = "create table notes (note text not null)";
        match database.name {
            "postgres" => {
                let store = Arc::new(Postgres::open(&database.url, false).await.unwrap());
                store.migrate().await.unwrap();
                let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
                sqlx::query(table).execute(&pool).await.unwrap();
                Self::Postgres(store, pool)
            }
            "sqlite" => {
                let store = Arc::new(Sqlite::open(&database.url, false).await.unwrap());
                store.migrate().await.unwrap();
                let pool = sqlx::SqlitePool::connect(&database.url).await.unwrap();
                sqlx::query(table).execute(&pool).await.unwrap();
                Self::Sqlite(store, pool)
            }
            other => panic!("how is a transaction of {other} begun?"),
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Postgres(store, _) => store.clone(),
            Self::Sqlite(store, _) => store.clone(),
        }
    }

    /// A note of the handler's, and the act, in one transaction, which commits or does not.
    async fn act(&self, lease: &Lease, act: &Act, commit: bool) -> Result<Option<State>, SettleError> {
        let note = "insert into notes (note) values ('done')";
        match self {
            Self::Postgres(store, pool) => {
                let mut transaction = pool.begin().await.unwrap();
                sqlx::query(note).execute(&mut *transaction).await.unwrap();
                let answer = match act {
                    Act::Complete(output) => {
                        store.complete_in(&mut transaction, lease, Some(output.clone())).await.map(Some)
                    }
                    Act::Keep(stage) => {
                        store.checkpoint_in(&mut transaction, lease, stage).await.map(|()| None)
                    }
                };
                match commit && answer.is_ok() {
                    true => transaction.commit().await.unwrap(),
                    false => transaction.rollback().await.unwrap(),
                }
                answer
            }
            Self::Sqlite(store, pool) => {
                let mut transaction = pool.begin_with("begin immediate").await.unwrap();
                sqlx::query(note).execute(&mut *transaction).await.unwrap();
                let answer = match act {
                    Act::Complete(output) => {
                        store.complete_in(&mut transaction, lease, Some(output.clone())).await.map(Some)
                    }
                    Act::Keep(stage) => {
                        store.checkpoint_in(&mut transaction, lease, stage).await.map(|()| None)
                    }
                };
                match commit && answer.is_ok() {
                    true => transaction.commit().await.unwrap(),
                    false => transaction.rollback().await.unwrap(),
                }
                answer
            }
        }
    }

    async fn notes(&self) -> i64 {
        let count = "select count(*) from notes";
        match self {
            Self::Postgres(_, pool) => sqlx::query_scalar(count).fetch_one(pool).await.unwrap(),
            Self::Sqlite(_, pool) => sqlx::query_scalar(count).fetch_one(pool).await.unwrap(),
        }
    }
}

/// A job that this lease runs.
async fn running(store: &dyn Store) -> Lease {
    let job = NewJob::new(owner(), Kind::new("note").unwrap(), Value::Null);
    let id = store.accept(job).await.unwrap().id;
    let join = Join { name: "w".into(), strict: false, kinds: Vec::new(), slots: 1 };
    let member = store.join(&join).await.unwrap();
    let mut claims = store.claim(member.holder(), &[(id, owner())], LEASE).await.unwrap();
    match claims.pop() {
        Some(Claim::Run(holding)) => holding.lease,
        other => panic!("{other:?}"),
    }
}

async fn told(store: &dyn Store, id: JobId) -> Vec<&'static str> {
    let filter = EventFilter { job: Some(id), after: Position::default() };
    let events = store.events(&Scope::All, &filter, 100).await.unwrap();
    events.iter().map(|event| event.event.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_completed_in_the_handlers_transaction_is_done_if_and_only_if_that_commits() {
    for database in databases().await {
        let both = Both::open(&database).await;
        let store = both.store();
        let lease = running(&*store).await;
        let output = Output::Inline(json!({ "ok": true }));
        let complete = Act::Complete(output.clone());

        assert_eq!(both.act(&lease, &complete, false).await.unwrap(), Some(State::Succeeded));
        let job = store.job(&Scope::All, lease.job).await.unwrap().unwrap();
        assert_eq!((job.state, both.notes().await), (State::Running, 0), "{}", database.name);

        assert_eq!(both.act(&lease, &complete, true).await.unwrap(), Some(State::Succeeded));
        assert_eq!(both.notes().await, 1);
        assert_eq!(store.output(&Scope::All, lease.job).await.unwrap(), Some(output));
        // What the worker asks afterwards, for it knows of nothing.
        let again = Settlement { lease: lease.clone(), verdict: Verdict::Succeed, output: None };
        assert_eq!(store.settle(again).await.unwrap(), State::Succeeded);
        assert_eq!(told(&*store, lease.job).await, ["accepted", "claimed", "succeeded"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_the_lease_completes_and_keeps_nothing() {
    for database in databases().await {
        let both = Both::open(&database).await;
        let store = both.store();
        let lease = Lease { token: Token::random(), ..running(&*store).await };
        let stage = Checkpoint { stage: "s".into(), output: Output::Inline(json!(1)), took: Duration::ZERO };
        for act in [Act::Complete(Output::Inline(json!(1))), Act::Keep(stage)] {
            let refused = both.act(&lease, &act, true).await;
            assert!(matches!(refused, Err(SettleError::LeaseLost(Some(State::Running)))), "{refused:?}");
        }
        assert_eq!(both.notes().await, 0);
        assert_eq!(store.checkpoints(lease.job).await.unwrap(), []);
        assert_eq!(told(&*store, lease.job).await, ["accepted", "claimed"], "{}", database.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_to_be_cancelled_says_so_to_the_handlers_transaction() {
    for database in databases().await {
        let both = Both::open(&database).await;
        let store = both.store();
        let lease = running(&*store).await;
        store.cancel(&Scope::All, lease.job).await.unwrap();
        let complete = Act::Complete(Output::Inline(json!(1)));
        assert_eq!(both.act(&lease, &complete, false).await.unwrap(), Some(State::Cancelled));
        assert_eq!(store.job(&Scope::All, lease.job).await.unwrap().unwrap().state, State::Running);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_kept_in_the_handlers_transaction_is_kept_if_and_only_if_that_commits() {
    for database in databases().await {
        let both = Both::open(&database).await;
        let store = both.store();
        let lease = running(&*store).await;
        let stage = Checkpoint { stage: "s".into(), output: Output::Inline(json!(1)), took: Duration::ZERO };
        for commit in [false, true] {
            both.act(&lease, &Act::Keep(stage.clone()), commit).await.unwrap();
            let kept = store.checkpoints(lease.job).await.unwrap();
            assert_eq!((kept.len() as i64, both.notes().await), (i64::from(commit), i64::from(commit)));
        }
        assert_eq!(told(&*store, lease.job).await, ["accepted", "claimed", "stage"], "{}", database.name);
    }
}
