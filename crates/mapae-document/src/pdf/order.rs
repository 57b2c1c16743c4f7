//! Lines to the order they are read in: columns of prose one after the other, everything else line by line.
//!
//! A page is cut into columns only where both sides of a white gutter are prose. A table has gutters as
//! well, but short cells: it is read row by row.

use super::lines::{Chunk, Line};

/// Cuts inside cuts: enough for any newspaper, and a bound on the work.
const DEPTH: u32 = 8;
/// Positions tried for a gutter.
const BINS: usize = 512;
/// Share of the lines that may run across a gutter (titles, abstracts, wide tables).
const ACROSS: f64 = 0.35;
/// Prose chunks each side of a gutter must have, and their share of the side's chunks.
const PROSE_LINES: usize = 4;
const PROSE_SHARE: f64 = 0.4;
/// White between two lines, against the usual, that parts a page across.
const BREAK: f64 = 1.3;

/// The text of `lines`, a line of output for each line of a column.
pub(super) fn text(lines: Vec<Line<Chunk>>) -> String {
    let mut out = String::new();
    write(lines, DEPTH, &mut out);
    out
}

fn write(lines: Vec<Line<Chunk>>, depth: u32, out: &mut String) {
    if depth == 0 || lines.len() < PROSE_LINES {
        lines.iter().for_each(|line| write_line(line, out));
    } else if let Some(gutter) = gutter(&lines) {
        write_columns(lines, gutter, depth - 1, out);
    } else if let Some(at) = widest_break(&lines) {
        // Columns above or below a table that covers their gutter.
        let mut upper = lines;
        let lower = upper.split_off(at);
        write(upper, depth - 1, out);
        write(lower, depth - 1, out);
    } else {
        lines.iter().for_each(|line| write_line(line, out));
    }
}

fn write_columns(lines: Vec<Line<Chunk>>, gutter: f64, depth: u32, out: &mut String) {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let flush = |left: &mut Vec<Line<Chunk>>, right: &mut Vec<Line<Chunk>>, out: &mut String| {
        write(std::mem::take(left), depth, out);
        write(std::mem::take(right), depth, out);
    };
    for line in lines {
        if line.pieces.iter().any(|chunk| across(chunk, gutter)) {
            flush(&mut left, &mut right, out);
            write_line(&line, out);
            continue;
        }
        let v = line.v;
        let (before, after): (Vec<Chunk>, Vec<Chunk>) =
            line.pieces.into_iter().partition(|chunk| chunk.u[1] <= gutter);
        left.extend((!before.is_empty()).then_some(Line { v, pieces: before }));
        right.extend((!after.is_empty()).then_some(Line { v, pieces: after }));
    }
    flush(&mut left, &mut right, out);
}

/// Where the widest white between two lines is, if it is wider than usual.
fn widest_break(lines: &[Line<Chunk>]) -> Option<usize> {
    let gaps: Vec<f64> = lines.windows(2).map(|pair| pair[0].v - pair[1].v).collect();
    let mut sorted = gaps.clone();
    sorted.sort_by(f64::total_cmp);
    let usual = *sorted.get(sorted.len() / 2)?;
    let (at, widest) = gaps.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
    (*widest > BREAK * usual).then_some(at + 1)
}

fn write_line(line: &Line<Chunk>, out: &mut String) {
    for (i, chunk) in line.pieces.iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        out.push_str(&chunk.text);
    }
    out.push('\n');
}

fn across(chunk: &Chunk, gutter: f64) -> bool {
    chunk.u[0] < gutter && chunk.u[1] > gutter
}

fn is_prose(chunk: &Chunk) -> bool {
    chunk.text.split(' ').count() >= 4 || chunk.text.chars().count() >= 25
}

/// The middle of the widest gutter with prose on both sides that fewest lines run across.
fn gutter(lines: &[Line<Chunk>]) -> Option<f64> {
    let chunks = || lines.iter().flat_map(|line| &line.pieces);
    let start = chunks().map(|c| c.u[0]).min_by(f64::total_cmp)?;
    let end = chunks().map(|c| c.u[1]).max_by(f64::total_cmp)?;
    let step = (end - start) / BINS as f64;
    if step <= 0.0 {
        return None;
    }
    let bin = |u: f64| (((u - start) / step) as usize).min(BINS - 1);
    // How many chunks cover each position, by their starts and ends.
    let mut change = [0i64; BINS + 1];
    for chunk in chunks() {
        change[bin(chunk.u[0])] += 1;
        change[bin(chunk.u[1]) + 1] -= 1;
    }
    let cover: Vec<i64> = change[..BINS]
        .iter()
        .scan(0, |sum, d| {
            *sum += d;
            Some(*sum)
        })
        .collect();
    let most = (lines.len() as f64 * ACROSS) as i64;
    let runs = cover.chunk_by(|a, b| a == b).scan(0, |at, run| {
        let from = *at;
        *at += run.len();
        Some((run[0], from, run.len()))
    });
    let mut candidates: Vec<_> = runs.filter(|(cover, from, _)| *cover <= most && *from > 0).collect();
    candidates.sort_by_key(|&(cover, from, width)| (cover, std::cmp::Reverse(width), from));
    candidates
        .into_iter()
        .take(8)
        .map(|(_, from, width)| start + (from as f64 + width as f64 / 2.0) * step)
        .find(|&gutter| {
            prose_side(chunks().filter(|c| c.u[1] <= gutter))
                && prose_side(chunks().filter(|c| c.u[0] >= gutter))
        })
}

fn prose_side<'a>(side: impl Iterator<Item = &'a Chunk>) -> bool {
    let (mut all, mut prose) = (0usize, 0usize);
    for chunk in side {
        all += 1;
        prose += usize::from(is_prose(chunk));
    }
    prose >= PROSE_LINES && prose as f64 >= PROSE_SHARE * all as f64
}
