//! Pieces to a vector: the mean of what the pieces mean alone and in windows of two, three and five, through a
//! small network.
//!
//! The texts of a batch lie under each other with two empty rows between them, so that a window never reaches
//! into another text and each product is one of large matrices.

use std::sync::Arc;

use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, s};
use serde::Deserialize;

use crate::pack::{Pack, PackError};

pub(super) const DIMENSION: usize = 512;
const WINDOW: usize = 256;
/// Width of a window, and how many pieces before the piece itself it takes in.
const WINDOWS: [(usize, usize); 3] = [(2, 0), (3, 1), (5, 2)];
const GAP: usize = 2;
const FEATURES: usize = DIMENSION + WINDOWS.len() * WINDOW;
const BEGIN: u32 = 1;
const END: u32 = 2;

/// Names and sizes of the matrices of a pack.
const MATRICES: [(&str, usize, usize); 14] = [
    ("project", DIMENSION, 3 * WINDOW),
    ("first.2", 2 * WINDOW, WINDOW),
    ("first.3", 3 * WINDOW, WINDOW),
    ("first.5", 5 * WINDOW, WINDOW),
    ("second.2", 2 * WINDOW, WINDOW),
    ("second.3", 3 * WINDOW, WINDOW),
    ("second.5", 5 * WINDOW, WINDOW),
    ("mean", FEATURES, DIMENSION),
    ("d0", DIMENSION, 320),
    ("d1", 320, 320),
    ("p1", DIMENSION, 320),
    ("d2", 320, DIMENSION),
    ("p3", 320, DIMENSION),
    ("d3", DIMENSION, DIMENSION),
];

/// Names and sizes of the vectors of a pack.
const VECTORS: [(&str, usize); 12] = [
    ("project.bias", 3 * WINDOW),
    ("project.gain", 3 * WINDOW),
    ("project.shift", 3 * WINDOW),
    ("first.2.bias", WINDOW),
    ("first.3.bias", WINDOW),
    ("first.5.bias", WINDOW),
    ("second.2.bias", WINDOW),
    ("second.3.bias", WINDOW),
    ("second.5.bias", WINDOW),
    ("features.gain", FEATURES),
    ("features.shift", FEATURES),
    ("mean.bias", DIMENSION),
];

pub(super) struct Network {
    pack: Arc<Pack>,
    epsilon: f32,
}

#[derive(Deserialize)]
struct Facts {
    epsilon: f32,
}

impl Network {
    pub(super) fn new(pack: Arc<Pack>) -> Result<Self, PackError> {
        let right = MATRICES.iter().all(|(name, rows, cols)| pack.numbers::<f32>(name).len() == rows * cols)
            && VECTORS.iter().all(|(name, length)| pack.numbers::<f32>(name).len() == *length)
            && !pack.numbers::<f32>("table.scale").is_empty()
            && pack.numbers::<f32>("table.scale").len() == pack.numbers::<f32>("table.least").len()
            && pack.section("table").len() >= DIMENSION;
        if !right {
            return Err(PackError::Malformed);
        }
        let Facts { epsilon } = pack.facts()?;
        Ok(Self { pack, epsilon })
    }

