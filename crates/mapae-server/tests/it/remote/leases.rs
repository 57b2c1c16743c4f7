//! Clients that lease their work.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_leases_keeps_and_ends_jobs_over_http() {
    let site = Site::new("");
    let key = site.key("acme", "jobs:work");
    let writer = site.key("acme", "jobs:write,jobs:read");
    let foreign = site.submit("embed", json!({ "of": "default" })).await;
    let why = |job: Value| job["why_waiting"].as_str().map(str::to_owned);
    assert!(why(site.job(&foreign).await).unwrap().contains("does not run the kind embed"));
    let nothing = site.lease(&key, json!({ "worker": "c", "kinds": ["embed"], "max": 10 })).await;
    assert_eq!(nothing, Vec::<Value>::new(), "another owner's");

    // A client that waits is woken by what is submitted.
    let request = json!({ "worker": "c", "kinds": ["embed"], "max": 10, "wait": "60s", "lease": 30 });
    let began = std::time::Instant::now();
    let (held, submitted) = tokio::join!(site.lease(&key, request), async {
        site.post(Some(&writer), "/v1/jobs", json!({ "kind": "embed", "params": { "n": 1 } })).await
    });
    assert!(began.elapsed() < Duration::from_secs(45));
    let [leased] = &held[..] else { panic!("{held:?}") };
    let id = submitted.1["id"].as_str().unwrap();
    assert_eq!(
        (&leased["id"], &leased["params"], &leased["attempt"]),
        (&json!(id), &json!({ "n": 1 }), &json!(1))
    );
    let at = |verb: &str| format!("/v1/leases/{id}/{verb}");
    let token = &leased["token"];
    let (status, beat) =
        site.post(Some(&key), &at("heartbeat"), json!({ "token": token, "lease": "60s" })).await;
    assert_eq!((status, beat), (200, json!({ "state": "running", "cancel_requested": false })));
    let stage = json!({ "token": token, "stage": "parse", "output": { "pages": 3 }, "seconds": 0.5 });
    assert_eq!(site.post(Some(&key), &at("checkpoint"), stage).await.0, 200);
    let back = site.post(Some(&key), &at("release"), json!({ "token": token })).await;
    assert_eq!(back.1["state"], "pending");
    let refused = site.post(Some(&key), &at("heartbeat"), json!({ "token": token })).await;
    assert_eq!((refused.0, &refused.1["code"]), (409, &json!("lease-lost")));

    let held = site.lease(&key, json!({ "worker": "c", "kinds": ["embed"], "wait": 60 })).await;
    assert_eq!(held[0]["attempt"], 1, "given back, no attempt used");
    assert_eq!(held[0]["checkpoints"], json!({ "parse": { "pages": 3 } }));
    site.admin(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    let beat = site.post(Some(&key), &at("heartbeat"), json!({ "token": held[0]["token"] })).await;
    assert_eq!(beat.1["cancel_requested"], true);
    let done =
        site.post(Some(&key), &at("complete"), json!({ "token": held[0]["token"], "result": 1 })).await;
    assert_eq!(done.1["state"], "cancelled");

    let workers = site.get("/v1/workers").await;
    assert!(workers.to_string().contains("pull:c"), "{workers}");
    assert_eq!(why(site.job(&foreign).await), None, "somebody runs the kind now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_is_reaped_and_its_word_counts_no_more() {
    let site = Site::new("[kind.embed]\nattempts = 2\nbackoff = \"10ms..20ms\"\n");
    let key = site.server.key.clone();
    let id = site.submit("embed", json!({})).await;
    let request = json!({ "worker": "c", "kinds": ["embed"], "wait": 60, "lease": 1 });
    let first = site.lease(&key, request.clone()).await;
    let second = site.lease(&key, request.clone()).await;
    assert_eq!((&first[0]["attempt"], &second[0]["attempt"]), (&json!(1), &json!(2)));
    let complete = json!({ "token": first[0]["token"], "result": "zombie" });
    let refused = site.admin(&format!("/v1/leases/{id}/complete"), complete).await;
    assert_eq!((refused.0, &refused.1["code"]), (409, &json!("lease-lost")));
    let job = site.job_when(&id, "failed").await;
    assert_eq!(job["failure"]["code"], "worker-lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_reports_go_in_one_call_and_each_has_its_answer() {
    let site = Site::new("");
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(site.submit("embed", json!({})).await);
    }
    let mut held = Vec::new();
    while held.len() < 3 {
        held.extend(
            site.lease(&site.server.key, json!({ "worker": "c", "kinds": ["embed"], "max": 10, "wait": 60 }))
                .await,
        );
    }
    let item = |place: usize, verb: &str, more: Value| {
        let mut item = json!({ "job": held[place]["id"], "token": held[place]["token"], "do": verb });
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        item
    };
    let items = [
        item(0, "complete", json!({ "result": [1] })),
        item(1, "fail", json!({ "code": "broken", "class": "terminal", "message": "It is broken." })),
        item(2, "heartbeat", json!({})),
        item(2, "fail", json!({ "token": uuid::Uuid::new_v4() })),
        item(2, "dance", json!({})),
    ];
    let (status, answer) = site.admin("/v1/leases/batch", json!({ "items": items })).await;
    assert_eq!(status, 200, "{answer}");
    let told: Vec<_> = answer["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            (item["status"].as_u64().unwrap(), item["state"].as_str().or(item["code"].as_str()).unwrap())
        })
        .collect();
    assert_eq!(
        told,
        [(200, "succeeded"), (200, "failed"), (200, "running"), (409, "lease-lost"), (422, "body-invalid")]
    );
    assert_eq!(site.job(held[1]["id"].as_str().unwrap()).await["failure"]["code"], "broken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_moves_between_all_who_may_do_it_by_configuration_alone() {
    let kind = "context.process";
    let mut service = Service::start().await;
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let worker = |kinds: &str| format!("[worker]\nkinds = {kinds}\n");
    let push = |more: &str| worker("[\"*\"]") + &handler(kind, &service.url, more);
    let nobody = worker("[\"nothing\"]");
    let params = json!({ "text": "Relays carry the commission from post to post." });
    let mut ids: Vec<String> = Vec::new();

    // Each time with jobs that were accepted, or are on their way, under what was before.
    let site = Site::on(folder.clone(), &nobody);
    ids.push(site.submit(kind, params.clone()).await);
    drop(site);

    // In this process.
    let site = Site::on(folder.clone(), &worker("[\"*\"]"));
    ids.push(site.submit(kind, params.clone()).await);
    for id in &ids {
        site.job_when(id, "succeeded").await;
    }
    drop(site);
    let site = Site::on(folder.clone(), &nobody);
    ids.push(site.submit(kind, params.clone()).await);
    drop(site);

    // By a service that answers at once.
    (0..2).for_each(|_| service.answer(200, "{\"by\":\"push\"}"));
    let configuration = push("");
    let site = Site::on(folder.clone(), &configuration);
    ids.push(site.submit(kind, params.clone()).await);
    for id in &ids[2..] {
        site.job_when(id, "succeeded").await;
        assert_eq!(site.get(&format!("/v1/jobs/{id}/result")).await["by"], "push");
        service.asked().await;
    }

    // By the same that now answers later, and has two of them while nobody works here any more.
    for _ in 0..2 {
        ids.push(site.submit(kind, params.clone()).await);
    }
    let later = [service.asked().await, service.asked().await];
    for id in &ids[4..] {
        until("it is handed over", || async {
            site.job(id).await["timeline"].as_array().unwrap().len() == 3
        })
        .await;
    }
    drop(site);

    // By whoever asks for it.
    let site = Site::on(folder, &nobody);
    ids.push(site.submit(kind, params).await);
    let held =
        site.lease(&site.server.key, json!({ "worker": "c", "kinds": [kind], "max": 10, "wait": 60 })).await;
    let [held] = &held[..] else { panic!("only what nobody has: {held:?}") };
    assert_eq!(held["id"], json!(ids[6]));
    let complete = json!({ "token": held["token"], "result": { "by": "pull" } });
    assert_eq!(site.admin(&format!("/v1/leases/{}/complete", ids[6]), complete).await.0, 200);
    for asked in later {
        let path = asked.header("mapae-callback").split_once("/v1").unwrap().1.to_owned();
        assert_eq!(site.post(None, &format!("/v1{path}"), json!({ "result": { "by": "202" } })).await.0, 200);
    }
    for id in &ids {
        let job = site.job(id).await;
        assert_eq!((&job["state"], &job["attempt"]), (&json!("succeeded"), &json!(1)), "{job}");
    }
    assert!(service.asked.try_recv().is_err());
}
