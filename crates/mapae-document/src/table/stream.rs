//! A region of text in columns to a table.

use super::assess;
use super::column::{self, Column, Laid};
use super::frame::Word;
use super::geometry::Area;
use super::header;
use super::line::{Line, lines};
use super::region::{Region, regions};
use super::row;
use super::rule::{Rule, Rules};
use super::shape::{Cell, Kind, Shape};
use super::tuning::Tuning;

/// Lines of headings a table may have.
const HEAD_MAX: usize = 8;

/// The tables among `words`, which no lattice holds.
pub(super) fn shapes(words: &[Word], rules: &Rules, taken: &[Area], tuning: &Tuning) -> Vec<Shape> {
    let lines = lines(words, tuning);
    let regions = regions(&lines, rules, taken, tuning);
    regions.iter().filter_map(|region| shape(region, tuning)).collect()
}

pub(super) fn shape(region: &Region, tuning: &Tuning) -> Option<Shape> {
    let lines = &region.lines;
    let head = head(region);
    let several = |l: &&Line| l.chunks.len() >= 2;
    let mut body: Vec<&Line> = lines[head..].iter().filter(several).collect();
    if body.len() < 2 {
        body = lines.iter().filter(several).collect();
    }
    let columns = column::columns(body.iter().copied(), tuning.river);
    if columns.len() < 2 {
        return None;
    }
    let laid: Vec<Laid> =
        lines.iter().enumerate().map(|(i, line)| column::lay(line, &columns, i < head)).collect();
    let mut cells = Vec::new();
    let (headings, header_rows) = header::headings(&laid[..head], &columns, &region.rules);
    for heading in headings {
        cells.push(Cell {
            row: heading.row,
            col: heading.cols.0,
            rowspan: 1,
            colspan: heading.cols.1 - heading.cols.0,
            words: heading.words,
        });
    }
    cells.extend(body_cells(&laid[head..], &columns, &region.rules, header_rows));
    let area = Area::around(lines.iter().flat_map(|l| l.chunks.iter().map(|c| &c.area)))?;
    let kind = if region.barred { Kind::HalfRuled } else { Kind::Borderless };
    let mut shape = Shape { kind, area, header_rows, confidence: 0.0, cells };
    shape.compact();
    shape.confidence = assess::stream(&shape, region, tuning);
    (shape.confidence >= tuning.confidence_min).then_some(shape)
}

/// How many of the first lines are headings.
fn head(region: &Region) -> usize {
    let lines = &region.lines;
    let area = Area::around(lines.iter().flat_map(|l| l.chunks.iter().map(|c| &c.area)));
    let Some(area) = area else { return 0 };
    // A rule across the table under its first lines.
    let across = |r: &&Rule| r.length() >= 0.7 * area.width();
    for rule in region.rules.iter().filter(across) {
        let above = lines.iter().filter(|l| l.base < rule.at).count();
        if above > 0 && above <= HEAD_MAX && above < lines.len() {
            return above;
        }
    }
    // Else the first line with a label and numbers begins the body.
    let begins = lines.iter().position(|line| {
        let numbers = line.chunks[1..].iter().filter(|c| c.is_number()).count();
        let years = line.chunks[1..].iter().all(|c| c.words.iter().all(|w| is_year(&w.text)));
        line.chunks.len() >= 2
            && numbers * 2 > line.chunks.len() - 1
            && !years
            && line.chunks[0].area.x0 < area.x0 + 0.3 * area.width()
    });
    match begins {
        Some(line) => line.min(HEAD_MAX),
        None => usize::from(lines.len() > 2),
    }
}

fn is_year(text: &str) -> bool {
    text.len() == 4 && text.parse::<u32>().is_ok_and(|year| (1900..2100).contains(&year))
}

/// The cells of the body, whose first row is `row`.
fn body_cells(lines: &[Laid], columns: &[Column], rules: &[Rule], row: usize) -> Vec<Cell> {
    let ruled: Vec<bool> = (0..lines.len())
        .map(|i| {
            i > 0
                && rules
                    .iter()
                    .any(|r| lines[i - 1].base < r.at && r.at < lines[i].base && r.length() > 100.0)
        })
        .collect();
    let joined = row::continued(lines, columns.len(), &ruled);
    let mut cells: Vec<Cell> = Vec::new();
    let mut row = row;
    let mut first = 0;
    for (i, line) in lines.iter().enumerate() {
        if i > 0 && !joined[i] {
            row += 1;
            first = cells.len();
        }
        for piece in &line.pieces {
            // A label that runs on over empty cells is a label still.
            let label = piece.cols.0 == 0 && line.pieces.len() == 1;
            let cols = if label { (0, 1) } else { piece.cols };
            let same = cells[first..].iter_mut().find(|c| c.col < cols.1 && cols.0 < c.col + c.colspan);
            match same {
                Some(cell) => cell.words.extend(piece.words.iter().cloned()),
                None => cells.push(Cell {
                    row,
                    col: cols.0,
                    rowspan: 1,
                    colspan: cols.1 - cols.0,
                    words: piece.words.clone(),
                }),
            }
        }
    }
    cells
}
