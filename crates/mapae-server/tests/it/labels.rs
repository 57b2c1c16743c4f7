//! Labelled examples: taught, corrected, told how well they teach, and nobody's but their owner's.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use super::binary::run;
use super::site::{Answer, Site, request};

const FRUIT: [&str; 6] = [
    "붉은 사과 한 상자",
    "잘 익은 사과와 배",
    "배 두 상자를 샀다",
    "사과 주스",
    "배와 사과를 팔다",
    "사과 파이",
];
const METAL: [&str; 6] = [
    "굵은 철근 두 톤",
    "철근과 구리 전선",
    "구리 가격이 올랐다",
    "철근 공장",
    "구리와 철근을 팔다",
    "구리 파이프",
];

fn lines() -> String {
    let of =
        |label: &'static str| move |text: &&str| format!("{}\n", json!({ "label": label, "text": text }));
    FRUIT.iter().map(of("fruit")).chain(METAL.iter().map(of("metal"))).collect()
}

async fn teach(site: &Site, key: &str, set: &str, lines: &str) -> Answer {
    let request = request(Method::POST, key, &format!("/v1/labels/{set}"));
    let request = request.header("content-type", "application/x-ndjson");
    site.answer(request.body(Body::from(lines.to_owned())).unwrap()).await
}

async fn delete(site: &Site, key: &str, path: &str) -> Answer {
    site.answer(request(Method::DELETE, key, path).body(Body::empty()).unwrap()).await
}

async fn pages(site: &Site, key: &str, set: &str) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = site.get(key, &format!("/v1/labels/{set}?limit=5{cursor}")).await.json();
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

#[tokio::test]
async fn a_set_is_taught_corrected_and_tells_how_well_it_teaches() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    assert_eq!(site.get(&key, "/v1/labels/goods/report").await.problem(), "labels-not-found");
    let set = teach(&site, &key, "goods", &lines()).await.json();
    assert_eq!(
        (set["name"].as_str(), &set["examples"], &set["labels"]),
        (Some("goods"), &json!(12), &json!(2))
    );

    let report = site.get(&key, "/v1/labels/goods/report").await.json();
    assert_eq!(
        (report["by"].as_str(), &report["labels"]),
        (Some("model"), &json!(["fruit", "metal"])),
        "{report}"
    );
    let validation = &report["validation"];
    assert_eq!(validation["examples"], 12);
    assert!(validation["accuracy"].as_f64().unwrap() > 0.6, "{report}");
    let labels = validation["labels"].as_array().unwrap();
    assert_eq!((labels.len(), &labels[0]["label"], &labels[0]["examples"]), (2, &json!("fruit"), &json!(6)));

    // A result that was wrong: the job's own text, under the label it should have had.
    let job = site.submit(&key).await;
    let body = json!({ "items": [{ "label": "nuts", "job": job.to_string() }] });
    assert_eq!(site.post(&key, "/v1/labels/goods", body.clone()).await.problem(), "job-not-finished");
    site.succeed(json!({ "text": "호두와 잣" })).await;
    assert_eq!(site.post(&key, "/v1/labels/goods", body).await.json()["labels"], 3);
    let again = site.get(&key, "/v1/labels/goods/report").await.json();
    assert_eq!((again["by"].as_str(), &again["validation"]), (Some("examples"), &Value::Null), "{again}");

    let items = pages(&site, &key, "goods").await;
    assert_eq!(items.len(), 13);
    let nuts = items.iter().find(|item| item["label"] == "nuts").unwrap();
    assert_eq!(nuts["text"], "호두와 잣");
    let path = format!("/v1/labels/goods/{}", nuts["id"].as_str().unwrap());
    assert_eq!(delete(&site, &key, &path).await.status, 204);
    assert_eq!(delete(&site, &key, &path).await.problem(), "labels-not-found");
    assert_eq!(site.get(&key, "/v1/labels/goods/report").await.json()["by"], "model");
    assert_eq!(delete(&site, &key, "/v1/labels/goods").await.status, 204);
    assert_eq!(site.get(&key, "/v1/labels").await.json()["items"], json!([]));
}

