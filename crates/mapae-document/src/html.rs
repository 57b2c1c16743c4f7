//! HTML to its text, headings and tables. Nothing is fetched and nothing runs; what a browser would not show as
//! text (scripts, styles, templates) is left out, and ends that people leave out are understood.

use encoding_rs::Encoding;
use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};

use crate::document::Warning;
use crate::error::DocumentError;
use crate::flow::{Flow, Place, TableInfo};
use crate::sheet::text;

/// Where a page says in which encoding it is written.
const DECLARED_WITHIN: usize = 4096;

/// Bytes of a page to text: by its mark, by what it declares, or as any text.
pub(crate) fn decode(data: &[u8]) -> (String, Vec<Warning>) {
    let marked = Encoding::for_bom(data).is_some() || text::utf16_order(data).is_some();
    let start = String::from_utf8_lossy(&data[..data.len().min(DECLARED_WITHIN)]).to_ascii_lowercase();
    let declared = start.split("charset=").nth(1).map(|rest| rest.trim_start_matches(['"', '\'', ' ']));
    let label = declared.and_then(|rest| rest.split(['"', '\'', ' ', ';', '>', '/']).next());
    match label.and_then(|label| Encoding::for_label(label.as_bytes())) {
        // What is not what it declares is taken for what it is.
        Some(encoding) if !marked => match encoding.decode_without_bom_handling_and_without_replacement(data)
        {
            Some(text) => (text.into_owned(), Vec::new()),
            None => text::decode(data),
        },
        _ => text::decode(data),
    }
}

pub(crate) fn read(html: &str, flow: &mut Flow) -> Result<(), DocumentError> {
    let mut emitter: DefaultEmitter<()> = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut page =
        Page { flow, line: String::new(), heading: None, preformatted: 0, skipped: None, tables: Vec::new() };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => page.start(&tag)?,
            Token::EndTag(tag) => page.end(&String::from_utf8_lossy(&tag.name))?,
            Token::String(text) => page.text(&String::from_utf8_lossy(&text)),
            _ => {}
        }
    }
    page.flush()?;
    while !page.tables.is_empty() {
        page.close_table()?;
    }
    Ok(())
}

struct Page<'f> {
    flow: &'f mut Flow,
    line: String,
    heading: Option<u8>,
    preformatted: u32,
    /// The element whose content is not text, and how many of its name are open.
    skipped: Option<(String, u32)>,
    tables: Vec<Open>,
}

/// A table that is open.
#[derive(Default)]
struct Open {
    row: bool,
    cell: Option<Place>,
    in_head: bool,
    /// Every cell of the open row is a heading.
    all_headings: bool,
    header_rows: u32,
    /// A row that is none has come.
    body: bool,
    in_caption: bool,
    caption: String,
}

