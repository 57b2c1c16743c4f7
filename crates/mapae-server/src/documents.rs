//! The kind `document.analyze` in this program, which is its own child.

use mapae_document::handler::Analyze;

pub use mapae_document::handler::KIND;

/// The handler, reading each document in a child that is this very program.
pub fn handler() -> Analyze {
    Analyze::default()
}
