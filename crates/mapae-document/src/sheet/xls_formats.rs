//! The number formats of an `xls`, which its reader does not give: a walk over the records of the workbook that looks
//! only at formats and at which cell has which.

use std::collections::HashMap;

use super::format::Format;
use super::xls::{double_word, record, word};

/// Formatted cells of a workbook; more are shown exactly.
const CELLS_MAX: usize = 1_000_000;

/// Formats that change what a person reads, by sheet (in the workbook's order), row and column.
#[derive(Default)]
pub(super) struct Formats {
    formats: Vec<Format>,
    cells: HashMap<(u16, u16, u16), u16>,
}

impl Formats {
    pub(super) fn of(&self, sheet: usize, row: u32, col: u32) -> Option<&Format> {
        let place = (u16::try_from(sheet).ok()?, u16::try_from(row).ok()?, u16::try_from(col).ok()?);
        self.formats.get(usize::from(*self.cells.get(&place)?))
    }

    pub(super) fn read(stream: &[u8]) -> Self {
        let mut found = Self::default();
        let mut codes: HashMap<u16, String> =
            [(9, "0%"), (10, "0.00%")].map(|(id, code)| (id, code.to_owned())).into();
        let (mut used, mut sheets) = (Vec::new(), HashMap::new());
        let mut at = 0;
        // The workbook itself, whose end a look at the sheets begins at.
        while let Some((kind, body, next)) = record(stream, at) {
            match kind {
                // BOUNDSHEET: where the sheet begins.
                0x0085 => {
                    let number = sheets.len() as u16;
                    sheets.extend(double_word(body, 0).map(|at| (at as usize, number)));
                }
                // FORMAT
                0x041e => codes.extend(
                    word(body, 0).zip(text(&body[2.min(body.len())..])).map(|(id, code)| (id as u16, code)),
                ),
                // XF
                0x00e0 => used.push(word(body, 2).unwrap_or(0) as u16),
                _ => {}
            }
            at = next;
            if kind == 0x000a {
                break;
            }
        }
        // Which of the kept formats each cell format has.
        let mut kept: HashMap<u16, u16> = HashMap::new();
        for id in &used {
            if let (false, Some(format)) =
                (kept.contains_key(id), codes.get(id).and_then(|code| Format::of(code)))
            {
                kept.insert(*id, found.formats.len() as u16);
                found.formats.push(format);
            }
        }
        if found.formats.is_empty() {
            return found;
        }
        let of_cell = |body: &[u8], at: usize| -> Option<u16> {
            kept.get(used.get(word(body, at)? as usize)?).copied()
        };
        let mut sheet = None;
        while let Some((kind, body, next)) = record(stream, at) {
            let place = || Some((sheet?, word(body, 0)? as u16, word(body, 2)? as u16));
            match kind {
                // BOF: perhaps of a sheet; a chart inside of one is none.
                0x0809 => sheet = sheets.get(&at).copied(),
                // FORMULA, NUMBER, RK
                0x0006 | 0x0203 | 0x027e => found.cells.extend(place().zip(of_cell(body, 4))),
                // MULRK: several in a row, six bytes each, and the last column.
                0x00bd => {
                    if let Some((sheet, row, first)) = place() {
                        for (pair, col) in body[4..].chunks_exact(6).zip(first..) {
                            found.cells.extend(of_cell(pair, 0).map(|format| ((sheet, row, col), format)));
                        }
                    }
                }
                _ => {}
            }
            if found.cells.len() > CELLS_MAX {
                return Self::default();
            }
            at = next;
        }
        found
    }
}

/// A text of this format: how many characters, whether they take two bytes, the characters.
fn text(body: &[u8]) -> Option<String> {
    let length = word(body, 0)? as usize;
    let bytes = body.get(3..)?;
    if body[2] & 1 == 0 {
        return Some(bytes.get(..length)?.iter().map(|byte| char::from(*byte)).collect());
    }
    let units = bytes.get(..length * 2)?.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    Some(units.collect::<Vec<u16>>()).map(|units| String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Value;

    fn record(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &(body.len() as u16).to_le_bytes(), body].concat()
    }

    #[test]
    fn each_cell_has_the_format_of_its_sheet() {
        let code: Vec<u8> = "₩#,##0".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let format = record(0x041e, &[&164u16.to_le_bytes()[..], &6u16.to_le_bytes(), &[1], &code].concat());
        let used = |id: u16| record(0x00e0, &[&[0, 0][..], &id.to_le_bytes(), &[0; 16]].concat());
        let begin = record(0x0809, &[0; 16]);
        let bound =
            |at: usize| record(0x0085, &[&(at as u32).to_le_bytes()[..], &[0, 0, 1, 0, b'S']].concat());
        let end = record(0x000a, &[]);
        let globals = [begin.clone(), format, used(0), used(9), used(164)].concat();
        let first_at = globals.len() + 2 * bound(0).len() + end.len();
        let number = record(0x0203, &[&[3, 0, 2, 0, 2, 0][..], &[0; 8]].concat());
        let first = [begin.clone(), number, end.clone()].concat();
        let several =
            record(0x00bd, &[&[0, 0, 5, 0][..], &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0], &[6, 0]].concat());
        let second = [begin, several, end.clone()].concat();
        let stream = [globals, bound(first_at), bound(first_at + first.len()), end, first, second].concat();
        let formats = Formats::read(&stream);
        let text = |sheet, row, col| formats.of(sheet, row, col).and_then(|f| f.text(&Value::Integer(5)));
        assert_eq!(text(0, 3, 2).as_deref(), Some("₩5"));
        assert_eq!(text(1, 0, 6).as_deref(), Some("500%"));
        assert_eq!((text(1, 0, 5), text(1, 3, 2)), (None, None));
        assert!(Formats::read(&stream[..stream.len() / 2]).cells.is_empty());
    }
}
