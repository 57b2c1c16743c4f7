//! Rows of the user's table that become jobs.

use super::*;

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
