//! Spreadsheets to sheets and tables.
//!
//! A sheet is one table in the sheet's own coordinates, and only cells that hold something are kept: two
//! cells in opposite corners are two cells, whatever lies between them. That is why no reader's dense range
//! is ever asked for: `xlsx` and `xlsb` are streamed cell by cell, `ods` is read by our own streaming
//! reader, and `xls`, whose reader builds dense ranges while opening, is measured before it is opened.
//! Formulas are not computed; the values the file holds are taken.

mod archive;
mod csv;
mod grid;
mod ods;
pub(crate) mod text;
mod value;
mod workbook;
mod xls;

use crate::detect::Kind;
use crate::document::{Sheet, Table, Warning};
use crate::error::DocumentError;
use crate::limits::Limits;

/// What a workbook holds.
pub(crate) struct Book {
    pub(crate) sheets: Vec<Sheet>,
    pub(crate) tables: Vec<Table>,
    pub(crate) text: String,
    pub(crate) warnings: Vec<Warning>,
}

pub(crate) fn read(kind: Kind, data: &[u8], name: &str, limits: &Limits) -> Result<Book, DocumentError> {
    let mut book = grid::BookBuilder::new(limits);
    match kind {
        Kind::Xlsx => workbook::read_xlsx(data, limits, &mut book)?,
        Kind::Xlsb => workbook::read_xlsb(data, limits, &mut book)?,
        Kind::Xls => xls::read(data, limits, &mut book)?,
        Kind::Ods => ods::read(data, limits, &mut book)?,
        Kind::Csv => csv::read(data, name, None, &mut book)?,
        Kind::Tsv => csv::read(data, name, Some('\t'), &mut book)?,
        Kind::Pdf | Kind::Text => return Err(DocumentError::Unsupported),
    }
    Ok(book.finish())
}
