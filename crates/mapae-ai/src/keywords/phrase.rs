//! Runs to phrases: every part of a run, counted.

use std::collections::HashMap;
use std::ops::Range;

use super::candidate::Term;

/// Terms of a phrase, at most.
const TERMS_MAX: usize = 4;

/// A phrase of a text with what is known of it.
pub(super) struct Phrase {
    /// As it stands where it first occurs.
    pub(super) text: String,
    pub(super) at: Range<usize>,
    /// Numbers of its terms.
    pub(super) terms: Vec<usize>,
    /// Occurrences in the text.
    pub(super) count: u32,
    /// Occurrences as a whole run, with nothing of the run left over.
    pub(super) whole: u32,
    pub(super) heading: bool,
    pub(super) vague: bool,
}

pub(super) struct TermStats {
    /// Terms beside which it stands in runs, itself included, over all occurrences.
    pub(super) degree: u32,
}

/// The phrases of a text, and its terms.
pub(super) struct Phrases {
    pub(super) phrases: Vec<Phrase>,
    pub(super) terms: Vec<TermStats>,
    pub(super) length: usize,
}

pub(super) fn phrases(text: &str, runs: &[Vec<Term>]) -> Phrases {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut terms: Vec<TermStats> = Vec::new();
    let mut found: HashMap<Vec<usize>, usize> = HashMap::new();
    let mut phrases: Vec<Phrase> = Vec::new();
    for run in runs {
        let ids: Vec<usize> = run
            .iter()
            .map(|term| {
                *numbers.entry(&term.norm).or_insert_with(|| {
                    terms.push(TermStats { degree: 0 });
                    terms.len() - 1
                })
            })
            .collect();
        for &id in &ids {
            terms[id].degree += ids.len().min(TERMS_MAX) as u32;
        }
        for start in 0..run.len() {
            for end in start + 1..=run.len().min(start + TERMS_MAX) {
                let number = *found.entry(ids[start..end].to_vec()).or_insert_with(|| {
                    let at = run[start].at.start..run[end - 1].at.end;
                    phrases.push(Phrase {
                        text: text[at.clone()].split_whitespace().collect::<Vec<_>>().join(" "),
                        at,
                        terms: ids[start..end].to_vec(),
                        count: 0,
                        whole: 0,
                        heading: false,
                        vague: run[start..end].iter().all(|term| term.vague),
                    });
                    phrases.len() - 1
                });
                let phrase = &mut phrases[number];
                phrase.count += 1;
                phrase.whole += u32::from(end - start == run.len());
                phrase.heading |= run[start].heading;
            }
        }
    }
    Phrases { phrases, terms, length: text.len() }
}
