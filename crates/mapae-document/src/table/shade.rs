//! Shaded rows and cells: what stands in one shade belongs together.

use super::column::Laid;
use super::geometry::Area;

/// Shades of one page that are looked at; a page with more is a drawing.
const SHADES_MAX: usize = 2_000;
/// Share of a table's height over which a shade is its background.
const BACKGROUND: f64 = 0.45;

/// The shades inside of `table` that can be those of its rows and cells.
pub(super) fn within(table: &Area, fills: &[Area]) -> Vec<Area> {
    if fills.len() > SHADES_MAX {
        return Vec::new();
    }
    let grown = Area::new(table.x0 - 20.0, table.y0 - 20.0, table.x1 + 20.0, table.y1 + 20.0);
    let inside = fills.iter().filter(|f| grown.holds(f) && f.height() < BACKGROUND * grown.height());
    inside.copied().collect()
}

/// Whether two areas above each other stand in one shade.
pub(super) fn one(a: &Area, b: &Area, shades: &[Area]) -> bool {
    let smallest = |area: &Area| {
        let around = shades.iter().enumerate().filter(|(_, s)| s.holds(area));
        around
            .min_by(|x, y| (x.1.height() * x.1.width()).total_cmp(&(y.1.height() * y.1.width())))
            .map(|(i, _)| i)
    };
    let (a, b) = (smallest(a), smallest(b));
    a.is_some() && a == b
}

/// Whether a line goes on in the shade of the line above it: some column has both in one shade, and none has a
/// number in both.
pub(super) fn goes_on(above: &Laid, line: &Laid, shades: &[Area]) -> bool {
    let mut shared = false;
    for a in &above.pieces {
        for b in line.pieces.iter().filter(|b| b.cols == a.cols) {
            if a.is_number() && b.is_number() {
                return false;
            }
            shared |= one(&a.area, &b.area, shades);
        }
    }
    shared
}
