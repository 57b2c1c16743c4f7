//! How PostgreSQL answers every statement of the store with a million jobs there: never by reading through a
//! table that grows, and without touching more of it than the answer needs.
//!
//! The server itself tells the plan of each statement as it was run, with what it touched (auto_explain, as
//! notices). Plans are generic ones: those that are kept for statements prepared once.

pub(crate) mod calls;

use std::time::Duration;

use mapae::job::batch::WAITING;
use mapae::job::event::EventKind;
use mapae::job::follow::{Follow, Next};
use mapae::job::lease::{Holder, Lease, Token};
use mapae::job::limit::{Gate, Limit, Limits, Rate};
use mapae::job::name::{
    Assignee, BusinessKey, ClientName, IdempotencyKey, JobId, Kind, LabelName, Lane, Owner, ScheduleName,
    SetName,
};
use mapae::job::record::{Callback, Checkpoint, NewJob, Output, Progress};
use mapae::job::retry::{Failure, Verdict};
use mapae::job::schedule::Missed;
use mapae::job::unique::UniqueRule;
use mapae::job::{End, State};
use mapae::store::Postgres;
use mapae::store::contract::{
    Answer, COUNT_MAX, Claim, EventFilter, Example, Garbage, Holding, JobFilter, Join, KindPlan, LOOK_MAX,
    LaneQuota, NewKey, Page, Puller, Receiver, Retention, RingPlan, Schedule, Scope, Settlement, Store, Told,
    WorkerReport,
};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use crate::child::in_a_child;
use crate::{heard, site};

const LONG: Duration = Duration::from_secs(3600);

fn owner() -> Owner {
    Owner::new("a").unwrap()
}

fn job() -> NewJob {
    NewJob::new(owner(), Kind::new("test.echo").unwrap(), json!({ "n": 1 }))
}

fn lane() -> Lane {
    job().lane()
}

/// A million jobs: most have ended, 100,000 wait unrung, of a thousand owners, 1,000 are rung, 500 run, every
/// other of them under a lease that is over.
const FILL: &str = "
    insert into mapae.jobs (id, owner, kind, lane, priority, params, source, state, attempt, attempts_max,
                            backoff_first_us, backoff_max_us, created_at, due_at, deadline, started_at, finished_at,
                            holder, incarnation, token, leased_until, epoch, hint, turn, ring_at)
    select (lpad(to_hex(1767225600000 + n), 12, '0') || '7' || substr(md5(n::text), 1, 3)
            || '8' || substr(md5(n::text), 4, 15))::uuid,
           'o' || n % 1000, 'test.echo', $1, 5, '{}',
           jsonb_build_object('name', 'file ' || n || '.pdf', 'bytes', 1, 'sha256', '0', 'media_type', 'application/pdf',
                              'file', 'originals/x'),
           s.state, case s.state when 'pending' then 0 else 1 end, 3, 1, 1, at, at,
           case when n % 10 = 0 and s.state <> 'pending' then at end, case when s.state <> 'pending' then at end,
           case when s.state not in ('pending', 'running') then at end,
           case s.state when 'running' then 'gone' end, case s.state when 'running' then gen_random_uuid() end,
           case s.state when 'running' then gen_random_uuid() end,
           case s.state when 'running' then now() + case n % 2 when 0 then 1 else -1 end * interval '1 hour' end,
           1, case s.rung when true then 1 else 0 end, case s.rung when true then n end,
           case s.rung when true then now() + interval '1 hour' end
      from (select n, now() - (1000001 - n) * interval '1 second' / 10 as at,
                   case when n > 999500 then 'running' when n > 898500 then 'pending'
                        when n % 1000 = 1 then 'failed' when n % 1000 = 2 then 'stale' when n % 1000 = 3 then 'cancelled'
                        else 'succeeded' end as state,
                   n > 998500 and n <= 999500 as rung
              from generate_series($2::bigint, $2::bigint + $3::bigint - 1) n) s
";

