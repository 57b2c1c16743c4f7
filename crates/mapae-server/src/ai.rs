//! What this program understands of texts by itself: the models of its folder, and how documents meet them.

mod process;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use mapae_ai::classify::builtin;
use mapae_ai::embed::Embedder;
use mapae_ai::encoder::Encoder;
use mapae_ai::models::Models;
use mapae_ai::pack::PackError;
use mapae_document::document::{Class, Document, Intent, Keyword, Warning};
use mapae_document::understand::Understand;

pub(crate) use process::{KIND, Process};

/// The code of the warning that a pack is not there.
const MISSING: &str = "models-missing";
/// Keywords of a document.
const KEYWORDS: usize = 15;

/// Texts understood without a network.
#[derive(Clone, Default)]
pub struct Local {
    /// From its pack, where that is there.
    encoder: Option<Arc<Encoder>>,
}

/// Where packs are looked for: beside the program, then where it was started.
pub(crate) fn folders() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("models")));
    beside.into_iter().chain([PathBuf::from("models")]).collect()
}

impl Local {
    /// With the packs that are there.
    ///
    /// # Errors
    /// [`PackError`] where one is there and broken: better not to start than to answer differently unseen.
    pub fn open() -> Result<Self, PackError> {
        let folders = folders();
        let Some(folder) = Models::find(&folders) else { return Ok(Self::default()) };
        Ok(Self { encoder: Models::open(folder)?.encoder })
    }

    /// What texts get their vectors from.
    pub(crate) fn embedder(&self) -> Option<&dyn Embedder> {
        self.encoder.as_deref().map(|encoder| encoder as &dyn Embedder)
    }
}

impl Understand for Local {
    fn class(&self, document: &Document) -> Class {
        let class = builtin::classify(&document.source.name, &document.text);
        Class {
            label: class.label,
            confidence: class.confidence,
            by: class.by.as_str().to_owned(),
            unsure: class.unsure,
            scores: class.scores,
        }
    }

    fn keywords(&self, document: &Document) -> Vec<Keyword> {
        let found = mapae_ai::keywords::keywords(&document.text, KEYWORDS);
        let places = characters(&document.text, found.iter().map(|keyword| &keyword.at));
        let keyword = |k: mapae_ai::keywords::Keyword| Keyword {
            at: places.get(&k.at.start).copied().zip(places.get(&k.at.end).copied()).map(|(a, b)| [a, b]),
            text: k.text,
            score: k.score,
        };
        found.into_iter().map(keyword).collect()
    }

    fn intents(&self, document: &Document) -> Vec<Intent> {
        let found = mapae_ai::intents::intents(&document.text, self.embedder());
        let places = characters(&document.text, found.iter().map(|intent| &intent.at));
        let intent = |i: mapae_ai::intents::Intent| Intent {
            name: i.name,
            utterances: i.utterances,
            answer: i.answer,
            origin: i.origin.as_str().to_owned(),
            page: page(document, i.at.start),
            quote: places.get(&i.at.start).copied().zip(places.get(&i.at.end).copied()).map(|(a, b)| [a, b]),
        };
        found.into_iter().map(intent).collect()
    }

    fn warnings(&self) -> Vec<Warning> {
        if self.encoder.is_some() {
            return Vec::new();
        }
        let message = "Intents that mean the same were found by their letters only: the pack of the encoder is not \
                       there. `mapae models list` says more.";
        vec![Warning { code: MISSING.to_owned(), page: None, message: message.to_owned() }]
    }
}

/// The ends of ranges of bytes as numbers of characters, which `document.json` counts in.
fn characters<'r>(text: &str, ranges: impl Iterator<Item = &'r Range<usize>>) -> HashMap<usize, u64> {
    let mut bytes: Vec<usize> = ranges.flat_map(|range| [range.start, range.end]).collect();
    bytes.sort_unstable();
    bytes.dedup();
    let mut places = HashMap::new();
    let (mut at, mut count) = (0, 0);
    for byte in bytes {
        count += text.get(at..byte).map_or(0, |part| part.chars().count() as u64);
        at = byte;
        places.insert(byte, count);
    }
    places
}

/// The page that a byte of the document's text is on. Pages with text follow each other with an empty line.
fn page(document: &Document, byte: usize) -> Option<u32> {
    let mut end = 0;
    for page in document.pages.iter().flatten().filter(|page| !page.text.is_empty()) {
        end += page.text.len() + if end == 0 { 0 } else { 2 };
        if byte < end {
            return Some(page.number);
        }
    }
    None
}
