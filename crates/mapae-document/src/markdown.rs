//! Markdown (CommonMark with the tables of GitHub) to its text, headings and tables.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::error::DocumentError;
use crate::flow::{Flow, Place, TableInfo};

pub(crate) fn read(text: &str, flow: &mut Flow) -> Result<(), DocumentError> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let mut line = String::new();
    let (mut heading, mut hidden) = (None, 0u32);
    for event in Parser::new_ext(text, options) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => heading = Some(level as u8),
            Event::Start(Tag::Table(_)) => flow.open_table(),
            Event::Start(Tag::TableHead | Tag::TableRow) => flow.open_row(),
            Event::Start(Tag::TableCell) => flow.open_cell()?,
            Event::Start(Tag::MetadataBlock(_)) => hidden += 1,
            // A list inside of an item begins a line of its own.
            Event::Start(Tag::List(_) | Tag::Item) => flush(&mut line, flow)?,
            Event::End(TagEnd::MetadataBlock(_)) => hidden -= 1,
            Event::End(TagEnd::Heading(_)) => {
                flow.heading(heading.take().unwrap_or(1), &line)?;
                line.clear();
            }
            Event::End(TagEnd::TableCell) => {
                flush(&mut line, flow)?;
                flow.close_cell(Place::Next { rowspan: 1, colspan: 1 });
            }
            Event::End(TagEnd::Table) => flow.close_table(TableInfo { title: None, header_rows: Some(1) })?,
            Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::CodeBlock | TagEnd::HtmlBlock) => {
                flush(&mut line, flow)?;
            }
            Event::Text(text) | Event::Code(text) if hidden == 0 => line.push_str(&text),
            Event::SoftBreak => line.push(' '),
            Event::HardBreak => line.push('\n'),
            // Markup within text shows nothing of itself.
            _ => {}
        }
    }
    flush(&mut line, flow)
}

fn flush(line: &mut String, flow: &mut Flow) -> Result<(), DocumentError> {
    flow.paragraph(line)?;
    line.clear();
    Ok(())
}
