//! The kind `document.analyze` in this program, which is its own child.

use std::sync::Arc;

use mapae::metrics::Metrics;
use mapae_document::child::DocumentReader;
use mapae_document::child::sandbox::Protection;
use mapae_document::error::DocumentError;
use mapae_document::handler::Analyze;

use crate::ai::Local;

pub use mapae_document::handler::KIND;

/// The handler, reading each document in a child that is this very program.
pub fn handler(local: Local, metrics: Arc<Metrics>) -> Analyze {
    Analyze { understand: Some(Arc::new(local)), metrics: Some(metrics), ..Analyze::default() }
}

/// What holds in the children here.
pub(crate) async fn protection() -> Result<Protection, DocumentError> {
    DocumentReader::new().protection().await
}

/// What an operator can do about what is missing.
pub(crate) const PROTECTION_HELP: &str = "use Linux 6.7 or later with Landlock switched on, and let the container make its \
     system calls (landlock_*, seccomp); documents are read all the same, in processes of their own with limits";
