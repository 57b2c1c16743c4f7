//! What is understood of a document beyond its form: a seam, so that this crate needs no model.

use std::sync::Arc;

use async_trait::async_trait;
use mapae::handler::Context;
use mapae::job::name::SetName;
use mapae::job::retry::Failure;
use serde::{Deserialize, Serialize};

use crate::document::{Class, Document, Intent, Keyword, Warning};

/// Understands documents. Each part is kept as a stage of its own: it may run again after a crash, and what long
/// work it does is not for the thread that calls it.
#[async_trait]
pub trait Understand: Send + Sync {
    /// `labels` is the set of the job's owner that is to decide, in place of the classes that are built in.
    async fn class(
        &self,
        document: &Arc<Document>,
        labels: Option<&SetName>,
        ctx: &Context,
    ) -> Result<Understood<Class>, Failure>;

    /// Best first.
    async fn keywords(
        &self,
        document: &Arc<Document>,
        ctx: &Context,
    ) -> Result<Understood<Vec<Keyword>>, Failure>;

    /// In the document's order.
    async fn intents(
        &self,
        document: &Arc<Document>,
        ctx: &Context,
    ) -> Result<Understood<Vec<Intent>>, Failure>;
}

/// An answer, and what made it poorer than it could be.
#[derive(Debug, Serialize, Deserialize)]
pub struct Understood<T> {
    pub value: T,
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

impl<T> From<T> for Understood<T> {
    fn from(value: T) -> Self {
        Self { value, warnings: Vec::new() }
    }
}
