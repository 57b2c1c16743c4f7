//! Measures the readers on a folder of documents with known content: `score FOLDER`.
//!
//! The folder holds what is there of: `spreadsheets/` with `expected/` and `index.tsv` (passwords),
//! `korean-pdf/` with `truth.json`, `pdf-robustness/` with `index.tsv`, `icdar2013/` with `*-str.xml`, `hwp/`, `hwpx/` with `expected/`.
//! `SCORE_ONLY=hangul`, `sheets`, `attack` or `scans` (recognition, which takes minutes) measures that part alone; `SCORE_VERBOSE` lists every file.
//! Tables are compared with `*-str.xml` as well. A figure for what is there is printed on a line; what is missing below a full score is listed under it.

#[path = "score/hangul.rs"]
mod hangul;
#[path = "../tests/it/tables/score.rs"]
mod relations;
#[path = "score/scans.rs"]
mod scans;
#[path = "score/tables.rs"]
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mapae_document::child::{self, DocumentReader, Request};
use mapae_document::document::{Cell, Document, Value};
use mapae_document::error::DocumentError;
use mapae_document::limits::Limits;

/// Sets of files that attack: how many there are, and how many have to give content.
const CONTENT_AT_LEAST: [(&str, u32, u32); 2] = [("pdf-robustness", 83, 62), ("spreadsheets", 87, 66)];

type Failure = Box<dyn std::error::Error>;

fn main() -> std::process::ExitCode {
    // Before there is a second thread: what the child takes from itself is to hold for all of it.
    if std::env::args().nth(1).is_some_and(|a| a == child::ARGUMENT) {
        return child::child_main();
    }
    run()
}

#[tokio::main]
async fn run() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder] = args.as_slice() else {
        eprintln!("score FOLDER");
        return 2.into();
    };
    match score(Path::new(folder)).await {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("{error}");
            1.into()
        }
    }
}

async fn score(folder: &Path) -> Result<(), Failure> {
    let scorer = Scorer { reader: DocumentReader::new(), limits: Limits::default() };
    // One part of it, where its name is given.
    let only = std::env::var("SCORE_ONLY").unwrap_or_default();
    if only == "hangul" {
        hangul::score(&scorer, &folder.join("hwpx")).await?;
        scorer.outcomes("hwp", &folder.join("hwp")).await?;
        return scorer.outcomes("hwpx", &folder.join("hwpx")).await;
    }
    if only == "attack" {
        scorer.outcomes("pdf-robustness", &folder.join("pdf-robustness")).await?;
        return scorer.outcomes("spreadsheets", &folder.join("spreadsheets")).await;
    }
    if only == "scans" {
        return scans::score(&scorer.reader, &scorer.limits, folder).await;
    }
    if only == "sheets" {
        scorer.cells(&folder.join("spreadsheets")).await?;
        return scorer.outcomes("spreadsheets", &folder.join("spreadsheets")).await;
    }
    scorer.cells(&folder.join("spreadsheets")).await?;
    scorer.korean(&folder.join("korean-pdf")).await?;
    scorer.words(&folder.join("icdar2013")).await?;
    tables::score(&scorer.reader, &scorer.limits, &folder.join("icdar2013")).await?;
    hangul::score(&scorer, &folder.join("hwpx")).await?;
    for set in ["pdf-robustness", "spreadsheets", "korean-pdf", "icdar2013", "hwp", "hwpx"] {
        scorer.outcomes(set, &folder.join(set)).await?;
    }
    Ok(())
}

struct Scorer {
    reader: DocumentReader,
    limits: Limits,
}

impl Scorer {
    async fn read(
        &self,
        path: &Path,
        password: Option<String>,
        limits: &Limits,
    ) -> Result<Document, DocumentError> {
        let file = fs::File::open(path).map_err(|_| DocumentError::Unavailable)?;
        let request = Request { name: file_name(path), password, ..Request::default() };
        self.reader.parse(file, request, limits).await
    }

    /// Cells on which two other readers agree.
    async fn cells(&self, folder: &Path) -> Result<(), Failure> {
        let (mut matched, mut total, mut missing) = (0, 0, Vec::new());
        for truth in listed(&folder.join("expected"), "json") {
            let truth: serde_json::Value = serde_json::from_slice(&fs::read(truth)?)?;
            let name = truth["file"].as_str().unwrap_or_default();
            let document = self.read(&folder.join(name), None, &self.limits).await;
            let empty = serde_json::Map::new();
            for (sheet, cells) in truth["sheets"].as_object().unwrap_or(&empty) {
                let found = cells_of(document.as_ref().ok(), sheet);
                for (place, expected) in cells.as_object().unwrap_or(&empty) {
                    total += 1;
                    if found.get(place).is_some_and(|cell| agrees(cell, expected)) {
                        matched += 1;
                    } else {
                        missing.push(format!("{name} {sheet} {place}: {expected} {:?}", found.get(place)));
                    }
                }
            }
        }
        report("spreadsheet cells", matched, total, &missing);
        Ok(())
    }

