//! A child that tries, where a document would be parsed, what a parser must not be able to do: the document says what.
//!
//! A first line `probe VERB …` is a command, and what came of it is parsed in the document's place. After
//! `probe when READINGS VERB …` it is done in those readings only, and the lines after it are parsed. By the name it is
//! started under the program first takes protections away from itself, as a kernel does that does not have them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::File;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use mapae_document::child::sandbox::{self, Profile};
use mapae_document::child::{ARGUMENT, child_main_after};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match Path::new(&args[0]).file_name().and_then(OsStr::to_str) {
        Some("without-landlock") => lack(&[libc::SYS_landlock_create_ruleset]),
        Some("without-seccomp") => lack(&[libc::SYS_seccomp]),
        Some("without-both") => lack(&[libc::SYS_landlock_create_ruleset, libc::SYS_seccomp]),
        // Stays until the end.
        Some("threaded") => drop(std::thread::spawn(std::thread::park)),
        _ => {}
    }
    match args.get(1).map(String::as_str) {
        Some(ARGUMENT) => child_main_after(before),
        Some("converter") => {
            let protection = sandbox::enter(Profile::Converter { own: &[], scratch: Path::new(&args[2]) });
            assert!(protection.missing().is_empty(), "{protection:?}");
            let error = Command::new(&args[3]).args(&args[4..]).exec();
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::from(2),
    }
}

fn before(reading: &str, data: Vec<u8>) -> Vec<u8> {
    let Some(rest) = data.strip_prefix(b"probe ") else { return data };
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let command = String::from_utf8_lossy(&rest[..end]);
    let Some(when) = command.strip_prefix("when ") else { return done(&command).into_bytes() };
    if let Some((readings, command)) = when.split_once(' ')
        && readings.split(',').any(|name| name == reading)
    {
        done(command);
    }
    rest.get(end + 1..).unwrap_or_default().to_vec()
}

/// Does what it is told, and says what came of it.
fn done(command: &str) -> String {
    let (verb, object) = command.split_once(' ').unwrap_or((command, ""));
    match verb {
        "open" => outcome(File::open(object)),
        "write" => outcome(std::fs::write(object, "written")),
        "connect" => outcome(TcpStream::connect(object)),
        "spawn" => outcome(Command::new(object).status()),
        "exec" => format!("{:?}", Command::new(object).exec().kind()),
        "thread" => outcome(std::thread::Builder::new().spawn(|| {})),
        "panic" => panic!("{object}"),
        "hang" => loop {
            std::hint::black_box(());
        },
        "allocate" => allocated(),
        "abort" => std::process::abort(),
        "overflow" => format!("{}", deeper(1)),
        _ => format!("no such verb: {verb}"),
    }
}

fn outcome<T: Debug>(result: std::io::Result<T>) -> String {
    result.map_or_else(|error| format!("{:?}", error.kind()), |_| "done".to_owned())
}

/// Goes on until there is no memory left.
fn allocated() -> String {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        taken.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}

/// Goes on until there is no stack left.
#[allow(unconditional_recursion, reason = "that is what it is for")]
fn deeper(depth: u64) -> u64 {
    std::hint::black_box(deeper(std::hint::black_box(depth + 1)) + depth)
}

/// From here on these system calls do not exist.
fn lack(calls: &[i64]) {
    let calls: BTreeMap<_, _> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, missing, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a small program");
    seccompiler::apply_filter(&program).expect("a kernel with seccomp");
}
