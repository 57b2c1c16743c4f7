//! A program that is not ours, started by a child that first limits itself and then becomes it.
//!
//! Limits, walls (`sandbox`) and the wish to die with the parent outlive the change of program, and no unsafe code is
//! needed between `fork` and `exec`.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Resource;

use super::restrain::{CANNOT_START, die_with_parent, set};
use super::sandbox::{Profile, enter};
use crate::ocr::DATA;

/// Address space, bytes. Recognising a page of 25 million pixels in two languages takes some 400 MB.
const MEMORY_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Processor time, seconds. A dense page takes three.
const CPU_SECONDS: u64 = 120;
const FILES_MAX: u64 = 64;

/// Becomes `program` with the arguments behind it; returns only if it cannot.
pub(super) fn become_program(program: &OsStr) -> i32 {
    let limited = || -> std::io::Result<()> {
        die_with_parent()?;
        set(Resource::Core, 0)?;
        set(Resource::Fsize, 0)?;
        set(Resource::Nofile, FILES_MAX)?;
        set(Resource::As, MEMORY_BYTES)?;
        set(Resource::Cpu, CPU_SECONDS)?;
        // One thread, and none beside it.
        set(Resource::Nproc, 0)
    };
    if limited().is_ok() {
        // It is given a picture and says what it read: it needs no folder of its own.
        let data = std::env::var_os(DATA).map(PathBuf::from);
        let own: Vec<&Path> = Path::new(program).parent().into_iter().chain(data.as_deref()).collect();
        enter(Profile::Converter { own: &own, scratch: Path::new("") });
        let _ = Command::new(program).args(std::env::args_os().skip(4)).exec();
    }
    CANNOT_START
}
