//! Runs of terms that can stand together in a keyword.

use std::ops::Range;

use crate::korean::eojeol::{self, Eojeol};
use crate::korean::{Dictionary, is_hangul};
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
pub(super) fn runs(text: &str, korean: bool, dictionary: Option<&Dictionary>) -> Vec<Vec<Term>> {
    let words = text::words(text);
    match dictionary {
        Some(dictionary) if korean => from_morphemes(text, &words, dictionary),
        None if korean => from_eojeols(&words),
        _ => from_words(&words),
    }
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

/// A word of a run is what is written together of nouns, so that 데이터베이스 관리 has two whatever the dictionary
/// cuts them into.
fn from_morphemes(text: &str, words: &[Word<'_>], dictionary: &Dictionary) -> Vec<Vec<Term>> {
    let morphemes = dictionary.morphemes(text);
    let mut morphemes = morphemes.iter().peekable();
    let mut runs = Runs::default();
    for word in words {
        while morphemes.next_if(|m| m.start < word.at).is_some() {}
        if !word.joined {
            runs.end();
        }
        let mut open: Option<(Range<usize>, bool)> = None;
        while let Some(m) = morphemes.next_if(|m| m.start < word.end()) {
            let part = part_of(m.tag);
            let begins = matches!(part, Part::Noun | Part::Prefix | Part::Number);
            match (part, &mut open) {
                (Part::Mark, _) => {}
                (Part::Noun | Part::Prefix | Part::Number | Part::Suffix, Some((at, noun))) => {
                    at.end = m.end;
                    *noun |= part == Part::Noun;
                }
                (_, open @ None) if begins => *open = Some((m.start..m.end, part == Part::Noun)),
                _ => {
                    close(&mut runs, text, word, open.take());
                    runs.end();
                }
            }
        }
        close(&mut runs, text, word, open.take());
    }
    runs.finish()
}

/// What a morpheme does in a phrase of nouns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Noun,
    Prefix,
    Suffix,
    Number,
    /// A hyphen or a dot within a word.
    Mark,
    Other,
}

fn part_of(tag: &str) -> Part {
    match tag {
        "NNG" | "NNP" | "SL" | "SH" | "XR" => Part::Noun,
        "XPN" => Part::Prefix,
        "XSN" => Part::Suffix,
        "SN" => Part::Number,
        "SY" => Part::Mark,
        _ => Part::Other,
    }
}

fn close(runs: &mut Runs, text: &str, word: &Word<'_>, open: Option<(Range<usize>, bool)>) {
    let Some((at, noun)) = open else { return };
    let lower = text[at.clone()].to_lowercase();
    let (latin, single) = (!lower.contains(is_hangul), lower.chars().count() < 2);
    let vague = eojeol::is_vague(&lower);
    if !noun || (single && (vague || latin)) || (latin && english::is_stop(&lower)) {
        runs.end();
        return;
    }
    let norm = keywords::normal_form(&lower, true);
    // One syllable names a thing only together with others.
    let vague = vague || single;
    runs.open.push(Term { at, norm, vague, heading: word.heading });
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
