//! Password-protected Office documents (MS-OFFCRYPTO): a compound file that holds the real one, encrypted
//! with AES by the "agile" (Office 2010 and later) or the "standard" (Office 2007) scheme. The result is the
//! packed document inside, which is still a stranger's file. Older schemes (`xls` with RC4) are not opened; the
//! one of OpenDocument is in [`odf`].

pub(crate) mod odf;

use std::io::{Cursor, Read};

use aes::cipher::{BlockCipherDecrypt, KeyInit};
use quick_xml::events::{BytesStart, Event};
use sha1::{Digest, Sha1};
use sha2::{Sha256, Sha384, Sha512};

use crate::error::DocumentError;

/// Excel opens with this password what was protected without one.
const DEFAULT_PASSWORD: &str = "VelvetSweatshop";
/// Rounds of the key derivation; Office writes 100,000.
const SPIN_MAX: u32 = 2_000_000;
/// The description of the encryption is far smaller than this.
const INFO_MAX: u64 = 1024 * 1024;
const BLOCK: usize = 16;

/// The document inside `data`.
pub(crate) fn package(data: &[u8], password: Option<&str>) -> Result<Vec<u8>, DocumentError> {
    let damaged = |_| DocumentError::Damaged;
    let mut file = cfb::CompoundFile::open(Cursor::new(data)).map_err(damaged)?;
    let mut info = Vec::new();
    file.open_stream("/EncryptionInfo")
        .map_err(damaged)?
        .take(INFO_MAX)
        .read_to_end(&mut info)
        .map_err(damaged)?;
    let scheme = Scheme::read(&info)?;
    let given = password.filter(|p| !p.is_empty());
    let key = match given.map(|password| scheme.key(password)).transpose()?.flatten() {
        Some(key) => Some(key),
        None => scheme.key(DEFAULT_PASSWORD)?,
    };
    let Some(key) = key else {
        return Err(if given.is_some() { DocumentError::PasswordWrong } else { DocumentError::Encrypted });
    };
    let mut package = Vec::new();
    let stream = file.open_stream("/EncryptedPackage").map_err(damaged)?;
    stream.take(data.len() as u64).read_to_end(&mut package).map_err(damaged)?;
    let (size, content) = package.split_first_chunk::<8>().ok_or(DocumentError::Damaged)?;
    let mut content = content.to_vec();
    content.truncate(content.len() / BLOCK * BLOCK);
    scheme.decrypt(&key, &mut content)?;
    content.truncate(usize::try_from(u64::from_le_bytes(*size)).unwrap_or(usize::MAX));
    Ok(content)
}

enum Scheme {
    Agile(Agile),
    Standard(Standard),
}

impl Scheme {
    fn read(info: &[u8]) -> Result<Self, DocumentError> {
        let (version, rest) = info.split_first_chunk::<8>().ok_or(DocumentError::Damaged)?;
        match version[..4] {
            [4, 0, 4, 0] => Agile::read(rest).map(Self::Agile),
            [2..=4, 0, 2, 0] => Standard::read(rest).map(Self::Standard),
            _ => Err(DocumentError::EncryptionUnsupported),
        }
    }

    /// The key of the content, `None` if the password is not the one.
    fn key(&self, password: &str) -> Result<Option<Vec<u8>>, DocumentError> {
        let password: Vec<u8> = password.encode_utf16().flat_map(u16::to_le_bytes).collect();
        match self {
            Self::Agile(agile) => agile.key(&password),
            Self::Standard(standard) => standard.key(&password),
        }
    }

    fn decrypt(&self, key: &[u8], content: &mut [u8]) -> Result<(), DocumentError> {
        match self {
            Self::Agile(agile) => {
                // Each segment has an initial vector of its own.
                for (segment, number) in content.chunks_mut(4096).zip(0u32..) {
                    let iv = agile.data_hash.of(&[&agile.data_salt, &number.to_le_bytes()]);
                    decrypt(key, Some(&fitted(iv, BLOCK)), segment)?;
                }
                Ok(())
            }
            Self::Standard(_) => decrypt(key, None, content),
        }
    }
}

/// What the XML of the agile scheme says.
struct Agile {
    data_salt: Vec<u8>,
    data_hash: Hash,
    salt: Vec<u8>,
    hash: Hash,
    key_bytes: usize,
    spin: u32,
    verifier: Vec<u8>,
    verifier_hash: Vec<u8>,
    encrypted_key: Vec<u8>,
}

