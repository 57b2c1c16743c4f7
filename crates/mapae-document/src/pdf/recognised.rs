//! Words that were recognised on a picture, as the glyphs of a page: they take the road of all others.

use hayro_interpret::kurbo::{Point, Rect, Vec2};

use super::glyphs::{PageGlyphs, PlacedGlyph};
use super::marks::Marks;
use super::{PageContent, page, sight};
use crate::document::Page;
use crate::table::sight::Sight;

/// A word with its place on the page: points from the bottom left corner before rotation.
pub(crate) struct Recognised {
    pub(crate) text: String,
    /// Start of its baseline.
    pub(crate) origin: Point,
    /// Unit vector along which it is read.
    pub(crate) direction: Vec2,
    pub(crate) advance: f64,
    pub(crate) size: f64,
}

/// The page of these words and rules, and what is seen on it.
pub(crate) fn recognised(
    number: u32,
    size: (f64, f64),
    rotation: u16,
    words: impl IntoIterator<Item = Recognised>,
    rules: Vec<Rect>,
) -> (Page, Sight) {
    let mut glyphs = PageGlyphs::default();
    for word in words {
        let end = word.origin + word.direction * word.advance;
        let mut put = |text: &str, origin, advance| {
            let start = glyphs.text.len() as u32;
            glyphs.text.push_str(text);
            let (text, direction, size) = (start..glyphs.text.len() as u32, word.direction, word.size);
            glyphs.glyphs.push(PlacedGlyph { text, origin, direction, advance, size, vertical: false });
        };
        put(&word.text, word.origin, word.advance);
        // Words are words, however close they stand.
        put(" ", end, 0.0);
    }
    let mut marks = Marks::new(Rect::new(0.0, 0.0, size.0, size.1));
    marks.rules = rules;
    let (width, height) = size;
    let content = PageContent {
        number,
        width,
        height,
        rotation,
        origin: (0.0, 0.0),
        glyphs,
        marks,
        drawn: true,
        covered: 1.0,
        cut: None,
    };
    let sight = sight::of(&content);
    (Page { ocr: true, ..page(content) }, sight)
}
