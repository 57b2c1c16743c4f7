//! PDF to pages of text.
//!
//! The parser stands behind [`PdfBackend`], because none is old enough to be trusted for good. What it gives
//! is only glyphs and paths with their places; lines, words and reading order are made here, so that another
//! parser would give the same text. Tables are found in what [`look`] hands over.

mod cmaps;
mod glyphs;
mod hayro;
mod lines;
mod marks;
mod order;
mod picture;
mod recognised;
mod sight;
mod unicode;

use std::collections::HashMap;

use crate::document::{Page, PageTables, Span, Warning};
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;
use crate::ocr::{Picture, Pose};
use crate::table::{self, sight::Sight};
use glyphs::PageGlyphs;
use marks::Marks;
pub(crate) use recognised::{Recognised, recognised};

/// What is said of a page without any text.
pub(crate) const NO_TEXT: &str = "The page has no text; it may be an image.";

/// A parser of PDF files.
trait PdfBackend: Sized {
    /// Opens a file that the parser then owns; an empty password opens what has no password.
    fn open(data: Vec<u8>, password: Option<&str>) -> Result<Self, DocumentError>;

    fn page_count(&self) -> u32;

    /// Hands over these pages in order until `each` answers `false`. What a page holds beyond
    /// `Limits::page_operations`, or behind something broken, is missing, and [`PageContent::cut`] says so.
    fn pages(&self, span: Span, limits: &Limits, each: &mut dyn FnMut(PageContent) -> bool);

    /// The picture of a page as it is shown; `None` where it cannot be drawn.
    fn picture(&self, number: u32) -> Option<(Picture, Pose)>;
}

/// A page as a parser gives it.
struct PageContent {
    /// Counts from 1.
    number: u32,
    width: f64,
    height: f64,
    rotation: u16,
    /// The bottom left corner of the page in its own space.
    origin: (f64, f64),
    glyphs: PageGlyphs,
    marks: Marks,
    /// Anything else than text is drawn.
    drawn: bool,
    /// Share of the page that its largest image covers.
    covered: f64,
    cut: Option<Cut>,
}

/// Share of the glyphs without a known character from which on a text layer is of no use.
const UNKNOWN_SHARE: f64 = 0.3;
/// A page that is all but covered by an image and has no more glyphs than this is a scan with a number, a stamp or a
/// running head put on it.
const COVERED: f64 = 0.8;
const STAMP_GLYPHS: usize = 80;

impl PageContent {
    /// Whether its text is only to be had from its picture.
    fn is_scan(&self) -> bool {
        let (unknown, all) = (self.glyphs.unknown + self.glyphs.private, self.glyphs.glyphs.len());
        match all {
            0 => self.drawn,
            1..=STAMP_GLYPHS if self.covered >= COVERED => true,
            _ => unknown as f64 >= UNKNOWN_SHARE * all as f64,
        }
    }
}

/// Why a page is not complete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Budget,
    Broken,
}

/// Pages, and what is doubtful about them.
#[derive(Default)]
pub(crate) struct Pages {
    pub(crate) pages: Vec<Page>,
    pub(crate) warnings: Vec<Warning>,
    /// Numbers of those whose text is only to be had from their pictures.
    pub(crate) scans: Vec<u32>,
    /// Pages of the file.
    pub(crate) total: u32,
}

/// These pages of a PDF.
pub(crate) fn read(
    data: Vec<u8>,
    password: Option<&str>,
    span: Span,
    limits: &Limits,
) -> Result<Pages, DocumentError> {
    // Of a document that is read in parts the first one says so.
    let cut_off = span.first <= 1 && is_cut_off(&data);
    let pdf = open(data, password, limits)?;
    let mut read = Pages { total: pdf.page_count(), ..Pages::default() };
    let mut text_left = limits.text_bytes;
    pdf.pages(span, limits, &mut |content| {
        read.warnings.extend(doubts(&content));
        read.scans.extend(content.is_scan().then_some(content.number));
        let page = page(content);
        let Some(left) = text_left.checked_sub(page.text.len() as u64) else {
            read.warnings.push(Warning::new("text-limit", Some(page.number), TEXT_LIMIT));
            return false;
        };
        text_left = left;
        read.pages.push(page);
        true
    });
    if cut_off {
        let all = read.total <= span.count;
        if all && read.scans.is_empty() && read.pages.iter().all(|page| page.text.is_empty()) {
            return Err(DocumentError::Damaged);
        }
        read.warnings.insert(0, Warning::new("cut-off", None, CUT_OFF));
    }
    Ok(read)
}

