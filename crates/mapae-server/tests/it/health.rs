//! Health, figures, metrics: what watches the runtime relies on.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use mapae_document::child::sandbox::Protection;
use mapae_server::api::{self, Api, Watched};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::site::{Site, config, until};

#[tokio::test]
async fn a_server_without_its_database_is_alive_and_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let api = Api::new(Arc::new(config(&folder, "")), CancellationToken::new());
    api.health.trouble("database-unavailable");
    let ask = async |path: &str| {
        let request = Request::builder().uri(path).header("authorization", "Bearer x").body(Body::empty());
        let response = api::router(api.clone()).oneshot(request.unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        (parts.status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap())
    };
    assert_eq!(ask("/livez").await, (200, "alive".to_owned()));
    for path in ["/readyz", "/startupz"] {
        let (status, body) = ask(path).await;
        assert!(status == 503 && body.contains("not-ready"), "{path}: {body}");
        let (_, verbose) = ask(&format!("{path}?verbose")).await;
        assert!(verbose.contains("database: database-unavailable"), "{verbose}");
    }
    let (status, body) = ask("/v1/jobs").await;
    assert!(status == 503 && body.contains("\"starting\""), "{body}");
}

#[tokio::test]
async fn a_server_is_ready_until_it_is_told_to_stop() {
    let site = Site::new().await;
    for (path, word) in [("/livez", "alive"), ("/readyz", "ready"), ("/startupz", "started")] {
        let answer = site.get("", path).await;
        assert_eq!((answer.status, &answer.bytes[..]), (200, word.as_bytes()));
    }
    let verbose = site.get("", "/readyz?verbose").await.json();
    assert_eq!(verbose["checks"][1], json!({ "name": "database", "ok": true }));
    site.stop.cancel();
    let stopping = site.get("", "/readyz?verbose").await;
    assert_eq!((stopping.status, stopping.problem().as_str()), (503, "not-ready"));
    assert!(stopping.json()["detail"].as_str().unwrap().contains("stopping"));
    assert_eq!(site.get("", "/livez").await.status, 200);
}

#[tokio::test]
async fn a_process_that_is_to_work_is_not_ready_before_its_worker_has_joined() {
    let site = Site::new().await;
    site.api.health.expect_worker();
    let early = site.get("", "/readyz?verbose").await;
    assert_eq!((early.status, early.problem().as_str()), (503, "not-ready"));
    assert!(early.json()["detail"].as_str().unwrap().contains("worker"), "{early:?}");
    assert_eq!(site.get("", "/startupz").await.status, 200);
    let config = config(&site.folder, "");
    let worker = site.runtime.start_worker(&config, site.stop.clone()).await.unwrap();
    let lease = config.worker.timing.lease;
    site.api.health.watch(Watched { readiness: worker.readiness(), lease });
    until("it is ready", async || site.get("", "/readyz").await.status == 200).await;
    worker.drain().await;
}

