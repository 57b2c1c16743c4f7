//! Which of some labels a text belongs to, learnt from examples or told by the labels' own descriptions.
//!
//! | examples a label | decided by | [`By`] |
//! |---|---|---|
//! | 4 or more | logistic regression on n-grams, words and, with a model, vectors; blended by cross-validation | `Model` |
//! | 1 to 3 | nearness to the examples' centre and to the label's description | `Examples` |
//! | none | the label's description alone | `LabelText` |
//!
//! Every answer says by what it was decided and how sure it is. Under a threshold it is `unsure`: the label is then
//! a proposal. The threshold is chosen on the examples, never on what is asked.

pub mod builtin;
mod example;
mod feature;
mod regress;
mod train;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use example::{Example, Label};
pub use train::{CrossValidation, LabelFigures, TrainError};

use crate::embed::Embedder;
use feature::Space;

/// By what a class was decided, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    Model,
    Examples,
    LabelText,
}

impl By {
    /// `model`, `examples` or `label-text`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Examples => "examples",
            Self::LabelText => "label-text",
        }
    }
}

/// The answer for a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    pub label: String,
    /// 0 to 1.
    pub confidence: f64,
    /// How far the best is before the second, 0 to 1.
    pub margin: f64,
    pub by: By,
    /// The label is a proposal only.
    pub unsure: bool,
    /// For every label, together 1.
    pub scores: BTreeMap<String, f64>,
}

/// Decides between the labels it was made for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Classifier {
    labels: Vec<String>,
    by: By,
    /// Under this confidence an answer is unsure.
    threshold: f64,
    space: Space,
    /// The model of the vectors it was trained with, if it was.
    embedder: Option<String>,
    /// A row for each label.
    weights: Vec<feature::Weights>,
    /// What scores are multiplied with before they become shares.
    scale: f32,
    pub validation: Option<CrossValidation>,
}

impl Classifier {
    /// Learns from examples; labels may have a description each, and those without an example need one.
    ///
    /// # Errors
    /// [`TrainError`] where there is nothing to decide between or too much to learn from.
    pub fn train(
        labels: &[Label],
        examples: &[Example],
        embedder: Option<&dyn Embedder>,
    ) -> Result<Self, TrainError> {
        train::train(labels, examples, embedder)
    }

    /// The class of a text. `embedder` must be the one it was trained with; another one is not used.
    pub fn classify(&self, text: &str, embedder: Option<&dyn Embedder>) -> Class {
        let embedder = embedder.filter(|e| self.embedder.as_deref() == Some(e.id()));
        let point = self.space.point(text, embedder);
        let scores: Vec<f32> = self.weights.iter().map(|w| self.scale * w.dot(&point)).collect();
        self.answer(&regress::softmax(&scores))
    }

    /// What it decides between.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// By what it decides.
    pub fn by(&self) -> By {
        self.by
    }

    fn answer(&self, shares: &[f32]) -> Class {
        answer(&self.labels, shares, self.by, self.threshold)
    }
}

fn answer(labels: &[String], shares: &[f32], by: By, threshold: f64) -> Class {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
    let share = |rank: usize| order.get(rank).map_or(0.0, |&i| f64::from(shares[i]));
    Class {
        label: order.first().map(|&i| labels[i].clone()).unwrap_or_default(),
        confidence: share(0),
        margin: share(0) - share(1),
        by,
        unsure: share(0) < threshold,
        scores: labels.iter().cloned().zip(shares.iter().map(|s| f64::from(*s))).collect(),
    }
}
