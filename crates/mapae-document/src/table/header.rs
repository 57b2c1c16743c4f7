//! Headings of several lines and levels to cells: lines of one heading are joined, a heading over several
//! columns spans them.

use super::column::{Column, Laid, Piece};
use super::frame::Word;
use super::geometry::{Area, shared};
use super::rule::Rule;
use super::shade;

/// Distance of the baselines of two lines of one heading, in ems.
const STEP: f64 = 1.7;

/// A heading.
#[derive(Clone, Debug)]
pub(super) struct Heading {
    pub(super) cols: (usize, usize),
    pub(super) row: usize,
    pub(super) rowspan: usize,
    pub(super) words: Vec<Word>,
    area: Area,
    base: f64,
    size: f64,
}

/// The headings in `lines` and how many rows they make. `rules` are the level rules among the lines.
pub(super) fn headings(
    lines: &[Laid],
    columns: &[Column],
    rules: &[Rule],
    shades: &[Area],
) -> (Vec<Heading>, usize) {
    let mut headings: Vec<Heading> = Vec::new();
    let spans: Vec<Vec<(usize, usize)>> =
        (0..lines.len()).map(|i| spans(&lines[i], &lines[i + 1..], columns, rules)).collect();
    for (line, spans) in lines.iter().zip(spans) {
        for (piece, cols) in line.pieces.iter().zip(spans) {
            let above =
                headings.iter_mut().filter(|h| meet(h.cols, cols)).max_by(|a, b| a.base.total_cmp(&b.base));
            if let Some(above) = above
                && above.cols == cols
                && (line.base - above.base <= STEP * line.size.max(above.size)
                    || shade::one(&above.area, &piece.area, shades))
                && !rules.iter().any(|r| parts(r, above, piece))
            {
                above.words.extend(piece.words.iter().cloned());
                above.area = above.area.union(&piece.area);
                above.base = line.base;
                continue;
            }
            headings.push(Heading {
                cols,
                row: 0,
                rowspan: 1,
                words: piece.words.clone(),
                area: piece.area,
                base: line.base,
                size: line.size,
            });
        }
    }
    let rows = levels(&mut headings);
    (headings, rows)
}

fn meet(a: (usize, usize), b: (usize, usize)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

fn parts(rule: &Rule, above: &Heading, below: &Piece) -> bool {
    rule.at > above.base - 1.0
        && rule.at < below.area.y1
        && shared((rule.from, rule.to), (below.area.x0, below.area.x1)) > 0.5 * below.area.width()
        && shared((rule.from, rule.to), (above.area.x0, above.area.x1)) > 0.5 * above.area.width()
}

/// The columns of each piece of a line of headings.
fn spans(line: &Laid, below: &[Laid], columns: &[Column], rules: &[Rule]) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = line.pieces.iter().map(|p| p.cols).collect();
    for i in 0..spans.len() {
        let piece = &line.pieces[i];
        // A heading with a rule under it spans what the rule spans.
        let under = rules.iter().filter(|r| {
            r.at > line.base - 1.0
                && r.at < line.base + 1.1 * line.size
                && shared((r.from, r.to), (piece.area.x0, piece.area.x1)) > 0.8 * piece.area.width()
        });
        if let Some(rule) = under.min_by(|a, b| a.at.total_cmp(&b.at)) {
            let alone = line.pieces.iter().enumerate().all(|(k, other)| {
                k == i || shared((rule.from, rule.to), (other.area.x0, other.area.x1)) <= 0.0
            });
            let inside = |c: &Column| shared((rule.from, rule.to), (c.x0, c.x1)) > 0.5 * (c.x1 - c.x0);
            if alone
                && let (Some(first), Some(last)) =
                    (columns.iter().position(inside), columns.iter().rposition(inside))
                && first <= spans[i].0
                && last + 1 >= spans[i].1
            {
                spans[i] = (first, last + 1);
                continue;
            }
        }
        if let Some(wider) = centred(line, i, &spans, below, columns) {
            spans[i] = wider;
        }
    }
    spans
}

/// A heading without a rule under it that stands in the middle over several headings spans those.
fn centred(
    line: &Laid,
    i: usize,
    spans: &[(usize, usize)],
    below: &[Laid],
    columns: &[Column],
) -> Option<(usize, usize)> {
    let next = below.first()?;
    let own = spans[i];
    let left = if i == 0 { 0 } else { spans[i - 1].1 };
    let right = spans.get(i + 1).map_or(columns.len(), |s| s.0);
    let middle = line.pieces[i].area.middle().0;
    let headed = |col: usize| next.pieces.iter().any(|p| p.cols.0 <= col && col < p.cols.1);
    if !(own.0..own.1).all(headed) {
        return None;
    }
    let first = (left..own.0).rev().take_while(|col| headed(*col)).last().unwrap_or(own.0);
    let last = (own.1..right).take_while(|col| headed(*col)).last().map_or(own.1, |col| col + 1);
    let mut best = None;
    for from in first..=own.0 {
        for to in own.1..=last {
            if to - from < 2 || (from, to) == own {
                continue;
            }
            let off = ((columns[from].x0 + columns[to - 1].x1) / 2.0 - middle).abs();
            let near = off <= 0.8 * line.size;
            if near && best.is_none_or(|(a, b): (usize, usize)| to - from > b - a) {
                best = Some((from, to));
            }
        }
    }
    best
}

/// Gives each heading its row, counted from the lowest up, so that what stands right above the body is in
/// one row however many levels other columns have.
fn levels(headings: &mut [Heading]) -> usize {
    let mut order: Vec<usize> = (0..headings.len()).collect();
    order.sort_by(|&a, &b| headings[b].base.total_cmp(&headings[a].base));
    let mut levels = vec![0usize; headings.len()];
    for (k, &i) in order.iter().enumerate() {
        let lower = order[..k].iter().filter(|&&j| {
            meet(headings[i].cols, headings[j].cols) && headings[j].base > headings[i].base + 0.5
        });
        levels[i] = lower.map(|&j| levels[j] + 1).max().unwrap_or(0);
    }
    let rows = levels.iter().max().map_or(0, |l| l + 1);
    for (heading, level) in headings.iter_mut().zip(levels) {
        heading.row = rows - 1 - level;
    }
    // With nothing above it a heading reaches up to the top, beside those over several columns.
    for i in 0..headings.len() {
        let (cols, base) = (headings[i].cols, headings[i].base);
        if headings.iter().all(|h| h.base >= base || !meet(h.cols, cols)) {
            headings[i].rowspan = headings[i].row + 1;
            headings[i].row = 0;
        }
    }
    rows
}
