//! HWPX (OWPML, KS X 6101): a ZIP of XML parts, a part for each section.
//!
//! The sections alone are needed. A manifest is read for encryption only, and a header part for which paragraphs
//! are headings; a package without either still has its text.

use std::collections::HashMap;

use crate::archive::Package;
use crate::decrypt::odf::Encryption;
use crate::error::DocumentError;
use crate::flow::number::{self, Level, Numbers, numbered};
use crate::flow::{Flow, Place, TableInfo};
use crate::limits::Limits;
use crate::xml::{Child, Element, Tree, text_of};

pub(crate) fn read(
    data: &[u8],
    password: Option<&str>,
    limits: &Limits,
    flow: &mut Flow,
) -> Result<(), DocumentError> {
    let mut package = Package::open(data, limits)?;
    let manifest = package.part("META-INF/manifest.xml").map(text_of).unwrap_or_default();
    let encryption = Encryption::of(&manifest)?;
    let part = |package: &mut Package<'_>, name: &str| -> Result<Option<String>, DocumentError> {
        let Some(bytes) = package.part(name) else { return Ok(None) };
        let bytes = match &encryption {
            Some(encryption) => encryption.open(name, bytes, password, limits.part_bytes)?,
            None => bytes,
        };
        Ok(Some(text_of(bytes)))
    };
    let mut sections = package.numbered("contents/section", ".xml");
    if sections.is_empty() {
        // Written by something else, in a folder of its own choice.
        let is_section =
            |name: &String| name.to_ascii_lowercase().contains("section") && name.ends_with(".xml");
        sections = package.names().into_iter().filter(is_section).collect();
    }
    let header = part(&mut package, "Contents/header.xml")?.unwrap_or_default();
    let (shapes, mut numbers) =
        Tree::parse(&header).map(|tree| (shapes(&tree), lists(&tree))).unwrap_or_default();
    let mut read = 0;
    for name in sections {
        let Some(xml) = part(&mut package, &name)? else { continue };
        let tree = Tree::parse(&xml)?;
        let Some(root) = tree.root() else { continue };
        read += 1;
        if tree.broken() {
            flow.warn(
                "part-broken",
                "A part of the document breaks off; what comes before the break was read.",
            );
        }
        let outline = root.descendant("secPr").and_then(|section| section.number("outlineShapeIDRef"));
        let numbers = &mut numbers;
        Section { shapes: &shapes, numbers, outline: outline.unwrap_or(0), flow }.paragraphs(&root)?;
    }
    if read == 0 { Err(DocumentError::Damaged) } else { Ok(()) }
}

/// What a shape of paragraph sets before it.
#[derive(Clone, Copy)]
enum Head {
    /// A number of the section's outline: the paragraph is a heading.
    Outline { level: u8 },
    /// A number of a list.
    Number { list: u32, level: u8 },
}

/// The shapes of paragraphs that have a number.
fn shapes(header: &Tree<'_>) -> HashMap<String, Head> {
    let shapes = header.root().into_iter().flat_map(|root| root.descendants());
    let of_shape = |shape: Element<'_, '_>| {
        let heading = shape.descendant("heading")?;
        let level = heading.number("level").unwrap_or(0).min(8) as u8;
        let head = match heading.attribute("type")?.as_str() {
            "OUTLINE" => Head::Outline { level },
            "NUMBER" => Head::Number { list: heading.number("idRef")?, level },
            _ => return None,
        };
        Some((shape.attribute("id")?, head))
    };
    shapes.filter(|element| element.name() == "paraPr").filter_map(of_shape).collect()
}

/// How lists are numbered.
fn lists(header: &Tree<'_>) -> Numbers {
    let mut numbers = Numbers::default();
    let all = header.root().into_iter().flat_map(|root| root.descendants());
    for list in all.filter(|element| element.name() == "numbering") {
        let levels = list.elements().filter(|element| element.name() == "paraHead");
        let level = |head: Element<'_, '_>| Level {
            start: head.number("start").unwrap_or(1),
            form: number::form(&head.attribute("numFormat").unwrap_or_default()),
            template: head.text(),
        };
        if let Some(id) = list.number("id") {
            numbers.define(id, levels.map(level).collect());
        }
    }
    numbers
}

struct Section<'f> {
    shapes: &'f HashMap<String, Head>,
    numbers: &'f mut Numbers,
    /// The list that numbers the section's headings.
    outline: u32,
    flow: &'f mut Flow,
}

/// A paragraph while it is read.
#[derive(Default)]
struct Paragraph<'t, 'x> {
    text: String,
    /// Drawn and set objects anchored before any of its text, and after.
    before: Vec<Element<'t, 'x>>,
    after: Vec<Element<'t, 'x>>,
    /// Inside of what was deleted with changes tracked.
    deleted: u32,
}

