//! DOCX (ECMA-376, WordprocessingML): a ZIP of XML parts, the body in one of them.
//!
//! Told in this order: headers, the body with each note after the paragraph that refers to it, footers. Text that
//! was deleted with changes tracked and instructions of fields are no text; what stands twice for old and new
//! programs is read once.

mod numbering;

use std::collections::HashMap;

use crate::archive::Package;
use crate::error::DocumentError;
use crate::flow::number::numbered;
use crate::flow::{Flow, Place, TableInfo};
use crate::limits::Limits;
use crate::xml::{Element, Tree, text_of};
use numbering::Lists;

pub(crate) fn read(data: &[u8], limits: &Limits, flow: &mut Flow) -> Result<(), DocumentError> {
    let mut package = Package::open(data, limits)?;
    let body = package.part("word/document.xml").or_else(|| {
        // Where the package says that its body is elsewhere.
        let name = package.names().into_iter().find(|n| n.to_ascii_lowercase().ends_with("/document.xml"))?;
        package.part(&name)
    });
    let body = text_of(body.ok_or(DocumentError::Damaged)?);
    let mut part = |name: &str| package.part(name).map(text_of).unwrap_or_default();
    let (styles, numbering) = (part("word/styles.xml"), part("word/numbering.xml"));
    let (footnotes, endnotes) = (part("word/footnotes.xml"), part("word/endnotes.xml"));
    let mut edges = |kind: &str| -> Vec<String> {
        let names = package.numbered(&format!("word/{kind}"), ".xml");
        names.iter().filter_map(|name| package.part(name)).map(text_of).collect()
    };
    let (headers, footers) = (edges("header"), edges("footer"));

    let (footnotes, endnotes) = (Tree::parse(&footnotes)?, Tree::parse(&endnotes)?);
    let styles = Tree::parse(&styles)?;
    let mut reader = Reader {
        flow,
        levels: levels(&styles),
        lists: Lists::of(&Tree::parse(&numbering)?, &styles),
        footnotes: notes(&footnotes),
        endnotes: notes(&endnotes),
    };
    for header in headers {
        reader.whole(&header)?;
    }
    let body = Tree::parse(&body)?;
    if body.broken() {
        reader
            .flow
            .warn("part-broken", "A part of the document breaks off; what comes before the break was read.");
    }
    let root = body.root().ok_or(DocumentError::Damaged)?;
    reader.blocks(&root)?;
    for footer in footers {
        reader.whole(&footer)?;
    }
    Ok(())
}

/// Which styles are headings, and of which level, by name or by their level in the outline.
fn levels(styles: &Tree<'_>) -> HashMap<String, u8> {
    let styles = styles.root().into_iter().flat_map(|root| root.elements());
    let of_style = |style: Element<'_, '_>| {
        let name = style.child("name")?.attribute("val")?.to_ascii_lowercase();
        let named = name.strip_prefix("heading ").and_then(|level| level.parse::<u8>().ok());
        let outlined = || Some(style.child("pPr")?.child("outlineLvl")?.number("val")?.min(9) as u8 + 1);
        let level = if name == "title" { Some(1) } else { named.or_else(outlined) };
        // Level 10 of the outline is body text.
        Some((style.attribute("styleId")?, level.filter(|level| (1..=9).contains(level))?))
    };
    styles.filter(|element| element.name() == "style").filter_map(of_style).collect()
}

type Notes<'t, 'x> = HashMap<String, Element<'t, 'x>>;

fn notes<'t, 'x>(tree: &'t Tree<'x>) -> Notes<'t, 'x> {
    let all = tree.root().into_iter().flat_map(|root| root.elements());
    // Lines that part notes from text have a type.
    let real = all.filter(|note| note.attribute("type").is_none_or(|kind| kind == "normal"));
    real.filter_map(|note| Some((note.attribute("id")?, note))).collect()
}

struct Reader<'f, 't, 'x> {
    flow: &'f mut Flow,
    levels: HashMap<String, u8>,
    lists: Lists,
    footnotes: Notes<'t, 'x>,
    endnotes: Notes<'t, 'x>,
}

/// A paragraph while it is read.
#[derive(Default)]
struct Paragraph<'t, 'x> {
    text: String,
    /// Text boxes anchored in it, and notes.
    boxes: Vec<Element<'t, 'x>>,
    notes: Vec<(bool, String)>,
}

