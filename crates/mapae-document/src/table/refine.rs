//! A grid of rules to a table, with the rows and columns that the rules leave to the reader's eye.

use super::column;
use super::frame::Word;
use super::geometry::Area;
use super::lattice::Grid;
use super::line::{self, Line, is_number, rows_of_words};
use super::shape::{Cell, Kind, Shape};
use super::title;
use super::tuning::Tuning;

/// Share of a grid's cells that hold something in a table; a diagram's grid is empty.
const FILLED: f64 = 0.2;

/// The table in `grid`, or nothing where it is a frame, a list of boxes or a diagram.
pub(super) fn shape(grid: &Grid, words: &[Word], turned: &[Word], tuning: &Tuning) -> Option<Shape> {
    let mut cells: Vec<Cell> = Vec::new();
    for cell in &grid.cells {
        let area = grid.cell_area(cell);
        let mut inside: Vec<Word> = words.iter().filter(|w| area.holds(&w.area)).cloned().collect();
        inside.extend(turned.iter().filter(|w| area.holds(&w.area)).cloned());
        cells.push(Cell {
            row: cell.rows.0,
            col: cell.cols.0,
            rowspan: cell.rows.1 - cell.rows.0,
            colspan: cell.cols.1 - cell.cols.0,
            words: inside,
        });
    }
    let all = cells.len();
    cells.retain(|c| !c.words.is_empty());
    if (cells.len() as f64) < FILLED * all as f64 {
        return None;
    }
    trim(&mut cells, grid.xs.len() - 1);
    let mut shape = Shape { kind: Kind::Ruled, area: grid.area(), header_rows: 0, confidence: 0.95, cells };
    shape.compact();
    if shape.columns() < 2 && shape.rows() < 2 {
        return None;
    }
    split_columns(&mut shape, tuning);
    split_rows(&mut shape, tuning);
    shape.compact();
    if shape.columns() < 2 || shape.rows() < 2 || shape.cells.len() < 4 {
        return None;
    }
    shape.area = Area::around(shape.cells.iter().flat_map(|c| c.words.iter().map(|w| &w.area)))?;
    shape.header_rows = header_rows(&shape);
    Some(shape)
}

/// A frame around title, table and notes: rows of one cell over the whole width at the top and the bottom
/// that are a caption or running text are no rows of the table.
fn trim(cells: &mut Vec<Cell>, columns: usize) {
    loop {
        let Some(last) = cells.iter().map(|c| c.row + c.rowspan).max() else { return };
        let Some(first) = cells.iter().map(|c| c.row).min() else { return };
        let about = |cell: &Cell| {
            let text = cell.text();
            let lines = rows_of_words(&cell.words).len();
            cell.colspan == columns
                && columns > 1
                && (title::is_caption(&text) && cell.row == first
                    || (cell.row == first || cell.row + cell.rowspan == last)
                        && lines >= 2
                        && cell.words.len() > 20)
        };
        let Some(at) = cells.iter().position(about) else { return };
        cells.remove(at);
    }
}

/// Rules around a block of columns only: the columns inside are parted by white.
fn split_columns(shape: &mut Shape, tuning: &Tuning) {
    let mut col = 0;
    while col < shape.columns() {
        let mine: Vec<&Cell> = shape.cells.iter().filter(|c| c.col == col && c.colspan == 1).collect();
        let lines: Vec<Line> = mine.iter().flat_map(|c| line::lines(&c.words, tuning)).collect();
        let several: Vec<&Line> =
            lines.iter().filter(|l| l.chunks.len() >= 2 && !l.chunks[0].is_bullet()).collect();
        if several.len() < 3 || several.len() * 2 < lines.len() {
            col += 1;
            continue;
        }
        let columns = column::columns(several.iter().copied(), tuning.river);
        if columns.len() < 2 || columns.len() > 40 {
            col += 1;
            continue;
        }
        let more = columns.len() - 1;
        let mut cells = Vec::new();
        for cell in shape.cells.drain(..) {
            if cell.col > col {
                cells.push(Cell { col: cell.col + more, ..cell });
            } else if cell.col + cell.colspan <= col {
                cells.push(cell);
            } else if cell.colspan > 1 {
                cells.push(Cell { colspan: cell.colspan + more, ..cell });
            } else {
                let mut parts: Vec<Cell> = Vec::new();
                for line in line::lines(&cell.words, tuning) {
                    for piece in column::lay(&line, &columns, false).pieces {
                        let (from, to) = piece.cols;
                        match parts.iter_mut().find(|p| p.col < col + to && col + from < p.col + p.colspan) {
                            Some(part) => part.words.extend(piece.words),
                            None => parts.push(Cell {
                                row: cell.row,
                                rowspan: cell.rowspan,
                                col: col + from,
                                colspan: to - from,
                                words: piece.words,
                            }),
                        }
                    }
                }
                cells.extend(parts);
            }
        }
        shape.cells = cells;
        col += more + 1;
    }
}

