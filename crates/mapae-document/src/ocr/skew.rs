//! How far the lines of a picture fall, and the picture with them level.
//!
//! Seen along its lines a page of text is dark and white in turns; seen at any other angle it is grey. So the angle
//! is looked for at which the edges under the ink pile up most on few rows, or on few columns of a page that lies on
//! its side.

use super::picture::{INK, Picture};

/// Pixels of the picture in one that is looked at, along each side.
const COARSE: u32 = 3;
/// Steepest lines that count as skewed, and the steps in which they are looked for, as slopes.
const SLOPE_MAX: f64 = 0.12;
const STEP: f64 = 0.004;
const FINE: f64 = 0.0005;
/// Lines that fall less are level: half a line over the width of a page is never reached.
const SLOPE_MIN: f64 = 0.0015;
/// How much more piled up than a level one a skewed view has to be: a drawing without lines has no angle.
const CLEARLY: f64 = 1.05;
/// Edges looked at; a page of text has some ten thousand.
const EDGES_MAX: usize = 200_000;
/// Edges that say anything.
const EDGES_MIN: usize = 200;

/// How far lines fall for each pixel they go on; 0 where it cannot be told.
pub(super) fn slope(picture: &Picture) -> f64 {
    let (under, beside) = edges(picture);
    if under.len() < EDGES_MIN {
        return 0.0;
    }
    let piled = |slope: f64| {
        let level = pile(under.iter().map(|&(x, y)| y - x * slope));
        let upright = pile(beside.iter().map(|&(x, y)| x + y * slope));
        level.max(upright)
    };
    let steps = (SLOPE_MAX / STEP) as i32;
    let coarse = best((-steps..=steps).map(|n| f64::from(n) * STEP), &piled);
    let steps = (STEP / FINE) as i32;
    let fine = best((-steps..=steps).map(|n| coarse + f64::from(n) * FINE), &piled);
    let sure = piled(fine) > CLEARLY * piled(0.0);
    if fine.abs() >= SLOPE_MIN && sure { fine } else { 0.0 }
}

fn best(slopes: impl Iterator<Item = f64>, piled: &impl Fn(f64) -> f64) -> f64 {
    let of = |slope| (slope, piled(slope));
    slopes.map(of).max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0.0, |(slope, _)| slope)
}

type Edges = Vec<(f64, f64)>;

/// Places from the middle, in coarse pixels, with ink above and none below; and with ink to the left and none to the right.
fn edges(picture: &Picture) -> (Edges, Edges) {
    let (width, height) = (picture.width / COARSE, picture.height / COARSE);
    let (mut under, mut beside) = (Vec::new(), Vec::new());
    // The darkest of a few: thin strokes must not be missed.
    let ink = |x: u32, y: u32| {
        (0..COARSE).any(|d| picture.at(i64::from(x * COARSE + d), i64::from(y * COARSE + d)) <= INK)
    };
    let mut above = vec![false; width as usize];
    for y in 0..height {
        let mut left = false;
        let place = |x: u32| (f64::from(x) - f64::from(width) / 2.0, f64::from(y) - f64::from(height) / 2.0);
        for x in 0..width {
            let here = ink(x, y);
            if above[x as usize] && !here && under.len() < EDGES_MAX {
                under.push(place(x));
            }
            if left && !here && beside.len() < EDGES_MAX {
                beside.push(place(x));
            }
            (above[x as usize], left) = (here, here);
        }
    }
    (under, beside)
}

/// How unevenly the places are spread.
fn pile(places: impl Iterator<Item = f64>) -> f64 {
    let mut counts: Vec<u32> = Vec::new();
    const MIDDLE: f64 = 16_000.0;
    for place in places {
        let bin = (place + MIDDLE).max(0.0) as usize;
        if bin >= counts.len() {
            counts.resize(bin + 1, 0);
        }
        counts[bin] += 1;
    }
    counts.iter().map(|count| f64::from(*count).powi(2)).sum()
}

/// The picture turned about its middle so that lines of this slope are level.
pub(super) fn level(picture: &Picture, slope: f64) -> Picture {
    let (width, height) = (picture.width, picture.height);
    let (sin, cos) = slope.atan().sin_cos();
    let (cx, cy) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
    let mut grey = Vec::with_capacity(picture.grey.len());
    for y in 0..height {
        let v = f64::from(y) + 0.5 - cy;
        for x in 0..width {
            let u = f64::from(x) + 0.5 - cx;
            grey.push(between(picture, cx + u * cos - v * sin - 0.5, cy + u * sin + v * cos - 0.5));
        }
    }
    Picture { width, height, grey }
}

/// The grey between four pixels.
fn between(picture: &Picture, x: f64, y: f64) -> u8 {
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let at = |right: i64, down: i64| f64::from(picture.at(left as i64 + right, top as i64 + down));
    let upper = at(0, 0) * (1.0 - dx) + at(1, 0) * dx;
    let lower = at(0, 1) * (1.0 - dx) + at(1, 1) * dx;
    (upper * (1.0 - dy) + lower * dy).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of words of unequal length on a page of 900 by 600, falling; on its side where asked.
    fn page(slope: f64, on_side: bool) -> Picture {
        let (width, height) = (900u32, 600u32);
        let (sin, cos) = slope.atan().sin_cos();
        let mut grey = vec![255; (width * height) as usize];
        for y in 0..height {
            for x in 0..width {
                let (dx, dy) = (f64::from(x) - 450.0, f64::from(y) - 300.0);
                let (u, v) = (dx * cos + dy * sin, dy * cos - dx * sin);
                let (along, down) = if on_side { (v, u) } else { (u, v) };
                let (line, word) = ((down + 600.0) % 30.0, (along + 600.0) % 70.0);
                let inside = u.abs() < 380.0 && v.abs() < 230.0;
                if inside && line < 14.0 && word < 50.0 && (along as i64 / 5) % 2 == 0 {
                    grey[(y * width + x) as usize] = 20;
                }
            }
        }
        Picture { width, height, grey }
    }

    #[test]
    fn the_slope_of_lines_is_found_and_taken_out() {
        for on_side in [false, true] {
            for expected in [0.0, 0.05, -0.03] {
                let page = page(expected, on_side);
                let found = slope(&page);
                assert!((found - expected).abs() <= 0.002, "{found} for {expected}");
                if found != 0.0 {
                    assert!(slope(&level(&page, found)).abs() <= 0.002);
                }
            }
        }
    }

    #[test]
    fn a_picture_without_lines_is_not_turned() {
        let blank = Picture { width: 300, height: 300, grey: vec![255; 90_000] };
        assert_eq!(slope(&blank), 0.0);
        let disc = |i: u32| ((i % 300).abs_diff(150).pow(2) + (i / 300).abs_diff(150).pow(2) < 10_000) as u8;
        let disc =
            Picture { width: 300, height: 300, grey: (0..90_000).map(|i| 255 * (1 - disc(i))).collect() };
        assert_eq!(slope(&disc), 0.0);
    }
}
