//! Claims beside transactions of others, and those whose answer never came.

use mapae::broker::contract::{Broker, Settling};
use mapae::broker::{self, BrokerPlan};
use mapae::job::name::{Lane, Owner};
use mapae::store::contract::LaneQuota;
use mapae::store::memory::Memory;

use super::*;
use crate::unruly::{Moods, Unruly};

/// As `new`, of a kind that needs the one `ai` there is.
fn limited() -> NewJob {
    NewJob::new(owner(), Kind::new("limited").unwrap(), Value::Null)
}

/// A store where that is so.
async fn with_gate(url: &str) -> Arc<dyn Store> {
    let store = store::open(url, false).await.unwrap();
    let mut limits = Limits::default();
    limits.resource("ai", Limit { concurrent: Some(1), rate: None });
    limits.need(limited().kind, [("ai", 1)].into_iter().collect());
    store.limit(limits);
    store
}

fn pointer(id: JobId) -> (JobId, Owner) {
    (id, owner())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_claim_has_taken_is_kept_although_the_rest_of_it_fails() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let store = with_gate(&url).await;
    store.migrate().await.unwrap();
    let ids = [new(), limited(), new(), limited()].map(|job| (job.id, job));
    for (_, job) in ids.clone() {
        store.accept(job).await.unwrap();
    }
    let holder = Holder::new("w");
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut hold = other.begin().await.unwrap();
    // What it would make of the gate is waited for in vain.
    let gate = "insert into mapae.gates (name) values ('resource/ai')";
    sqlx::query(gate).execute(&mut *hold).await.unwrap();

    let asked = [pointer(ids[0].0), pointer(ids[1].0)];
    let answers = store.claim(&holder, &asked, LONG).await.unwrap();
    assert!(matches!(answers[..], [Claim::Run(_), Claim::Later(_)]), "{answers:?}");

    // By lanes.
    let lanes: Vec<Lane> = [new(), limited()].map(|job| job.lane()).into();
    let quotas: Vec<LaneQuota> = lanes.into_iter().map(|lane| LaneQuota { lane, max: 4 }).collect();
    let plan = mapae::store::contract::RingPlan { window: 9, least: 0, again: LONG, rescan: None, max: 9 };
    store.ring(&plan).await.unwrap();
    let claimed = store.claim_lanes(&holder, &quotas, 4, LONG, &[]).await.unwrap();
    let jobs: Vec<JobId> = claimed.holdings.iter().map(|holding| holding.job.id).collect();
    assert_eq!((jobs, claimed.unsure), (vec![ids[2].0], true));
    hold.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_no_row_that_another_transaction_holds() {
    let Some(server) = postgres() else { return };
    let url = fresh(&server).await;
    let store = store::open(&url, false).await.unwrap();
    store.migrate().await.unwrap();
    let ids = [new(), new(), new()].map(|job| (job.id, job));
    for (_, job) in ids.clone() {
        store.accept(job).await.unwrap();
    }
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut hold = other.begin().await.unwrap();
    let row = sqlx::query("select from mapae.jobs where id = $1 for update").bind(ids[1].0.0);
    row.execute(&mut *hold).await.unwrap();

    let holder = Holder::new("w");
    let asked: Vec<_> = ids.iter().map(|(id, _)| pointer(*id)).collect();
    let claims = store.claim(&holder, &asked, LONG).await.unwrap();
    assert!(matches!(claims[..], [Claim::Run(_), Claim::Later(_), Claim::Run(_)]), "{claims:?}");
    hold.rollback().await.unwrap();
    let claims = store.claim(&holder, &[pointer(ids[1].0)], LONG).await.unwrap();
    assert!(matches!(claims[..], [Claim::Run(_)]), "{claims:?}");
}

/// Its kernel answers for it, so no other sign tells the server that the process is frozen.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_frozen_in_a_transaction_holds_no_gate_for_ever() {
    let Some((url, line)) = lined().await else { return };
    let (frozen, near) = (with_gate(&line.url).await, with_gate(&url).await);
    let id = near.accept(limited()).await.unwrap().id;
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    let mut hold = other.begin().await.unwrap();
    sqlx::query("lock table mapae.shares in access exclusive mode").execute(&mut *hold).await.unwrap();
    let claiming = tokio::spawn(async move { frozen.claim(&Holder::new("w"), &[pointer(id)], LONG).await });
    // It holds the gate, and asks for the shares.
    waiting(&mut watcher, 1).await;
    line.freeze();
    hold.rollback().await.unwrap();

    let holder = Holder::new("near");
    soon("the gate is free again", async || {
        let mut claims = near.claim(&holder, &[pointer(id)], LONG).await.ok()?;
        matches!(claims.pop(), Some(Claim::Run(_))).then_some(())
    })
    .await;
    claiming.abort();
}

/// In memory, where an answer can be lost on purpose.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_costs_its_job_no_attempt() {
    let memory = Memory::in_real_time();
    let rows = broker::open(&BrokerPlan { url: "embedded:".into(), database_url: "memory:".into() }).unwrap();
    let pointers = |way| Arc::new(Unruly::new(way, Moods::default(), 1)) as Arc<dyn Broker>;
    for broker in [rows, pointers(Settling::AtFinish), pointers(Settling::AtClaim)] {
        let mut site = Site::around(Arc::new(memory.clone()), broker, Duration::from_secs(3600));
        site.keep();
        let mut handlers = Handlers::default();
        handlers.add_fn("k", |(): (), _: Context| async move { Ok(()) });
        memory.lose_answer();
        let id = site.submit("k", Value::Null, |job| job.retry = once()).await;
        let worker = site.worker(handlers, |_| {}).await;
        let job = site.ended(id).await;
        assert_eq!((job.state, job.attempt), (State::Succeeded, 1));
        assert_eq!(site.story(id).await, ["accepted", "claimed", "released", "claimed", "succeeded"]);
        worker.drain().await;
        site.close().await;
    }
}