/// How many rows one statement fills in. No event on the whole server, other tests' among them, is told before a
/// transaction that began earlier has ended, so none of these is a long one.
const PART: i64 = 50_000;

/// In an order in which each may refer to what is there, with how many rows there are to be. Each goes on behind the
/// job $1 and answers how far it came.
const FILL_REST: [(&str, i64); 4] = [
    (
        "with filled as (
            insert into mapae.events (job, sequence, owner, kind, event, at, sent)
            select id, 1, owner, kind, 'accepted', created_at, due_at < now() - interval '1 minute' from mapae.jobs
             where id > $1 order by id limit $2 returning job)
         select job from filled order by job desc limit 1",
        1_000_000,
    ),
    (
        "with filled as (
            insert into mapae.results (job, output, stored_at)
            select id, '{\"inline\": 1}', finished_at from mapae.jobs
             where id > $1 and state = 'succeeded' order by id limit $2 returning job)
         select job from filled order by job desc limit 1",
        400_000,
    ),
    (
        "with filled as (
            insert into mapae.deliveries (receiver, job, sequence, owner, kind, event, at, attempt, since, due_at,
                                          refusal, dead_at)
            select 'f' || right(id::text, 1), id, 1, owner, kind, 'accepted', created_at, 0, created_at,
                   created_at, d.refusal, case when d.refusal is not null then created_at end
              from mapae.jobs j
             cross join lateral (select case when right(j.owner, 1) = '7' then 'receiver-silent' end as refusal) d
             where id > $1 order by id limit $2 returning job)
         select job from filled order by job desc limit 1",
        100_000,
    ),
    (
        "with filled as (
            insert into mapae.checkpoints (job, stage, output, took_us, at)
            select id, 's', '{\"inline\": 1}', 1, created_at from mapae.jobs
             where id > $1 order by id limit $2 returning job)
         select job from filled order by job desc limit 1",
        200_000,
    ),
];

async fn fill(connection: &mut PgConnection) {
    // What a fault would cost is another filling: no log. Indexes are built at the end, in one go each.
    for statement in [
        "set session_replication_role = replica",
        "set maintenance_work_mem = '256MB'",
        "alter table mapae.results set unlogged",
        "alter table mapae.checkpoints set unlogged",
        "alter table mapae.events set unlogged",
        "alter table mapae.uniques set unlogged",
        "alter table mapae.follows set unlogged",
        "alter table mapae.callbacks set unlogged",
        "alter table mapae.deliveries set unlogged",
        "alter table mapae.members set unlogged",
        "alter table mapae.batches set unlogged",
        "alter table mapae.jobs set unlogged",
    ] {
        connection.execute(statement).await.unwrap();
    }
    let indexes = sqlx::query(
        "select indexname, indexdef from pg_indexes
          where schemaname = 'mapae' and tablename in ('jobs', 'events') and indexname !~ '_pkey$'",
    )
    .fetch_all(&mut *connection)
    .await
    .unwrap();
    for index in &indexes {
        let drop = format!("drop index mapae.{}", index.get::<String, _>("indexname"));
        connection.execute(sqlx::AssertSqlSafe(drop)).await.unwrap();
    }
    for from in (1_i64..=1_000_000).step_by(PART as usize) {
        let part = sqlx::query(FILL).bind(lane().to_string()).bind(from).bind(PART);
        part.execute(&mut *connection).await.unwrap();
    }
    // So that a part is found by the index, and not by going through all of it each time.
    connection.execute("analyze mapae.jobs").await.unwrap();
    for (statement, rows) in FILL_REST {
        let mut behind = Uuid::nil();
        for _ in 0..rows / PART {
            let part = sqlx::query(statement).bind(behind).bind(PART);
            behind = part.fetch_one(&mut *connection).await.unwrap().get("job");
        }
    }
    for index in &indexes {
        connection.execute(sqlx::AssertSqlSafe(index.get::<String, _>("indexdef"))).await.unwrap();
    }
    connection.execute("analyze").await.unwrap();
}

