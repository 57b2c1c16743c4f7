//! Letters that no word of the dictionary begins with: how many of them make one, by their category.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use super::dictionary::{Tables, Word};

/// For each category of characters, how a word of them is read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Categories(pub(super) Vec<Vec<(u16, i16)>>);

/// The longest run of one category that is taken as one word.
const RUN_MAX: usize = 24;

/// What the table says of a character: the sets it belongs to, and how words of its own set are made.
#[derive(Clone, Copy)]
pub(super) struct Character(u32);

impl Character {
    pub(super) fn of(tables: &Tables<'_>, c: char) -> Self {
        Self(tables.character(c))
    }

    fn sets(self) -> u32 {
        self.0 & 0x3_ffff
    }

    fn own(self) -> usize {
        (self.0 >> 18 & 0xff) as usize
    }

    /// Words of 1 to so many characters are tried.
    fn length(self) -> usize {
        (self.0 >> 26 & 0xf) as usize
    }

    /// A whole run of the set is tried.
    fn group(self) -> bool {
        self.0 >> 30 & 1 == 1
    }

    /// Tried even where the dictionary has a word.
    pub(super) fn always(self) -> bool {
        self.0 >> 31 & 1 == 1
    }

    pub(super) fn is_kind_of(self, other: Self) -> bool {
        self.sets() & other.sets() != 0
    }
}

/// The words that unknown letters at the beginning of a text may be, with their lengths in bytes.
///
/// `known`: the dictionary has a word here, so that something must be made only where the category says so.
pub(super) fn words(tables: &Tables<'_>, text: &str, known: bool, mut each: impl FnMut(usize, Word)) {
    let Some(first) = text.chars().next() else { return };
    let kind = Character::of(tables, first);
    if known && !kind.always() {
        return;
    }
    let readings = tables.readings(kind.own());
    let made = Cell::new(known);
    let mut make = |length: usize| {
        readings.iter().for_each(|(class, cost)| each(length, Word { class: *class, cost: *cost }));
        made.set(true);
    };
    let begin = first.len_utf8();
    let mut grouped = None;
    if kind.group() {
        let (end, count) = run(tables, &text[begin..], kind);
        if count <= RUN_MAX {
            make(begin + end);
        }
        grouped = Some(begin + end);
    }
    let mut end = begin;
    for _ in 0..kind.length() {
        if grouped == Some(end) {
            // That one was made above. What follows it is of another kind, so nothing longer can be made.
            break;
        }
        make(end);
        match text[end..].chars().next() {
            Some(c) if kind.is_kind_of(Character::of(tables, c)) => end += c.len_utf8(),
            _ => break,
        }
    }
    if !made.get() {
        make(end);
    }
}

/// How far a run goes on whose characters each have a set in common with the one before.
///
/// One that is too long for a word is not followed to its end: from each of its places that would be done again.
fn run(tables: &Tables<'_>, text: &str, mut kind: Character) -> (usize, usize) {
    let mut count = 0;
    for (at, c) in text.char_indices() {
        let next = Character::of(tables, c);
        if !kind.is_kind_of(next) || count > RUN_MAX {
            return (at, count);
        }
        kind = next;
        count += 1;
    }
    (text.len(), count)
}
