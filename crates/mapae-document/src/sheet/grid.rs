//! Cells to sheets and tables, sparse throughout: memory goes with the cells that hold something.

use std::collections::HashMap;

use super::Book;
use super::split;
use super::value::Content;
use crate::document::{Cell, Sheet, Table, Warning};
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;

/// The largest sheet any of the formats has.
pub(super) const ROWS_MAX: u32 = 1_048_576;
pub(super) const COLUMNS_MAX: u32 = 16_384;
/// More ranges than this are dropped, with a warning: a list that only bloats the result.
const MERGED_MAX: usize = 100_000;
/// Leading rows that may be headings.
const HEADER_ROWS_MAX: u32 = 5;

/// A merged range, first and last cell included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) start: (u32, u32),
    pub(super) end: (u32, u32),
}

impl From<calamine::Dimensions> for Merged {
    fn from(range: calamine::Dimensions) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// Collects a workbook within the limits.
pub(super) struct BookBuilder {
    book: Book,
    cells_left: u64,
    text_left: u64,
    sheets_left: u32,
    text_only: bool,
}

impl BookBuilder {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            book: Book { sheets: Vec::new(), tables: Vec::new(), text: String::new(), warnings: Vec::new() },
            cells_left: limits.cells,
            text_left: limits.text_bytes,
            sheets_left: limits.sheets,
            text_only: limits.text_only,
        }
    }

    pub(super) fn warn(&mut self, warning: Warning) {
        self.book.warnings.push(warning);
    }

    /// Begins the next sheet.
    pub(super) fn sheet(&mut self, name: &str) -> Result<SheetBuilder<'_>, DocumentError> {
        self.sheets_left = self.sheets_left.checked_sub(1).ok_or(DocumentError::TooLarge(Excess::Sheets))?;
        Ok(SheetBuilder {
            name: name.to_owned(),
            hidden: false,
            cells: Vec::new(),
            outside: 0,
            builder: self,
        })
    }

    pub(super) fn finish(self) -> Book {
        self.book
    }
}

/// Collects one sheet.
pub(super) struct SheetBuilder<'b> {
    name: String,
    hidden: bool,
    cells: Vec<Cell>,
    /// Cells beyond the largest sheet there is.
    outside: u64,
    builder: &'b mut BookBuilder,
}

impl SheetBuilder<'_> {
    pub(super) fn push(&mut self, row: u32, col: u32, content: Content) -> Result<(), DocumentError> {
        if row >= ROWS_MAX || col >= COLUMNS_MAX {
            self.outside += 1;
            return Ok(());
        }
        let builder = &mut *self.builder;
        builder.cells_left =
            builder.cells_left.checked_sub(1).ok_or(DocumentError::TooLarge(Excess::Cells))?;
        let length = content.text.len() as u64 + 1;
        builder.text_left =
            builder.text_left.checked_sub(length).ok_or(DocumentError::TooLarge(Excess::Output))?;
        self.cells.push(Cell { row, col, rowspan: 1, colspan: 1, text: content.text, value: content.value });
        Ok(())
    }

    /// People do not see this sheet unless they ask for it.
    pub(super) fn hide(&mut self, hidden: bool) {
        self.hidden = hidden;
    }

    pub(super) fn finish(self, mut merged: Vec<Merged>) {
        let Self { name, hidden, mut cells, outside, builder } = self;
        let book = &mut builder.book;
        if outside > 0 {
            let message = format!("{outside} cells lie beyond the largest possible sheet and are left out.");
            book.warnings.push(Warning::new("cells-outside", None, message));
        }
        // A place given twice holds what was given last.
        cells.sort_by_key(|c| (c.row, c.col));
        cells.reverse();
        cells.dedup_by_key(|c| (c.row, c.col));
        cells.reverse();

        merged.retain(|m| {
            m.end.0 < ROWS_MAX && m.end.1 < COLUMNS_MAX && m.start.0 <= m.end.0 && m.start.1 <= m.end.1
        });
        if merged.len() > MERGED_MAX {
            merged.truncate(MERGED_MAX);
            let message = "A sheet has more merged ranges than are kept; the rest is left out.";
            book.warnings.push(Warning::new("merged-limit", None, message));
        }
        let anchors: HashMap<(u32, u32), Merged> = merged.iter().map(|m| (m.start, *m)).collect();
        for cell in &mut cells {
            if let Some(range) = anchors.get(&(cell.row, cell.col)) {
                cell.rowspan = range.end.0 - range.start.0 + 1;
                cell.colspan = range.end.1 - range.start.1 + 1;
            }
        }
        let rows = cells.iter().map(|c| c.row + 1).max().unwrap_or(0);
        let columns = cells.iter().map(|c| c.col + 1).max().unwrap_or(0);
        write_text(&name, &cells, &mut book.text);
        let merged = merged.into_iter().map(a1_range).collect();
        book.sheets.push(Sheet { name: name.clone(), rows, columns, merged, hidden });
        if cells.is_empty() || builder.text_only {
            return;
        }
        match split::tables(&cells) {
            Some(parts) => {
                for split::Part { area: [top, bottom, left, right], mut cells } in parts {
                    cells
                        .iter_mut()
                        .for_each(|cell| (cell.row, cell.col) = (cell.row - top, cell.col - left));
                    let range = Merged { start: (top, left), end: (bottom, right) };
                    book.tables.push(table(book.tables.len(), &name, range, cells));
                }
            }
            None => {
                let range = Merged { start: (0, 0), end: (rows - 1, columns - 1) };
                book.tables.push(table(book.tables.len(), &name, range, cells));
            }
        }
    }
}

