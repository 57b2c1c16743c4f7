//! Lines to rows: which lines of a table are one row whose cells have several lines.

use super::column::{Laid, Piece};
use super::geometry::{Area, median};
use super::shade;

/// How much wider than the narrowest the distance of two lines is where a new row begins.
const WIDER: f64 = 1.3;

/// For each line whether it belongs to the row of the line before it. `ruled` says which lines have a rule
/// above them, `shades` are those of rows and cells.
pub(super) fn continued(lines: &[Laid], columns: usize, ruled: &[bool], shades: &[Area]) -> Vec<bool> {
    if let Some(joined) = by_distance(lines, ruled) {
        return joined;
    }
    let mut joined = vec![false; lines.len()];
    for i in 1..lines.len() {
        if ruled.get(i).copied().unwrap_or(false) {
            continue;
        }
        let start = (0..i).rev().find(|&k| !joined[k]).unwrap_or(0);
        joined[i] =
            shade::goes_on(&lines[i - 1], &lines[i], shades) || continues(lines, start, i, columns, &joined);
    }
    joined
}

fn continues(lines: &[Laid], start: usize, i: usize, columns: usize, joined: &[bool]) -> bool {
    let (above, line) = (&lines[i - 1], &lines[i]);
    if line.base - above.base > 1.9 * line.size.max(above.size) {
        return false;
    }
    let row = &lines[start..i];
    let filled = |col: usize| row.iter().flat_map(|l| &l.pieces).any(|p| p.cols.0 <= col && col < p.cols.1);
    match line.first() {
        // Text under text of a cell, beside an empty label: cells of several lines.
        None => {
            !line.pieces.is_empty()
                && line.pieces.len() * 2 <= columns.max(2)
                && line.pieces.iter().all(|p| !p.is_number() && filled(p.cols.0))
                && row[0].first().is_some()
        }
        Some(label) if line.pieces.len() == 1 => wraps(lines, row, label, i, joined),
        // A label that began on the line above and has its numbers on its last line.
        Some(label) => {
            above.pieces.len() == 1
                && row.len() == 1
                && above.first().is_some_and(|first| begins_small(label) && !ends_open(first))
        }
    }
}

/// A label on a line of its own goes on the one above if it is set back, or goes on in the middle of a
/// sentence; it heads what follows if that is set back further.
fn wraps(lines: &[Laid], row: &[Laid], label: &Piece, i: usize, joined: &[bool]) -> bool {
    let Some(first) = row[0].first() else { return false };
    if label.cols.1 > 1 || row[0].pieces.len() < 2 && !begins_small(label) {
        return false;
    }
    if begins_small(label) {
        return true;
    }
    // A label that goes on has filled its line.
    let right = lines.iter().filter_map(Laid::first).map(|p| p.area.x1).fold(f64::NEG_INFINITY, f64::max);
    if first.area.width() < 0.6 * (right - first.area.x0) {
        return false;
    }
    let em = lines[i].size;
    let indent = label.area.x0 - first.area.x0;
    // The rows that are not set back begin where the row's label begins; a continuation is set back alone.
    let next = lines.get(i + 1).and_then(Laid::first);
    let heads = next.is_some_and(|next| next.area.x0 > label.area.x0 + 0.3 * em);
    let alike = next.is_some_and(|next| (next.area.x0 - label.area.x0).abs() <= 0.3 * em);
    indent > 0.4 * em && indent < 4.0 * em && !heads && !alike && !joined[i - 1]
}

fn begins_small(piece: &Piece) -> bool {
    piece.words.first().and_then(|w| w.text.chars().next()).is_some_and(char::is_lowercase)
}

/// Whether a label ends as the head of a list does.
fn ends_open(piece: &Piece) -> bool {
    piece.words.last().is_some_and(|w| w.text.ends_with(':'))
}

/// Rows by white: lines of one row stand closer to each other than rows do. Believed only where it explains
/// the page: no two lines of a row both have numbers, and later lines of rows have fewer pieces.
pub(super) fn by_distance(lines: &[Laid], ruled: &[bool]) -> Option<Vec<bool>> {
    if lines.len() < 3 {
        return None;
    }
    let steps: Vec<f64> = lines.windows(2).map(|p| p[1].base - p[0].base).collect();
    let size = median(lines.iter().map(|l| l.size).collect())?;
    let least = steps.iter().copied().filter(|s| *s > 0.7 * size).fold(f64::INFINITY, f64::min);
    let near = |i: usize| steps[i - 1] <= WIDER * least && !ruled.get(i).copied().unwrap_or(false);
    let joined: Vec<bool> = (0..lines.len()).map(|i| i > 0 && near(i)).collect();
    let rows = joined.iter().filter(|j| !**j).count();
    if rows < 2 || rows == lines.len() || least > 1.7 * size {
        return None;
    }
    let mut start = 0;
    let (mut first_pieces, mut later_pieces, mut later) = (0.0, 0.0, 0.0);
    for end in 1..=lines.len() {
        if end < lines.len() && joined[end] {
            continue;
        }
        let row = &lines[start..end];
        let numbered = row.iter().filter(|l| l.pieces.iter().any(|p| p.cols.0 > 0 && p.is_number())).count();
        if numbered > 1 {
            return None;
        }
        let most = row.iter().map(|l| l.pieces.len()).max().unwrap_or(0) as f64;
        let all: f64 = row.iter().map(|l| l.pieces.len() as f64).sum();
        if row.len() > 1 {
            first_pieces += most;
            later_pieces += all - most;
            later += row.len() as f64 - 1.0;
        }
        start = end;
    }
    let multi = lines.len() - rows;
    let groups = (1..lines.len()).filter(|&i| joined[i] && !joined[i - 1]).count().max(1) as f64;
    let fewer = later_pieces / later.max(1.0) + 0.4 <= first_pieces / groups;
    (multi > 0 && fewer).then_some(joined)
}
