//! Work that others do, with the program as it is run: services that answer at once or later, clients that
//! pull, and a kind that moves between all of them.

mod leases;

use std::collections::VecDeque;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::binary::Server;
use super::site::{PATIENCE, until};

/// A request as the service got it.
struct Asked {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

/// An answer, in the order they are to be given; 202 once there are none left.
type Answers = Arc<Mutex<VecDeque<(u16, &'static str)>>>;

async fn answer(
    State((tell, answers)): State<(mpsc::UnboundedSender<Asked>, Answers)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    let answer = answers.lock().unwrap().pop_front().unwrap_or((202, ""));
    let _ = tell.send(Asked { path: uri.path().to_owned(), headers, body });
    (StatusCode::from_u16(answer.0).unwrap(), answer.1).into_response()
}

struct Service {
    url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
    answers: Answers,
}

impl Service {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/work", listener.local_addr().unwrap());
        let (tell, asked) = mpsc::unbounded_channel();
        let answers = Answers::default();
        let router = Router::new().fallback(answer).with_state((tell, answers.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, asked, answers }
    }

    fn answer(&self, status: u16, body: &'static str) {
        self.answers.lock().unwrap().push_back((status, body));
    }

    async fn asked(&mut self) -> Asked {
        tokio::time::timeout(PATIENCE, self.asked.recv()).await.expect("the service is asked").unwrap()
    }
}

/// A running program with a client.
struct Site {
    server: Server,
    folder: Arc<tempfile::TempDir>,
    http: reqwest::Client,
}

impl Site {
    fn new(configuration: &str) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), configuration)
    }

    fn on(folder: Arc<tempfile::TempDir>, configuration: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        std::fs::write(folder.path().join("mapae.toml"), configuration).unwrap();
        let server = Server::dev(folder.path(), &[]);
        Self { server, folder, http: reqwest::Client::builder().timeout(PATIENCE).build().unwrap() }
    }

    async fn post(&self, key: Option<&str>, url: &str, body: Value) -> (u16, Value) {
        let url = if url.starts_with("http") { url.to_owned() } else { format!("{}{url}", self.server.url) };
        let mut request = self.http.post(url).header("content-type", "application/json");
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let answer = request.body(body.to_string()).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
    }

    async fn admin(&self, url: &str, body: Value) -> (u16, Value) {
        self.post(Some(&self.server.key), url, body).await
    }

    async fn get(&self, path: &str) -> Value {
        let request = self.http.get(format!("{}{path}", self.server.url)).bearer_auth(&self.server.key);
        serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap()
    }

    async fn submit(&self, kind: &str, params: Value) -> String {
        let (status, job) = self.admin("/v1/jobs", json!({ "kind": kind, "params": params })).await;
        assert_eq!(status, 202, "{job}");
        job["id"].as_str().unwrap().to_owned()
    }

    async fn job(&self, id: &str) -> Value {
        self.get(&format!("/v1/jobs/{id}")).await
    }

    async fn job_when(&self, id: &str, state: &str) -> Value {
        until(&format!("the job is {state}"), || async { self.job(id).await["state"] == state }).await;
        self.job(id).await
    }

    async fn lease(&self, key: &str, request: Value) -> Vec<Value> {
        let (status, answer) = self.post(Some(key), "/v1/leases", request).await;
        assert_eq!(status, 200, "{answer}");
        answer["jobs"].as_array().unwrap().clone()
    }

    fn key(&self, owner: &str, scopes: &str) -> String {
        let ran =
            self.server.run(self.folder.path(), &["key", "create", "--owner", owner, "--scopes", scopes]);
        if ran.code == 0 { ran.out.trim().to_owned() } else { self.local_key(owner, scopes) }
    }

    fn local_key(&self, owner: &str, scopes: &str) -> String {
        let made =
            super::binary::run(self.folder.path(), &["key", "create", "--owner", owner, "--scopes", scopes]);
        made.ok().trim().to_owned()
    }
}

