//! Texts to points: n-grams of letters, words, and a vector of meaning where there is a model for it.
//!
//! A point has three views, each of length 1. A feature is known by a hash, so that a trained classifier holds no
//! text of its examples.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::embed::Embedder;
use crate::{english, keywords, text};

/// Characters of a text that are looked at.
const CHARS_MAX: usize = 6_000;
/// The heaviest features of a text that are kept, in each view.
const FEATURES_MAX: usize = 4_000;
/// What a vector is made of: the first characters, where a text says what it is about.
const MEANING_CHARS: usize = 400;
/// Texts that get their vectors at a time.
const BATCH: usize = 64;

/// A text in the three views: letters, words, meaning.
#[derive(Clone, Debug, Default)]
pub(super) struct Point {
    pub(super) letters: Sparse,
    pub(super) words: Sparse,
    pub(super) meaning: Vec<f32>,
}

/// Numbers of features with their weights, ascending by number.
pub(super) type Sparse = Vec<(u32, f32)>;

/// What the points of a classifier are made by: the features that its examples have, and how rare they are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Space {
    letters: Vocabulary,
    words: Vocabulary,
}

/// What decides for one label.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Weights {
    letters: Vec<f32>,
    words: Vec<f32>,
    meaning: Vec<f32>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Vocabulary {
    /// Ascending.
    hashes: Vec<u64>,
    idf: Vec<f32>,
}

type Counts = HashMap<u64, f32>;

impl Space {
    /// The space of some texts. A feature of one text alone cannot tell anything and is left out.
    pub(super) fn of(texts: &[&str]) -> Self {
        let all: Vec<(Counts, Counts)> = texts.iter().map(|text| count(text)).collect();
        // With very few texts nothing is shared by two of them.
        let least = if texts.len() < 20 { 1 } else { 2 };
        Self {
            letters: Vocabulary::of(all.iter().map(|(letters, _)| letters), all.len(), least),
            words: Vocabulary::of(all.iter().map(|(_, words)| words), all.len(), least),
        }
    }

    pub(super) fn point(&self, text: &str, embedder: Option<&dyn Embedder>) -> Point {
        let (letters, words) = count(text);
        Point {
            letters: self.letters.weigh(&letters),
            words: self.words.weigh(&words),
            meaning: embedder.map(|e| meaning(text, e)).unwrap_or_default(),
        }
    }

    /// The points of many texts: their vectors are made in batches, which takes a third of the time.
    pub(super) fn points(&self, texts: &[&str], embedder: Option<&dyn Embedder>) -> Vec<Point> {
        let mut points: Vec<Point> = texts.iter().map(|text| self.point(text, None)).collect();
        if let Some(embedder) = embedder {
            let begins: Vec<&str> = texts.iter().map(|text| beginning(text)).collect();
            let vectors = begins.chunks(BATCH).flat_map(|batch| embedder.embed(batch));
            points.iter_mut().zip(vectors).for_each(|(point, vector)| point.meaning = vector);
        }
        points
    }

    pub(super) fn weights(&self, points: &[Point], share: &[f32; 3], by: impl Fn(usize) -> f32) -> Weights {
        let mut weights = Weights {
            letters: vec![0.0; self.letters.hashes.len()],
            words: vec![0.0; self.words.hashes.len()],
            meaning: vec![0.0; points.first().map_or(0, |p| p.meaning.len())],
        };
        for (i, point) in points.iter().enumerate() {
            let by = by(i);
            point.letters.iter().for_each(|(id, w)| weights.letters[*id as usize] += by * share[0] * w);
            point.words.iter().for_each(|(id, w)| weights.words[*id as usize] += by * share[1] * w);
            weights.meaning.iter_mut().zip(&point.meaning).for_each(|(sum, w)| *sum += by * share[2] * w);
        }
        weights
    }
}

