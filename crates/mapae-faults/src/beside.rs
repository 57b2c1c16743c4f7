//! Faults beside kills: what fails is not the process but something around it.

use std::fmt;
use std::time::Duration;

use mapae::fault::Point;
use tokio::process::Command;

use crate::broker::Broker;
use crate::cell::{Cell, Fault, Pair, Scene, Store};
use crate::client::Ask;
use crate::line::{Line, Weather};
use crate::process::{Process, children};
use crate::random::{Numbers, ask};
use crate::server::{Server, Stop};
use crate::site::{Site, World};
use crate::trouble::{Outcome, Trouble};
use crate::wait::{PATIENCE, until};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The database goes away and comes back, before requests and between commits and their answers.
    Line,
    /// The disk has no room, and then has room again. Played by a limit on the size of files.
    Disk,
    /// A worker's clock is an hour ahead, another's an hour behind.
    Clock,
    /// Two processes are configured with one name.
    Name,
    /// The database is restored from a backup while a worker of the time after it lives on.
    Restored,
    /// The database is restarted again and again, by turns with a warning and without.
    Restarted,
    /// A limit on memory kills the process that reads a document.
    Memory,
    /// The broker loses all that it has of ours, twice.
    Wiped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    what: What,
    pair: Pair,
}

const ALL: [What; 8] = [
    What::Line,
    What::Disk,
    What::Clock,
    What::Name,
    What::Restored,
    What::Restarted,
    What::Memory,
    What::Wiped,
];

/// How soon a pointer that a broker has lost is rung again.
const RESCAN: Duration = Duration::from_secs(2);

/// Jobs that wait when a broker loses their pointers: more than two workers take into their hands.
const WAITING: usize = 24;

/// Where Debian's package `faketime` has it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Bytes of the largest file while the disk is full: the schema fits and little more.
const DISK: &str = "1000000";

impl Beside {
    /// A line, a restart, and a clock that is not the database's are there only where there is a server. A disk and
    /// a document are no matter of a broker.
    pub(crate) fn all(pairs: &[Pair]) -> Vec<Self> {
        let each = pairs.iter().flat_map(|&pair| ALL.map(|what| Self { what, pair }));
        let played = |one: &Self| match one.what {
            What::Line | What::Clock | What::Restarted => one.pair.store == Store::Postgres,
            What::Disk | What::Memory => !one.pair.broker.delivers(),
            What::Wiped => one.pair.broker.delivers(),
            // Whoever has the old file of a SQLite open goes on in that, and with a broker others hear of it.
            What::Restored => one.pair.store == Store::Postgres || !one.pair.broker.delivers(),
            What::Name => true,
        };
        each.filter(played).collect()
    }

    pub(crate) fn broker(self) -> Broker {
        self.pair.broker
    }

    pub(crate) async fn play(self, world: &World) -> Outcome<()> {
        if self.what == What::Restarted {
            return self.on_a_server_of_its_own(world).await;
        }
        let world = World { rescan: Some(RESCAN), ..world.clone() };
        let mut site = Site::make(&world, self.pair).await?;
        let played = match self.what {
            What::Line => line(&site).await,
            What::Disk => disk(&site).await,
            What::Clock => clock(&site).await,
            What::Name => name(&site).await,
            What::Restored => restored(&mut site, self.pair).await,
            What::Memory => memory(&site).await,
            What::Wiped => wiped(&site).await,
            What::Restarted => Ok(()),
        };
        self.over(site, played).await
    }

    async fn on_a_server_of_its_own(self, world: &World) -> Outcome<()> {
        let shared = world.postgres.as_deref().ok_or_else(|| Trouble::Site("no PostgreSQL".into()))?;
        let mut server = Server::start(shared).await?;
        let world = World { postgres: Some(server.url.clone()), ..world.clone() };
        let site = Site::make(&world, self.pair).await?;
        let played = restarted(&site, &mut server).await;
        self.over(site, played).await?;
        server.clear().await
    }