impl<'t, 'x> Reader<'_, 't, 'x> {
    /// A part that holds nothing but blocks.
    fn whole(&mut self, xml: &str) -> Result<(), DocumentError> {
        let tree = Tree::parse(xml)?;
        tree.root().map_or(Ok(()), |root| self.blocks(&root))
    }

    fn blocks(&mut self, parent: &Element<'_, '_>) -> Result<(), DocumentError> {
        for element in parent.elements() {
            match element.name() {
                "p" => self.paragraph(&element)?,
                "tbl" => self.table(&element)?,
                // Of an alternative the first choice stands for all.
                "AlternateContent" => {
                    if let Some(choice) = element.elements().next() {
                        self.blocks(&choice)?;
                    }
                }
                "del" | "moveFrom" | "sectPr" | "pPr" | "tblPr" | "tcPr" => {}
                // The body, a control around content, an insertion.
                _ => self.blocks(&element)?,
            }
        }
        Ok(())
    }

    fn paragraph(&mut self, p: &Element<'_, '_>) -> Result<(), DocumentError> {
        let mut paragraph = Paragraph::default();
        paragraph.take(p);
        let properties = p.child("pPr");
        let outlined = properties.and_then(|p| p.child("outlineLvl")?.number("val")).map(|level| level + 1);
        let styled = properties.and_then(|p| self.levels.get(&p.child("pStyle")?.attribute("val")?).copied());
        let text = numbered(self.lists.next(properties), &paragraph.text);
        match outlined.map(|level| level.min(10) as u8).filter(|level| *level <= 9).or(styled) {
            Some(level) => self.flow.heading(level, &text)?,
            None => self.flow.paragraph(&text)?,
        }
        for inner in &paragraph.boxes {
            self.blocks(inner)?;
        }
        for (foot, id) in paragraph.notes {
            // Taken out, so that a note that refers to itself ends.
            let note = if foot { self.footnotes.remove(&id) } else { self.endnotes.remove(&id) };
            if let Some(note) = note {
                self.blocks(&note)?;
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &Element<'_, '_>) -> Result<(), DocumentError> {
        self.flow.open_table();
        let (mut headed, mut still) = (0, true);
        self.rows(table, &mut headed, &mut still)?;
        let caption = table.child("tblPr").and_then(|p| p.child("tblCaption")?.attribute("val"));
        self.flow.close_table(TableInfo { title: caption, header_rows: (headed > 0).then_some(headed) })
    }

    fn rows(
        &mut self,
        parent: &Element<'_, '_>,
        headed: &mut u32,
        still: &mut bool,
    ) -> Result<(), DocumentError> {
        for element in parent.elements() {
            match element.name() {
                "tr" => {
                    let properties = element.child("trPr");
                    *still &= properties.is_some_and(|p| p.child("tblHeader").is_some());
                    *headed += u32::from(*still);
                    self.flow.open_row();
                    // Columns that the row leaves out on the left.
                    let skipped = properties.and_then(|p| p.child("gridBefore")?.number("val"));
                    if let Some(skipped) = skipped.filter(|n| *n > 0) {
                        self.flow.open_cell()?;
                        self.flow.close_cell(Place::Next { rowspan: 1, colspan: skipped });
                    }
                    self.cells(&element)?;
                }
                // A control around rows, an insertion.
                "sdt" | "sdtContent" | "ins" | "customXml" => self.rows(&element, headed, still)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn cells(&mut self, parent: &Element<'_, '_>) -> Result<(), DocumentError> {
        for element in parent.elements() {
            match element.name() {
                "tc" => {
                    self.flow.open_cell()?;
                    self.blocks(&element)?;
                    let properties = element.child("tcPr");
                    let colspan = properties.and_then(|p| p.child("gridSpan")?.number("val")).unwrap_or(1);
                    // Without a value it goes on.
                    let merged = properties.and_then(|p| p.child("vMerge"));
                    let above = merged.is_some_and(|m| m.attribute("val").as_deref() != Some("restart"));
                    let place =
                        if above { Place::Above { colspan } } else { Place::Next { rowspan: 1, colspan } };
                    self.flow.close_cell(place);
                }
                "sdt" | "sdtContent" | "ins" | "customXml" => self.cells(&element)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'t, 'x> Paragraph<'t, 'x> {
    fn take(&mut self, parent: &Element<'t, 'x>) {
        for element in parent.elements() {
            match element.name() {
                "t" => self.text.push_str(&element.text()),
                "tab" | "ptab" => self.text.push('\t'),
                "br" | "cr" => self.text.push('\n'),
                "noBreakHyphen" => self.text.push('-'),
                "footnoteReference" => self.notes.extend(element.attribute("id").map(|id| (true, id))),
                "endnoteReference" => self.notes.extend(element.attribute("id").map(|id| (false, id))),
                "txbxContent" => self.boxes.push(element),
                "AlternateContent" => {
                    if let Some(choice) = element.elements().next() {
                        self.take(&choice);
                    }
                }
                "pPr" | "rPr" | "del" | "moveFrom" | "instrText" | "delText" => {}
                // A run, a link, a field, a drawing, a formula.
                _ => self.take(&element),
            }
        }
    }
}
