//! A table while its cells come in, and its form in the words of the document.

use crate::document::{Cell, Table};
use crate::table::is_number;

/// The largest span and table that any of the formats has use for.
const ROWS_MAX: u32 = 1_048_576;
const COLUMNS_MAX: u32 = 16_384;
/// Leading rows that may be headings.
const HEADER_ROWS_MAX: u32 = 5;

/// Where a cell stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The file says it.
    At { row: u32, col: u32, rowspan: u32, colspan: u32 },
    /// The next free place of the row that was opened last.
    Next { rowspan: u32, colspan: u32 },
    /// It goes on with the cell above: that one reaches down into this row.
    Above { colspan: u32 },
}

/// What is said of a table as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableInfo {
    pub(crate) title: Option<String>,
    /// How many of the first rows are headings, where the file says it.
    pub(crate) header_rows: Option<u32>,
}

/// A table while its cells come in.
pub(super) struct Draft {
    id: u32,
    cells: Vec<Cell>,
    /// The text of the open cell.
    text: String,
    /// The row that was opened last.
    row: Option<u32>,
    /// The next column of that row.
    col: u32,
    /// For each column, the first row that no cell of an earlier row reaches, and that cell.
    reach: Vec<(u32, Option<usize>)>,
}

impl Draft {
    pub(super) fn new(id: u32) -> Self {
        Self { id, cells: Vec::new(), text: String::new(), row: None, col: 0, reach: Vec::new() }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.cells.iter().all(|cell| cell.text.is_empty())
    }

    pub(super) fn open_row(&mut self) {
        self.row = Some(self.row.map_or(0, |row| (row + 1).min(ROWS_MAX - 1)));
        self.col = 0;
    }

    pub(super) fn open_cell(&mut self) {
        self.text.clear();
    }

    /// A line of the open cell.
    pub(super) fn text(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }

    pub(super) fn close_cell(&mut self, place: Place) {
        let text = std::mem::take(&mut self.text);
        let span = |span: u32, most: u32, at: u32| span.clamp(1, (most - at).max(1));
        let (row, col, rowspan, colspan) = match place {
            Place::At { row, col, rowspan, colspan } => (row, col, rowspan, colspan),
            Place::Next { rowspan, colspan } => {
                let row = self.row.unwrap_or(0);
                while self.reach.get(self.col as usize).is_some_and(|(free, _)| *free > row) {
                    self.col += 1;
                }
                (row, self.col, rowspan, colspan)
            }
            Place::Above { colspan } => {
                let (row, col) = (self.row.unwrap_or(0), self.col);
                self.col = col.saturating_add(colspan.max(1)).min(COLUMNS_MAX);
                self.reach_down(row, col, text);
                return;
            }
        };
        if row >= ROWS_MAX || col >= COLUMNS_MAX {
            return;
        }
        let (rowspan, colspan) = (span(rowspan, ROWS_MAX, row), span(colspan, COLUMNS_MAX, col));
        self.col = col + colspan;
        let end = (col + colspan) as usize;
        if self.reach.len() < end {
            self.reach.resize(end, (0, None));
        }
        self.reach[col as usize..end].fill((row + rowspan, Some(self.cells.len())));
        self.cells.push(Cell { row, col, rowspan, colspan, text, value: None });
    }

    fn reach_down(&mut self, row: u32, col: u32, text: String) {
        let Some((_, Some(above))) = self.reach.get(col as usize).copied() else { return };
        let cell = &mut self.cells[above];
        if !text.is_empty() {
            if !cell.text.is_empty() {
                cell.text.push('\n');
            }
            cell.text.push_str(&text);
        }
        cell.rowspan = row + 1 - cell.row;
        let columns = cell.col as usize..(cell.col + cell.colspan) as usize;
        self.reach[columns].fill((row + 1, Some(above)));
    }

    pub(super) fn finish(self, info: TableInfo) -> Table {
        let mut cells = self.cells;
        cells.sort_by_key(|cell| (cell.row, cell.col));
        // A file may give a place twice; both hold something.
        cells.dedup_by(|again, first| {
            let same = (again.row, again.col) == (first.row, first.col);
            if same && !again.text.is_empty() {
                first.text.push('\n');
                first.text.push_str(&again.text);
            }
            same
        });
        // Spans beyond the last row in which a cell begins are room, not rows.
        let rows = cells.iter().map(|cell| cell.row + 1).max().unwrap_or(0);
        for cell in &mut cells {
            cell.rowspan = cell.rowspan.min(rows - cell.row);
        }
        let columns = cells.iter().map(|cell| cell.col + cell.colspan).max().unwrap_or(0);
        cells.retain(|cell| !cell.text.is_empty());
        let header_rows = info.header_rows.map_or_else(|| header_rows(&cells), |said| said.min(rows));
        Table {
            id: self.id,
            page: None,
            sheet: None,
            range: None,
            bbox: None,
            continues: None,
            inside: None,
            at: None,
            confidence: 1.0,
            title: info.title.filter(|title| !title.is_empty()),
            header_rows,
            rows,
            columns,
            cells,
        }
    }
}