impl Weights {
    pub(super) fn dot(&self, point: &Point) -> f32 {
        let sparse = |weights: &[f32], view: &Sparse| -> f32 {
            view.iter().map(|(id, w)| weights.get(*id as usize).map_or(0.0, |weight| weight * w)).sum()
        };
        let dense: f32 = self.meaning.iter().zip(&point.meaning).map(|(a, b)| a * b).sum();
        sparse(&self.letters, &point.letters) + sparse(&self.words, &point.words) + dense
    }
}

impl Vocabulary {
    fn of<'c>(texts: impl Iterator<Item = &'c Counts>, texts_len: usize, least: u32) -> Self {
        let mut frequency: HashMap<u64, u32> = HashMap::new();
        texts.flat_map(HashMap::keys).for_each(|hash| *frequency.entry(*hash).or_default() += 1);
        let mut known: Vec<(u64, u32)> = frequency.into_iter().filter(|(_, n)| *n >= least).collect();
        known.sort_unstable();
        let idf = |n: u32| ((1.0 + texts_len as f32) / (1.0 + n as f32)).ln() + 1.0;
        Self {
            hashes: known.iter().map(|(hash, _)| *hash).collect(),
            idf: known.iter().map(|(_, n)| idf(*n)).collect(),
        }
    }

    /// Damped counts times rarity, of length 1.
    fn weigh(&self, counts: &Counts) -> Sparse {
        let mut view: Sparse = counts
            .iter()
            .filter_map(|(hash, n)| {
                let id = self.hashes.binary_search(hash).ok()?;
                Some((id as u32, (1.0 + n.ln()) * self.idf[id]))
            })
            .collect();
        if view.len() > FEATURES_MAX {
            view.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            view.truncate(FEATURES_MAX);
        }
        view.sort_unstable_by_key(|(id, _)| *id);
        let length = view.iter().map(|(_, w)| w * w).sum::<f32>().sqrt();
        view.iter_mut().for_each(|(_, w)| *w /= length.max(f32::MIN_POSITIVE));
        view
    }
}

/// How often each n-gram of 2 to 4 letters within a word, and each word and pair of words, occurs.
fn count(text: &str) -> (Counts, Counts) {
    let text = text.char_indices().nth(CHARS_MAX).map_or(text, |(end, _)| &text[..end]);
    let (mut letters, mut words) = (Counts::new(), Counts::new());
    let mut padded: Vec<char> = Vec::new();
    for word in text.split_whitespace() {
        padded.clear();
        padded.push(' ');
        padded.extend(word.chars().flat_map(char::to_lowercase));
        padded.push(' ');
        for n in 2..=4 {
            padded.windows(n).for_each(|gram| *letters.entry(hash(gram.iter().copied())).or_default() += 1.0);
        }
    }
    let mut before: Option<u64> = None;
    for word in text::words(text) {
        let lower = word.text.to_lowercase();
        let norm = keywords::normal_form(&lower, false);
        if english::is_stop(&lower) {
            before = None;
            continue;
        }
        let own = hash(norm.chars());
        *words.entry(own).or_default() += 1.0;
        if let Some(before) = before.filter(|_| word.joined) {
            *words.entry(before.rotate_left(17) ^ own).or_default() += 1.0;
        }
        before = Some(own);
    }
    (letters, words)
}

/// The vector of the beginning of a text.
fn meaning(text: &str, embedder: &dyn Embedder) -> Vec<f32> {
    embedder.embed(&[beginning(text)]).pop().unwrap_or_default()
}

fn beginning(text: &str) -> &str {
    let text = text.trim();
    let end = text.char_indices().nth(MEANING_CHARS).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

/// FNV-1a over the characters: the same on every machine and in every version, because it is stored.
fn hash(chars: impl Iterator<Item = char>) -> u64 {
    chars.fold(0xcbf2_9ce4_8422_2325, |hash, c| {
        (hash ^ u64::from(u32::from(c))).wrapping_mul(0x0100_0000_01b3)
    })
}
