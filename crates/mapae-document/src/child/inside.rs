//! The child's own side: limits on itself first, then the document.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{
    Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};

use serde::Serialize;

use super::launch;
use super::wire::{self, Answer, Want};
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;
use crate::read::{self, Input};

/// Exit code of a child that could not begin: not the document's fault.
pub(super) const CANNOT_START: i32 = 71;
/// Parsers recurse; this is room for far more levels than any honest document has.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Files a parser may have open.
const FILES_MAX: u64 = 32;

/// What the program does whose first argument is [`super::ARGUMENT`], and nothing else.
///
/// It answers over its standard output, which must be the parent's socket, and returns.
pub fn child_main() -> ExitCode {
    if let Some(program) = std::env::args_os().nth(3) {
        return ExitCode::from(launch::become_program(&program) as u8);
    }
    // A panic would print a message to the standard error, and the message may quote the document.
    std::panic::set_hook(Box::new(|_| {}));
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(CANNOT_START as u8),
    }
}

fn serve() -> io::Result<()> {
    die_with_parent()?;
    let mut socket = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let order = wire::read_order(&mut socket)?;
    let limits = order.limits;
    limit_self(&limits)?;
    let given = wire::read_frame(&mut socket, wire::GIVEN_MAX)?;
    let document = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (name, media_type, password, pages) = (order.name, order.media_type, order.password, order.pages);
    let input = move |data| Input { data, name, media_type, password, pages };
    match order.want {
        Want::Document => answer(document, limits, socket, |data, limits| read::read(input(data), limits)),
        Want::Tables => answer(document, limits, socket, move |data, limits| {
            let scans = serde_json::from_slice(&given).map_err(|_| DocumentError::Unavailable)?;
            read::tables(input(data), scans, limits)
        }),
        Want::Scans { pages } => {
            let mut asking = socket.try_clone()?;
            answer(document, limits, socket, move |data, limits| {
                read::scans(input(data), &pages, limits, &mut |picture| {
                    wire::ask(picture, &mut asking).map_err(|_| DocumentError::Unavailable)
                })
            })
        }
        Want::Seen { page } => {
            answer(document, limits, socket, move |data, limits| read::seen(input(data), page, limits))
        }
    }
}

/// Answers with what `parse` makes of the document, on a thread with room for deep recursion.
fn answer<T: Serialize + Send + 'static>(
    document: File,
    limits: Limits,
    mut socket: UnixStream,
    parse: impl FnOnce(Vec<u8>, &Limits) -> Answer<T> + Send + 'static,
) -> io::Result<()> {
    let inner = limits.clone();
    let parser = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || -> Answer<T> {
        // From here on no thread and no process can be started.
        forbid_processes().map_err(|_| DocumentError::Unavailable)?;
        let data = contents(document, inner.input_bytes)?;
        parse(data, &inner)
    })?;
    let answer = parser.join().unwrap_or(Err(DocumentError::Crashed));
    wire::write_answer(&answer, limits.output_bytes, &mut socket)
}

/// The kernel kills this process when its parent ends, or it ends here if that has already happened.
pub(super) fn die_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = std::env::args().nth(2).and_then(|id| id.parse::<i32>().ok());
    let still_there = parent.is_some() && getppid().map(|pid| pid.as_raw_nonzero().get()) == parent;
    if still_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
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

/// A limit can be lowered, never raised.
fn allowed(resource: Resource, most: u64) -> u64 {
    getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most))
}

pub(super) fn set(resource: Resource, most: u64) -> io::Result<()> {
    let most = allowed(resource, most);
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

fn contents(document: File, bytes_max: u64) -> Result<Vec<u8>, DocumentError> {
    let mut data = Vec::new();
    let size = document.metadata().map_or(0, |meta| meta.len());
    data.reserve_exact(size.min(bytes_max) as usize + 1);
    document.take(bytes_max + 1).read_to_end(&mut data).map_err(|_| DocumentError::Unavailable)?;
    if data.len() as u64 > bytes_max { Err(DocumentError::TooLarge(Excess::File)) } else { Ok(data) }
}
