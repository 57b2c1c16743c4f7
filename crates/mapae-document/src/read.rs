//! Bytes to document, in the process that calls it. Only the child does.

use std::time::Instant;

use mapae_ai::language;
use sha2::{Digest, Sha256};

use crate::detect::{Kind, detect};
use crate::document::{Converted, Document, Format, Page, PageTables, Source, Span, Stage, Warning};
use crate::error::DocumentError;
use crate::flow::Flow;
use crate::limits::Limits;
use crate::ocr::{self, Ask, Scan};
use crate::table::Seen;
use crate::table::document::Collector;
use crate::table::sight::Sight;
use crate::{bombs, decrypt, docx, html, hwp, hwpx, image, markdown, pdf, pptx, sheet};

/// What is read, and what helps to read it.
pub(crate) struct Input {
    pub(crate) data: Vec<u8>,
    pub(crate) name: String,
    pub(crate) media_type: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) pages: Span,
}

/// The tables on pages; `scans` is what was seen on the pictures of some.
pub(crate) fn tables(input: Input, scans: Vec<Sight>, limits: &Limits) -> Result<PageTables, DocumentError> {
    match opened(input.data, &input.name, input.media_type.as_deref(), input.password.as_deref())? {
        (Kind::Pdf, mut data) => {
            bombs::defuse(&mut data, limits.stream_bytes);
            pdf::tables(data, input.password.as_deref(), input.pages, scans, limits)
        }
        _ => {
            let mut collector = Collector::new(limits);
            scans.iter().all(|sight| collector.page(sight));
            Ok(collector.finish())
        }
    }
}

/// These pages as their pictures show them; `ask` has one read.
pub(crate) fn scans(
    input: Input,
    pages: &[u32],
    limits: &Limits,
    ask: &mut Ask<'_>,
) -> Result<Vec<Scan>, DocumentError> {
    let opened = opened(input.data, &input.name, input.media_type.as_deref(), input.password.as_deref())?;
    let mut scans = Vec::new();
    match opened {
        (Kind::Pdf, mut data) => {
            bombs::defuse(&mut data, limits.stream_bytes);
            pdf::pictures(data, input.password.as_deref(), pages, limits, &mut |number, drawn| {
                // A page that cannot be drawn keeps what it has.
                let Some((picture, pose)) = drawn else { return Ok(()) };
                scans.push(ocr::scan(number, picture, pose, ask)?);
                Ok(())
            })?;
        }
        (kind, data) if kind.is_picture() => {
            let (picture, pose) = image::picture(&data, limits.pixels)?;
            drop(data);
            scans.push(ocr::scan(1, picture, pose, ask)?);
        }
        _ => {}
    }
    Ok(scans)
}

/// What is seen on `page` of a PDF, or on every page.
pub(crate) fn seen(input: Input, page: Option<u32>, limits: &Limits) -> Result<Vec<Seen>, DocumentError> {
    let mut seen = Vec::new();
    let opened = opened(input.data, &input.name, input.media_type.as_deref(), input.password.as_deref())?;
    if let (Kind::Pdf, mut data) = opened {
        bombs::defuse(&mut data, limits.stream_bytes);
        pdf::look(data, input.password.as_deref(), Span::ALL, limits, &mut |sight, _| {
            let (last, wanted) = (page == Some(sight.page), page.is_none_or(|page| page == sight.page));
            seen.extend(wanted.then(|| Seen::of(sight)));
            !last
        })?;
    }
    Ok(seen)
}

/// What the bytes are, and the bytes themselves, out of their protection where they have one.
fn opened(
    data: Vec<u8>,
    name: &str,
    media_type: Option<&str>,
    password: Option<&str>,
) -> Result<(Kind, Vec<u8>), DocumentError> {
    let kind = detect(name, media_type, &data)?;
    if kind != Kind::Protected {
        return Ok((kind, data));
    }
    let inside = decrypt::package(&data, password)?;
    Ok((detect(name, media_type, &inside)?, inside))
}

