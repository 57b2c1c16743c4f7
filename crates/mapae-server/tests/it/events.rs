//! Events over SSE: in order, without a gap, over restarts, and only to whom they belong.

use axum::body::Body;
use axum::http::Method;
use mapae::job::record::{Output, Progress};
use mapae::job::retry::Verdict;
use serde_json::json;

use super::site::{Site, Stream, request};

async fn follow(site: &Site, key: &str, path: &str, after: Option<&str>) -> Stream {
    let mut request = request(Method::GET, key, path);
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    Stream::of(site.send(request.body(Body::empty()).unwrap()).await)
}

#[tokio::test]
async fn a_jobs_events_come_from_its_first_to_its_last_and_then_the_stream_ends() {
    let site = Site::new().await;
    let key = site.admin().await;
    let id = site.submit(&key).await;
    let path = format!("/v1/jobs/{id}/events");
    let mut stream = follow(&site, &key, &path, None).await;
    let accepted = stream.next().await.unwrap();
    assert_eq!(accepted.name, "accepted");
    for (member, value) in [
        ("specversion", json!("1.0")),
        ("type", json!("mapae.job.accepted")),
        ("subject", json!(id)),
        ("sequence", json!(1)),
        ("partitionkey", json!(id)),
        ("id", json!(format!("{id}/1"))),
    ] {
        assert_eq!(accepted.data[member], value, "{member}");
    }
    let published = stream.next().await.unwrap();
    assert_eq!(
        (published.name.as_str(), published.id.as_str()),
        ("published", ""),
        "it waits with the broker"
    );
    site.succeed(json!({ "text": "secret" })).await;
    let rest = stream.names().await;
    assert_eq!(rest, ["claimed", "succeeded"]);
    assert!(!accepted.data.to_string().contains("secret"));
}

#[tokio::test]
async fn a_client_that_comes_back_after_a_restart_goes_on_where_it_was() {
    let site = Site::new().await;
    let key = site.admin().await;
    let id = site.submit(&key).await;
    let path = format!("/v1/jobs/{id}/events");
    let held = site.claim().await;
    let mut stream = follow(&site, &key, &path, None).await;
    let first = stream.next().await.unwrap();
    let second = stream.next().await.unwrap();
    assert_eq!((first.name.as_str(), second.name.as_str()), ("accepted", "claimed"));
    let folder = site.stop().await;
    assert_eq!(stream.next().await, None, "a stopping server ends its streams");

    let site = Site::on(folder, "").await;
    let mut stream = follow(&site, &key, &path, Some(&second.id)).await;
    site.settle(&held[0], Verdict::Succeed, Some(Output::Inline(json!(1)))).await;
    let last = stream.next().await.unwrap();
    assert_eq!((last.name.as_str(), stream.next().await), ("succeeded", None));
    assert_eq!(last.data["sequence"], 3, "no gap");

    // From the middle all the rest comes again; after the end there is nothing to come back for.
    assert_eq!(follow(&site, &key, &path, Some(&first.id)).await.names().await, ["claimed", "succeeded"]);
    let done = request(Method::GET, &key, &path).header("last-event-id", last.id);
    assert_eq!(site.answer(done.body(Body::empty()).unwrap()).await.status, 204);
    let foreign = request(Method::GET, &key, &path).header("last-event-id", "yesterday");
    assert_eq!(site.answer(foreign.body(Body::empty()).unwrap()).await.problem(), "event-id-invalid");
}

#[tokio::test]
async fn everybodys_events_are_the_callers_own_and_begin_now() {
    let site = Site::new().await;
    let acme = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let other = site.key(Some("other"), &["jobs:write", "jobs:read"]).await;
    site.submit(&acme).await;
    let mut stream = follow(&site, &acme, "/v1/events", None).await;
    site.submit(&other).await;
    let mine = site.submit(&acme).await;
    let told = stream.next().await.unwrap();
    assert_eq!(
        (told.data["subject"].clone(), told.data["data"]["owner"].clone()),
        (json!(mine), json!("acme"))
    );

    let mut all = follow(&site, &site.admin().await, "/v1/events?after=0-0&follow=false", None).await;
    assert_eq!(all.names().await, ["accepted"; 3]);
    let mut own = follow(&site, &other, "/v1/events?after=0-0&follow=false", None).await;
    assert_eq!(own.names().await, ["accepted"]);
}

#[tokio::test]
async fn many_that_follow_are_each_given_all_of_theirs_in_order() {
    let site = Site::new().await;
    let admin = site.admin().await;
    let mut keys = vec![(None, admin)];
    for owner in ["acme", "other"] {
        keys.push((Some(owner), site.key(Some(owner), &["jobs:write", "jobs:read"]).await));
    }
    let mut streams = Vec::new();
    for _ in 0..5 {
        for (owner, key) in &keys {
            streams.push((*owner, follow(&site, key, "/v1/events", None).await));
        }
    }
    for round in 0..8 {
        let (owner, key) = &keys[1 + round % 2];
        let mine = streams.iter_mut().filter(|(of, _)| of.is_none() || of == owner);
        // They wait before it is there: whoever has read all so far is given what was read for all.
        let waiting = mine.map(|(_, stream)| stream.next());
        let (told, id) = tokio::join!(futures_util::future::join_all(waiting), site.submit(key));
        assert_eq!(told.len(), 10);
        for event in told {
            assert_eq!(event.unwrap().data["subject"], json!(id), "{owner:?}, round {round}");
        }
    }
}

#[tokio::test]
async fn progress_is_told_and_takes_no_place_among_the_events() {
    let site = Site::new().await;
    let key = site.admin().await;
    let id = site.submit(&key).await;
    let held = site.claim().await;
    let mut stream = follow(&site, &key, &format!("/v1/jobs/{id}/events"), None).await;
    for name in ["accepted", "claimed"] {
        assert_eq!(stream.next().await.unwrap().name, name);
    }
    let progress = Progress { stage: "tables".into(), done: 3, of: 12 };
    site.runtime.store.progress(&held[0].lease, &progress).await.unwrap();
    let told = stream.next().await.unwrap();
    assert_eq!((told.name.as_str(), told.id.as_str()), ("progress", ""));
    assert_eq!(told.data["progress"], json!({ "stage": "tables", "done": 3, "of": 12 }));
    let shown = site.get(&key, &format!("/v1/jobs/{id}")).await.json();
    assert_eq!(shown["stages"], json!([{ "name": "tables", "state": "running", "seconds": null }]));
    site.settle(&held[0], Verdict::Succeed, None).await;
    assert_eq!(stream.names().await, ["succeeded"]);
}

#[tokio::test]
async fn a_revoked_key_opens_nothing_more_and_its_streams_end() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:read"]).await;
    let mut stream = follow(&site, &key, "/v1/events", None).await;
    assert_eq!(site.get(&key, "/v1/jobs").await.status, 200);
    let id = key.split('_').nth(1).unwrap();
    assert!(site.runtime.store.revoke_key(id).await.unwrap());
    super::site::until("the key is refused", async || site.get(&key, "/v1/jobs").await.status == 401).await;
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn there_are_only_so_many_streams() {
    let site = Site::with("[limits]\nstreams = 1").await;
    let key = site.admin().await;
    let first = follow(&site, &key, "/v1/events", None).await;
    assert_eq!(site.get(&key, "/v1/events").await.problem(), "overloaded");
    drop(first);
    follow(&site, &key, "/v1/events", None).await;
}
