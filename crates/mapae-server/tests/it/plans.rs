//! Uniqueness, follow-ups and schedules, as clients and operators meet them.

use axum::http::Method;
use mapae::job::retry::Verdict;
use serde_json::{Value, json};

use super::site::{Site, config, request, until};

const ALL: [&str; 4] = ["jobs:write", "jobs:read", "files:read", "dead:write"];

#[tokio::test]
async fn the_same_work_is_answered_with_the_job_there_is_and_says_so() {
    let site = Site::with("[kind.sync]\nunique = { by = [\"kind\", \"params.customer\"] }").await;
    let key = site.key(Some("acme"), &ALL).await;
    let sync = |customer: u32, rest: u32| json!({ "kind": "sync", "params": { "customer": customer, "rest": rest } });
    let first = site.post(&key, "/v1/jobs", sync(7, 1)).await;
    assert_eq!((first.status, &first.json()["duplicate"]), (202, &Value::Null));
    let second = site.post(&key, "/v1/jobs", sync(7, 2)).await;
    assert_eq!(second.status, 202);
    assert_eq!(second.header("location"), first.header("location"));
    assert_eq!(second.json()["duplicate"], true);
    assert_eq!(site.get(&key, first.header("location")).await.json()["duplicate"], Value::Null);
    let other = site.post(&key, "/v1/jobs", sync(8, 1)).await;
    assert_ne!(other.json()["id"], first.json()["id"]);

    // A submission of its own mind.
    let named = json!({ "kind": "mail", "unique": { "key": "welcome-7", "period": "1h" } });
    let first = site.post(&key, "/v1/jobs", named.clone()).await.json();
    let mut again = named;
    again["params"] = json!({ "other": true });
    let again = site.post(&key, "/v1/jobs", again).await.json();
    assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));
    let metrics = site.get(&key, "/metrics").await;
    let text = String::from_utf8(metrics.bytes.to_vec()).unwrap();
    assert!(text.contains("mapae_jobs_duplicate_total{kind=\"sync\"} 1"), "{text}");
}

#[tokio::test]
async fn a_rule_that_cannot_be_understood_is_refused() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &ALL).await;
    for unique in [
        json!({ "by": ["owner"] }),
        json!({ "by": [] }),
        json!({ "by": ["key"] }),
        json!({ "period": "soon" }),
        json!({ "states": ["done"] }),
        json!({ "states": [] }),
        json!({ "key": "" }),
        json!({ "for": "1h" }),
    ] {
        let answer = site.post(&key, "/v1/jobs", json!({ "kind": "work", "unique": unique })).await;
        assert_eq!(answer.status, 422, "{unique}");
    }
    for on in [
        json!({ "done": { "kind": "mail" } }),
        json!({ "failed": { "kind": "No Kind" } }),
        json!({ "failed": { "kind": "mail", "priority": 10 } }),
        json!({ "failed": { "kind": "mail", "delay": "soon" } }),
    ] {
        let answer = site.post(&key, "/v1/jobs", json!({ "kind": "work", "on": on })).await;
        assert_eq!(answer.status, 422, "{on}");
    }
    let chain =
        (0..9).fold(json!({ "kind": "end" }), |next, _| json!({ "kind": "mail", "on": { "failed": next } }));
    let answer = site.post(&key, "/v1/jobs", json!({ "kind": "work", "on": { "failed": chain } })).await;
    assert_eq!(answer.status, 422, "too long a chain");
}

#[tokio::test]
async fn what_comes_after_a_job_is_shown_with_it_and_with_what_came() {
    let site = Site::with(
        "[kind.work.on]\nsucceeded = { kind = \"mail\", params = { to = \"ops\" } }\nfailed = { kind = \"alarm\" }\n\
         [kind.mail]\nattempts = 9",
    )
    .await;
    let key = site.key(Some("acme"), &ALL).await;
    let body = json!({ "kind": "work", "on": { "failed": { "kind": "page", "priority": 1 } } });
    let job = site.post(&key, "/v1/jobs", body).await.json();
    let declared = json!([
        { "after": "failed", "kind": "page", "job": null, "link": null },
        { "after": "succeeded", "kind": "mail", "job": null, "link": null },
    ]);
    assert_eq!(job["follow_ups"], declared);
    site.succeed(json!(1)).await;
    let address = job["links"]["self"].as_str().unwrap();
    let job = site.get(&key, address).await.json();
    let made = job["follow_ups"][1]["job"].as_str().unwrap().to_owned();
    assert_eq!(job["follow_ups"][0]["job"], Value::Null);
    let last = job["timeline"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["event"], &last["code"], &last["job"]),
        (&json!("followed"), &json!("mail"), &json!(made))
    );

    let next = site.get(&key, job["follow_ups"][1]["link"].as_str().unwrap()).await.json();
    assert_eq!(
        (&next["kind"], &next["parent"], &next["owner"]),
        (&json!("mail"), &job["id"], &json!("acme"))
    );
    assert_eq!((&next["max_attempts"], &next["links"]["parent"]), (&json!(9), &job["links"]["self"]));
}