/// What each step of a plan touches, itself and all below it, in blocks; and what it reads through.
fn look<'a>(step: &'a Value, scans: &mut Vec<&'a str>) -> u64 {
    let relation = step["Relation Name"].as_str().unwrap_or_default();
    let grows = ["jobs", "events", "results", "checkpoints", "deliveries"].contains(&relation);
    if grows && step["Node Type"].as_str().is_some_and(|name| name.ends_with("Seq Scan")) {
        scans.push(relation);
    }
    let blocks = |name: &str| step[name].as_u64().unwrap_or_default();
    let own = blocks("Shared Hit Blocks") + blocks("Shared Read Blocks");
    let below = step["Plans"].as_array().into_iter().flatten().map(|step| look(step, scans)).max();
    own.max(below.unwrap_or_default())
}

/// From now on the server tells the plans of what new connections to this database ask for.
async fn explain(connection: &mut PgConnection, name: &str) {
    for setting in [
        "session_preload_libraries = auto_explain",
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_analyze = on",
        "auto_explain.log_buffers = on",
        "auto_explain.log_timing = off",
        // Those of triggers, too.
        "auto_explain.log_nested_statements = on",
        "auto_explain.log_format = json",
        "auto_explain.log_level = notice",
        "plan_cache_mode = force_generic_plan",
    ] {
        let statement = format!("alter database {name} set {setting}");
        connection.execute(sqlx::AssertSqlSafe(statement)).await.unwrap();
    }
}

/// The plans that were told so far of statements on our tables, with their text.
fn told() -> Vec<(String, Value)> {
    let plan = |notice: String| {
        let at = notice.find('{').filter(|_| notice.starts_with("duration: "))?;
        let mut told: Value = serde_json::from_str(&notice[at..]).unwrap();
        let statement = told["Query Text"].as_str().unwrap().to_owned();
        statement.contains("mapae.").then(|| (statement, told["Plan"].take()))
    };
    heard::notices().into_iter().filter_map(plan).collect()
}

/// Most blocks that a statement may touch: some dozens of rows, each in ten indexes of a few levels. A table of a
/// million jobs has a hundred thousand.
const BLOCKS_MAX: u64 = 2_000;

/// Those that grow with what waits, not with what is there: a fair round goes past each of the thousand
/// owners, and a list of what succeeded past all that waits, where that came last.
const BLOCKS_MAX_WAITING: u64 = 8_000;

/// Those that look for what no index leads to, among so many jobs and no more: a block for each and all of that
/// beside it which a plain list may touch.
const BLOCKS_MAX_SEARCHED: u64 = BLOCKS_MAX_WAITING + LOOK_MAX as u64;

/// The statistics count so many of each state, and each may have to be looked at where nothing has been vacuumed.
const BLOCKS_MAX_COUNTED: u64 = BLOCKS_MAX_WAITING + COUNT_MAX as u64;

#[test]
fn no_statement_reads_through_a_table_of_a_million_jobs() {
    let test = "explain::no_statement_reads_through_a_table_of_a_million_jobs";
    in_a_child("env", test, explain_every_statement);
}