    /// The last questions. The folder stays where it failed.
    async fn over(self, site: Site, played: Outcome<()>) -> Outcome<()> {
        let played = match played {
            Ok(()) => site.check(100).await,
            failed => failed,
        };
        match played {
            Ok(()) => site.clear().await,
            Err(trouble) => {
                eprintln!("   {self}: what is left of it lies in {}", site.folder.display());
                Err(trouble)
            }
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::Line => "line",
            What::Disk => "disk",
            What::Clock => "clock",
            What::Name => "name",
            What::Restored => "restored",
            What::Restarted => "restarted",
            What::Memory => "memory",
            What::Wiped => "wiped",
        };
        write!(f, "beside/{what}/{}", self.pair)
    }
}

async fn line(site: &Site) -> Outcome<()> {
    let (server, rest) = site.server().ok_or_else(|| Trouble::Site("no address of a server".into()))?;
    let line = Line::to(&server).await?;
    let url = format!("MAPAE_DATABASE_URL={}", rest.replace("{}", &line.address));
    let around = ["env", url.as_str()];
    let (mut door, address) = site.door_in(&around, "door", None)?;
    let mut workers = [site.worker_in(&around, "a", None)?, site.worker_in(&around, "b", None)?];
    let (doors, _) = tokio::sync::watch::channel(address.clone());
    let calm = tokio_util::sync::CancellationToken::new();
    let clients: Vec<_> = (0..2).map(|at| tokio::spawn(ask(site, at, &doors, &calm))).collect();
    let mut numbers = Numbers::from(1);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(200 + numbers.below(600))).await;
        if numbers.below(3) > 0 {
            line.set(Weather::Mute);
            tokio::time::sleep(Duration::from_millis(numbers.below(300))).await;
        }
        line.set(Weather::Down);
        tokio::time::sleep(Duration::from_millis(numbers.below(1_500))).await;
        line.set(Weather::Good);
    }
    calm.cancel();
    for client in clients {
        if tokio::time::timeout(PATIENCE, client).await.is_err() {
            return Err(Trouble::broken("a client has no answer though the line is good again"));
        }
    }
    site.ended().await?;
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    door.kill().await;
    for worker in &mut workers {
        worker.kill().await;
    }
    Ok(())
}

async fn restarted(site: &Site, server: &mut Server) -> Outcome<()> {
    let (mut door, address) = site.door("door", None)?;
    let mut workers = [site.worker("a", None)?, site.worker("b", None)?];
    let (doors, _) = tokio::sync::watch::channel(address.clone());
    let calm = tokio_util::sync::CancellationToken::new();
    let clients: Vec<_> = (0..2).map(|at| tokio::spawn(ask(site, at, &doors, &calm))).collect();
    let mut numbers = Numbers::from(2);
    for how in [Stop::Fast, Stop::Immediate, Stop::Immediate, Stop::Fast] {
        tokio::time::sleep(Duration::from_millis(500 + numbers.below(1_000))).await;
        server.down(how).await?;
        tokio::time::sleep(Duration::from_millis(numbers.below(2_000))).await;
        server.up().await?;
    }
    calm.cancel();
    for client in clients {
        if tokio::time::timeout(PATIENCE, client).await.is_err() {
            return Err(Trouble::broken("a client has no answer though the database is up again"));
        }
    }
    site.ended().await?;
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    if door.has_ended() || workers.iter_mut().any(Process::has_ended) {
        return Err(Trouble::broken("a process ended with the database, which is no reason to"));
    }
    door.kill().await;
    for worker in &mut workers {
        worker.kill().await;
    }
    Ok(())
}

/// Bytes of a reader's memory at which it is in the middle of its document.
const READING: u64 = 100 << 20;