    /// Lines of Korean text in every way a PDF can hold it.
    async fn korean(&self, folder: &Path) -> Result<(), Failure> {
        let Ok(truth) = fs::read(folder.join("truth.json")) else { return Ok(()) };
        let truth: BTreeMap<String, Vec<String>> = serde_json::from_slice(&truth)?;
        let (mut matched, mut total, mut missing) = (0, 0, Vec::new());
        for (name, lines) in truth {
            let password = name.ends_with("-user").then(|| "secret".to_owned());
            let document = self.read(&folder.join(format!("{name}.pdf")), password, &self.limits).await;
            let text = document.map(|d| d.text).unwrap_or_default();
            for line in lines {
                total += 1;
                let right = match line.strip_prefix("(none") {
                    Some(_) => text.contains('\u{fffd}'),
                    None => text.lines().any(|l| l.trim() == line),
                };
                if right { matched += 1 } else { missing.push(format!("{name}: {line}")) }
            }
        }
        report("korean-pdf lines", matched, total, &missing);
        Ok(())
    }

    /// Words of the cells of the tables of the competition, each found once on its page as a whole word.
    async fn words(&self, folder: &Path) -> Result<(), Failure> {
        let (mut found, mut total) = (0, 0);
        let mut worst = Vec::new();
        for path in listed(folder, "pdf") {
            let stem = file_name(&path).trim_end_matches(".pdf").to_owned();
            let Ok(truth) = fs::read_to_string(folder.join(format!("{stem}-str.xml"))) else { continue };
            let document = self.read(&path, None, &self.limits).await;
            let mut pages: HashMap<u32, HashMap<String, u32>> = HashMap::new();
            for page in document.iter().flat_map(|d| d.pages.iter().flatten()) {
                let words = pages.entry(page.number).or_default();
                page.text.split_whitespace().for_each(|w| *words.entry(w.to_owned()).or_default() += 1);
            }
            let (mut here, mut all) = (0, 0);
            for (page, word) in truth_words(&truth)? {
                all += 1;
                let left = pages.entry(page).or_default().entry(word).or_default();
                if *left > 0 {
                    *left -= 1;
                    here += 1;
                }
            }
            found += here;
            total += all;
            if here < all {
                worst.push((all - here, format!("{stem}: {here}/{all}")));
            }
        }
        worst.sort_by(|a, b| b.cmp(a));
        let worst: Vec<String> = worst.into_iter().take(8).map(|(_, line)| line).collect();
        report("icdar2013 words", found, total, &worst);
        Ok(())
    }

    /// How every file of a folder ends, read as a job reads it: once more for its text where its reader was lost. Of the
    /// sets that attack, so many files have to give content.
    async fn outcomes(&self, set: &str, folder: &Path) -> Result<(), Failure> {
        let passwords = passwords(&folder.join("index.tsv"));
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let (mut files, mut slowest) = (0, (Duration::ZERO, String::new()));
        let (mut content, mut lost) = (0, Vec::new());
        let mut lines = Vec::new();
        for path in listed(folder, "") {
            let name = file_name(&path);
            if name == "index.tsv" || name.ends_with(".xml") || name.ends_with(".json") {
                continue;
            }
            files += 1;
            let begun = Instant::now();
            let password = passwords.get(&name).cloned();
            let mut outcome = self.read(&path, password.clone(), &self.limits).await;
            if let Some(loss) = outcome.as_ref().err().and_then(DocumentError::loss) {
                outcome = self.read(&path, password, &self.limits.cheap()).await;
                lost.push(format!("{} {name}", loss.class()));
            }
            content += u32::from(outcome.is_ok());
            let took = begun.elapsed();
            if took > slowest.0 {
                slowest = (took, name.clone());
            }
            let label = match &outcome {
                Ok(document) if document.text.trim().is_empty() => "ok without text".to_owned(),
                Ok(_) => "ok".to_owned(),
                Err(error) => error.code().to_owned(),
            };
            lines.push(format!("{name}: {label} {:?} {:.2} s", outcome.err(), took.as_secs_f64()));
            *counts.entry(label).or_default() += 1;
        }
        if files == 0 {
            return Ok(());
        }
        let counts: Vec<String> = counts.iter().map(|(label, n)| format!("{label} {n}")).collect();
        println!("{set} outcomes: {files} files: {}", counts.join(", "));
        println!(
            "  content {content} of {files}; readers lost: {}",
            if lost.is_empty() { "none".to_owned() } else { lost.join(", ") }
        );
        println!("  slowest {:.1} s: {}", slowest.0.as_secs_f64(), slowest.1);
        if std::env::var_os("SCORE_VERBOSE").is_some() {
            lines.iter().for_each(|line| println!("  {line}"));
        }
        match CONTENT_AT_LEAST.iter().find(|(name, of, _)| *name == set && *of == files) {
            Some((.., least)) if content < *least => {
                Err(format!("{set}: at least {least} are to give content").into())
            }
            _ => Ok(()),
        }
    }
}

