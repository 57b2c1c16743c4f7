//! Jobs in a SQLite file, for one machine.
//!
//! Every transition is one transaction: its guard stands in the `where` clause, its event and result are
//! written in the same savepoint, and the answer is the rows that came back. There is one writer
//! ([`writer`]), so nothing is locked row by row and nothing is skipped; a claim beside another simply
//! comes after it.
//!
//! The files are those of `postgres`, function by function, to be read side by side. Lists are bound as
//! one JSON array and read by `json_each`, ids in it as hexadecimal: what `unnest` is there.

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
mod tell;
mod tidy;
mod unique;
mod view;
mod window;
mod writer;

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool,
    SqlitePoolOptions, SqliteRow, SqliteSynchronous, SqliteTransaction,
};
use sqlx::{Connection, Executor, Row};
use uuid::Uuid;

use self::presence::Presence;
use self::writer::{Transaction, Writer};
use super::batch::Batcher;
use super::contract::{AcceptError, Accepted, PATIENCE, Schema, SettleError, Settlement, Store, StoreError};
use super::fault::disk;
use super::row::job_row;
use crate::job::State;
use crate::job::lease::Lease;
use crate::job::limit::Limits;
use crate::job::record::{Checkpoint, Job, NewJob, Output};
use crate::job::retry::Verdict;
use crate::job::timestamp::Timestamp;

/// Connections that read, beside the one that writes.
const CONNECTIONS: u32 = 4;

/// How long to wait for one of them before the store counts as unavailable.
const ACQUIRE: Duration = Duration::from_secs(3);

/// Settlements that share one statement at most.
const SETTLES_MAX: usize = 500;

/// How long to wait while another process writes. Half of what a call may take.
const BUSY: Duration = Duration::from_secs(5);

pub(super) const MIGRATIONS: &[(u32, &str)] = &[
    (1, include_str!("../../migrations/sqlite/0001_jobs.sql")),
    (2, include_str!("../../migrations/sqlite/0002_assignee.sql")),
    (3, include_str!("../../migrations/sqlite/0003_resources.sql")),
    (4, include_str!("../../migrations/sqlite/0004_plans.sql")),
    (5, include_str!("../../migrations/sqlite/0005_remote.sql")),
    (6, include_str!("../../migrations/sqlite/0006_deliveries.sql")),
    (7, include_str!("../../migrations/sqlite/0007_records.sql")),
    (8, include_str!("../../migrations/sqlite/0008_rests.sql")),
    (9, include_str!("../../migrations/sqlite/0009_offered.sql")),
    (10, include_str!("../../migrations/sqlite/0010_file_store.sql")),
    (11, include_str!("../../migrations/sqlite/0011_batches.sql")),
    (12, include_str!("../../migrations/sqlite/0012_labels.sql")),
    (13, include_str!("../../migrations/sqlite/0013_telling.sql")),
];

type Query = sqlx::query::Query<'static, sqlx::Sqlite, SqliteArguments>;

/// The database's clock in microseconds. It ticks in milliseconds; as a whole number of them it is exact.
macro_rules! now {
    () => {
        "(cast(round(unixepoch('subsec') * 1000) as integer) * 1000)"
    };
}
use now;

/// The columns of a [`super::row::JobRow`].
macro_rules! job_columns {
    () => {
        "
    id, owner, kind, priority, params, source, trace, state, attempt, attempts_max, backoff_first_us,
    backoff_max_us, throttled, snoozed, redrives, parent, cancel_asked, created_at, due_at, deadline, started_at,
    finished_at, leased_until, holder, incarnation, token, epoch, progress, failure, assignee, hint, sequence"
    };
}
use job_columns;

/// A store in a SQLite file. Made by [`Sqlite::open`]; cheap to clone.
#[derive(Clone)]
pub struct Sqlite {
    writer: Writer,
    /// None beside a database in memory, whose one connection does everything.
    readers: Option<SqlitePool>,
    options: SqliteConnectOptions,
    presence: Presence,
    outbox: bool,
    limits: Arc<RwLock<Arc<Limits>>>,
    settles: Arc<Batcher<Settlement, Result<State, SettleError>>>,
    /// Jobs failed at their claim since somebody asked, because their rows could not be read.
    unreadable: Arc<AtomicU64>,
}

