//! The folder that a finished document becomes: `document.json` with everything, and its parts as files
//! that other programs open.
//!
//! ```text
//! document.json   text.md   intents.json   tables/01.csv   tables/01.json   …
//! ```
//!
//! The files hold what the document holds. A cell that begins with `=`, `+`, `-` or `@` is written as it
//! is, because a data file that alters values is wrong; a program that runs such cells as formulas when it
//! opens a CSV file must be told not to. CSV is RFC 4180 in UTF-8 without a byte order mark.

pub mod chatbot;
mod markdown;
pub mod workbook;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use crate::document::{Document, Table};

/// Cells of a CSV file, most of them perhaps empty: a sparse table over this is written as JSON only.
const CSV_CELLS_MAX: u64 = 20_000_000;

/// Cells up to which JSON is laid out for people; beyond, nobody reads it and the layout triples it.
const PRETTY_CELLS_MAX: usize = 50_000;

/// Writes `document` into `folder`, which is made if it is not there; files of these names are replaced.
pub fn write(document: &Document, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let cells = document.tables.iter().flatten().map(|table| table.cells.len()).sum::<usize>();
    let pretty = cells <= PRETTY_CELLS_MAX;
    json(document, pretty, &folder.join("document.json"))?;
    fs::write(folder.join("text.md"), markdown::markdown(document))?;
    json(&document.intents, true, &folder.join("intents.json"))?;
    let tables = folder.join("tables");
    if tables.exists() {
        // Tables of an earlier run would look like tables of this one.
        fs::remove_dir_all(&tables)?;
    }
    for table in document.tables.iter().flatten() {
        fs::create_dir_all(&tables)?;
        json(table, pretty, &tables.join(format!("{:02}.json", table.id)))?;
        if u64::from(table.rows) * u64::from(table.columns) <= CSV_CELLS_MAX {
            let mut file = BufWriter::new(File::create(tables.join(format!("{:02}.csv", table.id)))?);
            csv(table, &mut file)?;
            file.flush()?;
        }
    }
    Ok(())
}

fn json(value: &impl Serialize, pretty: bool, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    if pretty {
        serde_json::to_writer_pretty(&mut file, value)?;
    } else {
        serde_json::to_writer(&mut file, value)?;
    }
    file.write_all(b"\n")?;
    file.flush()
}

/// A table as RFC 4180, every row with all its columns. A merged cell stands in its first place.
pub fn csv(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let mut cells = table.cells.iter().peekable();
    for row in 0..table.rows {
        for col in 0..table.columns {
            if col > 0 {
                out.write_all(b",")?;
            }
            if let Some(cell) = cells.next_if(|cell| (cell.row, cell.col) == (row, col)) {
                field(&cell.text, out)?;
            }
        }
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

fn field(text: &str, out: &mut impl Write) -> io::Result<()> {
    if text.contains([',', '"', '\r', '\n']) || text.starts_with(' ') || text.ends_with(' ') {
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    } else {
        out.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Cell;

    #[test]
    fn csv_keeps_every_column_and_quotes_only_what_needs_it() {
        let cell =
            |row, col, text: &str| Cell { row, col, rowspan: 1, colspan: 1, text: text.into(), value: None };
        let table = Table {
            id: 1,
            page: None,
            sheet: None,
            range: None,
            bbox: None,
            continues: None,
            inside: None,
            at: None,
            confidence: 1.0,
            title: None,
            header_rows: 0,
            rows: 3,
            columns: 3,
            cells: vec![cell(0, 0, "a,b"), cell(0, 2, "=1+1"), cell(2, 1, "say \"hi\"")],
        };
        let mut out = Vec::new();
        csv(&table, &mut out).expect("writing to memory works");
        assert_eq!(String::from_utf8(out).expect("UTF-8"), "\"a,b\",,=1+1\r\n,,\r\n,\"say \"\"hi\"\"\",\r\n");
    }
}
