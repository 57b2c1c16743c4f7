//! Phrases to the best keywords.
//!
//! ```text
//! score = mean of √degree of its terms × terms^0.6 × √free × place × heading
//! ```
//!
//! A term's degree grows with how often it occurs and with how much it combines. `free` counts occurrences; one
//! within a longer run counts a tenth, because then the longer phrase is the name of the thing. The figures were
//! set once for all languages and sorts of text together, by the mean over five collections.

use super::Keyword;
use super::phrase::{Phrase, Phrases, TermStats};

const LENGTH: f64 = 0.6;
const WITHIN: f64 = 0.1;
/// What the end of a text counts less than its beginning.
const FADE: f64 = 0.5;
const HEADING: f64 = 1.5;

pub(super) fn best(found: Phrases, max: usize) -> Vec<Keyword> {
    let Phrases { phrases, terms, length } = found;
    let scored = phrases.into_iter().filter(|phrase| !phrase.vague);
    let mut scored: Vec<(f64, Phrase)> =
        scored.map(|phrase| (score(&phrase, &terms, length), phrase)).collect();
    scored.sort_by(|(a, p), (b, q)| b.total_cmp(a).then(p.at.start.cmp(&q.at.start)));
    let mut taken: Vec<(f64, Phrase)> = Vec::new();
    for (score, phrase) in scored {
        if taken.len() == max {
            break;
        }
        if !taken.iter().any(|(_, other)| repeats(&phrase, other)) {
            taken.push((score, phrase));
        }
    }
    let top = taken.first().map_or(1.0, |(score, _)| *score);
    taken.into_iter().map(|(score, p)| Keyword { text: p.text, score: score / top, at: p.at }).collect()
}

fn score(phrase: &Phrase, terms: &[TermStats], length: usize) -> f64 {
    let n = phrase.terms.len() as f64;
    let mean = phrase.terms.iter().map(|&id| f64::from(terms[id].degree).sqrt()).sum::<f64>() / n;
    let free = f64::from(phrase.whole) + WITHIN * f64::from(phrase.count - phrase.whole);
    let place = 1.0 - FADE * phrase.at.start as f64 / length.max(1) as f64;
    let heading = if phrase.heading { HEADING } else { 1.0 };
    mean * n.powf(LENGTH) * free.sqrt() * place * heading
}

/// Whether one of the two is a part of the other and never stands without it.
fn repeats(phrase: &Phrase, taken: &Phrase) -> bool {
    let part = |of: &Phrase, part: &Phrase| {
        part.whole == 0
            && part.count <= of.count
            && of.terms.windows(part.terms.len()).any(|w| w == part.terms)
    };
    part(taken, phrase) || part(phrase, taken)
}
