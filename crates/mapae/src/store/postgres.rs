//! Jobs in PostgreSQL 15 or later, in a schema of its own, `mapae`.
//!
//! Every transition is one statement: its guard stands in the `where` clause, its event and result are
//! written by the same statement, and the answer is the rows that came back. `= any(array(…))` rather
//! than `in (…)`: with the latter the generic plan scans the table (180 times slower, measured).
//!
//! The files are those of `sqlite`, function by function, to be read side by side.

mod absence;
mod adopt;
mod ask;
mod batch;
mod claim;
mod control;
mod end;
mod follow;
mod gate;
mod keep;
mod label;
mod member;
#[cfg(feature = "faults")]
mod mutant;
mod presence;
mod record;
mod remote;
mod ring;
mod run;
mod schedule;
mod settle;
mod stats;
mod tell;
mod tidy;
mod unique;
mod view;
mod window;

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions, PgRow};
use sqlx::{Connection, Executor, PgConnection, Row};
use uuid::Uuid;

pub use self::adopt::{AdoptError, Adoption, AdoptionPlan};

use self::absence::Absences;
use self::ask::Ask;
use super::batch::Batcher;
use super::contract::{Accepted, PATIENCE, Schema, SettleError, Settlement, Store, StoreError};
use super::row::job_row;
use crate::job::State;
use crate::job::lease::Lease;
use crate::job::limit::Limits;
use crate::job::record::{Checkpoint, Job, NewJob, Output};
use crate::job::retry::Verdict;
use crate::job::timestamp::Timestamp;

/// Connections beside those of the member, for claims, settles, accepts and the keeper; more would only let
/// commits queue in the server instead of here.
const CONNECTIONS: u32 = 8;

/// Connections for reading.
const VIEW_CONNECTIONS: u32 = 4;

/// How long a statement waits for a row that another transaction holds. A user's own transaction may hold
/// one for long; whoever shares a batch with that row must not wait as long.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How long a transaction of ours may be left waiting for its next statement. Its process was stopped, or its host is
/// gone, and others need what it has locked.
const IDLE: Duration = Duration::from_secs(5);

/// How long a statement of the user's may wait for a record when a job is settled: first, where others wait for the
/// place, and then among those that found theirs locked.
const RECORD_WAIT: Duration = Duration::from_millis(100);
const RECORD_WAIT_AGAIN: Duration = Duration::from_secs(1);

/// How long to wait for a connection before the store counts as unavailable.
const ACQUIRE: Duration = Duration::from_secs(3);

pub(super) const MIGRATIONS: &[(u32, &str)] = &[
    (1, include_str!("../../migrations/postgres/0001_jobs.sql")),
    (2, include_str!("../../migrations/postgres/0002_assignee.sql")),
    (3, include_str!("../../migrations/postgres/0003_resources.sql")),
    (4, include_str!("../../migrations/postgres/0004_plans.sql")),
    (5, include_str!("../../migrations/postgres/0005_remote.sql")),
    (6, include_str!("../../migrations/postgres/0006_deliveries.sql")),
    (7, include_str!("../../migrations/postgres/0007_records.sql")),
    (8, include_str!("../../migrations/postgres/0008_rests.sql")),
    (9, include_str!("../../migrations/postgres/0009_offered.sql")),
    (10, include_str!("../../migrations/postgres/0010_file_store.sql")),
    (11, include_str!("../../migrations/postgres/0011_batches.sql")),
    (12, include_str!("../../migrations/postgres/0012_labels.sql")),
    (13, include_str!("../../migrations/postgres/0013_telling.sql")),
];

/// Most rows that one statement claims or rings; it stands in them as a number, so that their plans know it.
const AT_ONCE_MAX: usize = 1_000;

/// The columns of a [`super::row::JobRow`], of a row called `j`.
macro_rules! job_columns {
    () => {
        "
    j.id, j.owner, j.kind, j.priority, j.params, j.source, j.trace, j.state, j.attempt, j.attempts_max,
    j.backoff_first_us, j.backoff_max_us, j.throttled, j.snoozed, j.redrives, j.parent, j.cancel_asked,
    (extract(epoch from j.created_at) * 1000000)::bigint   as created_at,
    (extract(epoch from j.due_at) * 1000000)::bigint       as due_at,
    (extract(epoch from j.deadline) * 1000000)::bigint     as deadline,
    (extract(epoch from j.started_at) * 1000000)::bigint   as started_at,
    (extract(epoch from j.finished_at) * 1000000)::bigint  as finished_at,
    (extract(epoch from j.leased_until) * 1000000)::bigint as leased_until,
    j.holder, j.incarnation, j.token, j.epoch, j.progress, j.failure, j.assignee, j.hint, j.sequence"
    };
}
use job_columns;

