//! Keywords, classes, embeddings and extractive intents of Korean and English texts, without a network.
//!
//! Everything works without any data beside the program, by lexical methods; with packs ([`models`]) texts have
//! vectors of meaning and Korean can be cut into morphemes. In reading order:
//!
//! - [`language`]: which language a text is in
//! - [`keywords`]: what a text is about
//! - [`classify`]: which of some labels it belongs to
//! - [`intents`]: what may be asked of it, with the answers that stand in it
//! - [`embed`]: vectors of texts, and the models that make them;  [`encoder`]: the one that comes with mapae
//! - [`korean`]: morphemes by a dictionary, nouns without one
//! - [`models`], [`pack`]: the data that makes all of this better, in files that are mapped into memory
//!
//! Nothing here knows of jobs, and nothing opens a connection.

pub mod classify;
pub mod embed;
pub mod encoder;
pub mod intents;
pub mod keywords;
pub mod korean;
pub mod language;
pub mod models;
pub mod pack;

mod english;
mod text;