pub(crate) fn read(input: Input, limits: &Limits) -> Result<Converted, DocumentError> {
    let begun = Instant::now();
    let (bytes, sha256) = (input.data.len() as u64, hex(&Sha256::digest(&input.data)));
    let opened = opened(input.data, &input.name, input.media_type.as_deref(), input.password.as_deref());
    let (kind, data) = opened?;
    let password = input.password.as_deref();
    let mut document = Document {
        format: Format::V1,
        source: Source {
            name: base_name(&input.name).to_owned(),
            bytes,
            sha256,
            media_type: kind.media_type().to_owned(),
        },
        language: None,
        class: None,
        pages: None,
        sheets: None,
        tables: None,
        headings: None,
        keywords: None,
        intents: None,
        text: String::new(),
        warnings: Vec::new(),
        stages: Vec::new(),
    };
    let (mut scans, mut pages_total) = (Vec::new(), None);
    match kind {
        Kind::Pdf => {
            let mut data = data;
            let spoilt = bombs::defuse(&mut data, limits.stream_bytes);
            let read = pdf::read(data, password, input.pages, limits)?;
            pages_total = Some(read.total);
            document.text = joined(&read.pages);
            document.pages = Some(read.pages);
            document.warnings = read.warnings;
            scans = read.scans;
            // Of a document that is read in parts the first one says so.
            if spoilt > 0 && input.pages.first <= 1 {
                let message = format!("{spoilt} streams unpack to more than allowed and are left out.");
                document.warnings.insert(0, Warning::new("stream-limit", None, message));
            }
        }
        Kind::Png | Kind::Jpeg | Kind::Tiff | Kind::Webp => {
            document.pages = Some(vec![image::page(&data, limits.pixels)?]);
            document.warnings.push(Warning::new("no-text", Some(1), pdf::NO_TEXT));
            scans = vec![1];
        }
        Kind::Text => {
            let (text, warnings) = sheet::text::decode(&data);
            document.text = text;
            document.warnings = warnings;
        }
        Kind::Hwp => flowed(&mut document, limits, |flow| hwp::read(&data, password, limits, flow))?,
        Kind::Hwpx => flowed(&mut document, limits, |flow| hwpx::read(&data, password, limits, flow))?,
        Kind::Docx => flowed(&mut document, limits, |flow| docx::read(&data, limits, flow))?,
        Kind::Pptx => {
            document.pages = Some(flowed(&mut document, limits, |flow| pptx::read(&data, limits, flow))?);
        }
        Kind::Html => {
            let (text, warnings) = html::decode(&data);
            flowed(&mut document, limits, |flow| html::read(&text, flow))?;
            document.warnings.extend(warnings);
        }
        Kind::Markdown => {
            let (text, warnings) = sheet::text::decode(&data);
            flowed(&mut document, limits, |flow| markdown::read(&text, flow))?;
            document.warnings.extend(warnings);
        }
        // A container inside the container.
        Kind::Protected => return Err(DocumentError::Damaged),
        Kind::Xlsx | Kind::Xls | Kind::Xlsb | Kind::Ods | Kind::Csv | Kind::Tsv => {
            let book = sheet::read(kind, &data, base_name(&input.name), password, limits)?;
            document.sheets = Some(book.sheets);
            document.tables = Some(book.tables);
            document.text = book.text;
            document.warnings = book.warnings;
        }
    }
    if limits.text_only {
        document.tables = None;
    }
    document.language = language::of(&document.text).map(str::to_owned);
    document.stages.push(Stage { name: "convert".to_owned(), seconds: begun.elapsed().as_secs_f64() });
    Ok(Converted { document, scans, pages_total })
}

/// Fills a document with what a reader of a flowing format tells.
fn flowed<T>(
    document: &mut Document,
    limits: &Limits,
    read: impl FnOnce(&mut Flow) -> Result<T, DocumentError>,
) -> Result<T, DocumentError> {
    let mut flow = Flow::new(limits);
    let read = read(&mut flow)?;
    let flowed = flow.finish();
    document.text = flowed.text;
    document.headings = Some(flowed.headings);
    document.tables = Some(flowed.tables);
    document.warnings = flowed.warnings;
    Ok(read)
}

/// Pages follow each other with an empty line between them.
pub(crate) fn joined(pages: &[Page]) -> String {
    let mut text = String::with_capacity(pages.iter().map(|p| p.text.len() + 2).sum());
    for page in pages {
        if !text.is_empty() && !page.text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&page.text);
    }
    text
}

fn base_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
