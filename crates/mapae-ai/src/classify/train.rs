//! Examples to a classifier: what to look at, and how strictly, is chosen by cross-validation on the examples.

use ndarray::{Array2, Axis};
use serde::{Deserialize, Serialize};

use super::feature::{Point, Space, Sparse};
use super::{By, Classifier, Example, Label, regress};
use crate::embed::Embedder;

/// Examples of one training: likeness is kept for every pair of them.
const EXAMPLES_MAX: usize = 2_000;
const LABELS_MAX: usize = 100;
/// Examples of every label from which a model is trained.
const EXAMPLES_MODEL: usize = 4;
const FOLDS: usize = 5;
/// An answer is sure where answers as confident as it were right this often.
const SURE: f64 = 0.9;

/// What may be given most weight: shares of letters, words and meaning.
const BLENDS: [[f32; 3]; 8] = [
    [1.0, 0.0, 0.0],
    [0.0, 1.0, 0.0],
    [0.5, 0.5, 0.0],
    [0.0, 0.0, 1.0],
    [0.4, 0.0, 0.6],
    [0.3, 0.3, 0.4],
    [0.2, 0.2, 0.6],
    [0.1, 0.1, 0.8],
];
/// How freely a fit may follow its examples.
const STRENGTH: f32 = 20.0;
const STRENGTHS: [f32; 3] = [5.0, 80.0, 320.0];

/// Why nothing could be learnt.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TrainError {
    #[error("there are fewer than two labels: give at least two")]
    NothingToDecide,
    #[error("there are {0} labels: at most {LABELS_MAX} can be told apart")]
    TooManyLabels(usize),
    #[error("there are {0} examples: give at most {EXAMPLES_MAX}")]
    TooManyExamples(usize),
    #[error("the label number {0} has neither an example nor a description: give one of them")]
    NothingKnown(usize),
}

impl TrainError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NothingToDecide => "labels-too-few",
            Self::TooManyLabels(_) => "labels-too-many",
            Self::TooManyExamples(_) => "examples-too-many",
            Self::NothingKnown(_) => "label-unknown",
        }
    }
}

/// How well a classifier answered for examples that it had not seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossValidation {
    pub examples: usize,
    /// 0 to 1.
    pub accuracy: f64,
    /// The mean over labels, 0 to 1.
    pub macro_f1: f64,
    /// Shares of letters, words and meaning.
    pub blend: [f32; 3],
    pub strength: f32,
    /// Of the answers that were not `unsure`, 0 to 1.
    pub accuracy_when_sure: f64,
    /// Answers that were not `unsure`, 0 to 1.
    pub sure: f64,
    /// In the order of the classifier's labels.
    pub labels: Vec<LabelFigures>,
}

/// How the answers about one label were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelFigures {
    pub label: String,
    /// That are of it.
    pub examples: usize,
    /// Answers that named it.
    pub told: usize,
    /// Of those, the ones that were right.
    pub right: usize,
}

pub(super) fn train(
    labels: &[Label],
    examples: &[Example],
    embedder: Option<&dyn Embedder>,
) -> Result<Classifier, TrainError> {
    let labels = all_labels(labels, examples);
    check(&labels, examples)?;
    let mine: Vec<usize> =
        examples.iter().filter_map(|e| labels.iter().position(|l| l.name == e.label)).collect();
    let per_label = |label: usize| mine.iter().filter(|l| **l == label).count();
    if (0..labels.len()).all(|label| per_label(label) >= EXAMPLES_MODEL) {
        return Ok(model(labels, examples, &mine, embedder));
    }
    Ok(nearest(labels, examples, &mine, embedder))
}

/// The labels that were named, and those that only examples name.
fn all_labels(labels: &[Label], examples: &[Example]) -> Vec<Label> {
    let mut all = labels.to_vec();
    for example in examples {
        if all.len() <= LABELS_MAX && !all.iter().any(|label| label.name == example.label) {
            all.push(Label { name: example.label.clone(), description: String::new() });
        }
    }
    all
}

fn check(labels: &[Label], examples: &[Example]) -> Result<(), TrainError> {
    if labels.len() < 2 {
        return Err(TrainError::NothingToDecide);
    }
    if labels.len() > LABELS_MAX {
        return Err(TrainError::TooManyLabels(labels.len()));
    }
    if examples.len() > EXAMPLES_MAX {
        return Err(TrainError::TooManyExamples(examples.len()));
    }
    let known = |label: &Label| {
        !label.description.trim().is_empty() || examples.iter().any(|e| e.label == label.name)
    };
    match labels.iter().position(|label| !known(label)) {
        Some(label) => Err(TrainError::NothingKnown(label + 1)),
        None => Ok(()),
    }
}

