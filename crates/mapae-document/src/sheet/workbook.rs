//! `xlsx` and `xlsb`, streamed cell by cell.

use std::io::Cursor;

use calamine::{Reader, SheetType, SheetVisible, Xlsb, XlsbError, Xlsx, XlsxError};

use super::format::Format;
use super::grid::{BookBuilder, Merged};
use super::value;
use crate::archive;
use crate::document::Warning;
use crate::error::DocumentError;
use crate::limits::Limits;

pub(super) fn read_xlsx(data: &[u8], limits: &Limits, book: &mut BookBuilder) -> Result<(), DocumentError> {
    archive::check(data, limits)?;
    let mut xlsx = Xlsx::new(Cursor::new(data)).map_err(xlsx_error)?;
    for (name, hidden) in worksheets(xlsx.sheets_metadata()) {
        let mut sheet = book.sheet(&name)?;
        sheet.hide(hidden);
        match xlsx.worksheet_cells_reader(&name) {
            Ok(mut cells) => {
                let codes = cells.styles().iter().map(|style| style.number_format.as_ref());
                let formats: Vec<Option<Format>> =
                    codes.map(|format| Format::of(&format?.format_code)).collect();
                while let Some((cell, style)) = cells.next_cell_with_style_id().map_err(xlsx_error)? {
                    let (row, col) = cell.get_position();
                    if let Some(content) = value::of_ref(cell.get_value().clone()) {
                        sheet.push(row, col, content.shown(formats.get(style).and_then(Option::as_ref)))?;
                    }
                }
            }
            // A sheet of charts, or one whose part is not there: nothing to read, which is no damage.
            Err(
                XlsxError::NotAWorksheet(_) | XlsxError::WorksheetNotFound(_) | XlsxError::FileNotFound(_),
            ) => {}
            Err(error) => return Err(xlsx_error(error)),
        }
        // Merged ranges stand after the cells. They are not worth losing the cells for.
        let merged = xlsx.merge_cells_by_sheet_name(&name);
        let readable = merged.is_ok();
        sheet.finish(merged.unwrap_or_default().into_iter().map(Merged::from).collect());
        if !readable {
            book.warn(Warning::new(
                "merged-unreadable",
                None,
                "The merged ranges of a sheet could not be read.",
            ));
        }
    }
    Ok(())
}

pub(super) fn read_xlsb(data: &[u8], limits: &Limits, book: &mut BookBuilder) -> Result<(), DocumentError> {
    archive::check(data, limits)?;
    let mut xlsb = Xlsb::new(Cursor::new(data)).map_err(xlsb_error)?;
    for (name, hidden) in worksheets(xlsb.sheets_metadata()) {
        let mut sheet = book.sheet(&name)?;
        sheet.hide(hidden);
        let mut cells = xlsb.worksheet_cells_reader(&name).map_err(xlsb_error)?;
        while let Some(cell) = cells.next_cell().map_err(xlsb_error)? {
            let (row, col) = cell.get_position();
            if let Some(content) = value::of_ref(cell.get_value().clone()) {
                sheet.push(row, col, content)?;
            }
        }
        // The reader does not give merged ranges of this format.
        sheet.finish(Vec::new());
    }
    Ok(())
}

/// The names of the sheets that have cells, in the workbook's order, and whether they are hidden.
pub(super) fn worksheets(sheets: &[calamine::Sheet]) -> Vec<(String, bool)> {
    let with_cells = sheets.iter().filter(|sheet| sheet.typ == SheetType::WorkSheet);
    with_cells.map(|sheet| (sheet.name.clone(), sheet.visible != SheetVisible::Visible)).collect()
}

fn xlsx_error(error: XlsxError) -> DocumentError {
    match error {
        XlsxError::Password => DocumentError::EncryptionUnsupported,
        _ => DocumentError::Damaged,
    }
}

fn xlsb_error(error: XlsbError) -> DocumentError {
    match error {
        XlsbError::Password => DocumentError::EncryptionUnsupported,
        _ => DocumentError::Damaged,
    }
}