#[tokio::test]
async fn a_snoozed_job_says_that_its_handler_put_it_off() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &ALL).await;
    let id = site.submit(&key).await;
    let held = site.claim().await;
    let delay = std::time::Duration::from_secs(3600);
    site.settle(&held[0], Verdict::Snooze { delay }, None).await;
    let job = site.get(&key, &format!("/v1/jobs/{id}")).await.json();
    assert_eq!((&job["snoozed"], &job["attempt"]), (&json!(1), &json!(0)));
    assert!(job["why_waiting"].as_str().unwrap().starts_with("Its handler put it off"), "{job}");
    assert_eq!(job["timeline"][2]["event"], "snoozed");
}

const NIGHTLY: &str = "[schedule.nightly]\nkind = \"report\"\ncron = \"30 2 * * *\"\nzone = \"Asia/Seoul\"\nowner = \"acme\"\n\
     params = { days = 1 }\n";

#[tokio::test]
async fn schedules_are_listed_paused_resumed_and_run_by_hand() {
    let site = Site::with(NIGHTLY).await;
    let (admin, acme) = (site.admin().await, site.key(Some("acme"), &ALL).await);
    let other = site.key(Some("other"), &ALL).await;
    let keeper = site.runtime.start_keeper(&config(&site.folder, NIGHTLY)).unwrap();
    until("the schedule is known", || async {
        site.get(&acme, "/v1/schedules").await.json()["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    })
    .await;
    let listed = site.get(&acme, "/v1/schedules").await.json()["items"][0].clone();
    for (name, value) in [
        ("name", json!("nightly")),
        ("kind", json!("report")),
        ("cron", json!("30 2 * * *")),
        ("zone", json!("Asia/Seoul")),
        ("missed", json!("one")),
        ("paused", json!(false)),
        ("configured", json!(true)),
        ("last_at", json!(null)),
    ] {
        assert_eq!(listed[name], value, "{name}");
    }
    assert!(listed["next_at"].as_str().unwrap().ends_with("T17:30:00.000Z"), "{listed}");
    assert_eq!(site.get(&other, "/v1/schedules").await.json()["items"], json!([]));

    let act = async |what: &str| {
        let path = format!("/v1/schedules/{what}");
        site.answer(request(Method::POST, &admin, &path).body(axum::body::Body::empty()).unwrap()).await
    };
    assert_eq!(act("nightly/pause").await.status, 204);
    let paused = site.get(&acme, "/v1/schedules").await.json()["items"][0].clone();
    assert_eq!((&paused["paused"], &paused["next_at"]), (&json!(true), &json!(null)));
    assert_eq!(act("nightly/resume").await.status, 204);
    assert_eq!(site.get(&acme, "/v1/schedules").await.json()["items"][0], listed);
    let run = act("nightly/run").await;
    assert_eq!(
        (run.status, &run.json()["kind"], &run.json()["phase"]),
        (202, &json!("report"), &json!("ready"))
    );
    for what in ["other/pause", "other/resume", "other/run", "No%20name/run"] {
        let answer = act(what).await;
        assert_eq!((answer.status, answer.problem().as_str()), (404, "schedule-not-found"), "{what}");
    }
    keeper.stop().await;
}

#[tokio::test]
async fn a_schedule_makes_its_job_when_it_ticks_however_many_keep_it() {
    let often = "[schedule.often]\nkind = \"report\"\ncron = \"* * * * * *\"\nowner = \"acme\"\n";
    let site = Site::with(often).await;
    let key = site.key(Some("acme"), &ALL).await;
    let config = config(&site.folder, often);
    let keepers = [(); 2].map(|()| site.runtime.start_keeper(&config).unwrap());
    let jobs =
        async || site.get(&key, "/v1/jobs?kind=report").await.json()["items"].as_array().unwrap().clone();
    until("three ticks had their jobs", || async { jobs().await.len() >= 3 }).await;
    for keeper in keepers {
        keeper.stop().await;
    }
    let due: Vec<String> = jobs().await.iter().map(|job| job["due_at"].to_string()).collect();
    let different: std::collections::BTreeSet<&String> = due.iter().collect();
    assert_eq!(different.len(), due.len(), "one job for each second: {due:?}");
}

#[tokio::test]
async fn a_paused_kind_starts_nothing_whatever_its_priority_and_says_so() {
    let site = Site::new().await;
    let (admin, key) = (site.admin().await, site.key(Some("acme"), &ALL).await);
    let act = async |what: &str| {
        let path = format!("/v1/kinds/work/{what}");
        site.answer(request(Method::POST, &admin, &path).body(axum::body::Body::empty()).unwrap())
            .await
            .status
    };
    assert_eq!(act("pause").await, 204);
    let mut jobs = Vec::new();
    for (priority, lane) in [(1, "work:high"), (5, "work"), (9, "work:low")] {
        let job = site.post(&key, "/v1/jobs", json!({ "kind": "work", "priority": priority })).await.json();
        assert_eq!(job["why_waiting"], format!("The lane {lane} is paused."));
        jobs.push(job["links"]["self"].as_str().unwrap().to_owned());
    }
    assert_eq!(site.claim().await.len(), 0);
    assert_eq!(act("resume").await, 204);
    for job in jobs {
        assert_eq!(site.get(&key, &job).await.json()["why_waiting"], "No worker is running.");
    }
    assert_eq!(site.claim().await.len(), 1);
}
