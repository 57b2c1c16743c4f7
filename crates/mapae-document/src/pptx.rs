//! PPTX (ECMA-376, PresentationML): a ZIP of XML parts, one for each slide. A slide is a page.

use std::collections::HashMap;

use crate::archive::Package;
use crate::document::Page;
use crate::error::{DocumentError, Excess};
use crate::flow::{Flow, Place, TableInfo};
use crate::limits::Limits;
use crate::xml::{Element, Tree, text_of};

/// English Metric Units in a point.
const POINT: f64 = 12_700.0;

/// Tells the slides in the order they are shown, their notes after each, and gives them as pages.
pub(crate) fn read(data: &[u8], limits: &Limits, flow: &mut Flow) -> Result<Vec<Page>, DocumentError> {
    let mut package = Package::open(data, limits)?;
    let presentation = package.part("ppt/presentation.xml").map(text_of).unwrap_or_default();
    let presentation = Tree::parse(&presentation)?;
    let order = relations(&mut package, "ppt/presentation.xml")?;
    let root = presentation.root();
    let list = root.and_then(|root| root.child("sldIdLst"));
    let listed = list.into_iter().flat_map(|list| list.elements());
    let mut slides: Vec<String> =
        listed.filter_map(|slide| order.get(&relation_id(&slide)?).map(|(_, part)| part.clone())).collect();
    if slides.is_empty() {
        slides = package.numbered("ppt/slides/slide", ".xml");
    }
    if slides.is_empty() {
        return Err(DocumentError::Damaged);
    }
    if slides.len() as u64 > u64::from(limits.pages) {
        return Err(DocumentError::TooLarge(Excess::Pages));
    }
    let size = root.and_then(|root| root.child("sldSz"));
    let points = |name| size.and_then(|size| size.number(name)).map_or(0.0, |emu| f64::from(emu) / POINT);
    let (width, height) = (points("cx"), points("cy"));
    let mut pages = Vec::new();
    for (slide, number) in slides.into_iter().zip(1u32..) {
        flow.page(number);
        let from = flow.bytes();
        if let Some(xml) = package.part(&slide).map(text_of) {
            told(&xml, flow)?;
        }
        let related = relations(&mut package, &slide)?;
        for (kind, part) in related.into_values() {
            // Diagrams keep the text of their drawing beside the slide.
            if (kind.ends_with("/notesSlide") || kind.ends_with("/diagramDrawing"))
                && let Some(xml) = package.part(&part).map(text_of)
            {
                told(&xml, flow)?;
            }
        }
        let text = flow.text_from(from).trim_end().to_owned();
        pages.push(Page { number, width, height, rotation: 0, text, ocr: false });
    }
    Ok(pages)
}

fn told(xml: &str, flow: &mut Flow) -> Result<(), DocumentError> {
    let tree = Tree::parse(xml)?;
    if tree.broken() {
        flow.warn("part-broken", "A part of the document breaks off; what comes before the break was read.");
    }
    tree.root().map_or(Ok(()), |root| shapes(&root, flow))
}

/// The attribute that names a relation; a slide has another one of that name without a prefix.
fn relation_id(element: &Element<'_, '_>) -> Option<String> {
    element.attribute("r:id").or_else(|| element.attribute("id"))
}

/// The relations of a part by their id: what kind, and which part.
fn relations(
    package: &mut Package<'_>,
    part: &str,
) -> Result<HashMap<String, (String, String)>, DocumentError> {
    let (folder, name) = part.rsplit_once('/').unwrap_or(("", part));
    let xml = package.part(&format!("{folder}/_rels/{name}.rels")).map(text_of).unwrap_or_default();
    let tree = Tree::parse(&xml)?;
    let all = tree.root().into_iter().flat_map(|root| root.elements());
    let inside = all.filter(|relation| relation.attribute("TargetMode").as_deref() != Some("External"));
    let read = |relation: Element<'_, '_>| {
        let target = resolved(folder, &relation.attribute("Target")?);
        Some((relation.attribute("Id")?, (relation.attribute("Type")?, target)))
    };
    Ok(inside.filter_map(read).collect())
}

/// A part named from a folder.
fn resolved(folder: &str, target: &str) -> String {
    let mut path: Vec<&str> = Vec::new();
    let whole = target.strip_prefix('/').map_or_else(|| format!("{folder}/{target}"), str::to_owned);
    for step in whole.split('/') {
        match step {
            ".." => drop(path.pop()),
            "." | "" => {}
            step => path.push(step),
        }
    }
    path.join("/")
}

/// The shapes of a slide in their order.
fn shapes(parent: &Element<'_, '_>, flow: &mut Flow) -> Result<(), DocumentError> {
    for element in parent.elements() {
        match element.name() {
            "sp" => {
                let holder = element.descendant("ph").and_then(|ph| ph.attribute("type"));
                // Numbers, dates and footers repeat themselves on every slide.
                if matches!(holder.as_deref(), Some("sldNum" | "dt" | "ftr" | "sldImg")) {
                    continue;
                }
                let title = matches!(holder.as_deref(), Some("title" | "ctrTitle"));
                if let Some(body) = element.child("txBody") {
                    paragraphs(&body, title, flow)?;
                }
            }
            "tbl" => table(&element, flow)?,
            // Of an alternative the first choice stands for all.
            "AlternateContent" => {
                if let Some(choice) = element.elements().next() {
                    shapes(&choice, flow)?;
                }
            }
            _ => shapes(&element, flow)?,
        }
    }
    Ok(())
}

fn paragraphs(body: &Element<'_, '_>, title: bool, flow: &mut Flow) -> Result<(), DocumentError> {
    for p in body.elements().filter(|element| element.name() == "p") {
        let mut text = String::new();
        for run in p.elements() {
            match run.name() {
                "br" => text.push('\n'),
                "pPr" | "endParaRPr" => {}
                _ => text.push_str(
                    &run.descendants().filter(|e| e.name() == "t").map(|t| t.text()).collect::<String>(),
                ),
            }
        }
        if title { flow.heading(1, &text)? } else { flow.paragraph(&text)? }
    }
    Ok(())
}

fn table(table: &Element<'_, '_>, flow: &mut Flow) -> Result<(), DocumentError> {
    let named = |element: Element<'_, '_>, name: &str| element.name() == name;
    let first_row = table.child("tblPr").and_then(|p| p.attribute("firstRow")).is_some_and(|v| v == "1");
    flow.open_table();
    for row in table.elements().filter(|e| named(*e, "tr")) {
        flow.open_row();
        for cell in row.elements().filter(|e| named(*e, "tc")) {
            let covered = |name| cell.attribute(name).is_some_and(|v| v == "1" || v == "true");
            // Places under a merged cell are written down, too; the merged cell has taken them.
            if covered("hMerge") || covered("vMerge") {
                continue;
            }
            flow.open_cell()?;
            if let Some(body) = cell.child("txBody") {
                paragraphs(&body, false, flow)?;
            }
            let span = |name| cell.number(name).unwrap_or(1);
            flow.close_cell(Place::Next { rowspan: span("rowSpan"), colspan: span("gridSpan") });
        }
    }
    flow.close_table(TableInfo { title: None, header_rows: first_row.then_some(1) })
}
