//! Whatever the child does, the parent has one clear answer, in time, and nothing is left running.

use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mapae_document::child::DocumentReader;
use mapae_document::error::{DocumentError, Excess};
use mapae_document::limits::Limits;

use crate::{file, make, named, patient, reader};

/// The longest a test waits for anything: only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A misbehaving program from the folder `children`.
fn misbehaving(name: &str) -> DocumentReader {
    DocumentReader::with_program(format!("{}/tests/it/children/{name}", env!("CARGO_MANIFEST_DIR")))
}

#[tokio::test]
async fn a_child_killed_in_the_middle_of_its_answer_is_a_crash() {
    let outcome = misbehaving("dies").parse(file(b"x"), named("a.pdf"), &Limits::default()).await;
    assert_eq!(outcome.unwrap_err(), DocumentError::Crashed);
}

#[tokio::test]
async fn a_child_that_never_answers_is_too_slow_and_is_killed_with_all_it_started() {
    let document = file(b"x");
    let said = reopened(&document);
    let reader = misbehaving("hangs");
    let reading =
        tokio::spawn(async move { reader.parse(document, named("a.pdf"), &Limits::default()).await });
    let group = process_group(said).await;
    // It was asked and is silent. From here on time goes on by itself while nothing else happens.
    tokio::time::pause();
    let outcome = reading.await.unwrap();
    tokio::time::resume();
    assert_eq!(outcome.unwrap_err(), DocumentError::TooSlow);
    gone(group).await;
}

#[tokio::test]
async fn dropping_the_call_kills_the_child() {
    let document = file(b"x");
    let said = reopened(&document);
    let limits = Limits::default();
    let reader = misbehaving("hangs");
    let group = tokio::select! {
        outcome = reader.parse(document, named("a.pdf"), &limits) => panic!("it answered {outcome:?}"),
        group = process_group(said) => group,
    };
    gone(group).await;
}

/// The same file with a place of its own to read from, so that reading does not move where the child writes.
fn reopened(file: &std::fs::File) -> std::fs::File {
    std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

/// The process group that the program `hangs` wrote into its document.
async fn process_group(mut document: std::fs::File) -> i32 {
    soon("the child starts", || {
        let mut said = String::new();
        document.rewind().unwrap();
        document.read_to_string(&mut said).unwrap();
        said.strip_suffix('\n').map(|id| id.parse().unwrap())
    })
    .await
}

async fn gone(group: i32) {
    soon("the child and all it started are gone", || (!alive(group)).then_some(())).await;
}

/// Asks until there is an answer.
async fn soon<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process of the group still runs; one that has ended and waits to be collected does not.
fn alive(group: i32) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|p| std::fs::read_to_string(p.path().join("stat")).ok());
    // The name in brackets may hold anything; after it come state, parent and group.
    stats.filter_map(|stat| stat.rsplit_once(')').map(|(_, rest)| rest.to_owned())).any(|rest| {
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next().unwrap();
        state != "Z" && fields.nth(1).unwrap() == group.to_string()
    })
}

#[test]
fn a_child_whose_parent_is_killed_ends_too() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    let (mut ours, theirs) = UnixStream::pair().unwrap();
    // The child waits for its request, which never comes; the shell waits for the child.
    let mut parent = Command::new("/bin/sh")
        .args(["-c", "\"$0\" document-child $$ & wait", env!("CARGO_BIN_EXE_document-child")])
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    ours.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(ours.read(&mut [0]).is_err(), "the child is there and silent");
    parent.kill().unwrap();
    parent.wait().unwrap();
    // The end of the stream: nobody holds the other side any more.
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(ours.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[tokio::test]
async fn an_answer_longer_than_allowed_is_not_read() {
    let outcome = misbehaving("lies").parse(file(b"x"), named("a.pdf"), &Limits::default()).await;
    assert_eq!(outcome.unwrap_err(), DocumentError::TooLarge(Excess::Output));
}

#[tokio::test]
async fn a_child_that_babbles_is_stopped_at_what_it_announced() {
    let outcome = misbehaving("babbles").parse(file(b"x"), named("a.pdf"), &Limits::default()).await;
    assert_eq!(outcome.unwrap_err(), DocumentError::Crashed);
}

#[tokio::test]
async fn the_child_inherits_no_environment() {
    let document = file(b"x");
    let mut said = reopened(&document);
    let outcome = misbehaving("shows-environment").parse(document, named("a.pdf"), &Limits::default()).await;
    assert_eq!(outcome.unwrap_err(), DocumentError::Crashed);
    let mut environment = String::new();
    said.read_to_string(&mut environment).unwrap();
    assert!(std::env::vars_os().count() > 0, "there is something to inherit");
    assert_eq!(environment, "end");
}

#[tokio::test]
async fn a_reader_that_cannot_be_started_judges_no_document() {
    let missing = DocumentReader::with_program("/nonexistent/reader");
    let error = missing.parse(file(b"x"), named("a.pdf"), &Limits::default()).await.unwrap_err();
    assert_eq!(error, DocumentError::Unavailable);
    assert!(!error.is_terminal());
}

#[tokio::test]
async fn a_hostile_document_does_not_disturb_the_others() {
    let honest = make::pdf(make::HELVETICA, b"BT /F1 9 Tf 50 50 Td (honest) Tj ET", &[]);
    let bomb = make::xlsx(&" ".repeat(20 * 1024 * 1024));
    let mut calls = tokio::task::JoinSet::new();
    for i in 0..8 {
        let (name, bytes) = if i % 2 == 0 { ("a.pdf", &honest) } else { ("a.xlsx", &bomb) };
        let (reader, document) = (reader(), file(bytes));
        calls.spawn(async move { (i, reader.parse(document, named(name), &patient()).await) });
    }
    while let Some(call) = calls.join_next().await {
        let (i, outcome) = call.unwrap();
        if i % 2 == 0 {
            assert_eq!(outcome.unwrap().text, "honest");
        } else {
            assert!(matches!(outcome, Err(DocumentError::TooLarge(_))));
        }
    }
}

#[test]
fn the_helper_program_explains_itself_to_people() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_document-child")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}
