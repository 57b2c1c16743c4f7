//! What a file's first bytes say it is, against what its name says.
//!
//! This is the look at the door: it refuses a file that is recognisably something else than its name
//! says. Whether a file is whole, encrypted or readable is found out by whoever reads it.

/// Bytes that [`look`] wants to see, where the file has as many.
pub(crate) const HEAD_BYTES: usize = 1024;

/// The media type of what neither its bytes nor its name tell.
pub(crate) const UNKNOWN: &str = "application/octet-stream";

/// What the first bytes were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// What the name says, or a name that says nothing; the media type to keep.
    Fits(&'static str),
    /// Recognisably something else.
    Mismatch { named: &'static str, found: &'static str },
}

/// A format: its extensions, its media type, the container its bytes come in.
struct Format {
    extensions: &'static [&'static str],
    media_type: &'static str,
    bytes: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    Pdf,
    /// Office and OpenDocument files are ZIP archives: their bytes begin alike.
    Zip,
    /// The container of older office files, and of encrypted newer ones.
    Compound,
    Png,
    Jpeg,
    Gif,
    Tiff,
    Webp,
    /// No magic bytes: text.
    Text,
}

const FORMATS: &[Format] = &[
    Format { extensions: &["pdf"], media_type: "application/pdf", bytes: Bytes::Pdf },
    Format {
        extensions: &["xlsx", "xlsm"],
        media_type: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        bytes: Bytes::Zip,
    },
    Format {
        extensions: &["xlsb"],
        media_type: "application/vnd.ms-excel.sheet.binary.macroenabled.12",
        bytes: Bytes::Zip,
    },
    Format {
        extensions: &["ods"],
        media_type: "application/vnd.oasis.opendocument.spreadsheet",
        bytes: Bytes::Zip,
    },
    Format {
        extensions: &["docx", "docm"],
        media_type: "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        bytes: Bytes::Zip,
    },
    Format {
        extensions: &["pptx", "pptm"],
        media_type: "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        bytes: Bytes::Zip,
    },
    Format { extensions: &["hwpx"], media_type: "application/hwp+zip", bytes: Bytes::Zip },
    Format { extensions: &["hwp"], media_type: "application/x-hwp", bytes: Bytes::Compound },
    Format { extensions: &["zip"], media_type: "application/zip", bytes: Bytes::Zip },
    Format { extensions: &["xls"], media_type: "application/vnd.ms-excel", bytes: Bytes::Compound },
    Format { extensions: &["png"], media_type: "image/png", bytes: Bytes::Png },
    Format { extensions: &["jpg", "jpeg"], media_type: "image/jpeg", bytes: Bytes::Jpeg },
    Format { extensions: &["gif"], media_type: "image/gif", bytes: Bytes::Gif },
    Format { extensions: &["tif", "tiff"], media_type: "image/tiff", bytes: Bytes::Tiff },
    Format { extensions: &["webp"], media_type: "image/webp", bytes: Bytes::Webp },
    Format { extensions: &["csv"], media_type: "text/csv", bytes: Bytes::Text },
    Format { extensions: &["tsv"], media_type: "text/tab-separated-values", bytes: Bytes::Text },
    Format { extensions: &["html", "htm"], media_type: "text/html", bytes: Bytes::Text },
    Format { extensions: &["md", "markdown"], media_type: "text/markdown", bytes: Bytes::Text },
    Format { extensions: &["txt"], media_type: "text/plain", bytes: Bytes::Text },
    Format { extensions: &["json"], media_type: "application/json", bytes: Bytes::Text },
];

/// `head` is the beginning of the file, [`HEAD_BYTES`] of it where there are as many.
pub(crate) fn look(name: &str, head: &[u8]) -> Look {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    let named = extension
        .as_deref()
        .and_then(|extension| FORMATS.iter().find(|format| format.extensions.contains(&extension)));
    match (named, found(head)) {
        (Some(named), None) => Look::Fits(named.media_type),
        (Some(named), Some(found)) if fits(named, found) => Look::Fits(named.media_type),
        (Some(named), Some(found)) => Look::Mismatch { named: named.media_type, found: media_type(found) },
        (None, Some(found)) => Look::Fits(media_type(found)),
        (None, None) => Look::Fits(UNKNOWN),
    }
}

