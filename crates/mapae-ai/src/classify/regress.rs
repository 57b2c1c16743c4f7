//! Logistic regression over the likeness of examples.
//!
//! With some hundred examples and a hundred thousand features the examples are the small side: what is fitted is
//! one number for each example and label, and what is needed of the features is only how alike two examples are.
//! The result is exactly that of the usual form with a squared penalty.

use ndarray::{Array1, Array2, ArrayView2, Axis};

/// Steps of a fit, at most.
const STEPS_MAX: usize = 300;
/// A fit is done where no number would move by more than this.
const ENOUGH: f32 = 2e-3;

/// What each example (row) says for each label (column): the score of a text for a label is the sum of its
/// likeness to each example times these.
pub(super) fn fit(likeness: &ArrayView2<f32>, labels: &[usize], count: usize, strength: f32) -> Array2<f32> {
    let n = labels.len();
    let mut truth = Array2::<f32>::zeros((n, count));
    labels.iter().enumerate().for_each(|(i, label)| truth[[i, *label]] = 1.0);
    let step = 1.0 / (0.5 * largest_eigenvalue(likeness) + 1.0 / strength);
    let (mut now, mut ahead) = (Array2::<f32>::zeros((n, count)), Array2::<f32>::zeros((n, count)));
    let mut momentum = 1.0f32;
    for _ in 0..STEPS_MAX {
        let mut slope = likeness.dot(&ahead);
        slope.axis_iter_mut(Axis(0)).for_each(|mut row| {
            let shares = softmax(&row.to_vec());
            row.iter_mut().zip(shares).for_each(|(value, share)| *value = share);
        });
        slope = slope - &truth + &ahead / strength;
        let next = &ahead - &(&slope * step);
        if slope.iter().all(|s| s.abs() < ENOUGH) {
            return next;
        }
        // Accelerated descent: the next step begins further on in the direction of the last one.
        let grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
        ahead = &next + &((&next - &now) * ((momentum - 1.0) / grown));
        (now, momentum) = (next, grown);
    }
    now
}

/// By how much the likeness stretches what it stretches most.
fn largest_eigenvalue(likeness: &ArrayView2<f32>) -> f32 {
    let n = likeness.nrows();
    let mut vector = Array1::<f32>::from_elem(n, 1.0 / (n.max(1) as f32).sqrt());
    let mut value = 1.0;
    for _ in 0..12 {
        let next = likeness.dot(&vector);
        value = next.dot(&next).sqrt().max(f32::MIN_POSITIVE);
        vector = next / value;
    }
    // The iteration comes from below.
    value * 1.05
}

/// Scores to shares that sum to 1.
pub(super) fn softmax(scores: &[f32]) -> Vec<f32> {
    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut shares: Vec<f32> = scores.iter().map(|s| (s - top).exp()).collect();
    let sum: f32 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}
