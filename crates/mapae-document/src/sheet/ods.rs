//! `ods`: OpenDocument spreadsheets, streamed from `content.xml`.
//!
//! A reader of our own, because repeated cells and rows must stay repeated: the format writes the empty rest
//! of a sheet as one row repeated a million times, and a dense reader makes a million rows of it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Cursor, Read};

use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::grid::{BookBuilder, COLUMNS_MAX, Merged, ROWS_MAX, SheetBuilder};
use super::value::Content;
use crate::archive;
use crate::decrypt::odf::Encryption;
use crate::document::Value;
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;

/// The encryption check reads no more of the manifest than this.
const MANIFEST_MAX: u64 = 4 * 1024 * 1024;

pub(super) fn read(
    data: &[u8],
    password: Option<&str>,
    limits: &Limits,
    book: &mut BookBuilder,
) -> Result<(), DocumentError> {
    archive::check(data, limits)?;
    let mut archive = zip::ZipArchive::new(Cursor::new(data)).map_err(|_| DocumentError::Damaged)?;
    let mut manifest = Vec::new();
    if let Ok(part) = archive.by_name("META-INF/manifest.xml") {
        // One that breaks off, or is larger, describes no encryption that could be opened.
        let _ = part.take(MANIFEST_MAX).read_to_end(&mut manifest);
    }
    let encryption = Encryption::of(&String::from_utf8_lossy(&manifest))?;
    let content = archive.by_name("content.xml").map_err(|_| DocumentError::Damaged)?;
    if let Some(encryption) = encryption {
        let mut bytes = Vec::new();
        let mut content = content.take(limits.part_bytes);
        content.read_to_end(&mut bytes).map_err(|_| DocumentError::Damaged)?;
        let opened = encryption.open("content.xml", bytes, password, limits.part_bytes)?;
        return ContentReader::new(opened.as_slice(), limits.string_bytes).sheets(book);
    }
    ContentReader::new(BufReader::new(content.take(limits.unpacked_bytes)), limits.string_bytes).sheets(book)
}

/// What is left of an element after its start tag has been read.
struct ContentReader<R> {
    xml: Reader<R>,
    buffer: Vec<u8>,
    string_bytes: u64,
}

/// A cell as it is written: what it holds, how far it reaches, how often it is repeated to the right.
struct WrittenCell {
    content: Option<Content>,
    rows: u32,
    columns: u32,
    repeated: u32,
}

impl<R: BufRead> ContentReader<R> {
    fn new(source: R, string_bytes: u64) -> Self {
        let mut xml = Reader::from_reader(source);
        let config = xml.config_mut();
        // One kind of start for both `<a/>` and `<a></a>`.
        config.expand_empty_elements = true;
        Self { xml, buffer: Vec::new(), string_bytes }
    }

