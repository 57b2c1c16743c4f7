//! How a document of Word numbers its lists: definitions, lists that use them, and styles that belong to a level.

use std::collections::HashMap;

use crate::flow::number::{self, Level, Numbers};
use crate::xml::{Element, Tree};

/// Lists that count for themselves stand beyond the definitions.
const OWN: u32 = 1 << 30;

/// The lists of a document.
#[derive(Default)]
pub(super) struct Lists {
    numbers: Numbers,
    /// By the id of a list, that of the counters it shares.
    counters: HashMap<String, u32>,
    /// By the id of a style, its list and level.
    styles: HashMap<String, (String, usize)>,
}

impl Lists {
    pub(super) fn of(numbering: &Tree<'_>, styles: &Tree<'_>) -> Self {
        let mut lists = Self::default();
        let all: Vec<Element<'_, '_>> =
            numbering.root().into_iter().flat_map(|root| root.elements()).collect();
        let mut definitions = HashMap::new();
        let mut levels_of_styles = HashMap::new();
        for definition in all.iter().filter(|element| element.name() == "abstractNum") {
            let Some(id) = definition.number("abstractNumId").filter(|id| *id < OWN) else { continue };
            for level in definition.elements().filter(|element| element.name() == "lvl") {
                let style = level.child("pStyle").and_then(|style| style.attribute("val"));
                levels_of_styles.extend(style.zip(level.number("ilvl")));
            }
            lists.numbers.define(id, levels(definition));
            definitions.insert(id, *definition);
        }
        for (list, own) in all.iter().filter(|element| element.name() == "num").zip(OWN..) {
            let Some(id) = list.attribute("numId") else { continue };
            let Some(definition) = list.child("abstractNumId").and_then(|a| a.number("val")) else {
                continue;
            };
            // One that starts anew counts for itself.
            let restarts = list.descendant("startOverride").is_some();
            if let (true, Some(definition)) = (restarts, definitions.get(&definition)) {
                lists.numbers.define(own, levels(definition));
                lists.counters.insert(id, own);
            } else {
                lists.counters.insert(id, definition);
            }
        }
        for style in styles.root().into_iter().flat_map(|root| root.elements()) {
            let (Some(id), Some(properties)) = (style.attribute("styleId"), style.child("pPr")) else {
                continue;
            };
            if let Some((list, level)) = named(&properties) {
                let level = level.or_else(|| levels_of_styles.get(&id).map(|level| *level as usize));
                lists.styles.insert(id, (list, level.unwrap_or(0)));
            }
        }
        lists
    }

    /// The number of the next paragraph with these properties.
    pub(super) fn next(&mut self, properties: Option<Element<'_, '_>>) -> Option<String> {
        let properties = properties?;
        let style = || properties.child("pStyle")?.attribute("val");
        let of_style = style().and_then(|style| self.styles.get(&style).cloned());
        let (list, level) = match (named(&properties), of_style) {
            (Some((list, level)), of_style) => {
                (list, level.or(of_style.map(|(_, level)| level)).unwrap_or(0))
            }
            (None, of_style) => of_style?,
        };
        self.numbers.next(*self.counters.get(&list)?, level)
    }
}

/// The list and level that properties name.
fn named(properties: &Element<'_, '_>) -> Option<(String, Option<usize>)> {
    let number = properties.child("numPr")?;
    let level = number.child("ilvl").and_then(|level| level.number("val")).map(|level| level as usize);
    Some((number.child("numId")?.attribute("val")?, level))
}

fn levels(definition: &Element<'_, '_>) -> Vec<Level> {
    let of = |level: &Element<'_, '_>, name: &str| level.child(name).and_then(|child| child.attribute("val"));
    let levels = definition.elements().filter(|element| element.name() == "lvl");
    let level = |level: Element<'_, '_>| {
        let format = of(&level, "numFmt").unwrap_or_default();
        // Marks of lists say nothing.
        let marks = matches!(format.as_str(), "bullet" | "none");
        let template = of(&level, "lvlText").filter(|_| !marks).unwrap_or_default().replace('%', "^");
        let start = of(&level, "start").and_then(|start| start.parse().ok()).unwrap_or(1);
        Level { start, form: form(&format), template }
    };
    levels.map(level).collect()
}

/// Forms by the names of ECMA-376, 17.18.59.
fn form(name: &str) -> u32 {
    number::form(match name {
        "upperRoman" => "ROMAN_CAPITAL",
        "lowerRoman" => "ROMAN_SMALL",
        "upperLetter" => "LATIN_CAPITAL",
        "lowerLetter" => "LATIN_SMALL",
        "decimalEnclosedCircle" => "CIRCLED_DIGIT",
        "ganada" => "HANGUL_SYLLABLE",
        "chosung" => "HANGUL_JAMO",
        "koreanDigital" | "koreanCounting" => "HANGUL_PHONETIC",
        "ideographDigital" | "chineseCounting" | "japaneseCounting" => "IDEOGRAPH",
        _ => "DIGIT",
    })
}