impl Agile {
    fn read(xml: &[u8]) -> Result<Self, DocumentError> {
        let xml = std::str::from_utf8(xml).map_err(|_| DocumentError::Damaged)?;
        let mut reader = quick_xml::Reader::from_str(xml);
        let (mut data, mut password) = (None, None);
        loop {
            match reader.read_event().map_err(|_| DocumentError::Damaged)? {
                Event::Start(e) | Event::Empty(e) if e.local_name().as_ref() == "keyData" => {
                    data = Some(e.into_owned());
                }
                Event::Start(e) | Event::Empty(e) if e.local_name().as_ref() == "encryptedKey" => {
                    password = Some(e.into_owned());
                }
                Event::Eof => break,
                _ => {}
            }
        }
        // Without a password's key there is one for a certificate, which nobody here holds.
        let data = data.ok_or(DocumentError::Damaged)?;
        let password = password.ok_or(DocumentError::EncryptionUnsupported)?;
        for element in [&data, &password] {
            if attribute(element, "cipherAlgorithm")? != "AES"
                || attribute(element, "cipherChaining")? != "ChainingModeCBC"
            {
                return Err(DocumentError::EncryptionUnsupported);
            }
        }
        let spin = number(&password, "spinCount")?;
        if spin > SPIN_MAX {
            return Err(DocumentError::EncryptionUnsupported);
        }
        Ok(Self {
            data_salt: base64(&attribute(&data, "saltValue")?)?,
            data_hash: Hash::named(&attribute(&data, "hashAlgorithm")?)?,
            salt: base64(&attribute(&password, "saltValue")?)?,
            hash: Hash::named(&attribute(&password, "hashAlgorithm")?)?,
            key_bytes: number(&password, "keyBits")? as usize / 8,
            spin,
            verifier: base64(&attribute(&password, "encryptedVerifierHashInput")?)?,
            verifier_hash: base64(&attribute(&password, "encryptedVerifierHashValue")?)?,
            encrypted_key: base64(&attribute(&password, "encryptedKeyValue")?)?,
        })
    }

    fn key(&self, password: &[u8]) -> Result<Option<Vec<u8>>, DocumentError> {
        let mut hash = self.hash.of(&[&self.salt, password]);
        for round in 0..self.spin {
            hash = self.hash.of(&[&round.to_le_bytes(), &hash]);
        }
        // Each value is encrypted under a key of its own.
        let open = |purpose: [u8; 8], value: &[u8]| {
            let key = fitted(self.hash.of(&[&hash, &purpose]), self.key_bytes);
            let mut value = value.to_vec();
            decrypt(&key, Some(&fitted(self.salt.clone(), BLOCK)), &mut value).map(|()| value)
        };
        let verifier = open([0xfe, 0xa7, 0xd2, 0x76, 0x3b, 0x4b, 0x9e, 0x79], &self.verifier)?;
        let verifier_hash = open([0xd7, 0xaa, 0x0f, 0x6d, 0x30, 0x61, 0x34, 0x4e], &self.verifier_hash)?;
        if !verifier_hash.starts_with(&self.hash.of(&[&verifier])) {
            return Ok(None);
        }
        let mut key = open([0x14, 0x6e, 0x0b, 0xe7, 0xab, 0xac, 0xd0, 0xd6], &self.encrypted_key)?;
        key.truncate(self.key_bytes);
        Ok(Some(key))
    }
}

/// What the header of the standard scheme says: AES without chaining, SHA-1.
struct Standard {
    key_bytes: usize,
    salt: [u8; 16],
    verifier: [u8; 16],
    verifier_hash: [u8; 32],
}

