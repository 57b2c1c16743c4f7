//! Packed documents. Before any reader opens one, everything in it is unpacked once into nothing and counted.
//! Sizes written in the archive are claims of whoever wrote it, so they are not believed.

use std::io::{Cursor, Read};

use crate::error::{DocumentError, Excess};
use crate::limits::Limits;

/// Unpacked size from which the ratio of a part matters.
const RATIO_FROM: u64 = 10 * 1024 * 1024;

/// Refuses archives that would unpack to more than the limits allow.
pub(crate) fn check(data: &[u8], limits: &Limits) -> Result<(), DocumentError> {
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

/// A packed document whose parts are read one by one.
pub(crate) struct Package<'d> {
    archive: zip::ZipArchive<Cursor<&'d [u8]>>,
    part_bytes: u64,
}

impl<'d> Package<'d> {
    /// Opens what [`check`] lets pass.
    pub(crate) fn open(data: &'d [u8], limits: &Limits) -> Result<Self, DocumentError> {
        check(data, limits)?;
        let archive = zip::ZipArchive::new(Cursor::new(data)).map_err(|_| DocumentError::Damaged)?;
        Ok(Self { archive, part_bytes: limits.part_bytes })
    }

    /// The names of its parts, in the archive's order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.archive.file_names().filter_map(|name| name.ok()).map(|name| name.into_owned()).collect()
    }

    /// The names that begin and end so in any case, by the number between, then by name.
    pub(crate) fn numbered(&self, head: &str, tail: &str) -> Vec<String> {
        let mut found: Vec<(u32, String)> = Vec::new();
        for name in self.names() {
            let lower = name.to_ascii_lowercase();
            if let Some(number) = lower.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail))
                && number.bytes().all(|byte| byte.is_ascii_digit())
            {
                found.push((number.parse().unwrap_or(0), name));
            }
        }
        found.sort();
        found.into_iter().map(|(_, name)| name).collect()
    }

    /// A part by its name, in any case; of one that breaks off, what can be unpacked.
    pub(crate) fn part(&mut self, name: &str) -> Option<Vec<u8>> {
        let index = self.archive.index_for_name(name).or_else(|| {
            let mut names = self.archive.file_names();
            names.position(|other| other.is_ok_and(|other| other.eq_ignore_ascii_case(name)))
        })?;
        let part = self.archive.by_index(index).ok()?;
        let mut bytes = Vec::new();
        let read = part.take(self.part_bytes).read_to_end(&mut bytes);
        (read.is_ok() || !bytes.is_empty()).then_some(bytes)
    }
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
