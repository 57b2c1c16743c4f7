//! Pages read by their pictures, against their own text layers and the truth of their tables.
//!
//! The pages are drawn without noise and not askew: the figures are those of a perfect scanner.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mapae_document::child::{DocumentReader, Request};
use mapae_document::limits::Limits;
use mapae_document::ocr::Tesseract;
use mapae_document::table::tuning::Tuning;

use super::tables::{Case, f1, measure, truths};
use super::{Failure, file_name, listed, report};

/// Pages of a document that are read: recognition takes a second and more for each.
const PAGES: u32 = 3;

pub(super) async fn score(reader: &DocumentReader, limits: &Limits, data: &Path) -> Result<(), Failure> {
    let Ok(installed) = reader.recogniser(&Tesseract::default()).await else {
        println!("scans: tesseract is not installed; nothing was measured");
        return Ok(());
    };
    let limits = Limits { cpu_seconds: 600, wall: Duration::from_secs(600), ..limits.clone() };
    let (mut found, mut all, mut pages, mut took) = (0, 0, 0, Duration::ZERO);
    let (mut cases, mut worst) = (Vec::new(), Vec::new());
    let korean = data.join("korean-pdf");
    let files = listed(&data.join("icdar2013"), "pdf").into_iter().chain(listed(&korean, "pdf"));
    for path in files {
        let name = file_name(&path);
        // Text without an embedded font is not drawn as it was meant.
        if path.starts_with(&korean) && !name.starts_with("embed") {
            continue;
        }
        let request = || Request { name: name.clone(), ..Request::default() };
        let Ok(document) = reader.parse(fs::File::open(&path)?, request(), &limits).await else { continue };
        let layer = document.pages.unwrap_or_default();
        let numbers: Vec<u32> = layer.iter().map(|page| page.number).take(PAGES as usize).collect();
        let begun = Instant::now();
        let scans = reader.scans(fs::File::open(&path)?, request(), &numbers, &installed, &limits).await;
        took += begun.elapsed();
        let scans = scans.unwrap_or_default();
        pages += scans.len();
        let truth = match name.strip_suffix(".pdf") {
            Some(stem) if path.starts_with(&korean) => lines(&korean, stem)?,
            _ => {
                layer.iter().take(PAGES as usize).map(|page| page.text.clone()).collect::<Vec<_>>().join("\n")
            }
        };
        let text: Vec<&str> = scans.iter().map(|scan| scan.page.text.as_str()).collect();
        let (here, of) = recall(&text.join("\n"), &truth);
        (found, all) = (found + here, all + of);
        worst.push((here as f64 / of.max(1) as f64, format!("{name}: {here}/{of}")));
        let stem = name.trim_end_matches(".pdf").to_owned();
        let mut truths = truths(&data.join("icdar2013"), &stem)?;
        truths.iter_mut().for_each(|truth| truth.retain(|page, _| *page <= PAGES));
        if truths.iter().any(|truth| !truth.is_empty()) {
            cases.push(Case {
                name: stem,
                sights: scans.into_iter().map(|scan| scan.sight).collect(),
                truths,
            });
        }
    }
    worst.sort_by(|a, b| a.0.total_cmp(&b.0));
    let worst: Vec<String> = worst.into_iter().take(12).map(|(_, line)| line).collect();
    report("scans words", found, all, &worst);
    let counts = measure(&cases, &Tuning::default());
    println!(
        "scans tables: document F1 {:.3} over {} documents; {:.2} s a page",
        f1(&counts, &(0..cases.len()).collect::<Vec<_>>()),
        cases.len(),
        took.as_secs_f64() / pages.max(1) as f64
    );
    Ok(())
}

/// What a generated Korean file says.
fn lines(folder: &Path, stem: &str) -> Result<String, Failure> {
    let truth: HashMap<String, Vec<String>> = serde_json::from_slice(&fs::read(folder.join("truth.json"))?)?;
    Ok(truth.get(stem).map(|lines| lines.join("\n")).unwrap_or_default())
}

/// How many words of `truth` are in `text`, each used once, and how many there are.
fn recall(text: &str, truth: &str) -> (usize, usize) {
    let mut there: HashMap<&str, usize> = HashMap::new();
    text.split_whitespace().for_each(|word| *there.entry(word).or_default() += 1);
    let words: Vec<&str> = truth.split_whitespace().collect();
    let mut has = |word: &&&str| match there.get_mut(**word) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    };
    (words.iter().filter(|word| has(word)).count(), words.len())
}
