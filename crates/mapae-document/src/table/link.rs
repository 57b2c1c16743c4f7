//! Tables that go on on the next page.

use super::Found;
use super::sight::{Box, Sight};

/// Share of the page's height within which a table that goes on ends, and its next part begins.
const MARGIN: f64 = 0.25;
/// How far the sides of the parts may differ, points.
const SIDES: f64 = 12.0;

/// What of a table its next part is recognised by.
pub(super) struct Look {
    bbox: Box,
    columns: u32,
    /// The first row, column by column.
    heading: Vec<(u32, String)>,
    /// Whether nothing stands between it and the foot of the page.
    last: bool,
}

impl Look {
    pub(super) fn of(table: &Found, sight: &Sight) -> Self {
        let below = sight.words.iter().filter(|w| w.bbox[3] < table.bbox[1]).count();
        let low = table.bbox[1] < MARGIN * sight.height;
        Self { bbox: table.bbox, columns: table.columns, heading: heading(table), last: low && below < 25 }
    }

    /// Whether `table`, the first on the next page, goes on with this one: as many columns between the same
    /// sides, at the top of the page, with no title of its own or with the same headings.
    pub(super) fn goes_on(&self, table: &Found, sight: &Sight) -> bool {
        let sides =
            (self.bbox[0] - table.bbox[0]).abs() <= SIDES && (self.bbox[2] - table.bbox[2]).abs() <= SIDES;
        let high = table.bbox[3] > (1.0 - MARGIN) * sight.height;
        let says_so = table.title.as_deref().is_some_and(continued);
        let untitled = table.title.as_deref().is_none_or(|title| !super::title::is_caption(title));
        let same = self.heading == heading(table) && !self.heading.is_empty();
        self.last && high && sides && self.columns == table.columns && (says_so || untitled || same)
    }
}

fn heading(table: &Found) -> Vec<(u32, String)> {
    let first = table.cells.iter().take_while(|c| c.row == 0);
    first.map(|c| (c.col, c.text.clone())).collect()
}

/// "Table 2, continued" and its like.
fn continued(title: &str) -> bool {
    let title = title.to_lowercase();
    ["continued", "cont.", "(cont", "계속"].iter().any(|word| title.contains(word))
}
