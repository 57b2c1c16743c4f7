//! HWP 5 files, record by record.

use std::io::Write;

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use flate2::write::DeflateEncoder;

/// A file of one section.
pub(crate) struct Hwp {
    /// 1: packed, 2: protected by a password, 4: for distribution only.
    pub(crate) properties: u32,
    pub(crate) shapes: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Hwp {
    pub(crate) fn header(properties: u32) -> Vec<u8> {
        let mut header = b"HWP Document File".to_vec();
        header.resize(32, 0);
        header.extend([1, 0, 0, 5]);
        header.extend(properties.to_le_bytes());
        header.extend([0, 0, 0, 0, 4]);
        header.resize(256, 0);
        header
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (mut shapes, mut body) = (self.packed(&self.shapes), self.packed(&self.body));
        if self.properties & 2 != 0 {
            seal(&mut shapes);
            seal(&mut body);
        }
        let header = Self::header(self.properties);
        let (name, body) = match self.properties & 4 {
            0 => ("/BodyText/Section0", body),
            _ => ("/ViewText/Section0", wrapped(&body)),
        };
        let storage = name.rsplit_once('/').unwrap().0;
        super::compound_with(&[storage], &[("/FileHeader", &header), ("/DocInfo", &shapes), (name, &body)])
    }

    fn packed(&self, bytes: &[u8]) -> Vec<u8> {
        if self.properties & 1 == 0 {
            return bytes.to_vec();
        }
        let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }
}

pub(crate) fn record(tag: u32, level: u32, data: &[u8]) -> Vec<u8> {
    let head = tag | level << 10 | (data.len() as u32).min(0xfff) << 20;
    let long = if data.len() >= 0xfff { (data.len() as u32).to_le_bytes().to_vec() } else { Vec::new() };
    [&head.to_le_bytes()[..], &long, data].concat()
}

/// As a document for distribution is written: the key at a place that the seed says, hidden by a run of random numbers.
fn wrapped(body: &[u8]) -> Vec<u8> {
    const SEED: u32 = 0x1234_5677;
    const KEY: [u8; 16] = *b"0123456789ABCDEF";
    let mut hidden = [0u8; 256];
    let at = 4 + (SEED & 0xf) as usize;
    hidden[at..at + 16].copy_from_slice(&KEY);
    let mut state = SEED;
    let mut random = || {
        state = state.wrapping_mul(214_013).wrapping_add(2_531_011);
        state >> 16 & 0x7fff
    };
    let mut place = 0;
    while place < 256 {
        let mask = random() as u8;
        for _ in 0..(random() & 0xf) + 1 {
            if place < 256 {
                hidden[place] ^= mask;
                place += 1;
            }
        }
    }
    hidden[..4].copy_from_slice(&SEED.to_le_bytes());
    let cipher = aes::Aes128::new_from_slice(&KEY).unwrap();
    let mut content = body.to_vec();
    content.resize(content.len().div_ceil(16) * 16, 0);
    content.chunks_exact_mut(16).for_each(|block| cipher.encrypt_block(block.try_into().unwrap()));
    [record(28, 0, &hidden), content].concat()
}

/// As a file with the password "123456" is written.
fn seal(stream: &mut [u8]) {
    // The start of SHA-1 over d9 31 62 32 64 33 66 34 68 35 6a 36, by another implementation.
    const KEY: [u8; 16] =
        [0x44, 0x71, 0xba, 0x52, 0x69, 0xac, 0x43, 0xd4, 0x91, 0x7f, 0x7e, 0x44, 0x2f, 0x9b, 0x22, 0xfc];
    let cipher = aes::Aes128::new_from_slice(&KEY).unwrap();
    let mut register = [0u8; 16];
    for at in 0..stream.len() * 8 {
        let mut block = register.into();
        cipher.encrypt_block(&mut block);
        let (byte, bit) = (&mut stream[at / 8], 7 - at % 8);
        *byte ^= (block[0] >> 7) << bit;
        let sealed = *byte >> bit & 1;
        register = (u128::from_be_bytes(register) << 1 | u128::from(sealed)).to_be_bytes();
    }
}
