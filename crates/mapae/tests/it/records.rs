//! Jobs and the user's own records in one transaction: submitted by SQL from any language, and written back by the
//! transaction that ends them. On PostgreSQL.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mapae::handler::{Context, Handlers};
use mapae::job::follow::{Follow, Next};
use mapae::job::lease::Holder;
use mapae::job::name::{JobId, Kind, Owner, Priority};
use mapae::job::record::{NewJob, Output};
use mapae::job::retry::{Backoff, Failure, RetryPolicy, Verdict};
use mapae::job::timestamp::Timestamp;
use mapae::job::{End, State};
use mapae::store::Postgres;
use mapae::store::contract::{
    Claim, Control, Described, EventFilter, JobFilter, Keep, KindPlan, Page, Receiver, Records, Run, Scope,
    SettleError, Settlement, Store, Tell, View,
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::site::{self, Site};

const LEASE: Duration = Duration::from_secs(3600);

struct Bench {
    store: Arc<Postgres>,
    url: String,
}

impl Bench {
    /// `None` where this run has no PostgreSQL.
    async fn new() -> Option<Self> {
        let url = site::fresh(&site::postgres()?).await;
        let store = Arc::new(Postgres::open(&url, true).await.unwrap());
        store.migrate().await.unwrap();
        Some(Self { store, url })
    }

    async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    async fn jobs(&self) -> Vec<mapae::job::record::Job> {
        let page = Page { after: None, limit: 100 };
        self.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap().jobs
    }

    async fn told(&self, job: JobId) -> Vec<String> {
        let filter = EventFilter { job: Some(job), ..EventFilter::default() };
        let events = self.store.events(&Scope::All, &filter, 100).await.unwrap();
        events.iter().map(|event| event.event.as_str().to_owned()).collect()
    }

    /// A job about the record `id`, held.
    async fn held(&self, id: &str) -> mapae::job::lease::Lease {
        let owner = Owner::new("acme").unwrap();
        let retry = RetryPolicy { attempts: 2, backoff: Backoff { first: LEASE, max: LEASE } };
        let job = NewJob { retry, ..NewJob::new(owner.clone(), kind("context"), json!({ "id": id })) };
        let job = self.store.accept(job).await.unwrap().id;
        match self.store.claim(&Holder::new("w"), &[(job, owner)], LEASE).await.unwrap().pop() {
            Some(Claim::Run(holding)) => holding.lease,
            other => panic!("{other:?}"),
        }
    }

    async fn settle(&self, lease: &mapae::job::lease::Lease, verdict: Verdict) -> Result<State, SettleError> {
        let output =
            matches!(verdict, Verdict::Succeed).then(|| Output::Inline(json!({ "keywords": ["a", "b"] })));
        self.store.settle(Settlement { lease: lease.clone(), verdict, output }).await
    }
}

/// A job about the record `id`.
fn about(id: &str) -> NewJob {
    NewJob::new(Owner::new("acme").unwrap(), kind("context"), json!({ "id": id }))
}

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

fn plan(name: &str) -> KindPlan {
    let retry = RetryPolicy { attempts: 7, backoff: Backoff { first: LEASE, max: 2 * LEASE } };
    KindPlan { kind: kind(name), retry, singular: false, on: Vec::new(), writes: BTreeMap::new() }
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
}

async fn submitted(
    on: &mut PgConnection,
    kind: &str,
    key: Option<&str>,
    params: Value,
) -> Result<JobId, sqlx::Error> {
    let row = sqlx::query("select mapae.submit($1, $2, key => $3, owner => 'acme') as id")
        .bind(kind)
        .bind(params)
        .bind(key)
        .fetch_one(on)
        .await?;
    Ok(JobId(row.try_get("id")?))
}

#[tokio::test]
async fn a_role_that_may_do_nothing_else_submits_in_its_own_transaction_and_nothing_is_seen_before_the_commit()
 {
    let Some(bench) = Bench::new().await else { return };
    let mut admin = bench.connection().await;
    let role = format!("app_{}", Uuid::new_v4().simple());
    let run = |statement: String| sqlx::raw_sql(sqlx::AssertSqlSafe(statement));
    run(format!(
        "create role {role}; create table records (id text primary key); grant insert on records to {role};
         grant usage on schema mapae to {role}; set role {role}"
    ))
    .execute(&mut admin)
    .await
    .unwrap();
    // Calling is a right of its own.
    let refused = submitted(&mut admin, "context", None, json!({})).await.unwrap_err();
    assert_eq!(code(&refused), "42501");
    run(format!("reset role; grant execute on function mapae.submit, mapae.ring to {role}; set role {role}"))
        .execute(&mut admin)
        .await
        .unwrap();

    let mut rolled_back = admin.begin().await.unwrap();
    submitted(&mut rolled_back, "context", Some("k"), json!({ "id": 1 })).await.unwrap();
    rolled_back.rollback().await.unwrap();
    assert!(bench.jobs().await.is_empty());

    let mut transaction = admin.begin().await.unwrap();
    sqlx::query("insert into records values ('1')").execute(&mut *transaction).await.unwrap();
    let id = submitted(&mut transaction, "context", Some("k"), json!({ "id": 1 })).await.unwrap();
    assert!(bench.jobs().await.is_empty(), "not before the commit");
    transaction.commit().await.unwrap();
    let jobs = bench.jobs().await;
    let job = &jobs[0];
    assert_eq!((jobs.len(), job.id, job.state, job.owner.as_str()), (1, id, State::Pending, "acme"));
    assert_eq!(
        (&job.params, job.retry, bench.told(id).await),
        (&json!({ "id": 1 }), RetryPolicy::default(), vec!["accepted".to_owned()])
    );
    assert_eq!(bench.store.spread(&[], 9).await.unwrap(), 0, "nobody was said to take events away");

    for statement in [
        "select * from mapae.jobs",
        "insert into mapae.tombstones select gen_random_uuid(), 'a', now()",
        "update mapae.kinds set writes = '{\"failed\": \"drop table records\"}'",
    ] {
        assert_eq!(
            code(&run(statement.into()).execute(&mut admin).await.unwrap_err()),
            "42501",
            "{statement}"
        );
    }
    // What the caller calls by the same names is not called.
    run("create temp table idempotency (a int); set search_path = pg_temp, public".into())
        .execute(&mut admin)
        .await
        .unwrap();
    submitted(&mut admin, "context", Some("k2"), json!({})).await.unwrap();
    run(format!("reset role; drop owned by {role}; drop role {role}")).execute(&mut admin).await.unwrap();
}

#[tokio::test]
async fn the_same_key_is_the_same_job_and_another_body_under_it_is_refused() {
    let Some(bench) = Bench::new().await else { return };
    let mut connection = bench.connection().await;
    let mut first = connection.begin().await.unwrap();
    let id = submitted(&mut first, "context", Some("k"), json!({ "a": 1, "b": 2 })).await.unwrap();
    let again = submitted(&mut first, "context", Some("k"), json!({ "b": 2, "a": 1 })).await.unwrap();
    assert_eq!(again, id);
    // Another one waits to see what becomes of it.
    let mut other = bench.connection().await;
    let waiting =
        tokio::spawn(
            async move { submitted(&mut other, "context", Some("k"), json!({ "a": 1, "b": 2 })).await },
        );
    first.commit().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), id);
    let refused = submitted(&mut connection, "context", Some("k"), json!({ "a": 2 })).await.unwrap_err();
    assert_eq!(code(&refused), "MP409");
    assert!(refused.to_string().contains("idempotency key"), "{refused}");
    assert_eq!(bench.jobs().await.len(), 1);
    // A key whose job is gone is free.
    bench.store.delete(&Scope::All, id).await.unwrap();
    let new = submitted(&mut connection, "context", Some("k"), json!({ "a": 2 })).await.unwrap();
    assert_ne!(new, id);
    assert_eq!(submitted(&mut connection, "context", Some("k"), json!({ "a": 2 })).await.unwrap(), new);
}