fn handler(kind: &str, url: &str, more: &str) -> String {
    format!("[handler.\"{kind}\"]\nurl = \"{url}\"\n{more}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_accepts_a_job_ends_it_later_by_the_address_it_was_given() {
    let mut service = Service::start().await;
    let site = Site::new(&handler("work", &service.url, "body = \"raw\""));
    let id = site.submit("work", json!({ "contextId": 7 })).await;
    let asked = service.asked().await;
    assert_eq!(&asked.body[..], b"{\"contextId\":7}");
    let names = |job: &Value| {
        let events = job["timeline"].as_array().unwrap().iter();
        events.map(|event| event["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until("it is handed over", || async { names(&site.job(&id).await).contains(&"handed-over".to_owned()) })
        .await;
    let stats = site.get("/v1/stats").await;
    assert_eq!(stats["workers"]["busy"], 0, "it costs no place: {stats}");

    let callback = asked.header("mapae-callback").to_owned();
    let progress = callback.replace("/complete?", "/progress?");
    let told = site.post(None, &progress, json!({ "stage": "embed", "done": 1, "of": 2 })).await;
    assert_eq!((told.0, &told.1["state"]), (200, &json!("running")), "{told:?}");
    assert_eq!(site.job(&id).await["progress"]["stage"], "embed");

    // A token that is none changes nothing, and tells nothing of the job.
    let (address, token) = callback.split_once("?token=").unwrap();
    let wrong = format!("{address}?token={}", uuid::Uuid::new_v4());
    let refused = site.post(None, &wrong, json!({ "result": 1 })).await;
    assert_eq!((refused.0, &refused.1["code"], refused.1.get("detail")), (409, &json!("lease-lost"), None));
    assert_eq!(site.post(None, address, json!({ "token": token })).await.0, 401);
    let other = site.key("other", "jobs:work");
    let foreign = site.post(Some(&other), address, json!({ "token": token })).await;
    assert_eq!((foreign.0, &foreign.1["code"]), (404, &json!("job-not-found")));
    assert_eq!(site.job(&id).await["state"], "running");

    let done = json!({ "result": { "keywords": ["a"] } });
    assert_eq!(site.post(None, &callback, done.clone()).await.1["state"], "succeeded");
    assert_eq!(
        site.post(None, &callback, done).await,
        (200, json!({ "state": "succeeded", "cancel_requested": false }))
    );
    let fail = callback.replace("/complete?", "/fail?");
    let late = site.post(None, &fail, json!({ "code": "changed-my-mind" })).await;
    assert_eq!((late.0, &late.1["code"]), (409, &json!("lease-lost")));
    assert_eq!(site.get(&format!("/v1/jobs/{id}/result")).await, json!({ "keywords": ["a"] }));
    assert_eq!(names(&site.job(&id).await), ["accepted", "claimed", "handed-over", "succeeded"]);

    let deleted = site.http.delete(format!("{}/v1/jobs/{id}", site.server.url)).bearer_auth(&site.server.key);
    assert_eq!(deleted.send().await.unwrap().status(), 204);
    let gone = site.post(None, &callback, json!({})).await;
    assert_eq!((gone.0, &gone.1["code"]), (409, &json!("lease-lost")));
    let gone = site.admin(address, json!({ "token": token })).await;
    assert_eq!((gone.0, &gone.1["code"]), (404, &json!("job-not-found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_tells_no_end_costs_an_attempt_and_its_late_word_counts_for_nothing() {
    let mut service = Service::start().await;
    let more = "deadline = \"1s\"\nretry = { attempts = 2, backoff = \"10ms..20ms\" }";
    let site = Site::new(&handler("work", &service.url, more));
    let id = site.submit("work", json!({})).await;
    let first = service.asked().await;
    let second = service.asked().await;
    assert_eq!((first.header("mapae-attempt"), second.header("mapae-attempt")), ("1", "2"));
    assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"));
    let late = site.post(None, first.header("mapae-callback"), json!({ "result": 1 })).await;
    assert_eq!((late.0, &late.1["code"]), (409, &json!("lease-lost")), "while the second is on its way");
    let job = site.job_when(&id, "failed").await;
    let failure = &job["failure"];
    assert_eq!((&failure["code"], &failure["class"]), (&json!("completion-overdue"), &json!("timeout")));
    let later = site.post(None, second.header("mapae-callback"), json!({ "result": 1 })).await;
    assert_eq!(later.0, 409);
    assert_eq!(site.job(&id).await["state"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_does_not_run_again_what_a_service_has() {
    let mut service = Service::start().await;
    let configuration = handler("work", &service.url, "retry = { attempts = 3, backoff = \"10ms..20ms\" }");
    let site = Site::new(&configuration);
    let mut ids = Vec::new();
    let mut callbacks = Vec::new();
    for _ in 0..8 {
        ids.push(site.submit("work", json!({})).await);
        callbacks.push(service.asked().await.header("mapae-callback").to_owned());
    }
    for id in &ids {
        until("it is handed over", || async {
            site.job(id).await["timeline"].as_array().unwrap().len() == 3
        })
        .await;
    }
    let folder = site.folder.clone();
    drop(site); // killed
    let site = Site::on(folder, &configuration);
    let last = site.submit("work", json!({})).await;
    assert_eq!(service.asked().await.header("mapae-job"), last, "nothing else is asked for again");
    for callback in callbacks {
        let path = callback.split_once("/v1").unwrap().1;
        assert_eq!(site.post(None, &format!("/v1{path}"), json!({})).await.1["state"], "succeeded");
    }
    for id in ids {
        let job = site.job(&id).await;
        assert_eq!((&job["state"], &job["attempt"]), (&json!("succeeded"), &json!(1)));
    }
    assert!(service.asked.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_status_means_what_the_table_says_and_a_redirect_is_not_followed() {
    let mut service = Service::start().await;
    let more = "accepted = []\nretry = { attempts = 1, backoff = \"10ms..20ms\" }";
    let site = Site::new(&handler("work", &service.url, more));
    for (status, body, state, code) in [
        (200, "{\"a\":1}", "succeeded", None),
        (201, "", "succeeded", None),
        (200, "<html>", "failed", Some("service-answer-not-json")),
        (202, "", "failed", Some("service-answered-later")),
        (307, "", "failed", Some("service-refused")),
        (400, "", "failed", Some("service-refused")),
        (409, "{\"code\":\"stale\"}", "stale", Some("service-stale")),
        (409, "{\"type\":\"https://x/problems/stale\"}", "stale", Some("service-stale")),
        (409, "{}", "failed", Some("service-refused")),
        (410, "", "stale", Some("service-gone")),
        (429, "", "failed", Some("service-busy")),
        (500, "", "failed", Some("service-failed")),
    ] {
        service.answer(status, body);
        let id = site.submit("work", json!({})).await;
        assert_eq!(service.asked().await.path, "/work");
        let job = site.job_when(&id, state).await;
        assert_eq!(job["failure"]["code"].as_str(), code, "{status} {body}");
    }
    assert!(service.asked.try_recv().is_err(), "each was asked once");
}

/// By a program that knows nothing of ours.
fn hmac_by_openssl(secret: &[u8], text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let key: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-mac", "HMAC", "-macopt", &format!("hexkey:{key}"), "-binary"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl is there");
    openssl.stdin.take().unwrap().write_all(text).unwrap();
    let made = openssl.wait_with_output().unwrap();
    assert!(made.status.success());
    made.stdout
}

const SECRETS: [&str; 2] = ["C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"];

fn signatures(id: &str, at: &str, body: &[u8]) -> Vec<String> {
    use base64::Engine;
    let base64 = base64::engine::general_purpose::STANDARD;
    let text = [format!("{id}.{at}.").as_bytes(), body].concat();
    SECRETS
        .iter()
        .map(|secret| hmac_by_openssl(&base64.decode(secret).unwrap(), &text))
        .map(|made| format!("v1,{}", base64.encode(made)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_signed_with_every_secret_as_another_program_would_sign_them() {
    let mut service = Service::start().await;
    let secret = format!("secret = [\"whsec_{}\", \"whsec_{}\"]", SECRETS[0], SECRETS[1]);
    let site = Site::new(&handler("work", &service.url, &secret));
    service.answer(503, "");
    site.submit("work", json!({ "text": "한글 \"quoted\"" })).await;
    let first = service.asked().await;
    let (id, at) = (first.header("webhook-id"), first.header("webhook-timestamp"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(at.parse().unwrap()) < 60, "{at}");
    assert_eq!(first.header("webhook-signature"), signatures(id, at, &first.body).join(" "));
    assert_ne!(first.header("webhook-signature"), signatures(id, at, b"tampered").join(" "));
    for header in ["mapae-job", "mapae-deadline", "idempotency-key"] {
        assert!(!first.header(header).is_empty(), "{header}");
    }
    let again = service.asked().await;
    assert_ne!(again.header("webhook-id"), id, "each call has its own id");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_in_the_services_own_words_ends_the_job_of_its_key() {
    let mut service = Service::start().await;
    let more = format!(
        "body = \"raw\"\nsecret = \"whsec_{}\"\nretry = {{ attempts = 1, backoff = \"10ms..20ms\" }}\n\
         [handler.\"context.process\".complete]\nkey = \"params.contextId\"\n\
         callback = {{ path = \"/hooks/context-done\", key = \"$.contextId\", status = \"$.status\", \
         done = [\"DONE\"], failed = [\"FAILED\"] }}",
        SECRETS[0]
    );
    let site = Site::new(&handler("context.process", &service.url, &more));
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(site.submit("context.process", json!({ "contextId": number })).await);
        service.asked().await;
    }
    let hook = "/hooks/context-done";
    let body =
        |number: u64, status: &str| json!({ "contextId": number, "status": status, "keywords": ["k"] });

    // Nobody is believed without a key or a signature.
    assert_eq!(site.post(None, hook, body(0, "DONE")).await.0, 401);
    let reader = site.key("default", "jobs:read");
    assert_eq!(site.post(Some(&reader), hook, body(0, "DONE")).await.0, 403);
    let text = body(0, "DONE").to_string();
    let at =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs().to_string();
    let send = async |signature: &str| {
        let request = site.http.post(format!("{}{hook}", site.server.url)).header("webhook-id", "m-1");
        let request = request.header("webhook-timestamp", &at).header("webhook-signature", signature);
        request.header("content-type", "application/json").body(text.clone()).send().await.unwrap()
    };
    let signed = signatures("m-1", &at, text.as_bytes());
    assert_eq!(send(&signed[1]).await.status(), 401, "the secret of another");
    assert_eq!(site.job(&ids[0]).await["state"], "running");
    assert_eq!(send(&signed[0]).await.status(), 200);
    assert_eq!(site.job(&ids[0]).await["state"], "succeeded");
    assert_eq!(site.get(&format!("/v1/jobs/{}/result", ids[0])).await["keywords"], json!(["k"]));
    let twice = send(&signed[0]).await;
    assert_eq!(twice.status(), 409, "told twice it finds no job that waits");

    // A key ends its owner's jobs.
    let worker = site.key("default", "jobs:work");
    let other = site.key("other", "jobs:work");
    assert_eq!(site.post(Some(&other), hook, body(1, "DONE")).await.0, 409);
    assert_eq!(
        site.post(Some(&worker), hook, body(1, "RUNNING")).await,
        (200, json!({ "job": null, "state": null }))
    );
    assert_eq!(site.job(&ids[1]).await["state"], "running");
    assert_eq!(site.post(Some(&worker), hook, body(1, "DONE")).await.1["job"], json!(ids[1]));
    assert_eq!(site.post(Some(&worker), hook, body(2, "FAILED")).await.1["state"], "failed");
    assert_eq!(site.job(&ids[2]).await["failure"]["code"], "service-told-failure");
    assert_eq!(site.post(Some(&worker), hook, json!({ "status": "DONE" })).await.0, 422);
    assert_eq!(site.post(Some(&worker), "/hooks/other", body(3, "DONE")).await.0, 404);
    assert_eq!(site.job(&ids[3]).await["state"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_tells_nobody_is_asked() {
    let mut service = Service::start().await;
    let base = service.url.strip_suffix("/work").unwrap();
    let more = format!(
        "retry = {{ attempts = 1, backoff = \"10ms..20ms\" }}\n[handler.work.complete]\nkey = \"params.id\"\n\
         probe = {{ url = \"{base}/state/{{key}}\", status = \"$.state\", every = \"100ms\" }}"
    );
    for (status, body) in [
        (202, ""),
        (404, ""),
        (200, "{\"state\":\"RUNNING\"}"),
        (302, ""),
        (200, "{\"state\":\"DONE\",\"n\":1}"),
    ] {
        service.answer(status, body);
    }
    let site = Site::new(&handler("work", &service.url, &more));
    let id = site.submit("work", json!({ "id": "a/b c" })).await;
    site.job_when(&id, "succeeded").await;
    assert_eq!(site.get(&format!("/v1/jobs/{id}/result")).await["n"], 1);
    assert_eq!(service.asked().await.path, "/work");
    for _ in 0..4 {
        assert_eq!(service.asked().await.path, "/state/a%2Fb%20c");
    }
    service.answer(202, "");
    service.answer(200, "{\"state\":\"FAILED\"}");
    let id = site.submit("work", json!({ "id": 8 })).await;
    assert_eq!(site.job_when(&id, "failed").await["failure"]["code"], "service-told-failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_down_is_left_alone_and_jobs_wait_without_using_attempts() {
    let mut service = Service::start().await;
    let more = "concurrent = 1\nretry = { attempts = 1, backoff = \"10ms..20ms\" }";
    let site = Site::new(&handler("work", &service.url, more));
    let mut failed = Vec::new();
    for _ in 0..5 {
        service.answer(500, "");
        let id = site.submit("work", json!({})).await;
        site.job_when(&id, "failed").await;
        service.asked().await;
        failed.push(id);
    }
    // It is open now, for five seconds at first.
    service.answer(200, "{}");
    let waiting = site.submit("work", json!({})).await;
    until("it is told why it waits", || async {
        let job = site.job(&waiting).await;
        let told = job["why_waiting"].as_str().unwrap_or_default().starts_with("Its service is left alone: ");
        told || job["state"] == "succeeded"
    })
    .await;
    let job = site.job_when(&waiting, "succeeded").await;
    assert_eq!(job["attempt"], 1, "{job}");
    service.asked().await;
    assert!(service.asked.try_recv().is_err(), "nobody was asked meanwhile");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_its_call_takes_no_slot_and_says_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = format!("http://{}/work", listener.local_addr().unwrap());
    let (called, answers) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let held = (called.clone(), answers.clone());
    let router = Router::new().fallback(async move || {
        held.0.add_permits(1);
        held.1.acquire().await.unwrap().forget();
        StatusCode::NO_CONTENT
    });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let quick = Service::start().await;
    quick.answer(200, "{}");
    let kinds = handler("slow", &slow, "concurrent = 1") + &handler("quick", &quick.url, "");
    let site = Site::new(&format!("{kinds}[worker]\nslots = 2\n"));
    let first = site.submit("slow", json!({})).await;
    called.acquire().await.unwrap().forget();
    let second = site.submit("slow", json!({})).await;
    let other = site.submit("quick", json!({})).await;
    site.job_when(&other, "succeeded").await;
    until("it says why it waits", || async {
        let job = site.job(&second).await;
        assert_eq!(job["state"], "pending", "{job}");
        job["why_waiting"] == "All calls that may be made to its service at a time are being made."
    })
    .await;
    let resources = site.get("/v1/resources").await;
    let call = resources["items"].as_array().unwrap().iter().find(|item| item["name"] == "handler.slow");
    assert_eq!(call.map(|call| &call["limit"]), Some(&json!(1)), "{resources}");
    answers.add_permits(2);
    for id in [first, second] {
        site.job_when(&id, "succeeded").await;
    }
}
