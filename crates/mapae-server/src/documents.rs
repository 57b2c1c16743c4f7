//! The kind `document.analyze` in this program, which is its own child.

use std::sync::Arc;

use mapae_document::handler::Analyze;
use mapae_document::ocr::Ocr;

use crate::ai::Local;
use crate::config::Config;

pub use mapae_document::handler::KIND;

/// The resource that reading a few pages by their pictures takes one of, in each process.
const OCR: &str = "ocr";

/// The handler, reading each document in a child that is this very program.
pub fn handler(config: &Config, local: Local) -> Analyze {
    Analyze { understand: Some(Arc::new(local)), ocr: ocr(config), ..Analyze::default() }
}

/// Recognition as the configuration wants it: one page a processor, or as many as `resource.ocr` says.
pub(crate) fn ocr(config: &Config) -> Ocr {
    let places = config.capacity().get(OCR);
    places.map_or_else(Ocr::default, |places| Ocr::new(usize::try_from(places).unwrap_or(usize::MAX)))
}
