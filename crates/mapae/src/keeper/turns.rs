//! Whose callbacks are told next: owners take turns, and so do each owner's hosts. Pure.
//!
//! An owner is given a further place only while more are free than it has: one alone uses half of them, and whoever
//! comes next finds one, whatever becomes of the others' calls.

use std::collections::{HashMap, VecDeque};

use crate::store::contract::Call;

/// Most owners of whom it is remembered how far their lines were looked at.
const REMEMBERED_MAX: usize = 10_000;

/// How far the last pass came.
#[derive(Default)]
pub(super) struct Turns {
    /// The owner up to which it looked.
    after: String,
    /// The line up to which it looked, of owners that have more than one look takes in.
    lines: HashMap<String, String>,
}

/// What a pass has found.
pub(super) struct Found<'a> {
    pub(super) owners: &'a [String],
    /// There are more owners behind these.
    pub(super) more: bool,
    /// Up to `each` of each owner.
    pub(super) calls: Vec<Call>,
    pub(super) each: usize,
}

impl Turns {
    pub(super) fn after(&self) -> String {
        self.after.clone()
    }

    /// Each owner with the line after which to look.
    pub(super) fn asked(&self, owners: &[String]) -> Vec<(String, String)> {
        let after = |owner: &String| self.lines.get(owner).cloned().unwrap_or_default();
        owners.iter().map(|owner| (owner.clone(), after(owner))).collect()
    }

    /// The lines to tell now. `open` says whether one may be told, `busy` how many of each owner's are being told,
    /// and of `places` those are taken.
    pub(super) fn choose(
        &mut self,
        found: Found<'_>,
        open: impl Fn(&str) -> bool,
        busy: &HashMap<String, usize>,
        places: usize,
    ) -> Vec<Call> {
        let mut free = places.saturating_sub(busy.values().sum());
        let mut all: HashMap<&str, VecDeque<&Call>> = HashMap::new();
        for call in &found.calls {
            all.entry(&call.owner).or_default().push_back(call);
        }
        let mut queues = all.clone();
        let asked = self.lines.clone();
        for owner in found.owners {
            let looked_at = all.get(owner.as_str()).filter(|calls| calls.len() >= found.each);
            match looked_at.and_then(|calls| calls.back()) {
                Some(last) => drop(self.lines.insert(owner.clone(), last.line.clone())),
                None => drop(self.lines.remove(owner)),
            }
        }
        for calls in queues.values_mut() {
            calls.retain(|call| call.due && open(&call.line));
        }
        let (mut chosen, mut given): (Vec<Call>, HashMap<&str, usize>) = Default::default();
        loop {
            let before = chosen.len();
            for owner in found.owners {
                let Some(calls) = queues.get_mut(owner.as_str()) else { continue };
                let given =
                    given.entry(owner).or_insert_with(|| busy.get(owner).copied().unwrap_or_default());
                if free > *given
                    && let Some(call) = calls.pop_front()
                {
                    (free, *given) = (free - 1, *given + 1);
                    chosen.push(call.clone());
                }
            }
            if chosen.len() == before {
                break;
            }
        }
        self.go_on(&found, &asked, &all, &queues, &given);
        chosen
    }

