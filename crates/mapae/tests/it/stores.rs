//! What every store promises, held against every back end: laws as single tests, and random walks
//! beside [`Life`](mapae::job::Life) that predict each answer.

mod laws;
mod postgres;
mod sqlite;
mod walk;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mapae::job::lease::{Holder, Lease, Token};
use mapae::job::name::{JobId, Kind, Lane, Owner};
use mapae::job::record::NewJob;
use mapae::job::retry::{Backoff, Failure, RetryPolicy, Verdict};
use mapae::store::contract::{
    Beat, Claim, Holding, Join, Member, RingPlan, Rung, SettleError, Settlement, Store, WorkerReport,
};
use mapae::store::memory::Memory;

use self::postgres::InPostgres;
use self::sqlite::InSqlite;
use crate::site::postgres;

/// How a back end is held on the bench.
#[async_trait]
pub(crate) trait Harness: Send + Sync {
    fn name(&self) -> &'static str;

    /// How many random walks it can be given in a test.
    fn walks(&self) -> u64;

    /// An empty store. `pass` and `shifted` are about the one made last.
    async fn fresh(&self) -> Arc<dyn Store>;

    /// Time passes: the clock is moved on, or every time in the store moved back.
    async fn pass(&self, by: Duration);

    /// How far stored times have been moved back in all; zero where the clock itself is moved.
    fn shifted(&self) -> Duration;
}

/// Every back end there is. A new store is one more line here.
pub(crate) async fn backends() -> Vec<Box<dyn Harness>> {
    let mut all: Vec<Box<dyn Harness>> = vec![Box::new(InMemory::default()), Box::new(InSqlite::new().await)];
    if let Some(server) = postgres() {
        all.push(Box::new(InPostgres::new(&server).await));
    }
    all
}

#[derive(Default)]
struct InMemory(Mutex<Option<Memory>>);

#[async_trait]
impl Harness for InMemory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn walks(&self) -> u64 {
        20_000
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        let memory = Memory::new();
        *self.0.lock().unwrap() = Some(memory.clone());
        Arc::new(memory)
    }

    async fn pass(&self, by: Duration) {
        self.0.lock().unwrap().as_ref().expect("a store was made").advance(by);
    }

    fn shifted(&self) -> Duration {
        Duration::ZERO
    }
}

/// Holds one law against every back end, each time with a new store.
async fn everywhere(law: impl AsyncFn(&Bench)) {
    for harness in backends().await {
        let store = harness.fresh().await;
        eprintln!("on {}", harness.name());
        law(&Bench { store, harness }).await;
    }
}

/// A store with the words in which laws are written.
pub(crate) struct Bench {
    store: Arc<dyn Store>,
    harness: Box<dyn Harness>,
}

pub(crate) const LEASE: Duration = Duration::from_secs(1000);

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

pub(crate) fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

/// A job of `acme` with three attempts and no waits between them.
pub(crate) fn job() -> NewJob {
    let backoff = Backoff { first: Duration::ZERO, max: Duration::ZERO };
    NewJob {
        retry: RetryPolicy { attempts: 3, backoff },
        ..NewJob::new(owner("acme"), kind("analyze"), serde_json::json!({ "page": 1 }))
    }
}

pub(crate) fn lane() -> Lane {
    job().lane()
}

pub(crate) fn failure() -> Failure {
    Failure::retryable("vendor-down", "The vendor did not answer.")
}

pub(crate) fn retry() -> Verdict {
    Verdict::Retry { failure: failure(), delay: Duration::ZERO }
}

pub(crate) fn plan() -> RingPlan {
    RingPlan { window: 10_000, least: 0, again: LEASE, rescan: Some(Vec::new()), max: 10_000 }
}

impl Bench {
    async fn accept(&self, job: NewJob) -> JobId {
        let accepted = self.store.accept(job).await.unwrap();
        assert!(!accepted.again);
        accepted.id
    }

    async fn join(&self, name: &str) -> Box<dyn Member> {
        join(&*self.store, name).await
    }

    async fn try_claim(&self, holder: &Holder, job: JobId) -> Claim {
        let answers = self.store.claim(holder, &[(job, owner("acme"))], LEASE).await.unwrap();
        let [answer] = <[Claim; 1]>::try_from(answers).expect("one answer a pointer");
        answer
    }

    async fn claim(&self, holder: &Holder, job: JobId) -> Holding {
        match self.try_claim(holder, job).await {
            Claim::Run(holding) => *holding,
            other => panic!("{other:?} instead of a lease"),
        }
    }

    async fn settle(&self, lease: &Lease, verdict: Verdict) -> Result<mapae::job::State, SettleError> {
        let output = Some(mapae::job::record::Output::Inline(serde_json::json!({ "pages": 3 })));
        self.store.settle(Settlement { lease: lease.clone(), verdict, output }).await
    }

    async fn ring(&self) -> Vec<Rung> {
        self.store.ring(&plan()).await.unwrap()
    }

    /// The jobs that a keeper has now found without their holder, and what became of them.
    async fn reaped(&self) -> Vec<(JobId, mapae::job::State)> {
        let reaped = self.store.reap(10).await.unwrap();
        assert!(reaped.iter().all(|reaped| reaped.kind == kind("analyze")), "{reaped:?}");
        reaped.into_iter().map(|reaped| (reaped.job, reaped.state)).collect()
    }
}

/// The worker `name`, once its former life is seen to be over.
pub(crate) async fn join(store: &dyn Store, name: &str) -> Box<dyn Member> {
    use mapae::store::contract::JoinError;
    let join = Join { name: name.into(), strict: true, kinds: vec![kind("analyze")], slots: 4 };
    soon("the name is free", async || match store.join(&join).await {
        Ok(member) => Some(member),
        Err(JoinError::NameTaken(_)) => None,
        Err(JoinError::Store(error)) => panic!("{error}"),
    })
    .await
}

pub(crate) async fn beat(member: &mut dyn Member, leases: &[(JobId, Token)], lease: Duration) -> Vec<Beat> {
    member.beat(leases, lease, &WorkerReport::default()).await.unwrap()
}

/// Asks until there is an answer: for what a store may notice a moment later (presence, the end of a
/// concurrent transaction).
pub(crate) async fn soon<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
