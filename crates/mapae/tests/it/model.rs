//! Every state the protocol can get into, within bounds, and that each is as promised.
//!
//! The rows change by the product's own transition function; broker, workers, keeper and faults are
//! modelled (`model/system.rs`, `world.rs`, `worker.rs`). At every step the laws are checked, and from every state there must be
//! a way to the end on which nothing more goes wrong. Then the same with one thing done wrongly at a
//! time: the search has to find it, or to show over all states that it does no harm.

mod explore;
mod law;
mod moves;
mod row;
mod system;
mod worker;
mod world;
mod wrong;

use std::collections::BTreeMap;

use self::explore::{Found, explore};
use self::law::{Law, fault};
use self::system::Plan;

const WORLD: Plan = Plan {
    jobs: 1,
    attempts: 2,
    budget: 2,
    faults: fault::ALL,
    keeper: true,
    rescan: true,
    at_claim: false,
    deadline: false,
    relay: false,
    flaws: &[],
    watched: None,
};

/// What the broker's pending list alone can recover: nothing that needs a keeper to wake it.
const WITHOUT_KEEPER: u32 = fault::CRASH
    | fault::FREEZE
    | fault::SLOW_BEAT
    | fault::LOST_ANSWER
    | fault::LOST_REQUEST
    | fault::LOST_CLAIM
    | fault::DUPLICATE
    | fault::FAIL
    | fault::STALE
    | fault::CANCEL
    | fault::DELETE;

/// The worlds explored whole, large ones with fewer faults at a time.
fn worlds() -> Vec<(&'static str, Plan)> {
    vec![
        ("one job, three faults", Plan { budget: 3, ..WORLD }),
        ("two jobs, one fault", Plan { jobs: 2, budget: 1, ..WORLD }),
        ("one job of three attempts, two faults", Plan { attempts: 3, ..WORLD }),
        ("acknowledged at the claim, three faults", Plan { at_claim: true, budget: 3, ..WORLD }),
        ("two jobs acknowledged at the claim", Plan { at_claim: true, jobs: 2, budget: 1, ..WORLD }),
        ("two jobs, two crashes", Plan { jobs: 2, faults: fault::CRASH, ..WORLD }),
        ("a deadline, two faults", Plan { deadline: true, ..WORLD }),
        ("events sent from the outbox, two faults", Plan { relay: true, ..WORLD }),
        (
            "no keeper and no rescan, three faults",
            Plan { keeper: false, rescan: false, budget: 3, faults: WITHOUT_KEEPER, ..WORLD },
        ),
        (
            "two jobs, no keeper and no rescan, one fault",
            Plan { keeper: false, rescan: false, jobs: 2, budget: 1, faults: WITHOUT_KEEPER, ..WORLD },
        ),
    ]
}

/// Every action there is: a search that never takes one of them proves nothing about it.
const ACTIONS: [&str; 46] = [
    "a pointer is doubled",
    "a pointer is lost",
    "accept",
    "acknowledges",
    "acknowledges and begins",
    "an event is marked as sent",
    "an event is sent",
    "asks again",
    "bury",
    "calls the outside",
    "cancel",
    "claims",
    "claims and is not answered",
    "delete",
    "ends it instead of claiming",
    "expire",
    "finds it busy",
    "finds it ended or not due",
    "finds no job",
    "freezes",
    "is killed",
    "is refused the stage",
    "keeps the stage",
    "learns that its lease is lost",
    "publish",
    "reads a pointer",
    "reads its own pointer again",
    "reap",
    "reap a live worker's job",
    "redrive",
    "renews",
    "ring",
    "settles",
    "settles and is not answered",
    "settles and is not heard",
    "settles otherwise",
    "starts again",
    "takes a pointer over",
    "thaws",
    "the broker loses everything",
    "the deadline passes",
    "the job is due",
    "the keeper is killed",
    "the lease of a live worker runs out",
    "the lease runs out",
    "the pointer's age passes",
];

fn show(name: &str, found: &Found<Law>) {
    eprintln!(
        "{name}: {} states, {} transitions, depth {}, {:.1} s, {} MiB",
        found.states,
        found.transitions,
        found.depth,
        found.seconds,
        found.memory >> 20
    );
    if let Some(wrong) = &found.wrong {
        eprintln!("    {}, by {} steps:", outcome(found), wrong.trace.len());
        for (number, step) in wrong.trace.iter().enumerate() {
            eprintln!("    {:>2}  {step}", number + 1);
        }
    }
}

fn outcome(found: &Found<Law>) -> String {
    match &found.wrong {
        None => "no harm".into(),
        Some(wrong) => wrong.law.map_or("stuck".into(), |law| format!("breaks {law:?}")),
    }
}

#[test]
fn the_protocol_keeps_its_promises_in_every_state() {
    let (mut states, mut seconds, mut memory) = (0, 0.0, 0);
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, plan) in worlds() {
        let found = explore(&plan);
        show(name, &found);
        if let Some(wrong) = &found.wrong {
            panic!("{name}: {}\n{}", outcome(&found), wrong.at);
        }
        states += found.states;
        seconds += found.seconds;
        memory = memory.max(found.memory);
        for (action, count) in found.met {
            *met.entry(action).or_default() += count;
        }
    }
    eprintln!("in all {states} states, {seconds:.1} s, at most {} MiB at a time", memory >> 20);
    let never: Vec<&str> = ACTIONS.into_iter().filter(|action| !met.contains_key(action)).collect();
    assert!(never.is_empty(), "never done: {never:?}");
    assert!(states >= 2_000_000, "only {states} states");
}

#[test]
fn whatever_is_done_wrongly_is_found_or_does_no_harm() {
    let wrong = wrong::variants();
    assert!(wrong.len() >= 20);
    let mut missed = Vec::new();
    for variant in wrong {
        let found = explore(&variant.plan);
        show(variant.name, &found);
        let (is, should) = (outcome(&found), variant.outcome());
        if is != should {
            missed.push(format!("{}: {is} instead of {should}", variant.name));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
