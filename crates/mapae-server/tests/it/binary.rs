//! The program as it is run: its own process, its exit codes, its output.

mod start;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::site::PATIENCE;

/// The program, in a folder of its own and without this process's environment.
pub(crate) fn mapae(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mapae"));
    command.current_dir(folder).env_clear().env("TMPDIR", folder).stdin(Stdio::null());
    command
}

/// What one run gave.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// The code of the trouble, after checking that it is told whole.
    #[track_caller]
    pub(crate) fn trouble(&self) -> String {
        let line = |name: &str| {
            let found = self.err.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or_else(|| panic!("no {name} in {}", self.err)).to_owned()
        };
        assert!(!line("error: ").is_empty() && !line("help: ").is_empty(), "{}", self.err);
        line("code: ")
    }
}

pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Ran {
    output(mapae(folder).args(arguments))
}

/// Runs it to its end, which comes within the bound or is a fault.
fn output(command: &mut Command) -> Ran {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let read = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            text
        })
    };
    let out = read(Box::new(child.stdout.take().unwrap()));
    let err = read(Box::new(child.stderr.take().unwrap()));
    let code = ended(&mut child);
    Ran { code, out: out.join().unwrap(), err: err.join().unwrap() }
}

/// A running `mapae`, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) key: String,
}

