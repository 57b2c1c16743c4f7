//! Asking a service, from time to time, how far it is with what it accepted: for services that tell their
//! ends to nobody, and for words that were lost. Whatever is learned so ends the job by its own token.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use mapae::handler::http::FieldPath;
use mapae::job::name::Kind;
use mapae::job::retry::Failure;
use mapae::outgoing::{Destinations, Outgoing, body_of};
use mapae::remote::{self, End};
use mapae::store::contract::{Awaited, Scope};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::config::Probe;
use crate::runtime::Runtime;

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer that is read: it becomes the job's result.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Questions at the same time, and jobs asked about in one round.
const CONCURRENT: usize = 4;
const ROUND_MAX: usize = 1_000;

/// Asks about every job of the kind that its service has, again and again until `stop`.
pub(crate) async fn watch(
    runtime: Arc<Runtime>,
    kind: Kind,
    probe: Probe,
    destinations: Destinations,
    stop: CancellationToken,
) {
    let Ok(client) = Outgoing::new(destinations, PATIENCE) else {
        return warn!(%kind, "TLS cannot be used to ask the service");
    };
    while stop.run_until_cancelled(tokio::time::sleep(probe.every)).await.is_some() {
        let Ok(all) = runtime.store.awaited(&kind, None, true, ROUND_MAX).await else { continue };
        let asking = futures_util::stream::iter(all.into_iter().map(|awaited| {
            let (runtime, client, probe) = (runtime.clone(), client.clone(), probe.clone());
            async move { look_after(&runtime, &client, &probe, &awaited).await }
        }));
        let asking = asking.buffer_unordered(CONCURRENT).collect::<()>();
        let _ = stop.run_until_cancelled(asking).await;
    }
}

async fn look_after(runtime: &Runtime, client: &Outgoing, probe: &Probe, awaited: &Awaited) {
    let Some(end) = ask(client, probe, awaited).await else { return };
    let parts = runtime.parts();
    let Ok(Some(job)) = parts.store.job(&Scope::All, awaited.job).await else { return };
    // Refused where its end was told meanwhile.
    if let Err(error) = remote::settle(&parts, &job, awaited.token, end).await {
        debug!(job_id = %awaited.job, %error, "what the service was asked for ends no job any more");
    }
}

/// What the service says of the job; `None` where that is no end, or nothing.
async fn ask(client: &Outgoing, probe: &Probe, awaited: &Awaited) -> Option<End> {
    let key: String = url::form_urlencoded::byte_serialize(awaited.key.as_str().as_bytes()).collect();
    let key = key.replace('+', "%20");
    let request = client.get(&probe.url.reveal().replace("{key}", &key)).ok()?;
    let answer = request.send().await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let bytes = body_of(answer, ANSWER_BYTES_MAX).await.ok()?;
    end(&probe.status, &probe.done, &probe.failed, serde_json::from_slice(&bytes).ok()?)
}

/// What a body in the service's own words makes of a job; `None` where its status is not one that ends it.
pub(crate) fn end(status: &FieldPath, done: &[String], failed: &[String], body: Value) -> Option<End> {
    let status = status.read(&body)?;
    if done.contains(&status) {
        return Some(End::Complete(Some(body)));
    }
    let message = "The service told that it failed.";
    failed.contains(&status).then(|| End::Fail(Failure::retryable("service-told-failure", message)))
}
