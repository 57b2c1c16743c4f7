//! The child's own side: limits on itself first, then what it may not do, then the document.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Serialize;

use super::launch;
use super::restrain::{CANNOT_START, allowed, die_with_parent, set};
use super::sandbox::{Profile, Protection, forbid_calls, wall_off};
use super::wire::{self, Answer, Want};
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;
use crate::read::{self, Input};

/// Parsers recurse; this is room for far more levels than any honest document has.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// How much readier than its parent the kernel is to end a child, of 1,000.
const OOM_SCORE: &str = "500";
/// Files a parser may have open.
const FILES_MAX: u64 = 32;

/// What stands between the bytes of a document and its parser, told which of the child's jobs it is. A child of
/// tests does there what a parser must not be able to do.
pub type Before = fn(&str, Vec<u8>) -> Vec<u8>;

/// What the program does whose first argument is [`super::ARGUMENT`], and nothing else, before it has a second thread.
///
/// It answers over its standard output, which must be the parent's socket, and returns.
pub fn child_main() -> ExitCode {
    if let Some(program) = std::env::args_os().nth(3) {
        return ExitCode::from(launch::become_program(&program) as u8);
    }
    child_main_after(|_, data| data)
}

/// As [`child_main`], with `before` run where the parser runs, on the bytes it is about to get.
#[doc(hidden)]
pub fn child_main_after(before: Before) -> ExitCode {
    // A panic would print a message to the standard error, and the message may quote the document.
    std::panic::set_hook(Box::new(|_| {}));
    match serve(before) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(CANNOT_START as u8),
    }
}

fn serve(before: Before) -> io::Result<()> {
    die_with_parent()?;
    let mut socket = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let order = wire::read_order(&mut socket)?;
    go_first();
    limit_self(&order.limits)?;
    let given = wire::read_frame(&mut socket, wire::GIVEN_MAX)?;
    let document = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let asked = order.name();
    let mut asking = socket.try_clone()?;
    let child = Child { document, limits: order.limits, socket };
    let (name, media_type, password, pages) = (order.name, order.media_type, order.password, order.pages);
    let input = move |data| Input { data: before(asked, data), name, media_type, password, pages };
    match order.want {
        Want::Protection => child.answer(|_, _, protection| Ok(protection)),
        Want::Document => child.answer(|file, limits, _| read::read(input(contents(file, limits)?), limits)),
        Want::Tables => child.answer(move |file, limits, _| {
            let scans = serde_json::from_slice(&given).map_err(|_| DocumentError::Unavailable)?;
            read::tables(input(contents(file, limits)?), scans, limits)
        }),
        Want::Scans { pages } => child.answer(move |file, limits, _| {
            read::scans(input(contents(file, limits)?), &pages, limits, &mut |picture| {
                wire::ask(picture, &mut asking).map_err(|_| DocumentError::Unavailable)
            })
        }),
        Want::Seen { page } => {
            child.answer(move |file, limits, _| read::seen(input(contents(file, limits)?), page, limits))
        }
    }
}

struct Child {
    document: File,
    limits: Limits,
    socket: UnixStream,
}

impl Child {
    /// Answers with what `work` makes of the document, on a thread with room for deep recursion. Before a byte of it is
    /// read, the process can open nothing, reach nobody and start nothing.
    fn answer<T: Serialize + Send + 'static>(
        mut self,
        work: impl FnOnce(Opened, &Limits, Protection) -> Answer<T> + Send + 'static,
    ) -> io::Result<()> {
        let size = self.document.metadata().map_or(0, |meta| meta.len());
        let (document, inner) = (Opened { file: self.document, size }, self.limits.clone());
        let (landlock_files, landlock_network) = wall_off(Profile::Parser);
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || -> Answer<T> {
            // From here on no thread and no process can be started.
            forbid_processes().map_err(|_| DocumentError::Unavailable)?;
            let seccomp = forbid_calls(Profile::Parser).is_ok();
            work(document, &inner, Protection { landlock_files, landlock_network, seccomp })
        })?;
        let answer = worker.join().unwrap_or(Err(DocumentError::Crashed));
        wire::write_answer(&answer, self.limits.output_bytes, &mut self.socket)
    }
}

/// The document, and its size, which cannot be asked for any more once it is to be read.
struct Opened {
    file: File,
    size: u64,
}

/// Where memory runs out for a machine or a container, this process is ended rather than the one that many jobs need.
fn go_first() {
    // Older limits of the process may be higher already, and lowering them is not allowed.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
}

fn limit_self(limits: &Limits) -> io::Result<()> {
    set(Resource::Core, 0)?;
    set(Resource::Fsize, 0)?;
    set(Resource::Nofile, FILES_MAX)?;
    set(Resource::As, limits.memory_bytes)?;
    // The soft limit sends SIGXCPU, which names the cause; the hard one is for whoever ignores that.
    let hard = allowed(Resource::Cpu, limits.cpu_seconds.saturating_add(1));
    let cpu = Rlimit { current: Some(hard.min(limits.cpu_seconds)), maximum: Some(hard) };
    Ok(setrlimit(Resource::Cpu, cpu)?)
}

fn forbid_processes() -> io::Result<()> {
    set(Resource::Nproc, 0)
}

fn contents(document: Opened, limits: &Limits) -> Result<Vec<u8>, DocumentError> {
    let bytes_max = limits.input_bytes;
    let mut data = Vec::new();
    data.reserve_exact(document.size.min(bytes_max) as usize + 1);
    document.file.take(bytes_max + 1).read_to_end(&mut data).map_err(|_| DocumentError::Unavailable)?;
    if data.len() as u64 > bytes_max { Err(DocumentError::TooLarge(Excess::File)) } else { Ok(data) }
}
