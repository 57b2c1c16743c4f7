//! Intents that ask the same become one.

use std::collections::HashMap;

use super::Intent;
use crate::embed::{Embedder, cosine};
use crate::keywords::normal_form;

/// Vectors from which on two questions ask the same.
const SAME: f32 = 0.95;

pub(super) fn near_duplicates(found: Vec<Intent>, embedder: Option<&dyn Embedder>) -> Vec<Intent> {
    let questions: Vec<&str> =
        found.iter().map(|i| i.utterances.first().map_or("", String::as_str)).collect();
    let vectors = embedder.map(|embedder| embedder.embed(&questions)).unwrap_or_default();
    let mut kept: Vec<(Intent, usize)> = Vec::new();
    let mut by_question: HashMap<String, usize> = HashMap::new();
    let mut by_answer: HashMap<String, usize> = HashMap::new();
    for (number, intent) in found.into_iter().enumerate() {
        let question = normal_form(intent.utterances.first().map_or("", String::as_str), true);
        let answer = normal_form(&intent.answer, true);
        let alike = |(_, other): &(Intent, usize)| match (vectors.get(number), vectors.get(*other)) {
            (Some(a), Some(b)) => cosine(a, b) >= SAME,
            _ => false,
        };
        let same = by_question.get(&question).or_else(|| by_answer.get(&answer)).copied();
        match same.or_else(|| kept.iter().position(alike)) {
            Some(first) => {
                let utterances = &mut kept[first].0.utterances;
                let new = |u: &String| {
                    !utterances.iter().any(|known| normal_form(known, true) == normal_form(u, true))
                };
                let new: Vec<String> = intent.utterances.into_iter().filter(new).collect();
                utterances.extend(new);
            }
            None => {
                by_question.insert(question, kept.len());
                by_answer.insert(answer, kept.len());
                kept.push((intent, number));
            }
        }
    }
    kept.into_iter().map(|(intent, _)| intent).collect()
}
