//! A kind whose work an HTTP service does: the service is called, and its answer is the job's end, or the
//! beginning of its work.
//!
//! | answer | the job |
//! |---|---|
//! | 200, 201, 204 | succeeds; a JSON body is its result |
//! | 202, or whatever is accepted | is the service's until it tells the end, or until the deadline |
//! | 409 with the problem code `stale`, 410 | is stale |
//! | 429, 503 with `Retry-After` | comes back then; no attempt is used |
//! | 429, 5xx, no answer | is tried again |
//! | anything else, a redirect too | fails for good |
//!
//! Not here: how the end is told later (`remote.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::breaker::Breaker;
use super::signature::Secrets;
use super::{Context, Outcome, Task};
use crate::job::name::BusinessKey;
use crate::job::record::Job;
use crate::job::retry::Failure;
use crate::job::timestamp::Timestamp;
use crate::outgoing::{self, Destinations, NoClient, Outgoing, Unread};

/// The largest answer that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The shortest and the longest that a service may put a job off.
const PUT_OFF_MIN: Duration = Duration::from_secs(1);
const PUT_OFF_MAX: Duration = Duration::from_secs(24 * 3600);

/// Why a job is put off without a call.
const RESTING: &str = "service-resting";

/// Failures of the service rather than of the job.
const DOUBTFUL: [&str; 4] =
    ["service-silent", "service-unreachable", "service-address-refused", "service-failed"];

/// How a service is called. Not printable: the address may hold a password.
#[derive(Clone)]
pub struct ServicePlan {
    pub url: String,
    /// Where calls may go: the operator's own.
    pub destinations: Destinations,
    pub body: Body,
    /// From the first byte sent to the last byte of the answer.
    pub timeout: Duration,
    /// Most calls at the same time from this process.
    pub concurrent: usize,
    /// Answers that mean: accepted, the end is told later.
    pub accepted: Vec<u16>,
    /// How long the service has to tell the end of what it accepted.
    pub deadline: Duration,
    /// Calls are signed with these.
    pub secrets: Option<Secrets>,
    /// The address of the API, where the end can be told under the lease's token.
    pub callback: Option<String>,
    /// Where the params have what the service calls the job by: `params.contextId`.
    pub key: Option<FieldPath>,
}

