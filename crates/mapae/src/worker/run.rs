//! One job, from its lease to its acknowledgement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::Worker;
use super::journal::JobJournal;
use super::slots::Permit;
use crate::blob::{BlobError, BlobName};
use crate::broker::contract::{Intake, Receipt, Settle};
use crate::fault::{self, Point};
use crate::handler::{Context, JournalError, KindPlan, Outcome, Registered, Stopped};
use crate::job::lease::{Lease, Token};
use crate::job::limit::Gate;
use crate::job::name::Kind;
use crate::job::record::{Checkpoint, Job, Output};
use crate::job::retry::{Failure, FailureClass, Verdict, jitter, verdict};
use crate::job::{State, timestamp::Timestamp};
use crate::store::contract::{Holding, SettleError, Settlement, StoreError};

/// Waits between attempts to settle while the database does not answer, doubling.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How long a file store may take to say whether a job's file is there.
const SOURCE_PATIENCE: Duration = Duration::from_secs(5);

/// For so long one answer of a downstream keeps all jobs of its kind from starting; each next one says it anew.
const LEFT_ALONE_MAX: Duration = Duration::from_secs(600);

/// Runs a job under its lease. Whatever happens, the lease is released here in the end; whatever is
/// written, is written under its token.
pub(super) async fn run(
    worker: Arc<Worker>,
    holding: Holding,
    permit: Option<Permit>,
    receipt: Option<(Arc<dyn Intake>, Receipt)>,
) {
    fault::at(Point::RunBegun);
    let token = holding.lease.token;
    let _released = Released { worker: worker.clone(), token };
    let (kind, job_id, attempt) = (holding.job.kind.clone(), holding.job.id, holding.job.attempt);
    let began = Instant::now();
    let waited = wait_of(&holding.job);
    worker.parts.metrics.time("mapae_job_wait_seconds", kind.to_string(), waited);
    for (resource, waited) in worker.waits.of(&kind, waited) {
        worker.parts.metrics.time("mapae_resource_wait_seconds", resource, waited);
    }

    let (verdict, output) = match decide(&worker, &holding, permit).await {
        Some(Decided::Settle(verdict, output)) => (verdict, output),
        Some(Decided::HandOver(until)) => {
            return hand_over(&worker, &holding.job, &holding.lease, until, receipt).await;
        }
        None => {
            warn!(job_id = %job_id, %kind, attempt, "the lease was lost while the job ran; its result is dropped");
            worker.parts.metrics.count("mapae_lease_lost_total", kind.to_string(), 1);
            return;
        }
    };
    let took = began.elapsed();
    if let Verdict::Throttle { delay, .. } = &verdict {
        leave_alone(&worker, &kind, *delay).await;
    }
    let code = verdict.failure().map(|failure| failure.code.clone());
    let retried = matches!(verdict, Verdict::Retry { .. });
    match settle(&worker, Settlement { lease: holding.lease, verdict, output }).await {
        Settled::As(state) => {
            let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            info!(job_id = %job_id, %kind, attempt, state = state.as_str(), code, duration_ms, "job settled");
            worker.parts.metrics.time("mapae_job_run_seconds", kind.to_string(), took);
            match state {
                State::Pending if retried => {
                    worker.parts.metrics.count("mapae_retries_total", kind.to_string(), 1);
                }
                State::Pending | State::Running => {}
                ended => worker.parts.metrics.count("mapae_jobs_finished_total", ended.as_str(), 1),
            }
            // Asked twice, and meanwhile another runs it: the pointer may be that one's.
            if state != State::Running {
                acknowledge(receipt).await;
            }
        }
        Settled::Lost(state) => {
            warn!(job_id = %job_id, %kind, attempt, "the job was another's when it was settled; its result is dropped");
            worker.parts.metrics.count("mapae_lease_lost_total", kind.to_string(), 1);
            if state.is_none_or(State::is_terminal) {
                acknowledge(receipt).await;
            }
        }
        Settled::Unknown => {
            error!(job_id = %job_id, %kind, attempt, "the outcome could not be stored before the lease ended; the job will run again");
            worker.parts.metrics.count("mapae_lease_lost_total", kind.to_string(), 1);
        }
    }
}

/// A downstream asked to be left alone: every process leaves it alone. Without an answer each job would be
/// told so by itself, as it would be anyway.
async fn leave_alone(worker: &Worker, kind: &Kind, wait: Duration) {
    let shut = worker.parts.store.shut(&Gate::Kind(kind.clone()), wait.min(LEFT_ALONE_MAX)).await;
    if let Err(error) = shut {
        warn!(%kind, code = error.code(), "that a service wants to be left alone could not be stored");
    }
}