/// A way to fit, and how it answered for examples that it had not seen.
struct Tried {
    /// Wrong answers, and the mean loss.
    found: (usize, f64),
    blend: [f32; 3],
    strength: f32,
    shares: Array2<f32>,
}

fn model(
    labels: Vec<Label>,
    examples: &[Example],
    mine: &[usize],
    embedder: Option<&dyn Embedder>,
) -> Classifier {
    let texts: Vec<&str> = examples.iter().map(|example| example.text.as_str()).collect();
    let space = Space::of(&texts);
    let points = space.points(&texts, embedder);
    let views = [
        sparse_likeness(points.iter().map(|p| &p.letters)),
        sparse_likeness(points.iter().map(|p| &p.words)),
        dense_likeness(&points),
    ];
    let attempt = |blend: [f32; 3], strength: f32| {
        let shares = out_of_fold(&blended(&views, &blend), mine, labels.len(), strength);
        let wrong = (0..mine.len()).filter(|i| top(&shares, *i).0 != mine[*i]).count();
        Tried { found: (wrong, loss(&shares, mine)), blend, strength, shares }
    };
    // What was right most often, and of equals what was least sure of what is wrong. First what to look at, then how
    // strictly: trying every pair would take twice the time.
    let better = |a: Tried, b: Tried| if b.found < a.found { b } else { a };
    let blends = BLENDS.into_iter().filter(|blend| embedder.is_some() || blend[2] == 0.0);
    let best = blends.map(|blend| attempt(blend, STRENGTH)).reduce(better);
    let best = best.expect("there is always the blend of letters alone");
    let blend = best.blend;
    let best = STRENGTHS.into_iter().map(|strength| attempt(blend, strength)).fold(best, better);
    let Tried { blend, strength, shares, .. } = best;
    let fitted = regress::fit(&blended(&views, &blend).view(), mine, labels.len(), strength);
    let weights =
        (0..labels.len()).map(|label| space.weights(&points, &blend, |i| fitted[[i, label]])).collect();
    let threshold = threshold(&shares, mine);
    Classifier {
        validation: Some(validation(&shares, mine, &labels, threshold, blend, strength)),
        labels: labels.into_iter().map(|label| label.name).collect(),
        by: By::Model,
        threshold,
        space,
        embedder: embedder.map(|e| e.id().to_owned()),
        weights,
        scale: 1.0,
    }
}

/// The centre of a label's examples and its description.
fn nearest(
    labels: Vec<Label>,
    examples: &[Example],
    mine: &[usize],
    embedder: Option<&dyn Embedder>,
) -> Classifier {
    // What little there is to learn from also says which features there are.
    let mut texts: Vec<&str> = examples.iter().map(|example| example.text.as_str()).collect();
    let mut of: Vec<usize> = mine.to_vec();
    for (number, label) in labels.iter().enumerate() {
        texts.push(&label.name);
        texts.push(&label.description);
        of.extend([number, number]);
    }
    let space = Space::of(&texts);
    let points = space.points(&texts, embedder);
    let blend = if embedder.is_some() { [0.2, 0.2, 0.6] } else { [0.5, 0.5, 0.0] };
    let count = |label: usize| of.iter().filter(|l| **l == label).count() as f32;
    let weights = (0..labels.len())
        .map(|label| {
            let each = 1.0 / count(label);
            space.weights(&points, &blend, |i| if of[i] == label { each } else { 0.0 })
        })
        .collect();
    let by = if examples.is_empty() { By::LabelText } else { By::Examples };
    Classifier {
        labels: labels.into_iter().map(|label| label.name).collect(),
        by,
        // Chosen so that an answer needs to stand out clearly: nothing was learnt that could say more.
        threshold: if by == By::Examples { 0.5 } else { 0.6 },
        space,
        embedder: embedder.map(|e| e.id().to_owned()),
        weights,
        scale: 20.0,
        validation: None,
    }
}

fn sparse_likeness<'p>(views: impl Iterator<Item = &'p Sparse>) -> Array2<f32> {
    let views: Vec<&Sparse> = views.collect();
    let width = views.iter().flat_map(|v| v.last()).map(|(id, _)| *id as usize + 1).max().unwrap_or(0);
    let mut likeness = Array2::zeros((views.len(), views.len()));
    let mut spread = vec![0.0f32; width];
    for (i, view) in views.iter().enumerate() {
        view.iter().for_each(|(id, w)| spread[*id as usize] = *w);
        for (j, other) in views.iter().enumerate().take(i + 1) {
            let dot: f32 = other.iter().map(|(id, w)| spread[*id as usize] * w).sum();
            likeness[[i, j]] = dot;
            likeness[[j, i]] = dot;
        }
        view.iter().for_each(|(id, _)| spread[*id as usize] = 0.0);
    }
    likeness
}

