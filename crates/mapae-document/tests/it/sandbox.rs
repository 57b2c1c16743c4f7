//! A parser that a document has taken over finds nothing to open, nobody to call and nothing to start.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use mapae_document::child::DocumentReader;
use mapae_document::error::DocumentError;
use tempfile::TempDir;

use crate::{file, named, patient, reader};

const PROBE: &str = env!("CARGO_BIN_EXE_document-probe");

/// A child that does what documents tell it, on a kernel that lacks what `name` says.
struct Probe {
    reader: DocumentReader,
    folder: TempDir,
}

impl Probe {
    fn named(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(name);
        symlink(PROBE, &program).unwrap();
        Self { reader: DocumentReader::with_program(program), folder }
    }

    /// What comes of `command` where a parser runs.
    async fn tries(&self, command: &str) -> Result<String, DocumentError> {
        let document = file(format!("probe {command}").as_bytes());
        self.reader.parse(document, named("a.txt"), &patient()).await.map(|document| document.text)
    }
}

#[tokio::test]
async fn everything_holds_here_and_what_a_kernel_lacks_is_said() {
    let missing = async |name| Probe::named(name).reader.protection().await.unwrap().missing();
    assert!(reader().protection().await.unwrap().missing().is_empty());
    assert_eq!(missing("without-landlock").await, ["landlock-files", "landlock-network"]);
    assert_eq!(
        missing("threaded").await,
        ["landlock-files", "landlock-network"],
        "it does not hold the others"
    );
    assert_eq!(missing("without-seccomp").await, ["seccomp"]);
    assert_eq!(missing("without-both").await, ["landlock-files", "landlock-network", "seccomp"]);
}

#[tokio::test]
async fn a_parser_can_open_no_file_and_write_none() {
    for (name, refused) in [
        ("whole", "Unsupported"),
        ("without-landlock", "Unsupported"),
        ("without-seccomp", "PermissionDenied"),
    ] {
        let probe = Probe::named(name);
        assert_eq!(probe.tries("open /etc/passwd").await.unwrap(), refused, "{name}");
        let target = probe.folder.path().join("written");
        let wrote = probe.tries(&format!("write {}", target.display())).await.unwrap();
        assert_eq!((wrote.as_str(), target.exists()), (refused, false), "{name}");
    }
    // A kernel that has neither: the document is read, and what is refused above is not.
    let bare = Probe::named("without-both");
    assert_eq!(bare.tries("open /etc/passwd").await.unwrap(), "done");
}

#[tokio::test]
async fn a_parser_reaches_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = format!("connect {}", listener.local_addr().unwrap());
    for name in ["whole", "without-landlock"] {
        assert_eq!(Probe::named(name).tries(&connect).await, Err(DocumentError::Forbidden), "{name}");
    }
    let refused = Probe::named("without-seccomp").tries(&connect).await.unwrap();
    assert_eq!(refused, "PermissionDenied");
    assert!(listener.accept().is_err(), "nobody came");
    assert_eq!(Probe::named("without-both").tries(&connect).await.unwrap(), "done");
    assert!(listener.accept().is_ok(), "somebody would be seen");
}

#[tokio::test]
async fn a_parser_starts_no_program_and_no_thread() {
    let probe = Probe::named("whole");
    for command in ["spawn /bin/true", "exec /bin/true"] {
        assert_eq!(probe.tries(command).await, Err(DocumentError::Forbidden), "{command}");
    }
    assert_eq!(probe.tries("thread").await.unwrap(), "Unsupported");
    assert_eq!(Probe::named("without-seccomp").tries("exec /bin/true").await.unwrap(), "PermissionDenied");
}

#[tokio::test]
async fn a_parser_that_breaks_down_is_a_crash_and_no_attack() {
    let probe = Probe::named("whole");
    for command in ["panic at once", "abort", "overflow"] {
        assert_eq!(probe.tries(command).await, Err(DocumentError::Crashed), "{command}");
    }
}

#[tokio::test]
async fn a_document_is_read_the_same_on_a_kernel_without_protection() {
    let budget = crate::samples::sample("budget-2026.pdf");
    let text = async |reader: &DocumentReader| {
        reader.parse(file(&budget), named("a.pdf"), &patient()).await.unwrap().text
    };
    assert_eq!(text(&Probe::named("without-both").reader).await, text(&reader()).await);
}

/// Runs a program as a converter is run, and answers what it says.
fn converter(scratch: &Path, program: &str, args: &[&str]) -> String {
    let mut command = Command::new(PROBE);
    let output = command.arg("converter").arg(scratch).arg(program).args(args).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_converter_runs_and_sees_the_system_and_its_own_folder_only() {
    let scratch = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let script = "echo runs; cat /usr/share/dict/none 2>/dev/null; \
                  cat /etc/passwd 2>/dev/null && echo read; ls / 2>/dev/null && echo listed; \
                  echo x 2>/dev/null >\"$1/x\" && echo wrote elsewhere; \
                  echo x >\"$0/x\" && cat \"$0/x\"";
    let (own, elsewhere) = (scratch.path().to_str().unwrap(), other.path().to_str().unwrap());
    assert_eq!(converter(scratch.path(), "/bin/sh", &["-c", script, own, elsewhere]), "runs\nx");
}

#[test]
fn a_converter_reaches_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let script = format!(
        "perl -e 'use Socket; socket(S, PF_INET, SOCK_STREAM, 0) or print \"refused\"; \
         connect(S, sockaddr_in({}, inet_aton(\"127.0.0.1\"))) and print \"reached\"'",
        listener.local_addr().unwrap().port()
    );
    assert_eq!(converter(scratch.path(), "/bin/sh", &["-c", &script]), "refused");
    assert!(listener.accept().is_err(), "nobody came");
}