/// How many of the first rows are headings where the file does not say it: rows without a number before the
/// first with one, if they are few; in a table of words the first, if it names every column.
fn header_rows(cells: &[Cell]) -> u32 {
    let rows: Vec<&[Cell]> = cells.chunk_by(|a, b| a.row == b.row).collect();
    let numeric = |row: &&[Cell]| row.iter().any(|cell| is_number(cell.text.trim()));
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return 0 };
    match rows.iter().position(numeric) {
        Some(0) => 0,
        Some(at) if rows[at - 1].len() > 1 && rows[at][0].row <= HEADER_ROWS_MAX => rows[at][0].row,
        Some(_) => 0,
        None => {
            let widest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
            let names_all = first[0].row == 0 && first.len() == widest && widest > 1 && last[0].row > 1;
            u32::from(names_all)
        }
    }
}

/// A table in the text: a line for each row, its cells separated by tabs.
pub(super) fn lines(table: &Table) -> String {
    let mut out = String::new();
    let mut row = None;
    for cell in &table.cells {
        if let Some(row) = row {
            out.push(if row == cell.row { '\t' } else { '\n' });
        }
        row = Some(cell.row);
        // Within a cell neither lines nor the tabs of a table inside mean what they mean between cells.
        let mut words = cell.text.split(['\n', '\t']).map(str::trim).filter(|part| !part.is_empty());
        out.push_str(words.next().unwrap_or_default());
        for part in words {
            out.push(' ');
            out.push_str(part);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(draft: &mut Draft, text: &str, place: Place) {
        draft.open_cell();
        draft.text(text);
        draft.close_cell(place);
    }

    fn places(table: &Table) -> Vec<(u32, u32, u32, u32, &str)> {
        table.cells.iter().map(|c| (c.row, c.col, c.rowspan, c.colspan, c.text.as_str())).collect()
    }

    #[test]
    fn a_cell_that_reaches_down_pushes_those_beside_it() {
        let mut draft = Draft::new(1);
        draft.open_row();
        cell(&mut draft, "a", Place::Next { rowspan: 2, colspan: 1 });
        cell(&mut draft, "b", Place::Next { rowspan: 1, colspan: 2 });
        draft.open_row();
        cell(&mut draft, "c", Place::Next { rowspan: 9, colspan: 1 });
        let table = draft.finish(TableInfo::default());
        assert_eq!(places(&table), [(0, 0, 2, 1, "a"), (0, 1, 1, 2, "b"), (1, 1, 1, 1, "c")]);
        assert_eq!((table.rows, table.columns), (2, 3));
    }

    #[test]
    fn a_cell_that_goes_on_with_the_one_above_makes_it_longer() {
        let mut draft = Draft::new(1);
        for (first, second) in [("a", "1"), ("", "2"), ("", "3"), ("d", "4")] {
            draft.open_row();
            let above = first.is_empty();
            let place =
                if above { Place::Above { colspan: 1 } } else { Place::Next { rowspan: 1, colspan: 1 } };
            draft.open_cell();
            if !above {
                draft.text(first);
            }
            draft.close_cell(place);
            cell(&mut draft, second, Place::Next { rowspan: 1, colspan: 1 });
        }
        let table = draft.finish(TableInfo::default());
        assert_eq!(places(&table)[0], (0, 0, 3, 1, "a"));
        assert_eq!(places(&table)[4], (3, 0, 1, 1, "d"));
        assert_eq!(lines(&table), "a\t1\n2\n3\nd\t4");
    }

    #[test]
    fn headings_are_rows_of_words_above_numbers() {
        let table = |rows: &[&[&str]]| {
            let mut draft = Draft::new(1);
            for row in rows {
                draft.open_row();
                row.iter().for_each(|text| cell(&mut draft, text, Place::Next { rowspan: 1, colspan: 1 }));
            }
            draft.finish(TableInfo::default()).header_rows
        };
        assert_eq!(table(&[&["분야", "금액"], &["복지", "338,900"]]), 1);
        assert_eq!(table(&[&["1", "2"], &["3", "4"]]), 0);
        assert_eq!(table(&[&["name", "office"], &["a", "b"], &["c", "d"]]), 1);
        assert_eq!(table(&[&["only", "row"]]), 0);
    }
}
