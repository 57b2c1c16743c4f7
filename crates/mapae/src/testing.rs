//! For tests of handlers: one job, on a store in memory, with everything that can go wrong, at any step.
//!
//! Claims, fences and settles are those of a worker's life; the clock moves only when told to. Not for tests of
//! a whole runtime: there is no broker, no keeper and no heartbeat here, [`Trial`] is all of them in one.
//!
//! ```
//! use mapae::handler::{Context, Handlers};
//! use mapae::job::State;
//! use mapae::testing::{Delivered, Fault, Point, Trial, job};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let mut handlers = Handlers::default();
//! handlers.add_fn("count", |word: String, ctx: Context| async move {
//!     let letters = ctx.stage("letters", || async { Ok(word.chars().count()) }).await?;
//!     Ok(letters * 2)
//! });
//! let trial = Trial::new(handlers, job("count", "mapae".into())).await;
//!
//! // The worker dies after the stage is kept; the job runs again once the lease is over.
//! let crashed = trial.run_with(Fault::Crash, Point::AfterStage("letters")).await;
//! assert!(matches!(crashed, Delivered::Crashed));
//! trial.expire_lease();
//! assert!(matches!(trial.run().await, Delivered::Settled(State::Succeeded)));
//!
//! assert_eq!(trial.output().await, Some(10.into()));
//! assert_eq!(trial.events().await, ["accepted", "claimed", "stage", "lost", "claimed", "succeeded"]);
//! assert_eq!(trial.job().await.attempt, 2);
//! # }
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::blob::Blobs;
use crate::handler::{Context, Handlers, Journal, JournalError, Outcome, Stopped};
use crate::job::State;
use crate::job::batch::{BatchState, Member};
use crate::job::lease::{Holder, Lease};
use crate::job::name::{BusinessKey, Kind, Owner};
use crate::job::record::{Checkpoint, Job, NewJob, Output, Progress};
use crate::job::retry::{Failure, Verdict, verdict};
use crate::store::contract::{
    Claim, Control, EventFilter, Holding, Keep, Remote, Run, Scope, SettleError, Settlement, View,
};
use crate::store::memory::Memory;
use crate::worker::journal::JobJournal;

/// How long a lease lasts in a trial.
pub const LEASE: Duration = Duration::from_secs(30);

/// A step of a delivery's way at which something can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    AfterClaim,
    /// The stage of this name is kept.
    AfterStage(&'static str),
    /// The handler has ended.
    BeforeSettle,
    /// The outcome is stored, the pointer not acknowledged.
    AfterSettle,
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is gone. Its lease stays until it ends.
    Crash,
    /// The worker was not heard of for too long and goes on unaware until it is told.
    LoseLease,
    /// The job's owner cancels it.
    Cancel,
}

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivered {
    /// The attempt has ended; the job is in this state.
    Settled(State),
    /// There was nothing to run: finished, busy, not due …
    Refused(Claim),
    Crashed,
    /// Another has the lease now, to tell the end later.
    HandedOver(Lease),
    /// Whatever the handler made was refused.
    LeaseLost,
}

/// A job of `tester` with this input.
///
/// # Panics
/// Where `kind` is not the name of a kind.
pub fn job(kind: &str, params: Value) -> NewJob {
    NewJob::new(Owner::new("tester").expect("a name"), Kind::new(kind).expect("the kind is a name"), params)
}

/// One job and what runs it. Its files are in a folder that goes with it.
pub struct Trial {
    store: Memory,
    blobs: Blobs,
    folder: PathBuf,
    handlers: Handlers,
    job: NewJob,
}

impl Trial {
    /// The job is accepted and waits.
    ///
    /// # Panics
    /// Where no folder can be made among the system's temporary ones.
    pub async fn new(handlers: Handlers, job: NewJob) -> Self {
        let folder = std::env::temp_dir().join(format!("mapae-trial-{}", uuid::Uuid::new_v4()));
        let blobs = Blobs::open(&format!("file:{}", folder.display())).expect("a temporary folder");
        let store = Memory::new();
        store.accept(job.clone()).await.expect("the store is empty");
        Self { store, blobs, folder, handlers, job }
    }

    /// Delivers the job's pointer once, to a worker of its own.
    pub async fn run(&self) -> Delivered {
        self.deliver(None).await
    }

    /// As [`Trial::run`], and at the point the fault happens. A point that is not reached does nothing.
    pub async fn run_with(&self, fault: Fault, at: Point) -> Delivered {
        self.deliver(Some((fault, at))).await
    }

    /// Time passes: backoffs, leases.
    pub fn pass(&self, by: Duration) {
        self.store.advance(by);
    }

    /// Whatever lease there was is over.
    pub fn expire_lease(&self) {
        self.pass(LEASE);
    }

    pub async fn cancel(&self) {
        let _ = self.store.cancel(&Scope::All, self.job.id).await;
    }

    pub async fn job(&self) -> Job {
        let found = self.store.job(&Scope::All, self.job.id).await;
        found.ok().flatten().expect("a job in memory is there until it is deleted")
    }

