//! HWP 5: a compound file of streams, a stream of records for each section of the body.
//!
//! Sources: Hancom's published description of the format ("한글 문서 파일 형식 5.0" and "배포용 문서").
//!
//! - `container`: the streams, unpacked, and out of the wrapping of a distribution document
//! - `password`: streams that one protects
//! - `record`: a stream of records to a tree
//! - `text`: the characters of a paragraph and what is anchored in them
//! - here: the tree of a section to paragraphs, headings, tables

mod container;
mod password;
mod record;
mod text;

use crate::error::DocumentError;
use crate::flow::{Flow, Place, TableInfo};
use crate::limits::Limits;
use container::Container;
use record::{Record, Records, tag};

/// What HWP 3 and older files begin with.
pub(crate) const MAGIC_3: &[u8] = b"HWP Document File V";
/// What the header stream of HWP 5 begins with.
pub(crate) const MAGIC_5: &[u8] = b"HWP Document File";

pub(crate) fn read(
    data: &[u8],
    password: Option<&str>,
    limits: &Limits,
    flow: &mut Flow,
) -> Result<(), DocumentError> {
    let mut container = Container::open(data, password, limits)?;
    // A file without what its shapes are called still has its text.
    let shapes = container.stream("/DocInfo").unwrap_or_default();
    let levels = Records::parse(&shapes).map(|records| levels(&records)).unwrap_or_default();
    let mut body = Body { levels, flow, spare: Vec::new() };
    let sections = container.sections();
    if sections.is_empty() {
        return Err(DocumentError::Damaged);
    }
    for section in sections {
        let bytes = container.section(&section)?;
        let records = Records::parse(&bytes)?;
        if container.cut() || records.broken() {
            body.flow.warn(
                "part-broken",
                "A part of the document breaks off; what comes before the break was read.",
            );
        }
        body.all(records.top())?;
    }
    // Pictures and lines describe themselves, bookmarks have names: of use where there is nothing else.
    if body.flow.is_empty() {
        let spare = std::mem::take(&mut body.spare);
        spare.iter().try_for_each(|text| body.flow.paragraph(text))?;
    }
    Ok(())
}

/// The level of the heading that a shape of paragraph makes, 0 for none: those numbered as an outline.
fn levels(records: &Records<'_>) -> Vec<u8> {
    let shapes = records.all().filter(|record| record.tag() == tag::PARA_SHAPE);
    let level = |shape: Record<'_, '_>| {
        let properties = shape.double_word(0).unwrap_or(0);
        if properties >> 23 & 3 == 1 { (properties >> 25 & 7) as u8 + 1 } else { 0 }
    };
    shapes.map(level).collect()
}

struct Body<'f> {
    levels: Vec<u8>,
    flow: &'f mut Flow,
    /// Descriptions of objects and names of bookmarks.
    spare: Vec<String>,
}

/// More descriptions than this are not kept.
const SPARE_MAX: usize = 1000;

impl Body<'_> {
    /// Records side by side: paragraphs in order, and what is inside of other records.
    fn all<'r>(&mut self, records: impl Iterator<Item = Record<'r, 'r>>) -> Result<(), DocumentError> {
        for record in records {
            match record.tag() {
                tag::PARA_HEADER => self.paragraph(record)?,
                tag::CTRL_HEADER => self.control(record)?,
                tag::EQUATION => {
                    // Properties, then the length of the script, then the script.
                    let script = record.text(4);
                    self.flow.paragraph(&script)?;
                }
                _ => self.all(record.children())?,
            }
        }
        Ok(())
    }

    fn paragraph(&mut self, paragraph: Record<'_, '_>) -> Result<(), DocumentError> {
        let mut controls = paragraph.children().filter(|child| child.tag() == tag::CTRL_HEADER);
        let characters = paragraph.children().find(|child| child.tag() == tag::PARA_TEXT);
        let mut line = String::new();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for piece in characters.into_iter().flat_map(|record| text::pieces(record.data())) {
            match piece {
                text::Piece::Text(text) => line.push_str(&text),
                text::Piece::Control => {
                    let Some(control) = controls.next() else { continue };
                    match text::inline(&control) {
                        Some(text) => line.push_str(&text),
                        None if line.trim().is_empty() => before.push(control),
                        None => after.push(control),
                    }
                }
            }
        }
        // Controls that no character stands for.
        after.extend(controls);
        before.into_iter().try_for_each(|control| self.control(control))?;
        let shape = paragraph.word(8).unwrap_or(0);
        match self.levels.get(usize::from(shape)) {
            Some(level) if *level > 0 => self.flow.heading(*level, &line)?,
            _ => self.flow.paragraph(&line)?,
        }
        after.into_iter().try_for_each(|control| self.control(control))
    }

    fn control(&mut self, control: Record<'_, '_>) -> Result<(), DocumentError> {
        match control.id() {
            b"tbl " => self.table(control),
            // What somebody hid from those who read the document.
            b"tcmt" => Ok(()),
            b"bokm" => {
                let name = control.children().find(|child| child.tag() == tag::CTRL_DATA);
                // A set of parameters with one: its number, its kind, its length, its text.
                self.keep(name.map(|record| record.text(10)).unwrap_or_default());
                Ok(())
            }
            b"gso " => {
                self.keep(control.text(44));
                self.all(control.children())
            }
            _ => self.all(control.children()),
        }
    }

    fn keep(&mut self, text: String) {
        if !text.trim().is_empty() && self.spare.len() < SPARE_MAX {
            self.spare.push(text);
        }
    }

    /// A caption, the table's own record, then for each cell its head and its paragraphs, side by side.
    fn table(&mut self, control: Record<'_, '_>) -> Result<(), DocumentError> {
        let Some(own) = control.children().position(|child| child.tag() == tag::TABLE) else {
            return self.all(control.children());
        };
        let from = self.flow.bytes();
        self.all(control.children().take(own))?;
        let caption = self.flow.text_from(from).trim().replace('\n', " ");
        let info = TableInfo { title: Some(caption), header_rows: None };
        self.flow.open_table();
        let mut open: Option<Place> = None;
        for record in control.children().skip(own + 1) {
            if record.tag() == tag::LIST_HEADER {
                if let Some(place) = open.take() {
                    self.flow.close_cell(place);
                }
                self.flow.open_cell()?;
                open = Some(place(&record));
            }
            match record.tag() {
                tag::LIST_HEADER => self.all(record.children())?,
                _ => self.all(std::iter::once(record))?,
            }
        }
        if let Some(place) = open {
            self.flow.close_cell(place);
        }
        self.flow.close_table(info)
    }
}

/// Where the cell that a list header begins stands: after the number of its paragraphs and its properties.
fn place(list: &Record<'_, '_>) -> Place {
    let word = |at| list.word(at).map(u32::from);
    match (word(8), word(10), word(12), word(14)) {
        (Some(col), Some(row), Some(colspan), Some(rowspan)) => {
            Place::At { row, col, rowspan: rowspan.max(1), colspan: colspan.max(1) }
        }
        _ => Place::Next { rowspan: 1, colspan: 1 },
    }
}
