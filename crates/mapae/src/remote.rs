//! What holders outside do with their leases: services that accepted a job for later, and clients that
//! lease over HTTP. All of it goes under the token, so it is of no account from which process it comes.
//!
//! ```text
//! offer ─► claim ─► progress, checkpoint, renew … ─► settle      a client that pulls
//!          (a worker lends its lease)          … ─► settle      a service that answered 202
//! ```
//!
//! Not here: who may call. Callers have looked the job up within their scope, or have its token.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::handler::{Context, Journal};
use crate::job::State;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::limit::Gate;
use crate::job::name::{Class, JobId, Kind, Lane};
use crate::job::record::{Checkpoint, Job, Progress};
use crate::job::retry::{self, Failure, Verdict, verdict};
use crate::job::rota::Rota;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Claim, Holding, Puller, Scope, SettleError, StoreError};
use crate::worker::Parts;
use crate::worker::journal::JobJournal;

/// How often the store is asked for work while a client waits and nothing wakes it.
const LOOK: Duration = Duration::from_secs(1);

/// How often an offer that others were quicker to claim, or of which nothing may start, is followed by another at
/// once.
const TRIES: usize = 4;

/// How far one looks past jobs that wait for a limit of their owner.
const PAST_MAX: usize = 64;

/// What a holder outside makes of its job.
#[derive(Clone, Debug)]
pub enum End {
    /// Done, maybe with a result.
    Complete(Option<Value>),
    /// Whether it is tried again, the failure says.
    Fail(Failure),
    /// Back to pending, no attempt used.
    Release,
}

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Nothing has changed. The job's state where there is a job.
    #[error("the lease is lost")]
    LeaseLost(Option<State>),
    #[error("the file store cannot be reached")]
    Files,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<SettleError> for RemoteError {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::LeaseLost(state) => Self::LeaseLost(state),
            SettleError::Store(error) => Self::Store(error),
        }
    }
}

/// Ends the job by its token. Asked again with the same token, the first answer stands: to end in another
/// way than before is refused.
pub async fn settle(parts: &Parts, job: &Job, token: Token, end: End) -> Result<State, RemoteError> {
    let lease = lease(job.id, token);
    let completes = matches!(end, End::Complete(_));
    let (verdict, output) = match end {
        End::Complete(None) => (Verdict::Succeed, None),
        End::Complete(Some(_)) if job.state != State::Running => (Verdict::Succeed, None),
        End::Complete(Some(value)) => {
            let ctx = context(parts, job, lease.clone());
            let output = ctx.keep(value).await.map_err(|_| RemoteError::Files)?;
            (Verdict::Succeed, Some(output))
        }
        End::Fail(failure) => {
            (verdict(failure, &job.retry.backoff, job.attempt, false, retry::jitter()), None)
        }
        End::Release => (Verdict::HandBack, None),
    };
    let code = verdict.failure().map(|failure| failure.code.clone());
    let settlement = crate::store::contract::Settlement { lease, verdict, output };
    let state = parts.store.settle(settlement).await?;
    // A cancelled job is what its owner made of it, whatever its holder tells.
    let told_otherwise = match state {
        State::Succeeded => !completes,
        State::Cancelled => false,
        _ => completes,
    };
    if told_otherwise {
        return Err(RemoteError::LeaseLost(Some(state)));
    }
    if job.state == State::Running {
        let (job_id, kind, attempt) = (job.id, &job.kind, job.attempt);
        info!(job_id = %job_id, %kind, attempt, state = state.as_str(), code, "job settled from outside");
        match state {
            // Clients may make up any number of kinds: here they are counted together.
            State::Pending => parts.metrics.count("mapae_retries_total", "other", 1),
            State::Running => {}
            ended => parts.metrics.count("mapae_jobs_finished_total", ended.as_str(), 1),
        }
    }
    Ok(state)
}

pub async fn progress(parts: &Parts, job: JobId, token: Token, to: &Progress) -> Result<(), RemoteError> {
    Ok(parts.store.progress(&lease(job, token), to).await?)
}

/// The stage's output is given to later attempts.
pub async fn checkpoint(
    parts: &Parts,
    job: &Job,
    token: Token,
    stage: &str,
    output: Value,
    took: Duration,
) -> Result<(), RemoteError> {
    if job.state != State::Running {
        return Err(RemoteError::LeaseLost(Some(job.state)));
    }
    let lease = lease(job.id, token);
    let output = context(parts, job, lease.clone()).keep(output).await.map_err(|_| RemoteError::Files)?;
    Ok(parts.store.checkpoint(&lease, &Checkpoint { stage: stage.to_owned(), output, took }).await?)
}

