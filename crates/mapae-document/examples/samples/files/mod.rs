//! The sample documents as bytes, the same every time. Names, places and figures in them are invented.

mod budget;
mod library;
mod minutes;
mod notice;
mod pdf;
mod workbook;

/// Name and bytes of every sample.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("budget-2026.pdf", budget::pdf()),
        ("library-report.pdf", library::pdf()),
        ("budget-2026.xlsx", workbook::xlsx()),
        ("library-notice.hwpx", notice::hwpx()),
        ("board-minutes.docx", minutes::docx()),
    ]
}
