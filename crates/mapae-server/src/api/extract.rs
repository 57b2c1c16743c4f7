//! Reading requests: ids, queries, JSON bodies, a few headers. Whatever is wrong with one is a problem
//! of its own, never the framework's plain text.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use mapae::job::name::{IdempotencyKey, JobId};
use serde::de::DeserializeOwned;

use super::Api;
use super::problem::{self, Problem};

/// The largest JSON body, in bytes: params may be 256 KiB, and may be written with spaces and escapes.
pub(super) const JSON_BYTES_MAX: usize = 1 << 20;

/// How deep JSON may be nested.
const JSON_DEPTH_MAX: usize = 64;

/// The id in the path. What is no id is answered like an id that is not there.
pub(super) struct Id(pub JobId);

impl FromRequestParts<Api> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let text = Path::<std::collections::HashMap<String, String>>::from_request_parts(parts, api).await;
        let id = text.ok().and_then(|path| path.get("id")?.parse().ok());
        id.map(Self).ok_or_else(|| (&problem::JOB_NOT_FOUND).into())
    }
}

/// The query, in which an unknown parameter is a mistake.
pub(super) struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        query.map(|query| Self(query.0)).map_err(|_| (&problem::QUERY_INVALID).into())
    }
}

/// A JSON body.
pub(super) struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "The call takes application/json.";
            return Err(Problem::from(&problem::MEDIA_TYPE_UNSUPPORTED).detail(detail));
        }
        let bytes = read_body(request, JSON_BYTES_MAX, api.config.http.timeout).await?;
        Ok(Self(parse(&bytes)?))
    }
}

/// A JSON body of at most `max` bytes, `None` where there is none at all.
pub(super) async fn read_json<T: DeserializeOwned>(
    api: &Api,
    request: Request,
    max: usize,
) -> Result<Option<T>, Problem> {
    let json = is_json(request.headers());
    let bytes = read_body(request, max, api.config.http.timeout).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if !json {
        let detail = "The call takes application/json.";
        return Err(Problem::from(&problem::MEDIA_TYPE_UNSUPPORTED).detail(detail));
    }
    parse(&bytes).map(Some)
}

fn is_json(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The whole body, at most `max` bytes and within `patience`.
pub(super) async fn read_body(request: Request, max: usize, patience: Duration) -> Result<Bytes, Problem> {
    let too_large =
        || Problem::from(&problem::BODY_TOO_LARGE).detail(format!("The body may be at most {max} bytes."));
    if content_length(request.headers()).is_some_and(|length| length > max as u64) {
        return Err(too_large());
    }
    let read = async {
        let mut body = request.into_body().into_data_stream();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|_| Problem::from(&problem::BODY_CUT))?;
            if bytes.len() + chunk.len() > max {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    };
    tokio::time::timeout(patience, read).await.unwrap_or_else(|_| Err((&problem::REQUEST_TIMEOUT).into()))
}

/// Reads JSON. Messages name fields of this API, never what stood in them.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if depth(bytes) > JSON_DEPTH_MAX {
        return Err((&problem::JSON_TOO_DEEP).into());
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        if !error.is_data() {
            return Problem::from(&problem::JSON_INVALID).detail(format!("It goes wrong at {place}."));
        }
        let text = error.to_string();
        let named = |word: &str| {
            let name = text.strip_prefix(word)?.split('`').nth(1)?;
            (name.len() <= 64).then(|| format!("The {word} is `{name}` ({place})."))
        };
        let detail = named("missing field")
            .or_else(|| named("unknown field"))
            .unwrap_or_else(|| format!("A value is not what its field takes, at {place}."));
        Problem::from(&problem::BODY_INVALID).detail(detail)
    })
}

/// How deep brackets are nested, outside of strings. Looked at before parsing, which recurses.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What the client calls this submission. Quotes around it, as the draft has them, are taken off.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let bad = || {
        let detail = "Idempotency-Key must be 1 to 255 printable ASCII characters without spaces.";
        Problem::from(&problem::HEADER_INVALID).detail(detail)
    };
    let text = value.to_str().map_err(|_| bad())?.trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    IdempotencyKey::new(text).map(Some).map_err(|_| bad())
}

/// `Prefer: wait=N` (RFC 7240), in seconds. A preference that cannot be read is no error.
pub(super) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split([',', ';']))
        .filter_map(|part| part.trim().strip_prefix("wait=")?.trim_matches('"').parse().ok())
        .map(Duration::from_secs)
        .next()
}

/// A W3C `traceparent`, where it looks like one.
pub(super) fn trace(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let allowed = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c) || c == '-';
    (text.len() == 55 && text.chars().all(allowed)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_counted_outside_of_strings_only() {
        assert_eq!(depth(br#"{"a": [1, "[[[[", "\"[["]}"#), 2);
        assert_eq!(depth(&[b'['; 100_000]), 100_000);
    }

    #[test]
    fn a_message_names_fields_and_never_values() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Body {
            #[allow(unused)]
            priority: u8,
        }
        let cases = [
            (r#"{"priority": "my secret"}"#, "body-invalid"),
            (r#"{}"#, "body-invalid"),
            (r#"{"priority": 1, "colour": 2}"#, "body-invalid"),
            (r#"{"priority": my secret}"#, "json-invalid"),
            ("", "json-invalid"),
        ];
        for (json, code) in cases {
            let problem = parse::<Body>(json.as_bytes()).unwrap_err();
            assert_eq!(problem.refusal.code, code, "{json}");
            assert!(!format!("{problem:?}").contains("my secret"), "{problem:?}");
        }
    }

    #[test]
    fn a_wait_is_read_wherever_it_stands_and_nonsense_is_none() {
        let wait = |text: &str| {
            let headers = HeaderMap::from_iter([("prefer".parse().unwrap(), text.parse().unwrap())]);
            preferred_wait(&headers)
        };
        assert_eq!(wait("respond-async, wait=10"), Some(Duration::from_secs(10)));
        assert_eq!(wait("wait=soon"), None);
    }
}
