//! All tables of a document as one workbook: a sheet a table, numbers as numbers, and text as nothing but text.
//!
//! Whoever opens it runs nothing: what begins with `=`, `+`, `-` or `@` is written as a string, not as a formula.

use std::collections::BTreeMap;

use rust_xlsxwriter::{ExcelDateTime, Format, FormatAlign, Workbook, Worksheet, XlsxError};

use crate::document::{Cell, Document, Table, Value};

/// Cells of a workbook: it is made in memory, and people open it in a program that has limits as well.
const CELLS_MAX: usize = 1_000_000;
/// What a sheet holds at most.
const ROWS_MAX: u32 = 1_048_576;
const COLUMNS_MAX: u32 = 16_384;
const CELL_CHARS_MAX: usize = 32_767;
const NAME_CHARS_MAX: usize = 31;
/// Whole numbers above this are not exact as a workbook keeps them.
const EXACT: u64 = 1 << 53;
/// Digits that are exact.
const DIGITS_MAX: usize = 15;

/// Why there is no workbook.
#[derive(Debug, thiserror::Error)]
pub enum WorkbookError {
    #[error("the document has no tables")]
    NoTables,
    #[error("the tables have more cells than a workbook takes: {CELLS_MAX}")]
    TooManyCells,
    #[error("the workbook cannot be written")]
    Write(#[from] XlsxError),
}

/// The workbook as the bytes of its file.
pub fn workbook(document: &Document) -> Result<Vec<u8>, WorkbookError> {
    let tables = document.tables.as_deref().unwrap_or_default();
    if tables.is_empty() {
        return Err(WorkbookError::NoTables);
    }
    if tables.iter().map(|table| table.cells.len()).sum::<usize>() > CELLS_MAX {
        return Err(WorkbookError::TooManyCells);
    }
    let mut workbook = Workbook::new();
    for table in tables {
        let sheet = workbook.add_worksheet();
        sheet.set_name(name(table))?;
        fill(sheet, table)?;
    }
    Ok(workbook.save_to_buffer()?)
}

/// The number of a table makes its name its own; what follows is for people.
fn name(table: &Table) -> String {
    let title = table.title.as_deref().or(table.sheet.as_deref()).unwrap_or_default();
    let forbidden = |c: char| c.is_control() || "[]:*?/\\'".contains(c);
    let title: String = title.chars().map(|c| if forbidden(c) { ' ' } else { c }).collect();
    let name = format!("{} {}", table.id, title.split_whitespace().collect::<Vec<_>>().join(" "));
    // Characters count as the program that shows it counts them.
    let mut units = 0;
    let fits = |c: &char| {
        units += c.len_utf16();
        units <= NAME_CHARS_MAX
    };
    name.trim().chars().take_while(fits).collect::<String>().trim_end().to_owned()
}

fn fill(sheet: &mut Worksheet, table: &Table) -> Result<(), XlsxError> {
    let mut formats = Formats::default();
    for cell in &table.cells {
        let (last_row, last_col) = (cell.row + cell.rowspan.max(1) - 1, cell.col + cell.colspan.max(1) - 1);
        if last_row >= ROWS_MAX || last_col >= COLUMNS_MAX {
            continue;
        }
        let heading = cell.row < table.header_rows;
        if (last_row, last_col) != (cell.row, cell.col) {
            let format = formats.of("", heading, true);
            // Where spans lie over each other the first one stays; the others are single cells.
            let _ = sheet.merge_range(cell.row, cell.col as u16, last_row, last_col as u16, "", format);
        }
        put(sheet, cell, heading, &mut formats)?;
    }
    let freezes = table.header_rows > 0 && table.header_rows < table.rows.min(ROWS_MAX);
    if freezes {
        sheet.set_freeze_panes(table.header_rows, 0)?;
    }
    Ok(())
}

/// Formats by what they show, so that a workbook has few of them.
#[derive(Default)]
struct Formats(BTreeMap<(String, bool, bool), Format>);

impl Formats {
    fn of(&mut self, number: &str, heading: bool, merged: bool) -> &Format {
        self.0.entry((number.to_owned(), heading, merged)).or_insert_with(|| {
            let mut format = Format::new();
            if !number.is_empty() {
                format = format.set_num_format(number);
            }
            if heading {
                format = format.set_bold();
            }
            if merged {
                format = format.set_align(FormatAlign::VerticalCenter);
            }
            format
        })
    }
}

fn put(sheet: &mut Worksheet, cell: &Cell, heading: bool, formats: &mut Formats) -> Result<(), XlsxError> {
    let (row, col) = (cell.row, cell.col as u16);
    let merged = cell.rowspan > 1 || cell.colspan > 1;
    let number = match &cell.value {
        Some(Value::Integer(n)) if n.unsigned_abs() <= EXACT => {
            Some((*n as f64, read(&cell.text).map(|r| r.1)))
        }
        Some(Value::Number(n)) if n.is_finite() => Some((*n, read(&cell.text).map(|r| r.1))),
        Some(Value::Bool(truth)) => {
            sheet.write_boolean_with_format(row, col, *truth, formats.of("", heading, merged))?;
            return Ok(());
        }
        Some(Value::Time(time)) => {
            if let Some((time, shown)) = moment(time) {
                sheet.write_datetime_with_format(row, col, &time, formats.of(shown, heading, merged))?;
                return Ok(());
            }
            None
        }
        Some(_) => None,
        None => read(&cell.text).map(|(number, shown)| (number, Some(shown))),
    };
    match number {
        Some((number, shown)) => {
            let format = formats.of(&shown.unwrap_or_default(), heading, merged);
            sheet.write_number_with_format(row, col, number, format)?;
        }
        None => {
            let text: String = cell.text.chars().take(CELL_CHARS_MAX).collect();
            sheet.write_string_with_format(row, col, text, formats.of("", heading, merged))?;
        }
    }
    Ok(())
}

fn moment(time: &str) -> Option<(ExcelDateTime, &'static str)> {
    let shown = match (time.contains('-'), time.contains('T')) {
        (true, true) => "yyyy-mm-dd hh:mm:ss",
        (true, false) => "yyyy-mm-dd",
        (false, false) => "hh:mm:ss",
        // A length of time.
        (false, true) => return None,
    };
    ExcelDateTime::parse_from_str(time).ok().map(|time| (time, shown))
}

/// A number as people write it, and how to show it in the same way. What only looks like one (a telephone number, a
/// code with leading zeros, more digits than are exact) is text.
fn read(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let (body, percent) = text.strip_suffix('%').map_or((text, false), |body| (body.trim_end(), true));
    let minus = ['-', '\u{2212}', '△', '▲'].iter().find_map(|sign| body.strip_prefix(*sign));
    let unsigned = minus.unwrap_or(body);
    let (whole, decimals) = unsigned.split_once('.').map_or((unsigned, None), |(w, d)| (w, Some(d)));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let grouped = whole.contains(',');
    let sound = digits(first)
        && (!grouped || first.len() <= 3)
        && groups.all(|group| group.len() == 3 && digits(group))
        && (first.len() == 1 || !first.starts_with('0'))
        && decimals.is_none_or(digits);
    let plain: String = unsigned.chars().filter(|c| *c != ',').collect();
    if !sound || plain.len() > DIGITS_MAX {
        return None;
    }
    let number: f64 = plain.parse().ok()?;
    let number = if minus.is_some() { -number } else { number };
    let places = decimals.map_or(String::new(), |d| format!(".{}", "0".repeat(d.len())));
    let shown = format!("{}{places}{}", if grouped { "#,##0" } else { "0" }, if percent { "%" } else { "" });
    Some((if percent { number / 100.0 } else { number }, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_number_is_read_as_one() {
        assert_eq!(read("1,248,000"), Some((1_248_000.0, "#,##0".to_owned())));
        assert_eq!(read("-12.50"), Some((-12.5, "0.00".to_owned())));
        assert_eq!(read("8.5%"), Some((0.085, "0.0%".to_owned())));
        assert_eq!(read("△3,920"), Some((-3920.0, "#,##0".to_owned())));
        assert_eq!(read("0"), Some((0.0, "0".to_owned())));
        for text in
            ["", "-", "007", "010-1234", "1,23", "1.2.3", "12,3456", "1234567890123456", "=1+1", "%", "3 %p"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