#[tokio::test]
async fn a_kernel_that_protects_less_is_told_of_and_keeps_nothing_from_being_ready() {
    let site = Site::new().await;
    let sandbox = async || {
        let verbose = site.get("", "/readyz?verbose").await;
        assert_eq!(verbose.status, 200);
        verbose.json()["checks"].as_array().unwrap().iter().find(|c| c["name"] == "document-sandbox").cloned()
    };
    assert_eq!(sandbox().await, None, "this process reads no documents");
    let old = Protection { landlock_files: true, landlock_network: false, seccomp: false };
    site.api.health.reads_documents_under(old);
    let degraded = "documents are read without landlock-network, seccomp";
    assert_eq!(
        sandbox().await,
        Some(json!({ "name": "document-sandbox", "ok": true, "degraded": degraded }))
    );
    let metrics = String::from_utf8(site.get("", "/metrics").await.bytes.to_vec()).unwrap();
    for (protection, holds) in [("landlock-files", 1), ("landlock-network", 0), ("seccomp", 0)] {
        let line = format!("mapae_sandbox{{protection=\"{protection}\"}} {holds}");
        assert!(metrics.lines().any(|written| written == line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn figures_have_every_key_from_the_first_moment() {
    let more = "[kind.\"mail.send\"]\nneeds = { ai = 2 }\n[resource]\nai = 8\nmemory = \"4GiB\"";
    let site = Site::with(more).await;
    let key = site.admin().await;
    let stats = site.get(&key, "/v1/stats").await.json();
    assert_eq!(
        stats["jobs"],
        json!({ "pending": 0, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0, "stale": 0 })
    );
    let lanes: Vec<&str> =
        stats["lanes"].as_array().unwrap().iter().map(|lane| lane["lane"].as_str().unwrap()).collect();
    assert_eq!(lanes, ["batch", "context.process", "document.analyze", "mail.send"]);
    assert_eq!(stats["lanes"][0]["oldest_ready_seconds"], 0.0);
    assert_eq!(stats["broker"]["kind"], "embedded");
    assert!(stats["broker"]["depth"].is_null(), "what a broker cannot tell is null");
    assert_eq!(stats["dead"], json!({ "jobs": 0, "oldest_seconds": 0.0, "unassigned": 0 }));
    assert_eq!(stats["workers"], json!({ "alive": 0, "slots": 0, "busy": 0 }));
    let resources = site.get(&key, "/v1/resources").await.json();
    assert_eq!(
        resources["items"][0],
        json!({
            "name": "ai", "scope": "process", "limit": 8, "in_use": null, "rate": null, "shut_until": null,
            "needs": { "mail.send": 2 }, "waiting": []
        })
    );
    assert_eq!(site.get(&key, "/v1/workers").await.json(), json!({ "items": [] }));
}

#[tokio::test]
async fn metrics_count_without_naming_jobs_owners_or_made_up_kinds() {
    let site = Site::with("[kind.work]\nattempts = 1").await;
    let key = site.key(Some("acme-owner"), &["jobs:write"]).await;
    let id = site.submit(&key).await;
    site.fail("broken").await;
    for number in 0..3 {
        site.post(&key, "/v1/jobs", json!({ "kind": format!("made-up-{number}") })).await;
    }
    let answer = site.get("", "/metrics").await;
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
    let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
    for line in [
        "mapae_jobs_accepted_total{kind=\"work\"} 1",
        "mapae_jobs_accepted_total{kind=\"other\"} 3",
        "mapae_jobs{state=\"failed\"} 1",
        "mapae_jobs{state=\"pending\"} 3",
        "mapae_jobs{state=\"running\"} 0",
        "mapae_dead_jobs 1",
        "mapae_dead_unassigned 1",
        "mapae_read_failures_total 0",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} in\n{text}");
    }
    assert!(!text.contains("acme-owner") && !text.contains(&id.to_string()));
    assert!(!text.contains("made-up"), "{text}");
    assert!(text.contains("mapae_lane_ready{lane=\"other\"} 3\n"), "{text}");

    // By their names they are shown to whoever may see all owners' jobs, and to nobody else.
    let admin = site.admin().await;
    for (key, names, others) in [(&admin, true, 0), (&site.key(Some("b"), &["jobs:read"]).await, false, 3)] {
        let stats = site.get(key, "/v1/stats").await.json();
        assert_eq!(stats["lanes"].to_string().contains("made-up-1"), names, "{stats}");
        let other = stats["lanes"].as_array().unwrap().iter().find(|lane| lane["lane"] == "other");
        assert_eq!(other.map_or(0, |lane| lane["ready"].as_u64().unwrap()), others, "{stats}");
    }
}

#[tokio::test]
async fn metrics_need_a_key_off_the_loopback_address() {
    let site = Site::with("[http]\nlisten = \"0.0.0.0:7070\"").await;
    assert_eq!(site.get("", "/metrics").await.problem(), "unauthenticated");
    let key = site.key(None, &["jobs:read"]).await;
    assert_eq!(site.get(&key, "/metrics").await.status, 200);
}

#[tokio::test]
async fn the_first_page_and_the_document_need_no_key() {
    let site = Site::new().await;
    assert!(site.get("", "/").await.header("content-type").starts_with("text/html"));
    let document = site.get("", "/openapi.json").await;
    assert_eq!(document.json(), serde_json::to_value(api::openapi()).unwrap());
    let unused = Request::builder().method(Method::POST).uri("/livez").body(Body::empty()).unwrap();
    assert_eq!(site.answer(unused).await.problem(), "method-not-allowed");
}