impl Server {
    /// `mapae dev` in this folder, once it is up.
    pub(crate) fn dev(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = mapae(folder);
        command.args(["dev", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut word = |name: &str| loop {
            let line = lines.next().expect("`mapae dev` tells where it is").unwrap();
            if let Some(rest) = line.strip_prefix(name) {
                return rest.trim().to_owned();
            }
        };
        let (url, key) = (word("API"), word("key"));
        Self { child, url, key }
    }

    pub(crate) fn run(&self, folder: &Path, arguments: &[&str]) -> Ran {
        let client = ["--url", &self.url, "--key", &self.key];
        output(mapae(folder).args(client).args(arguments))
    }

    /// Tells it to stop and waits until it has.
    pub(crate) fn stop(mut self) -> i32 {
        signal(&self.child, "TERM");
        ended(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

fn ended(child: &mut Child) -> i32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the process does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a plain HTTP server answers, as status and body; `None` while nobody listens.
fn http(address: &str, path: &str) -> Option<(u16, String)> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text))
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An address at which nobody listens, and nobody else will while the socket is held.
fn nobody() -> (tokio::net::TcpSocket, std::net::SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A running program whose log is read as it comes, killed when dropped.
struct Logged {
    child: Child,
    log: Arc<Mutex<String>>,
    reading: Option<std::thread::JoinHandle<()>>,
}

impl Logged {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let kept = log.clone();
        let reading = std::thread::spawn(move || {
            for line in lines {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line.unwrap());
                kept.push('\n');
            }
        });
        Self { child, log, reading: Some(reading) }
    }

    /// Where it listens, which it chose itself: a port that is free now may be taken by then.
    fn address(&self) -> String {
        let mut address = String::new();
        until("it tells where it listens", || {
            let log = self.log.lock().unwrap();
            let mut told = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let listening = told.find(|told| told["message"] == "listening");
            address = listening.map(|told| told["address"].as_str().unwrap().to_owned()).unwrap_or_default();
            !address.is_empty()
        });
        address
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its exit code and its whole log, once it has ended.
    fn ended(mut self) -> (i32, String) {
        let code = ended(&mut self.child);
        self.reading.take().unwrap().join().unwrap();
        let log = self.log.lock().unwrap().clone();
        (code, log)
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn workbook(folder: &Path, name: &str) {
    std::fs::write(folder.join(name), "이름,수량\n사과,3\n배,-4\n").unwrap();
}

#[test]
fn analyze_writes_results_and_says_by_its_exit_code_how_many_succeeded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    workbook(path, "a.csv");
    std::fs::create_dir(path.join("other")).unwrap();
    workbook(&path.join("other"), "a.csv");
    std::fs::write(path.join("broken.pdf"), "no PDF").unwrap();

    let all = run(path, &["analyze", "a.csv", "other/a.csv", "--out", "out", "--tables", "xlsx"]);
    assert!(all.out.contains("a.csv") && all.out.contains("TABLES"), "{}", all.out);
    assert_eq!(all.code, 0, "{}", all.err);
    let csv = std::fs::read_to_string(path.join("out/a.csv/tables/01.csv")).unwrap();
    assert_eq!(csv, "이름,수량\r\n사과,3\r\n배,-4\r\n");
    assert!(std::fs::read(path.join("out/a.csv/tables.xlsx")).unwrap().starts_with(b"PK"));
    assert!(path.join("out/a.csv-2/document.json").exists(), "two files of one name have two folders");

    let some = run(path, &["analyze", "a.csv", "broken.pdf", "missing.pdf", "--out", "out"]);
    assert_eq!(some.code, 3);
    assert!(some.err.contains("document-damaged") && some.err.contains("file-unreadable"), "{}", some.err);
    assert_eq!(run(path, &["analyze", "broken.pdf"]).code, 1);
    assert_eq!(run(path, &["analyze"]).code, 2);

    let leftovers: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(leftovers.len(), 4, "nothing else is left behind: {leftovers:?}");
}

#[test]
fn bench_measures_beside_the_database_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["--output", "json", "bench", "--jobs", "200", "--concurrency", "8"]);
    let figures: Vec<Value> = serde_json::from_str(&ran.ok()).unwrap();
    let names: Vec<&str> = figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["accept_one", "accept_many", "drain", "start"]);
    assert!(figures[..3].iter().all(|figure| figure["per_second"].as_f64() > Some(0.0)), "{figures:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn tables_lists_what_is_on_a_page_and_draws_it() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/budget-2026.pdf");
    let sample = sample.to_str().unwrap();
    let ran =
        run(folder.path(), &["tables", sample, "--page", "1", "--draw", "page.svg", "--output", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let tables: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((tables[0]["rows"].as_u64(), tables[0]["columns"].as_u64()), (Some(9), Some(5)));
    assert!(std::fs::read_to_string(folder.path().join("page.svg")).unwrap().starts_with("<svg"));
    assert_eq!(run(folder.path(), &["tables", sample, "--page", "9"]).code, 4);
    assert_eq!(run(folder.path(), &["tables", sample, "--draw", "page.png"]).code, 0);
    assert!(std::fs::read(folder.path().join("page.png")).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(run(folder.path(), &["tables", sample, "--draw", "page.gif"]).code, 2);
}

#[test]
fn analyze_prints_one_json_object_a_file_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    workbook(folder.path(), "a.csv");
    std::fs::write(folder.path().join("broken.pdf"), "no PDF").unwrap();
    let ran = run(folder.path(), &["analyze", "--json", "broken.pdf", "a.csv"]);
    assert_eq!(ran.code, 3);
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["source"]["name"], "broken.pdf");
    assert_eq!(lines[0]["failure"]["code"], "document-damaged");
    assert_eq!(lines[1]["format"], "mapae-document/1");
    assert_eq!(lines[1]["source"]["name"], "a.csv");
    assert!(lines[1]["class"]["label"].is_string() && lines[1]["tables"].is_array());
    assert!(!folder.path().join("results").exists(), "--json alone writes no folders");
    let korean = output(mapae(folder.path()).env("LANG", "ko_KR.UTF-8").args(["analyze", "broken.pdf"]));
    assert!(korean.err.contains("문서"));
}

#[test]
fn a_document_goes_through_a_server_and_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    workbook(path, "예산.csv");
    std::fs::write(path.join("broken.pdf"), "no PDF").unwrap();
    let server = Server::dev(path, &[]);

    let done =
        server.run(path, &["submit", "document.analyze", "--file", "예산.csv", "--wait", "--output", "json"]);
    let job: Value = serde_json::from_str(&done.ok()).unwrap();
    assert_eq!(job["state"], "succeeded");
    assert_eq!(job["source"]["name"], "예산.csv");
    let id = job["id"].as_str().unwrap();

    let failed = server.run(path, &["submit", "document.analyze", "--file", "broken.pdf", "--wait"]);
    assert_eq!(failed.code, 1);
    assert!(failed.out.contains("document-damaged"), "{}", failed.out);

    let ready = http(server.url.trim_start_matches("http://"), "/readyz?verbose").unwrap().1;
    assert!(ready.contains(r#"{"name":"document-sandbox","ok":true}"#), "{ready}");

    let ids = server.run(path, &["jobs", "--state", "succeeded", "--output", "id"]).ok();
    assert_eq!(ids, format!("{id}\n"));
    let watched = server.run(path, &["job", "watch", id]).ok();
    let mut told: Vec<&str> = watched.lines().map(|line| line.split("  ").nth(2).unwrap()).collect();
    // One for each stage of the analysis.
    told.dedup();
    assert_eq!(told, ["accepted", "claimed", "stage", "succeeded"]);
    assert!(server.run(path, &["job", "show", id]).ok().contains("예산.csv"));
    assert!(server.run(path, &["workers"]).ok().contains("document.analyze"));
    assert!(server.run(path, &["queue", "show"]).ok().contains("document.analyze"));
    let dead = server.run(path, &["dead", "list", "--output", "id"]).ok();
    assert_eq!(dead.lines().count(), 1);
    let redriven = server.run(path, &["dead", "redrive", dead.trim(), "--dry-run", "--output", "id"]).ok();
    assert_eq!(redriven, dead);
    server.run(path, &["dead", "assign", dead.trim(), "--to", "night shift"]).ok();
    assert!(server.run(path, &["dead", "list"]).ok().contains("night shift"));
    server.run(path, &["dead", "assign", "--all", "--nobody"]).ok();
    assert!(!server.run(path, &["dead", "show", dead.trim()]).ok().contains("night shift"));
    let events = server.run(path, &["events", "list", "--job", id, "--output", "id"]).ok();
    assert_eq!(events.lines().count(), watched.lines().count(), "{events}");
    assert_eq!(server.run(path, &["job", "delete", id, "--yes"]).code, 0);
    assert_eq!(server.run(path, &["job", "show", id]).code, 4);
    assert_eq!(server.stop(), 0, "a server that is told to stop ends well");

    // The same commands without a server read the same database.
    let local = run(path, &["dead", "list", "--output", "id"]).ok();
    assert_eq!(local, dead);
}

#[test]
fn exit_codes_say_what_went_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let server = Server::dev(path, &["--key", "chosen-by-me"]);
    assert_eq!(server.key, "chosen-by-me");
    let missing = "0197aaaa-0000-7000-8000-000000000000";
    let cases: [(&[&str], i32, &str); 5] = [
        (&["job", "show", missing], 4, "job-not-found"),
        (&["job", "show", "../../v1/jobs"], 4, "job-not-found"),
        (&["submit", "No Kind"], 2, "body-invalid"),
        (&["submit", "work", "--params", "{"], 2, "params-invalid"),
        (&["jobs", "--state", "done"], 2, "query-invalid"),
    ];
    for (arguments, code, trouble) in cases {
        let ran = server.run(path, arguments);
        assert_eq!((ran.code, ran.trouble().as_str()), (code, trouble), "{arguments:?}");
    }
    let first = server.run(path, &["submit", "work", "--key", "k", "--param", "a=1", "--output", "id"]);
    let id = first.ok();
    let as_before = ["submit", "work", "--idempotency-key", "k", "--param", "a=1", "--output", "id"];
    assert_eq!(server.run(path, &as_before).ok(), id);
    let own = ["--url", &server.url, "submit", "work", "--api-key", &server.key, "--key", "other"];
    assert_eq!(output(mapae(path).args(own)).code, 0, "the key for the server, at the command");
    let reused = server.run(path, &["submit", "work", "--key", "k", "--param", "a=2"]);
    assert_eq!((reused.code, reused.trouble().as_str()), (5, "idempotency-key-reused"));
    assert_eq!(server.run(path, &["job", "retry", id.trim()]).code, 5);
    let late = server.run(path, &["submit", "nobody.runs.this", "--wait", "--timeout", "100ms"]);
    assert_eq!((late.code, late.trouble().as_str()), (124, "wait-timed-out"));

    let stranger = output(mapae(path).args(["--url", &server.url, "--key", "x", "jobs"]));
    assert_eq!((stranger.code, stranger.trouble().as_str()), (77, "unauthenticated"));
    let (_socket, address) = nobody();
    let unreachable = run(path, &["--url", &format!("http://{address}"), "jobs"]);
    assert_eq!((unreachable.code, unreachable.trouble().as_str()), (69, "server-unreachable"));
    assert_eq!(run(path, &["jobs", "--colour"]).code, 2);
    assert_eq!(run(path, &["lab"]).code, 2, "what does not exist is not shown");
    assert_eq!(run(path, &["--url", "ftp://x", "jobs"]).trouble(), "url-invalid");
}

#[test]
fn a_client_that_is_still_sending_gets_to_read_why_it_is_refused() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::dev(folder.path(), &[]);
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let bytes = 32 << 20;
    write!(stream, "POST /v1/documents HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n").unwrap();
    // As a simple client does: everything is sent before anything is read.
    stream.write_all(&vec![b'x'; bytes]).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 401");
}

#[test]
fn keys_are_shown_once_let_in_and_can_be_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let server = Server::dev(path, &[]);
    let made = run(
        path,
        &["key", "create", "--owner", "acme", "--scopes", "jobs:write,jobs:read", "--expires", "90d"],
    );
    let key = made.ok().trim().to_owned();
    let parts: Vec<&str> = key.split('_').collect();
    assert_eq!((parts[0], parts.len(), parts[2].len()), ("mapae", 3, 64), "{key}");
    let listed = run(path, &["key", "list"]).ok();
    assert!(listed.contains(parts[1]) && !listed.contains(parts[2]));