/// Gives a lease up when its task ends, also by a panic.
struct Released {
    worker: Arc<Worker>,
    token: Token,
}

impl Drop for Released {
    fn drop(&mut self) {
        self.worker.held.release(self.token);
        fault::at(Point::RunOver);
    }
}

enum Decided {
    Settle(Verdict, Option<Output>),
    /// The service that accepted the work has the lease for so long.
    HandOver(Duration),
}

/// What is to become of the job, or `None` where that is not ours to say any more.
async fn decide(worker: &Arc<Worker>, holding: &Holding, permit: Option<Permit>) -> Option<Decided> {
    let hand_back = Some(Decided::Settle(Verdict::HandBack, None));
    let Some(registered) = worker.handlers.get(&holding.job.kind) else {
        // Claimed for a kind this worker does not run: another does.
        return hand_back;
    };
    let Some(permit) = permit else {
        return hand_back;
    };
    // Claimed while the drain began.
    if worker.drain.is_cancelled() {
        return hand_back;
    }
    if source_is_gone(worker, &holding.job).await {
        let failure = JournalError::Missing.into();
        return Some(Decided::Settle(judge(worker, &holding.job, failure, None), None));
    }
    let done = match earlier(worker, &holding.job).await {
        Ok(done) => done,
        // Nothing of the attempt has happened yet.
        Err(error) if error.is_transient() => return hand_back,
        // It would not be read by the next one either: the attempt counts, or it would come back for ever.
        Err(_) => {
            let message = "What an earlier attempt kept of a stage cannot be read.";
            let failure = Failure::retryable("checkpoint-unreadable", message);
            let verdict = judge(worker, &holding.job, failure, None);
            return Some(Decided::Settle(verdict, None));
        }
    };
    let journal = JobJournal::new(
        worker.parts.store.clone(),
        worker.parts.blobs.clone(),
        holding.lease.clone(),
        holding.job.kind.clone(),
        worker.parts.metrics.clone(),
    );
    let ctx = Context::new(
        holding.job.clone(),
        holding.lease.clone(),
        Arc::new(journal),
        done,
        registered.plan.timeout,
    );
    worker.held.started(holding.lease.token, &ctx);
    fault::at(Point::HandlerBegins);
    let outcome = execute(registered, &ctx, permit).await;
    fault::at(Point::HandlerEnded);
    worker.held.until(holding.lease.token)?;
    if ctx.why_stopped() == Some(Stopped::LeaseLost) {
        return None;
    }
    Some(match outcome {
        Ok(Outcome::Done(output)) => Decided::Settle(Verdict::Succeed, output),
        Ok(Outcome::HandedOver(until)) => Decided::HandOver(until),
        Err(failure) => Decided::Settle(judge(worker, &holding.job, failure, ctx.why_stopped()), None),
    })
}

/// Whether the file that the job is about is there no more, so that no attempt is worth anything. A file store that
/// does not answer says nothing.
async fn source_is_gone(worker: &Worker, job: &Job) -> bool {
    let Some(name) = job.source.as_ref().and_then(|source| BlobName::parse(&source.file).ok()) else {
        return false;
    };
    // Opened and not read.
    let opened = tokio::time::timeout(SOURCE_PATIENCE, worker.parts.blobs.get(&name)).await;
    matches!(opened, Ok(Err(BlobError::Missing)))
}

/// The checkpoints of earlier attempts; the first attempt of a job has none to ask for.
async fn earlier(worker: &Worker, job: &Job) -> Result<Vec<Checkpoint>, StoreError> {
    // Accepted and claimed, nothing else has happened.
    if job.sequence <= 2 {
        return Ok(Vec::new());
    }
    worker.parts.store.checkpoints(job.id).await
}

/// Runs the handler to its end, or to the end of the patience with it. A panic is a failed attempt and
/// nothing else.
async fn execute(registered: &Registered, ctx: &Context, permit: Permit) -> Result<Outcome, Failure> {
    let (task, handlers_ctx) = (registered.task.clone(), ctx.clone());
    let mut running = tokio::spawn(async move {
        // The slot is free when the work has really ended, not when it was given up: a handler that
        // blocks its thread still uses it.
        let _permit = permit;
        task.run(&handlers_ctx).await
    });
    let ended = tokio::select! {
        ended = &mut running => Some(ended),
        () = tokio::time::sleep_until(ctx.deadline().into()) => { ctx.stop(Stopped::Timeout); None }
        () = ctx.stopped() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => match tokio::time::timeout(KindPlan::GRACE, &mut running).await {
            Ok(ended) => ended,
            Err(_) => {
                running.abort();
                return Err(ctx.check().expect_err("only a job asked to stop is given up"));
            }
        },
    };
    match ended {
        Ok(outcome) => outcome,
        // The panic's own words may quote what the handler worked on.
        Err(_) => Err(Failure::retryable("handler-panicked", "The handler panicked.")),
    }
}

