//! What a running job writes: progress, checkpoints, files. All of it under the job's lease.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use tracing::{info, warn};

use crate::blob::{BlobError, BlobName, Blobs, PutLimits};
use crate::fault::{self, Point};
use crate::handler::{Journal, JournalError};
use crate::job::batch::{BatchState, Member};
use crate::job::lease::Lease;
use crate::job::limit::Gate;
use crate::job::name::{BusinessKey, Kind};
use crate::job::record::{Checkpoint, NewJob, Output, Progress};
use crate::metrics::Metrics;
use crate::store::contract::{Scope, SettleError, Store};

/// Progress is written at most this often for each job.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// The largest file a handler may keep, and read back as a checkpoint.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// How often a checkpoint is tried while the database does not answer.
const TRIES: u32 = 5;

pub(crate) struct JobJournal {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    blobs: Blobs,
    lease: Lease,
    kind: Kind,
    metrics: Arc<Metrics>,
    latest: Mutex<Latest>,
    /// Handlers may report from threads of their own.
    runtime: tokio::runtime::Handle,
}

#[derive(Default)]
struct Latest {
    progress: Option<Progress>,
    stage: String,
    writing: bool,
}

impl JobJournal {
    /// Call on the runtime that is to write progress.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        blobs: Blobs,
        lease: Lease,
        kind: Kind,
        metrics: Arc<Metrics>,
    ) -> Self {
        let runtime = tokio::runtime::Handle::current();
        let shared = Shared { store, blobs, lease, kind, metrics, latest: Mutex::default(), runtime };
        Self { shared: Arc::new(shared) }
    }
}

impl Shared {
    fn latest(&self) -> std::sync::MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Journal for JobJournal {
    fn progress(&self, mut progress: Progress) {
        let mut latest = self.shared.latest();
        // Progress without a stage is of the stage last named.
        if progress.stage.is_empty() {
            progress.stage.clone_from(&latest.stage);
        } else {
            latest.stage.clone_from(&progress.stage);
        }
        latest.progress = Some(progress);
        if !std::mem::replace(&mut latest.writing, true) {
            self.shared.runtime.spawn(write(self.shared.clone()));
        }
    }

    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), JournalError> {
        let shared = &self.shared;
        for attempt in 1.. {
            fault::at(Point::CheckpointAsked);
            let answer = shared.store.checkpoint(&shared.lease, &checkpoint).await;
            fault::at(Point::CheckpointKept);
            match answer {
                Ok(()) => break,
                Err(SettleError::LeaseLost(_)) => return Err(JournalError::LeaseLost),
                // Unknown: writing the same stage again is harmless.
                Err(SettleError::Store(error)) if error.is_transient() && attempt < TRIES => {
                    tokio::time::sleep(Duration::from_millis(200 << attempt)).await;
                }
                Err(SettleError::Store(error)) => {
                    warn!(job_id = %shared.lease.job, code = error.code(), "a checkpoint could not be written");
                    return Err(JournalError::Unavailable);
                }
            }
        }
        // The parts of a stage are many, and labels have to be few.
        let stage = checkpoint.stage.split('.').next().unwrap_or_default();
        shared.metrics.time("mapae_stage_seconds", format!("{}/{stage}", shared.kind), checkpoint.took);
        Ok(())
    }

    async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<Output, JournalError> {
        let lease = &self.shared.lease;
        // A restored database gives out an epoch again, and never a token.
        let name = format!("{:08x}-{name}", lease.token.0.as_fields().0);
        let Ok(name) = BlobName::result(lease.job.0, lease.epoch, &name) else {
            return Err(JournalError::BadName);
        };
        let size = bytes.len() as u64;
        let body = futures_util::stream::iter([Ok(Bytes::from(bytes))]);
        match self.shared.blobs.put(&name, body, PutLimits { bytes_max: FILE_BYTES_MAX }).await {
            // The lease is in the name, so what is there already was written by this very attempt.
            Ok(_) | Err(BlobError::AlreadyThere) => Ok(Output::File { name: name.to_string(), bytes: size }),
            Err(error) => Err(unavailable(&error)),
        }
    }