fn report(what: &str, matched: usize, total: usize, missing: &[String]) {
    if total == 0 {
        return;
    }
    println!("{what}: {matched}/{total} ({:.2} %)", 100.0 * matched as f64 / total as f64);
    missing.iter().take(20).for_each(|line| println!("  missing {line}"));
}

fn cells_of<'d>(document: Option<&'d Document>, sheet: &str) -> HashMap<String, &'d Cell> {
    let tables = document.iter().flat_map(|d| d.tables.iter().flatten());
    let table = tables.filter(|t| t.sheet.as_deref() == Some(sheet));
    let placed = table.flat_map(|table| {
        let (top, left) = table.range.as_deref().map_or((0, 0), first);
        table.cells.iter().map(move |cell| (format!("{},{}", top + cell.row, left + cell.col), cell))
    });
    placed.collect()
}

/// The row and column, from 0, of the first cell of a range in A1 notation.
fn first(range: &str) -> (u32, u32) {
    let cell = range.split(':').next().unwrap_or_default();
    let letters = cell.bytes().take_while(u8::is_ascii_uppercase);
    let col = letters.fold(0, |col, letter| col * 26 + u32::from(letter - b'A') + 1);
    let row = cell.trim_start_matches(|c: char| c.is_ascii_uppercase()).parse().unwrap_or(1u32);
    (row - 1, col - 1)
}

fn agrees(cell: &Cell, expected: &serde_json::Value) -> bool {
    let Some((kind, expected)) = expected.as_object().and_then(|e| e.iter().next()) else { return false };
    match (kind.as_str(), &cell.value) {
        ("n", Some(Value::Integer(n))) => near(expected, *n as f64),
        ("n", Some(Value::Number(n))) => near(expected, *n),
        ("b", Some(Value::Bool(b))) => expected.as_bool() == Some(*b),
        ("d", Some(Value::Time(t))) => {
            let full = if t.contains('T') { t.clone() } else { format!("{t}T00:00:00") };
            // The other readers agree to the second.
            expected
                .as_str()
                .is_some_and(|e| full == e || full.strip_prefix(e).is_some_and(|f| f.starts_with('.')))
        }
        ("t", Some(Value::Time(t))) => expected.as_str() == Some(t),
        ("s", _) => expected.as_str() == Some(&cell.text),
        _ => false,
    }
}

/// The truth is written with twelve digits.
fn near(expected: &serde_json::Value, number: f64) -> bool {
    expected.as_f64().is_some_and(|e| (e - number).abs() <= 1e-9 * e.abs().max(number.abs()).max(1e-3))
}

/// Pages and words of the cells in a truth of the competition.
fn truth_words(xml: &str) -> Result<Vec<(u32, String)>, Failure> {
    let words = |cell: &relations::Cell| cell.text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let of_page = |(page, tables): (u32, Vec<Vec<relations::Cell>>)| {
        let words: Vec<String> = tables.iter().flatten().flat_map(words).collect();
        words.into_iter().map(move |word| (page, word))
    };
    Ok(tables::truth(xml)?.into_iter().flat_map(of_page).collect())
}

fn passwords(index: &Path) -> HashMap<String, String> {
    let index = fs::read_to_string(index).unwrap_or_default();
    let fields = index.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    fields
        .filter_map(|f| Some((f.first()?.to_string(), f.get(4)?.to_string())))
        .filter(|(_, password)| !password.is_empty())
        .collect()
}

fn listed(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let wanted =
        |p: &PathBuf| p.is_file() && (extension.is_empty() || p.extension().is_some_and(|e| e == extension));
    let mut paths: Vec<PathBuf> = entries.filter(wanted).collect();
    paths.sort();
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
