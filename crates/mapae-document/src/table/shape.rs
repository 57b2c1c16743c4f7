//! A table as it is found in a frame, before it is put into the words of the document.

use super::frame::Word;
use super::geometry::Area;
use super::line::rows_of_words;

/// A cell with its words.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) row: usize,
    pub(super) col: usize,
    pub(super) rowspan: usize,
    pub(super) colspan: usize,
    pub(super) words: Vec<Word>,
}

impl Cell {
    /// Its words line by line.
    pub(super) fn text(&self) -> String {
        let lines = rows_of_words(&self.words);
        lines.iter().map(|line| super::line::text(line)).collect::<Vec<_>>().join(" ")
    }
}

/// How a table shows where its cells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By rules around its cells.
    Ruled,
    /// By level rules above and below.
    HalfRuled,
    /// By white alone.
    Borderless,
}

/// A table in a frame.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// Of everything in it.
    pub(super) area: Area,
    pub(super) header_rows: usize,
    pub(super) confidence: f64,
    /// Cells that hold something.
    pub(super) cells: Vec<Cell>,
}

impl Shape {
    pub(super) fn rows(&self) -> usize {
        self.cells.iter().map(|c| c.row + c.rowspan).max().unwrap_or(0)
    }

    pub(super) fn columns(&self) -> usize {
        self.cells.iter().map(|c| c.col + c.colspan).max().unwrap_or(0)
    }

    /// How many rows have two cells or more that begin in them.
    pub(super) fn rows_with_several(&self) -> usize {
        let mut begin = vec![0u32; self.rows()];
        for cell in &self.cells {
            begin[cell.row] += 1;
        }
        begin.into_iter().filter(|n| *n >= 2).count()
    }

    /// Takes out rows and columns in which no cell begins, so that every row and column holds something.
    pub(super) fn compact(&mut self) {
        let renumber = |begins: Vec<usize>, spans: Vec<(usize, usize)>| -> Vec<(usize, usize)> {
            let mut used = begins;
            used.sort_unstable();
            used.dedup();
            let before = |at: usize| used.partition_point(|&u| u < at);
            spans.into_iter().map(|(at, span)| (before(at), before(at + span) - before(at))).collect()
        };
        let rows = renumber(
            self.cells.iter().map(|c| c.row).collect(),
            self.cells.iter().map(|c| (c.row, c.rowspan)).collect(),
        );
        let cols = renumber(
            self.cells.iter().map(|c| c.col).collect(),
            self.cells.iter().map(|c| (c.col, c.colspan)).collect(),
        );
        for ((cell, row), col) in self.cells.iter_mut().zip(rows).zip(cols) {
            (cell.row, cell.rowspan) = (row.0, row.1.max(1));
            (cell.col, cell.colspan) = (col.0, col.1.max(1));
        }
        self.cells.sort_by_key(|c| (c.row, c.col));
    }
}
