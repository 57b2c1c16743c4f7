//! What a running job sees: itself, its file, its checkpoints, and whether it should stop.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::blob::BlobName;
use crate::job::State;
use crate::job::batch::{BatchState, Member, PARTS_MAX, Part};
use crate::job::lease::Lease;
use crate::job::name::{BusinessKey, JobId, StageName};
use crate::job::record::{Checkpoint, INLINE_BYTES_MAX, Job, NewJob, Output, Progress};
use crate::job::retry::Failure;

/// Parts whose outputs are read at a time: each may be as large as a row may hold.
const GATHERED_MAX: usize = 50;

/// What a context writes through: the worker's side of it (`worker/journal.rs`), or a test's.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Shows the progress soon, dropping what comes faster than people read. Never fails a job.
    fn progress(&self, progress: Progress);

    /// The stage is kept. Fenced.
    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), JournalError>;

    /// A file of this job and attempt, invisible until the job's row names it. Answers its full name.
    async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<Output, JournalError>;

    /// The job is found by this key while it runs. Fenced.
    async fn correlate(&self, key: &BusinessKey) -> Result<(), JournalError>;

    /// No worker starts a job of this kind for so long. Best effort; `code` is for the log.
    async fn rest(&self, length: Duration, code: &str);

    /// The job has these parts from now on, unless it has some already. Fenced.
    async fn fan_out(&self, parts: Vec<NewJob>) -> Result<(), JournalError>;

    /// How the job's batch stands; `None` where it has none.
    async fn batch(&self) -> Result<Option<BatchState>, JournalError>;

    /// The parts of the job after that number, in their order.
    async fn members(&self, after: Option<u32>, max: usize) -> Result<Vec<Member>, JournalError>;

    /// The whole of a file that [`Journal::put`] wrote in this or an earlier attempt.
    async fn get(&self, output: &Output) -> Result<Vec<u8>, JournalError>;

    /// The job's source, opened for reading.
    async fn open(&self, file: &str) -> Result<std::fs::File, JournalError>;
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another may be running the job: stop, nothing more will be written.
    #[error("the lease is lost")]
    LeaseLost,
    #[error("the file is gone")]
    Missing,
    #[error("a kept file's name may have a-z, 0-9, '.', '_' and '-' only")]
    BadName,
    #[error("the database or the file store cannot be reached")]
    Unavailable,
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        match &error {
            JournalError::LeaseLost => Failure::cancelled(),
            JournalError::Missing => Failure::stale("source-gone", "The file that the job works on is gone."),
            JournalError::BadName => Failure::terminal("file-name", error.to_string()),
            JournalError::Unavailable => Failure::retryable(
                "storage-unavailable",
                "The database or the file store could not be reached.",
            ),
        }
    }
}

/// Why a job should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stopped {
    /// Its owner asked.
    Cancelled = 1,
    /// It took longer than its kind allows.
    Timeout = 2,
    /// The worker is going away; another will run the job.
    Draining = 3,
    /// Another may be running it already.
    LeaseLost = 4,
}

/// A part of a job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered {
    pub job: JobId,
    pub state: State,
    /// What it gave, where it succeeded and gave something.
    pub output: Option<Value>,
    /// Why it did not.
    pub failure: Option<Failure>,
}

/// Handed to a handler for one attempt. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    job: Job,
    lease: Lease,
    journal: Arc<dyn Journal>,
    done: Vec<Checkpoint>,
    stop: CancellationToken,
    why: AtomicU8,
    deadline: Instant,
}

