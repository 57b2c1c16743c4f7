//! Tables page by page to the tables of a document.

use super::sight::Sight;
use super::tuning::Tuning;
use super::{Found, WORDS_MAX, extract, link};
use crate::document::{Cell, PageTables, Table, Warning};
use crate::limits::Limits;

/// Collects the tables of a document within its limits.
pub(crate) struct Collector {
    found: PageTables,
    cells_left: u64,
    tuning: Tuning,
    /// The last table of the page before, if it may go on: its page and what it looks like.
    open: Option<(u32, link::Look)>,
}

impl Collector {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { found: PageTables::default(), cells_left: limits.cells, tuning: Tuning::default(), open: None }
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
        let tables = extract(sight, &self.tuning);
        let last = tables.last().map(|table| link::Look::of(table, sight));
        let before = self.open.take().filter(|(page, _)| page + 1 == sight.page).map(|(_, look)| look);
        for (at, table) in tables.into_iter().enumerate() {
            let goes_on = at == 0 && before.as_ref().is_some_and(|look| look.goes_on(&table, sight));
            let Some(left) = self.cells_left.checked_sub(table.cells.len() as u64) else {
                self.warn(sight.page, "The document has more cells than allowed; later tables are left out.");
                return false;
            };
            self.cells_left = left;
            let id = self.found.tables.len() as u32 + 1;
            let continues = goes_on.then(|| id - 1);
            self.found.tables.push(Table { continues, ..placed(table, id, sight.page) });
        }
        self.open = last.map(|look| (sight.page, look));
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