fn dense_likeness(points: &[Point]) -> Array2<f32> {
    let width = points.first().map_or(0, |p| p.meaning.len());
    let mut all = Array2::<f32>::zeros((points.len(), width));
    for (mut row, point) in all.axis_iter_mut(Axis(0)).zip(points) {
        row.iter_mut().zip(&point.meaning).for_each(|(to, from)| *to = *from);
    }
    all.dot(&all.t())
}

fn blended(views: &[Array2<f32>; 3], blend: &[f32; 3]) -> Array2<f32> {
    &views[0] * blend[0] + &views[1] * blend[1] + &views[2] * blend[2]
}

/// The shares of each example, from a fit that had not seen it.
fn out_of_fold(likeness: &Array2<f32>, labels: &[usize], count: usize, strength: f32) -> Array2<f32> {
    let fold = folds(labels, count);
    let mut shares = Array2::zeros((labels.len(), count));
    for held in 0..FOLDS {
        let (seen, unseen): (Vec<usize>, Vec<usize>) = (0..labels.len()).partition(|i| fold[*i] != held);
        if unseen.is_empty() {
            continue;
        }
        let mine: Vec<usize> = seen.iter().map(|i| labels[*i]).collect();
        let rows = likeness.select(Axis(0), &seen);
        let fitted = regress::fit(&rows.select(Axis(1), &seen).view(), &mine, count, strength);
        let scores = rows.select(Axis(1), &unseen).t().dot(&fitted);
        for (row, i) in scores.axis_iter(Axis(0)).zip(&unseen) {
            let row = regress::softmax(&row.to_vec());
            shares.row_mut(*i).iter_mut().zip(row).for_each(|(to, from)| *to = from);
        }
    }
    shares
}

/// Each label's examples dealt out in turn.
fn folds(labels: &[usize], count: usize) -> Vec<usize> {
    let mut next: Vec<usize> = (0..count).collect();
    let mut deal = |label: &usize| {
        next[*label] += 1;
        next[*label] % FOLDS
    };
    labels.iter().map(&mut deal).collect()
}

fn loss(shares: &Array2<f32>, labels: &[usize]) -> f64 {
    let each = labels.iter().enumerate().map(|(i, label)| -f64::from(shares[[i, *label]].max(1e-6)).ln());
    each.sum::<f64>() / labels.len() as f64
}

/// The label with the largest share, and that share.
fn top(shares: &Array2<f32>, row: usize) -> (usize, f64) {
    let shares = shares.row(row);
    let best = (0..shares.len()).max_by(|a, b| shares[*a].total_cmp(&shares[*b]).then(b.cmp(a))).unwrap_or(0);
    (best, f64::from(shares[best]))
}

/// The least confidence from which on answers were right often enough.
fn threshold(shares: &Array2<f32>, labels: &[usize]) -> f64 {
    let mut answers: Vec<(f64, bool)> =
        labels.iter().enumerate().map(|(i, label)| (top(shares, i).1, top(shares, i).0 == *label)).collect();
    answers.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut right, mut threshold) = (0.0, 1.0);
    for (n, (confidence, is_right)) in answers.iter().enumerate() {
        right += f64::from(u8::from(*is_right));
        if right / (n + 1) as f64 >= SURE {
            threshold = *confidence;
        }
    }
    threshold
}

fn validation(
    shares: &Array2<f32>,
    labels: &[usize],
    names: &[Label],
    threshold: f64,
    blend: [f32; 3],
    strength: f32,
) -> CrossValidation {
    let answers: Vec<(usize, f64)> = (0..labels.len()).map(|i| top(shares, i)).collect();
    let right = |i: &usize| answers[*i].0 == labels[*i];
    let all: Vec<usize> = (0..labels.len()).collect();
    let sure: Vec<usize> = all.iter().copied().filter(|i| answers[*i].1 >= threshold).collect();
    let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
    let figures = |(label, name): (usize, &Label)| LabelFigures {
        label: name.name.clone(),
        examples: labels.iter().filter(|l| **l == label).count(),
        told: answers.iter().filter(|(answer, _)| *answer == label).count(),
        right: all.iter().filter(|i| right(i) && labels[**i] == label).count(),
    };
    let figures: Vec<LabelFigures> = names.iter().enumerate().map(figures).collect();
    let f1 = figures.iter().map(|of| share(2 * of.right, of.told + of.examples)).sum::<f64>();
    CrossValidation {
        examples: labels.len(),
        accuracy: share(all.iter().filter(|i| right(i)).count(), all.len()),
        macro_f1: f1 / names.len().max(1) as f64,
        blend,
        strength,
        accuracy_when_sure: share(sure.iter().filter(|i| right(i)).count(), sure.len()),
        sure: share(sure.len(), all.len()),
        labels: figures,
    }
}