impl Page<'_> {
    fn start(&mut self, tag: &StartTag<()>) -> Result<(), DocumentError> {
        let name = String::from_utf8_lossy(&tag.name).into_owned();
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += u32::from(*skipped == name && !tag.self_closing);
            return Ok(());
        }
        match name.as_str() {
            "script" | "style" | "template" | "title" | "noscript" | "svg" | "object" | "iframe"
                if !tag.self_closing =>
            {
                self.skipped = Some((name, 1));
            }
            "br" => self.line.push('\n'),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.flush()?;
                self.heading = name[1..].parse().ok();
            }
            "pre" | "textarea" => {
                self.flush()?;
                self.preformatted += 1;
            }
            "table" => {
                self.flush()?;
                self.flow.open_table();
                self.tables.push(Open::default());
            }
            "thead" | "tbody" | "tfoot" => {
                self.close_row()?;
                if let Some(table) = self.tables.last_mut() {
                    table.in_head = name == "thead";
                }
            }
            "caption" => {
                self.flush()?;
                if let Some(table) = self.tables.last_mut() {
                    table.in_caption = true;
                }
            }
            "tr" => {
                self.close_row()?;
                self.open_row();
            }
            "td" | "th" if !self.tables.is_empty() => self.open_cell(&name, tag)?,
            name if is_block(name) => self.flush()?,
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, name: &str) -> Result<(), DocumentError> {
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth -= u32::from(skipped == name);
            if *depth == 0 {
                self.skipped = None;
            }
            return Ok(());
        }
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.flush()?;
                self.heading = None;
            }
            "pre" | "textarea" => {
                self.flush()?;
                self.preformatted = self.preformatted.saturating_sub(1);
            }
            "caption" => {
                self.flush()?;
                if let Some(table) = self.tables.last_mut() {
                    table.in_caption = false;
                }
            }
            "td" | "th" => self.close_cell()?,
            "tr" | "thead" | "tbody" | "tfoot" => self.close_row()?,
            "table" => self.close_table()?,
            name if is_block(name) => self.flush()?,
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.preformatted > 0 {
            self.line.push_str(text);
            return;
        }
        for c in text.chars() {
            if !c.is_ascii_whitespace() {
                self.line.push(c);
            } else if !self.line.is_empty() && !self.line.ends_with([' ', '\n']) {
                self.line.push(' ');
            }
        }
    }

    /// What stands in the line is a paragraph.
    fn flush(&mut self) -> Result<(), DocumentError> {
        let line = std::mem::take(&mut self.line);
        match self.tables.last_mut() {
            // Between the cells of a table there is no text.
            Some(table) if table.in_caption => {
                if !table.caption.is_empty() && !line.trim().is_empty() {
                    table.caption.push(' ');
                }
                table.caption.push_str(line.trim());
                Ok(())
            }
            Some(table) if table.cell.is_none() => Ok(()),
            _ => match self.heading {
                Some(level) => self.flow.heading(level, &line),
                None => self.flow.paragraph(&line),
            },
        }
    }

    fn open_row(&mut self) {
        if let Some(table) = self.tables.last_mut() {
            table.row = true;
            table.all_headings = true;
            self.flow.open_row();
        }
    }

    fn open_cell(&mut self, name: &str, tag: &StartTag<()>) -> Result<(), DocumentError> {
        self.close_cell()?;
        if self.tables.last().is_some_and(|table| !table.row) {
            self.open_row();
        }
        let Some(table) = self.tables.last_mut() else { return Ok(()) };
        // As browsers do, spans beyond these are cut.
        let span = |name: &[u8], most: u32| {
            let value =
                tag.attributes.get(name).and_then(|v| std::str::from_utf8(v).ok()?.trim().parse().ok());
            value.unwrap_or(1u32).clamp(1, most)
        };
        table.all_headings &= name == "th";
        table.cell =
            Some(Place::Next { rowspan: span(b"rowspan", 65_534), colspan: span(b"colspan", 1_000) });
        self.flow.open_cell()
    }

    fn close_cell(&mut self) -> Result<(), DocumentError> {
        if self.tables.last().is_some_and(|table| table.cell.is_some()) {
            self.flush()?;
            if let Some(place) = self.tables.last_mut().and_then(|table| table.cell.take()) {
                self.flow.close_cell(place);
            }
        }
        Ok(())
    }

    fn close_row(&mut self) -> Result<(), DocumentError> {
        self.close_cell()?;
        if let Some(table) = self.tables.last_mut()
            && std::mem::take(&mut table.row)
        {
            let heads = (table.in_head || table.all_headings) && !table.body;
            table.header_rows += u32::from(heads);
            table.body |= !heads;
        }
        Ok(())
    }

    fn close_table(&mut self) -> Result<(), DocumentError> {
        self.close_row()?;
        let Some(table) = self.tables.pop() else { return Ok(()) };
        let header_rows = (table.header_rows > 0).then_some(table.header_rows);
        self.flow.close_table(TableInfo { title: Some(table.caption), header_rows })
    }
}

/// Elements that begin and end a line.
fn is_block(name: &str) -> bool {
    const BLOCKS: [&str; 30] = [
        "p",
        "div",
        "section",
        "article",
        "aside",
        "header",
        "footer",
        "nav",
        "main",
        "ul",
        "ol",
        "li",
        "dl",
        "dt",
        "dd",
        "blockquote",
        "figure",
        "figcaption",
        "address",
        "hr",
        "form",
        "fieldset",
        "legend",
        "details",
        "summary",
        "body",
        "option",
        "select",
        "center",
        "label",
    ];
    BLOCKS.contains(&name)
}
