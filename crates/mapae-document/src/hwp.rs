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
use crate::flow::number::{Level, Numbers, numbered};
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
    let (heads, numbers) = Records::parse(&shapes).map(|r| (heads(&r), lists(&r))).unwrap_or_default();
    let mut body = Body { heads, numbers, outline: 0, flow, spare: Vec::new() };
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

/// What a shape of paragraph sets before it, and on which level from 0.
#[derive(Clone, Copy)]
enum Head {
    None,
    /// A number of the section's outline: the paragraph is a heading.
    Outline(u8),
    /// A number of a list.
    Number(u32, u8),
}

fn heads(records: &Records<'_>) -> Vec<Head> {
    let shapes = records.all().filter(|record| record.tag() == tag::PARA_SHAPE);
    let head = |shape: Record<'_, '_>| {
        let properties = shape.double_word(0).unwrap_or(0);
        let level = (properties >> 25 & 7) as u8;
        match properties >> 23 & 3 {
            1 => Head::Outline(level),
            2 => Head::Number(shape.word(30).unwrap_or(0).into(), level),
            _ => Head::None,
        }
    };
    shapes.map(head).collect()
}

/// Levels that every list has.
const LEVELS: usize = 7;

/// How lists are numbered, counted from 1. For each level there are twelve bytes, whose bits 5 to 8 are the form, and a
/// template; then come where the list and where each level starts.
fn lists(records: &Records<'_>) -> Numbers {
    let mut numbers = Numbers::default();
    for (list, id) in records.all().filter(|record| record.tag() == tag::NUMBERING).zip(1..) {
        let (mut at, mut levels) = (0, Vec::new());
        for _ in 0..LEVELS {
            let (Some(properties), Some(length)) = (list.double_word(at), list.word(at + 12)) else { break };
            levels.push(Level { start: 1, form: properties >> 5 & 0xf, template: list.text(at + 12) });
            at += 14 + 2 * usize::from(length);
        }
        for (level, number) in levels.iter_mut().zip(0..) {
            level.start = list.double_word(at + 2 + 4 * number).unwrap_or(1);
        }
        numbers.define(id, levels);
    }
    numbers
}

struct Body<'f> {
    heads: Vec<Head>,
    numbers: Numbers,
    /// The list that numbers the section's headings.
    outline: u32,
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
        match self.heads.get(usize::from(shape)).copied().unwrap_or(Head::None) {
            Head::Outline(level) => {
                let number = self.numbers.next(self.outline, level.into());
                self.flow.heading(level + 1, &numbered(number, &line))?;
            }
            Head::Number(list, level) => {
                let number = self.numbers.next(list, level.into());
                self.flow.paragraph(&numbered(number, &line))?;
            }
            Head::None => self.flow.paragraph(&line)?,
        }
        after.into_iter().try_for_each(|control| self.control(control))
    }

    fn control(&mut self, control: Record<'_, '_>) -> Result<(), DocumentError> {
        match control.id() {
            b"tbl " => self.table(control),
            b"secd" => {
                self.outline = control.word(18).unwrap_or(0).into();
                self.all(control.children())
            }
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
