//! Breadth-first search over every state that can be reached, then backwards over every state from
//! which all can still be finished.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Instant;

/// One way on from a state.
pub(super) struct Way<S, L> {
    pub(super) to: S,
    pub(super) name: &'static str,
    /// By which worker, about which job.
    pub(super) of: (Option<u8>, Option<u8>),
    /// It needs a fault, or somebody's will: nobody may count on it.
    pub(super) fault: bool,
    /// The law it breaks.
    pub(super) broken: Option<L>,
}

impl<S, L> Way<S, L> {
    fn told(&self) -> String {
        let worker =
            self.of.0.map(|worker| format!("{}: ", ["a", "b"][usize::from(worker)])).unwrap_or_default();
        let job = self.of.1.map(|job| format!(" (job {job})")).unwrap_or_default();
        format!("{worker}{}{job}", self.name)
    }
}

pub(super) trait System {
    type State: Copy + Eq + Hash + std::fmt::Debug;
    type Law: Copy;

    fn begin(&self) -> Self::State;

    fn ways(&self, from: &Self::State, ways: &mut Vec<Way<Self::State, Self::Law>>);

    /// Everything is done that had to be.
    fn is_finished(&self, state: &Self::State) -> bool;
}

pub(super) struct Found<L> {
    pub(super) states: usize,
    pub(super) transitions: usize,
    pub(super) depth: usize,
    pub(super) seconds: f64,
    /// What the search itself keeps, in bytes.
    pub(super) memory: usize,
    /// How often each action was a way on.
    pub(super) met: BTreeMap<&'static str, usize>,
    pub(super) wrong: Option<Wrong<L>>,
}

/// What went wrong, with the shortest way there.
pub(super) struct Wrong<L> {
    /// `None`: stuck, from here not everything can be finished.
    pub(super) law: Option<L>,
    pub(super) trace: Vec<String>,
    pub(super) at: String,
}

#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

#[derive(Default, Clone, Copy)]
struct Mixing;

impl BuildHasher for Mixing {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        Mix::default()
    }
}

/// The states in the order they were found, each once. Open addressing over their numbers.
struct Seen<S> {
    states: Vec<S>,
    slots: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl<S: Copy + Eq + Hash> Seen<S> {
    fn new() -> Self {
        Self { states: Vec::new(), slots: vec![EMPTY; 1 << 16] }
    }

    /// The state's number, and whether it is new.
    fn insert(&mut self, state: S) -> (u32, bool) {
        if self.states.len() * 2 > self.slots.len() {
            self.slots = vec![EMPTY; self.slots.len() * 2];
            for number in 0..self.states.len() {
                let slot = self.slot(&self.states[number]);
                self.slots[slot] = number as u32;
            }
        }
        let slot = self.slot(&state);
        if self.slots[slot] != EMPTY {
            return (self.slots[slot], false);
        }
        let number = u32::try_from(self.states.len()).expect("fewer than four thousand million states");
        self.slots[slot] = number;
        self.states.push(state);
        (number, true)
    }

    fn slot(&self, state: &S) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = Mixing.hash_one(state) as usize & mask;
        while self.slots[slot] != EMPTY && self.states[self.slots[slot] as usize] != *state {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

/// Explores until the first law is broken, or all there is; then looks for states that are stuck.
pub(super) fn explore<Y: System>(system: &Y) -> Found<Y::Law> {
    let begin = Instant::now();
    let mut seen = Seen::new();
    seen.insert(system.begin());
    let (mut parents, mut depths) = (vec![EMPTY], vec![0_u16]);
    let mut free: Vec<(u32, u32)> = Vec::new();
    let mut found = Found {
        states: 0,
        transitions: 0,
        depth: 0,
        seconds: 0.0,
        memory: 0,
        met: BTreeMap::new(),
        wrong: None,
    };
    let mut ways = Vec::new();
    let mut next = 0;
    'search: while next < seen.states.len() {
        let from = next as u32;
        ways.clear();
        let state = seen.states[next];
        system.ways(&state, &mut ways);
        for way in ways.drain(..) {
            found.transitions += 1;
            *found.met.entry(way.name).or_default() += 1;
            let (to, new) = seen.insert(way.to);
            if new {
                parents.push(from);
                depths.push(depths[next] + 1);
            }
            if let Some(law) = way.broken {
                let mut trace = trace(system, &seen.states, &parents, from);
                trace.push(way.told());
                found.wrong = Some(Wrong { law: Some(law), trace, at: format!("{:?}", way.to) });
                break 'search;
            }
            if !way.fault && to != from {
                free.push((to, from));
            }
        }
        next += 1;
    }
    found.states = seen.states.len();
    found.depth = depths.iter().copied().max().unwrap_or(0).into();
    found.memory = seen.states.capacity() * size_of::<Y::State>()
        + seen.slots.len() * 4
        + parents.capacity() * 4
        + depths.capacity() * 2
        + free.capacity() * 8
        + free.len() * 4;
    if found.wrong.is_none()
        && let Some(stuck) = first_stuck(system, &seen.states, &free)
    {
        let trace = trace(system, &seen.states, &parents, stuck);
        found.wrong = Some(Wrong { law: None, trace, at: format!("{:?}", seen.states[stuck as usize]) });
    }
    found.seconds = begin.elapsed().as_secs_f64();
    found
}

/// The names of the actions on the shortest way to a state, found again from its ancestors.
fn trace<Y: System>(system: &Y, states: &[Y::State], parents: &[u32], mut at: u32) -> Vec<String> {
    let mut names = Vec::new();
    while parents[at as usize] != EMPTY {
        let parent = parents[at as usize];
        let mut ways = Vec::new();
        system.ways(&states[parent as usize], &mut ways);
        let way = ways.iter().find(|way| way.to == states[at as usize]).expect("a parent leads to its child");
        names.push(way.told());
        at = parent;
    }
    names.reverse();
    names
}

/// The first state found from which no way without further faults leads to the end.
fn first_stuck<Y: System>(system: &Y, states: &[Y::State], free: &[(u32, u32)]) -> Option<u32> {
    // The ways backwards, those to one state side by side.
    let mut begins = vec![0_u32; states.len() + 1];
    for (to, _) in free {
        begins[*to as usize + 1] += 1;
    }
    for at in 1..begins.len() {
        begins[at] += begins[at - 1];
    }
    let mut sources = vec![0_u32; free.len()];
    let mut filled = begins.clone();
    for (to, from) in free {
        sources[filled[*to as usize] as usize] = *from;
        filled[*to as usize] += 1;
    }
    drop(filled);
    let mut reaches: Vec<bool> = states.iter().map(|state| system.is_finished(state)).collect();
    let mut open: Vec<u32> = (0..states.len() as u32).filter(|at| reaches[*at as usize]).collect();
    while let Some(at) = open.pop() {
        let (from, to) = (begins[at as usize] as usize, begins[at as usize + 1] as usize);
        for source in &sources[from..to] {
            if !std::mem::replace(&mut reaches[*source as usize], true) {
                open.push(*source);
            }
        }
    }
    reaches.iter().position(|reaches| !reaches).map(|at| at as u32)
}