/// A field of some JSON, however deep: `a.b.c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// `root` stands before the names, as in `params.contextId` or `$.contextId`.
    pub fn parse(root: &str, text: &str) -> Option<Self> {
        let names: Vec<String> =
            text.strip_prefix(root)?.strip_prefix('.')?.split('.').map(str::to_owned).collect();
        names.iter().all(|name| !name.is_empty()).then_some(Self(names))
    }

    /// The text there, or the number as text.
    pub fn read(&self, value: &Value) -> Option<String> {
        let found = self.0.iter().try_fold(value, |value, name| value.get(name))?;
        match found {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

/// What a service is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The job and its params.
    Job,
    /// The params alone, for a service that knows nothing of jobs.
    Raw,
}

/// A service, and the calls that may be made to it at the same time.
pub struct Service {
    http: Outgoing,
    plan: ServicePlan,
    places: Arc<Semaphore>,
    breaker: Breaker,
}

impl Service {
    pub fn new(plan: ServicePlan) -> Result<Self, NoClient> {
        let http = Outgoing::new(plan.destinations.clone(), plan.timeout)?;
        let places = Arc::new(Semaphore::new(plan.concurrent));
        Ok(Self { http, plan, places, breaker: Breaker::default() })
    }

    async fn call(&self, ctx: &Context) -> Result<Answer, Failure> {
        // While the service is in doubt, one call at a time finds out.
        let all = u32::try_from(self.plan.concurrent).unwrap_or(u32::MAX);
        let places = if self.breaker.doubts() { all } else { 1 };
        let _place = self.places.acquire_many(places).await.expect("the semaphore is never closed");
        if let Some(rest) = self.breaker.rests(Instant::now()) {
            let message = "The service failed several calls in a row and is left alone for a while.";
            return Err(Failure::retry_after(rest, RESTING, message));
        }
        let answered = self.ask(ctx).await;
        let well = !answered.as_ref().is_err_and(|failure| DOUBTFUL.contains(&failure.code.as_str()));
        let opened = self.breaker.heard(well, Instant::now());
        if let Some(rest) = opened {
            ctx.rest(rest, RESTING).await;
        }
        answered
    }

    /// When the attempt is over, whether the service answers at once or later.
    fn until(&self, ctx: &Context) -> Instant {
        match self.plan.accepted.is_empty() {
            true => ctx.deadline(),
            false => Instant::now() + self.plan.deadline,
        }
    }

    async fn ask(&self, ctx: &Context) -> Result<Answer, Failure> {
        let job = ctx.job();
        if let Some(path) = &self.plan.key {
            // Before the call: the service may tell the end by it before it has answered.
            ctx.correlate(&key_of(path, job)?).await?;
        }
        let body = match self.plan.body {
            Body::Raw => job.params.clone(),
            Body::Job => json!({
                "job": { "id": job.id, "kind": job.kind, "owner": job.owner, "attempt": job.attempt },
                "params": job.params,
            }),
        };
        let body = body.to_string();
        let now = SystemTime::now();
        let mut request = self
            .http
            .post(&self.plan.url)
            .map_err(|_| refused())?
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", ctx.idempotency_key("call"))
            .header("mapae-job", job.id.to_string())
            .header("mapae-attempt", job.attempt)
            .header("mapae-deadline", deadline(self.until(ctx)).to_string());
        if let Some(api) = &self.plan.callback {
            request = request.header("mapae-callback", callback(api, ctx));
        }
        if let Some(trace) = &job.trace {
            request = request.header("traceparent", trace);
        }
        if let Some(secrets) = &self.plan.secrets {
            // A number of its own for each call, also where an attempt was given back.
            let id = format!("{}-{}", job.id, ctx.lease().epoch);
            let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let at = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            request = request
                .header("webhook-signature", secrets.sign(&id, at, body.as_bytes()))
                .header("webhook-timestamp", at)
                .header("webhook-id", id);
        }
        // The error may name the address, which may hold a password.
        let answer =
            request.body(body).send().await.map_err(|error| match outgoing::was_refused(&error) {
                true => refused(),
                false => unreachable(error.is_timeout()),
            })?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        if self.plan.accepted.contains(&status) {
            return Ok(Answer::Accepted);
        }
        let bytes = whole(answer).await?;
        judge(status, &headers, &bytes, now)
    }
}

/// What a service said to a call.
#[derive(Debug, PartialEq)]
enum Answer {
    Done(Option<Value>),
    Accepted,
}

#[async_trait]
impl Task for Service {
    async fn run(&self, ctx: &Context) -> Result<Outcome, Failure> {
        let answered = tokio::select! {
            answered = self.call(ctx) => answered?,
            () = ctx.stopped() => return Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
        };
        match answered {
            Answer::Done(Some(value)) => Ok(Outcome::Done(Some(ctx.keep(value).await?))),
            Answer::Done(None) => Ok(Outcome::Done(None)),
            Answer::Accepted => Ok(Outcome::HandedOver(self.plan.deadline)),
        }
    }
}

/// Where the service tells the job's end. Whoever has the address may end this attempt, and nothing else.
fn callback(api: &str, ctx: &Context) -> String {
    let lease = ctx.lease();
    format!("{}/v1/leases/{}/complete?token={}", api.trim_end_matches('/'), lease.job, lease.token.0)
}

fn key_of(path: &FieldPath, job: &Job) -> Result<BusinessKey, Failure> {
    path.read(&job.params).and_then(|key| BusinessKey::new(key).ok()).ok_or_else(|| {
        let message = "The params have no text or number where the handler's `complete.key` says.";
        Failure::terminal("business-key-missing", message)
    })
}

fn unreachable(timed_out: bool) -> Failure {
    if timed_out {
        Failure::retryable("service-silent", "The service did not answer in time.")
    } else {
        Failure::retryable("service-unreachable", "The service could not be reached.")
    }
}

/// Terminal would be too hard: a name that means nothing now may mean something again.
fn refused() -> Failure {
    Failure::retryable("service-address-refused", "The service's address is not one that may be called.")
}

async fn whole(answer: reqwest::Response) -> Result<Vec<u8>, Failure> {
    outgoing::body_of(answer, ANSWER_BYTES_MAX).await.map_err(|unread| match unread {
        Unread::Lost(error) => unreachable(error.is_timeout()),
        Unread::TooLarge => {
            let message = format!("The service answered with more than {ANSWER_BYTES_MAX} bytes.");
            Failure::terminal("service-answer-too-large", message)
        }
    })
}

/// When the attempt is asked to stop, by this machine's clock: advice for the service, nothing more.
fn deadline(at: Instant) -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::default() + now + at.saturating_duration_since(Instant::now())
}

/// What an answer means. Pure.
fn judge(status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<Answer, Failure> {
    let answered = format!("The service answered {status}.");
    match status {
        200 | 201 | 204 if body.trim_ascii().is_empty() => Ok(Answer::Done(None)),
        200 | 201 | 204 => serde_json::from_slice(body)
            .map(|value| Answer::Done(Some(value)))
            .map_err(|_| Failure::terminal("service-answer-not-json", "The service's answer is not JSON.")),
        202 => Err(Failure::terminal(
            "service-answered-later",
            "The service accepted the work for later, and `accepted` of its handler does not allow that.",
        )),
        410 => Err(Failure::stale("service-gone", answered)),
        409 if says_stale(body) => Err(Failure::stale("service-stale", answered)),
        429 | 503 if let Some(wait) = put_off(headers, now) => {
            Err(Failure::retry_after(wait, "service-busy", answered))
        }
        429 => Err(Failure::retryable("service-busy", answered)),
        500.. => Err(Failure::retryable("service-failed", answered)),
        _ => Err(Failure::terminal("service-refused", answered)),
    }
}

/// A problem (RFC 9457) whose code is `stale`, or whose type ends so.
fn says_stale(body: &[u8]) -> bool {
    let Ok(problem) = serde_json::from_slice::<Value>(body) else { return false };
    let text = |name: &str| problem.get(name).and_then(Value::as_str).unwrap_or_default();
    text("code") == "stale" || text("type").rsplit(['/', ':', '#']).next() == Some("stale")
}

/// `Retry-After`, in seconds or as a date.
pub(crate) fn put_off(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    // Whoever says "at once" is not asked again without a pause.
    Some(wait.clamp(PUT_OFF_MIN, PUT_OFF_MAX))
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
        assert_eq!(judge(200, "", "{\"a\":1}"), Ok(Answer::Done(Some(json!({ "a": 1 })))));
        assert_eq!(judge(204, "", ""), Ok(Answer::Done(None)));
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