    /// The next pass begins with what found no place: of each owner behind the last line of `all` before the first
    /// that is `left`, and where that is the very first one, where this pass began.
    fn go_on(
        &mut self,
        found: &Found<'_>,
        asked: &HashMap<String, String>,
        all: &HashMap<&str, VecDeque<&Call>>,
        left: &HashMap<&str, VecDeque<&Call>>,
        given: &HashMap<&str, usize>,
    ) {
        let mut before = self.after.clone();
        self.after = match found.owners.last() {
            Some(last) if found.more => last.clone(),
            _ => String::new(),
        };
        let mut refused = false;
        for owner in found.owners {
            if let Some(first) = left.get(owner.as_str()).and_then(VecDeque::front) {
                let of_owner = all.get(owner.as_str()).into_iter().flatten();
                let last = of_owner.take_while(|call| call.line != first.line).last();
                match last.map(|call| &call.line).or(asked.get(owner)) {
                    Some(line) => drop(self.lines.insert(owner.clone(), line.clone())),
                    None => drop(self.lines.remove(owner)),
                }
                if given.get(owner.as_str()) == Some(&0) && !std::mem::replace(&mut refused, true) {
                    self.after = before.clone();
                }
            }
            before.clone_from(owner);
        }
        if self.lines.len() > REMEMBERED_MAX {
            self.lines.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(owner: &str, lines: std::ops::Range<usize>) -> Vec<Call> {
        let call = |n| Call { owner: owner.into(), line: format!("{owner} {n:05}"), due: true };
        lines.map(call).collect()
    }

    fn names(owners: &[&str]) -> Vec<String> {
        owners.iter().map(|owner| (*owner).to_owned()).collect()
    }

    fn counted(chosen: &[Call]) -> HashMap<String, usize> {
        let mut counted = HashMap::new();
        for call in chosen {
            *counted.entry(call.owner.clone()).or_default() += 1;
        }
        counted
    }

    #[test]
    fn whoever_comes_finds_a_place_however_many_lines_another_has() {
        let (mut turns, mut busy) = (Turns::default(), HashMap::new());
        for owner in ["a", "b", "c", "d", "e", "f"] {
            let owners = names(&[owner]);
            let found = Found { owners: &owners, more: false, calls: calls(owner, 0..100), each: 100 };
            let chosen = turns.choose(found, |_| true, &busy, 64);
            assert!(!chosen.is_empty(), "{owner}: {busy:?}");
            busy.extend(counted(&chosen));
        }
        assert_eq!((busy["a"], busy["b"]), (32, 16));
    }

    #[test]
    fn owners_take_turns_and_so_do_the_lines_of_each() {
        let mut turns = Turns::default();
        let owners = names(&["a", "b"]);
        let both = || [calls("a", 0..10), calls("b", 0..2)].concat();
        let found = Found { owners: &owners, more: false, calls: both(), each: 10 };
        let chosen = turns.choose(found, |_| true, &HashMap::new(), 8);
        assert_eq!(counted(&chosen), [("a".into(), 3), ("b".into(), 2)].into());
        assert_eq!(turns.asked(&owners)[0].1, "a 00002", "the next look begins with the fourth");
        let found = Found { owners: &owners, more: false, calls: calls("a", 3..13), each: 10 };
        let chosen = turns.choose(found, |line| line != "a 00003", &HashMap::new(), 8);
        assert_eq!(chosen[0].line, "a 00004", "what rests takes no turn");
    }

    #[test]
    fn a_pass_without_a_free_place_takes_no_turn_away() {
        let mut turns = Turns::default();
        let owners = names(&["a"]);
        let look = |lines| Found { owners: &owners, more: false, calls: calls("a", lines), each: 10 };
        assert_eq!(turns.choose(look(0..10), |_| true, &HashMap::new(), 8).len(), 4);
        let full = HashMap::from([("b".to_owned(), 8)]);
        for _ in 0..3 {
            assert_eq!(turns.asked(&owners)[0].1, "a 00003");
            assert_eq!(turns.choose(look(4..14), |_| true, &full, 8).len(), 0);
        }
        assert_eq!(turns.choose(look(4..14), |_| true, &HashMap::new(), 8)[0].line, "a 00004");
    }

    #[test]
    fn owners_that_found_no_place_are_first_in_the_next_pass() {
        let mut turns = Turns::default();
        let owners = names(&["a", "b", "c"]);
        let each = || owners.iter().flat_map(|owner| calls(owner, 0..1)).collect();
        let found = Found { owners: &owners, more: true, calls: each(), each: 10 };
        let chosen = turns.choose(found, |_| true, &HashMap::new(), 2);
        assert_eq!((chosen.len(), turns.after()), (2, "b".into()));
        let found = Found { owners: &owners, more: true, calls: each(), each: 10 };
        turns.choose(found, |_| true, &HashMap::new(), 64);
        assert_eq!(turns.after(), "c", "beyond these");
    }
}
