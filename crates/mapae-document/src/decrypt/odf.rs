//! Packages whose parts are encrypted one by one, as OpenDocument describes it and HWPX does it too: each part is
//! packed, then encrypted with AES-256 under a key that PBKDF2 makes of the password's hash.

use std::collections::HashMap;
use std::io::Read;

use flate2::read::DeflateDecoder;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{base64, decrypt};
use crate::error::DocumentError;
use crate::xml::{Element, Tree};

/// Rounds of the key derivation; programs write 1,024 to 100,000.
const ROUNDS_MAX: u32 = 1_000_000;
/// Bytes of the start over which the checksum is taken.
const CHECKED: usize = 1024;

/// How the parts of a package are encrypted, by the name of the part.
pub(crate) struct Encryption(HashMap<String, Part>);

struct Part {
    iv: Vec<u8>,
    salt: Vec<u8>,
    rounds: u32,
    checksum: Vec<u8>,
}

impl Encryption {
    /// What a manifest says; `None` where nothing is encrypted.
    pub(crate) fn of(manifest: &str) -> Result<Option<Self>, DocumentError> {
        let tree = Tree::parse(manifest)?;
        let mut parts = HashMap::new();
        for entry in tree.root().into_iter().flat_map(|root| root.elements()) {
            if let (Some(name), Some(data)) = (entry.attribute("full-path"), entry.child("encryption-data")) {
                parts.insert(name, Part::read(&data)?);
            }
        }
        // One that nests differently is encrypted all the same.
        if parts.is_empty() && manifest.contains(":encryption-data") {
            return Err(DocumentError::EncryptionUnsupported);
        }
        Ok((!parts.is_empty()).then_some(Self(parts)))
    }

    /// The content of a part; one that is not encrypted is given back as it is.
    pub(crate) fn open(
        &self,
        name: &str,
        bytes: Vec<u8>,
        password: Option<&str>,
        bytes_max: u64,
    ) -> Result<Vec<u8>, DocumentError> {
        let Some(part) = self.0.get(name) else { return Ok(bytes) };
        let password = password.filter(|password| !password.is_empty()).ok_or(DocumentError::Encrypted)?;
        let mut packed = bytes;
        packed.truncate(packed.len() / 16 * 16);
        decrypt(&part.key(password), Some(&part.iv), &mut packed)?;
        let mut content = Vec::new();
        // The end is padding, which is no error.
        let read = DeflateDecoder::new(packed.as_slice()).take(bytes_max).read_to_end(&mut content);
        // Office programs take the checksum of what is packed, Hancom's of what was.
        let right =
            |bytes: &[u8]| Sha256::digest(&bytes[..bytes.len().min(CHECKED)]).as_slice() == part.checksum;
        if !right(&packed) && !right(&content) {
            return Err(DocumentError::PasswordWrong);
        }
        if read.is_err() && content.is_empty() { Err(DocumentError::Damaged) } else { Ok(content) }
    }
}

impl Part {
    fn read(data: &Element<'_, '_>) -> Result<Self, DocumentError> {
        let unsupported = DocumentError::EncryptionUnsupported;
        let (Some(algorithm), Some(derivation)) = (data.child("algorithm"), data.child("key-derivation"))
        else {
            return Err(unsupported);
        };
        let says = |element: &Element<'_, '_>, name, end: &str| {
            element.attribute(name).is_some_and(|value| value.to_ascii_lowercase().ends_with(end))
        };
        let start = data.child("start-key-generation");
        let rounds = derivation.number("iteration-count").unwrap_or(0);
        if !says(&algorithm, "algorithm-name", "aes256-cbc")
            || !says(&derivation, "key-derivation-name", "pbkdf2")
            || !start.is_some_and(|start| says(&start, "start-key-generation-name", "sha256"))
            || !says(data, "checksum-type", "sha256-1k")
            || !(1..=ROUNDS_MAX).contains(&rounds)
        {
            return Err(unsupported);
        }
        let bytes = |element: &Element<'_, '_>, name| {
            element.attribute(name).ok_or(DocumentError::Damaged).and_then(|text| base64(&text))
        };
        Ok(Self {
            iv: bytes(&algorithm, "initialisation-vector")?,
            salt: bytes(&derivation, "salt")?,
            rounds,
            checksum: bytes(data, "checksum")?,
        })
    }

    fn key(&self, password: &str) -> Vec<u8> {
        let secret = Sha256::digest(password.as_bytes());
        let mut key = Vec::new();
        for block in 1u32..=2 {
            let mut round = hmac_sha1(&secret, &[&self.salt, &block.to_be_bytes()]);
            let mut sum = round.clone();
            for _ in 1..self.rounds {
                round = hmac_sha1(&secret, &[&round]);
                sum.iter_mut().zip(&round).for_each(|(sum, byte)| *sum ^= byte);
            }
            key.extend(sum);
        }
        key.truncate(32);
        key
    }
}

/// RFC 2104, for keys no longer than a block.
fn hmac_sha1(key: &[u8], message: &[&[u8]]) -> Vec<u8> {
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let mut inner = Sha1::new();
    inner.update(padded(0x36));
    message.iter().for_each(|part| inner.update(part));
    let mut outer = Sha1::new();
    outer.update(padded(0x5c));
    outer.update(inner.finalize());
    outer.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_that_of_rfc_6070() {
        let part = Part { iv: vec![], salt: b"salt".to_vec(), rounds: 2, checksum: vec![] };
        let mac = hmac_sha1(b"key", &[b"The quick brown fox ", b"jumps over the lazy dog"]);
        assert_eq!(mac[..4], [0xde, 0x7c, 0x9b, 0x85]);
        assert_eq!(part.key("password").len(), 32);
    }
}
