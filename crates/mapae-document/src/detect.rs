//! What a file is: by its bytes first, then whether its name agrees. The bytes decide; a name that says
//! something else is refused, because whoever named it expects something else.

use std::io::{Cursor, Read};

use crate::error::DocumentError;
use crate::hwp;

/// The kinds of file that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pdf,
    Xlsx,
    Xls,
    Xlsb,
    Ods,
    Csv,
    Tsv,
    Hwp,
    Hwpx,
    Docx,
    Pptx,
    Html,
    Markdown,
    Text,
    Png,
    Jpeg,
    Tiff,
    Webp,
    /// An Office document inside an encrypted container; what it is shows when it has been opened.
    Protected,
}

impl Kind {
    /// The media type of the bytes.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Pdf => "application/pdf",
            Self::Xlsx => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            Self::Xls => "application/vnd.ms-excel",
            Self::Xlsb => "application/vnd.ms-excel.sheet.binary.macroenabled.12",
            Self::Ods => "application/vnd.oasis.opendocument.spreadsheet",
            Self::Csv => "text/csv",
            Self::Tsv => "text/tab-separated-values",
            Self::Hwp => "application/x-hwp",
            Self::Hwpx => "application/hwp+zip",
            Self::Docx => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            Self::Pptx => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            Self::Html => "text/html",
            Self::Markdown => "text/markdown",
            Self::Text => "text/plain",
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Tiff => "image/tiff",
            Self::Webp => "image/webp",
            Self::Protected => "application/x-ole-storage",
        }
    }

    /// A picture, which has text only for who recognises it.
    pub(crate) fn is_picture(self) -> bool {
        matches!(self, Self::Png | Self::Jpeg | Self::Tiff | Self::Webp)
    }

    /// Plain text in one of its uses: the bytes cannot tell them apart, the name can.
    fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv | Self::Html | Self::Markdown | Self::Text)
    }
}

/// What a name or a declared media type claims.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    Kind(Kind),
    /// A kind that is known and not read.
    Other,
    Nothing,
}

/// What the bytes are.
enum Found {
    Kind(Kind),
    /// Text of some use.
    Text,
    /// A known kind that is not read.
    Unsupported,
    /// A kind that is read, in a form older than the readers.
    Old,
    /// An encrypted Office document.
    Protected,
    /// A container of older office files too broken to say what is in it.
    Container,
    Unknown,
}

/// Decides what to read `data` as.
///
/// `name` is the file's name, `declared` the media type its sender gave, which counts only for a name
/// without a known extension.
pub fn detect(name: &str, declared: Option<&str>, data: &[u8]) -> Result<Kind, DocumentError> {
    if data.is_empty() {
        return Err(DocumentError::Empty);
    }
    let claim = match claim_of_name(name) {
        Claim::Nothing => declared.map_or(Claim::Nothing, claim_of_media_type),
        claim => claim,
    };
    match (found(data), claim) {
        (Found::Kind(found), Claim::Kind(said)) if found == said => Ok(found),
        (Found::Kind(found), Claim::Nothing) => Ok(found),
        (Found::Kind(_), _) => Err(DocumentError::Mismatch),
        (Found::Text, Claim::Kind(said)) if said.is_text() => Ok(said),
        (Found::Text, Claim::Kind(_)) => Err(damaged_or_mismatch(data)),
        (Found::Text, Claim::Nothing) if begins_as_html(data) => Ok(Kind::Html),
        (Found::Text, Claim::Other | Claim::Nothing) => Err(DocumentError::Unsupported),
        (
            Found::Protected,
            Claim::Kind(Kind::Xlsx | Kind::Xlsb | Kind::Docx | Kind::Pptx) | Claim::Nothing,
        ) => Ok(Kind::Protected),
        // The workbook's own reader takes more than ours.
        (Found::Container, Claim::Kind(Kind::Xls) | Claim::Nothing) => Ok(Kind::Xls),
        (Found::Container, Claim::Kind(Kind::Hwp | Kind::Xlsx | Kind::Xlsb | Kind::Docx | Kind::Pptx)) => {
            Err(DocumentError::Damaged)
        }
        (Found::Container, Claim::Kind(_)) => Err(DocumentError::Mismatch),
        (Found::Container, Claim::Other) => Err(DocumentError::Unsupported),
        (Found::Old, Claim::Kind(Kind::Hwp | Kind::Xls) | Claim::Other | Claim::Nothing) => {
            Err(DocumentError::FormatOld)
        }
        (Found::Old, Claim::Kind(_)) => Err(DocumentError::Mismatch),
        (Found::Protected, Claim::Other) => Err(DocumentError::Unsupported),
        (Found::Protected, Claim::Kind(_)) => Err(DocumentError::Mismatch),
        (Found::Unsupported, Claim::Kind(_)) => Err(DocumentError::Mismatch),
        (Found::Unsupported, _) => Err(DocumentError::Unsupported),
        (Found::Unknown, Claim::Kind(_)) => Err(DocumentError::Damaged),
        (Found::Unknown, _) => Err(DocumentError::Unsupported),
    }
}

