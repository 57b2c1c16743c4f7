//! One writer: a thread that owns one connection and commits for all who ask.
//!
//! SQLite lets one transaction write at a time and syncs the disk once for each. So requests queue here,
//! and whatever waits when the last commit returned goes into the next one: no timer, and under no load
//! a request travels alone. Each request has a savepoint of its own, so that one that fails takes nothing
//! of its neighbours with it. Nobody is answered before the commit has returned.
//!
//! A panic ends the transaction under way, whose outcome is then unknown to those who asked, and nothing
//! else: the thread opens another.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{Connection, Executor, Row};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{BUSY, Query, connect, now};
use crate::fault::{self, Point};
use crate::store::contract::{PATIENCE, StoreError};

/// Requests that may wait; beyond that askers wait to ask.
const QUEUE: usize = 1_000;

/// Requests that share one commit at most: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 500;

/// How long SQLite itself waits for another writer before it is asked again. Its own waits grow to 100 ms
/// between two looks, and a writer that never rests would keep another out for seconds: a heartbeat waited 3.1 s
/// at worst, and 0.16 s with this.
const LOOK: Duration = Duration::from_millis(2);

/// A transaction that is open for writing. What it returns as rows and writes is not durable yet.
pub(super) struct Transaction<'c> {
    connection: &'c mut SqliteConnection,
    /// The database's clock as the transaction began.
    pub(super) now: i64,
    /// Whether events are to be sent anywhere.
    pub(super) outbox: bool,
    /// Jobs failed in it because their rows cannot be read.
    pub(super) unreadable: u64,
}

impl<'c> Transaction<'c> {
    /// On a connection where one was begun.
    pub(super) async fn on(connection: &'c mut SqliteConnection, outbox: bool) -> Result<Self, StoreError> {
        let row = sqlx::query(concat!("select ", now!(), " as now")).fetch_one(&mut *connection).await?;
        Ok(Self { now: row.try_get("now")?, connection, outbox, unreadable: 0 })
    }

    pub(super) async fn rows(&mut self, query: Query) -> Result<Vec<SqliteRow>, StoreError> {
        Ok(query.fetch_all(&mut *self.connection).await?)
    }

    pub(super) async fn row(&mut self, query: Query) -> Result<Option<SqliteRow>, StoreError> {
        Ok(self.rows(query).await?.pop())
    }

    /// How many rows it changed.
    pub(super) async fn run(&mut self, query: Query) -> Result<u64, StoreError> {
        Ok(query.execute(&mut *self.connection).await?.rows_affected())
    }

    /// The connection, for what is no single statement.
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        self.connection
    }

    /// Runs the request in the savepoint that is open, and leaves a fresh one for the next.
    async fn serve(&mut self, request: &mut dyn Request) -> Result<(), StoreError> {
        let next = if request.run(self).await {
            "release request; savepoint request"
        } else {
            "rollback to request"
        };
        self.run(sqlx::query(next)).await?;
        Ok(())
    }
}

/// A request on its way. It is run once and answered once.
trait Request: Send {
    /// Whether what it did is to be kept.
    fn run<'a>(&'a mut self, tx: &'a mut Transaction<'_>) -> Pin<Box<dyn Future<Output = bool> + 'a>>;

    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Asked<F, T, E> {
    work: Option<F>,
    outcome: Option<Result<T, E>>,
    asker: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> Request for Asked<F, T, E>
where
    F: AsyncFnOnce(&mut Transaction<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn run<'a>(&'a mut self, tx: &'a mut Transaction<'_>) -> Pin<Box<dyn Future<Output = bool> + 'a>> {
        Box::pin(async {
            // Whoever gave up has been told that the outcome is unknown; under overload that saves work.
            let work = self.work.take().filter(|_| !self.asker.is_closed());
            let Some(work) = work else { return false };
            let outcome = work(tx).await;
            let kept = outcome.is_ok();
            self.outcome = Some(outcome);
            kept
        })
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let answer = match (self.outcome, committed) {
            (Some(Err(refused)), _) => Err(refused),
            (_, Err(error)) => Err(error.into()),
            (Some(Ok(answer)), Ok(())) => Ok(answer),
            (None, Ok(())) => return,
        };
        // The asker may have given up by now; what was committed stands all the same.
        let _ = self.asker.send(answer);
    }
}

/// A handle of the thread, which ends when the last handle is dropped or one of them closes it.
#[derive(Clone)]
pub(super) struct Writer {
    sender: mpsc::Sender<Box<dyn Request>>,
    closing: CancellationToken,
}

