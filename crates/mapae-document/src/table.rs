//! Words, rules and shades of a page to the tables on it.
//!
//! Pure functions over what is seen; no format of a file is known here. The road of a page:
//!
//! ```text
//! Sight ─ frame: one for each way text is read, so that all below reads left to right, top to bottom
//!       ─ rule: pieces to whole rules          line: words to lines and chunks
//!       ─ lattice: crossing rules to cells; rows and columns inside of cells that rules do not part
//!       ─ region: where text without a lattice stands in columns
//!       ─ column, row, header: such a region to cells
//!       ─ assess: is it a table at all, and how sure; title
//!       ─ document, link: page after page, and what goes on on the next one
//! ```
//!
//! Every rule says which layout it is for. The numbers that decide are in [`tuning`].

pub mod draw;
pub mod sight;
pub mod tuning;

mod assess;
mod column;
pub(crate) mod document;
mod frame;
mod geometry;
mod header;
mod lattice;
mod line;
mod link;
mod refine;
mod region;
mod row;
mod rule;
mod shade;
mod shape;
mod stream;
mod title;

pub(crate) use line::is_number;
pub(crate) use title::is_caption;

use serde::{Deserialize, Serialize};

use frame::Frame;
use sight::{Box, Sight};
use tuning::Tuning;

/// A table on a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Left, bottom, right, top of what stands in it, points of the page before rotation.
    pub bbox: Box,
    /// 0 to 1.
    pub confidence: f64,
    pub title: Option<String>,
    /// How many of the first rows are headings.
    pub header_rows: u32,
    pub rows: u32,
    pub columns: u32,
    /// Cells that hold something, by row, then column.
    pub cells: Vec<FoundCell>,
}

/// A cell that holds something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundCell {
    pub row: u32,
    pub col: u32,
    pub rowspan: u32,
    pub colspan: u32,
    pub text: String,
    pub bbox: Box,
}

/// A page as it was seen, and what was found on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub sight: Sight,
    pub tables: Vec<Found>,
}

impl Seen {
    pub(crate) fn of(sight: Sight) -> Self {
        let tables = extract(&sight, &Tuning::default());
        Self { sight, tables }
    }
}

/// Words of one page that tables are looked for in; a page with more is a drawing or an attack.
pub const WORDS_MAX: usize = 20_000;

/// The tables of a page, from top to bottom as they are read.
///
/// A page of more than [`WORDS_MAX`] words has none.
pub fn extract(sight: &Sight, tuning: &Tuning) -> Vec<Found> {
    let mut found = Vec::new();
    if sight.words.len() > WORDS_MAX {
        return found;
    }
    for frame in frame::frames(sight) {
        found.extend(in_frame(&frame, tuning));
    }
    found
}

fn in_frame(frame: &Frame, tuning: &Tuning) -> Vec<Found> {
    let (words, typed) = line::typed_rules(&frame.words);
    let rules = rule::whole(&[&frame.rules[..], &typed, &shade::gaps(&frame.fills)].concat());
    let words = line::without_leaders(&words);
    let gaps = line::Gaps::of(&words, tuning);
    let mut taken = Vec::new();
    let mut shapes = Vec::new();
    for grid in lattice::grids(&rules, tuning.edge) {
        let inside: Vec<_> = words.iter().filter(|w| grid.area().holds(&w.area)).cloned().collect();
        let Some(shape) = refine::shape(&grid, &inside, &frame.turned, gaps, tuning) else { continue };
        taken.push(grid.area());
        shapes.push(shape);
    }
    let rest: Vec<_> = words.iter().filter(|w| !taken.iter().any(|t| t.holds(&w.area))).cloned().collect();
    shapes.extend(stream::shapes(&rest, &rules, &frame.fills, &taken, tuning));
    shapes.sort_by(|a, b| a.area.y0.total_cmp(&b.area.y0).then(a.area.x0.total_cmp(&b.area.x0)));
    shapes.iter().map(|shape| assess::found(shape, &words, frame)).collect()
}