/// The value of a checkpoint, wherever it is kept.
pub async fn checkpoint_value(parts: &Parts, job: &Job, checkpoint: &Checkpoint) -> Option<Value> {
    match &checkpoint.output {
        crate::job::record::Output::Inline(value) => Some(value.clone()),
        file => {
            let journal = journal(parts, job, lease(job.id, Token(uuid::Uuid::nil())));
            serde_json::from_slice(&journal.get(file).await.ok()?).ok()
        }
    }
}

fn lease(job: JobId, token: Token) -> Lease {
    Lease { job, token, epoch: 0, until: Timestamp::default() }
}

fn journal(parts: &Parts, job: &Job, lease: Lease) -> JobJournal {
    JobJournal::new(parts.store.clone(), parts.blobs.clone(), lease, job.kind.clone(), parts.metrics.clone())
}

fn context(parts: &Parts, job: &Job, lease: Lease) -> Context {
    let journal = journal(parts, job, lease.clone());
    Context::new(job.clone(), lease, Arc::new(journal), Vec::new(), Duration::ZERO)
}

/// A client that waits for work.
pub struct Pull {
    pub client: Puller,
    pub scope: Scope,
    pub lease: Duration,
    /// How long it waits where there is nothing yet.
    pub wait: Duration,
}

/// Up to as many jobs as the client takes, leased to it; none where nothing came within its time, or it is
/// `gone`. While there is nothing it looks again whenever `wake` changes, and now and then by itself. Not
/// to be dropped in the middle: a claim under way may have leased jobs.
pub async fn pull(
    parts: &Parts,
    pull: &Pull,
    mut wake: watch::Receiver<u64>,
    gone: &CancellationToken,
) -> Result<Vec<Holding>, StoreError> {
    parts.store.pulls(&pull.client).await?;
    let lanes = lanes(&pull.client.kinds);
    let holder = Holder::pulling(&pull.client.name);
    let deadline = tokio::time::Instant::now() + pull.wait;
    loop {
        let held = claim(parts, &holder, &lanes, pull).await?;
        let now = tokio::time::Instant::now();
        if !held.is_empty() || now >= deadline || gone.is_cancelled() {
            return Ok(held);
        }
        let wait = LOOK.min(deadline - now);
        let waiting = tokio::time::timeout(wait, wake.changed());
        let _ = gone.run_until_cancelled(waiting).await;
    }
}

async fn claim(
    parts: &Parts,
    holder: &Holder,
    lanes: &[Lane],
    pull: &Pull,
) -> Result<Vec<Holding>, StoreError> {
    let max = pull.client.max as usize;
    let (mut lanes, mut waiting) = (lanes.to_vec(), HashSet::new());
    for _ in 0..TRIES {
        let far = if waiting.is_empty() { max } else { max + PAST_MAX };
        let mut offered = parts.store.offer(&pull.scope, &lanes, far).await?;
        offered.retain(|(job, _)| !waiting.contains(job));
        offered.truncate(max);
        if offered.is_empty() {
            return Ok(Vec::new());
        }
        let claims = parts.store.claim(holder, &offered, pull.lease).await?;
        let mut held: Vec<Holding> = Vec::new();
        for ((job, _), claim) in offered.iter().zip(claims) {
            match claim {
                Claim::Run(holding) => held.push(*holding),
                Claim::Failed => ended(parts, State::Failed),
                Claim::Cancelled => ended(parts, State::Cancelled),
                // It stands before others that may start.
                Claim::Waits(stop) if matches!(stop.gate, Gate::Owner(_)) => {
                    waiting.insert(*job);
                }
                Claim::Waits(stop) => lanes.retain(|lane| lane.kind != stop.kind),
                Claim::Later(_) => {
                    waiting.insert(*job);
                }
                _ => {}
            }
        }
        if !held.is_empty() {
            let kinds = held.iter().map(|holding| holding.job.kind.as_str()).collect::<Vec<_>>();
            info!(worker = %holder, jobs = held.len(), ?kinds, "jobs leased to a client");
            return Ok(held);
        }
    }
    Ok(Vec::new())
}

/// A claim has ended the job instead of leasing it.
fn ended(parts: &Parts, state: State) {
    parts.metrics.count("mapae_jobs_finished_total", state.as_str(), 1);
}

/// The lanes of these kinds, in an order that gives each class its share over many calls.
fn lanes(kinds: &[Kind]) -> Vec<Lane> {
    let all = kinds.iter().flat_map(|kind| Class::ALL.map(|class| (Lane { kind: kind.clone(), class }, ())));
    let mut rota = Rota::new(all.collect());
    let total: u32 = Class::ALL.iter().map(|class| class.weight()).sum();
    let turns = 1 + (retry::jitter() * f64::from(total)) as u32 % total;
    (1..turns).for_each(|_| drop(rota.order()));
    rota.order().into_iter().map(|(lane, ())| lane).collect()
}
