//! Kinds that this server does not know: clients may submit them, for whoever runs them may be another program. But
//! each has lanes that every keeper looks at, so there are only so many at a time, and of one owner only a tenth of
//! them: nobody can shut the others out.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mapae::job::name::{Kind, Owner};
use mapae::store::contract::{Stats, StoreError};

use super::problem::{self, Problem};

/// Kinds with jobs that have not ended, beside those that this server knows. Three lanes each are no more than a
/// store tells of.
const KINDS_MAX: usize = 300;

/// Those of one owner among them.
const OWN_MAX: usize = 30;

/// How often the store is asked which of them still have jobs, at most; and how long one that was let in is counted
/// before its first job has to be there.
const LOOK: Duration = Duration::from_secs(5);

/// Those that were let in lately, or have jobs.
#[derive(Default)]
pub(super) struct MadeUp {
    /// Those that are not made up.
    known: HashSet<Kind>,
    counted: Mutex<HashMap<Kind, Counted>>,
    /// When the store was last asked. Held by whoever asks it, so that nobody else does meanwhile.
    looked: tokio::sync::Mutex<Option<Instant>>,
}

/// A kind counts for one owner, however many have jobs of it.
struct Counted {
    owner: Owner,
    let_in: Option<Instant>,
}

impl MadeUp {
    pub(super) fn beside(known: HashSet<Kind>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Lets in a kind, or says that there are enough which this server does not know. What other processes let in
    /// meanwhile is seen by the next look. The store is asked for its `stats` only where that is due.
    pub(super) async fn admit(
        &self,
        kind: &Kind,
        owner: &Owner,
        stats: impl Future<Output = Result<Stats, StoreError>>,
    ) -> Result<(), Problem> {
        if self.known.contains(kind) || self.counted().contains_key(kind) {
            return Ok(());
        }
        self.look(stats).await;
        let mut counted = self.counted();
        if counted.contains_key(kind) {
            return Ok(());
        }
        let own = counted.values().filter(|counted| counted.owner == *owner).count();
        let whose = if own >= OWN_MAX {
            format!("{OWN_MAX} kinds of the owner {owner}")
        } else if counted.len() >= KINDS_MAX {
            format!("{KINDS_MAX} kinds of all owners")
        } else {
            let let_in = Some(Instant::now());
            counted.insert(kind.clone(), Counted { owner: owner.clone(), let_in });
            return Ok(());
        };
        let detail = format!("{whose} that this server does not know have jobs that have not ended.");
        Err(Problem::from(&problem::TOO_MANY_KINDS).detail(detail).retry_after(30))
    }

    /// Counts what has jobs, unless it was counted a moment ago or is being counted: then, and where the store does
    /// not answer, what was counted before has to do.
    async fn look(&self, stats: impl Future<Output = Result<Stats, StoreError>>) {
        let Ok(mut looked) = self.looked.try_lock() else { return };
        if looked.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        let began = Instant::now();
        let found = stats.await;
        *looked = Some(Instant::now());
        let lanes = match found {
            Ok(stats) => stats.lanes,
            Err(why) => {
                tracing::warn!(code = why.code(), "the kinds that have jobs could not be counted: {why}");
                return;
            }
        };
        let mut counted = self.counted();
        // One that was let in lately may have a job that the store did not have yet.
        counted.retain(|_, counted| counted.let_in.is_some_and(|at| at + LOOK > began));
        for (kind, owner) in lanes.into_iter().filter_map(|lane| Some((lane.lane.kind, lane.owner?))) {
            if !self.known.contains(&kind) {
                counted.entry(kind).or_insert(Counted { owner, let_in: None });
            }
        }
    }

    fn counted(&self) -> MutexGuard<'_, HashMap<Kind, Counted>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mapae::job::name::JobId;
    use mapae::job::record::NewJob;
    use mapae::store::contract::{Control, Scope, View};
    use mapae::store::memory::Memory;

    use super::*;

    fn kind(number: usize) -> Kind {
        Kind::new(format!("made-up-{number}")).unwrap()
    }

    /// Each has as many kinds as an owner may have.
    fn owner(number: usize) -> Owner {
        Owner::new(format!("owner-{}", number / OWN_MAX)).unwrap()
    }

    impl MadeUp {
        /// As its owner.
        async fn admit_from(&self, memory: &Memory, number: usize) -> Result<(), Problem> {
            self.admit(&kind(number), &owner(number), memory.stats()).await
        }
    }

    async fn accept(memory: &Memory, number: usize) -> JobId {
        memory.accept(NewJob::new(owner(number), kind(number), serde_json::json!({}))).await.unwrap().id
    }

    #[tokio::test]
    async fn only_so_many_made_up_kinds_have_jobs_at_a_time_and_ended_ones_make_room() {
        let (memory, made_up) = (Memory::new(), MadeUp::default());
        let mut jobs = Vec::new();
        for number in 0..KINDS_MAX {
            made_up.admit_from(&memory, number).await.unwrap();
            jobs.push(accept(&memory, number).await);
        }
        let refused = made_up.admit_from(&memory, KINDS_MAX).await.err().unwrap();
        assert_eq!(refused.refusal.code, "too-many-kinds");
        let there = made_up.admit(&kind(7), &owner(KINDS_MAX), memory.stats()).await;
        assert!(there.is_ok(), "one that is there");
        // After a restart the store says which there are.
        assert!(MadeUp::default().admit_from(&memory, KINDS_MAX).await.is_err());
        memory.cancel(&Scope::All, jobs[0]).await.unwrap();
        assert!(MadeUp::default().admit_from(&memory, KINDS_MAX).await.is_ok());
    }

    #[tokio::test]
    async fn while_the_store_is_asked_nobody_else_waits_or_asks_it() {
        let made_up = MadeUp::default();
        let (answer, stats) = tokio::sync::oneshot::channel();
        let asks = async { Ok(stats.await.expect("an answer")) };
        let (first, own) = (kind(OWN_MAX), owner(0));
        let waits = made_up.admit(&first, &own, asks);
        let others = async {
            for number in 0..OWN_MAX {
                made_up.admit(&kind(number), &own, async { panic!("asked twice") }).await.unwrap();
            }
            answer.send(Stats::default()).unwrap();
        };
        let both = async { tokio::join!(waits, others) };
        let (late, ()) = tokio::time::timeout(LOOK, both).await.expect("that nobody waits");
        assert!(late.is_err(), "those let in meanwhile are counted");
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_not_asked_again_at_once() {
        let made_up = MadeUp::default();
        let fails = async { Err(StoreError::Address("no store".into())) };
        made_up.admit(&kind(0), &owner(0), fails).await.unwrap();
        made_up.admit(&kind(1), &owner(0), async { panic!("asked again") }).await.unwrap();
    }
}
