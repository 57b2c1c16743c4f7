//! Kinds that this server does not know: clients may submit them, for whoever runs them may be another program. But
//! each has lanes that every keeper looks at, so there are only so many at a time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use mapae::job::name::Kind;
use mapae::store::contract::{Store, StoreError};
use tokio::sync::Mutex;

use super::problem::{self, Problem};

/// Kinds with jobs that have not ended, beside those that this server knows. Three lanes each are no more than a
/// store tells of.
const KINDS_MAX: usize = 300;

/// How often the store is asked which of them still have jobs, at most.
const LOOK: Duration = Duration::from_secs(5);

/// Those that were let in lately, or have jobs.
#[derive(Default)]
pub(super) struct MadeUp(Mutex<Known>);

#[derive(Default)]
struct Known {
    kinds: HashSet<Kind>,
    looked: Option<Instant>,
}

impl MadeUp {
    /// Lets in a kind that this server does not know, or says that there are enough. What other processes let in
    /// meanwhile is seen by the next look.
    pub(super) async fn admit(&self, store: &dyn Store, kind: &Kind) -> Result<(), Problem> {
        let mut known = self.0.lock().await;
        if known.kinds.contains(kind) {
            return Ok(());
        }
        if known.looked.is_none() || known.is_full() && known.looked.is_none_or(|at| at.elapsed() > LOOK) {
            known.look(store).await?;
        }
        if known.is_full() && !known.kinds.contains(kind) {
            let detail =
                format!("{KINDS_MAX} kinds that this server does not know have jobs that have not ended.");
            return Err(Problem::from(&problem::TOO_MANY_KINDS).detail(detail).retry_after(30));
        }
        known.kinds.insert(kind.clone());
        Ok(())
    }
}

impl Known {
    fn is_full(&self) -> bool {
        self.kinds.len() >= KINDS_MAX
    }

    async fn look(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let lanes = store.stats().await?.lanes;
        self.kinds = lanes.into_iter().map(|lane| lane.lane.kind).collect();
        self.looked = Some(Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mapae::job::name::Owner;
    use mapae::job::record::NewJob;
    use mapae::store::contract::{Control, Scope};
    use mapae::store::memory::Memory;

    use super::*;

    fn kind(number: usize) -> Kind {
        Kind::new(format!("made-up-{number}")).unwrap()
    }

    #[tokio::test]
    async fn only_so_many_made_up_kinds_have_jobs_at_a_time_and_ended_ones_make_room() {
        let (memory, made_up) = (Memory::new(), MadeUp::default());
        let mut jobs = Vec::new();
        for number in 0..KINDS_MAX {
            made_up.admit(&memory, &kind(number)).await.unwrap();
            let job = NewJob::new(Owner::new("a").unwrap(), kind(number), serde_json::json!({}));
            jobs.push(memory.accept(job).await.unwrap().id);
        }
        let refused = made_up.admit(&memory, &kind(KINDS_MAX)).await.err().unwrap();
        assert_eq!(refused.refusal.code, "too-many-kinds");
        assert!(made_up.admit(&memory, &kind(7)).await.is_ok(), "one that is there");
        // After a restart the store says which there are.
        let restarted = MadeUp::default();
        assert!(restarted.admit(&memory, &kind(KINDS_MAX)).await.is_err());
        memory.cancel(&Scope::All, jobs[0]).await.unwrap();
        assert!(MadeUp::default().admit(&memory, &kind(KINDS_MAX)).await.is_ok());
    }
}
