//! Runs of terms that can stand together in a keyword.

use std::ops::Range;

use crate::korean::eojeol::{self, Eojeol};
use crate::korean::is_hangul;
use crate::text::{self, Word};
use crate::{english, keywords};

/// A word of a run.
pub(super) struct Term {
    pub(super) at: Range<usize>,
    /// What it is counted as.
    pub(super) norm: String,
    /// Says nothing alone.
    pub(super) vague: bool,
    pub(super) heading: bool,
}

/// Terms of a text in order, those that can stand together in one run.
///
/// Korean nouns are cut by particles and endings. A dictionary's cuts were measured and made keywords worse: what it
/// cuts a compound into is less often what people call a thing, and what it takes for a verb may be a name.
pub(super) fn runs(text: &str, korean: bool) -> Vec<Vec<Term>> {
    let words = text::words(text);
    if korean { from_eojeols(&words) } else { from_words(&words) }
}

fn from_words(words: &[Word<'_>]) -> Vec<Vec<Term>> {
    let mut runs = Runs::default();
    for word in words {
        let lower = word.text.to_lowercase();
        if !word.joined {
            runs.end();
        }
        let number = !lower.contains(char::is_alphabetic);
        if number || english::is_stop(&lower) || lower.chars().count() < 2 {
            runs.end();
            continue;
        }
        if runs.open.is_empty() && english::is_plain(&lower) {
            continue;
        }
        let norm = keywords::normal_form(&lower, false);
        let vague = english::is_vague(&lower);
        runs.open.push(Term { at: word.at..word.end(), norm, vague, heading: word.heading });
    }
    runs.finish()
}

fn from_eojeols(words: &[Word<'_>]) -> Vec<Vec<Term>> {
    let mut runs = Runs::default();
    for word in words {
        if !word.joined {
            runs.end();
        }
        let (noun, ends) = match eojeol::eojeol(word.text) {
            Eojeol::Bare(noun) => (noun, false),
            Eojeol::Marked(noun) => (noun, true),
            Eojeol::Other => {
                runs.end();
                continue;
            }
        };
        let lower = noun.to_lowercase();
        if !lower.contains(is_hangul) && (english::is_stop(&lower) || lower.chars().count() < 2) {
            runs.end();
            continue;
        }
        let norm = keywords::normal_form(&lower, true);
        runs.open.push(Term {
            at: word.at..word.at + noun.len(),
            norm,
            vague: eojeol::is_vague(noun),
            heading: word.heading,
        });
        if ends {
            runs.end();
        }
    }
    runs.finish()
}

#[derive(Default)]
struct Runs {
    done: Vec<Vec<Term>>,
    open: Vec<Term>,
}

impl Runs {
    fn end(&mut self) {
        if !self.open.is_empty() {
            self.done.push(std::mem::take(&mut self.open));
        }
    }

    fn finish(mut self) -> Vec<Vec<Term>> {
        self.end();
        self.done
    }
}
