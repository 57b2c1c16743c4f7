//! The API in this process, over its real router and a SQLite database of its own, without a worker:
//! tests settle jobs by the store's own calls, so that nothing depends on time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use mapae::job::name::{JobId, Lane};
use mapae::job::record::Output;
use mapae::job::retry::{Failure, Verdict};
use mapae::store::contract::{Holding, Join, LaneQuota, Settlement};
use mapae_server::api::{self, Api};
use mapae_server::config::{Config, Settings};
use mapae_server::credential;
use mapae_server::runtime::{Migrate, Runtime};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The longest a test waits for anything: only a fault reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Site {
    pub runtime: Arc<Runtime>,
    pub stop: CancellationToken,
    pub folder: Arc<tempfile::TempDir>,
    pub api: Api,
    router: Router,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The problem's code, after checking that it is a whole problem.
    #[track_caller]
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{body}");
        for member in ["type", "title", "code", "help"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member} in {body}");
        }
        if matches!(self.status, 429 | 503) {
            assert!(!self.header("retry-after").is_empty(), "{self:?}");
        }
        body["code"].as_str().unwrap().to_owned()
    }
}

/// A configuration with its data in `folder` and these lines more.
pub(crate) fn config(folder: &tempfile::TempDir, more: &str) -> Config {
    let file = folder.path().join("mapae.toml");
    std::fs::write(&file, more).unwrap();
    let data = folder.path().display();
    let flags = [
        ("database.url", format!("sqlite:{data}/mapae.db"), "--data"),
        ("files.url", format!("file:{data}/files"), "--data"),
    ];
    Config::resolve(&Settings::gather(Some(&file), [], &flags).unwrap()).unwrap()
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    pub(crate) async fn with(more: &str) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), more).await
    }

    /// On a folder that may have been another site's.
    pub(crate) async fn on(folder: Arc<tempfile::TempDir>, more: &str) -> Self {
        let config = Arc::new(config(&folder, more));
        let runtime = Runtime::open(&config, Migrate::Always).await.unwrap();
        let stop = CancellationToken::new();
        let api = Api::new(config, stop.clone());
        api.open(runtime.clone());
        Self { router: api::router(api.clone()), api, runtime, stop, folder }
    }

    /// As a server that stops: its streams end, its database is closed.
    pub(crate) async fn stop(self) -> Arc<tempfile::TempDir> {
        self.stop.cancel();
        self.runtime.store.close().await;
        self.folder
    }

    pub(crate) async fn key(&self, owner: Option<&str>, scopes: &[&str]) -> String {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let owner = owner.map(|owner| owner.parse().unwrap());
        let made = credential::make(owner, scopes, None).unwrap();
        self.runtime.store.add_key(made.kept).await.unwrap();
        made.key
    }

    pub(crate) async fn admin(&self) -> String {
        self.key(None, &["admin"]).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> axum::response::Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.send(request).await.into_parts();
        let bytes = tokio::time::timeout(PATIENCE, axum::body::to_bytes(body, usize::MAX)).await;
        Answer { status: parts.status.as_u16(), headers: parts.headers, bytes: bytes.unwrap().unwrap() }
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> Answer {
        self.answer(request(Method::GET, key, path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, key: &str, path: &str, body: Value) -> Answer {
        let request = request(Method::POST, key, path).header("content-type", "application/json");
        self.answer(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// A job of the kind `work`; its id.
    pub(crate) async fn submit(&self, key: &str) -> JobId {
        let answer = self.post(key, "/v1/jobs", serde_json::json!({ "kind": "work" })).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        answer.json()["id"].as_str().unwrap().parse().unwrap()
    }

    /// Claims what waits in the lane `work`, in order, as a worker would.
    pub(crate) async fn claim(&self) -> Vec<Holding> {
        let lane: Lane = "work".parse().unwrap();
        let join = Join { name: "w".into(), strict: false, kinds: vec![lane.kind.clone()], slots: 9 };
        let member = self.runtime.store.join(&join).await.unwrap();
        let quota = [LaneQuota { lane, max: 100 }];
        let held = self
            .runtime
            .store
            .claim_rung(member.holder(), &quota, 100, Duration::from_secs(3600))
            .await
            .unwrap();
        member.leave().await.unwrap();
        held
    }

    pub(crate) async fn settle(&self, holding: &Holding, verdict: Verdict, output: Option<Output>) {
        let settlement = Settlement { lease: holding.lease.clone(), verdict, output };
        self.runtime.store.settle(settlement).await.unwrap();
    }

    /// Runs whatever waits, with this output.
    pub(crate) async fn succeed(&self, output: Value) {
        for holding in self.claim().await {
            self.settle(&holding, Verdict::Succeed, Some(Output::Inline(output.clone()))).await;
        }
    }

    /// Fails whatever waits, for good.
    pub(crate) async fn fail(&self, code: &str) {
        for holding in self.claim().await {
            let failure = Failure::terminal(code, "It failed.");
            self.settle(&holding, Verdict::Fail { failure }, None).await;
        }
    }

    /// Files that were uploaded and are kept.
    pub(crate) fn originals(&self) -> Vec<std::path::PathBuf> {
        let folder = self.folder.path().join("files/originals");
        std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }
}

pub(crate) fn request(method: Method, key: &str, path: &str) -> axum::http::request::Builder {
    let request = Request::builder().method(method).uri(path);
    if key.is_empty() { request } else { request.header("authorization", format!("Bearer {key}")) }
}

/// Waits until `done` says so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut done: impl FnMut() -> F) {
    let all = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "waited in vain until {what}");
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub id: String,
    pub name: String,
    pub data: Value,
}

/// An event stream, read event by event.
pub(crate) struct Stream {
    body: axum::body::BodyDataStream,
    text: String,
}

impl Stream {
    pub(crate) fn of(response: axum::response::Response) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next event, `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
                };
                if let Ok(data) = serde_json::from_str(&field("data: ")) {
                    return Some(Told { id: field("id: "), name: field("event: "), data });
                }
                continue;
            }
            let chunk = tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event in time");
            self.text.push_str(std::str::from_utf8(&chunk?.unwrap()).unwrap());
        }
    }

    /// All names up to the end.
    pub(crate) async fn names(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(told) = self.next().await {
            names.push(told.name);
        }
        names
    }
}
