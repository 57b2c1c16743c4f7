//! A dictionary of Korean morphemes out of a pack: which words there are, what they cost, and what it costs to
//! put one after another.

use std::sync::Arc;

use fst::raw::{Fst, Output};
use serde::Deserialize;

use super::lattice;
use super::unknown::Categories;
use super::user::UserWords;
use crate::pack::{Pack, PackError, Section};

/// A morpheme of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Morpheme<'d> {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// The part of speech as the dictionary names it, `NNG` or `XSV+EF`.
    pub tag: &'d str,
}

/// Morphemes of a sort: what may stand beside them, and what they are.
#[derive(Clone, Copy)]
pub(super) struct Class {
    pub(super) left: u16,
    pub(super) right: u16,
    /// The extra cost of such a word after a blank.
    pub(super) after_blank: u16,
    tag: u16,
}

/// A way to read some letters.
#[derive(Clone, Copy)]
pub(super) struct Word {
    pub(super) class: u16,
    pub(super) cost: i16,
}

pub struct Dictionary {
    pack: Arc<Pack>,
    words: Fst<Section>,
    tags: Vec<String>,
    categories: Categories,
    nouns: [u16; 2],
    /// Distinct columns of the table of links.
    width: usize,
    user: UserWords,
}

#[derive(Deserialize)]
struct Facts {
    tags: Vec<String>,
    /// Classes of common nouns that end in a vowel and in a consonant.
    nouns: [u16; 2],
    width: usize,
    categories: Categories,
}

impl Dictionary {
    /// # Errors
    /// [`PackError::Malformed`] where the pack is not a dictionary.
    pub fn new(pack: Pack) -> Result<Self, PackError> {
        let pack = Arc::new(pack);
        let Facts { tags, nouns, width, categories } = pack.facts()?;
        let words = Fst::new(Section::new(pack.clone(), "words")).map_err(|_| PackError::Malformed)?;
        let rows = ["classes", "rows", "columns", "costs", "characters"];
        if tags.is_empty() || rows.iter().any(|name| pack.section(name).is_empty()) {
            return Err(PackError::Malformed);
        }
        Ok(Self { pack, words, tags, categories, nouns, width, user: UserWords::default() })
    }

    /// The same dictionary with words of its user.
    #[must_use]
    pub fn with_words(mut self, words: UserWords) -> Self {
        self.user = words;
        self
    }

    /// Names the dictionary and its version.
    pub fn id(&self) -> &str {
        &self.pack.header().id
    }

    /// The morphemes of a text in order, the cheapest way to read each of its lines. What is blank is none.
    pub fn morphemes(&self, text: &str) -> Vec<Morpheme<'_>> {
        let tables = self.tables();
        let mut found = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            for piece in pieces(line) {
                let from = at + piece.start;
                let read = lattice::read(&tables, &line[piece]);
                found.extend(read.iter().map(|(start, end, class)| Morpheme {
                    start: from + start,
                    end: from + end,
                    tag: tables.tag(*class),
                }));
            }
            at += line.len();
        }
        found
    }

    fn tables(&self) -> Tables<'_> {
        Tables {
            dictionary: self,
            tokens: bytemuck::try_cast_slice(self.pack.section("tokens")).unwrap_or_default(),
            classes: bytemuck::try_cast_slice(self.pack.section("classes")).unwrap_or_default(),
            rows: self.pack.numbers("rows"),
            columns: self.pack.numbers("columns"),
            costs: self.pack.numbers("costs"),
            characters: self.pack.numbers("characters"),
        }
    }
}

/// The tables of an open dictionary. What a table does not hold is nothing: a broken pack reads wrongly and
/// does no harm.
pub(super) struct Tables<'d> {
    dictionary: &'d Dictionary,
    tokens: &'d [[i16; 2]],
    classes: &'d [[u16; 4]],
    rows: &'d [u16],
    columns: &'d [u16],
    costs: &'d [i16],
    characters: &'d [u32],
}

impl<'d> Tables<'d> {
    pub(super) fn class(&self, class: u16) -> Class {
        let [left, right, after_blank, tag] =
            self.classes.get(usize::from(class)).copied().unwrap_or_default();
        Class { left, right, after_blank, tag }
    }

    fn tag(&self, class: u16) -> &'d str {
        let tag = usize::from(self.class(class).tag);
        self.dictionary.tags.get(tag).map_or("UNKNOWN", String::as_str)
    }

    /// What it costs to put a word after another. Equal rows and columns of the table are stored once.
    pub(super) fn link(&self, right: u16, left: u16) -> i32 {
        let row = self.rows.get(usize::from(left)).copied().unwrap_or_default();
        let column = self.columns.get(usize::from(right)).copied().unwrap_or_default();
        let at = usize::from(row) * self.dictionary.width + usize::from(column);
        self.costs.get(at).copied().map_or(0, i32::from)
    }

    /// Every word that a text begins with, the shortest first, with its length in bytes.
    pub(super) fn words(&self, text: &str, mut each: impl FnMut(usize, Word)) {
        let words = &self.dictionary.words;
        let mut node = words.root();
        let mut value = Output::zero();
        for (i, byte) in text.bytes().enumerate() {
            let Some(next) = node.find_input(byte) else { break };
            let step = node.transition(next);
            value = value.cat(step.out);
            node = words.node(step.addr);
            if node.is_final() {
                let at = value.cat(node.final_output()).value();
                let (from, count) = ((at >> 8) as usize, (at & 0xff) as usize);
                for [class, cost] in self.tokens.get(from..from + count).unwrap_or_default() {
                    each(i + 1, Word { class: class.cast_unsigned(), cost: *cost });
                }
            }
        }
        let nouns = self.dictionary.nouns;
        self.dictionary.user.each(text, |length, open| {
            each(length, Word { class: nouns[usize::from(!open)], cost: super::user::cost(length) });
        });
    }

    /// How words that begin with this character are made where the dictionary has none.
    pub(super) fn character(&self, c: char) -> u32 {
        // What lies beyond the table is treated as nothing.
        let at = u32::from(c) as usize;
        self.characters.get(at).or(self.characters.first()).copied().unwrap_or_default()
    }

    /// How a word of unknown letters of a category is read.
    pub(super) fn readings(&self, category: usize) -> &'d [(u16, i16)] {
        self.dictionary.categories.0.get(category).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A line longer than this is read piece by piece, cut at blanks where there are some.
const PIECE_BYTES_MAX: usize = 16_384;

fn pieces(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while line.len() - at > PIECE_BYTES_MAX {
        let limit = (at + PIECE_BYTES_MAX..).find(|i| line.is_char_boundary(*i)).unwrap_or(line.len());
        let end =
            line[at..limit].rfind(char::is_whitespace).filter(|end| *end > 0).map_or(limit, |end| at + end);
        pieces.push(at..end);
        at = end;
    }
    pieces.push(at..line.len());
    pieces
}
