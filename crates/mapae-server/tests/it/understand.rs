//! What is understood of documents and texts on a machine that has no packs of models.

use std::io::{Read, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::binary::{Server, run};
use super::site::PATIENCE;

const QUESTIONS: &str = "회원 안내\n\nQ: 비밀번호는 어떻게 바꾸나요?\nA: 설정에서 보안을 고르고 새 비밀번호를 두 번 적습니다.\n\n\
                         Q: 회비는 언제 내나요?\nA: 회비는 매월 첫째 날에 냅니다.\n";

/// The characters of a text that a part of the result points at.
fn at(text: &str, range: &Value) -> String {
    let end = |i: usize| usize::try_from(range[i].as_u64().unwrap()).unwrap();
    text.chars().skip(end(0)).take(end(1) - end(0)).collect()
}

fn codes(warnings: &Value) -> Vec<&str> {
    warnings.as_array().unwrap().iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

fn analysed(path: &Path, file: &str) -> Value {
    serde_json::from_str(&run(path, &["analyze", "--json", file]).ok()).unwrap()
}

#[test]
fn a_document_has_a_class_keywords_and_intents_without_packs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("faq.txt"), QUESTIONS).unwrap();
    let document = analysed(folder.path(), "faq.txt");

    let class = &document["class"];
    assert_eq!((class["label"].as_str(), class["by"].as_str()), (Some("faq"), Some("label-text")));
    let scores: f64 =
        class["scores"].as_object().unwrap().values().map(|score| score.as_f64().unwrap()).sum();
    assert!((scores - 1.0).abs() < 1e-3 && class["unsure"].is_boolean(), "{class}");

    let text = document["text"].as_str().unwrap();
    let keywords = document["keywords"].as_array().unwrap();
    assert!(keywords.iter().any(|keyword| keyword["text"] == "비밀번호"), "{keywords:?}");
    for keyword in keywords {
        assert_eq!(at(text, &keyword["at"]), keyword["text"].as_str().unwrap());
    }

    let intents = document["intents"].as_array().unwrap();
    assert_eq!(intents.len(), 2, "{intents:?}");
    assert_eq!(intents[0]["utterances"], json!(["비밀번호는 어떻게 바꾸나요?"]));
    assert_eq!(intents[0]["origin"], "extractive");
    for intent in intents {
        assert_eq!(at(text, &intent["quote"]), intent["answer"].as_str().unwrap());
    }

    assert_eq!(codes(&document["warnings"]), ["models-missing"]);
    let stages = document["stages"].as_array().unwrap().iter();
    let names: Vec<&str> = stages.map(|stage| stage["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["convert", "tables", "classify", "keywords", "intents"]);
}

#[test]
fn a_table_of_questions_becomes_intents_for_a_chatbot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let table =
        "번호,질문,답변\n1,회비는 언제 내나요?,\"매월 첫째 날, 자동으로 냅니다.\"\n2,탈퇴,설정에서 합니다.\n";
    std::fs::write(path.join("faq.csv"), table).unwrap();
    let analyze = ["analyze", "faq.csv", "--json", "--out", "out", "--export", "csv,rasa,dialogflow"];
    let document: Value = serde_json::from_str(&run(path, &analyze).ok()).unwrap();
    let intents = document["intents"].as_array().unwrap();
    assert_eq!(intents.len(), 2, "{intents:?}");
    assert_eq!(intents[0]["utterances"], json!(["회비는 언제 내나요?"]));
    assert_eq!(intents[0]["answer"], "매월 첫째 날, 자동으로 냅니다.");
    assert_eq!(intents[1]["name"], "탈퇴");
    let text = document["text"].as_str().unwrap();
    for intent in intents {
        assert_eq!(at(text, &intent["quote"]), intent["answer"].as_str().unwrap());
    }
    let exported = std::fs::read_to_string(path.join("out/faq.csv/intents.csv")).unwrap();
    assert!(exported.contains("\r\n탈퇴,탈퇴,설정에서 합니다.,extractive,\r\n"), "{exported}");
    for name in ["intents-rasa.zip", "intents-dialogflow.zip"] {
        assert!(std::fs::read(path.join("out/faq.csv").join(name)).unwrap().starts_with(b"PK"), "{name}");
    }
    assert_eq!(run(path, &["analyze", "faq.csv", "--export", "yaml"]).code, 2);
}

/// A server of OpenAI's chat API that gives this answer to whatever it is asked.
fn provider(answer: &Value) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let choice = json!({ "message": { "content": answer.to_string() }, "finish_reason": "stop" });
    let body = json!({ "choices": [choice] }).to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = Vec::new();
            let whole = |asked: &[u8]| {
                let text = String::from_utf8_lossy(asked).into_owned();
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
                body.is_some_and(|body| serde_json::from_str::<Value>(&body).is_ok())
            };
            let mut part = [0; 4096];
            while !whole(&asked) {
                let read = stream.read(&mut part).unwrap();
                assert!(read > 0, "the request is whole");
                asked.extend_from_slice(&part[..read]);
            }
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn a_provider_says_what_may_be_asked_and_the_document_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let text = "# 회비\n\n회비는 매월\n첫째 날에 냅니다. 문의는 010-1234-5678 로 합니다.\n\nQ: 탈퇴는 어떻게 하나요?\nA: 설정에서 합니다.\n";
    std::fs::write(path.join("a.txt"), text).unwrap();
    let intent = |name: &str, says: &[&str], answer: &str| json!({ "name": name, "utterances": says, "answer": answer });
    let url = provider(&json!({ "intents": [
        intent("회비 납부", &["회비는 언제 내나요?", "언제 돈을 내죠?"], "회비는 매월 첫째 날에 냅니다."),
        intent("문의", &["어디로 전화하나요?"], "문의는 [PHONE-1] 로 합니다."),
        intent("금액", &["얼마인가요?"], "회비는 만 원입니다."),
        intent("탈퇴", &["탈퇴는 어떻게 하나요", "그만두고 싶어요"], "설정에서 합니다."),
    ] }));
    let config = format!(
        "[ai]\nproviders = [\"a\", \"local\"]\n[ai.provider.a]\nurl = \"{url}\"\nmodel = \"m\"\nkey = \"sk-1\"\n"
    );
    std::fs::write(path.join("mapae.toml"), config).unwrap();
    let document = analysed(path, "a.txt");
    let text = document["text"].as_str().unwrap();
    let intents = document["intents"].as_array().unwrap();
    let shown: Vec<_> =
        intents.iter().map(|intent| (&intent["origin"], at(text, &intent["quote"]))).collect();
    let quotes = ["회비는 매월\n첫째 날에 냅니다.", "문의는 010-1234-5678 로 합니다.", "설정에서 합니다."];
    let origins = ["provider", "provider", "extractive"].map(|origin| json!(origin));
    let expected: Vec<_> = origins.iter().zip(quotes.map(str::to_owned)).collect();
    assert_eq!(shown, expected, "{intents:?}");
    assert_eq!(intents[2]["utterances"], json!(["탈퇴는 어떻게 하나요?", "그만두고 싶어요"]));
    assert!(codes(&document["warnings"]).contains(&"intents-dropped"), "{}", document["warnings"]);

    let printed = run(path, &["config", "print"]).ok();
    assert!(!printed.contains("sk-1") && printed.contains("key = \"***\""), "{printed}");
    let asked = run(path, &["doctor", "--providers"]);
    assert!(asked.out.contains("provider a"), "{}", asked.out);
}

