//! Who gets a job, and in which order.

use std::collections::HashSet;

use mapae::job::lease::Holder;
use mapae::job::name::JobId;
use mapae::job::record::NewJob;
use mapae::store::contract::{Claim, RingPlan};

use super::quota;
use crate::stores::{LEASE, everywhere, job, lane, owner, plan};

#[tokio::test]
async fn a_pointer_with_another_owner_starts_nothing() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let pointers = [(id, owner("globex")), (JobId::new(), owner("acme")), (id, owner("acme"))];
        let answers = bench.store.claim(worker.holder(), &pointers, LEASE).await.unwrap();
        assert!(matches!(answers[..], [Claim::Foreign, Claim::Stale, Claim::Run(_)]), "{answers:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claims_of_one_pointer_give_one_lease() {
    everywhere(async |bench| {
        for round in 0..20 {
            let id = bench.accept(job()).await;
            let claimers: Vec<_> = (0..16)
                .map(|number| {
                    let (store, holder) = (bench.store.clone(), Holder::new(format!("w{round}-{number}")));
                    tokio::spawn(async move {
                        store.claim(&holder, &[(id, owner("acme"))], LEASE).await.unwrap().remove(0)
                    })
                })
                .collect();
            let (mut leases, mut busy) = (0, 0);
            for claimer in claimers {
                match claimer.await.unwrap() {
                    Claim::Run(_) => leases += 1,
                    Claim::Busy(_) => busy += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((leases, busy), (1, 15));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claimers_of_rung_jobs_share_them_without_overlap() {
    everywhere(async |bench| {
        for _ in 0..60 {
            bench.accept(job()).await;
        }
        assert_eq!(bench.ring().await.len(), 60);
        let claimers: Vec<_> = (0..8)
            .map(|number| {
                let (store, holder) = (bench.store.clone(), Holder::new(format!("w{number}")));
                tokio::spawn(async move {
                    let mut held = Vec::new();
                    for _ in 0..10 {
                        let some = store.claim_rung(&holder, &quota(lane()), 2, LEASE).await.unwrap();
                        held.extend(some.into_iter().map(|holding| holding.job.id));
                    }
                    held
                })
            })
            .collect();
        let mut held = Vec::new();
        for claimer in claimers {
            held.extend(claimer.await.unwrap());
        }
        assert_eq!(held.len(), 60);
        assert_eq!(held.iter().collect::<HashSet<_>>().len(), 60);
    })
    .await;
}

#[tokio::test]
async fn rung_jobs_are_claimed_in_the_order_they_were_rung() {
    everywhere(async |bench| {
        let run_at = Some(bench.store.now().await.unwrap() + LEASE);
        let later = bench.accept(NewJob { run_at, ..job() }).await;
        let sooner = bench.accept(job()).await;
        assert_eq!(bench.ring().await.len(), 1);
        bench.harness.pass(LEASE).await;
        let plan = RingPlan { again: 100 * LEASE, ..plan() };
        bench.store.rung(&[(sooner, 1)], 100 * LEASE).await.unwrap();
        assert_eq!(bench.store.ring(&plan).await.unwrap().len(), 1);

        let worker = bench.join("w").await;
        let mut order = Vec::new();
        for _ in 0..3 {
            let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 1, LEASE).await.unwrap();
            order.extend(held.into_iter().map(|holding| holding.job.id));
        }
        assert_eq!(order, [sooner, later]);
    })
    .await;
}

#[tokio::test]
async fn a_newcomers_job_comes_next_however_much_of_anothers_waits() {
    everywhere(async |bench| {
        for _ in 0..20 {
            bench.accept(job()).await;
        }
        assert_eq!(bench.ring().await.len(), 20);
        let newcomer = bench.accept(NewJob { owner: owner("globex"), ..job() }).await;
        assert_eq!(bench.ring().await.len(), 1);
        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 3, LEASE).await.unwrap();
        assert!(held.iter().any(|holding| holding.job.id == newcomer));
        let [window] = <[_; 1]>::try_from(bench.store.windows(100).await.unwrap()).unwrap();
        assert_eq!((window.lane, window.waiting), (lane(), 18));
        assert!(window.turn > 1, "the lane has come further");
        assert_eq!(bench.store.windows(5).await.unwrap()[0].waiting, 5, "counted up to the cap");
    })
    .await;
}
