//! Korean: with a dictionary to morphemes, without one by particles and endings.

mod dictionary;
pub(crate) mod eojeol;
mod lattice;
mod unknown;
mod user;

pub use dictionary::{Dictionary, Morpheme};
pub use user::{UserWordError, UserWords};

pub(crate) fn is_hangul(c: char) -> bool {
    ('\u{ac00}'..='\u{d7a3}').contains(&c)
}
