//! How the figures are shown.

/// One line: what was measured, what was found, and the goal it is held against.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) found: String,
    pub(crate) goal: &'static str,
    pub(crate) held: bool,
}

pub(crate) fn print(rows: &[Row]) {
    println!("| what | found | goal | |\n|---|---|---|---|");
    for row in rows {
        let held = if row.held { "held" } else { "**missed**" };
        println!("| {} | {} | {} | {held} |", row.what, row.found, row.goal);
    }
}

/// The middle of the figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    quantile(&mut figures, 0.5)
}

/// The figure that this share of all does not exceed.
pub(crate) fn quantile(figures: &mut [f64], share: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() - 1) as f64 * share).round() as usize]
}