    async fn correlate(&self, key: &BusinessKey) -> Result<(), JournalError> {
        let shared = &self.shared;
        match shared.store.correlate(&shared.lease, key).await {
            Ok(()) => Ok(()),
            Err(SettleError::LeaseLost(_)) => Err(JournalError::LeaseLost),
            Err(SettleError::Store(error)) => {
                warn!(job_id = %shared.lease.job, code = error.code(), "a business key could not be written");
                Err(JournalError::Unavailable)
            }
        }
    }

    async fn fan_out(&self, parts: Vec<NewJob>) -> Result<(), JournalError> {
        let shared = &self.shared;
        for attempt in 1.. {
            // Unknown: asked again, the parts are the same, or there are some.
            match shared.store.fan_out(&shared.lease, parts.clone()).await {
                Ok(_) => break,
                Err(SettleError::LeaseLost(_)) => return Err(JournalError::LeaseLost),
                Err(SettleError::Store(error)) if error.is_transient() && attempt < TRIES => {
                    tokio::time::sleep(Duration::from_millis(200 << attempt)).await;
                }
                Err(SettleError::Store(error)) => {
                    warn!(job_id = %shared.lease.job, code = error.code(), "the parts of a job could not be written");
                    return Err(JournalError::Unavailable);
                }
            }
        }
        info!(job_id = %shared.lease.job, kind = %shared.kind, parts = parts.len(), "the job is done by parts");
        Ok(())
    }

    async fn batch(&self) -> Result<Option<BatchState>, JournalError> {
        let shared = &self.shared;
        shared.store.batch(&Scope::All, shared.lease.job).await.map_err(|_| JournalError::Unavailable)
    }

    async fn members(&self, after: Option<u32>, max: usize) -> Result<Vec<Member>, JournalError> {
        let shared = &self.shared;
        let members = shared.store.members(&Scope::All, shared.lease.job, after, max).await;
        members.map_err(|_| JournalError::Unavailable)
    }

    async fn rest(&self, length: Duration, code: &str) {
        let shared = &self.shared;
        info!(kind = %shared.kind, code, rest_ms = length.as_millis() as u64, "a service is left alone for a while");
        if let Err(error) = shared.store.shut(&Gate::Kind(shared.kind.clone()), length).await {
            warn!(kind = %shared.kind, code = error.code(), "other workers could not be told of it");
        }
    }

    async fn get(&self, output: &Output) -> Result<Vec<u8>, JournalError> {
        let Output::File { name, bytes } = output else { return Err(JournalError::Missing) };
        let name = BlobName::parse(name).map_err(|_| JournalError::Missing)?;
        let mut reading = self.shared.blobs.get(&name).await.map_err(|error| unavailable(&error))?;
        let mut whole = Vec::with_capacity(usize::try_from((*bytes).min(FILE_BYTES_MAX)).unwrap_or_default());
        while let Some(chunk) = reading.body.next().await {
            whole.extend_from_slice(&chunk.map_err(|_| JournalError::Unavailable)?);
        }
        Ok(whole)
    }

    async fn open(&self, file: &str) -> Result<std::fs::File, JournalError> {
        let name = BlobName::parse(file).map_err(|_| JournalError::Missing)?;
        self.shared.blobs.open_local(&name).await.map_err(|error| unavailable(&error))
    }
}

/// Writes the latest progress until there is no newer one.
async fn write(shared: Arc<Shared>) {
    loop {
        let progress = {
            let mut latest = shared.latest();
            let Some(progress) = latest.progress.take() else {
                latest.writing = false;
                return;
            };
            progress
        };
        // A progress that is not written is replaced by the next one.
        fault::at(Point::ProgressAsked);
        let _ = shared.store.progress(&shared.lease, &progress).await;
        fault::at(Point::ProgressKept);
        tokio::time::sleep(PROGRESS_EVERY).await;
    }
}

fn unavailable(error: &BlobError) -> JournalError {
    match error {
        BlobError::Missing => JournalError::Missing,
        other => {
            warn!(code = other.code(), "the file store failed a job");
            JournalError::Unavailable
        }
    }
}
