//! Bytes to document, in the process that calls it. Only the child does.

use std::time::Instant;

use mapae_ai::language;
use sha2::{Digest, Sha256};

use crate::detect::{Kind, detect};
use crate::document::{Document, Format, Page, Source, Stage};
use crate::error::DocumentError;
use crate::limits::Limits;
use crate::{decrypt, pdf, sheet};

/// What is read, and what helps to read it.
pub(crate) struct Input {
    pub(crate) data: Vec<u8>,
    pub(crate) name: String,
    pub(crate) media_type: Option<String>,
    pub(crate) password: Option<String>,
}

pub(crate) fn read(input: Input, limits: &Limits) -> Result<Document, DocumentError> {
    let begun = Instant::now();
    let (bytes, sha256) = (input.data.len() as u64, hex(&Sha256::digest(&input.data)));
    let kind = detect(&input.name, input.media_type.as_deref(), &input.data)?;
    let (kind, data) = if kind == Kind::Protected {
        let inside = decrypt::package(&input.data, input.password.as_deref())?;
        (detect(&input.name, input.media_type.as_deref(), &inside)?, inside)
    } else {
        (kind, input.data)
    };
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
        keywords: None,
        intents: None,
        text: String::new(),
        warnings: Vec::new(),
        stages: Vec::new(),
    };
    match kind {
        Kind::Pdf => {
            let (pages, warnings) = pdf::read(data, input.password.as_deref(), limits)?;
            document.text = joined(&pages);
            document.pages = Some(pages);
            document.warnings = warnings;
        }
        Kind::Text => {
            let (text, warnings) = sheet::text::decode(&data);
            document.text = text;
            document.warnings = warnings;
        }
        // A container inside the container.
        Kind::Protected => return Err(DocumentError::Damaged),
        Kind::Xlsx | Kind::Xls | Kind::Xlsb | Kind::Ods | Kind::Csv | Kind::Tsv => {
            let book = sheet::read(kind, &data, base_name(&input.name), limits)?;
            document.sheets = Some(book.sheets);
            document.tables = Some(book.tables);
            document.text = book.text;
            document.warnings = book.warnings;
        }
    }
    document.language = language::of(&document.text).map(str::to_owned);
    document.stages.push(Stage { name: "convert".to_owned(), seconds: begun.elapsed().as_secs_f64() });
    Ok(document)
}

/// Pages follow each other with an empty line between them.
fn joined(pages: &[Page]) -> String {
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