impl Sqlite {
    /// Opens the file lazily: what is wrong with it is found by the first call. `outbox` says whether
    /// anyone will take events away ([`super::contract::Tell::spread`]).
    pub async fn open(url: &str, outbox: bool) -> Result<Self, StoreError> {
        let in_memory = url.contains(":memory:") || url.contains("mode=memory");
        let options = SqliteConnectOptions::from_str(url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY)
            .foreign_keys(true);
        if options.get_filename().as_os_str().is_empty() {
            return Err(StoreError::Address("a SQLite address names a file: sqlite:PATH".into()));
        }
        // It is opened later, and again, wherever the process stands by then.
        let file = std::path::absolute(options.get_filename()).map_err(disk)?;
        let options = if in_memory { options } else { options.filename(&file) };
        let readers = SqlitePoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(ACQUIRE);
        let writer = Writer::spawn(options.clone(), in_memory, outbox)?;
        let settling = writer.clone();
        Ok(Self {
            writer,
            readers: (!in_memory).then(|| {
                readers.connect_lazy_with(options.clone().create_if_missing(false).pragma("query_only", "on"))
            }),
            options,
            presence: if in_memory { Presence::memory() } else { Presence::beside(&file) },
            outbox,
            limits: Arc::default(),
            // One at a time: while a batch is committed, the next one gathers.
            settles: Arc::new(Batcher::spawn(1, SETTLES_MAX, move |batch| {
                let writer = settling.clone();
                Box::pin(async move { settle::settle_all(&writer, batch).await })
            })),
            unreadable: Arc::default(),
        })
    }

    /// Accepts a job in the caller's own transaction: it is there if, and only if, that commits. A
    /// keeper rings for it; to save that wait, ring after the commit. Begin the transaction with
    /// `begin immediate`: one that has read before it writes may be refused by SQLite.
    pub async fn accept_in(
        &self,
        transaction: &mut SqliteTransaction<'_>,
        job: NewJob,
    ) -> Result<Accepted, AcceptError> {
        let mut savepoint = transaction.begin().await.map_err(StoreError::from)?;
        let mut tx = Transaction::on(&mut savepoint, self.outbox).await?;
        let accepted = control::accept_on(&mut tx, &job).await?;
        savepoint.commit().await.map_err(StoreError::from)?;
        Ok(accepted)
    }

    /// Completes a job in the transaction of the handler that runs it: its result, its event and what comes after
    /// it are there if, and only if, that commits. The handler may then return anything that is no failure:
    /// the job has been completed.
    ///
    /// Answers the state that the commit will make true: `cancelled` where the job's owner has asked for that;
    /// then roll back, unless the work is to stand all the same.
    ///
    /// Begin it with `begin immediate` and keep it short: until it ends, nobody else writes.
    pub async fn complete_in(
        &self,
        transaction: &mut SqliteTransaction<'_>,
        lease: &Lease,
        output: Option<Output>,
    ) -> Result<State, SettleError> {
        let mut savepoint = transaction.begin().await.map_err(StoreError::from)?;
        let mut tx = Transaction::on(&mut savepoint, self.outbox).await?;
        let settlement = Settlement { lease: lease.clone(), verdict: Verdict::Succeed, output };
        let state = settle::settle(&mut tx, &[settlement]).await?.pop();
        let state =
            state.unwrap_or_else(|| Err(StoreError::Broken("no answer to a settle".into()).into()))?;
        savepoint.commit().await.map_err(StoreError::from)?;
        Ok(state)
    }

    /// Keeps a stage in the transaction of the handler that runs the job, together with what else that writes.
    /// Fenced, and short, as [`Sqlite::complete_in`].
    pub async fn checkpoint_in(
        &self,
        transaction: &mut SqliteTransaction<'_>,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<(), SettleError> {
        let mut savepoint = transaction.begin().await.map_err(StoreError::from)?;
        let mut tx = Transaction::on(&mut savepoint, self.outbox).await?;
        run::checkpoint_on(&mut tx, lease, checkpoint).await?;
        savepoint.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// [`Writer::write`].
    async fn write<T, E>(
        &self,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.writer.write(work).await
    }

    /// What a query that changes nothing finds, all of it committed.
    async fn rows(&self, query: Query) -> Result<Vec<SqliteRow>, StoreError> {
        let Some(readers) = &self.readers else {
            return self.write(async move |tx| tx.rows(query).await).await;
        };
        match tokio::time::timeout(PATIENCE, query.fetch_all(readers)).await {
            Ok(rows) => Ok(rows?),
            Err(_) => Err(StoreError::Unavailable("no answer in time".into())),
        }
    }

    async fn row(&self, query: Query) -> Result<Option<SqliteRow>, StoreError> {
        Ok(self.rows(query).await?.pop())
    }
}

#[async_trait]
impl Store for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = one(self.row(sqlx::query(concat!("select ", now!(), " as now"))).await?)?;
        Ok(Timestamp::from_micros(row.try_get("now")?))
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        if self.readers.is_none() {
            return self.write(async |tx| migrate_on(tx.connection()).await).await;
        }
        // One migrates, the others wait: longer than any call may, so on a connection of its own.
        let options = self.options.clone().busy_timeout(Duration::from_secs(600));
        let mut connection = connect(&options).await?;
        let mut transaction = connection.begin_with("begin immediate").await?;
        migrate_on(&mut transaction).await?;
        transaction.commit().await?;
        connection.close().await?;
        Ok(())
    }

    async fn schema(&self) -> Result<Schema, StoreError> {
        let Some(readers) = &self.readers else {
            return self.write(async |tx| found(tx.connection()).await).await;
        };
        if !self.options.get_filename().exists() {
            return Ok(Schema { found: 0, known: known() });
        }
        let mut connection = readers.acquire().await?;
        found(&mut connection).await
    }

    async fn files(&self) -> Result<Option<Uuid>, StoreError> {
        let row = self.row(sqlx::query("select id from file_store")).await?;
        Ok(row.map(|row| row.try_get("id")).transpose()?)
    }

    async fn adopt_files(&self, id: Uuid) -> Result<Uuid, StoreError> {
        self.write(async move |tx| {
            let query = sqlx::query("insert into file_store (one, id) values (1, $1) on conflict do nothing");
            tx.run(query.bind(id)).await?;
            Ok(one(tx.row(sqlx::query("select id from file_store")).await?)?.try_get("id")?)
        })
        .await
    }

    fn take_unreadable(&self) -> u64 {
        self.unreadable.swap(0, Ordering::Relaxed)
    }

    async fn sees_presence(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn close(&self) {
        self.writer.close().await;
        if let Some(readers) = &self.readers {
            readers.close().await;
        }
    }
}