/// A store in PostgreSQL. Made by [`Postgres::open`]; cheap to clone.
#[derive(Clone)]
pub struct Postgres {
    pool: PgPool,
    /// Reading for people has connections of its own, so that a slow page never keeps a job from settling.
    views: PgPool,
    options: PgConnectOptions,
    outbox: bool,
    absences: Arc<Mutex<Absences>>,
    limits: Arc<RwLock<Arc<Limits>>>,
    /// Jobs failed at their claim since somebody asked, because their rows could not be read.
    unreadable: Arc<AtomicU64>,
    accepts: Arc<Batcher<NewJob, Result<Accepted, super::contract::AcceptError>>>,
    /// Apart, because a key may be held by a transaction that is still open.
    keyed: Arc<Batcher<NewJob, Result<Accepted, super::contract::AcceptError>>>,
    /// Apart again, because these take more than one statement each: who holds a unique key is found out one by
    /// one, and what comes after a job is written beside it.
    singles: Arc<Batcher<NewJob, Result<Accepted, super::contract::AcceptError>>>,
    settles: Arc<Batcher<Settlement, Result<State, SettleError>>>,
    /// Apart, because a statement of the user's runs with each, and may wait; for a moment only.
    written: Arc<Batcher<Settlement, Result<State, SettleError>>>,
    /// Apart again: those whose record was locked when they were settled.
    patient: Arc<Batcher<Settlement, Result<State, SettleError>>>,
    /// Whether some kind has such a statement, as far as this process was told.
    writing: Arc<AtomicBool>,
    listener: Arc<tokio::sync::Mutex<Option<PgListener>>>,
}

impl Postgres {
    /// Connects lazily: an unreachable server is found by the first call. `outbox` says whether anyone
    /// will take events away ([`super::contract::Tell::spread`]).
    pub async fn open(url: &str, outbox: bool) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)?.application_name("mapae").options([
            ("statement_timeout", format!("{}ms", PATIENCE.as_millis())),
            ("lock_timeout", format!("{}ms", LOCK_WAIT.as_millis())),
            // Of a process that is frozen in the middle of one: others wait for its locks no longer than this.
            ("idle_in_transaction_session_timeout", format!("{}ms", IDLE.as_millis())),
            // What was answered as accepted is on the disk, whatever the server's own setting is.
            ("synchronous_commit", "on".into()),
            ("timezone", "UTC".into()),
            // The server lets go of a session, and so of a presence, whose host is gone.
            ("tcp_keepalives_idle", "10".into()),
            ("tcp_keepalives_interval", "5".into()),
            ("tcp_keepalives_count", "3".into()),
            ("tcp_user_timeout", "20000".into()),
        ]);
        let connect = |connections| {
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(ACQUIRE)
                .connect_lazy_with(options.clone())
        };
        let (pool, views) = (connect(CONNECTIONS), connect(VIEW_CONNECTIONS));
        let (accepting, keyed, settling) = (pool.clone(), pool.clone(), pool.clone());
        let (sole, writing, patient) = (pool.clone(), pool.clone(), pool.clone());
        Ok(Self {
            accepts: Arc::new(Batcher::spawn(2, 500, move |batch| {
                let pool = accepting.clone();
                Box::pin(async move { control::accept(&pool, &batch, outbox).await })
            })),
            keyed: Arc::new(Batcher::spawn(2, 500, move |batch| {
                let pool = keyed.clone();
                Box::pin(async move { control::accept(&pool, &batch, outbox).await })
            })),
            singles: Arc::new(Batcher::spawn(2, 100, move |batch| {
                let pool = sole.clone();
                Box::pin(async move { unique::accept(&pool, &batch, outbox).await })
            })),
            settles: Arc::new(Batcher::spawn(2, 500, move |batch| {
                let pool = settling.clone();
                Box::pin(async move {
                    #[cfg(feature = "faults")]
                    let batch = {
                        let mut batch = batch;
                        mutant::fence(&pool, &mut batch).await?;
                        batch
                    };
                    settle::settle(&pool, &batch, outbox).await
                })
            })),
            written: Arc::new(Batcher::spawn(4, 1, move |batch| {
                let pool = writing.clone();
                Box::pin(async move { settle::settle_within(&pool, &batch, outbox, RECORD_WAIT).await })
            })),
            patient: Arc::new(Batcher::spawn(2, 1, move |batch| {
                let pool = patient.clone();
                Box::pin(async move { settle::settle_within(&pool, &batch, outbox, RECORD_WAIT_AGAIN).await })
            })),
            writing: Arc::default(),
            listener: Arc::default(),
            pool,
            views,
            options,
            outbox,
            absences: Arc::default(),
            limits: Arc::default(),
            unreadable: Arc::default(),
        })
    }

    /// Accepts a job in the caller's own transaction: it is there if, and only if, that commits. A
    /// keeper rings for it; to save that wait, ring after the commit.
    pub async fn accept_in(
        &self,
        transaction: &mut sqlx::PgTransaction<'_>,
        job: NewJob,
    ) -> Result<Accepted, super::contract::AcceptError> {
        unique::accept_on(transaction, &job, self.outbox).await?
    }

    /// Completes a job in the transaction of the handler that runs it: its result, its event and what comes after
    /// it are there if, and only if, that commits. The handler may then return anything that is no failure:
    /// the job has been completed.
    ///
    /// Answers the state that the commit will make true: `cancelled` where the job's owner has asked for that;
    /// then roll back, unless the work is to stand all the same.
    ///
    /// Keep the transaction short: until it ends, the job's heartbeat waits for it.
    pub async fn complete_in(
        &self,
        transaction: &mut sqlx::PgTransaction<'_>,
        lease: &Lease,
        output: Option<Output>,
    ) -> Result<State, SettleError> {
        let settlement = Settlement { lease: lease.clone(), verdict: Verdict::Succeed, output };
        let mut answers = settle::settle_on(transaction, &[settlement], self.outbox).await?;
        answers.pop().unwrap_or_else(|| Err(StoreError::Broken("no answer to a settle".into()).into()))
    }

    /// Keeps a stage in the transaction of the handler that runs the job, together with what else that writes.
    /// Fenced, and short, as [`Postgres::complete_in`].
    pub async fn checkpoint_in(
        &self,
        transaction: &mut sqlx::PgTransaction<'_>,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<(), SettleError> {
        run::checkpoint_on(transaction, lease, checkpoint, self.outbox).await
    }
}