/// Text under the name of a binary format: markup is another format, anything else a broken file.
fn damaged_or_mismatch(data: &[u8]) -> DocumentError {
    let start = data.trim_ascii_start();
    if start.starts_with(b"<") { DocumentError::Mismatch } else { DocumentError::Damaged }
}

fn begins_as_html(data: &[u8]) -> bool {
    let start = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data).trim_ascii_start();
    let begins = |with: &[u8]| start.get(..with.len()).is_some_and(|s| s.eq_ignore_ascii_case(with));
    begins(b"<!doctype html") || begins(b"<html")
}

fn claim_of_name(name: &str) -> Claim {
    let Some((_, extension)) = name.rsplit_once('.') else { return Claim::Nothing };
    match extension.to_ascii_lowercase().as_str() {
        "pdf" => Claim::Kind(Kind::Pdf),
        "xlsx" | "xlsm" | "xltx" | "xltm" => Claim::Kind(Kind::Xlsx),
        "xls" | "xlt" => Claim::Kind(Kind::Xls),
        "xlsb" => Claim::Kind(Kind::Xlsb),
        "ods" | "ots" => Claim::Kind(Kind::Ods),
        "csv" => Claim::Kind(Kind::Csv),
        "tsv" | "tab" => Claim::Kind(Kind::Tsv),
        "txt" => Claim::Kind(Kind::Text),
        "hwp" | "hwt" => Claim::Kind(Kind::Hwp),
        "hwpx" | "hwtx" => Claim::Kind(Kind::Hwpx),
        "docx" | "docm" | "dotx" | "dotm" => Claim::Kind(Kind::Docx),
        "pptx" | "pptm" | "ppsx" | "ppsm" | "potx" => Claim::Kind(Kind::Pptx),
        "html" | "htm" | "xhtml" => Claim::Kind(Kind::Html),
        "md" | "markdown" => Claim::Kind(Kind::Markdown),
        "png" => Claim::Kind(Kind::Png),
        "jpg" | "jpeg" => Claim::Kind(Kind::Jpeg),
        "tif" | "tiff" => Claim::Kind(Kind::Tiff),
        "webp" => Claim::Kind(Kind::Webp),
        "doc" | "ppt" | "odt" | "odp" | "rtf" | "gif" | "bmp" | "zip" | "xml" | "json" => Claim::Other,
        _ => Claim::Nothing,
    }
}

fn claim_of_media_type(declared: &str) -> Claim {
    let essence = declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    const KINDS: [Kind; 18] = [
        Kind::Pdf,
        Kind::Xlsx,
        Kind::Xls,
        Kind::Xlsb,
        Kind::Ods,
        Kind::Csv,
        Kind::Tsv,
        Kind::Hwp,
        Kind::Hwpx,
        Kind::Docx,
        Kind::Pptx,
        Kind::Html,
        Kind::Markdown,
        Kind::Text,
        Kind::Png,
        Kind::Jpeg,
        Kind::Tiff,
        Kind::Webp,
    ];
    // Names that were in use before these were registered.
    let essence = match essence.as_str() {
        "application/vnd.hancom.hwp" | "application/haansofthwp" => "application/x-hwp",
        "application/vnd.hancom.hwpx" | "application/haansofthwpx" => "application/hwp+zip",
        "application/xhtml+xml" => "text/html",
        essence => essence,
    };
    KINDS.into_iter().find(|kind| kind.media_type() == essence).map_or(Claim::Nothing, Claim::Kind)
}

