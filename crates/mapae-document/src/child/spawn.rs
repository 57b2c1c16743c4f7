//! Starting a child from a thread that lives as long as the process.
//!
//! The child asks to be killed when its parent dies, and the kernel takes the parent to be the *thread* that
//! started it. A thread of a runtime's pool may end while the process lives on, and would take the child along.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Stdio;
use std::sync::{OnceLock, mpsc};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Job {
    command: Command,
    runtime: Handle,
    started: oneshot::Sender<io::Result<Group>>,
}

/// Starts `program` with `document` as its standard input; the socket's other end is its standard output.
pub(super) async fn spawn(program: &Path, document: File) -> io::Result<(Group, UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = child(program);
    command.stdin(Stdio::from(document)).stdout(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::piped());
    Ok((start(command).await?, UnixStream::from_std(ours)?))
}

/// A command that makes a child of `program`: no environment, its own process group.
pub(super) fn child(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg(super::ARGUMENT)
        .arg(std::process::id().to_string())
        .env_clear()
        .current_dir("/")
        .process_group(0);
    command
}

/// Starts it from the thread that stays.
pub(super) async fn start(command: Command) -> io::Result<Group> {
    let (started, answer) = oneshot::channel();
    let job = Job { command, runtime: Handle::current(), started };
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    starter()?.send(job).map_err(|_| gone(()))?;
    answer.await.map_err(|_| gone(()))?
}

fn starter() -> io::Result<mpsc::Sender<Job>> {
    static STARTER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    if let Some(starter) = STARTER.get() {
        return Ok(starter.clone());
    }
    let (starter, jobs) = mpsc::channel::<Job>();
    std::thread::Builder::new().name("document-starter".to_owned()).spawn(move || {
        for mut job in jobs {
            // A runtime that is being shut down may panic here, and this thread serves others as well.
            let group = catch_unwind(AssertUnwindSafe(|| {
                let _entered = job.runtime.enter();
                job.command.spawn().and_then(Group::of)
            }));
            // If the caller is gone the group is dropped here, which kills it.
            if let Ok(group) = group {
                drop(job.started.send(group));
            }
        }
    })?;
    // Of two threads started at once one stays; the other has no sender and ends.
    Ok(STARTER.get_or_init(|| starter).clone())
}

/// The child with everything it may have started, killed when dropped.
pub(crate) struct Group {
    pub(crate) child: Child,
    id: Pid,
}

impl Group {
    fn of(child: Child) -> io::Result<Self> {
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        id.map(|id| Self { child, id }).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once waited for, the number may belong to somebody else.
        if self.child.id().is_some() {
            let _ = kill_process_group(self.id, Signal::KILL);
        }
    }
}
