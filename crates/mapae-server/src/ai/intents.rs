//! The intents of a document: those of its text, and those of its tables of questions and answers.

use std::collections::{BTreeMap, HashSet};

use mapae_ai::embed::Embedder;
use mapae_ai::intents::{self as found, INTENTS_MAX, Origin, table_pairs};
use mapae_document::document::{Document, Intent, Table};

use super::{characters, page};

/// Rows and columns of a table that are looked at.
const ROWS_MAX: u32 = 2_000;
const COLUMNS_MAX: u32 = 50;

pub(super) fn intents(document: &Document, embedder: Option<&dyn Embedder>) -> Vec<Intent> {
    let (listed, spans) = of_tables(document);
    let asked: HashSet<String> = listed.iter().flat_map(|intent| &intent.utterances).map(bare).collect();
    let mut all = of_text(document, embedder);
    // A row of such a table may look like a question or a heading with text under it.
    all.retain(|intent| {
        let within = |quote: [u64; 2]| spans.iter().any(|span| quote[0] < span[1] && span[0] < quote[1]);
        !intent.utterances.iter().any(|said| asked.contains(&bare(said))) && !intent.quote.is_some_and(within)
    });
    all.extend(listed);
    // Where a quote is not known, the page says where it stands.
    all.sort_by_key(|intent| (intent.page, intent.quote.map(|quote| quote[0])));
    all.truncate(INTENTS_MAX);
    all
}

/// With those that a provider made: they take the place of headings in fixed forms. One whose answer the document asks
/// for itself only adds ways to ask.
pub(super) fn joined(mut own: Vec<Intent>, made: Vec<Intent>) -> Vec<Intent> {
    own.retain(|intent| intent.origin != Origin::Template.as_str());
    let asks = own.len();
    let mut asked: HashSet<String> = own.iter().flat_map(|intent| &intent.utterances).map(bare).collect();
    for mut intent in made {
        intent.utterances.retain(|said| asked.insert(bare(said)));
        let overlaps = |known: &&mut Intent| {
            known.quote.zip(intent.quote).is_some_and(|(a, b)| a[0] < b[1] && b[0] < a[1])
        };
        match own[..asks].iter_mut().find(overlaps) {
            Some(known) => known.utterances.append(&mut intent.utterances),
            None if intent.utterances.is_empty() => {}
            None => own.push(intent),
        }
    }
    own.sort_by_key(|intent| (intent.page, intent.quote.map(|quote| quote[0])));
    own.truncate(INTENTS_MAX);
    own
}

fn of_text(document: &Document, embedder: Option<&dyn Embedder>) -> Vec<Intent> {
    let found = found::intents(&document.text, embedder);
    let places = characters(&document.text, found.iter().map(|intent| &intent.at));
    let intent = |i: found::Intent| Intent {
        name: i.name,
        utterances: i.utterances,
        answer: i.answer,
        origin: i.origin.as_str().to_owned(),
        page: page(document, i.at.start),
        quote: places.get(&i.at.start).copied().zip(places.get(&i.at.end).copied()).map(|(a, b)| [a, b]),
    };
    found.into_iter().map(intent).collect()
}

/// The pairs of all tables that are lists of them, and where in the text those tables stand.
fn of_tables(document: &Document) -> (Vec<Intent>, Vec<[u64; 2]>) {
    let (mut all, mut spans, mut asked) = (Vec::new(), Vec::new(), HashSet::new());
    for table in document.tables.iter().flatten() {
        let rows = rows(table);
        let pairs = table_pairs(&rows);
        if pairs.is_empty() {
            continue;
        }
        spans.extend(table.at);
        for (question, answer, _) in pairs {
            let question = question.split_whitespace().collect::<Vec<_>>().join(" ");
            if all.len() < INTENTS_MAX && asked.insert(bare(&question)) {
                all.push(Intent {
                    name: question.trim_end_matches(['?', '？', ' ']).to_owned(),
                    answer: answer.to_owned(),
                    origin: Origin::Extractive.as_str().to_owned(),
                    page: table.page,
                    quote: None,
                    utterances: vec![question],
                });
            }
        }
    }
    quote(document, &mut all);
    (all, spans)
}

/// Where the answers stand in the text, for those that stand there in one piece; each is looked for behind the one
/// before, then from the beginning.
fn quote(document: &Document, intents: &mut [Intent]) {
    let text = &document.text;
    let mut from = 0;
    let ranges: Vec<_> = intents
        .iter()
        .map(|intent| {
            let behind = text[from..].find(&intent.answer).map(|at| from + at);
            let start = behind.or_else(|| text[..from].find(&intent.answer))?;
            from = start + intent.answer.len();
            Some(start..from)
        })
        .collect();
    let places = characters(text, ranges.iter().flatten());
    for (intent, range) in intents.iter_mut().zip(ranges) {
        let Some(range) = range else { continue };
        intent.quote =
            places.get(&range.start).copied().zip(places.get(&range.end).copied()).map(|(a, b)| [a, b]);
    }
}

/// The cells of the first rows and columns, row by row.
fn rows(table: &Table) -> Vec<Vec<&str>> {
    let mut rows: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for cell in table.cells.iter().filter(|cell| cell.row < ROWS_MAX && cell.col < COLUMNS_MAX) {
        let row = rows.entry(cell.row).or_default();
        let col = cell.col as usize;
        if row.len() <= col {
            row.resize(col + 1, "");
        }
        row[col] = &cell.text;
    }
    rows.into_values().collect()
}

/// What two ways of writing one question have in common.
pub(super) fn bare(question: impl AsRef<str>) -> String {
    question.as_ref().chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
