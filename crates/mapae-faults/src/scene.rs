//! The scenes. Whoever is to be hit is alone until it is; then others take over. What is frozen is thawed
//! while the second run is going.

use std::time::Duration;

use mapae::fault::Point;

use crate::cell::{Cell, Fault, Scene, Store};
use crate::client::{Ask, KIND};
use crate::process::Process;
use crate::site::{Site, World};
use crate::subject;
use crate::trouble::{Outcome, Trouble};
use crate::wait::{PATIENCE, until};

/// How long others are waited for while a process is frozen that may hold the lock of a SQLite file: until it is
/// thawed they cannot do anything.
const ASLEEP: Duration = Duration::from_secs(15);

/// A cell from its first process to the last question. Its folder stays where it fails.
pub(crate) async fn play(world: &World, cell: Cell) -> Outcome<()> {
    let site = Site::make(world, cell.pair()).await?;
    let played = match cell.scene {
        Scene::Door | Scene::Upload => door(&site, cell).await,
        Scene::Work | Scene::Result => work(&site, cell).await,
        Scene::TakeOver => take_over(&site, cell).await,
        Scene::Stage => stage(&site, cell).await,
        Scene::Due => due(&site, cell).await,
        Scene::Reap => reap(&site, cell).await,
        Scene::Late => late(&site, cell).await,
        Scene::Prune => prune(&site, cell).await,
    };
    let played = match played {
        Ok(()) => site.check(1).await,
        failed => failed,
    };
    match played {
        Ok(()) => site.clear().await,
        Err(trouble) => {
            eprintln!("   {cell}: what is left of it lies in {}", site.folder.display());
            Err(trouble)
        }
    }
}

fn asks(cell: Cell, number: usize) -> Vec<Ask> {
    (0..number)
        .map(|at| {
            let ask = Ask::new(format!("key-{at}"));
            match cell.scene {
                Scene::Upload => ask.with_file(),
                Scene::Result => ask.large(),
                _ => ask,
            }
        })
        .collect()
}

async fn door(site: &Site, cell: Cell) -> Outcome<()> {
    let asks = asks(cell, 2);
    let (mut hit, address) = site.door("door", Some(cell))?;
    let client = site.client.clone();
    let asking = {
        let (client, asks) = (client.clone(), asks.clone());
        tokio::spawn(async move {
            for ask in &asks {
                let _ = client.insist(&address, ask).await;
            }
        })
    };
    let outcome = hit.hit(cell).await;
    asking.abort();
    outcome?;
    let before = site.service.held();
    site.service.hold(cell.fault == Fault::Freeze);
    let (mut other, address) = site.door("other-door", None)?;
    let mut worker = site.worker("b", None)?;
    let answered = async {
        for ask in &asks {
            client.insist(&address, ask).await?;
        }
        Ok::<(), Trouble>(())
    };
    // Whoever sleeps with the one lock of a file in his hand keeps everybody's rows out.
    let patience = if cell.store == Store::Sqlite { ASLEEP } else { 2 * PATIENCE };
    if let Ok(answered) = tokio::time::timeout(patience, answered).await {
        answered?;
    }
    second_run(site, cell, &hit, before).await?;
    // Asked again it is the same job, and whoever was kept out gets in.
    for ask in &asks {
        client.insist(&address, ask).await?;
    }
    finish(site, &address, [&mut hit, &mut other, &mut worker]).await
}

async fn work(site: &Site, cell: Cell) -> Outcome<()> {
    let (mut door, address) = site.door("door", None)?;
    for ask in asks(cell, 2) {
        site.client.insist(&address, &ask).await?;
    }
    // A heartbeat has something to renew only while a job runs.
    let beat = matches!(cell.point, Point::BeatAsked | Point::BeatKept | Point::HoldAsked | Point::HoldKept);
    site.service.hold(beat);
    let mut hit = site.worker("a", Some(cell))?;
    hit.hit(cell).await?;
    let before = site.service.held();
    site.service.hold(cell.fault == Fault::Freeze);
    if cell.fault == Fault::Kill {
        site.service.release();
    }
    let mut other = site.worker("b", None)?;
    second_run(site, cell, &hit, before).await?;
    finish(site, &address, [&mut door, &mut hit, &mut other]).await
}

/// A worker comes back under its name for what it had in its hands.
async fn take_over(site: &Site, cell: Cell) -> Outcome<()> {
    let (mut door, address) = site.door("door", None)?;
    site.service.hold(true);
    let mut first = site.worker_as("first", "a", None)?;
    for ask in asks(cell, 2) {
        site.client.insist(&address, &ask).await?;
    }
    if !until(PATIENCE, async || site.service.held() == 2).await {
        return Err(Trouble::broken("not every job is started in time"));
    }
    first.kill().await;
    site.service.hold(false);
    site.service.release();
    let mut hit = site.worker_as("again", "a", Some(cell))?;
    // The name may not be free at once.
    until(PATIENCE, async || {
        let ended = hit.has_ended() && !hit.has_hit(cell);
        if ended && let Ok(again) = site.worker_as("again", "a", Some(cell)) {
            hit = again;
        }
        hit.has_hit(cell)
    })
    .await;
    hit.hit(cell).await?;
    let before = site.service.held();
    site.service.hold(cell.fault == Fault::Freeze);
    let mut other = site.worker("b", None)?;
    second_run(site, cell, &hit, before).await?;
    finish(site, &address, [&mut door, &mut hit, &mut other]).await
}

