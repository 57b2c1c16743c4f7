//! A text to the pieces of words that the network knows: the likeliest way to cut it, where each piece has a
//! probability of its own (SentencePiece's unigram model).

use std::sync::Arc;

use fst::raw::Fst;

use super::normal::Normal;
use crate::pack::{Pack, PackError, Section};

/// The number of what is not known.
const UNKNOWN: u32 = 0;
/// How much less likely than the rarest piece something unknown is.
const UNKNOWN_PENALTY: f64 = 10.0;

pub(super) struct Pieces {
    pack: Arc<Pack>,
    /// Pieces to their numbers.
    known: Fst<Section>,
    normal: Normal,
    unknown: f64,
}

impl Pieces {
    pub(super) fn new(pack: Arc<Pack>) -> Result<Self, PackError> {
        let known = Fst::new(Section::new(pack.clone(), "pieces")).map_err(|_| PackError::Malformed)?;
        let scores: &[f32] = pack.numbers("pieces.scores");
        let least = scores.iter().copied().reduce(f32::min).ok_or(PackError::Malformed)?;
        let normal = Normal::new(pack.clone())?;
        Ok(Self { known, normal, unknown: f64::from(least) - UNKNOWN_PENALTY, pack })
    }

    /// The pieces of the likeliest way to cut the text; of equal ones that whose last piece begins first.
    pub(super) fn of(&self, text: &str) -> Vec<u32> {
        let text = self.normal.of(text);
        let scores: &[f32] = self.pack.numbers("pieces.scores");
        // For each byte: the score of the best way there, where its last piece begins, and that piece.
        let mut best: Vec<(f64, usize, u32)> = vec![(f64::NEG_INFINITY, 0, UNKNOWN); text.len() + 1];
        best[0].0 = 0.0;
        for (start, first) in text.char_indices() {
            let before = best[start].0;
            let mut reach = |end: usize, score: f64, piece: u32| {
                if before + score > best[end].0 {
                    best[end] = (before + score, start, piece);
                }
            };
            let mut single = false;
            let mut node = self.known.root();
            let mut value = fst::raw::Output::zero();
            for (i, byte) in text.as_bytes()[start..].iter().enumerate() {
                let Some(next) = node.find_input(*byte) else { break };
                let step = node.transition(next);
                value = value.cat(step.out);
                node = self.known.node(step.addr);
                if node.is_final() {
                    let piece = value.cat(node.final_output()).value() as u32;
                    let end = start + i + 1;
                    single |= end == start + first.len_utf8();
                    reach(end, f64::from(scores.get(piece as usize).copied().unwrap_or_default()), piece);
                }
            }
            if !single {
                reach(start + first.len_utf8(), self.unknown, UNKNOWN);
            }
        }
        let mut pieces = Vec::new();
        let mut end = text.len();
        while end > 0 {
            pieces.push(best[end].2);
            end = best[end].1;
        }
        pieces.reverse();
        if pieces.is_empty() { vec![UNKNOWN] } else { pieces }
    }
}
