//! What every child does to itself first, whatever it becomes: it lowers its limits, and ends with its parent.

use std::io;

use rustix::process::{
    Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};

/// Exit code of a child that could not begin: not the document's fault.
pub(super) const CANNOT_START: i32 = 71;

/// The kernel kills this process when its parent ends, or it ends here if that has already happened.
pub(super) fn die_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = std::env::args().nth(2).and_then(|id| id.parse::<i32>().ok());
    let still_there = parent.is_some() && getppid().map(|pid| pid.as_raw_nonzero().get()) == parent;
    if still_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// A limit can be lowered, never raised.
pub(super) fn allowed(resource: Resource, most: u64) -> u64 {
    getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most))
}

pub(super) fn set(resource: Resource, most: u64) -> io::Result<()> {
    let most = allowed(resource, most);
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}
