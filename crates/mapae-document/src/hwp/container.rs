//! The streams of a file, unpacked within the limits.
//!
//! A distribution document (one that may be read and not edited) keeps its sections under another name, each
//! encrypted under a key that stands in the stream itself, hidden by a published generator of random numbers: that is
//! no secret, so it is read like any other.

use std::io::{Cursor, Read};

use aes::cipher::{BlockCipherDecrypt, KeyInit};
use flate2::read::DeflateDecoder;

use super::MAGIC_5;
use super::password::Key;
use super::record::{self, tag};
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;

/// Bits of the properties in the header.
const PACKED: u32 = 1;
const PASSWORD: u32 = 1 << 1;
const DISTRIBUTION: u32 = 1 << 2;
/// Rights of a server or of a certificate.
const RIGHTS: u32 = 1 << 4 | 1 << 8 | 1 << 10;
/// The one way of encrypting that is known.
const ENCRYPTION: u8 = 4;
/// The record that hides the key of a section has this many bytes.
const KEY_BYTES: usize = 256;

pub(super) struct Container<'d> {
    file: cfb::CompoundFile<Cursor<&'d [u8]>>,
    properties: u32,
    key: Option<Key>,
    part_bytes: u64,
    left: u64,
    cut: bool,
}

impl<'d> Container<'d> {
    pub(super) fn open(
        data: &'d [u8],
        password: Option<&str>,
        limits: &Limits,
    ) -> Result<Self, DocumentError> {
        let mut file = cfb::CompoundFile::open(Cursor::new(data)).map_err(|_| DocumentError::Damaged)?;
        let mut header = Vec::new();
        let stream = file.open_stream("/FileHeader").map_err(|_| DocumentError::Damaged)?;
        stream.take(KEY_BYTES as u64).read_to_end(&mut header).map_err(|_| DocumentError::Damaged)?;
        let properties = header.get(36..).and_then(|bytes| bytes.first_chunk::<4>());
        let (true, Some(properties)) = (header.starts_with(MAGIC_5), properties) else {
            return Err(DocumentError::Damaged);
        };
        let properties = u32::from_le_bytes(*properties);
        if properties & RIGHTS != 0 {
            return Err(DocumentError::EncryptionUnsupported);
        }
        let key = match password.filter(|password| !password.is_empty()) {
            _ if properties & PASSWORD == 0 => None,
            None => return Err(DocumentError::Encrypted),
            Some(_) if header.get(44) != Some(&ENCRYPTION) => {
                return Err(DocumentError::EncryptionUnsupported);
            }
            Some(password) => Some(Key::of(password)),
        };
        let mut container = Self {
            file,
            properties,
            key,
            part_bytes: limits.part_bytes,
            left: limits.unpacked_bytes,
            cut: false,
        };
        // Nothing says whether a password is right but that what comes out makes sense.
        if container.key.is_some() {
            let shapes = container.stream("/DocInfo").map_err(|_| DocumentError::PasswordWrong)?;
            if record::first(&shapes).is_none_or(|(tag, ..)| tag != tag::DOCUMENT_PROPERTIES) {
                return Err(DocumentError::PasswordWrong);
            }
        }
        Ok(container)
    }

    /// The streams of the body's sections, in order.
    pub(super) fn sections(&self) -> Vec<String> {
        let storages =
            if self.distributed() { ["/ViewText", "/BodyText"] } else { ["/BodyText", "/ViewText"] };
        for storage in storages {
            let Ok(entries) = self.file.read_storage(storage) else { continue };
            let number = |name: &str| name.strip_prefix("Section").and_then(|n| n.parse::<u32>().ok());
            let mut found: Vec<(u32, String)> = entries
                .filter(|entry| entry.is_stream())
                .filter_map(|entry| Some((number(entry.name())?, format!("{storage}/{}", entry.name()))))
                .collect();
            found.sort();
            if !found.is_empty() {
                return found.into_iter().map(|(_, name)| name).collect();
            }
        }
        Vec::new()
    }

    pub(super) fn section(&mut self, name: &str) -> Result<Vec<u8>, DocumentError> {
        let raw = self.raw(name).ok_or(DocumentError::Damaged)?;
        if !name.starts_with("/ViewText") {
            return self.unpacked(raw);
        }
        match record::first(&raw) {
            Some((tag::DISTRIBUTION, _, hidden, rest)) => {
                let opened = opened(hidden, rest)?;
                self.unpacked(opened)
            }
            _ => self.unpacked(raw),
        }
    }

    pub(super) fn stream(&mut self, name: &str) -> Result<Vec<u8>, DocumentError> {
        let raw = self.raw(name).ok_or(DocumentError::Damaged)?;
        self.unpacked(raw)
    }

    /// Whether a stream broke off.
    pub(super) fn cut(&self) -> bool {
        self.cut
    }

    fn distributed(&self) -> bool {
        self.properties & DISTRIBUTION != 0
    }

    fn raw(&mut self, name: &str) -> Option<Vec<u8>> {
        let stream = self.file.open_stream(name).ok()?;
        let mut bytes = Vec::new();
        let read = stream.take(self.part_bytes).read_to_end(&mut bytes);
        self.cut |= read.is_err();
        if let Some(key) = &self.key {
            key.decrypt(&mut bytes);
        }
        (read.is_ok() || !bytes.is_empty()).then_some(bytes)
    }

    fn unpacked(&mut self, raw: Vec<u8>) -> Result<Vec<u8>, DocumentError> {
        if self.properties & PACKED == 0 {
            return Ok(raw);
        }
        let allowed = self.part_bytes.min(self.left);
        let mut bytes = Vec::new();
        let read = DeflateDecoder::new(raw.as_slice()).take(allowed + 1).read_to_end(&mut bytes);
        if bytes.len() as u64 > allowed {
            return Err(DocumentError::TooLarge(Excess::Unpacked));
        }
        self.left -= bytes.len() as u64;
        if read.is_err() && bytes.is_empty() {
            return Err(DocumentError::Damaged);
        }
        self.cut |= read.is_err();
        Ok(bytes)
    }
}

/// What a section of a distribution document holds under its wrapping.
fn opened(hidden: &[u8], encrypted: &[u8]) -> Result<Vec<u8>, DocumentError> {
    let mut hidden: [u8; KEY_BYTES] = hidden.try_into().map_err(|_| DocumentError::Damaged)?;
    let seed = u32::from_le_bytes([hidden[0], hidden[1], hidden[2], hidden[3]]);
    let mut random = Random(seed);
    let (mut mask, mut left) = (0, 0);
    for (at, byte) in hidden.iter_mut().enumerate() {
        if left == 0 {
            mask = random.next() as u8;
            left = (random.next() & 0xf) + 1;
        }
        if at >= 4 {
            *byte ^= mask;
        }
        left -= 1;
    }
    let at = 4 + usize::from(hidden[0] & 0xf);
    let cipher = aes::Aes128::new_from_slice(&hidden[at..at + 16]).map_err(|_| DocumentError::Damaged)?;
    let mut content = encrypted.to_vec();
    for block in content.chunks_exact_mut(16) {
        if let Ok(block) = block.try_into() {
            cipher.decrypt_block(block);
        }
    }
    Ok(content)
}

/// The generator of Microsoft's C library, which the format names.
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(214_013).wrapping_add(2_531_011);
        self.0 >> 16 & 0x7fff
    }
}
