//! Arrays of numbers as NumPy stores them: a zip file of `.npy` files.

use std::io::{Cursor, Read};

use crate::Failure;

/// An archive of named arrays.
pub(crate) struct Arrays(zip::ZipArchive<Cursor<Vec<u8>>>);

impl Arrays {
    pub(crate) fn new(data: Vec<u8>) -> Result<Self, Failure> {
        Ok(Self(zip::ZipArchive::new(Cursor::new(data))?))
    }

    /// The little-endian bytes of an array of this type (`<f4`, `|u1`, `<f8`) in C order.
    pub(crate) fn bytes(&mut self, name: &str, kind: &str) -> Result<Vec<u8>, Failure> {
        let mut data = Vec::new();
        self.0.by_name(&format!("{name}.npy"))?.read_to_end(&mut data)?;
        // "\x93NUMPY", version, length of the header, a header that looks like a Python dictionary.
        let wide = *data.get(6).ok_or("no array")? > 1;
        let (at, width) = if wide { (8, 4) } else { (8, 2) };
        let length =
            data[at..at + width].iter().rev().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
        let header = String::from_utf8_lossy(&data[at + width..at + width + length]).into_owned();
        if !header.contains(&format!("'{kind}'")) || header.contains("'fortran_order': True") {
            return Err(format!("{name} is not of {kind} in C order: {header}").into());
        }
        Ok(data.split_off(at + width + length))
    }

    pub(crate) fn floats(&mut self, name: &str) -> Result<Vec<f32>, Failure> {
        let bytes = self.bytes(name, "<f4")?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
}