#[tokio::test]
async fn one_owners_labels_are_nothing_to_another() {
    let site = Site::new().await;
    let rights = ["jobs:write", "jobs:read"];
    let (acme, other) = (site.key(Some("acme"), &rights).await, site.key(Some("other"), &rights).await);
    teach(&site, &acme, "goods", &lines()).await;
    // Learnt already, so that it would be at hand for whoever asks.
    assert_eq!(site.get(&acme, "/v1/labels/goods/report").await.json()["by"], "model");
    for path in ["/v1/labels/goods", "/v1/labels/goods/report"] {
        assert_eq!(site.get(&other, path).await.problem(), "labels-not-found");
    }
    assert_eq!(site.get(&other, "/v1/labels").await.json()["items"], json!([]));
    assert_eq!(delete(&site, &other, "/v1/labels/goods").await.problem(), "labels-not-found");
    assert_eq!(site.get(&other, "/v1/labels?owner=acme").await.problem(), "forbidden");
    let mine = json!({ "items": [
        { "label": "a", "description": "one thing" }, { "label": "b", "description": "another thing" },
    ] });
    assert_eq!(site.post(&other, "/v1/labels/goods", mine).await.status, 200);
    let report = site.get(&other, "/v1/labels/goods/report").await.json();
    assert_eq!((report["by"].as_str(), &report["labels"]), (Some("label-text"), &json!(["a", "b"])));

    // Nor is another's job anything to be taught from.
    let job = site.submit(&acme).await;
    site.succeed(json!({ "text": "secret" })).await;
    let item = json!({ "items": [{ "label": "a", "job": job.to_string() }] });
    assert_eq!(site.post(&other, "/v1/labels/goods", item).await.problem(), "job-not-found");
    let admin = site.admin().await;
    assert_eq!(site.get(&admin, "/v1/labels").await.json()["items"], json!([]), "those of `default`");
    assert_eq!(site.get(&admin, "/v1/labels?owner=acme").await.json()["items"][0]["examples"], 12);
}

#[tokio::test]
async fn what_teaches_nothing_is_refused_and_nothing_of_it_is_kept() {
    let site = Site::new().await;
    let key = site.key(Some("acme"), &["jobs:write", "jobs:read"]).await;
    let good = r#"{"label":"a","text":"b"}"#;
    for (line, status, code) in [
        (r#"{"label":"","text":"x"}"#, 422, "body-invalid"),
        (r#"{"label":"a\u0007","text":"x"}"#, 422, "body-invalid"),
        (r#"{"label":"a","text":"  "}"#, 422, "body-invalid"),
        (r#"{"label":"a"}"#, 422, "body-invalid"),
        (r#"{"label":"a","text":"x","description":"y"}"#, 422, "body-invalid"),
        (r#"{"label":"a","text":"x","colour":1}"#, 422, "body-invalid"),
        (r#"{"label":"a","job":"7"}"#, 422, "body-invalid"),
        ("{", 400, "json-invalid"),
    ] {
        let answer = teach(&site, &key, "goods", &format!("{good}\n\n{line}\n")).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, code), "{line}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("Item 2") || detail.contains("Line 3"), "{detail}");
    }
    assert_eq!(teach(&site, &key, "goods", "").await.problem(), "body-invalid");
    assert_eq!(teach(&site, &key, "a%20b", good).await.problem(), "labels-not-found");
    // More than a set may have are not even looked at: the first would be refused for something else.
    let labels = std::iter::once("").chain(std::iter::repeat("a")).take(2_001).enumerate();
    let many: String =
        labels.map(|(n, a)| format!("{}\n", json!({ "label": a, "text": n.to_string() }))).collect();
    assert_eq!(teach(&site, &key, "goods", &many).await.problem(), "label-set-full");
    assert_eq!(site.get(&key, "/v1/labels").await.json()["items"], json!([]));
    teach(&site, &key, "goods", good).await;
    assert_eq!(site.get(&key, "/v1/labels/goods/report").await.problem(), "labels-not-enough");
    let reader = site.key(Some("acme"), &["jobs:read"]).await;
    assert_eq!(teach(&site, &reader, "goods", good).await.problem(), "forbidden");
}

#[test]
fn documents_are_classified_by_what_was_imported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("goods.jsonl"), lines()).unwrap();
    std::fs::write(path.join("list.txt"), "구리와 철근을 세 톤 샀다").unwrap();
    let analyze = ["analyze", "--json", "--labels", "goods", "list.txt"];
    assert_eq!(run(path, &analyze).trouble(), "labels-not-found");
    let imported = run(path, &["labels", "import", "--set", "goods", "goods.jsonl", "--output", "json"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&imported).unwrap()[0]["examples"], 12);
    let document: Value = serde_json::from_str(&run(path, &analyze).ok()).unwrap();
    let class = &document["class"];
    assert_eq!((class["label"].as_str(), class["by"].as_str()), (Some("metal"), Some("model")), "{class}");
    assert!(class["margin"].as_f64().unwrap() > 0.0 && class["scores"]["fruit"].is_number(), "{class}");

    let report = run(path, &["labels", "report", "--set", "goods"]).ok();
    assert!(
        report.contains("2 labels, 12 examples; decided by model") && report.contains("RECALL"),
        "{report}"
    );
    let shown = run(path, &["labels", "show", "--set", "goods", "--output", "jsonl"]).ok();
    assert_eq!(shown.lines().count(), 12);
    std::fs::write(path.join("bad.jsonl"), "{\"label\":\"a\",\"text\":\"b\"}\nnone\n").unwrap();
    let bad = run(path, &["labels", "import", "--set", "other", "bad.jsonl"]);
    assert!(bad.trouble() == "labels-file-invalid" && bad.err.contains("Line 2"), "{}", bad.err);
    assert_eq!(run(path, &["labels", "delete", "--set", "goods"]).trouble(), "not-confirmed");
    run(path, &["labels", "delete", "--set", "goods", "--yes"]).ok();
    assert_eq!(run(path, &["labels", "list", "--output", "id"]).ok(), "");
}
