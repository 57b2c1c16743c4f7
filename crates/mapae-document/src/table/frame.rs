//! A page seen along one reading direction, so that a table turned by 90 degrees is a table like any other.

use std::collections::HashMap;

use super::geometry::Area;
use super::sight::{Box, DESCENT, Sight, Turn};

/// Share of a page's words from which on a direction is looked at for tables of its own.
const SHARE: f64 = 0.1;
/// Words a direction needs beside.
const WORDS: usize = 8;

/// A word in a frame.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) area: Area,
    /// The baseline.
    pub(super) base: f64,
    pub(super) size: f64,
}

/// What is seen along one direction.
pub(super) struct Frame {
    turn: Turn,
    width: f64,
    height: f64,
    pub(super) words: Vec<Word>,
    /// Words read in other directions, which headings of narrow columns often are.
    pub(super) turned: Vec<Word>,
    pub(super) rules: Vec<Area>,
    pub(super) fills: Vec<Area>,
}

/// The frames of a page, the one with most words first.
pub(super) fn frames(sight: &Sight) -> Vec<Frame> {
    let mut counts: HashMap<Turn, usize> = HashMap::new();
    for word in &sight.words {
        *counts.entry(word.turn).or_default() += 1;
    }
    let enough = WORDS.max((SHARE * sight.words.len() as f64) as usize);
    let mut turns: Vec<(Turn, usize)> = counts.into_iter().filter(|(_, n)| *n >= enough).collect();
    turns.sort_by_key(|&(turn, n)| (std::cmp::Reverse(n), turn as u8));
    turns.into_iter().map(|(turn, _)| frame(sight, turn)).collect()
}

fn frame(sight: &Sight, turn: Turn) -> Frame {
    let (width, height) = (sight.width, sight.height);
    let area = |b: &Box| turned(*b, turn, width, height);
    let word = |w: &super::sight::Word| {
        let area = area(&w.bbox);
        Word { text: w.text.clone(), area, base: area.y1 - DESCENT * w.size, size: w.size }
    };
    Frame {
        turn,
        width,
        height,
        words: sight.words.iter().filter(|w| w.turn == turn).map(word).collect(),
        turned: sight.words.iter().filter(|w| w.turn != turn).map(word).collect(),
        rules: sight.rules.iter().map(area).collect(),
        fills: sight.fills.iter().map(area).collect(),
    }
}

/// A box of the page as it lies in the frame of `turn`.
fn turned([left, bottom, right, top]: Box, turn: Turn, width: f64, height: f64) -> Area {
    match turn {
        Turn::Level => Area::new(left, height - top, right, height - bottom),
        Turn::Up => Area::new(bottom, left, top, right),
        Turn::Over => Area::new(width - right, bottom, width - left, top),
        Turn::Down => Area::new(height - top, width - right, height - bottom, width - left),
    }
}

impl Frame {
    /// An area of the frame as a box of the page.
    pub(super) fn to_page(&self, area: &Area) -> Box {
        let (width, height) = (self.width, self.height);
        let Area { x0, y0, x1, y1 } = *area;
        match self.turn {
            Turn::Level => [x0, height - y1, x1, height - y0],
            Turn::Up => [y0, x0, y1, x1],
            Turn::Over => [width - x1, y0, width - x0, y1],
            Turn::Down => [width - y1, height - x1, width - y0, height - x0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_comes_back_from_every_frame_as_it_was() {
        let sight = Sight { width: 600.0, height: 800.0, ..Sight::default() };
        let page = [10.0, 20.0, 110.0, 35.0];
        for turn in [Turn::Level, Turn::Up, Turn::Over, Turn::Down] {
            let frame = frame(&sight, turn);
            let area = turned(page, turn, 600.0, 800.0);
            assert!(area.x0 < area.x1 && area.y0 < area.y1, "{turn:?}");
            assert_eq!(frame.to_page(&area), page, "{turn:?}");
        }
    }
}
