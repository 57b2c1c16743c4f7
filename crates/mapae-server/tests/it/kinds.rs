//! Kinds that nobody configured: how many there may be, and whose.

use serde_json::json;

use super::site::{Answer, Site};

/// What one owner may make up.
const OWN_MAX: usize = 30;

async fn submit(site: &Site, key: &str, kind: &str) -> Answer {
    site.post(key, "/v1/jobs", json!({ "kind": kind })).await
}

#[tokio::test]
async fn an_owner_that_makes_up_kinds_leaves_room_for_others() {
    let site = Site::new().await;
    let greedy = site.key(Some("greedy"), &["jobs:write"]).await;
    for number in 0..OWN_MAX {
        assert_eq!(submit(&site, &greedy, &format!("greedy-{number}")).await.status, 202);
    }
    // However often it comes, and whoever asks the store anew.
    let site = Site::on(site.stop().await, "").await;
    let other = site.key(Some("other"), &["jobs:write"]).await;
    let refused = submit(&site, &greedy, "greedy-more").await;
    assert_eq!(refused.problem(), "too-many-kinds");
    let detail = refused.json()["detail"].to_string();
    assert!(detail.contains("30 kinds of the owner greedy"), "{detail}");
    let follow = json!({ "kind": "greedy-0", "on": { "succeeded": { "kind": "greedy-after" } } });
    assert_eq!(site.post(&greedy, "/v1/jobs", follow).await.problem(), "too-many-kinds");

    assert_eq!(submit(&site, &greedy, "greedy-0").await.status, 202, "one that is there");
    assert_eq!(submit(&site, &other, "greedy-0").await.status, 202, "whoever made it up");
    for number in 0..OWN_MAX {
        assert_eq!(submit(&site, &other, &format!("other-{number}")).await.status, 202);
    }
    assert_eq!(submit(&site, &other, "other-more").await.problem(), "too-many-kinds");
    let admin = site.admin().await;
    assert_eq!(submit(&site, &admin, "greedy-more").await.status, 202, "a key of all owners");
}

#[tokio::test]
async fn jobs_of_configured_kinds_leave_room_for_made_up_ones() {
    let configured: String =
        (0..OWN_MAX).map(|number| format!("[kind.known-{number}]\nattempts = 1\n")).collect();
    let site = Site::with(&configured).await;
    let key = site.key(Some("acme"), &["jobs:write"]).await;
    for number in 0..OWN_MAX {
        assert_eq!(submit(&site, &key, &format!("known-{number}")).await.status, 202);
    }
    for number in 0..OWN_MAX {
        assert_eq!(submit(&site, &key, &format!("made-up-{number}")).await.status, 202);
    }
    assert_eq!(submit(&site, &key, "made-up-more").await.problem(), "too-many-kinds");
    assert_eq!(submit(&site, &key, "known-0").await.status, 202, "it is not made up");
}
