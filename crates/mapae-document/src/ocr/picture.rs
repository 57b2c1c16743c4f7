//! Grey pixels, and where they are on their page.

use hayro_interpret::kurbo::{Point, Vec2};

/// Dots an inch at which pages are read: what recognition was trained on.
pub(crate) const DPI: u32 = 300;
/// Pixels a page is drawn with; a larger one is drawn coarser.
pub(crate) const PIXELS_MAX: u64 = 25_000_000;
/// Grey up to which a pixel is ink.
pub(super) const INK: u8 = 160;
/// Pixels of a side.
pub(crate) const SIDE_MAX: u32 = 16_000;

/// A grey picture, row by row from the top, 0 is black.
pub(crate) struct Picture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) grey: Vec<u8>,
}

/// How a picture lies on its page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pose {
    /// Points of a pixel.
    pub(crate) scale: f64,
    /// Size of the page before its rotation, points.
    pub(crate) page: (f64, f64),
    /// How the page is turned before it is shown, clockwise: 0, 90, 180 or 270.
    pub(crate) rotation: u16,
}

impl Picture {
    /// As a portable graymap, which takes no codec to write or to read.
    pub(crate) fn to_pgm(&self) -> Vec<u8> {
        let head = format!("P5\n{} {}\n255\n", self.width, self.height);
        [head.as_bytes(), &self.grey].concat()
    }

    pub(crate) fn middle(&self) -> Point {
        Point::new(f64::from(self.width) / 2.0, f64::from(self.height) / 2.0)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.grey.chunks_exact(self.width.max(1) as usize)
    }

    /// The grey at a place; white outside.
    pub(crate) fn at(&self, x: i64, y: i64) -> u8 {
        if x < 0 || y < 0 || x >= i64::from(self.width) || y >= i64::from(self.height) {
            return u8::MAX;
        }
        self.grey[y as usize * self.width as usize + x as usize]
    }
}

impl Pose {
    /// A place on the picture, on the page: points from its bottom left corner before rotation.
    pub(crate) fn point(&self, at: Point) -> Point {
        let ((w, h), (x, y)) = (self.page, (at.x * self.scale, at.y * self.scale));
        match self.rotation {
            90 => Point::new(y, x),
            180 => Point::new(w - x, y),
            270 => Point::new(w - y, h - x),
            _ => Point::new(x, h - y),
        }
    }

    /// A direction on the picture, on the page.
    pub(crate) fn direction(&self, along: Vec2) -> Vec2 {
        self.point(along.to_point()) - self.point(Point::ZERO)
    }
}

/// Pixels an inch for a page of so many points, within the limits of a picture.
pub(crate) fn dpi_for(width: f64, height: f64) -> f64 {
    let wanted = f64::from(DPI);
    let pixels = width * height * (wanted / 72.0).powi(2);
    let side = width.max(height) * wanted / 72.0;
    let by_area = (PIXELS_MAX as f64 / pixels.max(1.0)).sqrt();
    let by_side = f64::from(SIDE_MAX) / side.max(1.0);
    wanted * by_area.min(by_side).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_on_the_picture_of_a_turned_page_is_found_on_the_page() {
        // A page of 100 by 200 points; the pixel is 10 points from the left and 20 from the top of what is shown.
        let at = Point::new(20.0, 40.0);
        let on = |rotation| Pose { scale: 0.5, page: (100.0, 200.0), rotation }.point(at);
        assert_eq!(on(0), Point::new(10.0, 180.0));
        assert_eq!(on(90), Point::new(20.0, 10.0));
        assert_eq!(on(180), Point::new(90.0, 20.0));
        assert_eq!(on(270), Point::new(80.0, 190.0));
    }

    #[test]
    fn a_very_large_page_is_drawn_coarser() {
        assert_eq!(dpi_for(595.0, 842.0), 300.0);
        let dpi = dpi_for(14_400.0, 14_400.0);
        let side = 14_400.0 * dpi / 72.0;
        assert!(side * side <= PIXELS_MAX as f64 * 1.001);
    }
}
