//! Limits over all processes: what claims have to pass, and who stands where.
//!
//! A claim takes a gate's places and counts its starts in the transaction that gives the lease. A share is
//! no number that somebody would have to take back: it is counted while the lease it was given with lives
//! and stands in its row, so that settling, handing back, reaping and running out each end it by what they
//! do anyway.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::job::limit::{Account, Gate, Limits};
use crate::job::name::Owner;

#[async_trait]
pub trait Gates {
    /// Every claim by this handle and its clones keeps to these limits from now on. What is in use is counted
    /// over all processes, what is allowed is what each was told: tell all of them the same. Jobs of kinds
    /// that are not limited are claimed as if there were no limits.
    fn limit(&self, limits: Limits);

    /// The limits that this handle was told last.
    fn limits(&self) -> Arc<Limits>;

    /// No job of the kind, or none that needs the resource where that is limited over all processes, starts
    /// anywhere before `wait` is over. A later end that stands already stays.
    async fn shut(&self, gate: &Gate, wait: Duration) -> Result<(), StoreError>;

    /// All gates of which anything is known: those of all owners together, and of the single owners' ones
    /// that of `owner`.
    async fn gates(&self, owner: Option<&Owner>) -> Result<Vec<GateRow>, StoreError>;
}

/// Where a gate stands, by the database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRow {
    pub gate: Gate,
    /// Whose it is, where each owner has one.
    pub owner: Option<Owner>,
    pub account: Account,
}