async fn stage(site: &Site, cell: Cell) -> Outcome<()> {
    site.accept(subject::KIND, 2, |job| job.retry = subject::retry()).await?;
    let mut hit = site.subject("a", Some(cell))?;
    hit.hit(cell).await?;
    let before = site.service.held();
    site.service.hold(cell.fault == Fault::Freeze);
    let mut other = site.subject("b", None)?;
    second_run(site, cell, &hit, before).await?;
    site.ended().await?;
    if !until(PATIENCE, async || matches!(site.database.untold().await, Ok(0))).await {
        return Err(Trouble::broken("not every event was taken in time"));
    }
    site.emptied().await?;
    for process in [&mut hit, &mut other] {
        process.kill().await;
    }
    Ok(())
}

/// As after the death of a door between the row and the bell.
async fn due(site: &Site, cell: Cell) -> Outcome<()> {
    site.accept(KIND, 2, |_| {}).await?;
    keeper(site, cell).await
}

async fn reap(site: &Site, cell: Cell) -> Outcome<()> {
    let (mut first, address) = site.door("first-door", None)?;
    site.service.hold(true);
    let mut worker = site.worker("a", None)?;
    for ask in asks(cell, 2) {
        site.client.insist(&address, &ask).await?;
    }
    if !until(PATIENCE, async || site.service.held() > 0).await {
        return Err(Trouble::broken("no job is started in time"));
    }
    first.kill().await;
    worker.kill().await;
    site.service.release();
    site.service.hold(false);
    keeper(site, cell).await
}

async fn late(site: &Site, cell: Cell) -> Outcome<()> {
    let store = site.store().await?;
    let deadline = store.now().await? + Duration::from_millis(1);
    store.close().await;
    site.accept(KIND, 2, |job| job.deadline = Some(deadline)).await?;
    keeper(site, cell).await
}

async fn prune(site: &Site, cell: Cell) -> Outcome<()> {
    let (mut first, address) = site.door("first-door", None)?;
    let mut worker = site.worker("a", None)?;
    let gone = site.client.insist(&address, &Ask::new("key-0").with_file()).await?;
    site.client.insist(&address, &Ask::new("key-1").large()).await?;
    site.ended().await?;
    first.kill().await;
    worker.kill().await;
    // With nobody there who would prune it.
    site.delete(&gone).await?;
    keeper(site, cell).await?;
    if site.files().join("originals").join(&gone).exists() {
        return Err(Trouble::broken("the file of a deleted job is still there"));
    }
    Ok(())
}

/// A door alone, whose keeper is hit; then another door, and a worker.
async fn keeper(site: &Site, cell: Cell) -> Outcome<()> {
    let (mut hit, _) = site.door("door", Some(cell))?;
    hit.hit(cell).await?;
    let before = site.service.held();
    site.service.hold(cell.fault == Fault::Freeze);
    let (mut other, address) = site.door("other-door", None)?;
    let mut worker = site.worker("b", None)?;
    second_run(site, cell, &hit, before).await?;
    if cell.scene == Scene::Prune {
        let clean = until(PATIENCE, async || {
            let jobs = site.database.jobs().await.map_or(0, |jobs| jobs.len());
            jobs == 1 && matches!(site.database.garbage().await, Ok(0))
        });
        if !clean.await {
            return Err(Trouble::broken("a deleted job or its file is still there"));
        }
    }
    finish(site, &address, [&mut hit, &mut other, &mut worker]).await
}

/// Thaws what is frozen while another is at its work; of what was killed there is nothing to wait for.
///
/// `before` is how many calls waited when it was hit: its own.
async fn second_run(site: &Site, cell: Cell, frozen: &Process, before: usize) -> Outcome<()> {
    if cell.fault == Fault::Kill {
        return Ok(());
    }
    // Whoever sleeps with the one lock of a file in his hand lets nobody work, and that may happen at any point.
    let patience = match (cell.store, cell.point) {
        (_, Point::SqliteCommit) => Duration::from_secs(3),
        (Store::Sqlite, _) => ASLEEP,
        (Store::Postgres, _) => PATIENCE,
    };
    // Every job that has not ended: the one that is frozen is among them.
    let going = until(patience, async || {
        let open = site.open_jobs().await;
        open.is_some_and(|open| site.service.held() >= before + open)
    })
    .await;
    if !going && cell.store == Store::Postgres {
        return Err(Trouble::NotHit("the second run was not going when the first was thawed".into()));
    }
    // Calls that come now are those of the one that wakes up.
    site.service.hold(false);
    frozen.thaw(cell).await;
    site.service.release();
    Ok(())
}

/// The end of every scene: all has ended, and stays as it ended.
async fn finish<const N: usize>(site: &Site, door: &str, processes: [&mut Process; N]) -> Outcome<()> {
    site.ended().await?;
    site.client.cancel_too_late(door).await?;
    site.emptied().await?;
    for process in processes {
        process.kill().await;
    }
    Ok(())
}