/// Rules around blocks of rows only: where the lines of several cells stand on the same baselines and are
/// numbers, each line is a row.
fn split_rows(shape: &mut Shape, tuning: &Tuning) {
    let mut row = 0;
    while row < shape.rows() {
        let mine: Vec<&Cell> = shape.cells.iter().filter(|c| c.row == row && c.rowspan == 1).collect();
        let Some(bases) = baselines(&mine, tuning) else {
            row += 1;
            continue;
        };
        let more = bases.len() - 1;
        let mut cells = Vec::new();
        for cell in shape.cells.drain(..) {
            if cell.row > row {
                cells.push(Cell { row: cell.row + more, ..cell });
            } else if cell.row + cell.rowspan <= row {
                cells.push(cell);
            } else if cell.rowspan > 1 {
                cells.push(Cell { rowspan: cell.rowspan + more, ..cell });
            } else {
                let mut parts: Vec<Cell> = Vec::new();
                for word in cell.words {
                    let at = bases.partition_point(|b| *b < word.base - 0.4 * word.size).min(more);
                    match parts.iter_mut().find(|p| p.row == row + at) {
                        Some(part) => part.words.push(word),
                        None => parts.push(Cell {
                            row: row + at,
                            rowspan: 1,
                            col: cell.col,
                            colspan: cell.colspan,
                            words: vec![word],
                        }),
                    }
                }
                cells.extend(parts);
            }
        }
        shape.cells = cells;
        row += more + 1;
    }
}

/// The last baseline of each row inside of a band of cells, if the band is several rows.
fn baselines(cells: &[&Cell], tuning: &Tuning) -> Option<Vec<f64>> {
    let by_cell: Vec<Vec<Vec<Word>>> = cells.iter().map(|c| rows_of_words(&c.words)).collect();
    let tall = by_cell.iter().filter(|lines| lines.len() >= 2).count();
    if tall < 2 {
        return None;
    }
    let (mut numbers, mut all) = (0usize, 0usize);
    for (cell, lines) in cells.iter().zip(&by_cell) {
        if cell.col > 0 {
            all += lines.len();
            numbers += lines.iter().filter(|l| l.iter().all(|w| is_number(&w.text))).count();
        }
    }
    if (numbers as f64) < tuning.numeric * all as f64 || all == 0 {
        return None;
    }
    let words: Vec<Word> = cells.iter().flat_map(|c| c.words.iter().cloned()).collect();
    let lines = rows_of_words(&words);
    // A line with nothing but a label belongs to the row above it.
    let mut bases: Vec<f64> = Vec::new();
    let mut begun = false;
    for line in &lines {
        let base = line.iter().map(|w| w.base).fold(f64::NEG_INFINITY, f64::max);
        let numbered = line.iter().any(|w| is_number(&w.text));
        if begun
            && !numbered
            && let Some(last) = bases.last_mut()
        {
            *last = base;
        } else {
            bases.push(base);
        }
        begun |= numbered;
    }
    (bases.len() >= 2).then_some(bases)
}

/// Rows of headings: all that no row of numbers comes before, if there are numbers.
fn header_rows(shape: &Shape) -> usize {
    let rows = shape.rows();
    let numbered = (0..rows).find(|r| {
        let cells = shape.cells.iter().filter(|c| c.row == *r && c.col > 0);
        let (mut all, mut numbers) = (0, 0);
        for cell in cells {
            all += 1;
            numbers += usize::from(cell.words.iter().all(|w| is_number(&w.text)));
        }
        numbers * 2 > all && all > 0
    });
    match numbered {
        Some(row) if row <= 5 => row,
        _ => 1,
    }
}