#[test]
fn tables_and_the_class_of_a_document_do_not_get_into_each_others_way() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/budget-2026.pdf");
    let document = analysed(folder.path(), sample.to_str().unwrap());
    assert_eq!(
        (document["class"]["label"].as_str(), document["language"].as_str()),
        (Some("budget"), Some("ko"))
    );
    assert_eq!(document["tables"].as_array().unwrap().len(), 2);
    assert!(!document["keywords"].as_array().unwrap().is_empty());
}

#[test]
fn a_text_has_keywords_and_says_why_it_has_no_embedding() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let server = Server::dev(path, &[]);
    let submit = |params: &Value| {
        let params = params.to_string();
        let arguments = ["submit", "context.process", "--params", &params, "--wait", "--output", "json"];
        server.run(path, &arguments)
    };
    let text = "메시지 큐를 쓰면 작업이 남는다. 그래서 메시지 큐를 쓴다.";
    for (params, text) in [
        (json!({ "text": text }), text.to_owned()),
        (
            json!({ "record": { "body": text, "title": "메시지 큐", "year": 2026 } }),
            format!("{text}\n\n메시지 큐"),
        ),
    ] {
        let job: Value = serde_json::from_str(&submit(&params).ok()).unwrap();
        assert_eq!(job["state"], "succeeded");
        let result = result(&server, &job);
        let keywords = result["keywords"].as_array().unwrap();
        assert!(keywords.iter().any(|keyword| keyword["text"] == "메시지 큐"), "{keywords:?}");
        for keyword in keywords {
            assert_eq!(at(&text, &keyword["at"]), keyword["text"].as_str().unwrap());
        }
        assert_eq!(result["embedding"], Value::Null);
        assert_eq!(codes(&result["warnings"]), ["models-missing"]);
        assert!(result["warnings"][0]["message"].as_str().unwrap().contains("no embedding"), "{result}");
    }

    let metrics = body(&server, "/metrics");
    for line in [
        "mapae_ai_requests_total{provider=\"local\",outcome=\"ok\"} 2",
        "mapae_ai_seconds_count{provider=\"local\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let wrong = submit(&json!({ "txt": text }));
    assert!(wrong.code == 1 && wrong.out.contains("params-invalid"), "{}", wrong.out);
    assert!(!wrong.out.contains("메시지"), "a failure shows nothing of the text");
}

/// What a job gave, as its link says.
fn result(server: &Server, job: &Value) -> Value {
    serde_json::from_str(&body(server, job["links"]["result"].as_str().unwrap())).unwrap()
}

pub(crate) fn body(server: &Server, path: &str) -> String {
    let url = format!("{}{path}", server.url);
    // Fails where another test was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let request = reqwest::Client::new().get(url).bearer_auth(&server.key).timeout(PATIENCE);
        request.send().await.unwrap().text().await.unwrap()
    })
}
