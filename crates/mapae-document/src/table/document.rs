//! Tables page by page to the tables of a document.

use super::sight::Sight;
use super::tuning::Tuning;
use super::{Found, extract};
use crate::document::{Cell, PageTables, Table, Warning};
use crate::limits::Limits;

/// Words of one page that tables are looked for in; a page with more is a drawing or an attack.
const WORDS_MAX: usize = 20_000;

/// Collects the tables of a document within its limits.
pub(crate) struct Collector {
    found: PageTables,
    cells_left: u64,
    tuning: Tuning,
}

impl Collector {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { found: PageTables::default(), cells_left: limits.cells, tuning: Tuning::default() }
    }

    /// Takes the next page; answers whether there is room for more.
    pub(crate) fn page(&mut self, sight: &Sight) -> bool {
        if sight.words.len() > WORDS_MAX {
            self.warn(
                sight.page,
                "The page has more words than a table can; tables were not looked for on it.",
            );
            return true;
        }
        for table in extract(sight, &self.tuning) {
            let Some(left) = self.cells_left.checked_sub(table.cells.len() as u64) else {
                self.warn(sight.page, "The document has more cells than allowed; later tables are left out.");
                return false;
            };
            self.cells_left = left;
            let id = self.found.tables.len() as u32 + 1;
            self.found.tables.push(placed(table, id, sight.page));
        }
        true
    }

    fn warn(&mut self, page: u32, message: &str) {
        self.found.warnings.push(Warning::new("tables-limit", Some(page), message));
    }

    pub(crate) fn finish(self) -> PageTables {
        self.found
    }
}

fn placed(found: Found, id: u32, page: u32) -> Table {
    let cells = found.cells.into_iter().map(|cell| Cell {
        row: cell.row,
        col: cell.col,
        rowspan: cell.rowspan,
        colspan: cell.colspan,
        text: cell.text,
        value: None,
    });
    Table {
        id,
        page: Some(page),
        sheet: None,
        bbox: Some(found.bbox.map(|at| (at * 100.0).round() / 100.0)),
        continues: None,
        confidence: found.confidence,
        title: found.title,
        header_rows: found.header_rows,
        rows: found.rows,
        columns: found.columns,
        cells: cells.collect(),
    }
}