fn judge(worker: &Worker, job: &Job, failure: Failure, stopped: Option<Stopped>) -> Verdict {
    let failure = match stopped {
        // However a handler words its end after it was told that its time is over, that is why.
        Some(Stopped::Timeout) if failure.class != FailureClass::Timeout => {
            Failure::timeout("The job took longer than its kind allows.")
        }
        _ => failure,
    };
    let draining = stopped == Some(Stopped::Draining) || worker.drain.is_cancelled();
    verdict(failure, &job.retry.backoff, job.attempt, draining, jitter())
}

enum Settled {
    As(State),
    Lost(Option<State>),
    Unknown,
}

/// Asks the store until it has answered or the lease is over. Asking again is safe: by its token the
/// store knows whether it has been asked before.
async fn settle(worker: &Worker, mut settlement: Settlement) -> Settled {
    let mut wait = RETRY.0;
    let mut refused = false;
    loop {
        // The last question is asked when the lease is over already: the answer before may have been lost.
        let believed = worker.held.until(settlement.lease.token).is_some();
        fault::at(Point::SettleAsked);
        let answer = worker.parts.store.settle(settlement.clone()).await;
        fault::at(Point::SettleKept);
        match answer {
            Ok(state) => return Settled::As(state),
            Err(SettleError::LeaseLost(state)) => return Settled::Lost(state),
            Err(SettleError::Store(error)) if error.is_transient() => {
                warn!(job_id = %settlement.lease.job, code = error.code(), "an outcome could not be stored; trying on");
            }
            // Asking the same again would be refused for ever, with the lease renewed for ever beside it.
            Err(SettleError::Store(error)) => {
                error!(job_id = %settlement.lease.job, code = error.code(), said = error.said(), "an outcome was refused by the database");
                if std::mem::replace(&mut refused, true) {
                    return Settled::Unknown;
                }
                settlement.output = None;
                settlement.verdict = Verdict::Fail {
                    failure: Failure::terminal(
                        "outcome-refused",
                        "The database refused to store what the job gave.",
                    ),
                };
                continue;
            }
        }
        if !believed {
            return Settled::Unknown;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// Gives the lease to the service, asking until the store has answered or the lease is over. From then on
/// nothing of the job is held here: no place, no heartbeat, no pointer.
async fn hand_over(
    worker: &Worker,
    job: &Job,
    lease: &Lease,
    until: Duration,
    receipt: Option<(Arc<dyn Intake>, Receipt)>,
) {
    let mut wait = RETRY.0;
    loop {
        let believed = worker.held.until(lease.token).is_some();
        fault::at(Point::SettleAsked);
        let answer = worker.parts.store.lend(lease, until).await;
        fault::at(Point::SettleKept);
        match answer {
            Ok(()) => {
                info!(job_id = %job.id, kind = %job.kind, attempt = job.attempt, "job handed over to its service");
                return acknowledge(receipt).await;
            }
            // Most likely the service told the end before it had answered the call.
            Err(SettleError::LeaseLost(state)) => {
                info!(job_id = %job.id, kind = %job.kind, attempt = job.attempt, "the job was settled before its service had answered");
                if state.is_none_or(State::is_terminal) {
                    acknowledge(receipt).await;
                }
                return;
            }
            Err(SettleError::Store(error)) => {
                warn!(job_id = %job.id, code = error.code(), "a lease could not be given to its service; trying on");
                if !error.is_transient() || !believed {
                    return;
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

async fn acknowledge(receipt: Option<(Arc<dyn Intake>, Receipt)>) {
    if let Some((intake, receipt)) = receipt {
        // Not acknowledged means delivered once more, and answered as finished.
        fault::at(Point::AckAsked);
        intake.settle(&[(receipt, Settle::Done)]).await;
        fault::at(Point::AckKept);
    }
    fault::at(Point::Acknowledged);
}

/// How long the job was due before it was claimed, both by the database's clock.
fn wait_of(job: &Job) -> Duration {
    job.started_at.unwrap_or_else(|| Timestamp::from_micros(0)).since(job.due_at)
}
