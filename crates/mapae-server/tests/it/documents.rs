//! Uploads: both must be durable before an answer, and nothing is left of what was refused.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Method;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::sync::Notify;

use super::site::{Answer, PATIENCE, Site, request, until};

const BOUNDARY: &str = "----boundary";

fn part(head: &str, content: &str) -> String {
    format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n")
}

fn file(name: &str, content: &str) -> String {
    part(&format!("name=\"file\"; filename=\"{name}\""), content)
}

async fn multipart(site: &Site, key: &str, headers: &[(&str, &str)], parts: &[String]) -> Answer {
    let body = format!("{}--{BOUNDARY}--\r\n", parts.concat());
    let mut request = request(Method::POST, key, "/v1/documents")
        .header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"))
        .header("content-length", body.len());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    site.answer(request.body(Body::from(body)).unwrap()).await
}

async fn raw(site: &Site, key: &str, path: &str, body: Body) -> Answer {
    site.answer(request(Method::POST, key, path).body(body).unwrap()).await
}

#[tokio::test]
async fn a_file_comes_as_a_part_or_as_the_body_and_is_kept_as_it_was_sent() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let params = part("name=\"params\"", "{\"password\":\"x\"}");
    let kind = part("name=\"kind\"", "mail.scan");
    let first = multipart(&site, &key, &[], &[params, file("../보고서.pdf", "%PDF-1.7"), kind]).await;
    assert_eq!(first.status, 202, "{first:?}");
    let job = first.json();
    assert_eq!((job["kind"].as_str(), job["owner"].as_str()), (Some("mail.scan"), Some("acme")));
    let sha256 = "a4f9ad7bf8d1e0e4a1f4b4ea5a7bd2ba1b0a6a2d3a3b3ab2f4a2ad0a1fd0e6a7".len();
    assert_eq!(job["source"]["name"], "보고서.pdf");
    assert_eq!(job["source"]["bytes"], 8);
    assert_eq!(job["source"]["media_type"], "application/pdf");
    assert_eq!(job["source"]["sha256"].as_str().unwrap().len(), sha256);
    assert!(!first.json().to_string().contains("password"), "params are not shown");

    let path = "/v1/documents?name=t.csv&params=%7B%22a%22%3A1%7D";
    let second = raw(&site, &key, path, Body::from("a,b\n")).await.json();
    assert_eq!(
        (second["kind"].as_str(), second["source"]["name"].as_str()),
        (Some("document.analyze"), Some("t.csv"))
    );
    let named = request(Method::POST, &key, "/v1/documents")
        .header("content-disposition", "attachment; filename*=UTF-8''%EC%98%88%EC%82%B0.csv");
    let third = site.answer(named.body(Body::from("a,b\n")).unwrap()).await.json();
    assert_eq!(third["source"]["name"], "예산.csv");

    let mut kept: Vec<Vec<u8>> = site.originals().iter().map(|path| std::fs::read(path).unwrap()).collect();
    kept.sort();
    assert_eq!(kept, [&b"%PDF-1.7"[..], b"a,b\n", b"a,b\n"]);
}

#[tokio::test]
async fn what_is_refused_leaves_neither_file_nor_job() {
    let site = Site::with("[limits]\nupload = 1000").await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let cases = [
        (vec![file("a.xlsx", "%PDF-1.7")], 415, "media-type-mismatch"),
        (vec![file("a.pdf", "")], 422, "file-empty"),
        (vec![file("a.txt", &"x".repeat(1001))], 413, "body-too-large"),
        (vec![], 400, "multipart-invalid"),
        (vec![part("name=\"kind\"", "work")], 400, "multipart-invalid"),
        (vec![file("a.txt", "x"), file("b.txt", "y")], 400, "multipart-invalid"),
        (vec![file("a.txt", "x"), part("name=\"colour\"", "red")], 400, "multipart-invalid"),
        (vec![file("a.txt", "x"), part("name=\"labels\"", "team")], 404, "labels-not-found"),
        (vec![file("a.txt", "x"), part("name=\"labels\"", "a b")], 422, "body-invalid"),
        (vec![file("a.txt", "x"), part("name=\"kind\"", "No Kind")], 422, "body-invalid"),
        (vec![file("a.txt", "x"), part("name=\"kind\"", &"k".repeat(99))], 413, "body-too-large"),
        (vec![file("a.txt", "x"), part("name=\"params\"", "{")], 400, "json-invalid"),
        (vec![file("a.txt", "x"), part("name=\"params\"", &"[".repeat(100))], 400, "json-too-deep"),
    ];
    for (parts, status, code) in cases {
        let answer = multipart(&site, &key, &[], &parts).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, code), "{parts:?}");
    }
    let no_boundary =
        request(Method::POST, &key, "/v1/documents").header("content-type", "multipart/form-data");
    let answer = site.answer(no_boundary.body(Body::from("x")).unwrap()).await;
    assert_eq!(answer.problem(), "multipart-invalid");
    let query = raw(&site, &key, "/v1/documents?nmae=x.csv", Body::from("x")).await;
    assert_eq!(query.problem(), "query-invalid");

    until("what was refused is removed", async || site.originals().is_empty()).await;
    let jobs = site.get(&key, "/v1/jobs").await.json();
    assert_eq!(jobs["items"], json!([]));
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_no_upload() {
    let site = Site::new().await;
    let key = site.admin().await;
    let cut = |begin: String| {
        let chunks = [Ok(Bytes::from(begin)), Err(io::Error::from(io::ErrorKind::ConnectionReset))];
        Body::from_stream(stream::iter(chunks))
    };
    let answer = raw(&site, &key, "/v1/documents?name=a.csv", cut("a,b\n".repeat(10_000))).await;
    assert_eq!((answer.status, answer.problem().as_str()), (400, "body-cut"));
    let request = request(Method::POST, &key, "/v1/documents")
        .header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
    let answer = site.answer(request.body(cut(file("a.csv", "a,b"))).unwrap()).await;
    assert_eq!((answer.status, answer.problem().as_str()), (400, "body-cut"));
    let jobs = site.get(&key, "/v1/jobs").await.json();
    assert_eq!(jobs["items"], json!([]));
    until("nothing is left", async || site.originals().is_empty()).await;
}

