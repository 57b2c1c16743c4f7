//! A private S3 server: versitygw, which keeps objects as files. Of the servers tried it is the one whose
//! conditional writes hold when many writers race.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::install::TOOLS;
use crate::server::{Folder, Server, free_port, private};
use crate::step::{Failure, Outcome, run, step, succeeds};

const PACKAGE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const KEY: &str = "testkey";
const SECRET: &str = "testsecret";
const BUCKET: &str = "mapae-test";

/// Builds it where it is missing, starts it, and returns it with the variables that the tests need.
pub(crate) fn start() -> Outcome<(Server, Vec<(&'static str, String)>)> {
    let program = program()?;
    let folder = Folder::new("s3", None)?;
    let port = free_port()?.to_string();
    let data = folder.path.join("data");
    std::fs::create_dir_all(data.join(BUCKET)).map_err(|error| {
        Failure::new(format!("cannot make the bucket's folder: {error}"), "is the disk full?")
    })?;
    let mut command = private(&program, None);
    command.args(["--port", &format!("127.0.0.1:{port}"), "--access", KEY, "--secret", SECRET, "posix"]);
    command.arg(&data);
    let server =
        step("S3: start", || Server::start(command, folder, "TERM", || answers(&port).unwrap_or(false)))?;
    let variables = vec![
        // The tests look at its disk for what no listing shows.
        ("MAPAE_TEST_S3_DATA", data.display().to_string()),
        ("MAPAE_TEST_S3", format!("s3://{BUCKET}")),
        ("AWS_ENDPOINT", format!("http://127.0.0.1:{port}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
    ];
    Ok((server, variables))
}

/// Whether a request without a signature is refused the way S3 refuses it.
fn answers(port: &str) -> std::io::Result<bool> {
    let mut connection = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.take(64 * 1024).read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 403") && answer.contains("<Error>"))
}

fn program() -> Outcome<PathBuf> {
    let tools = std::path::absolute(Path::new(TOOLS).join("s3"))
        .map_err(|error| Failure::new(format!("cannot find the tools: {error}"), "check the folder"))?;
    let program = tools.join("versitygw");
    if succeeds(Command::new(&program).arg("--version")) {
        return Ok(program);
    }
    if !succeeds(Command::new("go").arg("version")) {
        return Err(Failure::new(
            "the S3 server is built with Go, and there is no Go",
            "install a current Go; Debian 12's own is too old",
        ));
    }
    let go = |args: &[&str]| {
        let mut command = Command::new("go");
        command.args(args).env("GOBIN", &tools).env("GOPATH", tools.join("go"));
        command.env("GOCACHE", tools.join("go/build")).env("GOFLAGS", "");
        command
    };
    step("S3: build the server, once (about 5 minutes of CPU)", || {
        run(&mut go(&["install", "-ldflags=-s -w", PACKAGE]), "is the Go module proxy reachable?")
    })?;
    // The sources and intermediate files are ten times the program.
    run(&mut go(&["clean", "-modcache", "-cache"]), "remove tools/s3/go by hand")?;
    Ok(program)
}
