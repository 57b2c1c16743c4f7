//! A worker made with the library, for what `mapae` itself has no handler for: stages, progress, and events
//! that somebody takes.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use mapae::accept::Window;
use mapae::blob::Blobs;
use mapae::broker::{self, BrokerPlan};
use mapae::handler::{Context, Handlers};
use mapae::job::lease::Timing;
use mapae::job::name::Kind;
use mapae::job::retry::{Backoff, Failure, RetryPolicy};
use mapae::keeper::tell::{Courier, LinePlan, NotTaken, TellPlan, Then};
use mapae::keeper::{self, KeeperPlan};
use mapae::store::contract::{Delivery, Receiver, Retention};
use mapae::worker::{self, Parts, WorkerPlan};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::http::call;

/// The word by which this program is one.
pub(crate) const COMMAND: &str = "subject";

/// Its kind.
pub(crate) const KIND: &str = "fault.stages";

type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Runs until it is killed. The words are those of [`crate::site::Site::subject`].
pub(crate) async fn run(words: &[String]) -> Result<(), Broken> {
    let [name, url, broker, rescan, files, service, taken] = words else {
        return Err("seven words are wanted".into());
    };
    let store = mapae::store::open(url, true).await?;
    let broker = broker::open(&BrokerPlan { url: broker.clone(), database_url: url.clone() })?;
    let blobs = Blobs::open(&format!("file:{files}"))?;
    let parts = Parts { store, broker, blobs, metrics: Arc::default() };
    let courier = Taken { file: Mutex::new(File::options().create(true).append(true).open(taken)?) };
    let plan = KeeperPlan {
        window: Arc::new(Window::new(1_000, parts.broker.caps().source)),
        rescan_after: Duration::from_secs(rescan.parse()?),
        retention: Retention::default(),
        tell: TellPlan { receivers: vec![(everything(), line(courier))], ..TellPlan::default() },
        bell: Arc::default(),
        schedules: Vec::new(),
    };
    let _keeper = keeper::start(parts.clone(), plan);
    let timing =
        Timing { lease: Duration::from_secs(3), heartbeat: Duration::from_millis(500), ..Timing::default() };
    let plan = WorkerPlan {
        name: name.clone(),
        strict_name: true,
        slots: 2,
        prefetch: 0,
        timing,
        capacity: Default::default(),
        rates: Default::default(),
        limits: Default::default(),
    };
    let _worker = worker::start(parts, handlers(service), plan, CancellationToken::new()).await?;
    std::future::pending::<()>().await;
    Ok(())
}

/// Two stages, the second of which asks the service: that is the effect.
fn handlers(service: &str) -> Handlers {
    let (kind, service) = (Kind::new(KIND).expect("it is a name"), service.to_owned());
    let mut handlers = Handlers::default();
    let plan = handlers.add_fn(kind.as_str(), move |params: Value, ctx: Context| {
        let service = service.clone();
        async move {
            ctx.stage("first", || async { Ok("done".to_owned()) }).await?;
            ctx.progress(1, 2);
            let answer = effect(&service, &params, &ctx).await?;
            // Large enough for a file.
            ctx.stage("second", || async { Ok("x".repeat(300_000)) }).await?;
            Ok(answer)
        }
    });
    plan.retry = retry();
    handlers
}

pub(crate) fn retry() -> RetryPolicy {
    RetryPolicy { attempts: 500, ..RetryPolicy::default() }
}

async fn effect(service: &str, params: &Value, ctx: &Context) -> Result<Value, Failure> {
    let job = ctx.job();
    let body = json!({ "job": { "id": job.id, "attempt": job.attempt }, "params": params }).to_string();
    let headers = [("content-type", "application/json")];
    let asked = call(service, "POST", "/", &headers, body.as_bytes(), Duration::from_secs(60));
    let answer = tokio::select! {
        answer = asked => answer,
        () = ctx.stopped() => return Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
    };
    let again = || Failure::retryable("service", "The service did not answer.");
    serde_json::from_str(&answer.map_err(|_| again())?.body).map_err(|_| again())
}

/// Writes each event into a file: what was written stays, whatever becomes of this process.
struct Taken {
    file: Mutex<File>,
}

#[async_trait]
impl Courier for Taken {
    async fn take(&self, delivery: &Delivery) -> Result<(), NotTaken> {
        let line = format!("{} {}\n", delivery.event.job, delivery.event.sequence);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let again = |_| NotTaken { code: "file".into(), then: Then::Again };
        file.write_all(line.as_bytes()).map_err(again)
    }
}

fn everything() -> Receiver {
    Receiver { name: "file".into(), events: Vec::new(), kinds: Vec::new() }
}

/// Patient for no longer than a lease: what a process that was hit had taken is told again soon.
fn line(courier: impl Courier) -> LinePlan {
    LinePlan {
        courier: Arc::new(courier),
        concurrent: 4,
        patience: Duration::from_secs(1),
        backoff: Backoff { first: Duration::from_millis(50), max: Duration::from_secs(1) },
    }
}

/// What was taken, in its order. `None` where there was nobody to take it.
pub(crate) fn taken(path: &Path) -> Option<Vec<(Uuid, i64)>> {
    let text = std::fs::read_to_string(path).ok()?;
    let read = |line: &str| {
        let (job, sequence) = line.split_once(' ')?;
        Some((job.parse().ok()?, sequence.parse().ok()?))
    };
    Some(text.lines().filter_map(read).collect())
}
