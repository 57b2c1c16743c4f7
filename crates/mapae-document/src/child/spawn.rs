//! Starting a child from a thread that lives as long as the process.
//!
//! The child asks to be killed when its parent dies, and the kernel takes the parent to be the *thread* that
//! started it. A thread of a runtime's pool may end while the process lives on, and would take the child along.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::{OnceLock, mpsc};

use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Job {
    command: Command,
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

/// Starts `program` with `document` as its standard input; the socket's other end is its standard output.
pub(super) async fn spawn(program: &Path, document: File) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = Command::new(program);
    command
        .arg(super::ARGUMENT)
        .arg(std::process::id().to_string())
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::from(document))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let (started, answer) = oneshot::channel();
    let job = Job { command, runtime: Handle::current(), started };
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    starter()?.send(job).map_err(|_| gone(()))?;
    let child = answer.await.map_err(|_| gone(()))??;
    Ok((child, UnixStream::from_std(ours)?))
}

fn starter() -> io::Result<mpsc::Sender<Job>> {
    static STARTER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    if let Some(starter) = STARTER.get() {
        return Ok(starter.clone());
    }
    let (starter, jobs) = mpsc::channel::<Job>();
    std::thread::Builder::new().name("document-starter".to_owned()).spawn(move || {
        for mut job in jobs {
            let entered = job.runtime.enter();
            let child = job.command.spawn();
            // A caller that is gone drops the child here, which kills it.
            drop(job.started.send(child));
            drop(entered);
        }
    })?;
    // Of two threads started at once one stays; the other has no sender and ends.
    Ok(STARTER.get_or_init(|| starter).clone())
}
