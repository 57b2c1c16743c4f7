//! Events told outside: to receivers of the configuration and to callbacks of jobs, over HTTP, signed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use mapae::handler::signature::Secrets;
use mapae::keeper::KeeperHandle;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::site::{PATIENCE, Site, config, until};

const ALL: [&str; 4] = ["jobs:write", "jobs:read", "files:read", "dead:write"];
const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PAIR: &str = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// What a receiver got.
struct Told {
    headers: HeaderMap,
    body: Bytes,
}

impl Told {
    fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    fn proves(&self, secrets: &Secrets) -> bool {
        let at = self.header("webhook-timestamp").parse().unwrap();
        secrets.prove(self.header("webhook-id"), at, self.header("webhook-signature"), &self.body, at)
    }
}

/// Listens for events, and answers 200 unless told otherwise.
struct Receiver {
    url: String,
    told: mpsc::UnboundedReceiver<Told>,
    answers: Arc<Mutex<VecDeque<u16>>>,
}

type Ears = (mpsc::UnboundedSender<Told>, Arc<Mutex<VecDeque<u16>>>);

async fn hear(
    State((tell, answers)): State<Ears>,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    let status = {
        let mut answers = answers.lock().unwrap();
        // The last answer goes on.
        if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() }
    };
    let status = StatusCode::from_u16(status.unwrap_or(200)).unwrap();
    if status.is_success() {
        let _ = tell.send(Told { headers, body });
    }
    (status, [(header::LOCATION, "http://127.0.0.1:1/")]).into_response()
}

impl Receiver {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks/mapae", listener.local_addr().unwrap());
        let (tell, told) = mpsc::unbounded_channel();
        let answers = Arc::<Mutex<VecDeque<u16>>>::default();
        let router = Router::new().fallback(hear).with_state((tell, answers.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, told, answers }
    }

    fn answer(&self, statuses: impl IntoIterator<Item = u16>) {
        *self.answers.lock().unwrap() = statuses.into_iter().collect();
    }

    async fn told(&mut self) -> Told {
        tokio::time::timeout(PATIENCE, self.told.recv()).await.expect("it is told").unwrap()
    }

    /// The next events, as job and sequence, with what they are.
    async fn events(&mut self, count: usize) -> Vec<(String, u64, String)> {
        let mut events = Vec::new();
        for _ in 0..count {
            let event = self.told().await.event();
            let text = |name: &str| event[name].as_str().unwrap().to_owned();
            events.push((text("subject"), event["sequence"].as_u64().unwrap(), text("type")));
        }
        events
    }
}

