//! Runs a plan: so many cells at a time, then the random kills.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use mapae::fault::Mutant;

use crate::beside::Beside;
use crate::cell::{Cell, Pair};
use crate::plan::{HELP, Plan, What, mapae};
use crate::report::Table;
use crate::site::World;
use crate::trouble::Trouble;
use crate::{random, scene};

/// Random kills in one round of a long run.
const ROUND: usize = 50;

/// Pairs that are struck at the same time.
const ROUNDS_BESIDE: usize = 2;

/// How long all jobs may take to end. With a broken promise in it, waiting proves nothing more.
const BOUND: Duration = Duration::from_secs(90);
const BOUND_OF_MUTANTS: Duration = Duration::from_secs(20);

/// How often a broken promise may go unnoticed.
const TRIES_OF_MUTANTS: usize = 8;

pub(crate) async fn run(plan: Plan) -> ExitCode {
    if plan.what == What::List {
        plan.cells().iter().for_each(|cell| println!("{cell}"));
        plan.beside_all().iter().for_each(|one| println!("{one}"));
        return ExitCode::SUCCESS;
    }
    if plan.what == What::Help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if !mapae::fault::BUILT_IN {
        eprintln!("error: this program was built without its faults\nhelp:  use `cargo xtask faults`");
        return ExitCode::FAILURE;
    }
    let Some(program) = mapae() else {
        eprintln!("error: there is no `mapae` beside this program\nhelp:  use `cargo xtask faults`");
        return ExitCode::FAILURE;
    };
    if let Some(unset) = plan.variables().into_iter().find(|variable| std::env::var(variable).is_err()) {
        eprintln!(
            "error: {unset} is not set\nhelp:  use `cargo xtask faults`, or --store sqlite --broker embedded"
        );
        return ExitCode::FAILURE;
    }
    let postgres = std::env::var("MAPAE_TEST_POSTGRES").ok();
    let world = World { mapae: program, postgres, mutant: plan.mutant.clone(), bound: BOUND, rescan: None };
    let began = Instant::now();
    let green = match &plan.what {
        What::All { times, kills, resumes } => all(&world, &plan, *times, *kills, *resumes).await,
        What::Only(chosen, others) => {
            let green = chosen.is_empty() || cells(&world, &plan, chosen.clone()).await;
            beside(&world, &plan, others).await && green
        }
        What::Random(kills) => rounds(&world, &plan.pairs(), plan.seed.unwrap_or(1), &[*kills]).await,
        What::Mutants => mutants(&world, &plan).await,
        What::List | What::Help => true,
    };
    println!("{} after {:.0} s", if green { "all green" } else { "BROKEN" }, began.elapsed().as_secs_f64());
    if green { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn all(world: &World, plan: &Plan, times: usize, kills: usize, resumes: bool) -> bool {
    let mut far = Far::read(resumes, plan.seed);
    println!("seed {}; a long run goes on where it was stopped: round {}", far.seed, far.done);
    let mut green = true;
    // A round is every cell once and its share of the kills: what is found is found early.
    while far.done < times {
        let share = kills / times;
        let seed = far.seed + far.done as u64;
        let each: Vec<usize> = vec![ROUND.min(share); share.div_ceil(ROUND)];
        green &= cells(world, plan, plan.cells()).await;
        green &= beside(world, plan, &plan.beside_all()).await;
        green &= rounds(world, &plan.pairs(), seed * 1_000, &each).await;
        far.done += 1;
        far.write(far.done < times);
    }
    green
}

async fn cells(world: &World, plan: &Plan, cells: Vec<Cell>) -> bool {
    let mut table = Table::default();
    let mut running = futures_util::stream::iter(cells)
        .map(|cell| async move { (cell, Instant::now(), scene::play(world, cell).await) })
        .buffer_unordered(plan.beside);
    while let Some((cell, began, outcome)) = running.next().await {
        table.count(cell, outcome.is_ok());
        println!("{:6.1} s  {cell}", began.elapsed().as_secs_f64());
        if let Err(trouble) = outcome {
            println!("BROKEN  {cell}\n  {trouble}\n  again: cargo xtask faults --only {cell}");
        }
    }
    println!("\n{}\n", table.show());
    table.is_green()
}

async fn beside(world: &World, plan: &Plan, all: &[Beside]) -> bool {
    let mut green = true;
    let mut running = futures_util::stream::iter(all)
        .map(|one| async move { (one, Instant::now(), one.play(world).await) })
        .buffer_unordered(plan.beside);
    while let Some((one, began, outcome)) = running.next().await {
        println!("{:6.1} s  {one}", began.elapsed().as_secs_f64());
        if let Err(trouble) = outcome {
            green = false;
            println!("BROKEN  {one}\n  {trouble}\n  again: cargo xtask faults --only {one}");
        }
    }
    green
}

async fn rounds(world: &World, pairs: &[Pair], seed: u64, rounds: &[usize]) -> bool {
    let mut green = true;
    for (at, &kills) in rounds.iter().enumerate() {
        let seed = seed + at as u64;
        let mut running = futures_util::stream::iter(pairs)
            .map(|&pair| async move { (pair, random::round(world, pair, seed, kills).await) })
            .buffered(ROUNDS_BESIDE);
        while let Some((pair, outcome)) = running.next().await {
            match outcome {
                Ok(()) => println!("ok      {kills} random kills on {pair}, seed {seed}"),
                Err(trouble) => {
                    green = false;
                    let Pair { store, broker } = pair;
                    println!("BROKEN  {kills} random kills on {pair}, seed {seed}\n  {trouble}");
                    println!(
                        "  again: cargo xtask faults --random {kills} --seed {seed} --store {} --broker {}",
                        store.name(),
                        broker.name()
                    );
                }
            }
        }
    }
    green
}

/// The cells in which each broken promise shows.
fn shows(mutant: Mutant) -> &'static [&'static str] {
    match mutant {
        Mutant::NoFence => &["work/settle.asked/STORE/freeze"],
        Mutant::LateEvent => &["work/settle.kept/STORE/kill"],
        Mutant::NoReaper => &["work/claim.kept/STORE/kill"],
        Mutant::NoCancelGuard => &["work/run.over/STORE/kill"],
        Mutant::EarlyAck => &["work/claim.asked/STORE+valkey/kill", "work/claim.asked/STORE+rabbitmq/kill"],
        Mutant::NoTakeOver => &["work/claim.asked/STORE+redis/kill"],
    }
}

async fn mutants(world: &World, plan: &Plan) -> bool {
    let mut planned = Vec::new();
    for &mutant in Mutant::ALL {
        for store in &plan.stores {
            planned.extend(shows(mutant).iter().map(|cell| (mutant, cell.replace("STORE", store.name()))));
        }
    }
    let mut running = futures_util::stream::iter(planned)
        .map(|(mutant, cell)| async move {
            let name = Some(mutant.name().to_owned());
            let world = World { mutant: name, bound: BOUND_OF_MUTANTS, ..world.clone() };
            let mut outcome = Ok(());
            // A thaw that comes a moment too early or too late shows nothing: one that shows it is enough.
            for _ in 0..TRIES_OF_MUTANTS {
                outcome = match cell.parse() {
                    Ok(cell) => scene::play(&world, cell).await,
                    Err(why) => Err(Trouble::Site(why)),
                };
                if matches!(outcome, Err(Trouble::Broken(_))) {
                    break;
                }
            }
            (mutant, cell, outcome)
        })
        .buffer_unordered(plan.beside);
    let mut green = true;
    while let Some((mutant, cell, outcome)) = running.next().await {
        let name = mutant.name();
        match outcome {
            Err(Trouble::Broken(promises)) => println!("caught  {name} in {cell}: {}", promises.join("; ")),
            Err(trouble) => {
                green = false;
                println!("BROKEN  {name} in {cell}: {trouble}");
            }
            Ok(()) => {
                green = false;
                println!("BROKEN  {name} in {cell}: nobody noticed");
                println!("  again: cargo xtask faults --only {cell} --mutant {name}");
            }
        }
    }
    green
}

/// How far a long run has come.
struct Far {
    file: Option<PathBuf>,
    seed: u64,
    done: usize,
}

impl Far {
    fn read(resumes: bool, seed: Option<u64>) -> Self {
        let beside = std::env::current_exe().ok();
        let file = beside.map(|program| program.with_file_name("faults-progress")).filter(|_| resumes);
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let mut kept = text.split_whitespace().map(|word| word.parse::<u64>().ok());
        let kept = kept.next().flatten().zip(kept.next().flatten());
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        match (kept, seed) {
            // Another seed is another run.
            (Some((known, done)), seed) if seed.is_none_or(|seed| seed == known) => {
                Self { file, seed: known, done: done as usize }
            }
            (_, seed) => {
                Self { seed: seed.unwrap_or_else(|| if resumes { clock() } else { 1 }), file, done: 0 }
            }
        }
    }

    fn write(&self, goes_on: bool) {
        let Some(file) = &self.file else { return };
        // Nothing is lost where this fails but the way back.
        let _ = match goes_on {
            true => std::fs::write(file, format!("{} {}\n", self.seed, self.done)),
            false => std::fs::remove_file(file),
        };
    }
}