    fn matrix(&self, name: &str) -> ArrayView2<'_, f32> {
        let size = MATRICES.iter().find(|(matrix, ..)| *matrix == name).map_or((0, 0), |(_, r, c)| (*r, *c));
        ArrayView2::from_shape(size, self.pack.numbers(name))
            .expect("its size was checked when it was opened")
    }

    fn vector(&self, name: &str) -> ArrayView1<'_, f32> {
        ArrayView1::from(self.pack.numbers(name))
    }

    /// A vector of length 1 for each text.
    pub(super) fn run(&self, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
        if texts.is_empty() {
            return Vec::new();
        }
        let texts: Vec<Vec<u32>> = texts.iter().map(|t| [&[BEGIN], &t[..], &[END]].concat()).collect();
        let places = places(&texts);
        let rows = places.last().map_or(GAP, |(start, length)| start + length + GAP);
        let mut features = Array2::<f32>::zeros((rows, FEATURES));
        for (text, (start, _)) in texts.iter().zip(&places) {
            for (i, piece) in text.iter().enumerate() {
                let row = features.slice_mut(s![start + i, ..DIMENSION]);
                self.look_up(*piece, row.into_slice().expect("a row lies in one piece"));
            }
        }
        let mut projected = features.slice(s![.., ..DIMENSION]).dot(&self.matrix("project"));
        projected += &self.vector("project.bias");
        self.normalise(&mut projected, "project");
        empty_gaps(&mut projected, &places);
        for (i, (width, before)) in WINDOWS.into_iter().enumerate() {
            let alone = projected.slice(s![.., i * WINDOW..(i + 1) * WINDOW]).to_owned();
            let mut first = self.window(&alone, &format!("first.{width}"), width, before);
            empty_gaps(&mut first, &places);
            let second = self.window(&first, &format!("second.{width}"), width, before);
            let from = DIMENSION + i * WINDOW;
            features.slice_mut(s![.., from..from + WINDOW]).assign(&second);
        }
        self.normalise(&mut features, "features");
        self.finish(&features, &places)
    }

    /// What a piece means alone. The table holds six bits a number; pieces are spread over parts of it, each
    /// with a scale of its own.
    fn look_up(&self, piece: u32, row: &mut [f32]) {
        let (scales, least) =
            (self.pack.numbers::<f32>("table.scale"), self.pack.numbers::<f32>("table.least"));
        let part = piece as usize % scales.len();
        let from = piece as usize * DIMENSION;
        let numbers = self.pack.section("table").get(from..from + DIMENSION).unwrap_or_default();
        row.iter_mut().zip(numbers).for_each(|(to, n)| *to = f32::from(*n) * scales[part] + least[part]);
    }

    /// Each row with its neighbours: added to it is what is positive of their product with the weights.
    fn window(&self, rows: &Array2<f32>, name: &str, width: usize, before: usize) -> Array2<f32> {
        let weights = self.matrix(name);
        let length = rows.nrows();
        let mut out = Array2::<f32>::zeros(rows.raw_dim());
        for k in 0..width {
            // The neighbour `k` of row `r` is row `r + k - before`; the gaps at both ends hold what is left over.
            let (to, from) = (before.saturating_sub(k), k.saturating_sub(before));
            let shared = length - to.max(from);
            let part = weights.slice(s![k * WINDOW..(k + 1) * WINDOW, ..]);
            let mut target = out.slice_mut(s![to..to + shared, ..]);
            general_mat_mul(1.0, &rows.slice(s![from..from + shared, ..]), &part, 1.0, &mut target);
        }
        out += &self.vector(&format!("{name}.bias"));
        out.zip_mut_with(rows, |sum, own| *sum = sum.max(0.0) + own);
        out
    }

    /// Each row to mean 0 and variance 1, then by gain and shift.
    fn normalise(&self, rows: &mut Array2<f32>, name: &str) {
        let (gain, shift) =
            (self.pack.numbers::<f32>(&format!("{name}.gain")), self.vector(&format!("{name}.shift")));
        for mut row in rows.axis_iter_mut(Axis(0)) {
            let mean = row.mean().unwrap_or_default();
            row -= mean;
            let variance = row.dot(&row) / row.len() as f32;
            let scale = (variance + self.epsilon).sqrt().recip();
            row.iter_mut().zip(gain).zip(shift).for_each(|((v, gain), shift)| *v = *v * scale * gain + shift);
        }
    }

    fn finish(&self, features: &Array2<f32>, places: &[(usize, usize)]) -> Vec<Vec<f32>> {
        let mut sums = Array2::<f32>::zeros((places.len(), FEATURES));
        for (mut sum, (start, length)) in sums.axis_iter_mut(Axis(0)).zip(places) {
            sum += &features.slice(s![*start..start + length, ..]).sum_axis(Axis(0));
        }
        let lengths: Array1<f32> = places.iter().map(|(_, length)| *length as f32).collect();
        let lengths = lengths.insert_axis(Axis(1));
        // The mean over the root of the length, so that a long text is not quieter than a short one.
        let mean =
            (sums.dot(&self.matrix("mean")) + &lengths * &self.vector("mean.bias")) / lengths.mapv(f32::sqrt);
        let positive = |mut matrix: Array2<f32>| {
            matrix.mapv_inplace(|v| v.max(0.0));
            matrix
        };
        let y0 = positive(mean.dot(&self.matrix("d0")));
        let y1 = positive(mean.dot(&self.matrix("p1")) + y0.dot(&self.matrix("d1")));
        let y2 = positive(y1.dot(&self.matrix("d2")));
        let mut out = y1.dot(&self.matrix("p3")) + y2.dot(&self.matrix("d3"));
        out.mapv_inplace(f32::tanh);
        for mut row in out.axis_iter_mut(Axis(0)) {
            let length = row.dot(&row).max(self.epsilon).sqrt();
            row /= length;
        }
        out.axis_iter(Axis(0)).map(|row| row.to_vec()).collect()
    }
}

/// Where each text begins, and how many rows it has.
fn places(texts: &[Vec<u32>]) -> Vec<(usize, usize)> {
    let mut at = GAP;
    let mut place = |text: &Vec<u32>| {
        let start = at;
        at += text.len() + GAP;
        (start, text.len())
    };
    texts.iter().map(&mut place).collect()
}

fn empty_gaps(rows: &mut Array2<f32>, places: &[(usize, usize)]) {
    rows.slice_mut(s![..GAP, ..]).fill(0.0);
    for (start, length) in places {
        rows.slice_mut(s![start + length..start + length + GAP, ..]).fill(0.0);
    }
}
