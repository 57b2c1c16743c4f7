//! Bytes of a text file to text: UTF-8, UTF-16 with or without a byte order mark, and CP949, in which most
//! Korean programs still write.

use encoding_rs::{EUC_KR, Encoding, UTF_16BE, UTF_16LE};

use crate::document::Warning;

/// The text and, where bytes fit no encoding, a warning.
pub(crate) fn decode(data: &[u8]) -> (String, Vec<Warning>) {
    if let Some(text) = utf16_order(data).map(|encoding| encoding.decode(data).0.into_owned()) {
        return (text, Vec::new());
    }
    let unmarked = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    if let Ok(text) = std::str::from_utf8(unmarked) {
        return (text.to_owned(), Vec::new());
    }
    // EUC-KR of the web is CP949.
    let (text, unreadable) = EUC_KR.decode_without_bom_handling(data);
    let mut warnings = Vec::new();
    if unreadable {
        let message = "Some bytes fit no known encoding; they stand as U+FFFD.";
        warnings.push(Warning::new("encoding-doubtful", None, message));
    }
    (text.into_owned(), warnings)
}

/// Which UTF-16 this is, by its byte order mark or by where its zeros stand.
pub(crate) fn utf16_order(data: &[u8]) -> Option<&'static Encoding> {
    match data {
        [0xff, 0xfe, ..] => return Some(UTF_16LE),
        [0xfe, 0xff, ..] => return Some(UTF_16BE),
        _ => {}
    }
    // Separators and line ends have a zero byte, always on the same side.
    let sample = &data[..data.len().min(4096) & !1];
    let zeros = |side: usize| sample.iter().skip(side).step_by(2).filter(|b| **b == 0).count();
    let (first, second) = (zeros(0), zeros(1));
    let enough = sample.len() / 2 / 10;
    if sample.len() < 8 {
        None
    } else if second > enough && first == 0 {
        Some(UTF_16LE)
    } else if first > enough && second == 0 {
        Some(UTF_16BE)
    } else {
        None
    }
}
