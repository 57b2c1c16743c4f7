//! Measures the methods on a folder of texts with known answers: `understanding FOLDER [MODELS [PREDICTIONS]]`.
//!
//! The folder holds what is there of `keywords/*.jsonl`, `classify/*/{train,test}.jsonl`, `intents/*.jsonl`.
//! With a folder of packs everything is measured without and with them. Keywords that were found are written to the
//! last folder, so that another scorer can judge them too.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use mapae_ai::classify::{Classifier, Example, Label};
use mapae_ai::embed::Embedder;
use mapae_ai::intents::intents;
use mapae_ai::keywords::{keywords, normal_form};
use mapae_ai::models::Models;
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(folder) = args.first().map(Path::new) else {
        return Err("understanding FOLDER [MODELS [PREDICTIONS]]".into());
    };
    let models = args.get(1).map(|folder| Models::open(Path::new(folder))).transpose()?.unwrap_or_default();
    let ways = if models.encoder.is_some() || models.dictionary.is_some() {
        vec![("lexical", Models::default()), ("with packs", models)]
    } else {
        vec![("lexical", models)]
    };
    score_keywords(&folder.join("keywords"), args.get(2).map(Path::new))?;
    for (way, models) in &ways {
        score_classes(&folder.join("classify"), way, models)?;
        score_intents(&folder.join("intents"), way, models)?;
        speed(&folder.join("keywords/uwp-ko.jsonl"), models)?;
    }
    Ok(())
}

fn score_classes(folder: &Path, way: &str, models: &Models) -> Result<(), Failure> {
    let mut sets: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    sets.sort();
    for set in sets.iter().filter(|set| set.join("train.jsonl").is_file()) {
        let name = stem(set);
        let examples = |file: &str| -> Result<Vec<Example>, Failure> {
            let rows = rows(&set.join(file))?;
            let example = |row: &Value| Example {
                label: text(row, "label").to_owned(),
                text: text(row, "text").to_owned(),
            };
            Ok(rows.iter().map(example).collect())
        };
        let (train, test) = (examples("train.jsonl")?, examples("test.jsonl")?);
        let labels: Value = serde_json::from_str(&fs::read_to_string(set.join("labels.json"))?)?;
        let labels: Vec<Label> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, text)| Label {
                name: name.clone(),
                description: text.as_str().unwrap_or_default().into(),
            })
            .collect();
        let mut shots: Vec<Example> = Vec::new();
        for label in &labels {
            shots.extend(train.iter().filter(|e| e.label == label.name).take(3).cloned());
        }
        for (what, examples) in [("all examples", train.as_slice()), ("3 a label", &shots), ("none", &[])] {
            let cpu = cpu_seconds();
            let classifier = Classifier::train(&labels, examples, models.embedder())?;
            let took = cpu_seconds() - cpu;
            let answers: Vec<_> =
                test.iter().map(|e| (classifier.classify(&e.text, models.embedder()), &e.label)).collect();
            let right = answers.iter().filter(|(a, label)| &a.label == *label).count();
            let sure = answers.iter().filter(|(a, _)| !a.unsure).count();
            let right_when_sure = answers.iter().filter(|(a, label)| !a.unsure && &a.label == *label).count();
            let share = |a: usize, b: usize| a as f64 / b.max(1) as f64;
            println!(
                "classify {name}, {way}, {what}: accuracy {:.4}, sure {:.2} of which right {:.3}, trained in {took:.2} CPU s",
                share(right, answers.len()),
                share(sure, answers.len()),
                share(right_when_sure, sure)
            );
            if let Some(v) = &classifier.validation {
                println!("  cross-validation {v:?}");
            }
        }
    }
    Ok(())
}

