//! The kind `document.analyze` in this program, which is its own child.

use std::sync::Arc;

use mapae_document::handler::Analyze;

use crate::ai::Local;

pub use mapae_document::handler::KIND;

/// The handler, reading each document in a child that is this very program.
pub fn handler(local: Local) -> Analyze {
    Analyze { understand: Some(Arc::new(local)), ..Analyze::default() }
}
