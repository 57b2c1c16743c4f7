//! Why a provider gave no answer: one class for each thing that is done about it.
//!
//! | class | what is done | rests |
//! |---|---|---|
//! | `auth`, `quota` | the next provider; only a person can help | ten minutes |
//! | `rate` | the next provider; where there is none the job waits without using an attempt | as asked |
//! | `server`, `timeout`, `transport` | once more (not after a timeout), then the next provider | after three in a row |
//! | `context`, `refusal`, `bad-request`, `truncated`, `malformed` | the next provider: asking the same again gives the same | no |
//!
//! Classes are read from the status and from `error.type` and `error.code` first: of two who answer 429 one means
//! "slower" and one "you have paid for no more", and some write the second where they mean the first. So words alone
//! never make a spent quota.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// The longest wait that is believed.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Auth,
    Quota,
    Rate,
    Context,
    Refusal,
    BadRequest,
    Server,
    Timeout,
    Transport,
    /// The answer was longer than it may be.
    Truncated,
    /// What came is not what was asked for.
    Malformed,
}

/// No answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) class: Class,
    /// How long the provider asked to be left alone.
    pub(crate) wait: Option<Duration>,
}

impl Class {
    /// The outcome in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::Rate => "rate",
            Self::Context => "context",
            Self::Refusal => "refusal",
            Self::BadRequest => "bad-request",
            Self::Server => "server",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
        }
    }

    /// Whether waiting may help.
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, Self::Auth | Self::Quota | Self::Rate | Self::Server | Self::Timeout | Self::Transport)
    }
}

impl From<Class> for Refusal {
    fn from(class: Class) -> Self {
        Self { class, wait: None }
    }
}

impl Refusal {
    /// Of an answer with this status, or with `error` in its body whatever its status.
    pub(super) fn of(status: u16, headers: &HeaderMap, body: Option<&Value>) -> Self {
        let error = body.and_then(|body| body.get("error"));
        let word = |name: &str| error.and_then(|error| error[name].as_str()).unwrap_or_default();
        let words = [word("type"), word("code")];
        // Some put the status where others have a word.
        let told = error.and_then(|error| error["code"].as_u64()).and_then(|code| u16::try_from(code).ok());
        let status = if status < 300 { told.unwrap_or(500) } else { status };
        let is = |known: &[&str]| words.iter().any(|word| known.contains(word));
        let class = if is(&["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"]) {
            Class::Quota
        } else if is(&["context_length_exceeded", "exceed_context_size_error", "string_above_max_length"]) {
            Class::Context
        } else if is(&["content_filter", "content_policy_violation"]) {
            Class::Refusal
        } else if is(&["rate_limit_exceeded", "rate_limit_error", "requests", "tokens"]) {
            Class::Rate
        } else {
            match status {
                401 | 403 => Class::Auth,
                402 => Class::Quota,
                408 | 504 => Class::Timeout,
                413 => Class::Context,
                429 => Class::Rate,
                500.. => Class::Server,
                _ => Class::BadRequest,
            }
        };
        let wait = retry_after(headers, SystemTime::now()).filter(|_| class.may_pass());
        Self { class, wait }
    }
}

/// `Retry-After` in both its forms (RFC 9110, chapter 10.2.3): seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => {
            Duration::from_secs_f64(seconds.min(WAIT_MAX.as_secs_f64()))
        }
        Ok(_) => return None,
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_never_endless() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().expect("a header"));
            retry_after(&headers, httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date"))
        };
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(of("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(of("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(of("99999999999999"), Some(WAIT_MAX));
        assert_eq!((of("-1"), of("soon"), of("NaN")), (None, None, None));
    }

    #[test]
    fn each_answer_has_the_class_that_says_what_to_do() {
        let of = |status: u16, body: Value| Refusal::of(status, &HeaderMap::new(), Some(&body)).class;
        let error = |kind: &str, code: &str, message: &str| json!({ "error": { "type": kind, "code": code, "message": message } });
        assert_eq!(of(429, error("insufficient_quota", "insufficient_quota", "")), Class::Quota);
        assert_eq!(
            of(429, error("", "", "INSUFFICIENT QUOTA")),
            Class::Rate,
            "words alone are no spent quota"
        );
        assert_eq!(of(429, error("requests", "rate_limit_exceeded", "")), Class::Rate);
        assert_eq!(of(400, error("invalid_request_error", "context_length_exceeded", "")), Class::Context);
        assert_eq!(of(400, error("invalid_request_error", "content_filter", "")), Class::Refusal);
        assert_eq!(of(400, error("invalid_request_error", "", "")), Class::BadRequest);
        assert_eq!(of(401, json!(null)), Class::Auth);
        assert_eq!(of(503, json!("<html>")), Class::Server);
        assert_eq!(
            of(200, json!({ "error": { "code": 429 } })),
            Class::Rate,
            "an error is one whatever its status"
        );
        assert_eq!(of(200, json!({ "error": "no" })), Class::Server);
    }
}