#[tokio::test]
async fn a_client_that_sends_nothing_is_not_waited_for() {
    let site = Site::with("[http]\ntimeout = \"50ms\"").await;
    let key = site.admin().await;
    let silent = || {
        Body::from_stream(
            stream::once(async { Ok::<_, io::Error>(Bytes::from("a,b")) }).chain(stream::pending()),
        )
    };
    let answer = raw(&site, &key, "/v1/documents?name=a.csv", silent()).await;
    assert_eq!((answer.status, answer.problem().as_str()), (408, "request-timeout"));
    let json = request(Method::POST, &key, "/v1/jobs").header("content-type", "application/json");
    assert_eq!(site.answer(json.body(silent()).unwrap()).await.problem(), "request-timeout");
}

#[tokio::test]
async fn the_same_file_under_one_idempotency_key_is_one_job_and_one_file() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write"]).await;
    let headers = [("idempotency-key", "k1")];
    let first = multipart(&site, &key, &headers, &[file("a.csv", "a,b")]).await;
    let second = multipart(&site, &key, &headers, &[file("a.csv", "a,b")]).await;
    assert_eq!((first.status, second.status), (202, 202));
    assert_eq!(first.json()["id"], second.json()["id"]);
    for changed in [file("a.csv", "a,c"), file("b.csv", "a,b")] {
        let other = multipart(&site, &key, &headers, &[changed]).await;
        assert_eq!((other.status, other.problem().as_str()), (409, "idempotency-key-reused"));
    }
    until("only the first file is left", async || site.originals().len() == 1).await;
}

#[tokio::test]
async fn a_file_that_was_accepted_is_answered_again_whatever_its_owners_limit() {
    let site = Site::with("[limits]\npending = 1\n[broker]\nwindow = 1").await;
    let key = site.key(Some("acme"), &["jobs:write"]).await;
    let send = async |named: &str| {
        multipart(&site, &key, &[("idempotency-key", named)], &[file("a.csv", "a,b")]).await
    };
    let first = send("first").await;
    let mut refused = send("second").await;
    for named in ["third", "fourth"] {
        refused = send(named).await;
    }
    assert_eq!(refused.problem(), "too-many-pending");
    assert_eq!(send("first").await.json()["id"], first.json()["id"]);
}

/// A body of which nothing ever comes, and what tells that somebody wanted to read it.
fn asked_for() -> (Arc<Notify>, Body) {
    let asked = Arc::new(Notify::new());
    let told = asked.clone();
    let silent = stream::poll_fn(move |_| {
        told.notify_one();
        std::task::Poll::<Option<io::Result<Bytes>>>::Pending
    });
    (asked, Body::from_stream(silent))
}

#[tokio::test]
async fn an_upload_too_many_is_turned_away_before_its_body_is_read() {
    let site = Site::with("[limits]\nuploads = 1").await;
    let key = site.admin().await;
    let (asked, silent) = asked_for();
    let first = site.send(request(Method::POST, &key, "/v1/documents?name=a.csv").body(silent).unwrap());
    let turned_away = async {
        asked.notified().await;
        let answer = raw(&site, &key, "/v1/documents?name=b.csv", asked_for().1).await;
        assert_eq!((answer.status, answer.problem().as_str()), (503, "overloaded"));
        assert_eq!(answer.header("retry-after"), "10");
    };
    tokio::select! {
        _ = first => panic!("an upload without an end has ended"),
        turned_away = tokio::time::timeout(PATIENCE, turned_away) => turned_away.unwrap(),
    }
    let announced = request(Method::POST, &key, "/v1/documents").header("content-length", u64::MAX / 2);
    assert_eq!(site.answer(announced.body(Body::empty()).unwrap()).await.problem(), "body-too-large");
}
