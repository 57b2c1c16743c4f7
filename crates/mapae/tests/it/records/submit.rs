//! Jobs submitted by SQL, in the transaction of whoever submits them.

use super::*;

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
