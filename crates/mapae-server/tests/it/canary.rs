//! What customers entrust to the program is told to nobody: words that stand in every place where content can
//! stand, sent through success and through every failure, at the most talkative level.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::binary::mapae;
use super::site::PATIENCE;

/// One word for each place. None of them may be seen again outside of what its owner asks for.
const FILE_NAME: &str = "canaryname";
const CELL: &str = "canarycell";
const PARAM: &str = "canaryparam";
const METADATA: &str = "canarymetadata";
const HEADER: &str = "canaryheader";
const QUERY: &str = "canaryquery";
const ANSWER: &str = "canaryanswer";
const ALL: &str = "canary";

/// Answers as its path says, always with a word of content.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = head(&mut stream);
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let (status, body) = match path.as_str() {
                "/good" => ("200 OK", json!({ "text": ANSWER }).to_string()),
                "/words" => ("200 OK", format!("<html>{ANSWER}</html>")),
                "/failed" => ("500 Internal Server Error", json!({ "detail": ANSWER }).to_string()),
                "/gone" => ("410 Gone", ANSWER.to_owned()),
                "/refused" => ("400 Bad Request", json!({ "code": ANSWER }).to_string()),
                _ => continue, // hangs up
            };
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}")
}

/// Reads a whole request; what comes back is its head.
fn head(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or_default() {
                return head.to_owned();
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&bytes).into_owned(),
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

struct Program {
    child: Child,
    address: String,
    key: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    fn start(folder: &std::path::Path) -> Self {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut command = mapae(folder);
        command.env("MAPAE_LOG", "trace").args(["dev", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(out);
        let mut word = |name: &str| loop {
            let line = lines.next().expect("`mapae dev` tells where it is").unwrap();
            if let Some(rest) = line.strip_prefix(name) {
                return rest.trim().trim_start_matches("http://").to_owned();
            }
        };
        let (address, key) = (word("API"), word("key"));
        Self { child, address, key }
    }

    /// The status and the body of the answer.
    fn call(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
             x-note: {HEADER}\r\nuser-agent: {HEADER}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n",
            key = self.key,
            length = body.len(),
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    fn submit(&self, kind: &str) -> String {
        let body = json!({ "kind": kind, "params": { "text": PARAM }, "owner": "acme" }).to_string();
        let (status, body) = self.call("POST", "/v1/jobs", "application/json", body.as_bytes());
        assert_eq!(status, 202, "{body}");
        id(&body)
    }

    fn upload(&self, name: &str, bytes: &[u8]) -> String {
        let path = format!("/v1/documents?name={name}&owner=acme");
        let (status, body) = self.call("POST", &path, "application/octet-stream", bytes);
        assert_eq!(status, 202, "{body}");
        id(&body)
    }

    /// The job, once it has ended.
    fn ended(&self, id: &str) -> Value {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let (_, body) = self.call("GET", &format!("/v1/jobs/{id}"), "text/plain", b"");
            let job: Value = serde_json::from_str(&body).unwrap();
            if !matches!(job["state"].as_str(), Some("pending" | "running")) {
                return job;
            }
            assert!(std::time::Instant::now() < deadline, "it does not end: {}", job["state"]);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn id(body: &str) -> String {
    serde_json::from_str::<Value>(body).unwrap()["id"].as_str().unwrap().to_owned()
}

/// A PDF with a title, which no reader can take further than that.
fn broken_pdf() -> Vec<u8> {
    let text = format!(
        "%PDF-1.7\n1 0 obj\n<< /Title ({METADATA}) /Author ({METADATA}) >>\nendobj\n{CELL}\ntrailer << /Info 1 0 R >>\n"
    );
    text.into_bytes()
}

#[test]
fn no_content_is_in_logs_metrics_events_or_errors() {
    let folder = tempfile::tempdir().unwrap();
    let service = service();
    let ways = ["good", "words", "failed", "gone", "refused", "silent"];
    let handlers = ways.map(|way| {
        format!(
            "[handler.\"work.{way}\"]\nurl = \"{service}/{way}\"\nretry = {{ attempts = 2, backoff = \"10ms..20ms\" }}\n"
        )
    });
    std::fs::write(folder.path().join("mapae.toml"), handlers.concat()).unwrap();
    let program = Program::start(folder.path());

    // What succeeds, and gives its owner what it is asked for.
    let table = format!("head,{CELL}\n{CELL},3\n");
    let good = program.upload(&format!("{FILE_NAME}.csv"), table.as_bytes());
    assert_eq!(program.ended(&good)["state"], "succeeded");
    let (status, result) = program.call("GET", &format!("/v1/jobs/{good}/result"), "text/plain", b"");
    assert!(status == 200 && result.contains(CELL), "the owner gets the content: {status}");
    assert_eq!(program.ended(&program.submit("work.good"))["state"], "succeeded");

    // What fails, in each way there is.
    let failing = ways[1..].iter().map(|way| program.submit(&format!("work.{way}")));
    let failing: Vec<String> = failing
        .chain([
            program.upload(&format!("{FILE_NAME}.pdf"), &broken_pdf()),
            program.upload(&format!("{FILE_NAME}.xlsx"), format!("PK\u{3}\u{4}{CELL}").as_bytes()),
            program.upload(FILE_NAME, CELL.as_bytes()),
        ])
        .collect();
    let mut told = String::new();
    for id in &failing {
        let job = program.ended(id);
        assert_ne!(job["state"], "succeeded", "{id} was to fail");
        told += &job["failure"].to_string();
        let events = program.call("GET", &format!("/v1/jobs/{id}/events"), "text/plain", b"");
        told += &events.1;
    }

    // What is refused at the door.
    let refusals = [
        ("POST", "/v1/jobs", "application/json", format!("{{\"kind\": \"work.good\", {PARAM}")),
        (
            "POST",
            "/v1/jobs",
            "application/json",
            json!({ "kind": "work.good", "params": 1, QUERY: 2 }).to_string(),
        ),
        ("POST", "/v1/jobs", "application/json", json!({ "kind": "work.good", "run_at": PARAM }).to_string()),
        ("POST", "/v1/jobs", PARAM, "{}".into()),
        ("POST", "/v1/documents", "multipart/form-data", PARAM.into()),
        ("POST", "/v1/documents?kind=work.good&params=canaryquery", "application/octet-stream", CELL.into()),
        ("GET", "/v1/jobs?state=canaryquery", "text/plain", String::new()),
        ("GET", "/v1/jobs?cursor=canaryquery", "text/plain", String::new()),
        ("GET", "/v1/jobs/canaryquery", "text/plain", String::new()),
        ("GET", "/canaryquery", "text/plain", String::new()),
    ];
    for (method, path, kind, body) in refusals {
        let (status, problem) = program.call(method, path, kind, body.as_bytes());
        assert!((400..500).contains(&status), "{method} {path}: {status}");
        // A query and the name of a field may be shown to whoever wrote them; content may not.
        assert!(!problem.replace(QUERY, "").contains(ALL), "{method} {path}: {problem}");
    }
    let (_, metrics) = program.call("GET", "/metrics", "text/plain", b"");
    assert!(metrics.contains("mapae_jobs_finished_total"), "these are the metrics");
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("job settled"), "this is the log");
    for (place, text) in [("a failure or an event", told), ("the metrics", metrics), ("the log", log)] {
        let line = text.lines().find(|line| line.contains(ALL));
        assert_eq!(line, None, "{place} tells content");
    }
}