    let ask = |arguments: &[&str]| {
        output(mapae(path).env("MAPAE_URL", &server.url).env("MAPAE_KEY", &key).args(arguments))
    };
    assert_eq!(ask(&["submit", "work"]).code, 0);
    assert_eq!(ask(&["workers"]).code, 77);
    assert_eq!(run(path, &["key", "revoke", parts[1]]).code, 0);
    until("the key is refused", || ask(&["jobs"]).code == 77);
    assert_eq!(run(path, &["key", "revoke", "nobody"]).code, 4);
    assert_eq!(
        run(path, &["key", "create", "--owner", "a", "--scopes", "jobs:wirte"]).trouble(),
        "scope-unknown"
    );

    let database = std::fs::read(path.join("mapae-data/mapae.db")).unwrap();
    let log = std::fs::read(path.join("mapae-data/mapae.db-wal")).unwrap_or_default();
    let secret = parts[2].as_bytes();
    let kept = [database, log].iter().any(|bytes| bytes.windows(secret.len()).any(|window| window == secret));
    assert!(!kept, "a key is kept only as a hash");
}

/// Answers one request after another with these statuses and the header after them; what was asked.
fn service(answers: Vec<&'static str>) -> (String, std::sync::mpsc::Receiver<String>) {
    use std::io::Write;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/work", listener.local_addr().unwrap());
    let (sender, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut request, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
                request.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            request.push_str(&String::from_utf8(body).unwrap());
            let (head, body) = answer.split_once("\n\n").unwrap_or((answer, ""));
            let head = head.replace('\n', "\r\n");
            write!(
                stream,
                "HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            sender.send(request).unwrap();
        }
    });
    (url, asked)
}

