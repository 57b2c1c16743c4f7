//! Batches over HTTP and from the command line.

use axum::body::Body;
use axum::http::Method;
use mapae::job::State;
use mapae::store::contract::Scope;
use serde_json::{Value, json};

use super::binary::{Server, run};
use super::site::{Site, request};

fn parts(many: usize) -> Value {
    (0..many).map(|n| json!({ "kind": "work", "params": { "n": n } })).collect()
}

impl Site {
    /// Cancels what has not ended of a batch, and looks at batches as a keeper does.
    async fn end_parts(&self, batch: &str) -> usize {
        let members =
            self.runtime.store.members(&Scope::All, batch.parse().unwrap(), None, 1_000).await.unwrap();
        for member in members.iter().filter(|member| member.state.is_none()) {
            assert_eq!(self.runtime.store.cancel(&Scope::All, member.job).await.unwrap(), State::Cancelled);
        }
        self.runtime.store.wake(10).await.unwrap()
    }
}

#[tokio::test]
async fn a_batch_waits_for_its_parts_and_says_how_far_it_has_come() {
    let site = Site::new().await;
    let (acme, other) = (
        site.key(Some("acme"), &["jobs:write", "jobs:read"]).await,
        site.key(Some("b"), &["jobs:read"]).await,
    );
    let answer = site.post(&acme, "/v1/batches", json!({ "jobs": parts(3) })).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let whole = answer.json();
    let id = whole["id"].as_str().unwrap();
    assert_eq!(
        (&whole["kind"], &whole["state"], &whole["phase"]),
        (&json!("batch"), &json!("pending"), &json!("awaiting"))
    );
    assert_eq!(whole["progress"], json!({ "stage": "batch", "done": 0, "of": 3 }));
    assert_eq!(whole["why_waiting"], "It waits for its parts: 0 of 3 have ended.");

    let listed = site.get(&acme, &format!("/v1/batches/{id}/jobs?limit=2")).await;
    assert!(listed.header("link").contains("cursor=1"), "{listed:?}");
    let listed = listed.json();
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["cursor"]), (2, &json!(1)));
    let part = listed["items"][1]["id"].as_str().unwrap();
    let rest = site.get(&acme, &format!("/v1/batches/{id}/jobs?limit=2&cursor=1")).await.json();
    assert_eq!((&rest["items"][0]["number"], &rest["cursor"]), (&json!(2), &Value::Null));
    let shown = site.get(&acme, &format!("/v1/jobs/{part}")).await.json();
    assert_eq!((&shown["batch"], &shown["parent"], &shown["params"]), (&json!(id), &json!(id), &Value::Null));

    site.post(&acme, &format!("/v1/jobs/{part}/cancel"), json!({})).await;
    let batch = site.get(&acme, &format!("/v1/batches/{id}")).await.json();
    assert_eq!(
        (&batch["parts"], &batch["ended"], &batch["cancelled"], &batch["sealed"]),
        (&json!(3), &json!(1), &json!(1), &json!(true))
    );
    assert_eq!(site.runtime.store.wake(10).await.unwrap(), 0);
    assert_eq!(site.end_parts(id).await, 1);
    let whole = site.get(&acme, &format!("/v1/jobs/{id}")).await.json();
    assert_eq!((&whole["phase"], &whole["progress"]), (&json!("ready"), &Value::Null));
    assert_eq!(whole["timeline"][1]["event"], "batch-ended");

    // A foreign batch answers like a missing one.
    for key in [&other, &acme] {
        let id = if *key == other { id } else { part };
        for path in [format!("/v1/batches/{id}"), format!("/v1/batches/{id}/jobs")] {
            let refused = site.get(key, &path).await;
            assert_eq!((refused.status, refused.problem().as_str()), (404, "batch-not-found"), "{path}");
        }
    }
}

#[tokio::test]
async fn an_open_batch_takes_more_until_it_is_sealed() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let whole = json!({ "kind": "report", "params": { "of": "march" }, "priority": 2 });
    let body = json!({ "jobs": parts(1), "whole": whole, "open": true });
    let submit = || {
        let request = request(Method::POST, &key, "/v1/batches").header("content-type", "application/json");
        site.answer(request.header("idempotency-key", "march").body(Body::from(body.to_string())).unwrap())
    };
    let first = submit().await.json();
    let id = first["id"].as_str().unwrap();
    assert_eq!((&first["kind"], &first["priority"]), (&json!("report"), &json!(2)));
    assert_eq!(submit().await.json()["id"], id, "sent twice, one batch");
    assert_eq!(site.end_parts(id).await, 0, "it is open");
    let why = site.get(&key, &format!("/v1/jobs/{id}")).await.json()["why_waiting"].clone();
    assert_eq!(why, "It waits for its parts: 1 of 1 have ended, and it takes more until it is sealed.");
    let added = site.post(&key, &format!("/v1/batches/{id}/jobs"), json!({ "jobs": parts(2) })).await;
    assert_eq!((added.status, &added.json()["parts"]), (200, &json!(3)));
    let sealed = site.post(&key, &format!("/v1/batches/{id}/seal"), json!({})).await;
    assert_eq!((sealed.status, &sealed.json()["sealed"]), (200, &json!(true)));
    let late = site.post(&key, &format!("/v1/batches/{id}/jobs"), json!({ "jobs": parts(1) })).await;
    assert_eq!((late.status, late.problem().as_str()), (409, "batch-closed"));
    assert_eq!(site.end_parts(id).await, 1);
}

