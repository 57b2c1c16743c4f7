//! Documents that flow: paragraphs, headings and tables in the order they are read, without pages.
//!
//! A reader of such a format walks its file once and tells a [`Flow`] what it meets. Paragraphs that come while
//! a cell is open go into the cell, so a text box, a list or a table inside of a cell need no care:
//!
//! ```text
//! paragraph · heading ─────────────────────────────► text
//! open_table ─ open_cell ─ paragraph … ─ close_cell ─ … ─ close_table ─► text, a line a row, and a table
//!                            └ open_table … close_table ─► the cell's text, and a table that says in which it stands
//! ```

mod grid;
pub(crate) mod number;

use crate::document::{Heading, Table, Warning};
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;
use grid::Draft;
pub(crate) use grid::{Place, TableInfo};

/// Tables inside of tables; what is deeper is text of the last one.
const TABLES_DEEP: usize = 16;

/// What a flowing document holds.
#[derive(Default)]
pub(crate) struct Flowed {
    pub(crate) text: String,
    pub(crate) headings: Vec<Heading>,
    pub(crate) tables: Vec<Table>,
    pub(crate) warnings: Vec<Warning>,
}

/// Collects a flowing document within the limits.
pub(crate) struct Flow {
    done: Flowed,
    /// Characters of the text so far.
    chars: u64,
    open: Vec<Draft>,
    /// Tables that were opened too deep to be tables.
    too_deep: usize,
    page: Option<u32>,
    cells_left: u64,
    text_left: u64,
    /// The last paragraph, where it may name the table that comes next.
    before: String,
    /// Tables are lines of text.
    text_only: bool,
}

impl Flow {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            done: Flowed::default(),
            chars: 0,
            open: Vec::new(),
            too_deep: 0,
            page: None,
            cells_left: limits.cells,
            text_left: limits.text_bytes,
            before: String::new(),
            text_only: limits.text_only,
        }
    }

    pub(crate) fn finish(mut self) -> Flowed {
        // A file that breaks off leaves its tables open.
        while !self.open.is_empty() {
            self.too_deep = 0;
            let _ = self.close_table(TableInfo::default());
        }
        self.done.text.truncate(self.done.text.trim_end().len());
        self.done
    }

    pub(crate) fn warn(&mut self, code: &str, message: &str) {
        if !self.done.warnings.iter().any(|warning| warning.code == code) {
            self.done.warnings.push(Warning::new(code, None, message));
        }
    }

    /// What comes next stands on this page, from 1.
    pub(crate) fn page(&mut self, number: u32) {
        self.page = Some(number);
    }

    /// Whether nothing that can be read has come yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.done.text.is_empty() && self.open.iter().all(Draft::is_empty)
    }

    /// Bytes of text so far: two positions are the bounds of what was told between them.
    pub(crate) fn bytes(&self) -> usize {
        self.done.text.len()
    }

    pub(crate) fn text_from(&self, bytes: usize) -> &str {
        self.done.text.get(bytes..).unwrap_or_default()
    }

    /// A paragraph; blank ones say nothing.
    pub(crate) fn paragraph(&mut self, text: &str) -> Result<(), DocumentError> {
        let text = text.trim_matches(|c: char| c.is_whitespace() && c != '\t').trim_end();
        if text.trim().is_empty() {
            return Ok(());
        }
        let bytes = text.len() as u64 + 1;
        self.text_left = self.text_left.checked_sub(bytes).ok_or(DocumentError::TooLarge(Excess::Output))?;
        match self.open.last_mut() {
            Some(draft) => draft.text(text),
            None => {
                self.line(text);
                self.before.clear();
                self.before.push_str(text);
            }
        }
        Ok(())
    }

    /// A heading of a level from 1. One in a cell is a paragraph.
    pub(crate) fn heading(&mut self, level: u8, text: &str) -> Result<(), DocumentError> {
        let begin = self.chars;
        self.paragraph(text)?;
        if self.open.is_empty() && self.chars > begin {
            // Without the end of the line.
            let at = [begin, self.chars - 1];
            self.done.headings.push(Heading { level: level.max(1), at, page: self.page });
        }
        Ok(())
    }

    pub(crate) fn open_table(&mut self) {
        if self.text_only || self.open.len() >= TABLES_DEEP {
            self.too_deep += 1;
            return;
        }
        // Its number is taken now, so that numbers rise in the order in which tables begin.
        let id = (self.done.tables.len() + self.open.len()) as u32 + 1;
        self.open.push(Draft::new(id));
    }

    pub(crate) fn open_row(&mut self) {
        if let Some(draft) = self.here() {
            draft.open_row();
        }
    }

    pub(crate) fn open_cell(&mut self) -> Result<(), DocumentError> {
        self.cells_left = self.cells_left.checked_sub(1).ok_or(DocumentError::TooLarge(Excess::Cells))?;
        if let Some(draft) = self.here() {
            draft.open_cell();
        }
        Ok(())
    }

    pub(crate) fn close_cell(&mut self, place: Place) {
        if let Some(draft) = self.here() {
            draft.close_cell(place);
        }
    }

    /// Ends the table that was opened last.
    pub(crate) fn close_table(&mut self, info: TableInfo) -> Result<(), DocumentError> {
        if self.too_deep > 0 {
            self.too_deep -= 1;
            return Ok(());
        }
        let Some(draft) = self.open.pop() else { return Ok(()) };
        let mut table = draft.finish(info);
        if table.rows == 0 {
            return Ok(());
        }
        table.page = self.page;
        let lines = grid::lines(&table);
        match self.open.last_mut() {
            Some(outer) => {
                table.inside = Some(outer.id());
                if !lines.is_empty() {
                    outer.text(&lines);
                }
            }
            None => {
                let captioned = crate::table::is_caption(&self.before);
                table.title = table.title.or_else(|| captioned.then(|| std::mem::take(&mut self.before)));
                // An empty form is a table without a line in the text.
                if !lines.is_empty() {
                    let begin = self.chars;
                    self.line(&lines);
                    table.at = Some([begin, self.chars - 1]);
                }
                self.before.clear();
            }
        }
        let after = self.done.tables.partition_point(|t| t.id < table.id);
        self.done.tables.insert(after, table);
        Ok(())
    }

    /// The table that cells belong to.
    fn here(&mut self) -> Option<&mut Draft> {
        if self.too_deep > 0 { None } else { self.open.last_mut() }
    }

    fn line(&mut self, text: &str) {
        self.done.text.push_str(text);
        self.done.text.push('\n');
        self.chars += text.chars().count() as u64 + 1;
    }
}