impl Writer {
    /// Connects with the first request. A database in memory lives as long as its connection does.
    pub(super) fn spawn(
        options: SqliteConnectOptions,
        in_memory: bool,
        outbox: bool,
    ) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(no_thread)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let thread = Thread { options, in_memory, outbox, connection: None, closing: closing.clone() };
        std::thread::Builder::new()
            .name("mapae-sqlite".into())
            .spawn(move || thread.run(&runtime, receiver))
            .map_err(no_thread)?;
        Ok(Self { sender, closing })
    }

    /// What `work` wrote is committed, unless it failed: then nothing of it is.
    pub(super) async fn write<T, E>(
        &self,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (asker, answer) = oneshot::channel();
        let request = Box::new(Asked { work: Some(work), outcome: None, asker });
        let asked = async {
            self.sender.send(request).await.map_err(|_| closed())?;
            answer.await.map_err(|_| unanswered())
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answered) => answered.map_err(E::from)?,
            Err(_) => Err(StoreError::Unavailable("no answer in time".into()).into()),
        }
    }

    /// What waits has been done and the connection is closed.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        let _ = tokio::time::timeout(PATIENCE, self.sender.closed()).await;
    }
}

struct Thread {
    options: SqliteConnectOptions,
    in_memory: bool,
    outbox: bool,
    connection: Option<SqliteConnection>,
    closing: CancellationToken,
}

impl Thread {
    fn run(mut self, runtime: &Runtime, mut receiver: mpsc::Receiver<Box<dyn Request>>) {
        // Whatever a panic leaves behind is the connection, and that is recovered.
        while catch_unwind(AssertUnwindSafe(|| runtime.block_on(self.serve(&mut receiver)))).is_err() {
            error!("the writer of the database ended unexpectedly; it goes on with the next transaction");
            runtime.block_on(async {
                // A connection that is only dropped keeps its locks until its own thread has closed it.
                if let Some(connection) = &mut self.connection {
                    let _ = connection.execute("rollback").await;
                }
                self.recover().await;
            });
        }
        if let Some(connection) = self.connection {
            // Nothing is lost if this fails: what was answered is in the log and synced.
            let _ = runtime.block_on(connection.close());
        }
    }

    /// Until nobody can ask any more and nobody waits.
    async fn serve(&mut self, receiver: &mut mpsc::Receiver<Box<dyn Request>>) {
        let mut waiting = VecDeque::new();
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                () = self.closing.cancelled(), if !receiver.is_closed() => receiver.close(),
                received = receiver.recv_many(&mut batch, BATCH_MAX) => if received == 0 { break },
            }
            waiting.extend(batch.drain(..));
            while !waiting.is_empty() {
                self.answer(&mut waiting).await;
            }
        }
    }

    /// Answers the first of those that wait, and as many more as one transaction took.
    async fn answer(&mut self, waiting: &mut VecDeque<Box<dyn Request>>) {
        let mut served = Vec::with_capacity(waiting.len());
        let outcome = self.transact(waiting, &mut served).await;
        if outcome.is_err() {
            self.recover().await;
        }
        for request in served {
            request.answer(outcome.as_ref().copied().map_err(again));
        }
    }

    async fn transact(
        &mut self,
        waiting: &mut VecDeque<Box<dyn Request>>,
        served: &mut Vec<Box<dyn Request>>,
    ) -> Result<(), StoreError> {
        let mut tx = match self.begin().await {
            Ok(tx) => tx,
            Err(error) => {
                served.extend(waiting.drain(..));
                return Err(error);
            }
        };
        while let Some(mut request) = waiting.pop_front() {
            let kept = tx.serve(&mut *request).await;
            served.push(request);
            // A full disk may end the whole transaction (sqlite.org/lang_transaction.html), and then
            // there is no savepoint left to go back to. Whoever still waits gets the next one.
            kept.map_err(|_| StoreError::Unavailable("the transaction was rolled back".into()))?;
        }
        fault::at(Point::SqliteCommit);
        tx.connection.execute("commit").await?;
        fault::at(Point::SqliteCommitted);
        Ok(())
    }

    async fn begin(&mut self) -> Result<Transaction<'_>, StoreError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect_patiently(&self.options).await?),
        };
        let patience = Instant::now() + BUSY;
        while let Err(error) = connection.execute("begin immediate; savepoint request").await {
            if !is_busy(&error) || Instant::now() > patience {
                return Err(error.into());
            }
        }
        Transaction::on(connection, self.outbox).await
    }

    /// After a transaction that failed. A file is opened anew: the connection may be what is wrong with
    /// it (one opened while the disk was read-only stays so).
    async fn recover(&mut self) {
        if !self.in_memory {
            self.connection = None;
        } else if let Some(connection) = &mut self.connection {
            // Fails where the transaction has ended by itself.
            let _ = connection.execute("rollback").await;
        }
    }
}

/// Another process that closes the file, or opens it after a crash, holds all of it for a moment: while it
/// connects, SQLite itself has to be patient.
async fn connect_patiently(options: &SqliteConnectOptions) -> Result<SqliteConnection, StoreError> {
    let mut connection = connect(&options.clone().busy_timeout(BUSY)).await?;
    let look = format!("pragma busy_timeout = {}", LOOK.as_millis());
    connection.execute(sqlx::AssertSqlSafe(look)).await?;
    Ok(connection)
}

