//! What people are told of limits: why a job waits, what is in use, and what the figures say.

use std::time::Duration;

use mapae::job::limit::Gate;
use mapae::job::name::Kind;
use mapae::job::retry::Verdict;
use mapae::store::contract::{Join, RingPlan};
use serde_json::json;

use crate::site::Site;

const LIMITS: &str = r#"
    [resource]
    ai = { concurrent = 2, rate = "6000/min", burst = 100, scope = "global" }
    [kind.work]
    needs = { ai = 1 }
    concurrent = 5
    per_owner = { concurrent = 1 }
"#;

async fn work(site: &Site, key: &str) -> String {
    let answer = site.post(key, "/v1/jobs", json!({ "kind": "work" })).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_job_at_a_limit_says_whose_limit_it_is() {
    let site = Site::with(LIMITS).await;
    let join = Join { name: "w".into(), strict: true, kinds: vec![Kind::new("work").unwrap()], slots: 4 };
    let _worker = site.runtime.store.join(&join).await.unwrap();
    let mut keys = Vec::new();
    for owner in ["acme", "globex", "initech"] {
        keys.push(site.key(Some(owner), &["jobs:write", "jobs:read"]).await);
    }
    let (first, own) = (work(&site, &keys[0]).await, work(&site, &keys[0]).await);
    let (second, third) = (work(&site, &keys[1]).await, work(&site, &keys[2]).await);
    let why = async |key: &str, id: &str| {
        let job = site.get(key, &format!("/v1/jobs/{id}")).await.json();
        (job["state"].as_str().unwrap().to_owned(), job["why_waiting"].clone())
    };
    // Whose owner has a limit is offered by a keeper, and there is none here.
    let hour = Duration::from_secs(3600);
    let plan = RingPlan { window: 100, least: 0, again: hour, rescan: None, max: 100 };
    assert_eq!(site.runtime.store.ring(&plan).await.unwrap().len(), 4);
    let claimed = site.claim().await;
    let running: Vec<String> = claimed.iter().map(|holding| holding.job.id.to_string()).collect();
    assert_eq!(running.len(), 2, "two of three owners, one job each");
    assert!(running.contains(&first));
    let waits = if running.contains(&second) { (&keys[2], &third) } else { (&keys[1], &second) };
    let (state, words) = why(&keys[0], &own).await;
    assert_eq!(state, "pending");
    assert_eq!(words, "Its owner is at its limit: 1 of its jobs of the kind work run at a time.");
    let (_, words) = why(waits.0, waits.1).await;
    assert_eq!(words, "It waits for the resource ai, of which there are 2 over all workers.");

    let resources = site.get(&keys[0], "/v1/resources").await.json();
    let ai = &resources["items"][0];
    assert_eq!(
        (&ai["name"], &ai["scope"], &ai["limit"], &ai["in_use"], &ai["rate"]),
        (&json!("ai"), &json!("global"), &json!(2), &json!(2), &json!("6000/min"))
    );
    let kind = &resources["kinds"][0];
    assert_eq!(
        (&kind["kind"], &kind["limit"], &kind["in_use"], &kind["owner_limit"]),
        (&json!("work"), &json!(5), &json!(2), &json!(1))
    );
    let text = String::from_utf8(site.get("", "/metrics").await.bytes.to_vec()).unwrap();
    for line in [
        "mapae_resource_in_use{resource=\"ai\",scope=\"global\"} 2",
        "mapae_resource_limit{resource=\"ai\",scope=\"global\"} 2",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
    }

    for holding in &claimed {
        site.settle(holding, Verdict::Succeed, None).await;
    }
    assert_eq!(why(waits.0, waits.1).await.1, json!(null), "about to start");
}

#[tokio::test]
async fn a_job_whose_service_wants_to_be_left_alone_says_until_when() {
    let site = Site::new().await;
    let join = Join { name: "w".into(), strict: true, kinds: vec![Kind::new("work").unwrap()], slots: 4 };
    let _worker = site.runtime.store.join(&join).await.unwrap();
    let key = site.admin().await;
    let id = site.submit(&key).await;
    let gate = Gate::Kind(Kind::new("work").unwrap());
    site.runtime.store.shut(&gate, Duration::from_secs(3600)).await.unwrap();
    assert!(site.claim().await.is_empty());
    let why = site.get(&key, &format!("/v1/jobs/{id}")).await.json()["why_waiting"].clone();
    let words = "Its service is left alone: no job of the kind work starts before ";
    assert!(why.as_str().is_some_and(|why| why.starts_with(words)), "{why}");
}
