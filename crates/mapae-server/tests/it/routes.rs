//! What holds for every call of the API, whatever it does: tried on each, taken from the document.

use axum::body::Body;
use axum::http::Method;
use mapae_server::api;
use serde_json::{Value, json};

use super::site::{Answer, Site, request};

/// Every call below `/v1` of the document: method, path.
fn calls() -> Vec<(Method, String)> {
    let document = serde_json::to_value(api::openapi()).unwrap();
    let mut calls = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().filter(|_| path.starts_with("/v1/")) {
            calls.push((method.to_uppercase().parse().unwrap(), path.clone()));
        }
    }
    assert!(calls.len() >= 18, "{calls:?}");
    calls
}

/// A call that is right but for who makes it.
async fn call(site: &Site, key: &str, method: &Method, path: &str, id: &str) -> Answer {
    let path = path
        .replace("{id}", id)
        .replace("{table}", "1.csv")
        .replace("{lane}", "work")
        .replace("{name}", "nightly")
        .replace("{kind}", "work");
    let body = match (method, path.as_str()) {
        (&Method::POST, "/v1/jobs") => json!({ "kind": "work" }).to_string(),
        (&Method::POST, "/v1/dead/assign") => json!({ "ids": [id], "assignee": "ops" }).to_string(),
        (&Method::POST, "/v1/dead/redrive" | "/v1/dead/resolve") => json!({ "ids": [id] }).to_string(),
        (&Method::POST, "/v1/documents") => "a,b\n".to_owned(),
        (&Method::POST, "/v1/leases") => json!({ "worker": "w", "kinds": ["work.other"] }).to_string(),
        (&Method::POST, "/v1/leases/batch") => json!({ "items": [{ "job": id, "do": "fail" }] }).to_string(),
        (&Method::POST, path) if path.starts_with("/v1/leases/") => {
            json!({ "token": uuid::Uuid::nil(), "stage": "s" }).to_string()
        }
        _ => String::new(),
    };
    let request = request(method.clone(), key, &path).header("content-type", "application/json");
    site.answer(request.body(Body::from(body)).unwrap()).await
}

const ALL: [&str; 5] = ["jobs:write", "jobs:read", "jobs:work", "files:read", "dead:write"];

#[tokio::test]
async fn without_a_key_or_with_a_wrong_one_nothing_is_answered() {
    let site = Site::new().await;
    let key = site.admin().await;
    let id = site.submit(&key).await.to_string();
    let other = if key.ends_with('0') { "1" } else { "0" };
    let wrong = format!("{}{other}", &key[..key.len() - 1]);
    for (method, path) in calls() {
        for key in ["", "nonsense", &wrong, &"x".repeat(100_000)] {
            let answer = call(&site, key, &method, &path, &id).await;
            assert_eq!(
                (answer.status, answer.problem().as_str()),
                (401, "unauthenticated"),
                "{method} {path}"
            );
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
    }
}

#[tokio::test]
async fn a_key_without_the_right_scope_is_refused_and_told_which() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["nothing:useful"]).await;
    let id = site.submit(&site.admin().await).await.to_string();
    for (method, path) in calls() {
        let answer = call(&site, &key, &method, &path, &id).await;
        assert_eq!((answer.status, answer.problem().as_str()), (403, "forbidden"), "{method} {path}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(api::auth::SCOPES.iter().any(|scope| detail.contains(scope)), "{detail}");
    }
}

#[tokio::test]
async fn each_scope_opens_its_calls_and_no_others() {
    let site = Site::new().await;
    let admin = site.admin().await;
    let id = site.submit(&admin).await.to_string();
    for scope in ALL {
        let key = site.key(None, &[scope]).await;
        for (method, path) in calls() {
            let opened = match (method.as_str(), path.as_str()) {
                (_, "/v1/workers" | "/v1/receivers" | "/v1/events/replay")
                | (_, "/v1/lanes/{lane}/pause" | "/v1/lanes/{lane}/resume") => false,
                ("POST", path) if path.starts_with("/v1/schedules/") || path.starts_with("/v1/kinds/") => {
                    false
                }
                (_, path) if path.contains("/result") => ["files:read", "jobs:read"].contains(&scope),
                (_, "/v1/callbacks/secrets") => scope == "jobs:write",
                ("GET", _) => scope == "jobs:read",
                (_, "/v1/jobs/{id}/retry") => ["dead:write", "jobs:write"].contains(&scope),
                (_, "/v1/events/resend" | "/v1/events/resolve") => scope == "dead:write",
                (_, path) if path.starts_with("/v1/dead/") => scope == "dead:write",
                (_, path) if path.starts_with("/v1/leases") => scope == "jobs:work",
                _ => scope == "jobs:write",
            };
            // A stream would go on: whether it is refused shows in its head.
            let answer = match path.ends_with("/events") {
                true => {
                    let path = path.replace("{id}", &id);
                    let request = request(method.clone(), &key, &path).body(Body::empty()).unwrap();
                    site.send(request).await.status().as_u16()
                }
                false => {
                    call(&site, &key, &method, &path, &site.submit(&admin).await.to_string()).await.status
                }
            };
            assert_eq!(answer != 403, opened, "{scope}: {method} {path} answered {answer}");
        }
    }
}

