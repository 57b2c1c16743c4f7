//! `xls`. Its reader builds a dense range of every sheet while it opens the file, so the file is measured
//! first: a walk over the records of the workbook that looks only at where cells are. A file that would ask
//! for too much is refused before the reader sees it.

use std::io::{Cursor, Read};

use calamine::{Reader, Xls, XlsError};

use super::grid::{BookBuilder, Merged};
use super::xls_formats::Formats;
use super::{chains, value, workbook};
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;

/// Bytes the reader keeps for each place of a dense range: a value and a formula.
const DENSE_BYTES: u64 = 48;
/// Bytes the reader reserves for each place of a sheet's declared size, one sheet at a time.
const DECLARED_BYTES: u64 = 40;

pub(super) fn read(data: &[u8], limits: &Limits, book: &mut BookBuilder) -> Result<(), DocumentError> {
    chains::check(data)?;
    let records = records(data);
    // Half of the memory is left for what the file really holds.
    if memory_asked(&records) > limits.memory_bytes / 2 {
        return Err(DocumentError::TooLarge(Excess::Cells));
    }
    let mut xls = Xls::new(Cursor::new(data)).map_err(|error| match error {
        XlsError::Password => DocumentError::EncryptionUnsupported,
        _ => DocumentError::Damaged,
    })?;
    let formats = Formats::read(&records);
    // The formats count every sheet, those of charts as well.
    let all: Vec<String> = xls.sheets_metadata().iter().map(|sheet| sheet.name.clone()).collect();
    for (name, hidden) in workbook::worksheets(xls.sheets_metadata()) {
        let number = all.iter().position(|other| *other == name).unwrap_or(usize::MAX);
        let mut sheet = book.sheet(&name)?;
        sheet.hide(hidden);
        let range = xls.worksheet_range(&name).map_err(|_| DocumentError::Damaged)?;
        let (top, left) = range.start().unwrap_or_default();
        for (row, col, data) in range.used_cells() {
            let (row, col) = (top + row as u32, left + col as u32);
            if let Some(content) = value::of_data(data) {
                sheet.push(row, col, content.shown(formats.of(number, row, col)))?;
            }
        }
        let merged = xls.merge_cells_by_sheet_name(&name).unwrap_or_default();
        sheet.finish(merged.into_iter().map(Merged::from).collect());
    }
    Ok(())
}

/// The records of the workbook; none of a container that cannot be read: the reader proper will say so.
fn records(data: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    let Ok(mut file) = cfb::CompoundFile::open(Cursor::new(data)) else { return records };
    if let Some(stream) = ["/Workbook", "/Book"].iter().find_map(|name| file.open_stream(name).ok()) {
        // Of a stream that breaks off, what came before counts.
        let _ = stream.take(data.len() as u64).read_to_end(&mut records);
    }
    records
}

/// What the reader would take for these records.
fn memory_asked(records: &[u8]) -> u64 {
    let asked = asked(records);
    asked.dense.saturating_mul(DENSE_BYTES).saturating_add(asked.declared.saturating_mul(DECLARED_BYTES))
}

/// The kind and body of the record at a place of the stream, and where the next one is.
pub(super) fn record(stream: &[u8], at: usize) -> Option<(u16, &[u8], usize)> {
    let (header, rest) = stream.get(at..)?.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
    Some((u16::from_le_bytes([header[0], header[1]]), rest.get(..length)?, at + 4 + length))
}

/// Places the sheets ask room for.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    /// In the boxes around the cells of each sheet, summed.
    dense: u64,
    /// In the largest declared size of a sheet.
    declared: u64,
}

/// A box of cells: first and last row, first and last column.
type Extent = [u32; 4];

