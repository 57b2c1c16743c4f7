//! What is understood of a document beyond its form: a seam, so that this crate needs no model.

use crate::document::{Class, Document, Intent, Keyword, Warning};

/// Understands documents. Each part is pure: the same document gives the same answer, so that a stage may run
/// again. Called outside the runtime's own threads; may take seconds.
pub trait Understand: Send + Sync {
    fn class(&self, document: &Document) -> Class;

    /// Best first.
    fn keywords(&self, document: &Document) -> Vec<Keyword>;

    /// In the document's order.
    fn intents(&self, document: &Document) -> Vec<Intent>;

    /// What made the answers poorer than they could be.
    fn warnings(&self) -> Vec<Warning>;
}
