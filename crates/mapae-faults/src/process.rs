//! One real process: started with a fault in it, watched, killed, frozen and thawed.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use mapae::fault::Point;
use tokio::process::{Child, Command};

use crate::cell::{Cell, Fault};
use crate::trouble::{Outcome, Trouble};
use crate::wait::{PATIENCE, until};

pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
    /// What points it has passed.
    passed: PathBuf,
}

impl Process {
    /// It writes its log to `folder/NAME.log` and dies with this process. `around` are words of a command that
    /// becomes the program, such as `env`.
    pub(crate) fn start(
        folder: &Path,
        around: &[&str],
        name: &str,
        program: &Path,
        arguments: &[&str],
        armed: Option<Cell>,
        mutant: Option<&str>,
    ) -> Outcome<Self> {
        let passed = folder.join(format!("{name}.points"));
        let log = std::fs::File::create(folder.join(format!("{name}.log")))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(around).arg(program).args(arguments);
        command.current_dir(folder).env_clear().env("TMPDIR", folder).env("MAPAE_FAULT_LOG", &passed);
        if let Some(cell) = armed {
            let plan = format!("{}:{}:{}", cell.point.name(), cell.fault.name(), cell.passing());
            command.env("MAPAE_FAULT", plan);
        }
        if let Some(mutant) = mutant {
            command.env("MAPAE_FAULT_MUTANT", mutant);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        Ok(Self { name: name.to_owned(), child: command.spawn()?, passed })
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.passed).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The planned fault has happened, as the process itself wrote down before.
    pub(crate) fn has_hit(&self, cell: Cell) -> bool {
        let line = format!("{} {}", cell.fault.name(), cell.point.name());
        self.lines().contains(&line)
    }

    /// Waits until the planned fault has happened.
    pub(crate) async fn hit(&mut self, cell: Cell) -> Outcome<()> {
        let mut ended = None;
        let hit = until(PATIENCE, async || {
            // In this order: what it wrote before its end is there when the end is seen.
            ended = self.child.try_wait().ok().flatten();
            self.has_hit(cell) || ended.is_some()
        })
        .await;
        if !hit || !self.has_hit(cell) {
            let how = ended.map_or("it goes on".to_owned(), |status| format!("it ended with {status}"));
            return Err(Trouble::NotHit(format!("{} never came to {}; {how}", self.name, cell.point.name())));
        }
        if cell.fault == Fault::Kill {
            let _ = self.child.wait().await;
        }
        Ok(())
    }

    /// Its number, while it lives.
    pub(crate) fn id(&self) -> Option<String> {
        self.child.id().map(|id| id.to_string())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// How it ended, where it did in time.
    pub(crate) async fn code(&mut self) -> Option<i32> {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.ok()?.ok()?.code()
    }

    pub(crate) async fn kill(&mut self) {
        let _ = self.child.kill().await;
    }

    pub(crate) async fn freeze(&self) {
        self.signal("STOP").await;
    }

    pub(crate) async fn resume(&self) {
        self.signal("CONT").await;
    }

    /// Goes on after a planned freeze; returns when it has tried what it was about to do, and has ended every
    /// run that it began.
    pub(crate) async fn thaw(&self, cell: Cell) {
        self.resume().await;
        let thawed = format!("thawed {}", cell.point.name());
        let passed = |lines: &[String], point: Point| {
            let line = format!("passed {}", point.name());
            lines.iter().filter(|one| **one == line).count()
        };
        // It has nothing to prove: whatever it does later is looked at, too.
        until(std::time::Duration::from_secs(10), async || {
            let lines = self.lines();
            let Some(at) = lines.iter().position(|line| *line == thawed) else { return false };
            lines.len() > at + 1 && passed(&lines, Point::RunBegun) == passed(&lines, Point::RunOver)
        })
        .await;
    }

    async fn signal(&self, name: &str) {
        if let Some(id) = self.child.id() {
            let _ = Command::new("kill").args([format!("-{name}"), id.to_string()]).status().await;
        }
    }
}

/// The processes that this one has started and that live, each with the bytes of its address space.
pub(crate) fn children(id: &str) -> Vec<(String, u64)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let child = |name: String| {
        let status = std::fs::read_to_string(format!("/proc/{name}/status")).ok()?;
        let field = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.split_whitespace().next().map(str::to_owned)
        };
        let kilobytes: u64 = field("VmSize:")?.parse().ok()?;
        (field("PPid:")? == id).then_some((name, kilobytes * 1024))
    };
    entries.filter_map(|entry| child(entry.ok()?.file_name().into_string().ok()?)).collect()
}