async fn explain_every_statement() {
    let Some(server) = site::postgres() else { return };
    heard::listen();
    let url = site::fresh(&server).await;
    Postgres::open(&url, true).await.unwrap().migrate().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    fill(&mut connection).await;
    let name = url.rsplit('/').next().unwrap();
    explain(&mut connection, name).await;

    let store = Postgres::open(&url, true).await.unwrap();
    calls::everything(&store).await;
    let mut transaction = PgConnection::connect(&url).await.unwrap();
    let mut transaction = transaction.begin().await.unwrap();
    store.accept_in(&mut transaction, job()).await.unwrap();
    transaction.commit().await.unwrap();
    store.close().await;

    let mut wrong = Vec::new();
    let mut explained = 0;
    for (statement, plan) in told() {
        // Statistics count.
        if statement.contains("as waiting,") {
            continue;
        }
        explained += 1;
        let mut scans = Vec::new();
        let blocks = look(&plan, &mut scans);
        let waiting =
            statement.contains("recursive owners") || statement.contains("j.state = 'succeeded' order by");
        let searches = statement.contains(&LOOK_MAX.to_string()) || statement.contains(" offset ");
        let counts =
            statement.contains("select 'stale', (select count(*)") || statement.contains("as outbox");
        let most = if counts {
            BLOCKS_MAX_COUNTED
        } else if searches {
            BLOCKS_MAX_SEARCHED
        } else if waiting {
            BLOCKS_MAX_WAITING
        } else {
            BLOCKS_MAX
        };
        if !scans.is_empty() || blocks > most {
            wrong.push(format!("{blocks} blocks, reads through {scans:?}: {statement}\n{plan:#}"));
        }
    }
    connection.close().await.unwrap();
    let mut connection = PgConnection::connect(&server).await.unwrap();
    connection.execute(sqlx::AssertSqlSafe(format!("drop database {name} with (force)"))).await.unwrap();
    assert!(explained > 80, "{explained} statements: were they all seen?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Rows that a plan read and did not take, at any step.
fn vainly(step: &Value) -> u64 {
    let here = ["Rows Removed by Filter", "Rows Removed by Join Filter"].map(|name| step[name].as_u64());
    let below = step["Plans"].as_array().into_iter().flatten().map(vainly);
    here.into_iter().flatten().sum::<u64>() + below.sum::<u64>()
}

#[test]
fn no_batch_reads_through_a_new_table_of_which_the_planner_knows_nothing() {
    let test = "explain::no_batch_reads_through_a_new_table_of_which_the_planner_knows_nothing";
    in_a_child("env", test, explain_batches_in_a_new_table);
}

async fn explain_batches_in_a_new_table() {
    let Some(server) = site::postgres() else { return };
    heard::listen();
    let url = site::fresh(&server).await;
    let store = mapae::store::open(&url, true).await.unwrap();
    store.migrate().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    // As in the first minute of a database.
    connection.execute("alter table mapae.jobs set (autovacuum_enabled = false)").await.unwrap();
    let accepts = (0..3_000).map(|_| store.accept(job()));
    futures_util::future::try_join_all(accepts).await.unwrap();
    let holder = Holder::new("w");
    let plan = RingPlan { window: 1_000, least: 1_000, again: LONG, rescan: None, max: 1_000 };
    let quota = [LaneQuota { lane: lane(), max: 1_000 }];
    store.ring(&plan).await.unwrap();
    let running = store.claim_rung(&holder, &quota, 1_000, LONG).await.unwrap();
    store.ring(&plan).await.unwrap();
    store.close().await;

    let name = url.rsplit('/').next().unwrap();
    explain(&mut connection, name).await;
    let store = mapae::store::open(&url, true).await.unwrap();
    assert_eq!(store.ring(&RingPlan { max: 10, ..plan }).await.unwrap().len(), 10);
    let claimed = store.claim_rung(&holder, &[LaneQuota { max: 10, ..quota[0].clone() }], 10, LONG).await;
    assert_eq!(claimed.unwrap().len(), 10);
    let settles = running.into_iter().take(10).map(|holding| {
        store.settle(Settlement { lease: holding.lease, verdict: Verdict::Succeed, output: None })
    });
    futures_util::future::try_join_all(settles).await.unwrap();
    store.close().await;

    let plans = told();
    assert!(plans.len() > 3, "{} plans", plans.len());
    for (statement, plan) in plans {
        let vainly = vainly(&plan);
        assert!(vainly < 200, "{vainly} rows read in vain: {statement}\n{plan:#}");
    }
    connection.close().await.unwrap();
    let mut connection = PgConnection::connect(&server).await.unwrap();
    connection.execute(sqlx::AssertSqlSafe(format!("drop database {name} with (force)"))).await.unwrap();
}
