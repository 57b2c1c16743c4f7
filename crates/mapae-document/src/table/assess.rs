//! Is it a table at all, and how sure; and a table in the words of the document.

use super::frame::{Frame, Word};
use super::geometry::{Area, median};
use super::line::{Chunk, Gaps, lines};
use super::region::Region;
use super::shape::{Kind, Shape};
use super::tuning::Tuning;
use super::{Found, FoundCell, title};

/// Confidence in a table without a lattice.
pub(super) fn stream(shape: &Shape, region: &Region, _: &Tuning) -> f64 {
    let (rows, columns) = (shape.rows(), shape.columns());
    let body: Vec<_> = shape.cells.iter().filter(|c| c.row >= shape.header_rows).collect();
    if rows < 2 || columns < 2 || body.len() < 3 {
        return 0.0;
    }
    let full = shape.rows_with_several();
    let outside: Vec<_> = body.iter().filter(|c| c.col > 0).collect();
    let numbers = outside.iter().filter(|c| c.words.iter().all(|w| super::line::is_number(&w.text))).count();
    let numeric = numbers as f64 / outside.len().max(1) as f64;
    let body_rows = rows.saturating_sub(shape.header_rows).max(1);
    let filled = body.len() as f64 / (body_rows * columns) as f64;
    // Two lines of words over each other say nothing.
    if full < 3 && numeric < 0.2 {
        return 0.0;
    }
    let wordy = median(outside.iter().map(|c| c.words.len() as f64).collect()).unwrap_or(0.0);
    let mut confidence = 0.35;
    if shape.kind == Kind::HalfRuled {
        confidence += 0.3;
    }
    confidence += 0.3 * numeric;
    confidence += 0.15 * filled.min(1.0);
    if full >= 4 {
        confidence += 0.1;
    }
    if columns >= 3 {
        confidence += 0.1;
    }
    if numeric < 0.2 && shape.kind == Kind::Borderless {
        confidence -= 0.15;
    }
    if wordy > 5.0 {
        confidence -= 0.25;
    }
    if full < 3 && shape.kind == Kind::Borderless {
        confidence -= 0.25;
    }
    // Terms and what they mean, names and offices: without numbers or rules two columns are a list.
    if columns == 2 && numeric < 0.3 && shape.kind == Kind::Borderless {
        confidence -= 0.2;
    }
    if filled < 0.35 {
        confidence -= 0.2;
    }
    // A list is no table: marks, and what they mark.
    let marks = region.lines.iter().filter(|l| l.chunks.first().is_some_and(Chunk::is_bullet)).count();
    if marks * 2 > region.lines.len() && columns == 2 {
        confidence -= 0.4;
    }
    // White is never as sure as rules are.
    confidence.clamp(0.0, if shape.kind == Kind::HalfRuled { 0.94 } else { 0.9 })
}

pub(super) fn found(shape: &Shape, words: &[Word], frame: &Frame) -> Found {
    let all = lines(words, Gaps::of(words, &Tuning::default()));
    let cells = shape.cells.iter().filter_map(|cell| {
        let area = Area::around(cell.words.iter().map(|w| &w.area))?;
        Some(FoundCell {
            row: cell.row as u32,
            col: cell.col as u32,
            rowspan: cell.rowspan as u32,
            colspan: cell.colspan as u32,
            text: cell.text(),
            bbox: frame.to_page(&area),
        })
    });
    Found {
        bbox: frame.to_page(&shape.area),
        confidence: (shape.confidence * 100.0).round() / 100.0,
        title: title::above(&all, &shape.area),
        header_rows: shape.header_rows as u32,
        rows: shape.rows() as u32,
        columns: shape.columns() as u32,
        cells: cells.collect(),
    }
}