#[tokio::test]
async fn parts_that_are_sent_twice_under_one_key_are_there_once() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let open = site.post(&key, "/v1/batches", json!({ "jobs": [], "open": true })).await.json();
    let id = open["id"].as_str().unwrap();
    let path = format!("/v1/batches/{id}/jobs");
    let add = async |jobs: Value, under: &str| {
        let request = request(Method::POST, &key, &path).header("content-type", "application/json");
        let body = Body::from(json!({ "jobs": jobs }).to_string());
        site.answer(request.header("idempotency-key", under).body(body).unwrap()).await
    };
    assert_eq!(add(parts(3), "a").await.json()["parts"], 3);
    assert_eq!(add(parts(3), "b").await.json()["parts"], 6, "another key, other parts");
    let reused = add(parts(2), "a").await;
    assert_eq!((reused.status, reused.problem().as_str()), (409, "idempotency-key-reused"));
    let both = futures_util::future::join(add(parts(9), "c"), add(parts(9), "c")).await;
    assert_eq!((both.0.json()["parts"].clone(), both.1.json()["parts"].clone()), (json!(15), json!(15)));
    site.post(&key, &format!("/v1/batches/{id}/seal"), json!({})).await;
    let again = add(parts(3), "a").await;
    assert_eq!((again.status, &again.json()["parts"]), (200, &json!(15)), "although it is sealed by now");
    let listed = site.get(&key, &path).await.json();
    let given: Vec<i64> = [0..3, 0..3, 0..9].into_iter().flatten().collect();
    for (item, n) in listed["items"].as_array().unwrap().iter().zip(&given) {
        let job = site.runtime.store.job(&Scope::All, item["id"].as_str().unwrap().parse().unwrap()).await;
        assert_eq!(job.unwrap().unwrap().params["n"], *n, "in their order");
    }
    assert_eq!(listed["items"].as_array().unwrap().len(), given.len());
}

#[tokio::test]
async fn a_batch_that_cannot_be_is_refused_whole() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let part = |more: Value| {
        let mut part = json!({ "kind": "work" });
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "jobs": [{ "kind": "work" }, part] })
    };
    for body in [
        part(json!({ "on": { "succeeded": { "kind": "work" } } })),
        part(json!({ "unique": { "key": "k" } })),
        part(json!({ "kind": "no kind" })),
        json!({ "jobs": parts(1_001) }),
        json!({ "jobs": parts(1), "whole": { "kind": "x", "run_at": "2030-01-01T00:00:00Z" } }),
        json!({ "jobs": "all" }),
        json!({}),
    ] {
        let refused = site.post(&key, "/v1/batches", body).await;
        assert_eq!((refused.status, refused.problem().as_str()), (422, "body-invalid"));
    }
    assert_eq!(site.get(&key, "/v1/jobs").await.json()["items"], json!([]), "nothing was made");
    let deep = (0..99).fold(json!(1), |value, _| json!([value]));
    let refused = site.post(&key, "/v1/batches", part(json!({ "params": { "deep": deep } }))).await;
    assert_eq!((refused.status, refused.problem().as_str()), (400, "json-too-deep"));
    assert_eq!(site.get(&key, "/v1/jobs").await.json()["items"], json!([]), "nothing was made");
}

#[test]
fn many_jobs_of_a_file_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let line = |text: &str| json!({ "kind": "context.process", "params": { "text": text } }).to_string();
    std::fs::write(path.join("jobs.jsonl"), format!("{}\n\n{}\n", line("사과와 배"), line("apples")))
        .unwrap();
    let server = Server::dev(path, &[]);
    let out = server.run(path, &["batch", "submit", "jobs.jsonl", "--wait", "--output", "json"]).ok();
    let whole: Value = serde_json::from_str(&out).unwrap();
    let id = whole["id"].as_str().unwrap();
    assert_eq!(whole["state"], "succeeded", "{whole}");
    let shown: Value =
        serde_json::from_str(&server.run(path, &["batch", "show", id, "--output", "json"]).ok()).unwrap();
    assert_eq!((&shown["parts"], &shown["succeeded"]), (&json!(2), &json!(2)));
    let jobs = server.run(path, &["batch", "jobs", id, "--output", "id"]).ok();
    assert_eq!(jobs.lines().count(), 2);
    let many: String = (0..2_500).map(|n| line(&format!("text {n}")) + "\n").collect();
    std::fs::write(path.join("many.jsonl"), many).unwrap();
    let submit = || server.run(path, &["batch", "submit", "many.jsonl", "--key", "k", "--output", "id"]).ok();
    let id = submit();
    assert_eq!(submit(), id, "the same again");
    let shown: Value =
        serde_json::from_str(&server.run(path, &["batch", "show", id.trim(), "--output", "json"]).ok())
            .unwrap();
    assert_eq!((&shown["parts"], &shown["sealed"]), (&json!(2_500), &json!(true)));
    std::fs::write(path.join("bad.jsonl"), "{").unwrap();
    assert_eq!(run(path, &["batch", "submit", "bad.jsonl"]).trouble(), "jobs-invalid");
    assert_eq!(server.stop(), 0);
}
