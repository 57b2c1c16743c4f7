//! The kind `document.analyze` in this program, which is its own child.

use std::sync::Arc;

use mapae::metrics::Metrics;
use mapae_document::child::DocumentReader;
use mapae_document::child::sandbox::Protection;
use mapae_document::error::DocumentError;
use mapae_document::handler::Analyze;
use mapae_document::ocr::Ocr;

use crate::ai::Local;
use crate::config::Config;

pub use mapae_document::handler::KIND;

/// The resource that reading a few pages by their pictures takes one of, in each process.
const OCR: &str = "ocr";

/// The handler, reading each document in a child that is this very program.
pub fn handler(config: &Config, local: Local, metrics: Arc<Metrics>) -> Analyze {
    let (understand, metrics) = (Some(Arc::new(local) as _), Some(metrics));
    Analyze { understand, metrics, ocr: ocr(config), ..Analyze::default() }
}

/// Recognition as the configuration wants it: one page a processor, or as many as `resource.ocr` says.
pub(crate) fn ocr(config: &Config) -> Ocr {
    let places = config.capacity().get(OCR);
    places.map_or_else(Ocr::default, |places| Ocr::new(usize::try_from(places).unwrap_or(usize::MAX)))
}

/// What holds in the children here.
pub(crate) async fn protection() -> Result<Protection, DocumentError> {
    DocumentReader::new().protection().await
}

/// What an operator can do about what is missing.
pub(crate) const PROTECTION_HELP: &str = "use Linux 6.7 or later with Landlock switched on, and let the container make its \
     system calls (landlock_*, seccomp); documents are read all the same, in processes of their own with limits";
