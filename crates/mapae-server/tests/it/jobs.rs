//! Submitting jobs, following them, and what can be done to them.

use axum::body::Body;
use axum::http::Method;
use mapae::blob::BlobName;
use mapae::job::record::Output;
use mapae::job::retry::Verdict;
use mapae::store::contract::Scope;
use serde_json::{Value, json};

use super::site::{Answer, Site, request};

async fn submit(site: &Site, key: &str, idempotency_key: &str, body: Value) -> Answer {
    let request = request(Method::POST, key, "/v1/jobs")
        .header("content-type", "application/json")
        .header("idempotency-key", idempotency_key);
    site.answer(request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn an_accepted_job_says_where_it_is_and_shows_what_was_asked() {
    let site = Site::with("[kind.work]\nattempts = 7").await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let body = json!({
        "kind": "work", "params": { "a": 1 }, "priority": 2, "run_at": "2099-01-01T00:00:00Z",
        "deadline": "2099-02-01T00:00:00+09:00",
    });
    let answer = site.post(&key, "/v1/jobs", body).await;
    assert_eq!(answer.status, 202);
    let job = answer.json();
    assert_eq!(answer.header("location"), job["links"]["self"]);
    assert_eq!(answer.header("retry-after"), "1");
    let again = site.get(&key, answer.header("location")).await;
    assert_eq!(again.json(), job);
    for (name, value) in [
        ("owner", json!("acme")),
        ("kind", json!("work")),
        ("state", json!("pending")),
        ("phase", json!("scheduled")),
        ("max_attempts", json!(7)),
        ("priority", json!(2)),
        ("due_at", json!("2099-01-01T00:00:00.000Z")),
        ("deadline", json!("2099-01-31T15:00:00.000Z")),
        ("why_waiting", json!("It is not due until 2099-01-01T00:00:00.000Z.")),
        ("failure", json!(null)),
    ] {
        assert_eq!(job[name], value, "{name}");
    }
    assert_eq!(job["timeline"][0]["event"], "accepted");
}

#[tokio::test]
async fn one_idempotency_key_makes_one_job_for_each_owner() {
    let site = Site::new().await;
    let acme = site.key(Some("acme"), &["jobs:write"]).await;
    let other = site.key(Some("other"), &["jobs:write"]).await;
    let body = json!({ "kind": "work", "params": { "a": 1, "b": 2 } });
    let first = submit(&site, &acme, "\"k1\"", body.clone()).await;
    // Written differently, the same submission.
    let request = request(Method::POST, &acme, "/v1/jobs")
        .header("content-type", "application/json; charset=utf-8")
        .header("idempotency-key", "k1");
    let text = r#"{ "params": {"b":2, "a":1},   "kind":"work" }"#;
    let second = site.answer(request.body(Body::from(text)).unwrap()).await;
    assert_eq!((first.status, second.status), (202, 202));
    assert_eq!(first.json(), second.json());

    let changed = submit(&site, &acme, "k1", json!({ "kind": "work", "params": { "a": 2 } })).await;
    assert_eq!((changed.status, changed.problem().as_str()), (409, "idempotency-key-reused"));
    let elsewhere = submit(&site, &other, "k1", body).await;
    assert_ne!(elsewhere.json()["id"], first.json()["id"]);
    let bad = submit(&site, &acme, "two words", json!({ "kind": "work" })).await;
    assert_eq!((bad.status, bad.problem().as_str()), (400, "header-invalid"));
}

#[tokio::test]
async fn the_same_submission_at_the_same_moment_makes_one_job() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write"]).await;
    let body = json!({ "kind": "work" });
    let all = (0..20).map(|_| submit(&site, &key, "race", body.clone()));
    let ids: Vec<Value> =
        futures_util::future::join_all(all).await.iter().map(|answer| answer.json()["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test]
async fn a_key_bound_to_an_owner_submits_for_nobody_else() {
    let site = Site::new().await;
    let acme = site.key(Some("acme"), &["jobs:write"]).await;
    let all = site.admin().await;
    let body = json!({ "kind": "work", "owner": "other" });
    assert_eq!(site.post(&acme, "/v1/jobs", body.clone()).await.problem(), "forbidden");
    assert_eq!(site.post(&all, "/v1/jobs", body).await.json()["owner"], "other");
    assert_eq!(site.post(&all, "/v1/jobs", json!({ "kind": "work" })).await.json()["owner"], "default");
}

#[tokio::test]
async fn who_prefers_to_wait_is_answered_when_the_job_has_ended() {
    let site = Site::with("[http]\nwait = \"50ms\"").await;
    let patient = Site::new().await;
    let ask = async |site: &Site| {
        let key = site.admin().await;
        let request = request(Method::POST, &key, "/v1/jobs")
            .header("content-type", "application/json")
            .header("prefer", "wait=30");
        site.answer(request.body(Body::from(r#"{"kind":"work"}"#)).unwrap()).await
    };
    let bounded = ask(&site).await;
    assert_eq!((bounded.status, bounded.json()["state"].as_str()), (202, Some("pending")));
    let (ended, ()) = tokio::join!(ask(&patient), async {
        loop {
            let held = patient.claim().await;
            if let Some(holding) = held.first() {
                let output = Some(Output::Inline(json!(1)));
                return patient.settle(holding, Verdict::Succeed, output).await;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!((ended.status, ended.json()["state"].as_str()), (200, Some("succeeded")));
    assert_eq!(ended.header("preference-applied"), "wait");
}

#[tokio::test]
async fn who_looks_at_a_job_may_wait_for_its_end() {
    let ask = async |site: &Site, key: &str, id: mapae::job::name::JobId, wait: &str| {
        let request = request(Method::GET, key, &format!("/v1/jobs/{id}")).header("prefer", wait);
        site.answer(request.body(Body::empty()).unwrap()).await
    };
    let short = Site::with("[http]\nwait = \"50ms\"").await;
    let key = short.admin().await;
    let id = short.submit(&key).await;
    let bounded = ask(&short, &key, id, "wait=30").await;
    assert_eq!(
        (bounded.status, bounded.json()["state"].as_str()),
        (200, Some("pending")),
        "no longer than that"
    );
    assert_eq!(bounded.header("preference-applied"), "wait");
    assert_eq!(short.get(&key, &format!("/v1/jobs/{id}")).await.header("preference-applied"), "");

    let site = Site::new().await;
    let key = site.admin().await;
    let id = site.submit(&key).await;
    let (ended, ()) = tokio::join!(ask(&site, &key, id, "respond-async, wait=30"), site.succeed(json!(1)));
    assert_eq!((ended.status, ended.json()["state"].as_str()), (200, Some("succeeded")));
    let foreign = site.key(Some("other"), &["jobs:read"]).await;
    assert_eq!(ask(&site, &foreign, id, "wait=30").await.problem(), "job-not-found");
}

#[tokio::test]
async fn a_list_is_walked_page_by_page_without_a_gap_or_a_double() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let foreign = site.key(Some("other"), &["jobs:write"]).await;
    let mut submitted = Vec::new();
    for _ in 0..5 {
        submitted.push(site.submit(&key).await.to_string());
        site.submit(&foreign).await;
    }
    submitted.reverse();
    let mut walked = Vec::new();
    let mut next = "/v1/jobs?kind=work&limit=2".to_owned();
    for _ in 0..10 {
        let page = site.get(&key, &next).await;
        let items = page.json()["items"].as_array().unwrap().clone();
        walked.extend(items.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        let Some(link) = page.header("link").strip_prefix('<').map(str::to_owned) else { break };
        assert!(link.ends_with("; rel=\"next\""), "{link}");
        next = link.split('>').next().unwrap().to_owned();
    }
    assert_eq!(walked, submitted);

    let count = async |key: &str, query: &str| {
        site.get(key, &format!("/v1/jobs?{query}")).await.json()["items"].as_array().unwrap().len()
    };
    let all = site.admin().await;
    assert_eq!(count(&all, "").await, 10);
    assert_eq!(count(&all, "owner=other").await, 5);
    assert_eq!(count(&key, "owner=other").await, 0);
    assert_eq!(count(&key, "state=running").await, 0);
    assert_eq!(count(&key, &format!("q={}", &submitted[0])).await, 1);
}

#[tokio::test]
async fn an_unchanged_job_is_not_sent_again() {
    let site = Site::new().await;
    let key = site.admin().await;
    let id = site.submit(&key).await;
    let path = format!("/v1/jobs/{id}");
    let tag = site.get(&key, &path).await.header("etag").to_owned();
    let ask = async || {
        let request = request(Method::GET, &key, &path).header("if-none-match", &tag);
        site.answer(request.body(Body::empty()).unwrap()).await
    };
    let unchanged = ask().await;
    assert_eq!((unchanged.status, unchanged.bytes.len()), (304, 0));
    site.succeed(json!(1)).await;
    assert_eq!(ask().await.status, 200);
}

#[tokio::test]
async fn a_pending_job_is_cancelled_and_a_running_one_is_asked() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let running = site.submit(&key).await;
    let held = site.claim().await;
    let pending = site.submit(&key).await;
    let cancel = async |id| site.post(&key, &format!("/v1/jobs/{id}/cancel"), json!({})).await;
    let cancelled = cancel(pending).await;
    assert_eq!((cancelled.status, cancelled.json()["state"].as_str()), (200, Some("cancelled")));
    assert_eq!(cancel(pending).await.status, 200, "asked twice, done once");
    let asked = cancel(running).await;
    assert_eq!((asked.status, asked.json()["cancel_requested"].as_bool()), (202, Some(true)));
    site.settle(&held[0], Verdict::Succeed, Some(Output::Inline(json!(1)))).await;
    let ended = site.get(&key, &format!("/v1/jobs/{running}")).await.json();
    assert_eq!(ended["state"], "cancelled");
    let done = site.submit(&key).await;
    site.succeed(json!(1)).await;
    assert_eq!(cancel(done).await.problem(), "job-state-conflict");
}

#[tokio::test]
async fn a_failed_job_is_retried_with_its_history_and_no_other_is() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let id = site.submit(&key).await;
    let retry = async || site.post(&key, &format!("/v1/jobs/{id}/retry"), json!({})).await;
    assert_eq!(retry().await.problem(), "job-state-conflict");
    site.fail("broken").await;
    let retried = retry().await;
    assert_eq!((retried.status, retried.json()["state"].as_str()), (202, Some("pending")));
    let events: Vec<Value> =
        retried.json()["timeline"].as_array().unwrap().iter().map(|entry| entry["event"].clone()).collect();
    assert_eq!(events, ["accepted", "claimed", "failed", "redriven"]);
    assert_eq!(retried.json()["redrives"], 1);
}

#[tokio::test]
async fn a_deleted_job_is_gone_for_everybody() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let id = site.submit(&key).await;
    let path = format!("/v1/jobs/{id}");
    let delete =
        async || site.answer(request(Method::DELETE, &key, &path).body(Body::empty()).unwrap()).await;
    assert_eq!(delete().await.status, 204);
    assert_eq!(site.get(&key, &path).await.problem(), "job-not-found");
    assert_eq!(site.get(&site.admin().await, &path).await.problem(), "job-not-found");
    assert_eq!(delete().await.problem(), "job-not-found");
}

#[tokio::test]
async fn a_result_is_there_once_the_job_succeeded_and_says_why_not_otherwise() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "files:read"]).await;
    let id = site.submit(&key).await;
    let result = format!("/v1/jobs/{id}/result");
    assert_eq!(site.get(&key, &result).await.problem(), "job-not-finished");
    let table = json!({
        "id": 1, "page": 1, "sheet": null, "bbox": null, "confidence": 1.0, "title": null, "header_rows": 1,
        "rows": 2, "columns": 2, "cells": [
            { "row": 0, "col": 0, "rowspan": 1, "colspan": 1, "text": "a,b", "value": null },
            { "row": 1, "col": 1, "rowspan": 1, "colspan": 1, "text": "=1+1", "value": null },
        ],
    });
    let intents = json!([{
        "name": "pay", "utterances": ["How?", "When?"], "answer": "At once.", "origin": "template", "page": 2, "quote": null,
    }]);
    let output = json!({ "text": "본문", "tables": [table], "language": "en", "intents": intents });
    site.succeed(output.clone()).await;
    assert_eq!(site.get(&key, &result).await.json(), output);
    assert_eq!(site.get(&key, &format!("{result}/intents.json")).await.json(), intents);
    let rows = "intent,utterance,answer,origin,page\r\npay,How?,At once.,template,2\r\npay,When?,At once.,template,2\r\n";
    assert_eq!(site.get(&key, &format!("{result}/intents.csv")).await.bytes, rows);
    for form in ["intents.rasa", "intents.dialogflow"] {
        let archive = site.get(&key, &format!("{result}/{form}")).await;
        assert!(
            archive.bytes.starts_with(b"PK") && archive.header("content-disposition").ends_with(".zip\""),
            "{form}"
        );
    }
    assert_eq!(site.get(&key, &format!("{result}/text")).await.bytes, "본문");
    let csv = site.get(&key, &format!("{result}/tables/1.csv")).await;
    assert_eq!(csv.bytes, "\"a,b\",\r\n,=1+1\r\n");
    assert!(csv.header("content-disposition").starts_with("attachment"));
    assert_eq!(site.get(&key, &format!("{result}/tables/1.json")).await.json(), table);
    for part in
        ["tables/2.csv", "tables/0.csv", "tables/-1.json", "tables/1.xml", "tables/1", "intents.xml", "x"]
    {
        assert_eq!(site.get(&key, &format!("{result}/{part}")).await.problem(), "part-not-found", "{part}");
    }

    let failed = site.submit(&key).await;
    site.fail("broken").await;
    let refused = site.get(&key, &format!("/v1/jobs/{failed}/result")).await;
    assert_eq!(refused.problem(), "job-not-succeeded");
    let other = site.submit(&key).await;
    site.succeed(json!([1, 2])).await;
    assert_eq!(site.get(&key, &format!("/v1/jobs/{other}/result/text")).await.problem(), "part-not-found");
}

#[tokio::test]
async fn a_job_that_gave_nothing_has_no_content_and_is_not_expired() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let id = site.submit(&key).await;
    let held = site.claim().await;
    site.settle(&held[0], Verdict::Succeed, None).await;
    let nothing = site.get(&key, &format!("/v1/jobs/{id}/result")).await;
    assert_eq!((nothing.status, nothing.bytes.len()), (204, 0));
    assert_eq!(site.get(&key, &format!("/v1/jobs/{id}/result/text")).await.problem(), "part-not-found");
}

#[tokio::test]
async fn a_lane_that_is_paused_before_anything_waits_in_it_is_shown_so() {
    let site = Site::new().await;
    let key = site.admin().await;
    let lane: mapae::job::name::Lane = "document.analyze".parse().unwrap();
    let other: mapae::job::name::Lane = "nobody.knows".parse().unwrap();
    for lane in [&lane, &other] {
        site.runtime.store.pause(lane).await.unwrap();
    }
    let stats = site.get(&key, "/v1/stats").await.json();
    let lanes = stats["lanes"].as_array().unwrap();
    for lane in [lane, other] {
        let shown = lanes.iter().find(|shown| shown["lane"] == lane.to_string()).unwrap();
        assert_eq!(shown["paused"], true, "{lane}");
    }
}

#[tokio::test]
async fn a_result_that_is_a_file_is_streamed_and_expires_with_it() {
    use bytes::Bytes;
    use mapae::blob::{BlobName, PutLimits};
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let id = site.submit(&key).await;
    let held = site.claim().await;
    let name = BlobName::result(id.0, held[0].lease.epoch, "result.json").unwrap();
    let text = json!({ "text": "x".repeat(1_000_000), "tables": null }).to_string();
    let body = futures_util::stream::iter([Ok(Bytes::from(text.clone()))]);
    let limits = PutLimits { bytes_max: 1 << 30 };
    let stored = site.runtime.blobs.put(&name, body, limits).await.unwrap();
    let output = Output::File { name: name.to_string(), bytes: stored.bytes };
    site.settle(&held[0], Verdict::Succeed, Some(output)).await;

    let path = format!("/v1/jobs/{id}/result");
    let whole = site.get(&key, &path).await;
    assert_eq!(whole.bytes, text);
    assert_eq!(whole.header("content-length"), text.len().to_string());
    assert_eq!(site.get(&key, &format!("{path}/text")).await.bytes.len(), 1_000_000);
    let request = request(Method::GET, &key, &path).header("if-none-match", whole.header("etag"));
    assert_eq!(site.answer(request.body(Body::empty()).unwrap()).await.status, 304);

    site.runtime.blobs.delete(&name).await.unwrap();
    for path in [path.clone(), format!("{path}/text")] {
        let expired = site.get(&key, &path).await;
        assert_eq!((expired.status, expired.problem().as_str()), (410, "result-expired"), "{path}");
    }
}

#[tokio::test]
async fn dead_letters_are_listed_and_redriven_by_id_or_filter() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read", "dead:write"]).await;
    let foreign = site.key(Some("other"), &["jobs:write", "jobs:read", "dead:write"]).await;
    let mut failed = Vec::new();
    for code in ["broken", "broken", "broken", "lost"] {
        failed.push(site.submit(&key).await.to_string());
        site.fail(code).await;
    }
    let others = site.submit(&foreign).await.to_string();
    site.fail("broken").await;
    let alive = site.submit(&key).await.to_string();
    let dead = async |key: &str| {
        let list = site.get(key, "/v1/dead").await.json();
        list["items"].as_array().unwrap().iter().map(|job| job["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(dead(&key).await.len(), 4);
    let redrive = async |body: Value| site.post(&key, "/v1/dead/redrive", body).await.json();

    let would = redrive(json!({ "filter": { "code": "broken" }, "dry_run": true })).await;
    assert_eq!(would["done"].as_array().unwrap().len(), 3);
    assert_eq!(dead(&key).await.len(), 4, "a dry run does nothing");

    let some = redrive(json!({ "ids": [failed[0], others, alive] })).await;
    assert_eq!(some["done"], json!([failed[0]]));
    assert_eq!(some["refused"], json!([others, alive]));
    assert_eq!(redrive(json!({ "filter": { "code": "broken" } })).await["done"].as_array().unwrap().len(), 2);
    assert_eq!(dead(&key).await, [failed[3].as_str()]);
    assert_eq!(dead(&foreign).await, [others.as_str()]);

    let resolved = site.post(&key, "/v1/dead/resolve", json!({ "ids": [failed[3]] })).await.json();
    assert_eq!(resolved["done"], json!([failed[3]]));
    assert_eq!(site.get(&key, &format!("/v1/jobs/{}", failed[3])).await.problem(), "job-not-found");
    assert_eq!(site.post(&key, "/v1/dead/redrive", json!({})).await.problem(), "body-invalid");
    let both = json!({ "ids": [], "filter": {} });
    assert_eq!(site.post(&key, "/v1/dead/redrive", both).await.problem(), "body-invalid");
}

#[tokio::test]
async fn dead_letters_are_somebodys_to_look_after_until_they_are_redriven() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read", "dead:write"]).await;
    let foreign = site.key(Some("other"), &["jobs:write", "jobs:read", "dead:write"]).await;
    let mut failed = Vec::new();
    for code in ["broken", "broken", "lost"] {
        failed.push(site.submit(&key).await.to_string());
        site.fail(code).await;
    }
    let others = site.submit(&foreign).await.to_string();
    site.fail("broken").await;
    let alive = site.submit(&key).await.to_string();
    let whose = async |id: &str| site.get(&key, &format!("/v1/jobs/{id}")).await.json()["assignee"].clone();
    let assign = async |body: Value| site.post(&key, "/v1/dead/assign", body).await.json();

    let all = json!({ "filter": { "code": "broken" }, "assignee": "김 민수", "dry_run": true });
    assert_eq!(assign(all.clone()).await["done"].as_array().unwrap().len(), 2);
    assert_eq!(whose(&failed[0]).await, Value::Null, "a dry run does nothing");

    let some = assign(json!({ "ids": [failed[0], others, alive], "assignee": "김 민수" })).await;
    assert_eq!((&some["done"], &some["refused"]), (&json!([failed[0]]), &json!([others, alive])));
    assert_eq!(whose(&failed[0]).await, "김 민수");
    let unassigned = json!({ "filter": { "unassigned": true }, "assignee": "night shift" });
    assert_eq!(assign(unassigned.clone()).await["done"], json!([failed[2], failed[1]]));
    assert_eq!(assign(unassigned).await["done"], json!([]), "asking again comes to an end");
    let listed = site.get(&key, "/v1/dead").await.json();
    let assignees: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|job| &job["assignee"]).collect();
    assert_eq!(assignees, ["night shift", "night shift", "김 민수"]);

    site.post(&key, "/v1/dead/redrive", json!({ "ids": [failed[0]] })).await;
    assert_eq!(whose(&failed[0]).await, Value::Null);
    assign(json!({ "ids": [failed[1]], "assignee": null })).await;
    assert_eq!(whose(&failed[1]).await, Value::Null);
    for assignee in ["", &"x".repeat(129), "two\nlines"] {
        let body = json!({ "ids": [failed[1]], "assignee": assignee });
        assert_eq!(site.post(&key, "/v1/dead/assign", body).await.problem(), "body-invalid");
    }
    let forgotten = site.post(&key, "/v1/dead/assign", json!({ "ids": [failed[1]] })).await;
    assert_eq!(forgotten.problem(), "body-invalid");
}

#[tokio::test]
async fn a_small_file_travels_in_the_submission_and_is_kept_like_an_upload() {
    let site = Site::new().await;
    let key = site.admin().await;
    let with = |source: Value| json!({ "kind": "work", "owner": "acme", "source": source });
    // "a,b\n1,2\n"
    let csv =
        with(json!({ "name": "../표.csv", "media_type": "text/csv; charset=utf-8", "data": "YSxiCjEsMgo=" }));
    let answer = submit(&site, &key, "once", csv.clone()).await;
    assert_eq!(answer.status, 202);
    let source = answer.json()["source"].clone();
    assert_eq!((&source["name"], &source["bytes"]), (&json!("표.csv"), &json!(8)));
    assert_eq!(source["media_type"], "text/csv");
    let id = answer.json()["id"].as_str().unwrap().parse().unwrap();
    let job = site.runtime.store.job(&Scope::All, id).await.unwrap().unwrap();
    let file = BlobName::parse(&job.source.unwrap().file).unwrap();
    let kept = site.runtime.blobs.open_local(&file).await.unwrap();
    let text = std::io::read_to_string(kept).unwrap();
    assert_eq!(text, "a,b\n1,2\n");

    assert_eq!(submit(&site, &key, "once", csv).await.json()["id"], answer.json()["id"]);
    let other = with(json!({ "name": "표.csv", "data": "YSxiCjEsMwo=" }));
    assert_eq!(submit(&site, &key, "once", other).await.problem(), "idempotency-key-reused");
    let unknown = with(json!({ "name": "notes", "media_type": "Text/Plain", "data": "aGk=" }));
    assert_eq!(submit(&site, &key, "notes", unknown).await.json()["source"]["media_type"], "text/plain");

    let refused = [
        (json!({ "name": "a.csv", "data": "not base64!" }), "body-invalid"),
        (json!({ "name": "a.csv", "data": "aGk" }), "body-invalid"),
        (json!({ "name": "a.csv", "media_type": "text", "data": "aGk=" }), "body-invalid"),
        (json!({ "name": "a.csv", "colour": 1, "data": "aGk=" }), "body-invalid"),
        (json!({ "data": "aGk=" }), "body-invalid"),
        (json!({ "name": "a.csv", "data": "" }), "file-empty"),
        // "%PDF-1.7"
        (json!({ "name": "a.csv", "data": "JVBERi0xLjc=" }), "media-type-mismatch"),
        (json!({ "name": "a.csv", "media_type": "text/plain", "data": "aGk=" }), "media-type-mismatch"),
    ];
    for (number, (source, code)) in refused.into_iter().enumerate() {
        let answer = submit(&site, &key, &format!("refused-{number}"), with(source.clone())).await;
        assert_eq!(answer.problem(), code, "{source}");
    }
    assert_eq!(site.get(&key, "/v1/jobs").await.json()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_owner_with_too_many_waiting_jobs_is_told_to_wait_and_others_are_not() {
    let site = Site::with("[limits]\npending = 2\n[broker]\nwindow = 1").await;
    let acme = site.key(Some("acme"), &["jobs:write"]).await;
    let other = site.key(Some("other"), &["jobs:write"]).await;
    // The first is offered at once and does not count; the next two wait.
    let submit = async |key: &str, kind: &str| site.post(key, "/v1/jobs", json!({ "kind": kind })).await;
    let mut accepted = 0;
    let refused = loop {
        let answer = submit(&acme, "work").await;
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
        assert!(accepted < 10);
    };
    assert_eq!((refused.status, refused.problem().as_str()), (429, "too-many-pending"));
    assert!((2..=3).contains(&accepted), "{accepted}");
    assert_eq!(refused.header("retry-after"), "30");
    assert_eq!(submit(&other, "work").await.status, 202);
    assert_eq!(submit(&acme, "other.work").await.status, 202);
}

#[tokio::test]
async fn a_submission_that_was_accepted_is_answered_again_whatever_its_owners_limit() {
    let site = Site::with("[limits]\npending = 1\n[broker]\nwindow = 1").await;
    let acme = site.key(Some("acme"), &["jobs:write"]).await;
    let body = json!({ "kind": "work" });
    let first = submit(&site, &acme, "first", body.clone()).await.json()["id"].clone();
    let full = async |number: usize| submit(&site, &acme, &format!("more-{number}"), body.clone()).await;
    let mut refused = full(0).await;
    for number in 1..5 {
        refused = full(number).await;
    }
    assert_eq!(refused.problem(), "too-many-pending");
    let again = submit(&site, &acme, "first", body.clone()).await;
    assert_eq!((again.status, again.json()["id"].clone()), (202, first.clone()));
    let other = json!({ "kind": "work", "params": { "a": 1 } });
    assert_eq!(submit(&site, &acme, "first", other).await.problem(), "idempotency-key-reused");

    // A key whose job is gone is nobody's.
    let gone = format!("/v1/jobs/{}", first.as_str().unwrap());
    let delete = request(Method::DELETE, &acme, &gone).body(Body::empty()).unwrap();
    assert_eq!(site.answer(delete).await.status, 204);
    let site = Site::on(site.stop().await, "").await;
    let anew = submit(&site, &acme, "first", body).await;
    assert_eq!(anew.status, 202, "{anew:?}");
    assert_ne!(anew.json()["id"], first);
}

#[tokio::test]
async fn a_job_that_a_request_ends_is_counted_once() {
    let site = Site::new().await;
    let key = site.admin().await;
    let (cancelled, deleted) = (site.submit(&key).await, site.submit(&key).await);
    for _ in 0..2 {
        assert_eq!(site.post(&key, &format!("/v1/jobs/{cancelled}/cancel"), json!({})).await.status, 200);
    }
    for id in [cancelled, deleted] {
        let delete = request(Method::DELETE, &key, &format!("/v1/jobs/{id}")).body(Body::empty()).unwrap();
        assert_eq!(site.answer(delete).await.status, 204);
    }
    let text = String::from_utf8(site.get("", "/metrics").await.bytes.to_vec()).unwrap();
    let line = "mapae_jobs_finished_total{outcome=\"cancelled\"} 2";
    assert!(text.lines().any(|told| told == line), "{text}");
}

#[tokio::test]
async fn a_waiting_job_says_what_it_waits_for() {
    let site = Site::new().await;
    let key = site.admin().await;
    let id = site.submit(&key).await;
    let why = async || site.get(&key, &format!("/v1/jobs/{id}")).await.json()["why_waiting"].clone();
    assert_eq!(why().await, "No worker is running.");
    assert_eq!(site.post(&key, "/v1/lanes/work/pause", json!({})).await.status, 204);
    assert_eq!(why().await, "The lane work is paused.");
    assert!(site.claim().await.is_empty());
    assert_eq!(site.post(&key, "/v1/lanes/work/resume", json!({})).await.status, 204);
    assert_eq!(why().await, "No worker is running.");
    assert_eq!(site.post(&key, "/v1/lanes/no%20lane/pause", json!({})).await.problem(), "bad-request");
}