/// An encrypted office file of today comes in the container of yesterday's.
fn fits(named: &Format, found: Bytes) -> bool {
    let office = named.media_type.starts_with("application/vnd.");
    named.bytes == found || (office && matches!(found, Bytes::Compound))
}

fn found(head: &[u8]) -> Option<Bytes> {
    const MAGIC: &[(&[u8], Bytes)] = &[
        (b"PK\x03\x04", Bytes::Zip),
        (b"PK\x05\x06", Bytes::Zip),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Bytes::Compound),
        (b"\x89PNG\r\n", Bytes::Png),
        (b"\xff\xd8\xff", Bytes::Jpeg),
        (b"GIF8", Bytes::Gif),
        (b"II*\0", Bytes::Tiff),
        (b"MM\0*", Bytes::Tiff),
    ];
    // Readers of PDF accept a header that starts late.
    if head.windows(5).any(|window| window == b"%PDF-") {
        return Some(Bytes::Pdf);
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some(Bytes::Webp);
    }
    MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, bytes)| *bytes)
}

fn media_type(bytes: Bytes) -> &'static str {
    match bytes {
        Bytes::Pdf => "application/pdf",
        Bytes::Zip => "application/zip",
        Bytes::Compound => "application/x-cfb",
        Bytes::Png => "image/png",
        Bytes::Jpeg => "image/jpeg",
        Bytes::Gif => "image/gif",
        Bytes::Tiff => "image/tiff",
        Bytes::Webp => "image/webp",
        Bytes::Text => "text/plain",
    }
}

/// What a client called its file, made fit to be shown: the last part of a path, without control
/// characters, at most 255 bytes.
pub(crate) fn clean_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut clean: String = last.chars().filter(|c| !c.is_control() && !is_bidi(*c)).collect();
    while clean.len() > 255 {
        clean.pop();
    }
    let clean = clean.trim().to_owned();
    if clean.is_empty() || clean == "." || clean == ".." { "document".to_owned() } else { clean }
}

/// Characters that make a name read differently from how it is written (`exe.pdf`).
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_recognisably_something_else_is_found_out() {
        let cases: [(&str, &[u8], bool); 15] = [
            ("a.pdf", b"%PDF-1.7", true),
            ("a.pdf", b"PK\x03\x04", false),
            ("a.xlsx", b"%PDF-1.7", false),
            ("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", true),
            ("a.pdf", b"damaged", true),
            ("a.csv", b"a,b", true),
            ("a.csv", b"\x89PNG\r\n", false),
            ("A.PDF", b"\n\n%PDF-1.4", true),
            ("a", b"GIF89a", true),
            ("a.hwpx", b"PK\x03\x04", true),
            ("a.hwp", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", true),
            ("a.hwp", b"PK\x03\x04", false),
            ("a.html", b"%PDF-1.7", false),
            ("a.webp", b"RIFF\0\0\0\0WEBPVP8 ", true),
            ("a.png", b"RIFF\0\0\0\0WEBPVP8 ", false),
        ];
        for (name, head, fits) in cases {
            assert_eq!(matches!(look(name, head), Look::Fits(_)), fits, "{name}");
        }
    }

    #[test]
    fn a_name_is_only_ever_the_last_part_of_a_path() {
        let cases = [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("C:\\work\\예산.xlsx", "예산.xlsx"),
            ("a\0b\n.pdf", "ab.pdf"),
            ("invoice\u{202e}fdp.exe", "invoicefdp.exe"),
            ("..", "document"),
            ("", "document"),
        ];
        for (given, kept) in cases {
            assert_eq!(clean_name(given), kept);
        }
        assert!(clean_name(&"가".repeat(200)).len() <= 255);
    }
}
