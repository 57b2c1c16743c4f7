//! Processor time of this process and of the database's server, and memory, as the system accounts for them.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row};

use crate::site::Database;

/// Linux counts processor time in hundredths of a second, whatever its clock is.
const TICKS: f64 = 100.0;

/// Whose time counts.
pub(crate) struct Cost {
    /// The server's first process; none for a database within this process.
    server: Option<u32>,
}

impl Cost {
    pub(crate) async fn of(database: &Database) -> Self {
        let Database::Postgres(url) = database else { return Self { server: None } };
        let mut connection = PgConnection::connect(url).await.unwrap();
        let row = sqlx::query("select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::integer as pid");
        let pid: i32 = row.fetch_one(&mut connection).await.unwrap().get("pid");
        Self { server: Some(u32::try_from(pid).unwrap()) }
    }

    /// Processor seconds so far.
    pub(crate) fn seconds(&self) -> Seconds {
        let own = stat(std::process::id()).map_or(0.0, |stat| stat.own);
        Seconds { own, server: self.server.map_or(0.0, server) }
    }
}

/// Of this process, and of the server with all its children.
#[derive(Clone, Copy)]
pub(crate) struct Seconds {
    pub(crate) own: f64,
    pub(crate) server: f64,
}

impl Seconds {
    pub(crate) fn all(self) -> f64 {
        self.own + self.server
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { own: self.own - before.own, server: self.server - before.server }
    }

    /// Per 10,000 jobs.
    pub(crate) fn per_ten_thousand(self, jobs: usize) -> Self {
        let of = |seconds: f64| seconds * 10_000.0 / jobs as f64;
        Self { own: of(self.own), server: of(self.server) }
    }
}

/// The children are gone into their parent's account once it has waited for them.
fn server(postmaster: u32) -> f64 {
    let all = stat(postmaster).map_or(0.0, |stat| stat.own + stat.waited_for);
    let children = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        stat(pid).filter(|stat| stat.parent == postmaster)
    });
    all + children.map(|child| child.own).sum::<f64>()
}

struct Stat {
    parent: u32,
    own: f64,
    waited_for: f64,
}

/// proc(5), `/proc/pid/stat`: the name may hold anything, so fields count from behind its bracket.
fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    Some(Stat {
        parent: number(1)? as u32,
        own: (number(11)? + number(12)?) / TICKS,
        waited_for: (number(13)? + number(14)?) / TICKS,
    })
}

/// What of this process is in memory now, in MiB.
pub(crate) fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

pub(crate) fn rate(jobs: usize, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64()
}