fn keeper(site: &Site, more: &str) -> KeeperHandle {
    site.runtime.start_keeper(&config(&site.folder, more)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_is_told_of_each_job_in_order_signed_and_without_content() {
    let mut receiver = Receiver::start().await;
    let more = format!(
        "[events]\nto = [\"{}\"]\nsecret = [\"{OLD}\", \"{PAIR}\"]\n[http]\nurl = \"https://jobs.example\"",
        receiver.url
    );
    let site = Site::with(&more).await;
    let key = site.key(Some("acme"), &ALL).await;
    let body = json!({ "kind": "work", "params": { "text": "SECRET-CONTENT" } });
    let id = site.post(&key, "/v1/jobs", body).await.json()["id"].as_str().unwrap().to_owned();
    site.succeed(json!({ "answer": "SECRET-RESULT" })).await;
    let keeper = keeper(&site, &more);
    let (mut kinds, both) = (Vec::new(), Secrets::parse([OLD, PAIR]).unwrap());
    for sequence in 1..=3 {
        let told = receiver.told().await;
        let event = told.event();
        assert_eq!(told.header("content-type"), "application/cloudevents+json; charset=utf-8");
        assert_eq!(told.header("webhook-id"), format!("{id}/{sequence}"));
        assert_eq!(
            (
                &event["specversion"],
                &event["id"],
                &event["subject"],
                &event["partitionkey"],
                &event["sequence"]
            ),
            (&json!("1.0"), &json!(format!("{id}/{sequence}")), &json!(id), &json!(id), &json!(sequence))
        );
        assert_eq!(event["data"]["links"]["self"], format!("https://jobs.example/v1/jobs/{id}"));
        // Either secret proves by itself, and nothing else does.
        let signatures: Vec<&str> = told.header("webhook-signature").split(' ').collect();
        assert!(signatures[0].starts_with("v1,") && signatures[1].starts_with("v1a,"), "{signatures:?}");
        for secret in [OLD, PAIR] {
            assert!(told.proves(&Secrets::parse([secret]).unwrap()));
        }
        let mut forged = Told { headers: told.headers.clone(), body: told.body.clone() };
        forged.body = Bytes::from(String::from_utf8(told.body.to_vec()).unwrap().replace("acme", "evil"));
        assert!(told.proves(&both) && !forged.proves(&both));
        assert!(!String::from_utf8_lossy(&told.body).contains("SECRET"));
        kinds.push(event["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds, ["mapae.job.accepted", "mapae.job.claimed", "mapae.job.succeeded"]);
    keeper.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_takes_nothing_delays_no_other_and_is_told_in_order_once_it_does() {
    let (mut good, mut bad, mut some) =
        (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    // A redirect is not followed.
    bad.answer([500, 302, 404]);
    let more = format!(
        "[events]\nto = [\"{}\", \"{}\"]\nbackoff = \"1ms..2ms\"\n\
         [receiver.some]\nurl = \"{}\"\nevents = [\"succeeded\"]\nkinds = [\"wo*\"]",
        good.url, bad.url, some.url
    );
    let site = Site::with(&more).await;
    let key = site.key(Some("acme"), &ALL).await;
    let keepers = [keeper(&site, &more), keeper(&site, &more)];
    let mut jobs = Vec::new();
    for _ in 0..2 {
        jobs.push(site.submit(&key).await.to_string());
        site.succeed(json!(1)).await;
    }
    let of = |events: &[(String, u64, String)], job: &String| -> Vec<u64> {
        events.iter().filter(|(id, ..)| id == job).map(|(_, sequence, _)| *sequence).collect()
    };
    let told = good.events(6).await;
    for job in &jobs {
        assert_eq!(of(&told, job), [1, 2, 3]);
    }
    let ends = some.events(2).await;
    assert!(
        ends.iter().all(|(_, sequence, kind)| *sequence == 3 && kind == "mapae.job.succeeded"),
        "{ends:?}"
    );
    bad.answer([429, 200]);
    let told = bad.events(6).await;
    for job in &jobs {
        assert_eq!(of(&told, job), [1, 2, 3]);
    }
    let admin = site.admin().await;
    until("nothing waits", || async {
        let receivers = site.get(&admin, "/v1/receivers").await.json();
        receivers["items"].as_array().unwrap().iter().all(|one| one["waiting"] == 0 && one["dead"] == 0)
    })
    .await;
    for keeper in keepers {
        keeper.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_whose_password_changes_is_told_what_stood_before_it() {
    let mut receiver = Receiver::start().await;
    let to = |query: &str| format!("[events]\nto = [\"{}{query}\"]", receiver.url);
    let site = Site::with(&to("?key=one")).await;
    let (key, admin) = (site.key(Some("acme"), &ALL).await, site.admin().await);
    let name = |more: &str| config(&site.folder, more).events.receivers[0].clone();
    let (one, two) = (name(&to("?key=one")), name(&to("?key=two")));
    assert_eq!(one.to.name, two.to.name);
    let id = site.submit(&key).await.to_string();
    // As a program of before has it: it called the receiver by all of its address.
    let old = mapae::store::contract::Receiver { name: one.former.clone().unwrap(), ..one.to.clone() };
    assert_eq!(site.runtime.store.spread(&[old], 9).await.unwrap(), 1);
    let metrics = site.get(&admin, "/metrics").await.bytes;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    let line = format!("mapae_events_waiting{{receiver=\"{}\"}} 0", one.to.name);
    assert!(metrics.lines().any(|written| written == line), "{metrics}");
    let keeper = keeper(&site, &to("?key=one"));
    assert_eq!(receiver.events(1).await[0], (id, 1, "mapae.job.accepted".into()));
    keeper.stop().await;
    let receivers = site.get(&admin, "/v1/receivers").await.json();
    assert_eq!(receivers["items"].as_array().unwrap().len(), 1, "{receivers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_is_told_of_its_jobs_end_and_signed_for_its_owner_alone() {
    let mut receiver = Receiver::start().await;
    let more = format!("[callback]\nsecret = \"{OLD}\"\n[outgoing]\nallow = [\"127.0.0.1\"]");
    let site = Site::with(&more).await;
    let (acme, other) = (site.key(Some("acme"), &ALL).await, site.key(Some("other"), &ALL).await);
    let body = json!({ "kind": "work", "callback": { "url": receiver.url } });
    let made = site.post(&acme, "/v1/jobs", body).await;
    assert_eq!(made.status, 202);
    site.succeed(json!(1)).await;
    let chosen = json!({ "kind": "work", "callback": { "url": receiver.url, "events": ["accepted"] } });
    let second = site.post(&acme, "/v1/jobs", chosen).await.json();
    let keeper = keeper(&site, &more);
    let mut told = [receiver.told().await, receiver.told().await];
    told.sort_by_key(|told| told.event()["sequence"].as_u64());
    assert_eq!(
        (&told[0].event()["subject"], &told[0].event()["type"]),
        (&second["id"], &json!("mapae.job.accepted"))
    );
    assert_eq!((&told[1].event()["subject"], &told[1].event()["sequence"]), (&made.json()["id"], &json!(3)));
    let secret = async |key: &str| {
        let answer = site.get(key, "/v1/callbacks/secrets").await.json();
        Secrets::parse([answer["secrets"][0].as_str().unwrap()]).unwrap()
    };
    assert!(told[0].proves(&secret(&acme).await));
    assert!(!told[0].proves(&secret(&other).await), "no owner can sign for another");
    assert!(!told[0].proves(&Secrets::parse([OLD]).unwrap()));
    keeper.stop().await;
}

#[tokio::test]
async fn a_callback_that_may_not_be_called_is_refused_when_it_is_given_and_never_says_why() {
    let site = Site::with(&format!("[callback]\nsecret = \"{OLD}\"")).await;
    let key = site.key(Some("acme"), &ALL).await;
    let mut answers = Vec::new();
    for url in [
        "http://example.com/",
        "https://127.0.0.1/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest/",
        "https://user:pass@example.com/",
        "no address",
    ] {
        let answer = site.post(&key, "/v1/jobs", json!({ "kind": "work", "callback": url })).await;
        assert_eq!((answer.status, answer.problem().as_str()), (422, "callback-refused"), "{url}");
        answers.push(answer.json());
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "the same for each reason");
    for callback in [json!({}), json!({ "url": "https://example.com/", "events": [] }), json!(7)] {
        let answer = site.post(&key, "/v1/jobs", json!({ "kind": "work", "callback": callback })).await;
        assert_eq!((answer.status, answer.problem().as_str()), (422, "body-invalid"), "{callback}");
    }
    // Under the same key another address is another submission.
    let submit = async |url: &str| {
        let request = super::site::request(axum::http::Method::POST, &key, "/v1/jobs")
            .header("content-type", "application/json")
            .header("idempotency-key", "k");
        let body = json!({ "kind": "work", "callback": url }).to_string();
        site.answer(request.body(axum::body::Body::from(body)).unwrap()).await.status
    };
    assert_eq!(submit("https://example.com/a").await, 202);
    assert_eq!(submit("https://example.com/a").await, 202);
    assert_eq!(submit("https://example.com/b").await, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_is_listed_and_sent_again_and_what_happened_is_replayed() {
    let mut receiver = Receiver::start().await;
    receiver.answer([410]);
    let more = format!("[receiver.audit]\nurl = \"{}\"", receiver.url);
    let site = Site::with(&more).await;
    let (key, admin) = (site.key(Some("acme"), &ALL).await, site.admin().await);
    let id = site.submit(&key).await.to_string();
    site.succeed(json!(1)).await;
    let keeper = keeper(&site, &more);
    let dead =
        async |key: &str| site.get(key, "/v1/events/dead").await.json()["items"].as_array().unwrap().clone();
    until("all were given up", || async { dead(&admin).await.len() == 3 }).await;
    let listed = dead(&admin).await;
    for (name, value) in [
        ("receiver", json!("audit")),
        ("job", json!(id)),
        ("sequence", json!(3)),
        ("event", json!("succeeded")),
        ("tries", json!(1)),
        ("code", json!("receiver-answered-410")),
    ] {
        assert_eq!(listed[0][name], value, "{name}");
    }
    // Receivers are the operator's; an owner has its callbacks.
    assert!(dead(&key).await.is_empty());
    let page = site.get(&admin, "/v1/events/dead?limit=2").await.json();
    let rest =
        site.get(&admin, &format!("/v1/events/dead?cursor={}", page["cursor"].as_str().unwrap())).await;
    assert_eq!(rest.json()["items"].as_array().unwrap()[..], listed[2..]);

    receiver.answer([200]);
    let ids: Vec<&Value> = listed.iter().map(|one| &one["id"]).collect();
    let refused = site.post(&key, "/v1/events/resend", json!({ "ids": ids })).await.json();
    assert_eq!((&refused["done"], refused["refused"].as_array().unwrap().len()), (&json!([]), 3));
    let body = json!({ "ids": [listed[0]["id"]] });
    assert_eq!(site.post(&admin, "/v1/events/resolve", body).await.json()["done"], json!([listed[0]["id"]]));
    let sent = site.post(&admin, "/v1/events/resend", json!({ "receiver": "audit" })).await.json();
    assert_eq!(sent["done"].as_array().unwrap().len(), 2);
    let told: Vec<u64> = receiver.events(2).await.into_iter().map(|(_, sequence, _)| sequence).collect();
    assert_eq!(told, [1, 2]);
    assert!(dead(&admin).await.is_empty());

    until("nothing waits", || async {
        site.get(&admin, "/v1/receivers").await.json()["items"][0]["waiting"] == 0
    })
    .await;
    let replay = async |more: Value| {
        let mut body = json!({ "receiver": "audit" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        site.post(&admin, "/v1/events/replay", body).await
    };
    assert_eq!(replay(json!({ "until": "2020-01-01T00:00:00Z" })).await.json()["replayed"], 0);
    let replayed = replay(json!({ "since": "2020-01-01T00:00:00Z", "job": id })).await.json();
    assert_eq!((&replayed["replayed"], &replayed["cursor"]), (&json!(3), &Value::Null));
    let told: Vec<u64> = receiver.events(3).await.into_iter().map(|(_, sequence, _)| sequence).collect();
    assert_eq!(told, [1, 2, 3]);
    assert_eq!(replay(json!({ "receiver": "none" })).await.problem(), "receiver-not-found");
    assert_eq!(site.post(&key, "/v1/events/replay", json!({ "receiver": "audit" })).await.status, 403);
    keeper.stop().await;
}
