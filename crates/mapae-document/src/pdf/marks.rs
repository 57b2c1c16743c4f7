//! Paths to ruling lines and filled rectangles.
//!
//! Programs draw a rule as a stroked line, as a thin filled rectangle, or as the side of a rectangle; a shade
//! is a filled rectangle. All else (curves, slanted lines, pictures) parts no cells and is left out.

use hayro_interpret::kurbo::{Affine, BezPath, PathEl, Point, Rect};
use hayro_interpret::{DrawMode, DrawProps, Paint};

/// Rules and rectangles kept of one page; a page with more is a drawing, not a table.
const MARKS_MAX: usize = 20_000;
/// Thickness up to which a filled rectangle is a rule, points.
const THIN: f64 = 3.2;
/// How much longer than thick a rule is.
const SLENDER: f64 = 2.0;
/// How far the ends of a level line may differ in height, points.
const LEVEL: f64 = 0.7;
/// Shades that a white rule may lie on, the last drawn ones.
const SHADES_LOOKED_AT: usize = 200;
/// Components of a colour from which on it is the white of the paper.
const WHITE: f32 = 0.97;
/// Opacity under which nothing is seen.
const OPAQUE: f32 = 0.05;

/// How a path is painted, as far as it matters here.
pub(super) struct Ink {
    fill: bool,
    /// Width before the transform.
    stroke: Option<f64>,
    white: bool,
}

impl Ink {
    pub(super) fn of(props: &DrawProps<'_>, mode: &DrawMode) -> Self {
        let (fill, stroke) = match mode {
            DrawMode::Fill(_) => (true, None),
            DrawMode::Stroke(stroke) => (false, Some(f64::from(stroke.line_width))),
            DrawMode::FillAndStroke(_, stroke) => (true, Some(f64::from(stroke.line_width))),
            DrawMode::Invisible => (false, None),
        };
        let (white, seen) = match &props.paint {
            Paint::Color(color) => {
                let [r, g, b, opacity] = color.to_rgba().components();
                (r > WHITE && g > WHITE && b > WHITE, opacity > OPAQUE)
            }
            Paint::Pattern(_) => (false, true),
        };
        Self { fill: fill && seen, stroke: stroke.filter(|_| seen), white }
    }
}

/// The rules and shades of a page, in its own space (bottom left, not rotated).
pub(super) struct Marks {
    pub(super) rules: Vec<Rect>,
    /// Filled rectangles that are not white.
    pub(super) fills: Vec<Rect>,
    /// What is not clipped away, innermost last.
    clips: Vec<Rect>,
}

impl Marks {
    pub(super) fn new(page_box: Rect) -> Self {
        Self { rules: Vec::new(), fills: Vec::new(), clips: vec![page_box] }
    }

    pub(super) fn push_clip(&mut self, clip: Rect) {
        let within = self.visible().intersect(clip);
        self.clips.push(within);
    }

    pub(super) fn pop_clip(&mut self) {
        // The page itself stays, whatever a broken page pops.
        if self.clips.len() > 1 {
            self.clips.pop();
        }
    }

    fn visible(&self) -> Rect {
        self.clips.last().copied().unwrap_or_default()
    }

    /// Takes what a path draws.
    pub(super) fn draw(&mut self, path: &BezPath, transform: Affine, ink: &Ink) {
        let elements = path.elements();
        if !ink.fill && ink.stroke.is_none() {
            return;
        }
        let [a, b, ..] = transform.as_coeffs();
        let scale = a.hypot(b);
        let mut run: Vec<Point> = Vec::new();
        let mut straight = true;
        for element in elements {
            match *element {
                PathEl::MoveTo(p) => {
                    self.subpath(&run, straight, ink, scale);
                    (run, straight) = (vec![transform * p], true);
                }
                PathEl::LineTo(p) => run.push(transform * p),
                PathEl::QuadTo(_, p) | PathEl::CurveTo(_, _, p) => {
                    straight = false;
                    run.push(transform * p);
                }
                PathEl::ClosePath => {
                    if let Some(first) = run.first().copied() {
                        run.push(first);
                    }
                }
            }
        }
        self.subpath(&run, straight, ink, scale);
    }

    fn subpath(&mut self, run: &[Point], straight: bool, ink: &Ink, scale: f64) {
        if run.len() < 2 || !run.iter().all(|p| p.is_finite()) {
            return;
        }
        let rect = straight.then(|| rectangle(run)).flatten();
        if ink.fill
            && let Some(rect) = rect
        {
            self.fill(rect, ink.white);
        }
        let Some(width) = ink.stroke.filter(|_| straight) else { return };
        let half = (width * scale / 2.0).clamp(0.05, THIN / 2.0);
        for pair in run.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            let line = Rect::from_points(a, b);
            if line.height() <= LEVEL && line.width() > LEVEL {
                let y = line.center().y;
                self.rule(Rect::new(line.x0, y - half, line.x1, y + half), ink.white);
            } else if line.width() <= LEVEL && line.height() > LEVEL {
                let x = line.center().x;
                self.rule(Rect::new(x - half, line.y0, x + half, line.y1), ink.white);
            }
        }
    }

    fn fill(&mut self, rect: Rect, white: bool) {
        let (thin, long) = (rect.width().min(rect.height()), rect.width().max(rect.height()));
        if thin <= THIN {
            if long >= SLENDER * thin {
                self.rule(rect, white);
            }
        } else if !white {
            let seen = rect.intersect(self.visible());
            if seen.width() > THIN && seen.height() > THIN && self.fills.len() < MARKS_MAX {
                self.fills.push(seen);
            }
        }
    }

    fn rule(&mut self, rect: Rect, white: bool) {
        // White is seen on a shade only.
        if white && !self.fills.iter().rev().take(SHADES_LOOKED_AT).any(|f| f.contains(rect.center())) {
            return;
        }
        // Half a point of grace: a rule on the edge of its clip is drawn by half.
        let seen = rect.intersect(self.visible().inflate(0.5, 0.5));
        if (seen.width() > LEVEL || seen.height() > LEVEL) && self.rules.len() < MARKS_MAX {
            self.rules.push(seen);
        }
    }
}

/// The rectangle that a run of points goes around, if it does.
fn rectangle(run: &[Point]) -> Option<Rect> {
    if !(4..=6).contains(&run.len()) {
        return None;
    }
    let (first, rest) = (run[0], &run[1..]);
    let around = rest.iter().fold(Rect::from_points(first, first), |rect, p| rect.union_pt(*p));
    let on_corner = |p: &Point| {
        let x = (p.x - around.x0).abs().min((p.x - around.x1).abs());
        let y = (p.y - around.y0).abs().min((p.y - around.y1).abs());
        x <= LEVEL && y <= LEVEL
    };
    // A path from corner to corner, never across.
    let level = run.windows(2).all(|p| (p[0].x - p[1].x).abs() <= LEVEL || (p[0].y - p[1].y).abs() <= LEVEL);
    (level && run.iter().all(on_corner)).then_some(around)
}
