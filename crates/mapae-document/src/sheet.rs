//! Spreadsheets to sheets and tables.
//!
//! A sheet is one table in the sheet's own coordinates, unless several stand on it, and only cells that hold something are kept: two
//! cells in opposite corners are two cells, whatever lies between them. That is why no reader's dense range
//! is ever asked for: `xlsx` and `xlsb` are streamed cell by cell, `ods` is read by our own streaming
//! reader, and `xls`, whose reader builds dense ranges while opening, is measured before it is opened.
//! Formulas are not computed; the values the file holds are taken.

mod chains;
mod csv;
mod format;
mod grid;
mod ods;
mod split;
pub(crate) mod text;
mod value;
mod workbook;
mod xls;
mod xls_formats;

use std::panic::{AssertUnwindSafe, catch_unwind};

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

pub(crate) fn read(
    kind: Kind,
    data: &[u8],
    name: &str,
    password: Option<&str>,
    limits: &Limits,
) -> Result<Book, DocumentError> {
    let mut book = grid::BookBuilder::new(limits);
    match kind {
        Kind::Xlsx => damaged_if_it_panics(|| workbook::read_xlsx(data, limits, &mut book))?,
        Kind::Xlsb => damaged_if_it_panics(|| workbook::read_xlsb(data, limits, &mut book))?,
        Kind::Xls => damaged_if_it_panics(|| xls::read(data, limits, &mut book))?,
        Kind::Ods => ods::read(data, password, limits, &mut book)?,
        Kind::Csv => csv::read(data, name, None, &mut book)?,
        Kind::Tsv => csv::read(data, name, Some('\t'), &mut book)?,
        _ => return Err(DocumentError::Unsupported),
    }
    Ok(book.finish())
}

/// The library that reads these formats takes some offsets of a file on trust, and panics where a file is
/// cut off: to whoever sent the file that is damage like any other.
fn damaged_if_it_panics(read: impl FnOnce() -> Result<(), DocumentError>) -> Result<(), DocumentError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err(DocumentError::Damaged))
}