#[tokio::test]
async fn what_no_program_could_read_is_refused_and_what_is_submitted_can_be_read() {
    let Some(bench) = Bench::new().await else { return };
    let mut connection = bench.connection().await;
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for (arguments, state) in [
        ("null".into(), "22023"),
        ("'Context'".into(), "22023"),
        ("'context', null".into(), "22023"),
        ("'context', owner => 'a b'".into(), "22023"),
        ("'context', key => ''".into(), "22023"),
        ("'context', key => 'a b'".into(), "22023"),
        ("'context', priority => 0".into(), "22023"),
        ("'context', priority => null".into(), "22023"),
        ("'context', run_at => 'infinity'".into(), "22023"),
        (format!("'context', '{}'", nested(100)), "22023"),
        ("'context', to_jsonb(repeat('x', 262144))".into(), "22023"),
        ("'single'".into(), "0A000"),
        ("'context'".into(), ""),
        (format!("'context', '{}'", nested(99)), ""),
        ("'context', priority => 1, run_at => now() + interval '1 hour', deadline => now() + interval '1 day'".into(), ""),
        ("'known', '[]', priority => 9".into(), ""),
    ] as [(String, &str); 16]
    {
        if arguments == "'single'" {
            let next = Next {
                kind: kind("mail"),
                params: json!({ "to": "ops" }),
                priority: Priority::NORMAL,
                retry: RetryPolicy::default(),
                delay: Duration::ZERO,
                on: Vec::new(),
            };
            let on = vec![Follow { after: End::Cancelled, next }];
            let kinds = [KindPlan { singular: true, ..plan("single") }, KindPlan { on, ..plan("known") }];
            bench.store.describe(&kinds).await.unwrap();
        }
        let statement = format!("select mapae.submit({arguments})");
        let done = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await;
        assert_eq!(done.err().map(|error| code(&error)).unwrap_or_default(), state, "{}", &arguments[..arguments.len().min(60)]);
    }
    let jobs = bench.jobs().await;
    assert_eq!(jobs.len(), 4);
    // Ids of one millisecond come in any order.
    let with = |priority: u8| jobs.iter().find(|job| job.priority.get() == priority).unwrap();
    let (known, later) = (with(9), with(1));
    assert_eq!(
        (later.priority.get(), later.due_at > later.created_at, later.deadline.is_some()),
        (1, true, true)
    );
    assert_eq!(
        (known.retry, known.priority.get(), known.owner.as_str()),
        (plan("known").retry, 9, "default")
    );
    // What its kind says comes after it comes.
    bench.store.cancel(&Scope::All, known.id).await.unwrap();
    assert!(bench.jobs().await.iter().any(|job| job.parent == Some(known.id) && job.kind.as_str() == "mail"));
    let to = Receiver { name: "all".into(), events: Vec::new(), kinds: Vec::new() };
    bench.store.spread(&[to], 100).await.unwrap();
    let told = bench.store.take("all", 100, Duration::from_secs(60)).await.unwrap();
    assert!(
        told.iter().any(|told| told.event.job == known.id),
        "told outside since somebody takes events away"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_submitted_by_sql_is_run_and_who_rings_is_heard() {
    for database in site::databases().await.into_iter().filter(|database| database.name == "postgres") {
        let site = Site::new(&database).await;
        let mut handlers = Handlers::default();
        handlers.add_fn("context", |_: Value, _: Context| async move { Ok(()) });
        let worker = site.worker(handlers, |_| {}).await;
        let mut connection = PgConnection::connect(&database.url).await.unwrap();
        let id = submitted(&mut connection, "context", None, json!({})).await.unwrap();
        assert_eq!(site.ended(id).await.state, State::Succeeded);
        worker.drain().await;

        let store = Postgres::open(&database.url, false).await.unwrap();
        store.heard().await.unwrap(); // listens from here on
        let mut transaction = connection.begin().await.unwrap();
        sqlx::query("select mapae.ring()").execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        tokio::time::timeout(site::PATIENCE, store.heard()).await.expect("heard").unwrap();
        site.close().await;
    }
}

const SCHEMA: &str = "
    create table contexts (id text primary key, state text not null default 'PENDING', keywords jsonb, why text,
                           seen integer check (seen <> 99));
    insert into contexts (id) select n::text from generate_series(1, 9) n";

async fn writing() -> Option<Bench> {
    let bench = Bench::new().await?;
    sqlx::raw_sql(SCHEMA).execute(&mut bench.connection().await).await.unwrap();
    let writes = [
        (
            End::Succeeded,
            "update contexts set state = 'DONE', keywords = $1->'keywords', seen = ($2->>'seen')::int where id = $2->>'id'",
        ),
        (End::Failed, "update contexts set state = 'FAILED', why = $3->>'code' where id = $2->>'id'"),
        (End::Cancelled, "delete from contexts where id = $2->>'id'"),
    ];
    let writes = writes.map(|(end, text)| (end, text.to_owned())).into_iter().collect();
    bench.store.describe(&[KindPlan { writes, ..plan("context") }]).await.unwrap();
    Some(bench)
}

impl Bench {
    async fn record(&self, id: &str) -> Option<(String, Option<Value>, Option<String>)> {
        let row = sqlx::query("select state, keywords, why from contexts where id = $1").bind(id);
        let row = row.fetch_optional(&mut self.connection().await).await.unwrap()?;
        Some((row.get("state"), row.get("keywords"), row.get("why")))
    }
}

#[tokio::test]
async fn the_record_ends_with_its_job_in_one_transaction() {
    let Some(bench) = writing().await else { return };
    let done = bench.held("1").await;
    assert_eq!(bench.settle(&done, Verdict::Succeed).await.unwrap(), State::Succeeded);
    assert_eq!(bench.record("1").await, Some(("DONE".into(), Some(json!(["a", "b"])), None)));
    assert!(bench.store.output(&Scope::All, done.job).await.unwrap().is_some());
    assert_eq!(
        bench.settle(&done, Verdict::Succeed).await.unwrap(),
        State::Succeeded,
        "asked again, once written"
    );

    let again = bench.held("2").await;
    let retry = Verdict::Retry { failure: Failure::retryable("vendor", "It did not answer."), delay: LEASE };
    assert_eq!(bench.settle(&again, retry).await.unwrap(), State::Pending);
    assert_eq!(bench.record("2").await.unwrap().0, "PENDING", "not the end");
    let failed = bench.held("3").await;
    let verdict = Verdict::Fail { failure: Failure::terminal("damaged", "It is damaged.") };
    assert_eq!(bench.settle(&failed, verdict).await.unwrap(), State::Failed);
    assert_eq!(bench.record("3").await, Some(("FAILED".into(), None, Some("damaged".into()))));
    // Whoever ends it: here nobody runs it.
    bench.store.cancel(&Scope::All, again.job).await.unwrap();
    assert_eq!(bench.record("2").await, None);
    // A lease that is lost writes nothing.
    let mut stolen = bench.held("4").await;
    stolen.token = mapae::job::lease::Token::random();
    assert!(matches!(bench.settle(&stolen, Verdict::Succeed).await, Err(SettleError::LeaseLost(_))));
    assert_eq!(bench.record("4").await.unwrap().0, "PENDING");
    // Nothing of a result stays in the job's own row.
    let kept = sqlx::query("select count(*) as kept from mapae.jobs where output is not null");
    assert_eq!(kept.fetch_one(&mut bench.connection().await).await.unwrap().get::<i64, _>("kept"), 0);
}

#[tokio::test]
async fn where_no_record_was_written_the_job_is_stale_and_its_result_is_not_kept() {
    let Some(bench) = writing().await else { return };
    let gone = bench.held("gone").await;
    assert_eq!(bench.settle(&gone, Verdict::Succeed).await.unwrap(), State::Stale);
    let job = bench.store.job(&Scope::All, gone.job).await.unwrap().unwrap();
    assert_eq!((job.state, job.failure.unwrap().code.as_str()), (State::Stale, "record-gone"));
    assert!(bench.store.output(&Scope::All, gone.job).await.unwrap().is_none());
    assert_eq!(bench.told(gone.job).await, ["accepted", "claimed", "stale"]);
    let job = NewJob { deadline: Some(Timestamp::default()), ..about("gone") };
    let overdue = bench.store.accept(job).await.unwrap().id;
    assert_eq!(bench.store.expire(10).await.unwrap(), 1);
    assert_eq!(bench.told(overdue).await, ["accepted", "stale"], "told as it is");
    // Kinds that write nothing are left alone.
    bench.store.describe(&[plan("context")]).await.unwrap();
    let gone = bench.held("gone").await;
    assert_eq!(bench.settle(&gone, Verdict::Succeed).await.unwrap(), State::Succeeded);
}

#[tokio::test]
async fn a_statement_that_fails_loses_no_job_and_one_that_waits_keeps_no_other_from_settling() {
    let Some(bench) = writing().await else { return };
    sqlx::query("update mapae.kinds set writes = jsonb_set(writes, '{succeeded}', '\"update contexts set seen = 99 where id = $2->>''id''\"')")
        .execute(&mut bench.connection().await)
        .await
        .unwrap();
    let refused = bench.held("1").await;
    assert_eq!(bench.settle(&refused, Verdict::Succeed).await.unwrap(), State::Failed);
    let job = bench.store.job(&Scope::All, refused.job).await.unwrap().unwrap();
    let failure = job.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.attempt), ("write-back-failed", 1));
    assert!(failure.message.contains("23514"), "{}", failure.message);
    assert_eq!(bench.record("1").await, Some(("FAILED".into(), None, Some("write-back-failed".into()))));
    assert_eq!(bench.told(refused.job).await, ["accepted", "claimed", "failed"]);
    bench.store.redrive(&Scope::All, refused.job).await.unwrap();

    let mut other = bench.connection().await;
    let mut holding = other.begin().await.unwrap();
    sqlx::query("update contexts set state = 'MINE' where id = '3'").execute(&mut *holding).await.unwrap();
    let waits = bench.held("3").await;
    let store = bench.store.clone();
    let settlement = Settlement {
        lease: waits.clone(),
        verdict: Verdict::Fail { failure: Failure::terminal("damaged", "It is damaged.") },
        output: None,
    };
    let waiting = tokio::spawn({
        let settlement = settlement.clone();
        async move { store.settle(settlement).await }
    });
    let free = bench.held("2").await;
    let verdict = Verdict::Fail { failure: Failure::terminal("damaged", "It is damaged.") };
    assert_eq!(bench.settle(&free, verdict).await.unwrap(), State::Failed);
    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Err(SettleError::Store(ref error)) if error.is_transient()), "{answer:?}");
    let job = bench.store.job(&Scope::All, waits.job).await.unwrap().unwrap();
    assert_eq!(job.state, State::Running, "nothing of it happened");
    holding.rollback().await.unwrap();
    assert_eq!(bench.store.settle(settlement).await.unwrap(), State::Failed, "asked again");
    assert_eq!(bench.record("3").await.unwrap().0, "FAILED");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_others_have_locked_keep_no_other_job_from_settling() {
    let Some(bench) = writing().await else { return };
    let mut other = bench.connection().await;
    sqlx::raw_sql("insert into contexts (id) select n::text from generate_series(10, 60) n")
        .execute(&mut other)
        .await
        .unwrap();
    let mut holding = other.begin().await.unwrap();
    sqlx::query("update contexts set why = 'mine' where id <> '9'").execute(&mut *holding).await.unwrap();
    let settlement =
        |lease| Settlement { lease, verdict: Verdict::Succeed, output: Some(Output::Inline(json!({}))) };
    // More than all places are good for as long as anybody waits for an answer.
    let mut locked = Vec::new();
    for id in 10..60 {
        let settlement = settlement(bench.held(&id.to_string()).await);
        let store = bench.store.clone();
        locked.push(tokio::spawn(async move {
            loop {
                match store.settle(settlement.clone()).await {
                    Ok(state) => return state,
                    Err(SettleError::Store(error)) => assert!(error.is_transient(), "{error}"),
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    let free = settlement(bench.held("9").await);
    assert_eq!(bench.store.settle(free).await.unwrap(), State::Succeeded, "asked once");
    assert!(locked.iter().all(|one| !one.is_finished()), "while they are locked");
    holding.rollback().await.unwrap();
    for one in locked {
        assert_eq!(one.await.unwrap(), State::Succeeded, "asked again until it went well");
    }
}

#[tokio::test]
async fn an_older_configuration_takes_no_place_of_a_newer_one_that_some_process_has() {
    let Some(bench) = Bench::new().await else { return };
    let mut admin = bench.connection().await;
    let store = bench.store.clone();
    let of = |text: &str| [KindPlan { writes: [(End::Failed, text.to_owned())].into(), ..plan("context") }];
    let (old, new) = (of("select 1"), of("select 2"));
    let written = async || {
        let mut connection = bench.connection().await;
        let row = sqlx::query("select writes->>'failed' as text from mapae.kinds").fetch_one(&mut connection);
        row.await.unwrap().get::<String, _>("text")
    };
    let described = |in_force, others| Described { in_force, others };
    assert_eq!(store.describe(&old).await.unwrap(), described(true, 0));
    assert_eq!(store.describe(&new).await.unwrap(), described(true, 1));
    // A process of before that is restarted in the middle of a deploy.
    assert_eq!(store.describe(&old).await.unwrap(), described(false, 1));
    assert_eq!(written().await, "select 2");
    let known = store.configurations().await.unwrap();
    assert_eq!(known.iter().map(|one| one.in_force).collect::<Vec<_>>(), [true, false]);

    // The deploy is taken back: the last process that had the new one is gone for a while.
    let gone = "update mapae.configurations set seen_at = seen_at - $1::interval
                 where mark in (select mark from mapae.settings)";
    sqlx::query(gone).bind(Duration::from_secs(100)).execute(&mut admin).await.unwrap();
    assert_eq!(store.describe(&old).await.unwrap(), described(true, 0));
    assert_eq!(written().await, "select 1");
    assert_eq!(store.describe(&new).await.unwrap(), described(true, 1), "it is still the newer one");
    // One that nobody has had for long is new when it comes again.
    let all = "update mapae.configurations set seen_at = seen_at - $1::interval
                where mark not in (select mark from mapae.settings)";
    sqlx::query(all).bind(Duration::from_secs(700)).execute(&mut admin).await.unwrap();
    assert_eq!(store.describe(&old).await.unwrap(), described(true, 1));
    assert_eq!(written().await, "select 1");
}

#[tokio::test]
async fn a_record_that_cannot_be_written_keeps_no_other_job_from_ending() {
    let Some(bench) = writing().await else { return };
    // Asked again for ever: to the database it is a lock that somebody may let go of.
    let never = "create function never() returns trigger language plpgsql as $$
                 begin raise exception 'not now' using errcode = '55P03'; end $$;
                 create trigger never before update on contexts for each row when (old.id = '1') execute function never();";
    sqlx::raw_sql(never).execute(&mut bench.connection().await).await.unwrap();
    let other =
        |kind_name: &str| NewJob::new(Owner::new("acme").unwrap(), kind(kind_name), json!({ "id": "9" }));
    let overdue = |job| NewJob { deadline: Some(Timestamp::default()), ..job };
    let mut ids = Vec::new();
    for job in [about("1"), about("2"), other("plain")] {
        ids.push(bench.store.accept(overdue(job)).await.unwrap().id);
    }
    assert_eq!(bench.store.expire(10).await.unwrap(), 2);
    assert_eq!(bench.record("2").await.unwrap().0, "FAILED");
    let states = async |ids: &[JobId]| {
        let mut states = Vec::new();
        for id in ids {
            states.push(bench.store.job(&Scope::All, *id).await.unwrap().unwrap().state);
        }
        states
    };
    assert_eq!(states(&ids).await, [State::Pending, State::Failed, State::Failed]);

    let mut lost = Vec::new();
    for job in [about("1"), about("3"), other("plain")] {
        let job = NewJob { retry: RetryPolicy { attempts: 1, ..job.retry }, ..job };
        let id = bench.store.accept(job).await.unwrap().id;
        let claims =
            bench.store.claim(&Holder::new("w"), &[(id, Owner::new("acme").unwrap())], Duration::ZERO).await;
        assert!(matches!(claims.unwrap()[..], [Claim::Run(_)]));
        lost.push(id);
    }
    assert_eq!(bench.store.reap(10).await.unwrap().len(), 2);
    assert_eq!(states(&lost).await, [State::Running, State::Failed, State::Failed]);
}

#[tokio::test]
async fn rows_that_wait_become_jobs_once_and_those_that_come_to_wait_later_do_too() {
    let Some(bench) = Bench::new().await else { return };
    let mut connection = bench.connection().await;
    let run = async |connection: &mut PgConnection, statement: &str| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(connection).await.unwrap();
    };
    run(
        &mut connection,
        "create type status as enum ('PENDING', 'DONE');
         create table \"Records\" (\"Id\" bigint primary key, status status not null);
         create table keyless (status text);
         insert into \"Records\" values (1, 'PENDING'), (2, 'DONE'), (3, 'PENDING')",
    )
    .await;
    let adoption = |table: &str, pending: &str| mapae::store::Adoption {
        table: table.into(),
        pending: pending.into(),
        kind: kind("context"),
        owner: Owner::new("acme").unwrap(),
    };
    let plan = bench.store.adoption(&adoption("\"Records\"", "status = 'PENDING'")).await.unwrap();
    assert!(bench.jobs().await.is_empty(), "only said");
    assert_eq!(bench.store.adopt(&plan).await.unwrap(), 2);
    assert_eq!(bench.store.adopt(&plan).await.unwrap(), 0, "again it does nothing more");
    let ids = async || {
        let jobs = bench.jobs().await;
        let mut ids: Vec<i64> = jobs.iter().map(|job| job.params["Id"].as_i64().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids().await, [1, 3]);
    run(
        &mut connection,
        "insert into \"Records\" values (4, 'PENDING'), (5, 'DONE');
         update \"Records\" set status = 'PENDING' where \"Id\" in (1, 2, 4);
         update \"Records\" set status = 'DONE' where \"Id\" = 3",
    )
    .await;
    assert_eq!(ids().await, [1, 2, 3, 4], "one each, for what had not waited before");
    bench.store.disown(&plan).await.unwrap();
    bench.store.disown(&plan).await.unwrap();
    run(&mut connection, "insert into \"Records\" values (6, 'PENDING')").await;
    assert_eq!(ids().await, [1, 2, 3, 4]);
    assert_eq!(bench.store.adopt(&plan).await.unwrap(), 1, "what waited meanwhile");
    for (table, pending, told) in [
        ("nowhere", "true", "no such table"),
        ("keyless", "true", "no primary key"),
        ("\"Records\"", "true; drop table keyless", "condition"),
        ("\"Records\"", "nothing = 1", "refused"),
    ] {
        let plan = bench.store.adoption(&adoption(table, pending)).await;
        let error = match plan {
            Ok(plan) => bench.store.adopt(&plan).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(told), "{error}");
    }
    // What fails for some row only: nobody may find that out by a write that is refused.
    run(
        &mut connection,
        "create table late (id integer primary key, n integer); insert into late values (1, 0)",
    )
    .await;
    let plan = bench.store.adoption(&adoption("late", "1 / n = 1")).await.unwrap();
    let error = bench.store.adopt(&plan).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    run(&mut connection, "insert into late values (2, 0)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_adopted_beside_its_writers() {
    let Some(bench) = Bench::new().await else { return };
    let mut connection = bench.connection().await;
    let schema =
        "create table rows (tenant text, id integer, status text not null, primary key (tenant, id));
                  insert into rows select 't' || n % 3, n, 'PENDING' from generate_series(1, 12000) n;
                  select 1";
    sqlx::raw_sql(schema).execute(&mut connection).await.unwrap();
    let adoption = mapae::store::Adoption {
        table: "rows".into(),
        pending: "status = 'PENDING'".into(),
        kind: kind("context"),
        owner: Owner::new("acme").unwrap(),
    };
    // Somebody is in the middle of a transaction: the trigger waits for that, and others go on all the same.
    let mut open = connection.begin().await.unwrap();
    sqlx::query("insert into rows values ('t1', 20000, 'PENDING')").execute(&mut *open).await.unwrap();
    let plan = bench.store.adoption(&adoption).await.unwrap();
    let adopting = tokio::spawn({
        let (store, plan) = (bench.store.clone(), plan.clone());
        async move { store.adopt(&plan).await.unwrap() }
    });
    let mut writer = bench.connection().await;
    let row = |id: i32| sqlx::query("insert into rows values ('t2', $1, 'PENDING')").bind(id);
    for id in 30_000..30_020 {
        row(id).execute(&mut writer).await.unwrap();
    }
    assert!(!adopting.is_finished(), "a transaction that began before is not over");
    open.commit().await.unwrap();
    // While rows become jobs, too: each write is done before the next part, or beside it.
    let mut id = 40_000;
    while !adopting.is_finished() {
        row(id).execute(&mut writer).await.unwrap();
        id += 1;
    }
    let made = adopting.await.unwrap();
    let count = sqlx::query("select count(*) as all, count(distinct params) as rows from mapae.jobs");
    let found = count.fetch_one(&mut writer).await.unwrap();
    let (jobs, rows): (i64, i64) = (found.get("all"), found.get("rows"));
    let written = i64::from(id - 40_000);
    assert_eq!(
        (jobs, rows),
        (12_021 + written, 12_021 + written),
        "each row has one job, {made} by the backfill"
    );
    assert!(made >= 12_021 && written > 0, "{made}, and {written} by their writer");
    assert_eq!(bench.store.adopt(&plan).await.unwrap(), 0, "again it does nothing more");
}
