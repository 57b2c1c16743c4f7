//! Words on which two other readers of HWP and HWPX agree, each found as a whole word, and the tables there are.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use super::{Failure, Scorer, listed, report};

pub(super) async fn score(scorer: &Scorer, folder: &Path) -> Result<(), Failure> {
    let (mut matched, mut total, mut missing) = (0, 0, Vec::new());
    let (mut tables_found, mut tables_there, mut tables_missing) = (0, 0, Vec::new());
    for truth in listed(&folder.join("expected"), "json") {
        let truth: serde_json::Value = serde_json::from_slice(&fs::read(truth)?)?;
        let name = truth["file"].as_str().unwrap_or_default();
        let document = scorer.read(&folder.join(name), None, &scorer.limits).await;
        let text = document.as_ref().map(|d| d.text.as_str()).unwrap_or_default();
        let words: HashSet<&str> = text.split(|c| !is_of_word(c)).collect();
        for word in truth["words"].as_array().into_iter().flatten().filter_map(|word| word.as_str()) {
            total += 1;
            if words.contains(word) { matched += 1 } else { missing.push(format!("{name}: {word}")) }
        }
        if let Some(there) = truth["tables_in_xml"].as_u64() {
            let found = document.iter().flat_map(|d| d.tables.iter().flatten()).count() as u64;
            tables_found += found.min(there);
            tables_there += there;
            if found != there {
                tables_missing.push(format!("{name}: {found} of {there}"));
            }
        }
    }
    report("hwpx words", matched, total, &missing);
    report("hwpx tables", tables_found as usize, tables_there as usize, &tables_missing);
    Ok(())
}

/// As the truth was cut into words.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || ('가'..='힣').contains(&c)
}
