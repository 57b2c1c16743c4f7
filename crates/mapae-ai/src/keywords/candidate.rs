//! Runs of terms that can stand together in a keyword.

use std::ops::Range;

use crate::korean::eojeol::{self, Eojeol};
use crate::korean::{Dictionary, Morpheme, is_hangul};
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
/// Korean nouns are cut by particles and endings also where there is a dictionary, which then only says of each
/// whether it is one: what it cuts a compound into is less often what people call a thing.
pub(super) fn runs(text: &str, korean: bool, dictionary: Option<&Dictionary>) -> Vec<Vec<Term>> {
    let words = text::words(text);
    if !korean {
        return from_words(&words);
    }
    from_eojeols(&words, dictionary.map(|dictionary| dictionary.morphemes(text)).as_deref())
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

/// `morphemes`: those of the text, where they are known.
fn from_eojeols(words: &[Word<'_>], morphemes: Option<&[Morpheme<'_>]>) -> Vec<Vec<Term>> {
    let mut runs = Runs::default();
    let mut at = 0;
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
        if let Some(morphemes) = morphemes {
            at += morphemes[at..].partition_point(|m| m.start < word.at);
            let within = morphemes[at..].iter().take_while(|m| m.start < word.at + noun.len());
            if !within.map(|m| m.tag).any(is_noun) {
                runs.end();
                continue;
            }
        }
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

/// Whether a part of speech can carry a name: nouns, roots, foreign words, Chinese characters.
fn is_noun(tag: &str) -> bool {
    matches!(tag.split('+').next(), Some("NNG" | "NNP" | "XR" | "SL" | "SH" | "UNKNOWN"))
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
