//! A private PostgreSQL for one run of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::{debian_package, is_root};
use crate::server::{Folder, Server, User, free_port, private};
use crate::step::{Failure, Outcome, run, step, succeeds};

const INSTALLED: &str = "/usr/lib/postgresql";
const VERSION_MIN: u32 = 15;
const STARTS_MAX: usize = 3;
/// Only our own server is wanted: the package shall not make one for the whole machine.
const NO_SYSTEM_CLUSTER: &str = "conf=/etc/postgresql-common/createcluster.conf; \
    [ -e $conf ] || { mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' > $conf; }";

/// Installs it where it is missing, starts it, and returns it with its address.
pub(crate) fn start() -> Outcome<(Server, String)> {
    // A crash of the machine would hurt it; one of a process does not.
    start_with("fsync=off")
}

/// As [`start`], but what is committed is on the disk: for measurements.
pub(crate) fn start_durable() -> Outcome<(Server, String)> {
    start_with("fsync=on")
}

fn start_with(fsync: &str) -> Outcome<(Server, String)> {
    let programs = match programs() {
        Some(programs) => programs,
        None => {
            step("PostgreSQL: install", || {
                debian_package(&["postgresql-15", "postgresql"], NO_SYSTEM_CLUSTER)
            })?;
            programs().ok_or_else(|| {
                Failure::new(
                    format!("there is no PostgreSQL {VERSION_MIN} or newer in {INSTALLED}"),
                    "install postgresql-15 or newer",
                )
            })?
        }
    };
    // It refuses to run as root.
    let user = is_root().then(postgres_user).transpose()?;
    let mut tries = 1;
    loop {
        match start_once(&programs, user.as_ref(), fsync) {
            Err(failure) if tries < STARTS_MAX && failure.what.contains("already in use") => tries += 1,
            outcome => return outcome,
        }
    }
}

fn start_once(programs: &Path, user: Option<&User>, fsync: &str) -> Outcome<(Server, String)> {
    let folder = Folder::new("postgres", user)?;
    let data = folder.path.join("db");
    let mut init = private(&programs.join("initdb"), user);
    init.current_dir(&folder.path).arg("-D").arg(&data);
    // `-N`: nothing of this has to survive a crash of the machine.
    init.args(["-N", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]);
    init.stdout(std::process::Stdio::null());
    step("PostgreSQL: make a database", || run(&mut init, "the message above says why"))?;

    let port = free_port()?.to_string();
    let mut command = private(&programs.join("postgres"), user);
    command.arg("-D").arg(&data);
    for setting in [
        "listen_addresses=127.0.0.1",
        // No socket: its path may not be longer than 100 characters, and nobody needs it.
        "unix_socket_directories=",
        fsync,
        // Tests run as many at a time as there are processors, each with some dozens of connections at most.
        "max_connections=1000",
        &format!("port={port}"),
    ] {
        command.args(["-c", setting]);
    }
    let is_ready = || {
        let mut ask = Command::new(programs.join("pg_isready"));
        succeeds(ask.args(["-q", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]))
    };
    let server = step("PostgreSQL: start", || Server::start(command, folder, "INT", is_ready))?;
    Ok((server, format!("postgres://postgres@127.0.0.1:{port}/postgres")))
}

/// The folder of the oldest version that we promise to work with.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(INSTALLED).ok()?;
    let versions = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let usable = versions
        .filter(|version| *version >= VERSION_MIN)
        .map(|version| (version, Path::new(INSTALLED).join(version.to_string()).join("bin")));
    usable.filter(|(_, programs)| programs.join("initdb").exists()).min().map(|(_, programs)| programs)
}

/// The user that the package has made.
fn postgres_user() -> Outcome<User> {
    let missing = || Failure::new("there is no user postgres", "install the package postgresql-common");
    let users = std::fs::read_to_string("/etc/passwd").map_err(|_| missing())?;
    let line = users.lines().find(|line| line.starts_with("postgres:")).ok_or_else(missing)?;
    let fields: Vec<&str> = line.split(':').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse().ok()).ok_or_else(missing);
    Ok(User { name: "postgres", uid: number(2)?, gid: number(3)? })
}