#[async_trait]
impl Store for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = sqlx::query("select (extract(epoch from clock_timestamp()) * 1000000)::bigint as now")
            .one(&self.pool)
            .await?;
        Ok(Timestamp::from_micros(row.try_get("now")?))
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        // Longer than any statement may take, so on a connection of its own.
        let mut connection = PgConnection::connect_with(&self.options).await?;
        connection.execute("set statement_timeout = '10min'").await?;
        let mut transaction = connection.begin().await?;
        // One migrates, the others wait: the number is this program's own ("mapae").
        transaction.execute("select pg_advisory_xact_lock(469786058085)").await?;
        transaction
            .execute(
                "
                create schema if not exists mapae;
                create table if not exists mapae.migrations (
                    number     integer     primary key,
                    applied_at timestamptz not null default clock_timestamp()
                );
                ",
            )
            .await?;
        let schema = found(&mut transaction).await?;
        if schema.found > schema.known {
            return Err(StoreError::NewerSchema(schema));
        }
        for (number, statements) in MIGRATIONS.iter().filter(|(number, _)| *number > schema.found) {
            transaction.execute(*statements).await?;
            sqlx::query("insert into mapae.migrations (number) values ($1)")
                .bind(*number as i32)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    async fn schema(&self) -> Result<Schema, StoreError> {
        let mut connection = self.pool.acquire().await?;
        found(&mut connection).await
    }

    async fn files(&self) -> Result<Option<Uuid>, StoreError> {
        let row = sqlx::query("select id from mapae.file_store").maybe(&self.pool).await?;
        Ok(row.map(|row| row.try_get("id")).transpose()?)
    }

    async fn adopt_files(&self, id: Uuid) -> Result<Uuid, StoreError> {
        // Two statements: one that waited for another's insert would not see it.
        let query = sqlx::query("insert into mapae.file_store (id) values ($1) on conflict do nothing");
        query.bind(id).done(&self.pool).await?;
        Ok(sqlx::query("select id from mapae.file_store").one(&self.pool).await?.try_get("id")?)
    }

    fn take_unreadable(&self) -> u64 {
        self.unreadable.swap(0, Ordering::Relaxed)
    }

    async fn sees_presence(&self) -> Result<bool, StoreError> {
        presence::is_seen(self).await
    }

    async fn close(&self) {
        self.pool.close().await;
        self.views.close().await;
    }
}

async fn found(connection: &mut PgConnection) -> Result<Schema, StoreError> {
    let known = MIGRATIONS.last().map_or(0, |(number, _)| *number);
    let there: bool = sqlx::query("select to_regclass('mapae.migrations') is not null as there")
        .one(&mut *connection)
        .await?
        .try_get("there")?;
    if !there {
        return Ok(Schema { found: 0, known });
    }
    let row =
        sqlx::query("select coalesce(max(number), 0) as found from mapae.migrations").one(connection).await?;
    Ok(Schema { found: super::row::count(row.try_get("found")?)?, known })
}

fn job(row: &PgRow) -> Result<Job, StoreError> {
    job_row!(row).job()
}