fn found(data: &[u8]) -> Found {
    // Readers of PDF accept a header that starts late.
    if data[..data.len().min(1024)].windows(5).any(|w| w == b"%PDF-") {
        return Found::Kind(Kind::Pdf);
    }
    if data.starts_with(b"PK\x03\x04") || data.starts_with(b"PK\x05\x06") {
        return found_in_zip(data);
    }
    if data.starts_with(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1") {
        return found_in_compound_file(data);
    }
    // Old Excel files without a container: BOF records of BIFF 2 to 5.
    if matches!(data, [0x09, 0x00 | 0x02 | 0x04 | 0x08, 0x04..=0x10, 0x00, ..]) {
        return Found::Old;
    }
    if data.starts_with(hwp::MAGIC_3) {
        return Found::Old;
    }
    if let Some(picture) = found_picture(data) {
        return Found::Kind(picture);
    }
    const TEXTUAL: [&[u8]; 1] = [b"{\\rtf"];
    // A table may well begin with these letters, so they count only in what is not text.
    const BINARY: [&[u8]; 3] = [b"GIF8", b"BM", b"RIFF"];
    let starts = |magics: &[&[u8]]| magics.iter().any(|magic| data.starts_with(magic));
    if starts(&TEXTUAL) {
        Found::Unsupported
    } else if is_text(data) {
        Found::Text
    } else if starts(&BINARY) {
        Found::Unsupported
    } else {
        Found::Unknown
    }
}

/// None of these begins as text may.
fn found_picture(data: &[u8]) -> Option<Kind> {
    match data {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Kind::Png),
        [0xff, 0xd8, 0xff, ..] => Some(Kind::Jpeg),
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some(Kind::Tiff),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Kind::Webp),
        _ => None,
    }
}

fn found_in_zip(data: &[u8]) -> Found {
    let Ok(mut archive) = zip::ZipArchive::new(Cursor::new(data)) else { return Found::Unknown };
    if let Some(kind) = named_kind(&mut archive) {
        return kind;
    }
    let names: Vec<String> =
        archive.file_names().filter_map(|n| n.ok()).map(|n| n.to_ascii_lowercase()).collect();
    let has = |tail: &str| names.iter().any(|n| n.ends_with(tail));
    let under = |head: &str| names.iter().any(|n| n.starts_with(head));
    if has("workbook.bin") {
        Found::Kind(Kind::Xlsb)
    } else if has("workbook.xml") || under("xl/") {
        Found::Kind(Kind::Xlsx)
    } else if has("word/document.xml") {
        Found::Kind(Kind::Docx)
    } else if under("ppt/") {
        Found::Kind(Kind::Pptx)
    } else if under("contents/section") || has("contents/content.hpf") {
        Found::Kind(Kind::Hwpx)
    } else {
        Found::Unsupported
    }
}

/// The kind of a package whose first part names it.
fn named_kind(archive: &mut zip::ZipArchive<Cursor<&[u8]>>) -> Option<Found> {
    let mut media_type = String::new();
    archive.by_name("mimetype").ok()?.take(100).read_to_string(&mut media_type).ok()?;
    match media_type.trim() {
        "application/vnd.oasis.opendocument.spreadsheet"
        | "application/vnd.oasis.opendocument.spreadsheet-template" => Some(Found::Kind(Kind::Ods)),
        "application/hwp+zip" | "application/owpml" => Some(Found::Kind(Kind::Hwpx)),
        _ => Some(Found::Unsupported),
    }
}

fn found_in_compound_file(data: &[u8]) -> Found {
    let Ok(mut file) = cfb::CompoundFile::open(Cursor::new(data)) else { return Found::Container };
    if let Ok(mut header) = file.open_stream("/FileHeader") {
        let mut magic = [0; hwp::MAGIC_5.len()];
        if header.read_exact(&mut magic).is_ok() && magic == hwp::MAGIC_5 {
            return Found::Kind(Kind::Hwp);
        }
    }
    let has = |name: &str| file.exists(name);
    if has("/Workbook") || has("/Book") {
        Found::Kind(Kind::Xls)
    } else if has("/EncryptedPackage") || has("/EncryptionInfo") {
        Found::Protected
    } else {
        Found::Unsupported
    }
}

/// No NUL but in UTF-16, and hardly any control characters.
fn is_text(data: &[u8]) -> bool {
    if crate::sheet::text::utf16_order(data).is_some() {
        return true;
    }
    let sample = &data[..data.len().min(64 * 1024)];
    let control =
        sample.iter().filter(|b| **b < 0x20 && !matches!(**b, b'\t' | b'\n' | b'\r' | 0x0c)).count();
    !sample.contains(&0) && control * 100 <= sample.len()
}