/// Every question and its whole answer has to come back, whatever the form of the document.
fn score_intents(folder: &Path, way: &str, models: &Models) -> Result<(), Failure> {
    for path in listed(folder) {
        let pairs = rows(&path)?;
        for (form, write) in [
            ("Q/A", (|q, a| format!("Q: {q}\nA: {a}\n\n")) as fn(&str, &str) -> String),
            ("headings", |q, a| format!("## {q}\n\n{a}\n\n")),
            ("plain", |q, a| format!("{q}\n{a}\n\n")),
        ] {
            let document: String =
                pairs.iter().map(|row| write(text(row, "question"), text(row, "answer"))).collect();
            let found = intents(&document, models.embedder());
            let whole = |row: &&Value| {
                let same = |a: &str, b: &str| normal_form(a, true) == normal_form(b, true);
                found.iter().any(|i| {
                    i.utterances.iter().any(|u| same(u, text(row, "question")))
                        && same(&i.answer, text(row, "answer"))
                })
            };
            let right = pairs.iter().filter(whole).count();
            println!(
                "intents {}, {way}, {form}: {right} of {} whole, {} found",
                stem(&path),
                pairs.len(),
                found.len()
            );
        }
    }
    Ok(())
}

/// How fast the packs' methods are, on one core.
fn speed(path: &Path, models: &Models) -> Result<(), Failure> {
    let Ok(rows) = rows(path) else { return Ok(()) };
    if let Some(dictionary) = &models.dictionary {
        let (cpu, mut chars) = (cpu_seconds(), 0);
        for row in &rows {
            chars += text(row, "text").chars().count();
            std::hint::black_box(dictionary.morphemes(text(row, "text")));
        }
        println!("morphemes: {:.0} characters per CPU second", chars as f64 / (cpu_seconds() - cpu));
    }
    if let Some(encoder) = &models.encoder {
        let mut texts: Vec<String> = Vec::new();
        for row in rows.iter().take(60) {
            let all: Vec<char> = text(row, "text").chars().collect();
            texts.extend(all.chunks(115).take(12).map(|c| c.iter().collect()));
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let pieces: usize = texts.iter().map(|t| encoder.pieces(t).len() + 2).sum();
        let cpu = cpu_seconds();
        std::hint::black_box(encoder.embed(&texts));
        let rate = texts.len() as f64 / (cpu_seconds() - cpu);
        println!(
            "embeddings: {rate:.0} texts of {:.1} pieces per CPU second",
            pieces as f64 / texts.len() as f64
        );
    }
    Ok(())
}

fn score_keywords(folder: &Path, out: Option<&Path>) -> Result<(), Failure> {
    for path in listed(folder) {
        let name = stem(&path);
        let (mut sums, mut documents, mut lines) = ([0.0; 3], 0, String::new());
        let cpu = cpu_seconds();
        for row in rows(&path)? {
            let korean = row["lang"] == "ko";
            let found: Vec<String> = keywords(text(&row, "text"), 15).into_iter().map(|k| k.text).collect();
            lines += &format!("{}\n", json!({"id": row["id"], "keywords": found}));
            let gold = row["gold"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let gold: HashSet<String> =
                gold.map(|g| normal_form(g, korean)).filter(|g| !g.is_empty()).collect();
            let mut seen = HashSet::new();
            let found: Vec<String> = found.iter().map(|k| normal_form(k, korean)).collect();
            let found: Vec<&String> = found.iter().filter(|k| !k.is_empty() && seen.insert(*k)).collect();
            documents += 1;
            for (sum, k) in sums.iter_mut().zip([5, 10, 15]) {
                let top = &found[..k.min(found.len())];
                let hits = top.iter().filter(|k| gold.contains(**k)).count() as f64;
                if hits > 0.0 {
                    *sum += 2.0 * hits / (top.len() + gold.len()) as f64;
                }
            }
        }
        let [five, ten, fifteen] = sums.map(|sum| sum / f64::from(documents.max(1)));
        let speed = f64::from(documents) / (cpu_seconds() - cpu).max(1e-3);
        println!(
            "keywords {name}: F1@5 {five:.4}  F1@10 {ten:.4}  F1@15 {fifteen:.4}  ({documents} documents, {speed:.0} per CPU second)"
        );
        if let Some(out) = out {
            fs::create_dir_all(out)?;
            fs::write(out.join(format!("{name}.jsonl")), lines)?;
        }
    }
    Ok(())
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or_default() / 1e9
}

fn text<'v>(row: &'v Value, field: &str) -> &'v str {
    row[field].as_str().unwrap_or_default()
}

fn rows(path: &Path) -> Result<Vec<Value>, Failure> {
    let lines = fs::read_to_string(path)?;
    Ok(lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "jsonl")).collect();
    paths.sort();
    paths
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
