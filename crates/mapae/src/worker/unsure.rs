//! Claims without an answer: what they may have taken is handed back before more is claimed, and uses no attempt.
//!
//! Such a claim may be committed after its answer was given up. So this looks again until the database, too, has given
//! up on its statement. What is missed even so comes back when its lease ends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::info;

use super::Worker;
use crate::job::lease::Lease;
use crate::job::retry::Verdict;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{PATIENCE, SettleError, Settlement, StoreError};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// A claim had not begun longer before it failed than a store has patience; and clocks are not alike.
const BEFORE: Duration = PATIENCE.saturating_mul(3);

/// Of which claims nothing is known.
#[derive(Default)]
pub(super) struct Unsure(Mutex<Option<Since>>);

struct Since {
    failed_at: Instant,
    looked_at: Option<Instant>,
}

impl Unsure {
    /// A claim was sent, and no answer came.
    pub(super) fn failed(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Since { failed_at: Instant::now(), looked_at: None });
    }

    /// When the claim failed, if it is time to look.
    fn due(&self) -> Option<Instant> {
        let unsure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = unsure.as_ref()?;
        since.looked_at.is_none_or(|at| at.elapsed() >= LOOK).then_some(since.failed_at)
    }

    fn looked(&self, at: Instant) {
        let mut unsure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *unsure {
            Some(since) if at < since.failed_at + PATIENCE => since.looked_at = Some(at),
            _ => *unsure = None,
        }
    }
}

impl Worker {
    /// Hands back what this worker holds without knowing it. Only between two claims.
    pub(super) async fn sure(&self) -> Result<(), StoreError> {
        let Some(failed_at) = self.unsure.due() else { return Ok(()) };
        let looked_at = Instant::now();
        // Known before they are read: what ends meanwhile is running no more, or is settled already.
        let known = self.held.known();
        for (job, token) in self.parts.store.taken(&self.holder, failed_at.elapsed() + BEFORE).await? {
            if known.contains(&token) {
                continue;
            }
            let lease = Lease { job, token, epoch: 0, until: Timestamp::default() };
            let settlement = Settlement { lease, verdict: Verdict::HandBack, output: None };
            match self.parts.store.settle(settlement).await {
                Ok(_) => info!(job_id = %job, "a claim whose answer was lost is handed back"),
                Err(SettleError::LeaseLost(_)) => {}
                Err(SettleError::Store(error)) => return Err(error),
            }
        }
        self.unsure.looked(looked_at);
        Ok(())
    }
}
