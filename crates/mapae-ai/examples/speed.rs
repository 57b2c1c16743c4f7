//! What understanding costs on one core: `speed [MODELS]`. The texts are made here, so that anybody gets the same.

use std::fs;
use std::path::Path;

use mapae_ai::classify::{Classifier, Example};
use mapae_ai::embed::Embedder;
use mapae_ai::intents::intents;
use mapae_ai::keywords::keywords;
use mapae_ai::models::Models;

type Failure = Box<dyn std::error::Error>;

const WORDS: [&str; 24] = [
    "예산을",
    "작업의",
    "재시도",
    "메시지",
    "큐에서",
    "보고서",
    "계약이",
    "처리하는",
    "queue",
    "budget",
    "retry",
    "worker",
    "서버가",
    "문서를",
    "분류한다",
    "회의록은",
    "결재",
    "기한까지",
    "document",
    "lease",
    "invoice",
    "총액",
    "검토",
    "완료했다",
];

/// Words by a small generator (Lehmer's), the same each time.
struct Words(u64);

impl Words {
    fn text(&mut self, words: usize) -> String {
        let mut text = String::new();
        for word in 0..words {
            self.0 = self.0 * 48_271 % 0x7fff_ffff;
            text += WORDS[usize::try_from(self.0).unwrap_or(0) % WORDS.len()];
            text += if word % 12 == 11 { ".\n" } else { " " };
        }
        text
    }
}

fn main() -> Result<(), Failure> {
    let folder = std::env::args().nth(1);
    let before = resident();
    let models = folder.map(|folder| Models::open(Path::new(&folder))).transpose()?.unwrap_or_default();
    let mut words = Words(42);

    let texts: Vec<String> = (0..1_000).map(|_| words.text(15)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let short = cpu(|| {
        texts.iter().for_each(|text| drop(std::hint::black_box(keywords(text, 10))));
        if let Some(encoder) = models.embedder() {
            texts.chunks(64).for_each(|batch| drop(std::hint::black_box(encoder.embed(batch))));
        }
    });
    let with =
        if models.encoder.is_some() { "keywords and a vector" } else { "keywords, no pack of the encoder" };
    println!("1,000 short texts ({with}): {short:.2} CPU s (bound 8)");
    if let Some(encoder) = &models.encoder {
        let pieces: usize = texts.iter().map(|text| encoder.pieces(text).len() + 2).sum();
        let took = cpu(|| drop(std::hint::black_box(encoder.embed(&texts))));
        let each = pieces as f64 / texts.len() as f64;
        println!("vectors: {:.0} texts of {each:.0} pieces per CPU second (bound 250 of 55)", 1_000.0 / took);
    }
    if let Some(dictionary) = &models.dictionary {
        let text = words.text(200_000);
        let took = cpu(|| drop(std::hint::black_box(dictionary.morphemes(&text))));
        println!(
            "morphemes: {:.0} characters per CPU second (bound 300,000)",
            text.chars().count() as f64 / took
        );
    }
    let example = |at: usize| Example {
        label: (at % 5).to_string(),
        text: format!("{} ", WORDS[at % 5]) + &words.text(150),
    };
    let examples: Vec<Example> = (0..500).map(example).collect();
    for (with, embedder) in [("letters and words", None), ("and vectors", models.embedder())] {
        let took = cpu(|| drop(std::hint::black_box(Classifier::train(&[], &examples, embedder))));
        println!("training on 500 documents, {with}: {took:.2} CPU s (bound 2)");
    }
    // Twice the text is to take twice the time.
    for (what, method) in [
        ("keywords", (|text: &str| drop(keywords(text, 15))) as fn(&str)),
        ("intents", |text| drop(intents(text, None))),
    ] {
        let text = words.text(400_000);
        let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        let (one, two) = (cpu(|| method(&text[..half])), cpu(|| method(&text)));
        println!("{what} of {:.1} MB: {two:.2} CPU s; of half of it: {one:.2}", text.len() as f64 / 1e6);
    }
    println!("memory: {} MB more than before, packs mapped (bound 120)", (resident() - before) / 1_000_000);
    Ok(())
}

/// CPU seconds of a piece of work.
fn cpu(work: impl FnOnce()) -> f64 {
    let now = || {
        let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
        stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or_default() / 1e9
    };
    let begun = now();
    work();
    now() - begun
}

/// Bytes of memory that this process has, mapped files among them.
fn resident() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<i64>().unwrap_or_default() * 1024
}