#[test]
fn a_kind_made_by_configuration_alone_is_run_by_its_service() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (url, asked) = service(vec![
        "503 Busy\nretry-after: 0",
        "500 Broken",
        "200 OK\ncontent-type: application/json\n\n{\"keywords\":[\"a\"]}",
        "410 Gone",
    ]);
    let file = format!(
        "[handler.\"context.process\"]\nurl = \"{url}\"\nbody = \"raw\"\nretry = {{ attempts = 3, backoff = \"10ms..20ms\" }}\n"
    );
    std::fs::write(path.join("mapae.toml"), file).unwrap();
    let server = Server::dev(path, &[]);
    let submit = ["submit", "context.process", "--param", "contextId=7", "--wait", "--output", "json"];
    let job: Value = serde_json::from_str(&server.run(path, &submit).ok()).unwrap();
    assert_eq!((job["attempt"].as_u64(), job["state"].as_str()), (Some(2), Some("succeeded")));
    let asked: Vec<String> = (0..3).map(|_| asked.recv_timeout(PATIENCE).unwrap()).collect();
    let header = |request: &str, name: &str| {
        let line = request.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let attempts: Vec<_> = asked.iter().map(|request| header(request, "mapae-attempt").unwrap()).collect();
    assert_eq!(attempts, ["1", "1", "2"], "being put off uses no attempt");
    let keys: Vec<_> = asked.iter().map(|request| header(request, "idempotency-key").unwrap()).collect();
    assert!(
        keys.iter().all(|key| key.starts_with(job["id"].as_str().unwrap()) && *key == keys[0]),
        "{keys:?}"
    );
    assert!(asked[0].starts_with("POST /work") && asked[0].ends_with("{\"contextId\":7}"), "{}", asked[0]);

    let stale = server.run(path, &submit);
    assert_eq!(stale.code, 1);
    assert!(stale.out.contains("\"stale\""), "{}", stale.out);
}

#[test]
fn no_content_reaches_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("canary-name.csv"), "canary-cell,1\n").unwrap();
    std::fs::write(path.join("canary-name.pdf"), "%PDF-1.7 canary-cell").unwrap();
    let mut command = mapae(path);
    command.env("MAPAE_LOG", "trace").args(["dev", "--listen", "127.0.0.1:0", "--key", "canary-key"]);
    let log = std::fs::File::create(path.join("log")).unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url =
        lines.find_map(|line| line.unwrap().strip_prefix("API").map(|url| url.trim().to_owned())).unwrap();
    for file in ["canary-name.csv", "canary-name.pdf"] {
        let arguments = [
            "--url",
            &url,
            "--key",
            "canary-key",
            "submit",
            "document.analyze",
            "--file",
            file,
            "--wait",
            "--params",
            "{\"password\":\"canary-param\"}",
        ];
        assert!(run(path, &arguments).code < 2);
    }
    run(path, &["--url", &url, "--key", "canary-other", "jobs"]);
    signal(&child, "TERM");
    assert_eq!(ended(&mut child), 0);
    let log = std::fs::read_to_string(path.join("log")).unwrap();
    assert!(log.contains("job accepted") && log.contains("job settled"), "{log}");
    assert!(!log.contains("canary"), "{log}");
}
