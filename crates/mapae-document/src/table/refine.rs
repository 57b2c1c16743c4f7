//! A grid of rules to a table, with the rows and columns that the rules leave to the reader's eye.

use super::column::{self, Column, Laid, Piece};
use super::frame::Word;
use super::geometry::Area;
use super::lattice::{Grid, GridCell};
use super::line::{self, Gaps, Line, is_number, rows_of_words};
use super::row;
use super::shape::{Cell, Kind, Shape};
use super::title;
use super::tuning::Tuning;

/// Share of a grid's cells that hold something in a table; a diagram's grid is empty.
const FILLED: f64 = 0.2;

/// The table in `grid`, or nothing where it is a frame, a list of boxes or a diagram.
pub(super) fn shape(
    grid: &Grid,
    words: &[Word],
    turned: &[Word],
    gaps: Gaps,
    tuning: &Tuning,
) -> Option<Shape> {
    let empty = |cell: &GridCell| Cell {
        row: cell.rows.0,
        col: cell.cols.0,
        rowspan: cell.rows.1 - cell.rows.0,
        colspan: cell.cols.1 - cell.cols.0,
        words: Vec::new(),
    };
    let mut cells: Vec<Cell> = grid.cells.iter().map(empty).collect();
    let owners = grid.owners();
    for word in words.iter().chain(turned) {
        if let Some(owner) = grid.place(&word.area).and_then(|place| owners[place]) {
            cells[owner].words.push(word.clone());
        }
    }
    let all = cells.len();
    cells.retain(|c| !c.words.is_empty());
    if (cells.len() as f64) < FILLED * all as f64 {
        return None;
    }
    trim(&mut cells, grid.xs.len() - 1);
    let mut cells = deal_across(cells, grid, gaps);
    deal_down(&mut cells, grid);
    let mut shape = Shape { kind: Kind::Ruled, area: grid.area(), header_rows: 0, confidence: 0.95, cells };
    shape.compact();
    if shape.columns() < 2 && shape.rows() < 2 {
        return None;
    }
    split_columns(&mut shape, gaps, tuning);
    split_rows(&mut shape, tuning);
    shape.compact();
    if shape.columns() < 2 || shape.rows() < 2 || shape.cells.len() < 4 {
        return None;
    }
    if !hangs_together(&shape) {
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
            let (begins, ends) = (cell.row == first, cell.row + cell.rowspan == last);
            if columns < 2 || cell.colspan < columns || !(begins || ends) {
                return false;
            }
            let running = cell.words.len() > 20 && rows_of_words(&cell.words).len() >= 2;
            running || begins && title::is_caption(&cell.text())
        };
        let Some(at) = cells.iter().position(about) else { return };
        cells.remove(at);
    }
}

/// Whether most rows hold several cells; the bars of a diagram begin and end each at a height of its own.
fn hangs_together(shape: &Shape) -> bool {
    shape.rows_with_several() * 2 >= shape.rows()
}

/// Rows without upright rules under headings with them (shaded rows, rows between level rules): what stands in
/// the columns of the grid belongs to them.
fn deal_across(cells: Vec<Cell>, grid: &Grid, gaps: Gaps) -> Vec<Cell> {
    let columns: Vec<Column> = grid.xs.windows(2).map(|x| Column { x0: x[0], x1: x[1] }).collect();
    let mut dealt = Vec::new();
    for cell in cells {
        if cell.colspan < 2 {
            dealt.push(cell);
            continue;
        }
        let within = &columns[cell.col..cell.col + cell.colspan];
        let lines = line::lines(&cell.words, gaps);
        let pieces: Vec<_> =
            lines.iter().flat_map(|line| column::lay(line, within, false, gaps).pieces).collect();
        let own = pieces.iter().filter(|p| p.cols.1 - p.cols.0 == 1).count();
        let several = lines.iter().any(|line| line.chunks.len() >= 2);
        if !several || own * 5 < pieces.len() * 4 {
            dealt.push(cell);
            continue;
        }
        let first = dealt.len();
        for piece in pieces {
            let (from, to) = (cell.col + piece.cols.0, cell.col + piece.cols.1);
            match dealt[first..].iter_mut().find(|c| c.col < to && from < c.col + c.colspan) {
                Some(part) => part.words.extend(piece.words),
                None => dealt.push(Cell {
                    row: cell.row,
                    rowspan: cell.rowspan,
                    col: from,
                    colspan: to - from,
                    words: piece.words,
                }),
            }
        }
    }
    dealt
}