/// One error for each who shared the transaction.
fn again(error: &StoreError) -> StoreError {
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string).into();
    match error {
        StoreError::Full(_) => StoreError::Full(why),
        StoreError::Broken(_) => StoreError::Broken(why),
        _ => StoreError::Unavailable(why),
    }
}

/// Another writes just now: SQLITE_BUSY, whatever its extension.
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xff == 5)
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

/// Whether it was written is not known.
fn unanswered() -> StoreError {
    StoreError::Unavailable("the transaction ended unexpectedly".into())
}

fn no_thread(error: std::io::Error) -> StoreError {
    StoreError::Unavailable(error.kind().to_string().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Sqlite;
    use super::*;
    use crate::job::name::{Kind, Owner};
    use crate::job::record::NewJob;
    use crate::store::contract::{AcceptError, Control, Scope, Store, View};

    fn job(bytes: usize) -> NewJob {
        let kind = Kind::new("test.echo").expect("a kind");
        NewJob::new(Owner::new("a").expect("an owner"), kind, json!("x".repeat(bytes)))
    }

    /// As a disk that has room for so many pages more.
    async fn room(store: &Sqlite, pages: u32) {
        store
            .write(async move |tx| {
                let row = tx.row(sqlx::query("select page_count from pragma_page_count")).await?;
                let used: u32 = row.expect("a count").try_get("page_count")?;
                let pragma = format!("pragma max_page_count = {}", used + pages);
                tx.connection().execute(sqlx::AssertSqlSafe(pragma)).await?;
                Ok::<_, StoreError>(())
            })
            .await
            .expect("a bound");
    }

    #[tokio::test]
    async fn a_full_disk_is_told_and_loses_nothing_that_was_answered() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}/jobs.db", folder.path().display());
        let store = Sqlite::open(&url, true).await.expect("a store");
        store.migrate().await.expect("a schema");
        room(&store, 200).await;
        let answers = futures_util::future::join_all((0..60).map(|_| store.accept(job(40_000)))).await;
        let (mut kept, mut full) = (Vec::new(), 0);
        for answer in answers {
            match answer {
                Ok(accepted) => kept.push(accepted.id),
                Err(AcceptError::Store(StoreError::Full(_))) => full += 1,
                Err(AcceptError::Store(StoreError::Unavailable(_))) => {} // shared its transaction
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(full > 0, "the disk was never full");
        for id in kept {
            assert!(store.job(&Scope::All, id).await.expect("a read").is_some(), "an answered job is lost");
        }
        room(&store, 1_000).await;
        let id = store.accept(job(40_000)).await.expect("room again").id;
        assert!(store.job(&Scope::All, id).await.expect("a read").is_some());
    }

    #[tokio::test]
    async fn a_panic_ends_its_transaction_and_not_the_writing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = format!("sqlite:{}/jobs.db", folder.path().display());
        for url in [file.as_str(), "sqlite::memory:"] {
            let store = Sqlite::open(url, true).await.expect("a store");
            store.migrate().await.expect("a schema");
            let before = store.accept(job(1)).await.expect("an answer").id;
            let panicked = store.write(async |tx| {
                tx.run(sqlx::query("delete from jobs")).await?;
                if tx.now > 0 {
                    panic!("on purpose");
                }
                Ok::<_, StoreError>(())
            });
            let panicked = panicked.await;
            assert!(matches!(panicked, Err(StoreError::Unavailable(_))), "{panicked:?}");
            let after = store.accept(job(1)).await.expect("it writes on").id;
            for id in [before, after] {
                let found = store.job(&Scope::All, id).await.expect("a read");
                assert!(found.is_some(), "a job is lost on {url}");
            }
            store.close().await;
        }
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_transaction_that_ended_under_its_requests() {
        let store = Sqlite::open("sqlite::memory:", true).await.expect("a store");
        store.migrate().await.expect("a schema");
        let ends = store.write(async |tx| {
            tx.connection().execute("rollback").await?;
            Err::<(), _>(StoreError::Broken("this one".into()))
        });
        // The thread is kept busy until all three wait, so that they share a transaction.
        let ((entered, inside), (open, gate)) = (oneshot::channel(), oneshot::channel());
        let busy = store.write(async move |_| {
            let _ = entered.send(());
            Ok::<_, StoreError>(gate.await.is_ok())
        });
        let three = async {
            inside.await.expect("it is busy");
            tokio::join!(store.accept(job(1)), ends, store.accept(job(1)), async { open.send(()) })
        };
        let (busy, (before, ended, after, _)) = tokio::join!(busy, three);
        assert!(busy.expect("an answer"));
        assert!(matches!(before, Err(AcceptError::Store(StoreError::Unavailable(_)))), "{before:?}");
        assert!(matches!(ended, Err(StoreError::Broken(_))), "{ended:?}");
        assert!(after.is_ok(), "{after:?}");
    }
}
