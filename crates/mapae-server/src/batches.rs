//! The kind `batch`: a parent that does nothing of its own once its parts have ended, so that its end is theirs.

use async_trait::async_trait;
use mapae::handler::{Context, Handler};
use mapae::job::retry::Failure;
use serde_json::{Map, Value, json};

/// What a batch's parent is where its submission names no other kind.
pub(crate) const KIND: &str = "batch";

pub(crate) struct Whole;

#[async_trait]
impl Handler for Whole {
    const KIND: &'static str = KIND;
    type Input = Map<String, Value>;
    type Output = Value;

    /// Succeeds however its parts have ended: how, is its result.
    async fn run(&self, _: Self::Input, ctx: &Context) -> Result<Value, Failure> {
        let none =
            || Failure::terminal("batch-none", "The job is a batch and has no parts: submit it as one.");
        let batch = ctx.parts_ended().await?.ok_or_else(none)?;
        Ok(json!({
            "parts": batch.parts,
            "succeeded": batch.succeeded,
            "failed": batch.failed,
            "cancelled": batch.cancelled,
            "stale": batch.stale,
        }))
    }
}