/// A connection that may write. The file and its folder are made where they are missing.
async fn connect(options: &SqliteConnectOptions) -> Result<SqliteConnection, StoreError> {
    let file = options.get_filename();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(disk)?;
    }
    // Jobs are nobody else's to read. The files beside it get the permissions that it has.
    // One in memory has no such place. Where it fails it is there, or SQLite says why it cannot be.
    if file.is_absolute() {
        let _ = std::fs::File::options().write(true).create_new(true).mode(0o600).open(file);
    }
    match SqliteConnection::connect_with(options).await {
        Ok(connection) => Ok(connection),
        Err(error) => Err(why_not_open(file).err().unwrap_or_else(|| error.into())),
    }
}

/// Of a disk that is full or read-only SQLite may say only that a file cannot be opened; the system says
/// why. A file beside the database is tried: to close the database itself would let go of SQLite's locks.
fn why_not_open(file: &Path) -> Result<(), StoreError> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".probe");
    std::fs::File::create(&beside).map_err(disk)?;
    std::fs::remove_file(&beside).map_err(disk)
}

async fn migrate_on(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    connection
        .execute(
            "
            create table if not exists migrations (
                number     integer     primary key,
                applied_at integer     not null
            ) strict
            ",
        )
        .await?;
    let schema = found(connection).await?;
    if schema.found > schema.known {
        return Err(StoreError::NewerSchema(schema));
    }
    for (number, statements) in MIGRATIONS.iter().filter(|(number, _)| *number > schema.found) {
        connection.execute(*statements).await?;
        sqlx::query(concat!("insert into migrations (number, applied_at) values ($1, ", now!(), ")"))
            .bind(*number)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

fn known() -> u32 {
    MIGRATIONS.last().map_or(0, |(number, _)| *number)
}

async fn found(connection: &mut SqliteConnection) -> Result<Schema, StoreError> {
    let there = sqlx::query("select name from sqlite_schema where type = 'table' and name = 'migrations'")
        .fetch_optional(&mut *connection)
        .await?;
    if there.is_none() {
        return Ok(Schema { found: 0, known: known() });
    }
    let row =
        sqlx::query("select coalesce(max(number), 0) as found from migrations").fetch_one(connection).await?;
    Ok(Schema { found: super::row::count(row.try_get("found")?)?, known: known() })
}

/// What is told of a job whose row has just taken its next number.
struct Told {
    job: Uuid,
    event: String,
    attempt: i32,
    worker: Option<String>,
    code: Option<String>,
}

/// The events of transitions just made, in this order and in the transaction that made them.
async fn tell(tx: &mut Transaction<'_>, told: &[Told]) -> Result<(), StoreError> {
    if told.is_empty() {
        return Ok(());
    }
    let told: Vec<Value> = told
        .iter()
        .map(|told| json!([hex(told.job), told.event, told.attempt, told.worker, told.code]))
        .collect();
    let query = sqlx::query(
        "
        insert into events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
        select j.id, j.sequence, j.owner, j.kind,
               g.value->>1, $2, g.value->>2, g.value->>3, g.value->>4, not $3
          from json_each($1) g
         cross join jobs j on j.id = unhex(g.value->>0)
         order by g.key
        ",
    )
    .bind(Value::from(told))
    .bind(tx.now)
    .bind(tx.outbox);
    tx.run(query).await?;
    Ok(())
}

/// As ids stand in the arrays that statements read by `json_each`.
fn hex(id: Uuid) -> String {
    id.simple().to_string()
}

fn hexes(ids: impl IntoIterator<Item = Uuid>) -> Value {
    ids.into_iter().map(hex).collect()
}

/// The row of a query that always has one.
fn one(row: Option<SqliteRow>) -> Result<SqliteRow, StoreError> {
    row.ok_or_else(|| super::row::unreadable("a query without its one row"))
}

/// A number that a statement takes as its limit.
fn limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn job(row: &SqliteRow) -> Result<Job, StoreError> {
    job_row!(row).job()
}
