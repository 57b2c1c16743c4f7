//! Kills and freezes at random moments, from a seed, while clients go on asking.

use std::time::Duration;

use crate::cell::Pair;
use crate::client::{Ask, PAUSE};
use crate::process::Process;
use crate::site::{Site, World};
use crate::trouble::{Outcome, Trouble};
use crate::wait::{PATIENCE, until};

/// Clients at a time.
const CLIENTS: usize = 3;

/// How long clients may wait for their last answers when all is well again.
const LAST_ANSWERS: Duration = Duration::from_secs(120);

/// Numbers from a seed (SplitMix64): the same in every run.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn from(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// One round of so many kills. What exactly is hit depends on the machine; who and when on the seed.
pub(crate) async fn round(world: &World, pair: Pair, seed: u64, kills: usize) -> Outcome<()> {
    let site = Site::make(world, pair).await?;
    let played = match storm(&site, seed, kills).await {
        Ok(()) => site.check(kills).await,
        failed => failed,
    };
    match played {
        Ok(()) => site.clear().await,
        Err(trouble) => {
            eprintln!("   seed {seed} on {pair}: what is left lies in {}", site.folder.display());
            Err(trouble)
        }
    }
}

/// One of the processes that take turns in dying.
enum Role {
    Door,
    Worker(&'static str),
}

async fn storm(site: &Site, seed: u64, kills: usize) -> Outcome<()> {
    let mut numbers = Numbers::from(seed);
    let roles = [Role::Door, Role::Worker("a"), Role::Worker("b")];
    let (door, address) = site.door("door", None)?;
    let (doors, _) = tokio::sync::watch::channel(address);
    let mut processes = vec![door, site.worker("a", None)?, site.worker("b", None)?];
    let calm = tokio_util::sync::CancellationToken::new();
    let clients: Vec<_> = (0..CLIENTS).map(|at| tokio::spawn(ask(site, at, &doors, &calm))).collect();

    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(100 + numbers.below(500))).await;
        let victim = numbers.below(roles.len() as u64) as usize;
        if numbers.below(4) == 0 {
            processes[victim].freeze().await;
            tokio::time::sleep(Duration::from_millis(numbers.below(4_000))).await;
            processes[victim].resume().await;
            continue;
        }
        processes[victim].kill().await;
        tokio::time::sleep(Duration::from_millis(numbers.below(300))).await;
        processes[victim] = match roles[victim] {
            Role::Door => {
                let (door, address) = site.door("door", None)?;
                doors.send_replace(address);
                door
            }
            Role::Worker(name) => site.worker(name, None)?,
        };
    }
    calm.cancel();
    let answered = async {
        for client in clients {
            let _ = client.await;
        }
    };
    if tokio::time::timeout(LAST_ANSWERS, answered).await.is_err() {
        return Err(Trouble::broken("a client has no answer though all is well again"));
    }
    // As a service manager would: a name may not have been free yet when its worker was started again.
    until(PATIENCE, async || {
        for (process, role) in processes.iter_mut().zip(&roles) {
            if let (true, Role::Worker(name)) = (process.has_ended(), role)
                && let Ok(worker) = site.worker(name, None)
            {
                *process = worker;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        site.all_ended().await
    })
    .await;
    site.ended().await?;
    let address = doors.borrow().clone();
    site.client.cancel_too_late(&address).await?;
    site.emptied().await?;
    for process in &mut processes {
        Process::kill(process).await;
    }
    Ok(())
}

/// A client: one job after the other, each until it is answered.
pub(crate) fn ask(
    site: &Site,
    at: usize,
    doors: &tokio::sync::watch::Sender<String>,
    calm: &tokio_util::sync::CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    let (client, doors, calm) = (site.client.clone(), doors.subscribe(), calm.clone());
    async move {
        let mut number = 0;
        while !calm.is_cancelled() {
            let ask = Ask::new(format!("key-{at}-{number}"));
            let ask = match number % 4 {
                0 => ask.with_file(),
                1 => ask.large(),
                _ => ask,
            };
            loop {
                let door = doors.borrow().clone();
                let answer = client.ask(&door, &ask).await;
                tokio::time::sleep(PAUSE).await;
                if answer.is_some() {
                    break;
                }
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = |seed| {
            let mut numbers = Numbers::from(seed);
            (0..20).map(|_| numbers.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
