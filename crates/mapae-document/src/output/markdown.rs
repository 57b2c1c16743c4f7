//! `text.md`: the text with what Markdown can say of it: pages as comments, headings, tables.

use crate::document::{Document, Table};

/// Places of a table beyond which it stays lines with tabs: Markdown of that size opens nowhere.
const PLACES_MAX: u64 = 100_000;

/// The text by page under a comment for each; of what flows, with its headings and tables; else as it is.
pub(super) fn markdown(document: &Document) -> String {
    match (&document.headings, &document.pages) {
        (Some(_), _) => flowing(document),
        (None, Some(pages)) => {
            let page =
                |page: &crate::document::Page| format!("<!-- page {} -->\n\n{}\n\n", page.number, page.text);
            pages.iter().map(page).collect()
        }
        (None, None) => document.text.clone(),
    }
}

/// What is written in place of a stretch of the text.
enum Mark<'d> {
    Page(u32),
    Heading(u8),
    Table(&'d Table),
}

fn flowing(document: &Document) -> String {
    let mut marks: Vec<(u64, u64, Mark<'_>)> = Vec::new();
    marks.extend(document.headings.iter().flatten().map(|h| (h.at[0], h.at[1], Mark::Heading(h.level))));
    let small = |table: &&Table| u64::from(table.rows) * u64::from(table.columns) <= PLACES_MAX;
    let tables = document.tables.iter().flatten().filter(small);
    marks.extend(tables.filter_map(|table| table.at.map(|[begin, end]| (begin, end, Mark::Table(table)))));
    marks.extend(pages(document));
    marks.sort_by_key(|(begin, _, mark)| (*begin, !matches!(mark, Mark::Page(_))));

    let mut out = String::new();
    let mut chars = document.text.chars();
    let mut at = 0;
    for (begin, end, mark) in marks {
        if begin < at || end < begin {
            continue;
        }
        let before: String = chars.by_ref().take((begin - at) as usize).collect();
        let inside: String = chars.by_ref().take((end - begin) as usize).collect();
        at = end;
        paragraphs(&before, &mut out);
        match mark {
            Mark::Page(number) => out.push_str(&format!("<!-- page {number} -->\n\n")),
            Mark::Heading(level) => {
                // Markdown has six levels, and a heading is one line.
                let marks = "#".repeat(usize::from(level.clamp(1, 6)));
                out.push_str(&format!("{marks} {}\n\n", inside.replace('\n', " ")));
            }
            Mark::Table(table) => self::table(table, &mut out),
        }
    }
    paragraphs(&chars.collect::<String>(), &mut out);
    out
}

/// Where in the text each slide begins.
fn pages(document: &Document) -> Vec<(u64, u64, Mark<'_>)> {
    let (mut from, mut chars) = (0, 0);
    let mut marks = Vec::new();
    for page in document.pages.iter().flatten() {
        let Some(found) = document.text[from..].find(&page.text) else { continue };
        chars += document.text[from..from + found].chars().count() as u64;
        marks.push((chars, chars, Mark::Page(page.number)));
        chars += page.text.chars().count() as u64;
        from += found + page.text.len();
    }
    marks
}

/// Lines are paragraphs, which Markdown parts by empty lines.
fn paragraphs(text: &str, out: &mut String) {
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        out.push_str(line);
        out.push_str("\n\n");
    }
}

/// A table of GitHub's Markdown: its first row is the heading there must be. A merged cell stands in its first place.
fn table(table: &Table, out: &mut String) {
    let mut cells = table.cells.iter().peekable();
    let mut row = |row: u32, out: &mut String| {
        out.push('|');
        for col in 0..table.columns {
            let cell = cells.next_if(|cell| (cell.row, cell.col) == (row, col));
            let text =
                cell.map(|cell| cell.text.replace('|', "\\|").replace('\t', " ").replace('\n', "<br>"));
            out.push_str(&format!(" {} |", text.unwrap_or_default()));
        }
        out.push('\n');
    };
    let rule = format!("|{}\n", " --- |".repeat(table.columns as usize));
    if table.header_rows == 0 {
        out.push_str(&format!("|{}\n{rule}", "  |".repeat(table.columns as usize)));
    }
    for number in 0..table.rows {
        row(number, out);
        if number == 0 && table.header_rows > 0 {
            out.push_str(&rule);
        }
    }
    out.push('\n');
}
