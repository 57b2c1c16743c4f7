//! Shaded rows and cells: what stands in one shade belongs together.

use super::column::Laid;
use super::geometry::{Area, shared};

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

/// Gap between two shaded cells that is seen as a rule, points.
const GAP: std::ops::RangeInclusive<f64> = 0.4..=4.0;

/// The white between shaded cells beside each other or above each other, as rules.
pub(super) fn gaps(fills: &[Area]) -> Vec<Area> {
    let mut rules = Vec::new();
    if fills.len() > SHADES_MAX {
        return rules;
    }
    for a in fills {
        for b in fills {
            let beside = shared((a.y0, a.y1), (b.y0, b.y1));
            let above = shared((a.x0, a.x1), (b.x0, b.x1));
            if GAP.contains(&(b.x0 - a.x1)) && beside >= 0.6 * a.height().min(b.height()) {
                let x = (a.x1 + b.x0) / 2.0;
                rules.push(Area::new(x - 0.1, a.y0.max(b.y0), x + 0.1, a.y1.min(b.y1)));
            }
            if GAP.contains(&(b.y0 - a.y1)) && above >= 0.6 * a.width().min(b.width()) {
                let y = (a.y1 + b.y0) / 2.0;
                rules.push(Area::new(a.x0.max(b.x0), y - 0.1, a.x1.min(b.x1), y + 0.1));
            }
        }
    }
    rules
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