impl Context {
    /// `done` are the checkpoints of earlier attempts; `timeout` counts from now.
    pub fn new(
        job: Job,
        lease: Lease,
        journal: Arc<dyn Journal>,
        done: Vec<Checkpoint>,
        timeout: Duration,
    ) -> Self {
        // Longer than a year is for ever.
        let deadline = Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3600));
        let inner = Inner {
            job,
            lease,
            journal,
            done,
            stop: CancellationToken::new(),
            why: AtomicU8::new(0),
            deadline,
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn job(&self) -> &Job {
        &self.inner.job
    }

    pub fn lease(&self) -> &Lease {
        &self.inner.lease
    }

    /// When the attempt is asked to stop.
    pub fn deadline(&self) -> Instant {
        self.inner.deadline
    }

    /// For calls to the outside: the same in every attempt, so that the callee can tell a repetition.
    pub fn idempotency_key(&self, stage: &str) -> String {
        format!("{}/{stage}", self.inner.job.id)
    }

    /// Tells people how far the present stage has come. Costs nothing when called often.
    pub fn progress(&self, done: u64, of: u64) {
        self.stage_progress("", done, of);
    }

    pub fn stage_progress(&self, stage: &str, done: u64, of: u64) {
        self.inner.journal.progress(Progress { stage: stage.to_owned(), done, of });
    }

    /// Runs a part of the work once: where an earlier attempt has done it, its output is given back
    /// without running it again.
    pub async fn stage<T, F, Fut>(&self, name: &str, work: F) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce() -> Fut + Send,
        Fut: Future<Output = Result<T, Failure>> + Send,
    {
        self.once(name, || {
            self.stage_progress(name, 0, 0);
            work()
        })
        .await
    }

    /// As [`Context::stage`], for a stage that is kept bit by bit: an attempt after a crash goes on with the first part
    /// that is not done. Progress is the stage's own, and metrics count its parts as one.
    pub async fn part<T, F, Fut>(&self, stage: &str, number: u32, work: F) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce() -> Fut + Send,
        Fut: Future<Output = Result<T, Failure>> + Send,
    {
        self.once(&format!("{stage}.{number}"), work).await
    }

    async fn once<T, F, Fut>(&self, name: &str, work: F) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce() -> Fut + Send,
        Fut: Future<Output = Result<T, Failure>> + Send,
    {
        let stage = StageName::new(name)
            .map_err(|bad| Failure::terminal("stage-name", format!("A stage is badly named: {bad}.")))?;
        if let Some(earlier) = self.inner.done.iter().find(|checkpoint| checkpoint.stage == name) {
            // A checkpoint of an older program that cannot be read any more is done again.
            if let Some(output) = self.recall(&earlier.output).await? {
                return Ok(output);
            }
        }
        self.check()?;
        let began = Instant::now();
        let made = work().await?;
        let encoded = encode(&made)?;
        let output = self.keep_as(&format!("stage-{name}.json"), encoded).await?;
        let checkpoint = Checkpoint { stage: stage.into(), output, took: began.elapsed() };
        self.inner.journal.checkpoint(checkpoint).await?;
        Ok(made)
    }

    /// Does the job by parts, on whatever workers there are, and gives back how each has ended, in the order of `parts`.
    ///
    /// The first time the parts are made, at most [`PARTS_MAX`], and this is an error to be handed on with `?`: the
    /// job then waits, without a slot and without using an attempt, and its handler is run again from the beginning
    /// once all parts have ended, however they did. `parts` is not asked again. A job that is cancelled or fails
    /// takes its parts along; their deadline is its own.
    ///
    /// # Errors
    /// While they have not ended; what the store or the file store says.
    pub async fn gather(&self, parts: impl FnOnce() -> Vec<Part> + Send) -> Result<Vec<Gathered>, Failure> {
        let Some(batch) = self.parts_ended().await? else {
            let parts = parts();
            if parts.len() > PARTS_MAX {
                let message = format!("A job has at most {PARTS_MAX} parts.");
                return Err(Failure::terminal("parts-too-many", message));
            }
            let parts = parts.into_iter().map(|part| part.of(&self.inner.job)).collect();
            self.inner.journal.fan_out(parts).await?;
            return Err(Failure::awaiting());
        };
        let mut gathered = Vec::with_capacity(batch.parts as usize);
        let mut after = None;
        loop {
            let members = self.inner.journal.members(after, GATHERED_MAX).await?;
            let Some(last) = members.last() else { return Ok(gathered) };
            after = Some(last.number);
            for member in members {
                gathered.push(self.gathered(member).await?);
            }
        }
    }

    async fn gathered(&self, member: Member) -> Result<Gathered, Failure> {
        let output = match member.output {
            None | Some(Output::Inline(Value::Null)) => None,
            Some(Output::Inline(value)) => Some(value),
            Some(file) => {
                let bytes = self.inner.journal.get(&file).await?;
                let unreadable = |_| Failure::terminal("part-unreadable", "What a part gave is not JSON.");
                Some(serde_json::from_slice(&bytes).map_err(unreadable)?)
            }
        };
        // All have ended, and one that was redriven since is as good as not.
        let Some(state) = member.state else { return Err(Failure::awaiting()) };
        Ok(Gathered { job: member.job, state, output, failure: member.failure })
    }

    /// How the job's parts have ended, for handlers that do not want what they gave; `None` where it has none.
    ///
    /// # Errors
    /// While they have not all ended: to be handed on, as by [`Context::gather`].
    pub async fn parts_ended(&self) -> Result<Option<BatchState>, Failure> {
        match self.inner.journal.batch().await? {
            Some(batch) if !batch.sealed || batch.ended() < batch.parts => Err(Failure::awaiting()),
            ended => Ok(ended),
        }
    }

    /// The file of the job that this one is a part of, or comes after, opened for reading.
    pub async fn source_of_parent(&self) -> Result<std::fs::File, Failure> {
        let Some(parent) = self.inner.job.parent else {
            return Err(Failure::terminal("source-none", "The job has no parent."));
        };
        Ok(self.inner.journal.open(BlobName::original(parent.0).as_str()).await?)
    }

    /// Stages done in earlier attempts, with how long each took.
    pub fn done(&self) -> &[Checkpoint] {
        &self.inner.done
    }

    /// The job's file, opened for reading; stale where it is gone.
    pub async fn source(&self) -> Result<std::fs::File, Failure> {
        let Some(source) = &self.inner.job.source else {
            return Err(Failure::terminal("source-none", "The job has no file to work on."));
        };
        Ok(self.inner.journal.open(&source.file).await?)
    }

    /// Keeps a value of this attempt: in the row where it is small, else as a file.
    pub async fn keep<T: Serialize + Send>(&self, value: T) -> Result<Output, Failure> {
        let encoded = encode(&value)?;
        drop(value);
        self.keep_as("result.json", encoded).await
    }

    /// Keeps bytes of this attempt as a file, whatever their size.
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<Output, Failure> {
        Ok(self.inner.journal.put(name, bytes).await?)
    }

    /// From now on, and while the job runs, whoever knows what the outside calls it can find it.
    pub async fn correlate(&self, key: &BusinessKey) -> Result<(), Failure> {
        Ok(self.inner.journal.correlate(key).await?)
    }

    /// No worker starts a job of this kind for so long; `code` says why in the log.
    pub async fn rest(&self, length: Duration, code: &str) {
        self.inner.journal.rest(length, code).await;
    }

    async fn keep_as(&self, name: &str, encoded: Vec<u8>) -> Result<Output, Failure> {
        // A NUL is lawful JSON that PostgreSQL's jsonb does not take (documentation 8.14): such a value is
        // a file, too, on whatever store, so that stores do not differ in what they keep.
        if encoded.len() > INLINE_BYTES_MAX || holds_nul(&encoded) {
            return self.put(name, encoded).await;
        }
        match serde_json::from_slice(&encoded) {
            Ok(value) => Ok(Output::Inline(value)),
            // Nested deeper than is read back into a row.
            Err(_) => self.put(name, encoded).await,
        }
    }

    async fn recall<T: DeserializeOwned>(&self, output: &Output) -> Result<Option<T>, Failure> {
        Ok(match output {
            Output::Inline(value) => serde_json::from_value(value.clone()).ok(),
            Output::File { .. } => match self.inner.journal.get(output).await {
                Ok(bytes) => serde_json::from_slice(&bytes).ok(),
                Err(JournalError::Missing) => None,
                Err(error) => return Err(error.into()),
            },
        })
    }

    /// Resolves once the job should stop; [`Context::why_stopped`] says why.
    pub async fn stopped(&self) {
        self.inner.stop.cancelled().await;
    }

    /// For code that takes a token.
    pub fn stop_token(&self) -> CancellationToken {
        self.inner.stop.clone()
    }

    pub fn why_stopped(&self) -> Option<Stopped> {
        match self.inner.why.load(Ordering::Acquire) {
            1 => Some(Stopped::Cancelled),
            2 => Some(Stopped::Timeout),
            3 => Some(Stopped::Draining),
            4 => Some(Stopped::LeaseLost),
            _ => None,
        }
    }

    /// For handlers that loop: an error once the job should stop.
    pub fn check(&self) -> Result<(), Failure> {
        match self.why_stopped() {
            None => Ok(()),
            Some(Stopped::Timeout) => Err(Failure::timeout("The job took longer than its kind allows.")),
            Some(_) => Err(Failure::cancelled()),
        }
    }

    /// Asks the job to stop. A lost lease outranks any other reason; otherwise the first one stays.
    pub fn stop(&self, why: Stopped) {
        if why == Stopped::LeaseLost {
            self.inner.why.store(why as u8, Ordering::Release);
        } else {
            let _ = self.inner.why.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
        }
        self.inner.stop.cancel();
    }
}

fn holds_nul(encoded: &[u8]) -> bool {
    encoded.windows(6).any(|escape| escape == br"\u0000")
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value)
        .map_err(|_| Failure::terminal("output-not-json", "What the handler made cannot be written as JSON."))
}
