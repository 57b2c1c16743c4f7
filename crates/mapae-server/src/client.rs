//! How commands reach a runtime: over HTTP, or in this process on the configured database. Both speak
//! the same API, so a command does not know which it has.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, header};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::api::auth::Identity;
use crate::api::{self, Api};
use crate::config::{Config, Secret};
use crate::outbound;
use crate::runtime::{Migrate, Runtime};
use crate::trouble::{Exit, Trouble};

/// The largest answer that is read whole.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// One call. `path` begins with `/v1/` and may have a query.
pub struct Call {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    payload: Payload,
}

enum Payload {
    None,
    Json(Value),
    File(tokio::fs::File, u64),
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

/// Something that answers calls.
#[async_trait]
pub trait Client: Send + Sync {
    /// The answer, whatever its status.
    async fn send(&self, call: Call) -> Result<Answer, Trouble>;
}

impl Call {
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), headers: Vec::new(), payload: Payload::None }
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    pub fn post(path: impl Into<String>) -> Self {
        Self { method: Method::POST, ..Self::get(path) }
    }

    pub fn json(mut self, body: Value) -> Self {
        self.payload = Payload::Json(body);
        self
    }

    /// The file as the raw body.
    pub fn file(mut self, file: tokio::fs::File, bytes: u64) -> Self {
        self.payload = Payload::File(file, bytes);
        self
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl dyn Client + '_ {
    /// The answer to a call that went well.
    pub async fn ask(&self, call: Call) -> Result<Answer, Trouble> {
        let answer = self.send(call).await?;
        if answer.status < 400 { Ok(answer) } else { Err(answer.trouble().await) }
    }

    /// The JSON of a call that went well, `null` where it has no body.
    pub async fn json(&self, call: Call) -> Result<Value, Trouble> {
        let bytes = self.ask(call).await?.bytes().await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|_| not_mapae())
    }
}

impl Answer {
    pub async fn bytes(mut self) -> Result<Vec<u8>, Trouble> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.body.next().await {
            bytes.extend_from_slice(&chunk.map_err(|_| cut_off())?);
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(Trouble::new(
                    Exit::Unavailable,
                    "answer-too-large",
                    "The answer is too large.",
                    "ask for less",
                ));
            }
        }
        Ok(bytes)
    }

    /// The problem that the server told of, with the exit code for it.
    async fn trouble(self) -> Trouble {
        let status = self.status;
        let exit = match status {
            401 | 403 => Exit::NotPermitted,
            404 | 410 => Exit::NotFound,
            409 => Exit::Conflict,
            408 | 429 | 503 => Exit::TryAgain,
            400..=499 => Exit::Usage,
            _ => Exit::Unavailable,
        };
        let body = self.bytes().await.unwrap_or_default();
        let Ok(problem) = serde_json::from_slice::<Value>(&body) else { return not_mapae() };
        let text = |name: &str| problem[name].as_str().map(crate::output::plain);
        let Some(code) = text("code") else { return not_mapae() };
        let sentence = [text("title"), text("detail")].into_iter().flatten().collect::<Vec<_>>().join(" ");
        Trouble::new(exit, code, sentence, text("help").unwrap_or_default())
    }
}

fn not_mapae() -> Trouble {
    let help = "check --url: it is the address of the API, such as http://127.0.0.1:7070";
    Trouble::new(Exit::Unavailable, "not-mapae", "What answered is not mapae.", help)
}

pub(crate) fn cut_off() -> Trouble {
    Trouble::new(Exit::TryAgain, "connection-lost", "The connection was lost.", "try again")
}

/// A server over HTTP.
pub(crate) struct Remote {
    http: reqwest::Client,
    url: String,
    key: Option<Secret>,
}

impl Remote {
    pub(crate) fn new(url: &str, key: Option<Secret>) -> Result<Self, Trouble> {
        let valid =
            url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !valid {
            let help = "give the address of the API, such as http://127.0.0.1:7070";
            return Err(Trouble::usage("url-invalid", "--url is no http:// or https:// address.", help));
        }
        let http = outbound::client()
            // Streams say something every 15 s.
            .read_timeout(Duration::from_secs(90))
            .build()
            .map_err(|_| {
                Trouble::new(
                    Exit::Unavailable,
                    "tls",
                    "TLS cannot be used.",
                    "check the system's certificates",
                )
            })?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), key })
    }
}

#[async_trait]
impl Client for Remote {
    async fn send(&self, call: Call) -> Result<Answer, Trouble> {
        let mut request = self.http.request(call.method, format!("{}{}", self.url, call.path));
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.reveal());
        }
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        request = match call.payload {
            Payload::None => request,
            Payload::Json(value) => {
                request.header(header::CONTENT_TYPE, "application/json").body(value.to_string())
            }
            Payload::File(file, bytes) => {
                let body = reqwest::Body::wrap_stream(tokio_util::io::ReaderStream::new(file));
                request.header(header::CONTENT_LENGTH, bytes).body(body)
            }
        };
        let answer = request.send().await.map_err(|error| {
            let (code, sentence) = if error.is_timeout() {
                ("server-silent", "The server did not answer in time.")
            } else {
                ("server-unreachable", "The server cannot be reached.")
            };
            Trouble::new(Exit::Unavailable, code, sentence, "check --url, and that the server runs")
        })?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Ok(Answer {
            status,
            headers,
            body: answer.bytes_stream().map(|chunk| chunk.map_err(io::Error::other)).boxed(),
        })
    }
}

/// The runtime itself, opened by this process.
pub(crate) struct Local {
    runtime: Arc<Runtime>,
    router: Router,
    stop: CancellationToken,
}

impl Local {
    pub(crate) async fn open(config: Config) -> Result<Self, Trouble> {
        let config = Arc::new(config);
        let runtime = Runtime::open(&config, Migrate::IfEmpty).await?;
        let stop = CancellationToken::new();
        let api = Api::new(config, stop.clone());
        api.open(runtime.clone());
        Ok(Self { runtime, router: api::router(api), stop })
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[async_trait]
impl Client for Local {
    async fn send(&self, call: Call) -> Result<Answer, Trouble> {
        let mut request = Request::builder().method(call.method).uri(call.path).extension(Identity::local());
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let body = match call.payload {
            Payload::None => Body::empty(),
            Payload::Json(value) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(value.to_string())
            }
            Payload::File(file, bytes) => {
                self.runtime.share_files().await?;
                request = request.header(header::CONTENT_LENGTH, bytes);
                Body::from_stream(tokio_util::io::ReaderStream::new(file))
            }
        };
        let request = request.body(body).map_err(|_| {
            Trouble::usage(
                "argument-invalid",
                "An argument holds characters that cannot be sent.",
                "leave them out",
            )
        })?;
        let Ok(answer) = self.router.clone().oneshot(request).await;
        let (parts, body) = answer.into_parts();
        let body = body.into_data_stream().map(|chunk| chunk.map_err(io::Error::other)).boxed();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }
}