    fn next(&mut self) -> Result<Event<'static>, DocumentError> {
        self.buffer.clear();
        let event = self.xml.read_event_into(&mut self.buffer).map_err(|_| DocumentError::Damaged)?;
        Ok(event.into_owned())
    }

    fn skip(&mut self, element: &BytesStart<'_>) -> Result<(), DocumentError> {
        self.buffer.clear();
        let skipped = self.xml.read_to_end_into(element.name(), &mut self.buffer);
        skipped.map(|_| ()).map_err(|_| DocumentError::Damaged)
    }

    fn sheets(&mut self, book: &mut BookBuilder) -> Result<(), DocumentError> {
        let mut content_seen = false;
        // Styles stand before the sheets that have them.
        let (mut style, mut hidden): (String, HashSet<String>) = (String::new(), HashSet::new());
        loop {
            match self.next()? {
                Event::Start(e) if e.name().as_ref() == "office:spreadsheet" => content_seen = true,
                Event::Start(e) if e.name().as_ref() == "style:style" => {
                    style = attribute(&e, "style:name").unwrap_or_default();
                }
                Event::Start(e)
                    if e.name().as_ref() == "style:table-properties"
                        && attribute(&e, "table:display").as_deref() == Some("false") =>
                {
                    hidden.insert(std::mem::take(&mut style));
                }
                Event::Start(e) if e.name().as_ref() == "table:table" => {
                    let name = attribute(&e, "table:name").unwrap_or_default();
                    let mut sheet = book.sheet(&name)?;
                    sheet
                        .hide(attribute(&e, "table:style-name").is_some_and(|style| hidden.contains(&style)));
                    let merged = self.table(&mut sheet)?;
                    sheet.finish(merged);
                }
                Event::Eof if content_seen => return Ok(()),
                Event::Eof => return Err(DocumentError::Damaged),
                _ => {}
            }
        }
    }

    fn table(&mut self, sheet: &mut SheetBuilder<'_>) -> Result<Vec<Merged>, DocumentError> {
        let mut merged = Vec::new();
        let mut row = 0u32;
        loop {
            match self.next()? {
                Event::Start(e) if e.name().as_ref() == "table:table-row" => {
                    let repeated = count(&e, "table:number-rows-repeated");
                    self.row(sheet, row, repeated, &mut merged)?;
                    row = row.saturating_add(repeated);
                }
                // Drawings and forms hold tables of their own.
                Event::Start(e) if matches!(e.name().as_ref(), "table:shapes" | "office:forms") => {
                    self.skip(&e)?
                }
                Event::End(e) if e.name().as_ref() == "table:table" => return Ok(merged),
                Event::Eof => return Err(DocumentError::Damaged),
                _ => {}
            }
        }
    }

    fn row(
        &mut self,
        sheet: &mut SheetBuilder<'_>,
        row: u32,
        repeated: u32,
        merged: &mut Vec<Merged>,
    ) -> Result<(), DocumentError> {
        let rows = row..row.saturating_add(repeated).min(ROWS_MAX);
        let mut col = 0u32;
        loop {
            match self.next()? {
                Event::Start(e)
                    if matches!(e.name().as_ref(), "table:table-cell" | "table:covered-table-cell") =>
                {
                    let cell = self.cell(&e)?;
                    let columns = col..col.saturating_add(cell.repeated).min(COLUMNS_MAX);
                    if cell.rows > 1 || cell.columns > 1 {
                        let end = (row.saturating_add(cell.rows - 1), col.saturating_add(cell.columns - 1));
                        merged.push(Merged { start: (row, col), end });
                    }
                    if let Some(content) = cell.content {
                        for row in rows.clone() {
                            for col in columns.clone() {
                                sheet.push(row, col, content.clone())?;
                            }
                        }
                    }
                    col = col.saturating_add(cell.repeated);
                }
                Event::End(e) if e.name().as_ref() == "table:table-row" => return Ok(()),
                Event::Eof => return Err(DocumentError::Damaged),
                _ => {}
            }
        }
    }

    fn cell(&mut self, start: &BytesStart<'_>) -> Result<WrittenCell, DocumentError> {
        let text = self.cell_text(start)?;
        let attribute = |name| attribute(start, name);
        let number = || attribute("office:value").and_then(|v| v.parse::<f64>().ok());
        let content = if attribute("calcext:value-type").as_deref() == Some("error") {
            Content::text(text).map(|c| Content { value: Some(Value::Error { error: c.text.clone() }), ..c })
        } else {
            match attribute("office:value-type").as_deref() {
                Some("float") => number().and_then(Content::number),
                // What is written for a person says the unit.
                Some("percentage" | "currency") => {
                    number().and_then(Content::number).map(|c| c.written(text))
                }
                Some("date") => attribute("office:date-value").and_then(Content::date),
                Some("time") => {
                    attribute("office:time-value").and_then(Content::duration).map(|c| c.written(text))
                }
                Some("boolean") => attribute("office:boolean-value").and_then(|v| Content::bool(v == "true")),
                Some("string") => Content::text(attribute("office:string-value").unwrap_or(text)),
                _ => Content::text(text),
            }
        };
        Ok(WrittenCell {
            content,
            rows: count(start, "table:number-rows-spanned"),
            columns: count(start, "table:number-columns-spanned"),
            repeated: count(start, "table:number-columns-repeated"),
        })
    }

    /// The paragraphs of a cell, a line each, without its comment.
    fn cell_text(&mut self, start: &BytesStart<'_>) -> Result<String, DocumentError> {
        let mut text = String::new();
        let mut paragraphs = 0u32;
        loop {
            if text.len() as u64 > self.string_bytes {
                return Err(DocumentError::TooLarge(Excess::String));
            }
            match self.next()? {
                Event::Text(t) => text.push_str(&t.xml10_content()),
                Event::CData(t) => text.push_str(&t.xml10_content()),
                Event::GeneralRef(entity) => {
                    if let Some(known) = resolve_xml_entity(&entity) {
                        text.push_str(known);
                    } else if let Ok(Some(c)) = entity.resolve_char_ref() {
                        text.push(c);
                    }
                }
                Event::Start(e) => match e.name().as_ref() {
                    "office:annotation" => self.skip(&e)?,
                    "text:p" | "text:h" => {
                        text.extend((paragraphs > 0).then_some('\n'));
                        paragraphs += 1;
                    }
                    "text:s" => {
                        let spaces = u64::from(count(&e, "text:c")).min(self.string_bytes);
                        text.extend(std::iter::repeat_n(' ', spaces as usize));
                    }
                    "text:tab" => text.push('\t'),
                    "text:line-break" => text.push('\n'),
                    _ => {}
                },
                Event::End(e) if e.name() == start.name() => return Ok(text),
                Event::Eof => return Err(DocumentError::Damaged),
                _ => {}
            }
        }
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = element.attributes().flatten().find(|a| a.key.as_ref() == name)?;
    attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(|v| v.into_owned())
}

/// A count that is 1 where it is not given or makes no sense.
fn count(element: &BytesStart<'_>, name: &str) -> u32 {
    attribute(element, name).and_then(|v| v.parse().ok()).filter(|n| *n > 0).unwrap_or(1)
}
