//! The drawing device that keeps the glyphs of a page and, of the drawing, what may part or shade cells.
//!
//! It turns every glyph into its text, its place on the page and the direction it is read in, hands paths on
//! to [`Marks`], and counts
//! what the page asks for, because the interpreter itself cannot be stopped: over its budget the device
//! leaves by unwinding with [`BudgetSpent`], which the caller catches.

use std::f64::consts::FRAC_1_SQRT_2;
use std::ops::Range;

use hayro_interpret::font::{Glyph, GlyphRun};
use hayro_interpret::hayro_cmap::{BfString, WritingMode};
use hayro_interpret::kurbo::{Affine, BezPath, Point, Rect, Shape, Vec2};
use hayro_interpret::{BlendMode, ClipPath, Device, DrawMode, DrawProps, Image, ImageDrawProps, SoftMask};

use super::marks::{Ink, Marks};
use super::unicode::ReverseCmaps;
use crate::spent::Deadline;

/// Units of the em square in which the interpreter reports advances.
const EM: f64 = 1000.0;

/// Characters one glyph may stand for; more than any ligature has.
const GLYPH_CHARS_MAX: usize = 32;

/// Cost after which the clock is looked at.
const LOOK_EVERY: u64 = 1_000;
/// Elements of a path that cost as much as a glyph.
const ELEMENTS_A_GLYPH: u64 = 8;

/// The payload of the unwinding that ends a page over its budget.
pub(super) struct BudgetSpent;

/// One glyph with the text it stands for.
#[derive(Clone, Debug)]
pub(super) struct PlacedGlyph {
    /// Where its text is in [`PageGlyphs::text`]; more than one character for a ligature.
    pub(super) text: Range<u32>,
    /// Start of the glyph on its baseline (vertical writing: on the axis of its column), page points.
    pub(super) origin: Point,
    /// Unit vector along which the line is read.
    pub(super) direction: Vec2,
    /// Length along `direction`, points.
    pub(super) advance: f64,
    /// Font size as it appears on the page, points.
    pub(super) size: f64,
    pub(super) vertical: bool,
}

/// What a page shows.
#[derive(Default)]
pub(super) struct PageGlyphs {
    pub(super) glyphs: Vec<PlacedGlyph>,
    pub(super) text: String,
    /// Glyphs whose text is not known; they stand in the text as U+FFFD.
    pub(super) unknown: u64,
    /// Glyphs whose text is of a private use, which says nothing to others.
    pub(super) private: u64,
}

/// Collects the glyphs inside `page_box`, spending at most `budget` device calls and glyphs.
pub(super) struct GlyphDevice<'c> {
    pub(super) page: PageGlyphs,
    pub(super) marks: Marks,
    /// Anything else than text was drawn.
    pub(super) drawn: bool,
    /// Share of the page that its largest image covers.
    pub(super) covered: f64,
    page_box: Rect,
    budget: u64,
    deadline: Deadline,
    /// Calls until the clock is looked at again.
    unlooked: u64,
    reverse: &'c mut ReverseCmaps,
}

impl<'c> GlyphDevice<'c> {
    pub(super) fn new(
        page_box: Rect,
        budget: u64,
        deadline: Deadline,
        reverse: &'c mut ReverseCmaps,
    ) -> Self {
        let (page, marks) = (PageGlyphs::default(), Marks::new(page_box));
        let (drawn, covered) = (false, 0.0);
        Self { page, marks, drawn, covered, page_box, budget, deadline, unlooked: LOOK_EVERY, reverse }
    }

    fn spend(&mut self, cost: u64) {
        self.unlooked = self.unlooked.saturating_sub(cost.max(1));
        let late = self.unlooked == 0 && self.deadline.is_over();
        if self.unlooked == 0 {
            self.unlooked = LOOK_EVERY;
        }
        match self.budget.checked_sub(cost) {
            Some(left) if !late => self.budget = left,
            _ => std::panic::resume_unwind(Box::new(BudgetSpent)),
        }
    }

    /// A path costs by its length, whether or not anything of it is seen.
    fn spend_path(&mut self, path: &BezPath) {
        self.spend(1 + path.elements().len() as u64 / ELEMENTS_A_GLYPH);
    }

    fn place(
        &mut self,
        glyph: &Glyph<'_>,
        matrix: Affine,
        mode: WritingMode,
        metrics: RunMetrics,
        room: f64,
    ) {
        let [a, b, c, d, _, _] = matrix.as_coeffs();
        let (along, up) = (Vec2::new(a, b), Vec2::new(c, d));
        let size = up.hypot() * EM;
        let (Some(along), Some(up)) = (unit(along), unit(up)) else { return };
        let vertical = matches!(mode, WritingMode::Vertical);
        let advance_units = f64::from(advance_width(glyph).unwrap_or(0.0));
        let (origin, direction, advance) = if vertical {
            // The advance of the horizontal mode is what is known of the width; the axis is its middle.
            let axis = matrix * Point::new(EM / 2.0, EM * 0.88);
            (axis, -up, size)
        } else {
            (matrix * Point::ZERO, along, (advance_units / EM * metrics.scale(matrix)).min(room))
        };
        if !(size.is_finite() && size > 0.0 && advance.is_finite()) {
            return;
        }
        let middle = origin + direction * (advance / 2.0);
        if !self.page_box.contains(middle) {
            return;
        }
        let start = self.page.text.len() as u32;
        self.push_text(glyph);
        let text = start..self.page.text.len() as u32;
        if text.is_empty() {
            return;
        }
        self.page.glyphs.push(PlacedGlyph {
            text,
            origin,
            direction,
            advance: advance.max(0.0),
            size,
            vertical,
        });
    }