impl Section<'_> {
    /// The paragraphs right inside of an element, in order.
    fn paragraphs(&mut self, parent: &Element<'_, '_>) -> Result<(), DocumentError> {
        parent.elements().filter(|element| element.name() == "p").try_for_each(|p| self.paragraph(&p))
    }

    fn paragraph(&mut self, p: &Element<'_, '_>) -> Result<(), DocumentError> {
        let mut paragraph = Paragraph::default();
        for run in p.elements().filter(|element| element.name() == "run") {
            run.elements().for_each(|element| paragraph.take(element));
        }
        for object in &paragraph.before {
            self.object(object)?;
        }
        let text = &paragraph.text;
        match p.attribute("paraPrIDRef").and_then(|id| self.shapes.get(&id).copied()) {
            Some(Head::Outline { level }) => {
                let number = self.numbers.next(self.outline, level.into());
                self.flow.heading(level + 1, &numbered(number, text))?;
            }
            Some(Head::Number { list, level }) => {
                let number = self.numbers.next(list, level.into());
                self.flow.paragraph(&numbered(number, text))?;
            }
            None => self.flow.paragraph(text)?,
        }
        paragraph.after.iter().try_for_each(|object| self.object(object))
    }

    /// What is anchored in a paragraph: a table, a header, a note, a shape with text.
    fn object(&mut self, object: &Element<'_, '_>) -> Result<(), DocumentError> {
        match object.name() {
            "tbl" => self.table(object),
            "subList" | "drawText" => self.paragraphs_within(object),
            "caption" | "header" | "footer" | "footNote" | "endNote" => self.paragraphs_within(object),
            "equation" => {
                let script = object.child("script").map(|script| script.text()).unwrap_or_default();
                self.flow.paragraph(&script)
            }
            "textart" => self.flow.paragraph(&object.attribute("text").unwrap_or_default()),
            // A group of shapes, or a shape.
            _ => object.elements().filter(|e| is_object(e.name())).try_for_each(|inner| self.object(&inner)),
        }
    }

    /// The paragraphs of a list, which may stand one element deeper.
    fn paragraphs_within(&mut self, parent: &Element<'_, '_>) -> Result<(), DocumentError> {
        for element in parent.elements() {
            match element.name() {
                "p" => self.paragraph(&element)?,
                "subList" => self.paragraphs(&element)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &Element<'_, '_>) -> Result<(), DocumentError> {
        let mut info = TableInfo::default();
        if let Some(caption) = table.child("caption") {
            let from = self.flow.bytes();
            self.paragraphs_within(&caption)?;
            info.title = Some(self.flow.text_from(from).trim().replace('\n', " "));
        }
        self.flow.open_table();
        let (mut headed, mut rows_headed) = (0, true);
        for row in table.elements().filter(|element| element.name() == "tr") {
            self.flow.open_row();
            let mut all = true;
            for cell in row.elements().filter(|element| element.name() == "tc") {
                self.flow.open_cell()?;
                self.paragraphs_within(&cell)?;
                all &= cell.attribute("header").as_deref() == Some("1");
                self.flow.close_cell(place(&cell));
            }
            rows_headed &= all;
            headed += u32::from(rows_headed);
        }
        info.header_rows = (headed > 0).then_some(headed);
        self.flow.close_table(info)
    }
}

fn place(cell: &Element<'_, '_>) -> Place {
    let of = |element: &str, attribute: &str| cell.child(element).and_then(|e| e.number(attribute));
    let (rowspan, colspan) =
        (of("cellSpan", "rowSpan").unwrap_or(1).max(1), of("cellSpan", "colSpan").unwrap_or(1).max(1));
    match (of("cellAddr", "rowAddr"), of("cellAddr", "colAddr")) {
        (Some(row), Some(col)) => Place::At { row, col, rowspan, colspan },
        _ => Place::Next { rowspan, colspan },
    }
}

/// What may hold text and is set or drawn as a whole.
fn is_object(name: &str) -> bool {
    matches!(
        name,
        "tbl"
            | "drawText"
            | "caption"
            | "container"
            | "rect"
            | "ellipse"
            | "arc"
            | "polygon"
            | "curve"
            | "line"
            | "connectLine"
            | "pic"
            | "ole"
            | "chart"
            | "video"
            | "textart"
            | "equation"
    )
}

impl<'t, 'x> Paragraph<'t, 'x> {
    /// A part of a run.
    fn take(&mut self, element: Element<'t, 'x>) {
        match element.name() {
            "t" => self.characters(&element),
            "ctrl" => {
                let anchored = ["header", "footer", "footNote", "endNote"];
                let inside = element.elements().filter(|e| anchored.contains(&e.name()));
                inside.for_each(|inner| self.anchor(inner));
            }
            "dutmal" => {
                for part in ["mainText", "subText"] {
                    let text = element.child(part).map(|e| e.text()).unwrap_or_default();
                    self.push(if part == "mainText" { "" } else { " " });
                    self.push(&text);
                }
            }
            "compose" => self.push(&element.attribute("composeText").unwrap_or_default()),
            name if is_object(name) => self.anchor(element),
            _ => {}
        }
    }

    fn anchor(&mut self, object: Element<'t, 'x>) {
        if self.text.trim().is_empty() { self.before.push(object) } else { self.after.push(object) }
    }

    fn push(&mut self, text: &str) {
        if self.deleted == 0 {
            self.text.push_str(text);
        }
    }

    fn characters(&mut self, t: &Element<'t, 'x>) {
        for child in t.children() {
            match child {
                Child::Text(text) => self.push(text),
                Child::Element(element) => match element.name() {
                    "tab" => self.push("\t"),
                    "lineBreak" => self.push("\n"),
                    "nbSpace" | "fwSpace" => self.push(" "),
                    "hyphen" => self.push("-"),
                    "deleteBegin" => self.deleted += 1,
                    "deleteEnd" => self.deleted = self.deleted.saturating_sub(1),
                    // Marks around text may hold it.
                    _ => self.characters(&element),
                },
            }
        }
    }
}