/// Labels beside ruled rows without level rules of their own: each belongs to the row it stands beside.
fn deal_down(cells: &mut Vec<Cell>, grid: &Grid) {
    let mut dealt = Vec::new();
    for cell in std::mem::take(cells) {
        let lines = rows_of_words(&cell.words);
        let rows = &grid.ys[cell.row..=cell.row + cell.rowspan];
        let row_of = |line: &Vec<Word>| {
            rows.partition_point(|y| *y < line[0].area.middle().1).clamp(1, cell.rowspan) - 1
        };
        let mut beside: Vec<usize> = lines.iter().map(row_of).collect();
        beside.dedup();
        if cell.rowspan < 4 || beside.len() * 10 < cell.rowspan * 8 {
            dealt.push(cell);
            continue;
        }
        for row in beside {
            let words = lines.iter().filter(|line| row_of(line) == row).flatten().cloned().collect();
            dealt.push(Cell { row: cell.row + row, rowspan: 1, col: cell.col, colspan: cell.colspan, words });
        }
    }
    *cells = dealt;
}

/// Rules around a block of columns only: the columns inside are parted by white.
fn split_columns(shape: &mut Shape, gaps: Gaps, tuning: &Tuning) {
    let mut col = 0;
    while col < shape.columns() {
        let mine: Vec<&Cell> = shape.cells.iter().filter(|c| c.col == col && c.colspan == 1).collect();
        let lines: Vec<Line> = mine.iter().flat_map(|c| line::lines(&c.words, gaps)).collect();
        let several: Vec<&Line> =
            lines.iter().filter(|l| l.chunks.len() >= 2 && !l.chunks[0].is_bullet()).collect();
        if several.len() < 3 || several.len() * 2 < lines.len() {
            col += 1;
            continue;
        }
        let columns = column::columns(several.iter().copied(), tuning.river, false);
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
                for line in line::lines(&cell.words, gaps) {
                    for piece in column::lay(&line, &columns, !numbered(&line), gaps).pieces {
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

fn numbered(line: &Line) -> bool {
    line.chunks.iter().any(line::Chunk::is_number)
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
    let numeric = all > 0 && numbers as f64 >= tuning.numeric * all as f64;
    // The lines of the cells, put together over the band, and then told into rows as everywhere.
    let mut pieces: Vec<(f64, f64, Piece)> = Vec::new();
    for (cell, lines) in cells.iter().zip(by_cell) {
        for words in lines {
            let base = words.iter().map(|w| w.base).fold(f64::NEG_INFINITY, f64::max);
            let size = words.iter().map(|w| w.size).fold(0.0, f64::max);
            let Some(area) = Area::around(words.iter().map(|w| &w.area)) else { continue };
            pieces.push((base, size, Piece { cols: (cell.col, cell.col + cell.colspan), area, words }));
        }
    }
    pieces.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lines: Vec<Laid> = Vec::new();
    for (base, size, piece) in pieces {
        match lines.last_mut() {
            Some(line) if base - line.base <= 0.4 * size.max(line.size) => {
                line.size = line.size.max(size);
                line.pieces.push(piece);
            }
            _ => lines.push(Laid { base, size, pieces: vec![piece] }),
        }
    }
    lines.iter_mut().for_each(|line| line.pieces.sort_by_key(|p| p.cols));
    let columns = cells.iter().map(|c| c.col + c.colspan).max().unwrap_or(0);
    let joined = if numeric {
        row::continued(&lines, columns, &[], &[])
    } else {
        // Text between upright rules, its rows parted by white: all of them begin in the first column.
        let first = cells.iter().map(|c| c.col).min()?;
        let joined = row::by_distance(&lines, &[])?;
        let begin = lines.iter().zip(&joined).filter(|(_, joined)| !**joined);
        let labelled = begin.filter(|(line, _)| line.pieces.iter().any(|p| p.cols.0 == first)).count();
        let rows = joined.iter().filter(|joined| !**joined).count();
        if labelled < rows || rows < 3 {
            return None;
        }
        joined
    };
    let mut bases: Vec<f64> = Vec::new();
    for (line, joined) in lines.iter().zip(joined) {
        let base = line.pieces.iter().flat_map(|p| &p.words).map(|w| w.base).fold(line.base, f64::max);
        match bases.last_mut() {
            Some(last) if joined => *last = base,
            _ => bases.push(base),
        }
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