fn asked(records: &[u8]) -> Asked {
    let (mut asked, mut extent): (Asked, Option<Extent>) = (Asked::default(), None);
    let (mut globals, mut at) = (true, 0);
    while let Some((kind, body, next)) = record(records, at) {
        at = next;
        match kind {
            // BOF: another sheet begins.
            0x0809 => asked.dense += extent.take().map_or(0, area),
            // FILEPASS: what follows is encrypted, and the reader will say so.
            0x002f if globals && word(body, 0) != Some(0) => return Asked::default(),
            // EOF
            0x000a => globals = false,
            // DIMENSIONS
            0x0200 => asked.declared = asked.declared.max(declared(body).map_or(0, area)),
            // FORMULA, NUMBER, LABEL, BOOLERR, RSTRING, LABELSST, RK
            0x0006 | 0x0203 | 0x0204 | 0x0205 | 0x00d6 | 0x00fd | 0x027e => {
                extent =
                    grown(extent, word(body, 0).zip(word(body, 2)).map(|(row, col)| [row, row, col, col]));
            }
            // MULRK: from a column to a column
            0x00bd => {
                let last = body.len().checked_sub(2).and_then(|at| word(body, at));
                let place = word(body, 0).zip(word(body, 2)).zip(last);
                extent = grown(extent, place.map(|((row, from), to)| [row, row, from, to.max(from)]));
            }
            _ => {}
        }
    }
    asked.dense += extent.map_or(0, area);
    asked
}

pub(super) fn word(body: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_le_bytes([*body.get(at)?, *body.get(at + 1)?])))
}

pub(super) fn double_word(body: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*body.get(at..)?.first_chunk()?))
}

/// The box of a DIMENSIONS record of the old (10 bytes) or new (14 bytes and more) form; its last row and
/// column are one too many.
fn declared(body: &[u8]) -> Option<Extent> {
    let [first_row, end_row, first_col, end_col] = match body.len() {
        10 => [word(body, 0)?, word(body, 2)?, word(body, 4)?, word(body, 6)?],
        14.. => [double_word(body, 0)?, double_word(body, 4)?, word(body, 8)?, word(body, 10)?],
        _ => return None,
    };
    (end_row > first_row && end_col > first_col).then(|| [first_row, end_row - 1, first_col, end_col - 1])
}

fn grown(extent: Option<Extent>, place: Option<Extent>) -> Option<Extent> {
    match (extent, place) {
        (Some([r0, r1, c0, c1]), Some([a, b, c, d])) => Some([r0.min(a), r1.max(b), c0.min(c), c1.max(d)]),
        (extent, place) => extent.or(place),
    }
}

fn area([first_row, last_row, first_col, last_col]: Extent) -> u64 {
    (u64::from(last_row - first_row) + 1) * (u64::from(last_col - first_col) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &(body.len() as u16).to_le_bytes(), body].concat()
    }

    #[test]
    fn two_cells_in_opposite_corners_ask_for_everything_between_them() {
        let cell = |row: u16, col: u16| {
            record(0x0203, &[&row.to_le_bytes()[..], &col.to_le_bytes(), &[0; 10]].concat())
        };
        let sheet = |cells: &[Vec<u8>]| [record(0x0809, &[]), cells.concat()].concat();
        assert_eq!(asked(&sheet(&[cell(0, 0), cell(1, 1)])).dense, 4);
        assert_eq!(asked(&sheet(&[cell(0, 0), cell(65_535, 65_535)])).dense, 1 << 32);
        let two = [sheet(&[cell(0, 0)]), sheet(&[cell(5, 5), cell(5, 6)])].concat();
        assert_eq!(asked(&two).dense, 3);
    }

    #[test]
    fn a_declared_size_counts_and_nonsense_does_not() {
        let mut body = [0u8; 14];
        body[4..8].copy_from_slice(&100u32.to_le_bytes());
        body[10..12].copy_from_slice(&10u16.to_le_bytes());
        assert_eq!(asked(&record(0x0200, &body)), Asked { dense: 0, declared: 1000 });
        assert_eq!(asked(&record(0x0200, &[1, 2, 3])), Asked::default());
        assert_eq!(asked(&[0xff; 7]), Asked::default());
    }
}
