//! Bad requests: each a typed problem, whoever found it.

use axum::body::Body;
use axum::http::Method;
use axum::response::IntoResponse;
use mapae_server::api::problem::{Problem, REFUSALS};
use serde_json::json;

use super::site::{Site, request};

#[tokio::test]
async fn whatever_is_wrong_with_a_body_is_told_by_its_own_code() {
    let site = Site::new().await;
    let key = site.admin().await;
    let big = format!(r#"{{"kind":"work","params":"{}"}}"#, "x".repeat(300 * 1024));
    let huge = format!(r#"{{"kind":"work","params":"{}"}}"#, "x".repeat(2 << 20));
    let deep = format!(r#"{{"kind":"work","params":{}}}"#, "[".repeat(1_000_000 / 2));
    let cases = [
        ("application/json", "", 400, "json-invalid"),
        ("application/json", "{\"kind\":", 400, "json-invalid"),
        ("application/json", "{\"kind\":\"\u{0}\"}", 400, "json-invalid"),
        ("application/json", deep.as_str(), 400, "json-too-deep"),
        ("application/json", huge.as_str(), 413, "body-too-large"),
        ("application/json", big.as_str(), 422, "params-too-large"),
        ("application/json", "[]", 422, "body-invalid"),
        ("application/json", "{}", 422, "body-invalid"),
        ("application/json", r#"{"kind":"work","colour":1}"#, 422, "body-invalid"),
        ("application/json", r#"{"kind":"work","params":{"a":"\u0000"}}"#, 422, "body-invalid"),
        ("application/json", r#"{"kind":"work","priority":10}"#, 422, "body-invalid"),
        ("application/json", r#"{"kind":"work","priority":-1}"#, 422, "body-invalid"),
        ("application/json", r#"{"kind":"../work"}"#, 422, "body-invalid"),
        ("application/json", r#"{"kind":"work","run_at":"tomorrow"}"#, 422, "body-invalid"),
        ("application/json", r#"{"kind":"work","owner":"a b"}"#, 422, "body-invalid"),
        (
            "application/json",
            r#"{"kind":"work","callback":{"url":"http://x"}}"#,
            422,
            "callbacks-not-configured",
        ),
        ("text/plain", r#"{"kind":"work"}"#, 415, "media-type-unsupported"),
        ("", r#"{"kind":"work"}"#, 415, "media-type-unsupported"),
    ];
    for (media_type, body, status, code) in cases {
        let mut request = request(Method::POST, &key, "/v1/jobs");
        if !media_type.is_empty() {
            request = request.header("content-type", media_type);
        }
        let answer = site.answer(request.body(Body::from(body.to_owned())).unwrap()).await;
        let start = &body[..body.len().min(60)];
        assert_eq!((answer.status, answer.problem().as_str()), (status, code), "{start}");
    }
    let jobs = site.get(&key, "/v1/jobs").await.json();
    assert_eq!(jobs["items"], json!([]), "nothing was accepted");
}

#[tokio::test]
async fn queries_and_cursors_from_elsewhere_are_refused() {
    let site = Site::new().await;
    let key = site.admin().await;
    let cases = [
        ("state=done", "query-invalid"),
        ("kind=No+Kind", "query-invalid"),
        ("owner=a+b", "query-invalid"),
        ("limit=0", "query-invalid"),
        ("limit=201", "query-invalid"),
        ("limit=many", "query-invalid"),
        ("colour=red", "query-invalid"),
        ("state=failed&state=failed", "query-invalid"),
        ("cursor=", "cursor-invalid"),
        ("cursor=0-7", "cursor-invalid"),
        ("cursor=eyJpZCI6MX0%3D", "cursor-invalid"),
        ("cursor=j019a", "cursor-invalid"),
        ("cursor=jzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "cursor-invalid"),
    ];
    for (query, code) in cases {
        let answer = site.get(&key, &format!("/v1/jobs?{query}")).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, code), "{query}");
    }
    assert_eq!(site.get(&key, "/v1/dead?state=failed").await.problem(), "query-invalid");
    assert_eq!(site.get(&key, "/v1/events?after=x").await.problem(), "event-id-invalid");
}

#[tokio::test]
async fn what_the_framework_refuses_by_itself_is_a_problem_too() {
    let site = Site::new().await;
    let key = site.admin().await;
    for path in
        ["/nothing", "/v1", "/v1/jobs/", "/v1/nothing", "/v1/jobs/a/b/c", "//v1/jobs", "/v1/../etc/passwd"]
    {
        assert_eq!(site.get(&key, path).await.problem(), "route-not-found", "{path}");
    }
    let put = request(Method::PUT, &key, "/v1/jobs").body(Body::empty()).unwrap();
    let refused = site.answer(put).await;
    assert_eq!((refused.status, refused.problem().as_str()), (405, "method-not-allowed"));
    let mut allowed: Vec<&str> = refused.header("allow").split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    let options = request(Method::OPTIONS, &key, "/v1/jobs").header("origin", "https://elsewhere.example");
    let answer = site.answer(options.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.header("access-control-allow-origin"), "", "nobody else's page may read answers");
}

#[tokio::test]
async fn a_korean_client_is_answered_in_korean_under_the_same_code() {
    let site = Site::new().await;
    let ask = async |language: &str| {
        let request = request(Method::GET, "", "/v1/jobs").header("accept-language", language);
        site.answer(request.body(Body::empty()).unwrap()).await
    };
    let (korean, english) = (ask("ko-KR,ko;q=0.9,en;q=0.5").await, ask("en").await);
    assert_eq!(korean.problem(), english.problem());
    assert_eq!(korean.header("content-language"), "ko");
    assert_eq!(korean.json()["title"], "유효한 키가 없습니다.");
    assert_ne!(korean.json()["help"], english.json()["help"]);
}

#[test]
fn a_full_disk_is_507_and_an_unreachable_database_503_never_an_acceptance() {
    use mapae::store::contract::StoreError;
    let error = || Box::new(std::io::Error::other("x"));
    let cases = [
        (StoreError::Full(error()), 507),
        (StoreError::Unavailable(error()), 503),
        (StoreError::Broken(error()), 500),
    ];
    for (error, status) in cases {
        let response = Problem::from(error).into_response();
        assert_eq!(response.status().as_u16(), status);
    }
    assert!(REFUSALS.iter().any(|refusal| refusal.status == 507));
}
