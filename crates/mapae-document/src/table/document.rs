//! Tables page by page to the tables of a document.

use super::sight::Sight;
use super::tuning::Tuning;
use super::{Found, WORDS_MAX, extract, link};
use crate::document::{Cell, PageTables, Table, Warning};
use crate::limits::Limits;

/// What is said where it holds more cells than it may.
pub(crate) const CELLS_LIMIT: &str = "The document has more cells than allowed; later tables are left out.";

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
                self.warn(sight.page, CELLS_LIMIT);
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

    /// Drops what was found so far but for what may go on: it belongs to somebody else.
    pub(crate) fn forget(&mut self) {
        self.found = PageTables::default();
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
        range: None,
        bbox: Some(found.bbox.map(|at| (at * 100.0).round() / 100.0)),
        continues: None,
        inside: None,
        at: None,
        confidence: found.confidence,
        title: found.title,
        header_rows: found.header_rows,
        rows: found.rows,
        columns: found.columns,
        cells: cells.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::sight::Word;

    /// A page with a table of three columns whose lines stand at these heights.
    fn page(page: u32, title: Option<&str>, heights: std::ops::Range<u32>) -> Sight {
        let mut words = Vec::new();
        let mut put = |x: f64, y: f64, text: &str| {
            let width = 5.0 * text.chars().count() as f64;
            let bbox = [x, y - 2.1, x + width, y + 7.5];
            words.push(Word { text: text.to_owned(), bbox, size: 10.0, turn: Default::default() });
        };
        let top = f64::from(heights.end) * 16.0;
        let mut x = 60.0;
        for word in title.unwrap_or_default().split_whitespace() {
            put(x, top + 4.0, word);
            x += 5.0 * word.chars().count() as f64 + 2.5;
        }
        for n in heights.rev() {
            let y = f64::from(n) * 16.0 - 12.0;
            for (x, text) in
                [(60.0, format!("item{n}")), (300.0, format!("{n}")), (420.0, format!("{}", n + 7))]
            {
                put(x, y, &text);
            }
        }
        Sight { page, width: 600.0, height: 800.0, words, ..Sight::default() }
    }

    fn links(pages: &[Sight]) -> Vec<Option<u32>> {
        let mut collector = Collector::new(&Limits::default());
        assert!(pages.iter().all(|sight| collector.page(sight)));
        collector.finish().tables.iter().map(|table| table.continues).collect()
    }

    #[test]
    fn a_table_at_the_foot_of_a_page_goes_on_at_the_top_of_the_next() {
        assert_eq!(links(&[page(1, None, 4..30), page(2, None, 20..47)]), [None, Some(1)]);
        assert_eq!(links(&[page(1, None, 4..30), page(2, Some("Table 2 Other"), 20..46)]), [None, None]);
        assert_eq!(
            links(&[page(1, None, 4..30), page(2, Some("Table 1 (continued)"), 20..46)]),
            [None, Some(1)]
        );
    }

    #[test]
    fn a_table_with_a_page_between_does_not_go_on() {
        assert_eq!(links(&[page(1, None, 4..30), page(3, None, 20..47)]), [None, None]);
        assert_eq!(
            links(&[page(1, None, 25..40), page(2, None, 20..47)]),
            [None, None],
            "it ended in mid-page"
        );
    }

    #[test]
    fn a_document_with_more_cells_than_allowed_says_so() {
        let mut collector = Collector::new(&Limits { cells: 100, ..Limits::default() });
        assert!(collector.page(&page(1, None, 4..30)));
        assert!(!collector.page(&page(2, None, 20..47)));
        let found = collector.finish();
        assert_eq!((found.tables.len(), found.warnings[0].code.as_str()), (1, "tables-limit"));
    }
}