    fn push_text(&mut self, glyph: &Glyph<'_>) {
        let text = &mut self.page.text;
        match glyph.as_unicode() {
            Some(BfString::Char('\u{fffd}')) | None => {}
            Some(BfString::Char(c)) => {
                self.page.private += u64::from(is_private(c));
                return push_char(text, c);
            }
            Some(BfString::String(s)) => {
                return s.chars().take(GLYPH_CHARS_MAX).for_each(|c| push_char(text, c));
            }
        }
        let found = match glyph {
            Glyph::Outline(outline) => self.reverse.lookup(outline),
            Glyph::Type3(_) => None,
        };
        if found.is_none() {
            self.page.unknown += 1;
        }
        self.page.text.push(found.unwrap_or('\u{fffd}'));
    }
}

fn is_private(c: char) -> bool {
    matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..)
}

/// Latin ligatures as the letters a reader would type to find the word.
const LIGATURES: [&str; 7] = ["ff", "fi", "fl", "ffi", "ffl", "st", "st"];

/// Control characters separate words and are never text.
fn push_char(text: &mut String, c: char) {
    match c {
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{a0}' => text.push(' '),
        // Soft hyphens and byte order marks show nothing.
        '\u{ad}' | '\u{feff}' => {}
        '\u{fb00}'..='\u{fb06}' => text.push_str(LIGATURES[c as usize - 0xfb00]),
        c => text.push(c),
    }
}

fn unit(v: Vec2) -> Option<Vec2> {
    let length = v.hypot();
    (length.is_finite() && length > 1e-12).then(|| v / length)
}

fn advance_width(glyph: &Glyph<'_>) -> Option<f32> {
    match glyph {
        Glyph::Outline(outline) => outline.advance_width(),
        Glyph::Type3(type3) => type3.advance_width(),
    }
}

/// How the widths of a run become points.
///
/// The interpreter stretches the glyphs of a substituted font to the width the document declares, and the
/// stretch is in the matrix, though the advance is not stretched. It shows in glyphs of one run having
/// different widths of the em; then the height of the em is the better measure.
#[derive(Clone, Copy)]
struct RunMetrics {
    uniform: bool,
}

impl RunMetrics {
    fn of(matrices: &[Affine]) -> Self {
        let width = |m: &Affine| Vec2::new(m.as_coeffs()[0], m.as_coeffs()[1]).hypot();
        let first = matrices.first().map_or(0.0, width);
        Self { uniform: matrices.iter().all(|m| (width(m) - first).abs() <= first * 0.01) }
    }

    fn scale(self, matrix: Affine) -> f64 {
        let [a, b, c, d, _, _] = matrix.as_coeffs();
        let (wide, high) = (Vec2::new(a, b).hypot() * EM, Vec2::new(c, d).hypot() * EM);
        if self.uniform { wide.clamp(high * 0.4, high * 2.5) } else { high }
    }
}

impl<'a> Device<'a> for GlyphDevice<'_> {
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, 'a>, props: DrawProps<'a>, _: &DrawMode) {
        self.spend(1 + run.glyphs().len() as u64);
        let matrices: Vec<Affine> = run.glyphs().iter().map(|g| props.transform * g.transform()).collect();
        let metrics = RunMetrics::of(&matrices);
        for (i, glyph) in run.glyphs().iter().enumerate() {
            // A glyph ends at the latest where the next one of its run begins.
            let room = matrices
                .get(i + 1)
                .map(|next| (next.translation() - matrices[i].translation()).hypot())
                .filter(|room| *room > 0.0)
                .unwrap_or(f64::INFINITY);
            self.place(glyph, matrices[i], run.writing_mode(), metrics, room);
        }
    }

    fn draw_path(&mut self, path: &BezPath, props: DrawProps<'a>, mode: &DrawMode) {
        self.spend_path(path);
        self.drawn = true;
        self.marks.draw(path, props.transform, &Ink::of(&props, mode));
    }

    fn draw_rect(&mut self, rect: &Rect, props: DrawProps<'a>, mode: &DrawMode) {
        self.spend(1);
        self.drawn = true;
        self.marks.draw(&rect.to_path(0.1), props.transform, &Ink::of(&props, mode));
    }

    fn draw_image(&mut self, image: Image<'a, '_>, props: ImageDrawProps<'a>) {
        self.drawn = true;
        self.spend(1);
        let pixels = Rect::new(0.0, 0.0, f64::from(image.width()), f64::from(image.height()));
        let seen = props.transform.transform_rect_bbox(pixels).intersect(self.page_box);
        self.covered = self.covered.max(seen.area() / self.page_box.area());
    }

    fn push_clip_path(&mut self, clip: &ClipPath) {
        self.spend_path(&clip.path);
        self.marks.push_clip(clip.path.bounding_box());
    }

    fn push_clip_rect(&mut self, rect: &Rect) {
        self.spend(1);
        self.marks.push_clip(*rect);
    }

    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'a>>, _: BlendMode) {
        self.spend(1);
    }

    fn pop_clip(&mut self) {
        self.marks.pop_clip();
    }

    fn pop_transparency_group(&mut self) {}
}

/// Whether two directions differ by less than 45 degrees.
pub(super) fn alike(a: Vec2, b: Vec2) -> bool {
    a.dot(b) > FRAC_1_SQRT_2
}
