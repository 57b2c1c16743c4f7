//! The numbers that decide, in one place, so that a measurement can turn them and see what hangs on each.

/// Thresholds of the extraction. The defaults are what the program uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Gap in a line that parts cells, ems. Larger than the spaces of justified prose.
    pub hole: f64,
    /// The same between two numbers, ems.
    pub number_hole: f64,
    /// Gap between words over different columns that makes them two cells, ems.
    pub cut: f64,
    /// The same in headings, whose words may well stand over two columns.
    pub heading_cut: f64,
    /// Share of the lines that may run across the white between two columns of a borderless table.
    pub river: f64,
    /// Share of a cell's edge that a rule must cover to part it from its neighbour.
    pub edge: f64,
    /// Share of numbers from which on the lines inside a ruled cell are rows of their own.
    pub numeric: f64,
    /// Distance of baselines, in ems, over which lines are too far apart to be one table.
    pub break_ems: f64,
    /// Confidence under which a borderless table is not reported.
    pub confidence_min: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            hole: 0.85,
            number_hole: 0.3,
            cut: 0.4,
            heading_cut: 0.45,
            river: 0.08,
            edge: 0.6,
            numeric: 0.55,
            break_ems: 4.0,
            confidence_min: 0.5,
        }
    }
}
