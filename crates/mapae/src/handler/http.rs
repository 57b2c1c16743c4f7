//! A kind whose work an HTTP service does: the service is called, and its answer is the job's end.
//!
//! | answer | the job |
//! |---|---|
//! | 200, 201, 204 | succeeds; a JSON body is its result |
//! | 409 with the problem code `stale`, 410 | is stale |
//! | 429, 503 with `Retry-After` | comes back then; no attempt is used |
//! | 429, 5xx, no answer | is tried again |
//! | anything else | fails for good |
//!
//! Not here: answers that come later (`202`). This version does not wait for them, so it says so.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use futures_util::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Context, Task};
use crate::job::record::Output;
use crate::job::retry::Failure;
use crate::job::timestamp::Timestamp;

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(10);

/// The largest answer that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The longest that a service may put a job off.
const PUT_OFF_MAX: Duration = Duration::from_secs(24 * 3600);

/// How a service is called. Not printable: the address may hold a password.
#[derive(Clone)]
pub struct ServicePlan {
    pub url: String,
    pub body: Body,
    /// From the first byte sent to the last byte of the answer.
    pub timeout: Duration,
    /// Most calls at the same time from this process.
    pub concurrent: usize,
}

/// What a service is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The job and its params.
    Job,
    /// The params alone, for a service that knows nothing of jobs.
    Raw,
}

/// Calls cannot be made from this process.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be used for calls to services")]
pub struct NoClient(#[source] reqwest::Error);

/// A service, and the calls that may be made to it at the same time.
pub struct Service {
    http: reqwest::Client,
    plan: ServicePlan,
    places: Arc<Semaphore>,
}

impl Service {
    pub fn new(plan: ServicePlan) -> Result<Self, NoClient> {
        // The whole program uses ring. It fails only where it has been installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECTING)
            .timeout(plan.timeout)
            // What is sent must not follow a redirect to somewhere else.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(NoClient)?;
        let places = Arc::new(Semaphore::new(plan.concurrent));
        Ok(Self { http, plan, places })
    }

    async fn call(&self, ctx: &Context) -> Result<Option<Value>, Failure> {
        let _place = self.places.acquire().await.expect("the semaphore is never closed");
        let job = ctx.job();
        let body = match self.plan.body {
            Body::Raw => job.params.clone(),
            Body::Job => json!({
                "job": { "id": job.id, "kind": job.kind, "owner": job.owner, "attempt": job.attempt },
                "params": job.params,
            }),
        };
        let mut request = self
            .http
            .post(&self.plan.url)
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", ctx.idempotency_key("call"))
            .header("mapae-job", job.id.to_string())
            .header("mapae-attempt", job.attempt)
            .header("mapae-deadline", deadline(ctx.deadline()).to_string())
            .body(body.to_string());
        if let Some(trace) = &job.trace {
            request = request.header("traceparent", trace);
        }
        // The error may name the address, which may hold a password.
        let answer = request.send().await.map_err(|error| unreachable(error.is_timeout()))?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let bytes = whole(answer).await?;
        judge(status, &headers, &bytes, SystemTime::now())
    }
}

#[async_trait]
impl Task for Service {
    async fn run(&self, ctx: &Context) -> Result<Option<Output>, Failure> {
        let answered = tokio::select! {
            answered = self.call(ctx) => answered?,
            () = ctx.stopped() => return Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
        };
        match answered {
            Some(value) => ctx.keep(value).await.map(Some),
            None => Ok(None),
        }
    }
}

fn unreachable(timed_out: bool) -> Failure {
    if timed_out {
        Failure::retryable("service-silent", "The service did not answer in time.")
    } else {
        Failure::retryable("service-unreachable", "The service could not be reached.")
    }
}

async fn whole(answer: reqwest::Response) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut body = answer.bytes_stream();
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| unreachable(error.is_timeout()))?);
        if bytes.len() > ANSWER_BYTES_MAX {
            let message = format!("The service answered with more than {ANSWER_BYTES_MAX} bytes.");
            return Err(Failure::terminal("service-answer-too-large", message));
        }
    }
    Ok(bytes)
}

/// When the attempt is asked to stop, by this machine's clock: advice for the service, nothing more.
fn deadline(at: Instant) -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::default() + now + at.saturating_duration_since(Instant::now())
}

/// What an answer means. Pure.
fn judge(status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<Option<Value>, Failure> {
    let answered = format!("The service answered {status}.");
    match status {
        200 | 201 | 204 if body.trim_ascii().is_empty() => Ok(None),
        200 | 201 | 204 => serde_json::from_slice(body)
            .map(Some)
            .map_err(|_| Failure::terminal("service-answer-not-json", "The service's answer is not JSON.")),
        202 => Err(Failure::terminal(
            "service-answered-later",
            "The service accepted the work for later, and this version does not wait for that.",
        )),
        410 => Err(Failure::stale("service-gone", answered)),
        409 if problem_code(body).as_deref() == Some("stale") => {
            Err(Failure::stale("service-stale", answered))
        }
        429 | 503 if let Some(wait) = put_off(headers, now) => {
            Err(Failure::retry_after(wait, "service-busy", answered))
        }
        429 => Err(Failure::retryable("service-busy", answered)),
        500.. => Err(Failure::retryable("service-failed", answered)),
        _ => Err(Failure::terminal("service-refused", answered)),
    }
}

fn problem_code(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Value>(body).ok()?.get("code")?.as_str().map(str::to_owned)
}

/// `Retry-After`, in seconds or as a date.
fn put_off(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(PUT_OFF_MAX))
}

#[cfg(test)]
mod tests {
    use crate::job::retry::FailureClass;

    use super::*;

    #[test]
    fn every_answer_has_its_meaning() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_000_000);
        let judge = |status, retry_after: &str, body: &str| {
            let mut headers = HeaderMap::new();
            if !retry_after.is_empty() {
                headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
            }
            judge(status, &headers, body.as_bytes(), now)
        };
        assert_eq!(judge(200, "", "{\"a\":1}"), Ok(Some(json!({ "a": 1 }))));
        assert_eq!(judge(204, "", ""), Ok(None));
        let date = httpdate::fmt_http_date(now + Duration::from_secs(90));
        let cases = [
            (200, "", "<html>", FailureClass::Terminal, None),
            (202, "", "", FailureClass::Terminal, None),
            (301, "", "", FailureClass::Terminal, None),
            (404, "", "", FailureClass::Terminal, None),
            (409, "", "{\"code\":\"conflict\"}", FailureClass::Terminal, None),
            (409, "", "{\"code\":\"stale\"}", FailureClass::Stale, None),
            (410, "", "", FailureClass::Stale, None),
            (429, "", "", FailureClass::Retryable, None),
            (429, "7", "", FailureClass::Retryable, Some(7)),
            (503, date.as_str(), "", FailureClass::Retryable, Some(90)),
            (503, "99999999", "", FailureClass::Retryable, Some(24 * 3600)),
            (503, "soon", "", FailureClass::Retryable, None),
            (500, "7", "", FailureClass::Retryable, None),
        ];
        for (status, retry_after, body, class, wait) in cases {
            let failure = judge(status, retry_after, body).unwrap_err();
            let found = (failure.class, failure.retry_after.map(|wait| wait.as_secs()));
            assert_eq!(found, (class, wait), "{status} {retry_after:?}");
        }
    }
}
