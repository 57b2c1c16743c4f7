//! The check of a packed workbook before any reader opens it: everything is unpacked once into nothing and
//! counted. Sizes written in the archive are claims of whoever wrote it, so they are not believed.

use std::io::{Cursor, Read};

use crate::error::{DocumentError, Excess};
use crate::limits::Limits;

/// Unpacked size from which the ratio of a part matters.
const RATIO_FROM: u64 = 10 * 1024 * 1024;

/// Refuses archives that would unpack to more than the limits allow.
pub(super) fn check(data: &[u8], limits: &Limits) -> Result<(), DocumentError> {
    let mut archive = zip::ZipArchive::new(Cursor::new(data)).map_err(|_| DocumentError::Damaged)?;
    if archive.len() as u64 > u64::from(limits.archive_entries) {
        return Err(DocumentError::TooLarge(Excess::Unpacked));
    }
    let mut left = limits.unpacked_bytes;
    for index in 0..archive.len() {
        // A part that cannot be unpacked is left to the reader, which may not need it.
        let Ok(mut part) = archive.by_index(index) else { continue };
        let name = part.name().map(|n| n.to_ascii_lowercase()).unwrap_or_default();
        let allowed = if is_streamed(&name) { left } else { left.min(limits.part_bytes) };
        let packed = part.compressed_size().max(1);
        let markup = name.ends_with(".xml") || name.ends_with(".rels");
        let size = measure(&mut part, allowed, markup.then_some(limits.string_bytes))?;
        if size > RATIO_FROM && size / packed > limits.unpack_ratio {
            return Err(DocumentError::TooLarge(Excess::Unpacked));
        }
        left = left.saturating_sub(size);
    }
    Ok(())
}

/// Parts that are read cell by cell, and pictures, which are not read at all.
fn is_streamed(name: &str) -> bool {
    name.contains("worksheets/")
        || name.contains("media/")
        || name == "content.xml"
        || name.starts_with("pictures/")
}

/// Unpacks a part, at most `allowed` bytes of it, with no stretch between two `<` longer than `stretch`.
fn measure(part: &mut impl Read, allowed: u64, stretch: Option<u64>) -> Result<u64, DocumentError> {
    let mut buffer = [0u8; 32 * 1024];
    let (mut size, mut since_markup) = (0u64, 0u64);
    loop {
        let Ok(read) = part.read(&mut buffer) else { return Ok(size) };
        if read == 0 {
            return Ok(size);
        }
        size += read as u64;
        if size > allowed {
            return Err(DocumentError::TooLarge(Excess::Unpacked));
        }
        let Some(stretch) = stretch else { continue };
        let mut pieces = buffer[..read].split(|byte| *byte == b'<');
        since_markup += pieces.next().map_or(0, |piece| piece.len() as u64);
        for piece in pieces {
            if since_markup > stretch {
                return Err(DocumentError::TooLarge(Excess::String));
            }
            since_markup = piece.len() as u64;
        }
        if since_markup > stretch {
            return Err(DocumentError::TooLarge(Excess::String));
        }
    }
}
