//! What a document turns into: the model of `document.json`.
//!
//! It is the one form in which a result is stored, sent and shown, whatever the file was. A part that was
//! not asked for, or that a kind of file does not have, is `None` (`null`), never an empty list: an empty
//! list says "looked for, none there". Nothing here reads a file.

use serde::{Deserialize, Serialize};

/// The version of the format, the first member of every `document.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// `mapae-document/1`
    #[default]
    #[serde(rename = "mapae-document/1")]
    V1,
}

/// One analysed document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub format: Format,
    pub source: Source,
    /// BCP 47 tag of the main language (`ko`, `en`, `ja`, `zh`), `None` where the text does not show one.
    pub language: Option<String>,
    pub class: Option<Class>,
    /// The pages of a document that has pages.
    pub pages: Option<Vec<Page>>,
    /// The sheets of a workbook, in the workbook's order.
    pub sheets: Option<Vec<Sheet>>,
    pub tables: Option<Vec<Table>>,
    /// The headings of a document that has no pages, or whose pages are slides, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headings: Option<Vec<Heading>>,
    pub keywords: Option<Vec<Keyword>>,
    pub intents: Option<Vec<Intent>>,
    /// Everything readable in reading order: pages that have text, with an empty line between them; sheets, a line
    /// for a row; or paragraphs, a line each, with a line for each row of a table and tabs between its cells.
    /// Offsets elsewhere count characters (Unicode scalar values) of it.
    pub text: String,
    /// What was left out or is doubtful; an empty list means nothing was.
    pub warnings: Vec<Warning>,
    pub stages: Vec<Stage>,
}

/// The file the document was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The file's own name, without folders.
    pub name: String,
    pub bytes: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// What the bytes are, not what the name says.
    pub media_type: String,
}

/// What kind of document this is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    pub label: String,
    /// 0 to 1.
    pub confidence: f64,
    /// `model`, `examples`, `label-text` or `provider`.
    pub by: String,
    pub unsure: bool,
    /// How far the best is before the second, 0 to 1.
    #[serde(default)]
    pub margin: f64,
    pub scores: std::collections::BTreeMap<String, f64>,
}

/// One page as it is stored: sizes are those of the page before `rotation` is applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Counts from 1.
    pub number: u32,
    /// PDF points.
    pub width: f64,
    /// PDF points.
    pub height: f64,
    /// Clockwise, one of 0, 90, 180 and 270.
    pub rotation: u16,
    /// Lines in reading order, separated by `\n`.
    pub text: String,
    /// The text came from optical character recognition.
    pub ocr: bool,
}

/// One sheet of a workbook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sheet {
    pub name: String,
    /// Rows from the first of the sheet to the last used one.
    pub rows: u32,
    /// Columns from the first of the sheet to the last used one.
    pub columns: u32,
    /// Ranges in A1 notation.
    pub merged: Vec<String>,
    /// People do not see it unless they ask for it.
    #[serde(default)]
    pub hidden: bool,
}

/// A heading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    /// Counts from 1, the highest.
    pub level: u8,
    /// First and last-plus-one character in `Document::text`.
    pub at: [u64; 2],
    /// The slide it stands on.
    pub page: Option<u32>,
}

/// A table. Rows and columns count from the first cell of `range` in a workbook, where a sheet is one table from its
/// first cell on unless several stand on it. A table that goes on on the next page is one table a page, and the later
/// ones say what they continue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Counts from 1 over the document.
    pub id: u32,
    pub page: Option<u32>,
    /// The name of the sheet.
    pub sheet: Option<String>,
    /// Where it stands on its sheet, in A1 notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// Left, bottom, right, top in PDF points from the bottom left of the page before rotation.
    pub bbox: Option<[f64; 4]>,
    /// The id of the table on an earlier page that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<u32>,
    /// The id of the table in one of whose cells this one stands. That cell's text holds its text, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<u32>,
    /// First and last-plus-one character of its rows in `Document::text`, where the document flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<[u64; 2]>,
    /// 0 to 1.
    pub confidence: f64,
    pub title: Option<String>,
    /// How many of the first rows are headings.
    pub header_rows: u32,
    pub rows: u32,
    pub columns: u32,
    /// Cells that hold something, by row, then column. Cells that are not listed are empty.
    pub cells: Vec<Cell>,
}

/// A document as far as its file itself tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Converted {
    pub document: Document,
    /// Numbers of the pages whose text is only to be had from their pictures.
    pub scans: Vec<u32>,
    /// Pages of the file, where only some of them may have been asked for.
    pub pages_total: Option<u32>,
}

/// Pages that stand one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Counts from 1.
    pub first: u32,
    pub count: u32,
}

impl Span {
    pub const ALL: Self = Self { first: 1, count: u32::MAX };

    /// Whether `page` stands before the last of them.
    pub(crate) fn is_before_end(&self, page: u32) -> bool {
        page < self.first.saturating_add(self.count)
    }
}

impl Default for Span {
    fn default() -> Self {
        Self::ALL
    }
}

/// The tables on the pages of a document and what is doubtful about them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageTables {
    /// In the order of the pages, and on a page as they are read.
    pub tables: Vec<Table>,
    pub warnings: Vec<Warning>,
}

/// A cell that holds something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Counts from 0.
    pub row: u32,
    /// Counts from 0.
    pub col: u32,
    pub rowspan: u32,
    pub colspan: u32,
    pub text: String,
    /// The exact value where it is more than text.
    pub value: Option<Value>,
}

/// A typed value: a JSON number or boolean, an ISO 8601 string for dates, times and durations
/// (`2026-01-31`, `2026-01-31T09:30:00`, `09:30:00`, `PT36H30M`), or `{"error": "#DIV/0!"}`.
/// A plain text cell has no value: its text is exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Bool(bool),
    Integer(i64),
    Number(f64),
    Time(String),
    Error { error: String },
}

/// A keyword of the document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Keyword {
    pub text: String,
    pub score: f64,
    /// First and last-plus-one character in `Document::text`.
    pub at: Option<[u64; 2]>,
}

/// Something a reader of the document may ask, with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    pub name: String,
    pub utterances: Vec<String>,
    pub answer: String,
    /// `extractive`, `template` or `provider`.
    pub origin: String,
    pub page: Option<u32>,
    /// First and last-plus-one character in `Document::text`.
    pub quote: Option<[u64; 2]>,
}

/// Something the reader of the result should know. The message never holds text of the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub code: String,
    /// Counts from 1.
    pub page: Option<u32>,
    pub message: String,
}

impl Warning {
    pub(crate) fn new(code: &str, page: Option<u32>, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), page, message: message.into() }
    }
}

/// A finished stage of the analysis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    pub name: String,
    pub seconds: f64,
}
