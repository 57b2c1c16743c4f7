//! HWP 5 with a password, as programs since 2010 write it ("encryption version 4").
//!
//! Each stream is encrypted by itself with AES-128, bit by bit (CFB-1) from a register of zeros. The key is the start of
//! SHA-1 over the password's bytes, each with the one before it turned left by a bit. Hancom does not publish this; it
//! is how the readers of others open such files.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use sha1::{Digest, Sha1};

/// What stands before the first byte of a password.
const SEED: u8 = 0xec;

/// The key that a password makes.
pub(super) struct Key(Aes128);

impl Key {
    pub(super) fn of(password: &str) -> Self {
        let mut mixed = Vec::with_capacity(password.len() * 2);
        let mut before = SEED;
        for byte in password.bytes() {
            mixed.extend([before.rotate_left(1), byte]);
            before = byte;
        }
        let mut key = [0; 16];
        key.copy_from_slice(&Sha1::digest(&mixed)[..16]);
        Self(Aes128::new(&key.into()))
    }

    pub(super) fn decrypt(&self, stream: &mut [u8]) {
        let mut register = 0u128;
        for byte in stream {
            let mut plain = 0;
            for bit in (0..8).rev() {
                let mut block = register.to_be_bytes().into();
                self.0.encrypt_block(&mut block);
                let sealed = *byte >> bit & 1;
                plain |= (sealed ^ block[0] >> 7) << bit;
                register = register << 1 | u128::from(sealed);
            }
            *byte = plain;
        }
    }
}
