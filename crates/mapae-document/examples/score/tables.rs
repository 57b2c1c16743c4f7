//! Tables against the truth of the table competition of 2013, and how far the thresholds are fitted to it.
//!
//! The figures are those of files that were looked at while the rules were written. The cross-validation says
//! what choosing the thresholds anew on one half of the documents gives on the other half.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mapae_document::child::{DocumentReader, Request};
use mapae_document::limits::Limits;
use mapae_document::table::extract;
use mapae_document::table::sight::Sight;
use mapae_document::table::tuning::Tuning;

use super::relations::{Cell, Count, cells, compare, harmonic};
use super::{Failure, file_name, listed};

/// Tables by page.
pub(super) type Pages = BTreeMap<u32, Vec<Vec<Cell>>>;

pub(super) struct Case {
    pub(super) name: String,
    pub(super) sights: Vec<Sight>,
    /// Several where people disagreed; the best one counts.
    pub(super) truths: Vec<Pages>,
}

pub(super) async fn score(reader: &DocumentReader, limits: &Limits, folder: &Path) -> Result<(), Failure> {
    let mut cases = Vec::new();
    for path in listed(folder, "pdf") {
        let name = file_name(&path).trim_end_matches(".pdf").to_owned();
        let truths = truths(folder, &name)?;
        if truths.is_empty() {
            continue;
        }
        let request = Request { name: file_name(&path), ..Request::default() };
        let seen = reader.seen(fs::File::open(&path)?, request, None, limits).await;
        let sights = seen.unwrap_or_default().into_iter().map(|seen| seen.sight).collect();
        cases.push(Case { name, sights, truths });
    }
    if cases.is_empty() {
        return Ok(());
    }
    let begun = Instant::now();
    let counts = measure(&cases, &Tuning::default());
    let took = begun.elapsed();
    let pages = cases.iter().map(|case| case.sights.len()).sum::<usize>();
    let all: Vec<usize> = (0..cases.len()).collect();
    let mean = |part: fn(&Count) -> f64| counts.iter().map(part).sum::<f64>() / counts.len() as f64;
    println!(
        "icdar2013 tables (training figure): document precision {:.3}, recall {:.3}, F1 {:.3}; {:.2} ms a page",
        mean(Count::precision),
        mean(Count::recall),
        f1(&counts, &all),
        milliseconds(took) / pages as f64
    );
    let mut worst: Vec<(f64, &str)> =
        counts.iter().zip(&cases).map(|(count, case)| (count.f1(), case.name.as_str())).collect();
    worst.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (f1, name) in worst.iter().take(8).filter(|(f1, _)| *f1 < 0.95) {
        println!("  {name}: F1 {f1:.3}");
    }
    cross_validate(&cases, &counts);
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

pub(super) fn measure(cases: &[Case], tuning: &Tuning) -> Vec<Count> {
    let of_case = |case: &Case| {
        let found: Vec<(u32, Vec<Vec<Cell>>)> = case
            .sights
            .iter()
            .map(|sight| (sight.page, extract(sight, tuning).iter().map(cells).collect()))
            .collect();
        let counts = case.truths.iter().map(|truth| {
            let mut sum = Count::default();
            for (page, found) in &found {
                let empty = Vec::new();
                let count = compare(truth.get(page).unwrap_or(&empty), found);
                sum.right += count.right;
                sum.found += count.found;
                sum.truth += count.truth;
            }
            sum
        });
        counts.max_by(|a, b| a.f1().total_cmp(&b.f1())).unwrap_or_default()
    };
    cases.iter().map(of_case).collect()
}

/// The harmonic mean of the documents' mean precision and mean recall.
pub(super) fn f1(counts: &[Count], part: &[usize]) -> f64 {
    let mean = |of: fn(&Count) -> f64| part.iter().map(|&i| of(&counts[i])).sum::<f64>() / part.len() as f64;
    harmonic(mean(Count::precision), mean(Count::recall))
}

/// A threshold and other values it might have had.
type Knob = (&'static str, fn(&mut Tuning) -> &mut f64, [f64; 2]);

const KNOBS: [Knob; 9] = [
    ("hole", |t| &mut t.hole, [0.7, 1.0]),
    ("number_hole", |t| &mut t.number_hole, [0.2, 0.45]),
    ("cut", |t| &mut t.cut, [0.3, 0.55]),
    ("heading_cut", |t| &mut t.heading_cut, [0.35, 0.6]),
    ("river", |t| &mut t.river, [0.04, 0.14]),
    ("edge", |t| &mut t.edge, [0.45, 0.75]),
    ("numeric", |t| &mut t.numeric, [0.4, 0.7]),
    ("break_ems", |t| &mut t.break_ems, [3.0, 5.5]),
    ("confidence_min", |t| &mut t.confidence_min, [0.4, 0.6]),
];

/// Each threshold chosen on one half of the documents, all of them measured on the other.
fn cross_validate(cases: &[Case], default: &[Count]) {
    let mut tried: Vec<(usize, f64, Vec<Count>)> = Vec::new();
    for (knob, (_, field, values)) in KNOBS.iter().enumerate() {
        for value in values {
            let mut tuning = Tuning::default();
            *field(&mut tuning) = *value;
            tried.push((knob, *value, measure(cases, &tuning)));
        }
    }
    let (mut chosen, mut kept) = (Vec::new(), Vec::new());
    for split in 0..5u32 {
        let halves = halves(cases.len(), split);
        for (train, test) in [(&halves.0, &halves.1), (&halves.1, &halves.0)] {
            let mut tuning = Tuning::default();
            for (knob, (_, field, _)) in KNOBS.iter().enumerate() {
                let better = tried.iter().filter(|t| t.0 == knob && f1(&t.2, train) > f1(default, train));
                if let Some(best) = better.max_by(|a, b| f1(&a.2, train).total_cmp(&f1(&b.2, train))) {
                    *field(&mut tuning) = best.1;
                }
            }
            chosen.push(f1(&measure(cases, &tuning), test));
            kept.push(f1(default, test));
        }
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
    println!(
        "  cross-validation over {} halves: thresholds chosen on the other half F1 {:.3} (least {:.3}), as they are {:.3} (least {:.3})",
        chosen.len(),
        mean(&chosen),
        least(&chosen),
        mean(&kept),
        least(&kept)
    );
    for (knob, value, counts) in &tried {
        let all: Vec<usize> = (0..cases.len()).collect();
        println!("  {} = {value}: F1 {:+.3}", KNOBS[*knob].0, f1(counts, &all) - f1(default, &all));
    }
}

/// The documents in two halves, by a generator with a seed.
fn halves(documents: usize, seed: u32) -> (Vec<usize>, Vec<usize>) {
    let mut order: Vec<usize> = (0..documents).collect();
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    for i in (1..documents).rev() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        order.swap(i, (state >> 8) as usize % (i + 1));
    }
    let second = order.split_off(documents / 2);
    (order, second)
}

/// The truths of a document: `X-str.xml`, or `Xa-str.xml` and `Xb-str.xml` for a document `Xa`.
pub(super) fn truths(folder: &Path, name: &str) -> Result<Vec<Pages>, Failure> {
    let base = name.strip_suffix('a').unwrap_or(name);
    let mut truths = Vec::new();
    for end in ["", "a", "b"] {
        if let Ok(xml) = fs::read_to_string(folder.join(format!("{base}{end}-str.xml"))) {
            truths.push(truth(&xml)?);
        }
    }
    Ok(truths)
}

pub(super) fn truth(xml: &str) -> Result<Pages, Failure> {
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut pages = Pages::new();
    // The parts of one table on one page are one table.
    let mut table: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
    let (mut page, mut shift) = (0, (0, 0));
    let (mut cell, mut content): (Option<Cell>, Option<String>) = (None, None);
    loop {
        match reader.read_event()? {
            Event::Start(e) => {
                let number = |key: &str| -> Option<u32> {
                    let attribute = e.attributes().flatten().find(|a| a.key.as_ref() == key);
                    attribute.and_then(|a| a.value.parse().ok())
                };
                match e.name().as_ref() {
                    "region" => {
                        page = number("page").unwrap_or(page);
                        shift = (number("row-increment").unwrap_or(0), number("col-increment").unwrap_or(0));
                    }
                    "cell" => {
                        let row = number("start-row").unwrap_or(0);
                        let col = number("start-col").unwrap_or(0);
                        cell = Some(Cell {
                            row: row + shift.0,
                            col: col + shift.1,
                            rowspan: number("end-row").unwrap_or(row).max(row) - row + 1,
                            colspan: number("end-col").unwrap_or(col).max(col) - col + 1,
                            text: String::new(),
                        });
                    }
                    "content" => content = Some(String::new()),
                    _ => {}
                }
            }
            Event::Text(t) => {
                if let Some(content) = &mut content {
                    content.push_str(&t.xml10_content());
                }
            }
            Event::GeneralRef(e) => {
                let known = quick_xml::escape::resolve_xml_entity(&e);
                if let Some(content) = &mut content {
                    content.push_str(known.unwrap_or_default());
                    content.extend(e.resolve_char_ref().ok().flatten());
                }
            }
            Event::End(e) => match e.name().as_ref() {
                "content" => {
                    if let (Some(cell), Some(content)) = (&mut cell, content.take()) {
                        cell.text = content;
                    }
                }
                "cell" => table.entry(page).or_default().extend(cell.take()),
                "table" => {
                    for (page, cells) in std::mem::take(&mut table) {
                        pages.entry(page).or_default().push(cells);
                    }
                }
                _ => {}
            },
            Event::Eof => return Ok(pages),
            _ => {}
        }
    }
}
