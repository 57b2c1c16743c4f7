//! One law, one test, over every back end.

mod accept;
mod batch;
mod claim;
mod events;
mod files;
mod follow;
mod label;
mod lease;
mod limits;
mod people;
mod remote;
mod ring;
mod schedule;
mod tell;
mod unique;

use std::time::Duration;

use mapae::job::State;
use mapae::job::event::{Event, Position};
use mapae::job::lease::Holder;
use mapae::job::name::{JobId, Lane};
use mapae::job::retry::{Failure, Verdict};
use mapae::store::contract::{EventFilter, LaneQuota, Pruned, Retention, Scope, SettleError};

use super::{Bench, LEASE, soon};

impl Bench {
    async fn state(&self, id: JobId) -> State {
        self.store.job(&Scope::All, id).await.unwrap().expect("the job is there").state
    }

    /// The job's history, once all of it can be read.
    async fn history(&self, id: JobId) -> Vec<Event> {
        let filter = EventFilter { job: Some(id), after: Position::default() };
        soon("the whole history can be read", async || {
            let told = self.store.job(&Scope::All, id).await.unwrap().expect("the job is there").sequence;
            let events = self.store.events(&Scope::All, &filter, 1000).await.unwrap();
            (events.len() as u64 == told).then_some(events)
        })
        .await
    }

    async fn kinds_told(&self, id: JobId) -> Vec<&'static str> {
        self.history(id).await.iter().map(|event| event.event.as_str()).collect()
    }

    /// Claims and fails the job until its budget is spent.
    async fn fail(&self, holder: &Holder, id: JobId) {
        let held = self.claim(holder, id).await;
        let verdict = Verdict::Fail { failure: Failure::terminal("damaged", "The file is damaged.") };
        assert_eq!(self.settle(&held.lease, verdict).await.unwrap(), State::Failed);
    }

    async fn prune(&self, after: Duration) -> Pruned {
        let retention = Retention { finished: after, failed: after, memory: 1000 * LEASE };
        self.store.prune(&retention, 1000).await.unwrap()
    }
}

fn lost(answer: Result<State, SettleError>) -> Option<State> {
    match answer {
        Err(SettleError::LeaseLost(state)) => state,
        other => panic!("{other:?} instead of a lost lease"),
    }
}

fn quota(lane: Lane) -> [LaneQuota; 1] {
    [LaneQuota { lane, max: 1000 }]
}