async fn memory(site: &Site) -> Outcome<()> {
    let (mut door, address) = site.door("door", None)?;
    let around = ["env", "MAPAE_WORKER_KINDS=document.analyze"];
    let mut worker = site.worker_in(&around, "a", None)?;
    let large = Ask::document("large.csv", "17,4\n".repeat(1_500_000));
    let large = site.client.insist(&address, &large).await?;
    let mut limited = false;
    let hit = until(PATIENCE, async || {
        for (reader, bytes) in worker.id().map(|id| children(&id)).unwrap_or_default() {
            // What it has is all that it gets: it dies of the next page it asks for.
            if !limited && bytes > READING {
                let limit = format!("--as={bytes}");
                let set = Command::new("prlimit").args(["--pid", &reader, &limit]).status().await;
                limited = set.is_ok_and(|status| status.success());
            }
        }
        limited
    });
    if !hit.await {
        return Err(Trouble::NotHit("no reader grew".into()));
    }
    let mut good = Vec::new();
    for number in 0..4 {
        let ask = Ask::document(&format!("good-{number}.csv"), format!("name,amount\nrent,{number}\n"));
        good.push(site.client.insist(&address, &ask).await?);
    }
    site.ended().await?;
    for job in site.database.jobs().await? {
        let id = job.id.to_string();
        if job.state != "succeeded" || (good.contains(&id) && job.attempt != 1) {
            let why = format!("a document's job {} after {} attempts, not succeeded", job.state, job.attempt);
            return Err(Trouble::broken(why));
        }
    }
    // Its second reader, for the text alone, was not limited.
    let given = site.client.result(&address, &large).await.unwrap_or_default();
    if !given.contains("\"text-only\"") {
        return Err(Trouble::broken(
            "a document whose reader was lost does not say that only its text was read",
        ));
    }
    if worker.has_ended() {
        return Err(Trouble::broken("the worker died with the reader"));
    }
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    door.kill().await;
    worker.kill().await;
    Ok(())
}

async fn disk(site: &Site) -> Outcome<()> {
    let limit = format!("--fsize={DISK}:unlimited");
    // A write that is too large is an error, not a signal.
    let around = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh", "prlimit", limit.as_str()];
    let (mut door, address) = site.door_in(&around, "door", None)?;
    site.client.insist(&address, &Ask::new("before")).await?;
    let mut refused = Vec::new();
    let full = until(PATIENCE, async || {
        let ask = Ask::new(format!("full-{}", refused.len())).with_bytes(1_500_000);
        if site.client.ask(&address, &ask).await.is_none() {
            refused.push(ask);
        }
        refused.len() >= 3
    });
    if !full.await {
        return Err(Trouble::NotHit("the disk was never full".into()));
    }
    // Not one of those that are to be accepted later.
    let more = Ask::new("never").with_bytes(1_500_000);
    let said = site.client.answer(&address, &more).await.map(|answer| answer.status);
    if said != Some(507) {
        return Err(Trouble::broken(format!("an upload to a full disk is answered {said:?}, not 507")));
    }
    // The rows, too: on SQLite their file is as full.
    for number in 0..30 {
        let mut ask = Ask::new(format!("row-{number}"));
        ask.params["text"] = "x".repeat(100_000).into();
        if site.client.ask(&address, &ask).await.is_none() {
            refused.push(ask);
        }
    }
    let id = door.id().ok_or_else(|| Trouble::broken("the door fell over a full disk"))?;
    let cleared = Command::new("prlimit").args(["--pid", &id, "--fsize=unlimited"]).status().await?;
    if !cleared.success() {
        return Err(Trouble::Site("prlimit cannot lift the limit".into()));
    }
    for ask in &refused {
        site.client.insist(&address, ask).await?;
    }
    let mut worker = site.worker("a", None)?;
    site.ended().await?;
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    door.kill().await;
    worker.kill().await;
    Ok(())
}

async fn clock(site: &Site) -> Outcome<()> {
    if !std::path::Path::new(FAKETIME).exists() {
        return Err(Trouble::Site(format!("{FAKETIME} is missing: install Debian's package faketime")));
    }
    let (mut door, address) = site.door("door", None)?;
    site.service.hold(true);
    let mut right = site.worker("right", None)?;
    site.client.insist(&address, &Ask::new("long")).await?;
    if !until(PATIENCE, async || site.service.held() > 0).await {
        return Err(Trouble::broken("no job is started in time"));
    }
    let library = format!("LD_PRELOAD={FAKETIME}");
    let wrong =
        |offset: &'static str| ["env", library.as_str(), "DONT_FAKE_MONOTONIC=1", offset].map(str::to_owned);
    let mut others = Vec::new();
    for (name, offset) in [("ahead", "FAKETIME=+3600"), ("behind", "FAKETIME=-3600")] {
        let around = wrong(offset);
        let around: Vec<&str> = around.iter().map(String::as_str).collect();
        others.push(site.worker_in(&around, name, None)?);
    }
    // Three leases, which is what is tested: nobody takes what is held, whatever his clock says.
    tokio::time::sleep(Duration::from_secs(9)).await;
    let claims = site.claims().await?;
    if claims != 1 {
        return Err(Trouble::broken(format!("a job of a live worker was claimed {claims} times")));
    }
    // The one with the right clock dies; those with wrong ones do the work.
    right.kill().await;
    site.service.hold(false);
    site.service.release();
    for number in 0..5 {
        site.client.insist(&address, &Ask::new(format!("key-{number}"))).await?;
    }
    site.ended().await?;
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    door.kill().await;
    for other in &mut others {
        other.kill().await;
    }
    Ok(())
}

