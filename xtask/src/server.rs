//! A private server: its own port, its own folder, stopped and removed with the value.
//!
//! Three ends are covered. The command returns or panics: `Drop` stops the server and removes its folder. The
//! command is killed, by Ctrl-C or harder: the kernel kills the server (`setpriv --pdeathsig`), and a small
//! shell that waits for this process to end removes the folder. Nothing else on the machine is touched.
//!
//! The kernel's signal comes when the *thread* that started the server ends: start servers on the main thread.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::step::{Failure, Outcome, cannot_start, succeeds};

const READY_WAIT_MAX: Duration = Duration::from_secs(60);
const STOP_WAIT_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
const LOG_LINES_SHOWN: usize = 20;

/// A user to run a server as, when this process is root and the server refuses that.
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    stop_signal: &'static str,
    // After `child`, whose end `Drop` below awaits: the folder goes last.
    _folder: Folder,
    /// What this one needs, stopped after it.
    _needed: Option<Box<Self>>,
}

impl Server {
    /// Starts `command` and waits until `is_ready`, which has to be an answer of the server's own protocol: an
    /// open port proves nothing.
    pub(crate) fn start(
        mut command: Command,
        folder: Folder,
        stop_signal: &'static str,
        is_ready: impl Fn() -> bool,
    ) -> Outcome<Self> {
        let log = folder.path.join("log");
        let to_log = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = to_log.map_err(|error| disk("make a log", &error))?;
        command.current_dir(&folder.path).stdin(Stdio::null()).stdout(out).stderr(err);
        // Ctrl-C in a terminal goes to its whole group: the server's end is ours to decide.
        let child = command.process_group(0).spawn().map_err(|error| cannot_start(&command, &error))?;
        let mut server = Self { child, stop_signal, _folder: folder, _needed: None };

        let begun = Instant::now();
        while !is_ready() {
            let ended = server.child.try_wait().map_err(|error| disk("watch the server", &error))?;
            let late = begun.elapsed() > READY_WAIT_MAX;
            if ended.is_some() || late {
                let what = if late { "it did not answer in time" } else { "it ended at once" };
                return Err(Failure::new(
                    format!("the server cannot be started: {what}. The end of its log:\n{}", tail(&log)),
                    "the log above says why; a port taken meanwhile is gone at the next try",
                ));
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    /// Keeps another running for as long as this one does.
    pub(crate) fn beside(mut self, needed: Self) -> Self {
        self._needed = Some(Box::new(needed));
        self
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked =
            succeeds(Command::new("kill").args(["-s", self.stop_signal, &self.child.id().to_string()]));
        let begun = Instant::now();
        while asked && begun.elapsed() < STOP_WAIT_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
        }
        // Without the `wait` the process stays as a zombie, whose id still counts as alive.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that only the server's user can enter, removed when this process ends, however it ends.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    janitor: Child,
}

impl Folder {
    pub(crate) fn new(server: &str, user: Option<&User>) -> Outcome<Self> {
        // Root's own temporary folder may be closed to the server's user.
        let parent = if user.is_some() { PathBuf::from("/tmp") } else { std::env::temp_dir() };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let path = parent.join(format!("mapae-{server}-{}-{now}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| disk("make a folder for the server", &error))?;
        let mut wait_for_our_end = Command::new("sh");
        wait_for_our_end
            .args([
                "-c",
                "read -r done || for _ in $(seq 50); do rm -rf -- \"$1\" && exit; sleep 0.1; done",
                "sh",
            ])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let janitor = wait_for_our_end.spawn().map_err(|error| cannot_start(&wait_for_our_end, &error))?;
        let folder = Self { path, janitor };
        if let Some(user) = user {
            folder.give(user, &folder.path)?;
        }
        Ok(folder)
    }

    /// Makes `path` the server's own.
    pub(crate) fn give(&self, user: &User, path: &Path) -> Outcome<()> {
        std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))
            .map_err(|error| disk("give the folder to the server's user", &error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("warning: {} stays: {error}", self.path.display());
        }
        if let Some(mut stdin) = self.janitor.stdin.take() {
            let _ = stdin.write_all(b"done\n");
        }
        let _ = self.janitor.wait();
    }
}

/// A command that dies with this process and, where `user` is given, runs as that user. `setpriv` becomes the
/// program itself, so that the child's id is the server's; `su` and `runuser` would stay in between.
pub(crate) fn private(program: &Path, user: Option<&User>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = user {
        command.args([format!("--reuid={}", user.name), format!("--regid={}", user.name)]);
        command.args(["--init-groups", "--reset-env"]);
    }
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| disk("find a free port", &error))
}

fn disk(what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what}: {error}"), "is the disk full or the temporary folder closed?")
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeping(folder: Folder) -> Server {
        let mut command = private(Path::new("sleep"), None);
        command.arg("1000");
        Server::start(command, folder, "TERM", || true).unwrap()
    }

    #[test]
    fn a_server_that_is_dropped_leaves_no_process_and_no_folder() {
        let server = sleeping(Folder::new("drop", None).unwrap());
        let process = PathBuf::from(format!("/proc/{}", server.child.id()));
        let path = server._folder.path.clone();
        assert!(process.exists() && path.exists());
        drop(server);
        assert!(!process.exists() && !path.exists());
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_that_shows_its_log() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo the reason; exit 3"]);
        let failure =
            Server::start(command, Folder::new("end", None).unwrap(), "TERM", || false).err().unwrap();
        assert!(
            failure.what.contains("it ended at once") && failure.what.contains("the reason"),
            "{failure:?}"
        );
    }

    #[test]
    fn the_folder_of_a_command_that_was_killed_is_removed() {
        let mut folder = Folder::new("killed", None).unwrap();
        std::fs::write(folder.path.join("file"), "content").unwrap();
        // What the kernel does when a process dies, in whatever way: it closes its pipes.
        drop(folder.janitor.stdin.take());
        folder.janitor.wait().unwrap();
        assert!(!folder.path.exists());
        // The warning of a second removal has nothing to do with it.
        std::mem::forget(folder);
    }
}