    /// What has happened, oldest first, as the event stream names it.
    pub async fn events(&self) -> Vec<&'static str> {
        let events = self.store.events(&Scope::All, &EventFilter::default(), usize::MAX).await;
        events.unwrap_or_default().iter().map(|event| event.event.as_str()).collect()
    }

    /// What the job gave, also where it is large enough to be in a file.
    pub async fn output(&self) -> Option<Value> {
        match self.store.output(&Scope::All, self.job.id).await.ok()?? {
            Output::Inline(value) => Some(value),
            Output::File { name, .. } => {
                serde_json::from_slice(&std::fs::read(self.folder.join(name)).ok()?).ok()
            }
        }
    }

    /// Where the job's files are: for putting its source there before it runs.
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    async fn deliver(&self, plan: Option<(Fault, Point)>) -> Delivered {
        let holder = Holder::new("trial");
        let pointer = [(self.job.id, self.job.owner.clone())];
        let mut claims = self.store.claim(&holder, &pointer, LEASE).await.unwrap_or_default();
        let holding = match claims.pop() {
            Some(Claim::Run(holding)) => *holding,
            other => return Delivered::Refused(other.unwrap_or(Claim::Stale)),
        };
        let (points, mut reached) = mpsc::channel(1);
        let ctx = self.context(&holding, points).await;
        let fault_at = |point: Point| plan.filter(|(_, at)| *at == point).map(|(fault, _)| fault);
        if self.happens(fault_at(Point::AfterClaim), &ctx).await {
            return Delivered::Crashed;
        }

        let (task, handlers_ctx) = match self.handlers.get(&self.job.kind) {
            Some(registered) => (registered.task.clone(), ctx.clone()),
            None => return Delivered::Refused(Claim::Stale),
        };
        let mut running = tokio::spawn(async move { task.run(&handlers_ctx).await });
        let outcome = loop {
            tokio::select! {
                ended = &mut running => break ended,
                Some((stage, go_on)) = reached.recv() => {
                    let named = |at: Point| matches!(at, Point::AfterStage(name) if name == stage);
                    let fault = plan.filter(|(_, at)| named(*at)).map(|(fault, _)| fault);
                    if self.happens(fault, &ctx).await {
                        running.abort();
                        return Delivered::Crashed;
                    }
                    let _ = go_on.send(());
                }
            }
        };
        let outcome =
            outcome.unwrap_or_else(|_| Err(Failure::retryable("handler-panicked", "The handler panicked.")));
        if self.happens(fault_at(Point::BeforeSettle), &ctx).await {
            return Delivered::Crashed;
        }

        let backoff = &holding.job.retry.backoff;
        let (verdict, output) = match outcome {
            Ok(Outcome::Done(output)) => (Verdict::Succeed, output),
            Ok(Outcome::HandedOver(until)) => {
                let lent = self.store.lend(&holding.lease, until).await;
                return lent.map_or(Delivered::LeaseLost, |()| Delivered::HandedOver(holding.lease));
            }
            Err(failure) => (verdict(failure, backoff, holding.job.attempt, false, 1.0), None),
        };
        let settled = self.store.settle(Settlement { lease: holding.lease, verdict, output }).await;
        if self.happens(fault_at(Point::AfterSettle), &ctx).await {
            return Delivered::Crashed;
        }
        match settled {
            Ok(state) => Delivered::Settled(state),
            Err(SettleError::LeaseLost(_) | SettleError::Store(_)) => Delivered::LeaseLost,
        }
    }

    async fn context(&self, holding: &Holding, points: mpsc::Sender<Reached>) -> Context {
        let journal = JobJournal::new(
            Arc::new(self.store.clone()),
            self.blobs.clone(),
            holding.lease.clone(),
            holding.job.kind.clone(),
            Arc::default(),
        );
        let done = self.store.checkpoints(holding.job.id).await.unwrap_or_default();
        let timeout =
            self.handlers.get(&holding.job.kind).map_or(LEASE, |registered| registered.plan.timeout);
        let journal = Arc::new(Told { journal, points });
        Context::new(holding.job.clone(), holding.lease.clone(), journal, done, timeout)
    }

    /// Whether the process is gone by it.
    async fn happens(&self, fault: Option<Fault>, ctx: &Context) -> bool {
        match fault {
            None => return false,
            Some(Fault::Crash) => return true,
            Some(Fault::LoseLease) => {
                self.expire_lease();
                let _ = self.store.reap(1).await;
                ctx.stop(Stopped::LeaseLost);
            }
            Some(Fault::Cancel) => {
                self.cancel().await;
                ctx.stop(Stopped::Cancelled);
            }
        }
        false
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A stage that was kept, and the word to go on.
type Reached = (String, oneshot::Sender<()>);

/// A worker's journal that tells when a stage is kept, and waits.
struct Told {
    journal: JobJournal,
    points: mpsc::Sender<Reached>,
}

#[async_trait]
impl Journal for Told {
    fn progress(&self, progress: Progress) {
        self.journal.progress(progress);
    }

    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), JournalError> {
        let stage = checkpoint.stage.clone();
        self.journal.checkpoint(checkpoint).await?;
        let (go_on, told) = oneshot::channel();
        if self.points.send((stage, go_on)).await.is_ok() {
            let _ = told.await;
        }
        Ok(())
    }

    async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<Output, JournalError> {
        self.journal.put(name, bytes).await
    }

    async fn correlate(&self, key: &BusinessKey) -> Result<(), JournalError> {
        self.journal.correlate(key).await
    }

    async fn fan_out(&self, parts: Vec<NewJob>) -> Result<(), JournalError> {
        self.journal.fan_out(parts).await
    }

    async fn batch(&self) -> Result<Option<BatchState>, JournalError> {
        self.journal.batch().await
    }

    async fn members(&self, after: Option<u32>, max: usize) -> Result<Vec<Member>, JournalError> {
        self.journal.members(after, max).await
    }

    async fn rest(&self, length: Duration, code: &str) {
        self.journal.rest(length, code).await;
    }

    async fn get(&self, output: &Output) -> Result<Vec<u8>, JournalError> {
        self.journal.get(output).await
    }

    async fn open(&self, file: &str) -> Result<std::fs::File, JournalError> {
        self.journal.open(file).await
    }
}
