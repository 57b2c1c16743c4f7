//! The Universal Sentence Encoder, multilingual: a text to a vector of 512 numbers, for 16 languages.
//!
//! ```text
//! text ─ pieces ─► numbers of pieces ─ network ─► vector of length 1
//! ```

mod network;
mod normal;
mod pieces;

use std::sync::Arc;

use crate::embed::Embedder;
use crate::pack::{Pack, PackError};
use network::Network;
use pieces::Pieces;

/// Characters of a text that count; a longer one says no more in a single vector.
const CHARS_MAX: usize = 10_000;
/// Pieces that go through the network together: the weights are then read once for all of them.
const BATCH_PIECES: usize = 1_024;

/// An encoder out of a pack.
pub struct Encoder {
    id: String,
    pieces: Pieces,
    network: Network,
}

impl Encoder {
    /// # Errors
    /// [`PackError::Malformed`] where the pack is not one of this model.
    pub fn new(pack: Pack) -> Result<Self, PackError> {
        let pack = Arc::new(pack);
        Ok(Self {
            id: pack.header().id.clone(),
            pieces: Pieces::new(pack.clone())?,
            network: Network::new(pack)?,
        })
    }

    /// The numbers of the pieces of a text, without the marks of its beginning and end.
    pub fn pieces(&self, text: &str) -> Vec<u32> {
        let text = text.char_indices().nth(CHARS_MAX).map_or(text, |(end, _)| &text[..end]);
        self.pieces.of(text)
    }
}

impl Embedder for Encoder {
    fn id(&self) -> &str {
        &self.id
    }

    fn dimension(&self) -> usize {
        network::DIMENSION
    }

    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut batch: Vec<Vec<u32>> = Vec::new();
        let mut waiting = 0;
        for text in texts {
            let pieces = self.pieces(text);
            if waiting > 0 && waiting + pieces.len() > BATCH_PIECES {
                vectors.extend(self.network.run(&batch));
                batch.clear();
                waiting = 0;
            }
            waiting += pieces.len() + 1;
            batch.push(pieces);
        }
        vectors.extend(self.network.run(&batch));
        vectors
    }
}
