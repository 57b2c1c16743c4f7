//! Ruling lines on a picture: long thin runs of dark pixels, level or upright.

use hayro_interpret::kurbo::Rect;

use super::picture::{INK, Picture};

/// Shortest rule, inches; strokes of letters are shorter.
const LENGTH: f64 = 0.4;
/// Thickest rule, inches; what is thicker is an area.
const THICKNESS: f64 = 0.045;
/// White inside of a rule, inches: scans have holes.
const HOLE: f64 = 0.02;
/// Rules kept of a page; a page with more is a drawing.
const RULES_MAX: usize = 4_000;

/// The rules of a picture in its pixels.
pub(super) fn rules(picture: &Picture, dpi: f64) -> Vec<Rect> {
    let mut rules = level(picture, dpi);
    rules.extend(upright(picture, dpi));
    rules.truncate(RULES_MAX);
    rules
}

fn level(picture: &Picture, dpi: f64) -> Vec<Rect> {
    let found = merged(picture.rows().map(|row| runs(row, dpi)), dpi);
    found.into_iter().map(|band| Rect::new(band.from, band.first, band.to, band.last + 1.0)).collect()
}

fn upright(picture: &Picture, dpi: f64) -> Vec<Rect> {
    let width = picture.width as usize;
    // Rows are read in the order they lie in memory: a run of each column at the same time.
    let mut open: Vec<Run> = (0..width).map(|_| Run::default()).collect();
    let mut columns: Vec<Vec<(f64, f64)>> = vec![Vec::new(); width];
    for (y, row) in picture.rows().enumerate() {
        for (x, _) in row.iter().enumerate().filter(|(_, grey)| **grey <= INK) {
            columns[x].extend(open[x].step(y as i64, dpi));
        }
    }
    for (open, column) in open.iter_mut().zip(&mut columns) {
        column.extend(open.end(dpi));
    }
    let found = merged(columns.into_iter(), dpi);
    found.into_iter().map(|band| Rect::new(band.first, band.from, band.last + 1.0, band.to)).collect()
}

/// A run of ink being followed.
#[derive(Default)]
struct Run {
    /// First and last ink.
    ink: Option<(i64, i64)>,
}

impl Run {
    /// There is ink at `at`; answers with a run that has ended before it and is long enough.
    fn step(&mut self, at: i64, dpi: f64) -> Option<(f64, f64)> {
        match &mut self.ink {
            Some((_, last)) if (at - *last) as f64 <= HOLE * dpi + 1.0 => {
                *last = at;
                None
            }
            open => long(open.replace((at, at)), dpi),
        }
    }

    fn end(&mut self, dpi: f64) -> Option<(f64, f64)> {
        long(self.ink.take(), dpi)
    }
}

fn long(run: Option<(i64, i64)>, dpi: f64) -> Option<(f64, f64)> {
    let (first, last) = run?;
    ((last + 1 - first) as f64 >= LENGTH * dpi).then_some((first as f64, last as f64 + 1.0))
}

fn runs(row: &[u8], dpi: f64) -> Vec<(f64, f64)> {
    let (mut found, mut run) = (Vec::new(), Run::default());
    for (at, _) in row.iter().enumerate().filter(|(_, grey)| **grey <= INK) {
        found.extend(run.step(at as i64, dpi));
    }
    found.extend(run.end(dpi));
    found
}

/// Runs on neighbouring rows that lie over each other.
struct Band {
    first: f64,
    last: f64,
    from: f64,
    to: f64,
}

/// Joins the runs of rows to bands and keeps the thin ones.
fn merged(rows: impl Iterator<Item = Vec<(f64, f64)>>, dpi: f64) -> Vec<Band> {
    let thin = |band: &Band| band.last + 1.0 - band.first <= (THICKNESS * dpi).max(3.0);
    let (mut done, mut open): (Vec<Band>, Vec<Band>) = (Vec::new(), Vec::new());
    for (row, runs) in rows.enumerate() {
        let at = row as f64;
        for (from, to) in runs {
            let over = |band: &Band| band.from.max(from) < band.to.min(to);
            match open.iter().position(over) {
                Some(found) => {
                    let band = &mut open[found];
                    (band.last, band.from, band.to) = (at, band.from.min(from), band.to.max(to));
                }
                None if open.len() + done.len() < 2 * RULES_MAX => {
                    open.push(Band { first: at, last: at, from, to });
                }
                None => {}
            }
        }
        // A row without ink inside of a rule is noise; two are its end.
        let (ended, on): (Vec<Band>, Vec<Band>) = open.into_iter().partition(|band| at - band.last > 1.0);
        done.extend(ended.into_iter().filter(thin));
        open = on;
    }
    done.extend(open.into_iter().filter(thin));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture at 300 dots an inch with a frame of 300 by 200 pixels, a photograph and a letter.
    fn framed() -> Picture {
        let (width, height) = (500u32, 400u32);
        let mut grey = vec![255; (width * height) as usize];
        for y in 0..height {
            for x in 0..width {
                let (u, v) = (f64::from(x) - 250.0, f64::from(y) - 200.0);
                let edge = |at: f64, of: f64| (at.abs() - of).abs() <= 1.0;
                let frame = (edge(u, 150.0) && v.abs() <= 101.0) || (edge(v, 100.0) && u.abs() <= 151.0);
                let photograph = (u + 50.0).abs() < 80.0 && (v - 40.0).abs() < 20.0;
                let letter = (u - 60.0).abs() < 15.0 && (v + 40.0).abs() < 2.0;
                if frame || photograph || letter {
                    grey[(y * width + x) as usize] = 30;
                }
            }
        }
        Picture { width, height, grey }
    }

    #[test]
    fn rules_are_found_and_areas_and_letters_are_none() {
        let found = rules(&framed(), 300.0);
        assert_eq!(
            found,
            [
                Rect::new(99.0, 99.0, 402.0, 102.0),
                Rect::new(99.0, 299.0, 402.0, 302.0),
                Rect::new(99.0, 99.0, 102.0, 302.0),
                Rect::new(399.0, 99.0, 402.0, 302.0),
            ]
        );
    }
}