fn table(before: usize, sheet: &str, range: Merged, cells: Vec<Cell>) -> Table {
    let header_rows = header_rows(&cells);
    Table {
        id: before as u32 + 1,
        page: None,
        sheet: Some(sheet.to_owned()),
        range: Some(a1_range(range)),
        bbox: None,
        continues: None,
        inside: None,
        at: None,
        confidence: 1.0,
        title: title(&cells, header_rows),
        header_rows,
        rows: range.end.0 - range.start.0 + 1,
        columns: range.end.1 - range.start.1 + 1,
        cells,
    }
}

/// The one cell of words that the first row holds above the row of headings.
fn title(cells: &[Cell], header_rows: u32) -> Option<String> {
    let [first, second, ..] = cells else { return None };
    let alone = second.row > first.row && first.row + 1 < header_rows && first.value.is_none();
    alone.then(|| first.text.trim().to_owned()).filter(|title| !title.is_empty())
}

/// The sheet's name, then a line for each row that holds something, cells separated by tabs.
fn write_text(name: &str, cells: &[Cell], out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(name);
    let mut row = None;
    for cell in cells {
        out.push(if row == Some(cell.row) { '\t' } else { '\n' });
        row = Some(cell.row);
        out.push_str(&cell.text);
    }
    out.push('\n');
}

/// How many of the first rows are headings: those before the first row that holds a number, date or truth
/// value, if they are few and the last of them names at least two columns.
fn header_rows(cells: &[Cell]) -> u32 {
    let Some(first_value) = cells.iter().find(|c| c.value.is_some()).map(|c| c.row) else {
        // Nothing but text: the first row is a heading if it names every column and rows follow.
        let first = cells.first().map_or(0, |c| c.row);
        let named = cells.iter().filter(|c| c.row == first).count();
        let widest = cells.chunk_by(|a, b| a.row == b.row).map(<[Cell]>::len).max().unwrap_or(0);
        let follow = cells.last().is_some_and(|c| c.row > first);
        return if follow && named == widest && named > 1 && first < HEADER_ROWS_MAX { first + 1 } else { 0 };
    };
    let last_text_row = cells.iter().map(|c| c.row).take_while(|row| *row < first_value).last();
    let Some(last) = last_text_row else { return 0 };
    let named = cells.iter().filter(|c| c.row == last).count();
    if named > 1 && last < HEADER_ROWS_MAX { last + 1 } else { 0 }
}

fn a1_range(range: Merged) -> String {
    format!("{}:{}", a1(range.start), a1(range.end))
}

fn a1((row, col): (u32, u32)) -> String {
    let mut letters = Vec::new();
    let mut rest = col + 1;
    while rest > 0 {
        letters.push(b'A' + ((rest - 1) % 26) as u8);
        rest = (rest - 1) / 26;
    }
    letters.iter().rev().map(|b| char::from(*b)).chain((row + 1).to_string().chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_written_as_people_write_them() {
        assert_eq!(a1((0, 0)), "A1");
        assert_eq!(a1((9, 25)), "Z10");
        assert_eq!(a1((1_048_575, 16_383)), "XFD1048576");
        assert_eq!(a1_range(Merged { start: (0, 26), end: (1, 27) }), "AA1:AB2");
    }

    #[test]
    fn headings_end_where_values_begin() {
        let text = |row, col| Cell { row, col, rowspan: 1, colspan: 1, text: "x".into(), value: None };
        let number = |row, col| Cell { value: Some(crate::document::Value::Integer(1)), ..text(row, col) };
        assert_eq!(header_rows(&[text(0, 0), text(0, 1), text(1, 0), number(1, 1)]), 1);
        assert_eq!(header_rows(&[text(0, 0), text(2, 0), text(2, 1), text(3, 0), number(3, 1)]), 3);
        assert_eq!(header_rows(&[number(0, 0), number(0, 1)]), 0);
        assert_eq!(header_rows(&[text(0, 0), text(0, 1), text(1, 0), text(1, 1)]), 1);
    }
}