#[tokio::test]
async fn another_owners_job_answers_exactly_like_one_that_is_not_there() {
    let site = Site::new().await;
    let acme = site.key(Some("acme"), &ALL).await;
    // Every right there is, and bound to another owner.
    let other = site.key(Some("other"), &["admin"]).await;
    let running = site.submit(&acme).await.to_string();
    site.claim().await;
    let succeeded = site.submit(&acme).await.to_string();
    site.succeed(json!({ "text": "secret" })).await;
    let failed = site.submit(&acme).await.to_string();
    site.fail("broken").await;
    let pending = site.submit(&acme).await.to_string();
    let missing = uuid::Uuid::now_v7().to_string();

    let mut tried = 0;
    for (method, path) in calls() {
        if !path.contains("{id}") && !path.starts_with("/v1/dead/") {
            continue;
        }
        let expected = call(&site, &other, &method, &path, &missing).await;
        for id in [&running, &succeeded, &failed, &pending] {
            let answer = call(&site, &other, &method, &path, id).await;
            // The id that was asked for is the only thing that may differ.
            let text = |answer: &Answer, id: &str| String::from_utf8_lossy(&answer.bytes).replace(id, "ID");
            assert_eq!(answer.status, expected.status, "{method} {path}");
            assert_eq!(text(&answer, id), text(&expected, &missing), "{method} {path}");
            assert_eq!(answer.headers, {
                let mut headers = expected.headers.clone();
                if let Some(length) = answer.headers.get("content-length") {
                    headers.insert("content-length", length.clone());
                }
                headers
            });
            tried += 1;
        }
    }
    assert!(tried >= 40);
    let states: Vec<Value> = futures_states(&site, &acme, [&running, &succeeded, &failed, &pending]).await;
    assert_eq!(states, ["running", "succeeded", "failed", "pending"], "nothing was done to them either");
}

async fn futures_states(site: &Site, key: &str, ids: [&String; 4]) -> Vec<Value> {
    let mut states = Vec::new();
    for id in ids {
        states.push(site.get(key, &format!("/v1/jobs/{id}")).await.json()["state"].clone());
    }
    states
}

#[tokio::test]
async fn ids_that_are_none_answer_like_ones_that_are_not_there() {
    let site = Site::new().await;
    let key = site.admin().await;
    let missing = call(&site, &key, &Method::GET, "/v1/jobs/{id}", &uuid::Uuid::now_v7().to_string()).await;
    assert_eq!((missing.status, missing.problem().as_str()), (404, "job-not-found"));
    for id in
        ["x", "..%2f..%2fetc%2fpasswd", "%2e%2e", "%00", "%ff", "0", &"9".repeat(500), "1'%20or%20'1'='1"]
    {
        let answer = call(&site, &key, &Method::GET, "/v1/jobs/{id}", id).await;
        assert_eq!((answer.status, &answer.bytes), (404, &missing.bytes), "{id}");
    }
}

#[test]
fn what_a_holder_tells_needs_no_field_that_its_call_does_not_read() {
    let document = serde_json::to_value(api::openapi()).unwrap();
    let body = |path: &str| {
        let content = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
        let name = content["schema"]["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        document["components"]["schemas"][name].clone()
    };
    for call in ["complete", "checkpoint", "fail", "progress"] {
        let schema = body(&format!("/v1/leases/{{id}}/{call}"));
        assert_eq!(schema["required"], Value::Null, "{call}");
        assert!(schema["properties"]["result"].is_object(), "{call}: another body under its name: {schema}");
    }
}

#[tokio::test]
async fn the_document_of_the_api_is_the_one_checked_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let current = api::openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("MAPAE_WRITE_OPENAPI").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == current,
        "openapi.json is not what the code says: run the tests with MAPAE_WRITE_OPENAPI=1 and look at the difference"
    );
    assert!(current.contains("\"openapi\": \"3.1"), "{}", &current[..60]);
}
