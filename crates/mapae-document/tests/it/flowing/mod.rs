//! Documents that flow: words in the order they are read, headings, tables with their spans.

mod hwp;
mod hwpx;
mod office;
mod text;

use mapae_document::document::{Document, Table};

/// A table as a person would draw it: place, span and text of each cell.
fn cells(table: &Table) -> Vec<(u32, u32, u32, u32, &str)> {
    table.cells.iter().map(|c| (c.row, c.col, c.rowspan, c.colspan, c.text.as_str())).collect()
}

fn tables(document: &Document) -> &[Table] {
    document.tables.as_deref().expect("looked for")
}

/// The headings, each as the text has it.
fn headings(document: &Document) -> Vec<(u8, String)> {
    let headings = document.headings.iter().flatten();
    headings.map(|heading| (heading.level, slice(document, heading.at))).collect()
}

fn slice(document: &Document, [begin, end]: [u64; 2]) -> String {
    document.text.chars().skip(begin as usize).take((end - begin) as usize).collect()
}