async fn name(site: &Site) -> Outcome<()> {
    let (mut door, address) = site.door("door", None)?;
    site.service.hold(true);
    let mut first = site.worker_as("first", "same", None)?;
    site.client.insist(&address, &Ask::new("key-0")).await?;
    if !until(PATIENCE, async || site.service.held() > 0).await {
        return Err(Trouble::broken("no job is started in time"));
    }
    let mut second = site.worker_as("second", "same", None)?;
    let code = second.code().await;
    if code.is_none_or(|code| code == 0) {
        return Err(Trouble::broken(format!("a second worker of one name is not refused: {code:?}")));
    }
    if site.claims().await? != 1 {
        return Err(Trouble::broken("the second worker of one name took the first one's job"));
    }
    // After the death of the first the name is free.
    first.kill().await;
    site.service.hold(false);
    site.service.release();
    let mut third = site.worker_as("third", "same", None)?;
    until(PATIENCE, async || {
        // The name may not be free at once.
        if third.has_ended()
            && let Ok(again) = site.worker_as("third", "same", None)
        {
            third = again;
        }
        site.all_ended().await
    })
    .await;
    site.ended().await?;
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    door.kill().await;
    third.kill().await;
    Ok(())
}

async fn restored(site: &mut Site, pair: Pair) -> Outcome<()> {
    let Pair { store, broker } = pair;
    let cell = Cell { scene: Scene::Work, point: Point::SettleAsked, store, broker, fault: Fault::Freeze };
    let (mut door, address) = site.door("door", None)?;
    site.client.insist(&address, &Ask::new("key-0")).await?;
    site.back_up().await?;
    let mut zombie = site.worker("a", Some(cell))?;
    zombie.hit(cell).await?;
    door.kill().await;
    site.restore().await?;
    // The backup knows nothing of the first run: whoever claims now gets the same epoch again.
    site.service.forget();
    site.service.hold(true);
    let (mut door, address) = site.door("other-door", None)?;
    let mut worker = site.worker("b", None)?;
    if !until(PATIENCE, async || site.service.held() > 0).await {
        return Err(Trouble::broken("no job of the backup is started in time"));
    }
    site.service.hold(false);
    zombie.thaw(cell).await;
    if site.all_ended().await {
        return Err(Trouble::broken("a worker of the time after the backup settled a job of the backup"));
    }
    site.service.release();
    site.ended().await?;
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    for process in [&mut door, &mut worker, &mut zombie] {
        process.kill().await;
    }
    Ok(())
}

async fn wiped(site: &Site) -> Outcome<()> {
    let (mut door, address) = site.door("door", None)?;
    let mut workers = [site.worker("a", None)?, site.worker("b", None)?];
    for time in 0..2 {
        site.service.hold(true);
        for number in 0..WAITING {
            site.client.insist(&address, &Ask::new(format!("key-{time}-{number}"))).await?;
        }
        // Every slot of both is busy; what they cannot hold is with the broker.
        if !until(PATIENCE, async || site.service.held() == 4).await {
            return Err(Trouble::broken("two workers do not fill their slots in time"));
        }
        if site.corner.left().await?.is_empty() {
            return Err(Trouble::NotHit("the broker had nothing to lose".into()));
        }
        site.corner.clear().await?;
        site.service.hold(false);
        site.service.release();
        site.ended().await?;
    }
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    if door.has_ended() || workers.iter_mut().any(Process::has_ended) {
        return Err(Trouble::broken("a process ended over what the broker had lost, which is no reason to"));
    }
    door.kill().await;
    for worker in &mut workers {
        worker.kill().await;
    }
    Ok(())
}