/// What is said where a document holds more text than it may.
pub(crate) const TEXT_LIMIT: &str =
    "The document holds more text than allowed; this page and those after it are left out.";

const CUT_OFF: &str = "The file is cut off; what stood behind its present end is missing.";

/// Where the end of a PDF is looked for. What stands behind it is no part of it, and there are files with much of that.
const END_BYTES: usize = 8 * 1024;

/// Whether the end is missing: it says where everything else is.
fn is_cut_off(data: &[u8]) -> bool {
    let end = &data[data.len().saturating_sub(END_BYTES)..];
    [&b"startxref"[..], b"%%EOF"].iter().all(|word| memchr::memmem::find(end, word).is_none())
}

/// Draws these pages, one after the other, until `each` fails; `None` is a page that cannot be drawn.
pub(crate) fn pictures(
    data: Vec<u8>,
    password: Option<&str>,
    pages: &[u32],
    limits: &Limits,
    each: &mut dyn FnMut(u32, Option<(Picture, Pose)>) -> Result<(), DocumentError>,
) -> Result<(), DocumentError> {
    let pdf = open(data, password, limits)?;
    pages.iter().try_for_each(|&number| each(number, pdf.picture(number)))
}

/// Hands over what is seen on each of these pages, in order, until `each` answers `false`.
pub(crate) fn look(
    data: Vec<u8>,
    password: Option<&str>,
    span: Span,
    limits: &Limits,
    each: &mut dyn FnMut(Sight, Option<Cut>) -> bool,
) -> Result<(), DocumentError> {
    let pdf = open(data, password, limits)?;
    pdf.pages(span, limits, &mut |content| each(sight::of(&content), content.cut));
    Ok(())
}

/// The tables on these pages of a PDF; of those that are scans, in what was seen on their pictures. The first may
/// continue the last one of the page before: then it continues the table 0.
pub(crate) fn tables(
    data: Vec<u8>,
    password: Option<&str>,
    span: Span,
    scans: Vec<Sight>,
    limits: &Limits,
) -> Result<PageTables, DocumentError> {
    let mut collector = table::document::Collector::new(limits);
    let mut scans: HashMap<u32, Sight> = scans.into_iter().map(|scan| (scan.page, scan)).collect();
    let before = Span { first: span.first.saturating_sub(1).max(1), count: span.count.saturating_add(1) };
    let seen = if span.first > 1 { before } else { span };
    look(data, password, seen, limits, &mut |sight, _| {
        let sight = scans.remove(&sight.page).unwrap_or(sight);
        let goes_on = collector.page(&sight);
        if sight.page < span.first {
            collector.forget();
        }
        goes_on
    })?;
    Ok(collector.finish())
}

fn open(data: Vec<u8>, password: Option<&str>, limits: &Limits) -> Result<impl PdfBackend, DocumentError> {
    let pdf = hayro::Hayro::open(data, password)?;
    match pdf.page_count() {
        0 => Err(DocumentError::Damaged),
        n if n > limits.pages => Err(DocumentError::TooLarge(Excess::Pages)),
        _ => Ok(pdf),
    }
}

fn page(content: PageContent) -> Page {
    let mut text = String::new();
    for flow in lines::flows(&content.glyphs) {
        text.push_str(&order::text(flow.chunked()));
    }
    text.truncate(text.trim_end().len());
    Page {
        number: content.number,
        width: content.width,
        height: content.height,
        rotation: content.rotation,
        text,
        ocr: false,
    }
}

fn doubts(content: &PageContent) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |code, message: String| warnings.push(Warning::new(code, Some(content.number), message));
    match content.cut {
        Some(Cut::Budget) => warn(
            "page-limit",
            "The page draws more than allowed; what comes after the limit is left out.".into(),
        ),
        Some(Cut::Broken) => warn("page-broken", "The page could not be read to its end.".into()),
        None => {}
    }
    let (unknown, all) = (content.glyphs.unknown, content.glyphs.glyphs.len());
    if unknown > 0 {
        warn(
            "unknown-characters",
            format!("{unknown} of {all} glyphs do not say which characters they are; they stand as U+FFFD."),
        );
    }
    if all == 0 && content.cut.is_none() {
        warn("no-text", NO_TEXT.into());
    }
    warnings
}
