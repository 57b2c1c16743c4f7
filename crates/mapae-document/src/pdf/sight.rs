//! What is seen on a page, for whoever looks for tables: words, rules and shades from the page's own corner.

use hayro_interpret::kurbo::{Rect, Vec2};

use super::PageContent;
use super::lines::{Flow, Word, flows};
use crate::table::sight::{self, ASCENT, DESCENT, Sight, Turn};

pub(super) fn of(content: &PageContent) -> Sight {
    let (x, y) = content.origin;
    let from_corner = |r: &Rect| [r.x0 - x, r.y0 - y, r.x1 - x, r.y1 - y];
    let flows = flows(&content.glyphs);
    let words = flows.iter().flat_map(|flow| {
        let turn = turn(flow);
        let words = flow.lines.iter().flat_map(|line| &line.pieces);
        words.map(move |word| sight::Word {
            text: word.text.clone(),
            bbox: from_corner(&place(word, flow)),
            size: word.size,
            turn,
        })
    });
    Sight {
        page: content.number,
        width: content.width,
        height: content.height,
        rotation: content.rotation,
        words: words.collect(),
        rules: content.marks.rules.iter().map(from_corner).collect(),
        fills: content.marks.fills.iter().map(from_corner).collect(),
    }
}

fn place(word: &Word, flow: &Flow) -> Rect {
    let along = flow.along;
    let up = Vec2::new(-along.y, along.x);
    // The axis of vertical writing is the middle of its column.
    let (above, below) = if flow.vertical { (0.5, 0.5) } else { (ASCENT, DESCENT) };
    let corner = |u: f64, v: f64| (along * u + up * v).to_point();
    let [start, end] = word.u;
    Rect::from_points(corner(start, word.v - below * word.size), corner(end, word.v + above * word.size))
}

fn turn(flow: &Flow) -> Turn {
    let Vec2 { x, y } = flow.along;
    match (x.abs() >= y.abs(), x >= 0.0, y >= 0.0) {
        (true, true, _) => Turn::Level,
        (true, false, _) => Turn::Over,
        (false, _, true) => Turn::Up,
        (false, _, false) => Turn::Down,
    }
}