impl Standard {
    fn read(info: &[u8]) -> Result<Self, DocumentError> {
        fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], DocumentError> {
            bytes.get(at..).and_then(|b| b.first_chunk()).copied().ok_or(DocumentError::Damaged)
        }
        let word = |at| array(info, at).map(u32::from_le_bytes);
        let header = word(0)? as usize;
        // AES of 128, 192 and 256 bits.
        if !matches!(word(12)?, 0x660e..=0x6610) {
            return Err(DocumentError::EncryptionUnsupported);
        }
        let after = info.get(4..).and_then(|b| b.get(header..)).ok_or(DocumentError::Damaged)?;
        // The size of the salt, always 16; the salt; the verifier; the size of its hash; the hash.
        Ok(Self {
            key_bytes: word(20)? as usize / 8,
            salt: array(after, 4)?,
            verifier: array(after, 20)?,
            verifier_hash: array(after, 40)?,
        })
    }

    fn key(&self, password: &[u8]) -> Result<Option<Vec<u8>>, DocumentError> {
        const ROUNDS: u32 = 50_000;
        let mut hash = Hash::Sha1.of(&[&self.salt, password]);
        for round in 0..ROUNDS {
            hash = Hash::Sha1.of(&[&round.to_le_bytes(), &hash]);
        }
        let hash = Hash::Sha1.of(&[&hash, &0u32.to_le_bytes()]);
        let stretched = |fill: u8| {
            let mut block = [fill; 64];
            block.iter_mut().zip(&hash).for_each(|(b, h)| *b ^= h);
            Hash::Sha1.of(&[&block])
        };
        let mut key = [stretched(0x36), stretched(0x5c)].concat();
        key.truncate(self.key_bytes);
        let (mut verifier, mut verifier_hash) = (self.verifier, self.verifier_hash);
        decrypt(&key, None, &mut verifier)?;
        decrypt(&key, None, &mut verifier_hash)?;
        Ok(verifier_hash.starts_with(&Hash::Sha1.of(&[&verifier])).then_some(key))
    }
}

#[derive(Clone, Copy)]
enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    fn named(name: &str) -> Result<Self, DocumentError> {
        match name {
            "SHA1" | "SHA-1" => Ok(Self::Sha1),
            "SHA256" | "SHA-256" => Ok(Self::Sha256),
            "SHA384" | "SHA-384" => Ok(Self::Sha384),
            "SHA512" | "SHA-512" => Ok(Self::Sha512),
            _ => Err(DocumentError::EncryptionUnsupported),
        }
    }

    fn of(self, parts: &[&[u8]]) -> Vec<u8> {
        fn digest<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
            let mut digest = D::new();
            parts.iter().for_each(|part| digest.update(part));
            digest.finalize().to_vec()
        }
        match self {
            Self::Sha1 => digest::<Sha1>(parts),
            Self::Sha256 => digest::<Sha256>(parts),
            Self::Sha384 => digest::<Sha384>(parts),
            Self::Sha512 => digest::<Sha512>(parts),
        }
    }
}

/// Cut, or filled up as the format says, to `length`.
fn fitted(mut bytes: Vec<u8>, length: usize) -> Vec<u8> {
    bytes.resize(length.min(64), 0x36);
    bytes
}

/// AES in place: chained from `iv`, or block by block without one. Refuses keys that AES does not have.
fn decrypt(key: &[u8], iv: Option<&[u8]>, data: &mut [u8]) -> Result<(), DocumentError> {
    fn with<C: KeyInit + BlockCipherDecrypt<BlockSize = aes::cipher::consts::U16>>(
        key: &[u8],
        iv: Option<&[u8]>,
        data: &mut [u8],
    ) -> Result<(), DocumentError> {
        let cipher = C::new_from_slice(key).map_err(|_| DocumentError::EncryptionUnsupported)?;
        let mut before = iv.map(<[u8]>::to_vec);
        for block in data.chunks_exact_mut(BLOCK) {
            let encrypted = block.to_vec();
            let Ok(in_place) = block.try_into() else { continue };
            cipher.decrypt_block(in_place);
            if let Some(before) = &mut before {
                block.iter_mut().zip(before.iter()).for_each(|(b, x)| *b ^= x);
                *before = encrypted;
            }
        }
        Ok(())
    }
    match key.len() {
        16 => with::<aes::Aes128>(key, iv, data),
        24 => with::<aes::Aes192>(key, iv, data),
        32 => with::<aes::Aes256>(key, iv, data),
        _ => Err(DocumentError::EncryptionUnsupported),
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Result<String, DocumentError> {
    let found = element.attributes().flatten().find(|a| a.key.as_ref() == name);
    found.map(|a| a.value.into_owned()).ok_or(DocumentError::Damaged)
}

fn number(element: &BytesStart<'_>, name: &str) -> Result<u32, DocumentError> {
    attribute(element, name)?.parse().map_err(|_| DocumentError::Damaged)
}

fn base64(text: &str) -> Result<Vec<u8>, DocumentError> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0u32);
    for c in text.bytes().filter(|c| *c != b'=' && !c.is_ascii_whitespace()) {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(DocumentError::Damaged),
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Ok(bytes)
}
