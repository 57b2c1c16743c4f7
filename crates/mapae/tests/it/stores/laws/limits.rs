//! What holds over all processes: gates, shares, rates.

use std::time::Duration;

use mapae::job::State;
use mapae::job::lease::Holder;
use mapae::job::limit::{Gate, Limit, Limits, Rate};
use mapae::job::name::{JobId, Lane, Owner};
use mapae::job::record::{NewJob, Source};
use mapae::job::resource::{Need, Needs, Room};
use mapae::job::retry::Verdict;
use mapae::store::contract::{Claim, Claimed, Holding, RingPlan, Scope};

use super::quota;
use crate::stores::{Bench, LEASE, everywhere, job, kind, lane, owner, plan};

fn at_a_time(concurrent: u64) -> Limit {
    Limit { concurrent: Some(concurrent), rate: None }
}

fn ai() -> Gate {
    Gate::Resource("ai".into())
}

fn needs_ai() -> Needs {
    [("ai", 1)].into_iter().collect()
}

/// Jobs of the kind need the resource, of which there is so much.
fn limited(limit: Limit) -> Limits {
    let mut limits = Limits::default();
    limits.resource("ai", limit);
    limits.need(job().kind, needs_ai());
    limits
}

impl Bench {
    async fn claim_some(&self, holder: &Holder, lane: Lane) -> Claimed {
        self.store.claim_lanes(holder, &quota(lane), 1000, LEASE, &[]).await.unwrap()
    }

    async fn in_use(&self, gate: &Gate, owner: Option<&Owner>) -> u64 {
        let rows = self.store.gates(owner).await.unwrap();
        rows.iter().filter(|row| row.gate == *gate).map(|row| row.account.in_use).sum()
    }

    async fn rung(&self, jobs: usize, change: impl Fn(NewJob) -> NewJob) -> Vec<JobId> {
        let mut ids = Vec::new();
        for _ in 0..jobs {
            ids.push(self.accept(change(job())).await);
        }
        self.ring().await;
        ids
    }
}

fn ids(holdings: &[Holding]) -> Vec<JobId> {
    holdings.iter().map(|holding| holding.job.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_more_than_the_limit_run_at_once_over_two_workers() {
    everywhere(async |bench| {
        bench.store.limit(limited(at_a_time(3)));
        bench.rung(12, |job| job).await;
        let claimers: Vec<_> = (0..8)
            .map(|number| {
                let (store, holder) = (bench.store.clone(), Holder::new(format!("w{}", number % 2)));
                tokio::spawn(async move {
                    let mut held = Vec::new();
                    for _ in 0..5 {
                        held.extend(store.claim_rung(&holder, &quota(lane()), 2, LEASE).await.unwrap());
                    }
                    held
                })
            })
            .collect();
        let mut held = Vec::new();
        for claimer in claimers {
            held.extend(claimer.await.unwrap());
        }
        assert_eq!((held.len(), bench.in_use(&ai(), None).await), (3, 3));

        // Each end of a lease gives its share back, whatever the verdict.
        let worker = bench.join("w").await;
        let (one, two) = (held.pop().unwrap(), held.pop().unwrap());
        bench.settle(&one.lease, Verdict::Succeed).await.unwrap();
        assert_eq!(bench.in_use(&ai(), None).await, 2);
        let next = bench.claim_some(worker.holder(), lane()).await;
        assert_eq!(next.holdings.len(), 1);
        bench.settle(&two.lease, Verdict::HandBack).await.unwrap();
        assert_eq!(bench.claim_some(worker.holder(), lane()).await.holdings.len(), 1);
        assert_eq!(bench.in_use(&ai(), None).await, 3);
    })
    .await;
}

#[tokio::test]
async fn a_job_that_waits_at_a_gate_uses_no_attempt_and_says_where_it_waits() {
    everywhere(async |bench| {
        bench.store.limit(limited(at_a_time(1)));
        let jobs = bench.rung(3, |job| job).await;
        let worker = bench.join("w").await;
        let first = bench.claim_some(worker.holder(), lane()).await;
        assert_eq!(ids(&first.holdings), jobs[..1]);
        for _ in 0..3 {
            let none = bench.claim_some(worker.holder(), lane()).await;
            assert_eq!(none.holdings, []);
            let [stop] = <[_; 1]>::try_from(none.stops).expect("one gate");
            assert_eq!((stop.kind, stop.gate, stop.owner), (kind("analyze"), ai(), None));
            assert!(!stop.again.is_zero());
            let pointed = bench.try_claim(worker.holder(), jobs[1]).await;
            assert!(matches!(&pointed, Claim::Waits(stop) if stop.gate == ai()), "{pointed:?}");
        }
        let waiting = bench.store.job(&mapae::store::contract::Scope::All, jobs[1]).await.unwrap().unwrap();
        assert_eq!((waiting.state, waiting.attempt, waiting.sequence), (State::Pending, 0, 1));

        bench.settle(&first.holdings[0].lease, Verdict::Succeed).await.unwrap();
        let pointed = bench.claim(worker.holder(), jobs[1]).await;
        assert_eq!((pointed.job.attempt, bench.in_use(&ai(), None).await), (1, 1));
        assert!(matches!(bench.try_claim(worker.holder(), jobs[2]).await, Claim::Waits(_)));
    })
    .await;
}

#[tokio::test]
async fn kinds_without_gates_go_on_beside_those_that_wait() {
    everywhere(async |bench| {
        bench.store.limit(limited(at_a_time(1)));
        bench.rung(2, |job| job).await;
        let free = bench.rung(2, |job| NewJob { kind: kind("plain"), ..job }).await;
        let worker = bench.join("w").await;
        let plain = free_lane();
        let lanes = [quota(lane()), quota(plain.clone())].concat();
        let claimed = bench.store.claim_lanes(worker.holder(), &lanes, 1000, LEASE, &[]).await.unwrap();
        assert_eq!(claimed.holdings.len(), 3, "one of the limited, both of the others");
        assert!(free.iter().all(|id| ids(&claimed.holdings).contains(id)));

        let again = bench.rung(1, |job| NewJob { kind: kind("plain"), ..job }).await;
        let waits = bench.accept(job()).await;
        let pointers = [(waits, owner("acme")), (again[0], owner("acme"))];
        let answers = bench.store.claim(worker.holder(), &pointers, LEASE).await.unwrap();
        assert!(matches!(answers[..], [Claim::Waits(_), Claim::Run(_)]), "{answers:?}");
    })
    .await;
}

fn free_lane() -> Lane {
    NewJob { kind: kind("plain"), ..job() }.lane()
}

#[tokio::test]
async fn the_share_of_a_dead_holder_returns_with_its_lease() {
    everywhere(async |bench| {
        bench.store.limit(limited(at_a_time(2)));
        let jobs = bench.rung(4, |job| job).await;
        let dead = Holder::new("dead");
        assert_eq!(bench.claim_some(&dead, lane()).await.holdings.len(), 2);
        let worker = bench.join("w").await;
        bench.harness.pass(LEASE / 2).await;
        assert_eq!(bench.claim_some(worker.holder(), lane()).await.holdings, [], "its leases live");

        // Nobody has reaped them yet: what counts is the lease.
        bench.harness.pass(LEASE).await;
        assert_eq!(bench.in_use(&ai(), None).await, 0);
        let taken = bench.claim_some(worker.holder(), lane()).await;
        assert_eq!(ids(&taken.holdings), jobs[2..]);
        assert_eq!(bench.store.reap(10).await.unwrap().len(), 2);
        assert_eq!(bench.in_use(&ai(), None).await, 2, "those of the living alone");

        // A pointer to a job whose lease is over is a claim like any other.
        for holding in &taken.holdings {
            bench.settle(&holding.lease, Verdict::Succeed).await.unwrap();
        }
        bench.claim(worker.holder(), jobs[0]).await;
        assert_eq!(bench.in_use(&ai(), None).await, 1);
        bench.harness.pass(2 * LEASE).await;
        let taken_over = bench.claim(worker.holder(), jobs[0]).await;
        assert_eq!((taken_over.job.attempt, bench.in_use(&ai(), None).await), (3, 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rate_holds_over_two_workers() {
    everywhere(async |bench| {
        let rate = Rate { starts: 60, per: Duration::from_secs(3600), burst: 2 };
        bench.store.limit(limited(Limit { concurrent: None, rate: Some(rate) }));
        bench.rung(10, |job| job).await;
        let (one, two) = (bench.join("one").await, bench.join("two").await);
        let mut started = 0;
        let mut claim = async |holder: &Holder| {
            let claimed = bench.claim_some(holder, lane()).await;
            started += claimed.holdings.len();
            (claimed.holdings.len(), started, claimed.stops)
        };
        let (first, ..) = claim(one.holder()).await;
        assert_eq!(first, 2, "the burst and no more");
        let (none, _, stops) = claim(two.holder()).await;
        let again = stops.first().expect("the rate is told").again;
        assert_eq!(none, 0);
        assert!(again > Duration::ZERO && again <= Duration::from_secs(60), "{again:?}");
        bench.harness.pass(Duration::from_secs(60)).await;
        assert_eq!(claim(two.holder()).await.0, 1);
        assert_eq!(claim(one.holder()).await.0, 0);
        bench.harness.pass(Duration::from_secs(600)).await;
        assert_eq!(claim(one.holder()).await.0, 2, "a pause saves up no more than the burst");
        assert_eq!(claim(two.holder()).await.1, 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_that_claim_at_once_share_a_rate() {
    everywhere(async |bench| {
        let rate = Rate { starts: 1, per: LEASE, burst: 5 };
        bench.store.limit(limited(Limit { concurrent: None, rate: Some(rate) }));
        bench.rung(20, |job| job).await;
        let claimers: Vec<_> = (0..8)
            .map(|number| {
                let (store, holder) = (bench.store.clone(), Holder::new(format!("w{number}")));
                tokio::spawn(async move {
                    store.claim_rung(&holder, &quota(lane()), 2, LEASE).await.unwrap().len()
                })
            })
            .collect();
        let mut started = 0;
        for claimer in claimers {
            started += claimer.await.unwrap();
        }
        assert_eq!(started, 5);
    })
    .await;
}

#[tokio::test]
async fn an_owner_over_its_limit_waits_and_others_go_on() {
    everywhere(async |bench| {
        let mut limits = Limits::default();
        limits.kind(job().kind, at_a_time(4), at_a_time(2));
        bench.store.limit(limits);
        let busy = bench.rung(6, |job| job).await;
        let other = bench.rung(1, |job| NewJob { owner: owner("globex"), ..job }).await;
        let worker = bench.join("w").await;
        let claimed = bench.claim_some(worker.holder(), lane()).await;
        let started = ids(&claimed.holdings);
        assert_eq!(
            (started.len(), started.contains(&other[0])),
            (3, true),
            "two of one owner, one of another"
        );
        let [stop] = <[_; 1]>::try_from(claimed.stops).expect("one gate");
        assert_eq!((stop.gate, stop.owner), (Gate::Owner(job().kind), Some(owner("acme"))));
        assert_eq!(bench.in_use(&Gate::Owner(job().kind), Some(&owner("acme"))).await, 2);
        assert_eq!(bench.in_use(&Gate::Kind(job().kind), None).await, 3);

        let waits = busy.iter().find(|id| !started.contains(id)).expect("four of them wait");
        assert_eq!(bench.ring().await.len(), 0, "two run and two are rung: that is enough of this owner");
        let pointers = [(*waits, owner("acme"))];
        let answers = bench.store.claim(worker.holder(), &pointers, LEASE).await.unwrap();
        assert!(
            matches!(&answers[..], [Claim::Waits(stop)] if stop.owner == Some(owner("acme"))),
            "{answers:?}"
        );

        // The kind's own limit holds all of them together.
        bench.rung(3, |job| NewJob { owner: owner("initech"), ..job }).await;
        let more = bench.claim_some(worker.holder(), lane()).await;
        assert_eq!(more.holdings.len(), 1);
        assert!(more.stops.iter().any(|stop| stop.gate == Gate::Kind(job().kind)), "{:?}", more.stops);
    })
    .await;
}

#[tokio::test]
async fn an_owner_that_waits_for_itself_takes_no_place_of_others_in_the_window() {
    everywhere(async |bench| {
        let mut limits = Limits::default();
        limits.kind(job().kind, Limit::default(), at_a_time(1));
        bench.store.limit(limits);
        for _ in 0..10 {
            bench.accept(job()).await;
        }
        let plan = RingPlan { window: 4, least: 0, ..plan() };
        let ring = async || bench.store.ring(&plan).await.unwrap().len();
        assert_eq!((ring().await, ring().await), (2, 0), "one to run and one to follow");
        let few = bench.accept(NewJob { owner: owner("globex"), ..job() }).await;
        assert_eq!(ring().await, 1);
        let worker = bench.join("w").await;
        let claimed = bench.claim_some(worker.holder(), lane()).await;
        assert!(claimed.holdings.len() == 2 && ids(&claimed.holdings).contains(&few));
        assert_eq!(ring().await, 0, "one runs, one is rung");
        for holding in &claimed.holdings {
            bench.settle(&holding.lease, Verdict::Succeed).await.unwrap();
        }
        assert_eq!(ring().await, 1);
    })
    .await;
}

#[tokio::test]
async fn an_owner_whose_pace_is_ahead_is_not_rung() {
    everywhere(async |bench| {
        let rate = Rate { starts: 1, per: LEASE / 10, burst: 1 };
        let mut limits = Limits::default();
        limits.kind(job().kind, Limit::default(), Limit { concurrent: None, rate: Some(rate) });
        bench.store.limit(limits);
        for _ in 0..3 {
            bench.accept(job()).await;
        }
        let worker = bench.join("w").await;
        assert_eq!((bench.ring().await.len(), bench.ring().await.len()), (1, 0));
        assert_eq!(bench.claim_some(worker.holder(), lane()).await.holdings.len(), 1);
        assert_eq!(bench.ring().await.len(), 0);
        bench.harness.pass(LEASE / 10).await;
        assert_eq!(bench.ring().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_is_due_is_rung_at_once_however_many_other_owners_have_jobs_for_later() {
    everywhere(async |bench| {
        let mut limits = Limits::default();
        limits.kind(job().kind, Limit::default(), at_a_time(1));
        bench.store.limit(limits);
        let tonight = bench.store.now().await.unwrap() + 100 * LEASE;
        for number in 0..200 {
            let owner = owner(&format!("tenant-{number:03}"));
            bench.accept(NewJob { owner, run_at: Some(tonight), ..job() }).await;
        }
        for _ in 0..5 {
            let due = bench.accept(job()).await;
            let rung: Vec<JobId> = bench.ring().await.into_iter().map(|rung| rung.job).collect();
            assert_eq!(rung, [due]);
            bench.store.cancel(&Scope::All, due).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_rate_that_was_changed_holds_from_now_on() {
    everywhere(async |bench| {
        let rate = |starts, per| Limit { concurrent: None, rate: Some(Rate { starts, per, burst: 1 }) };
        let limit = |limit| {
            let mut limits = Limits::default();
            limits.kind(job().kind, limit, limit);
            bench.store.limit(limits);
        };
        limit(rate(1, 1_000 * LEASE));
        bench.rung(3, |job| job).await;
        let worker = bench.join("w").await;
        let started = async || {
            bench.ring().await;
            bench.claim_some(worker.holder(), lane()).await.holdings.len()
        };
        assert_eq!((started().await, started().await), (1, 0));
        limit(rate(1, LEASE / 10));
        assert_eq!((started().await, started().await), (1, 0), "not only after a thousand leases");
        bench.harness.pass(LEASE / 10).await;
        assert_eq!(started().await, 1);
    })
    .await;
}

#[tokio::test]
async fn each_owner_has_a_pace_of_its_own() {
    everywhere(async |bench| {
        let rate = Rate { starts: 1, per: LEASE / 10, burst: 1 };
        let mut limits = Limits::default();
        limits.kind(job().kind, Limit::default(), Limit { concurrent: None, rate: Some(rate) });
        bench.store.limit(limits);
        bench.rung(3, |job| job).await;
        bench.rung(3, |job| NewJob { owner: owner("globex"), ..job }).await;
        let worker = bench.join("w").await;
        let owners = async || {
            bench.ring().await;
            let claimed = bench.claim_some(worker.holder(), lane()).await;
            let mut owners: Vec<String> =
                claimed.holdings.iter().map(|holding| holding.job.owner.to_string()).collect();
            owners.sort_unstable();
            owners
        };
        assert_eq!(owners().await, ["acme", "globex"]);
        assert_eq!(owners().await, [] as [&str; 0]);
        bench.harness.pass(LEASE / 10).await;
        assert_eq!(owners().await, ["acme", "globex"]);
    })
    .await;
}

#[tokio::test]
async fn a_kind_that_a_downstream_wants_left_alone_starts_nowhere_and_others_go_on() {
    everywhere(async |bench| {
        let jobs = bench.rung(2, |job| job).await;
        let free = bench.rung(1, |job| NewJob { kind: kind("plain"), ..job }).await;
        let gate = Gate::Kind(job().kind);
        bench.store.shut(&gate, LEASE).await.unwrap();
        bench.store.shut(&gate, LEASE / 2).await.unwrap();
        for limits in [Limits::default(), limited(at_a_time(5))] {
            bench.store.limit(limits);
            let worker = bench.join("w").await;
            assert_eq!(bench.claim_some(worker.holder(), lane()).await.holdings, []);
            let answer = bench.try_claim(worker.holder(), jobs[0]).await;
            let Claim::Waits(stop) = answer else { panic!("{answer:?}") };
            assert!(
                stop.asked && stop.gate == gate && stop.again > LEASE / 2 && stop.again <= LEASE,
                "{stop:?}"
            );
            worker.leave().await.unwrap();
        }
        let worker = bench.join("w").await;
        let plain = bench.claim_some(worker.holder(), free_lane()).await;
        assert_eq!(ids(&plain.holdings), free);
        bench.harness.pass(LEASE / 2).await;
        assert_eq!(bench.claim_some(worker.holder(), lane()).await.holdings, []);
        bench.harness.pass(LEASE / 2).await;
        assert_eq!(bench.claim_some(worker.holder(), lane()).await.holdings.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn what_a_job_needs_by_its_size_is_taken_of_what_there_is() {
    everywhere(async |bench| {
        let sized = |bytes| Source {
            name: "a.pdf".into(),
            bytes,
            sha256: "0".repeat(64),
            media_type: "application/pdf".into(),
            file: "originals/x".into(),
        };
        let needs: Needs = [("memory", Need { base: 10, per_byte: 2 })].into_iter().collect();
        let mut limits = Limits::default();
        limits.resource("memory", at_a_time(100));
        limits.need(job().kind, needs.clone());
        bench.store.limit(limits);
        let mut jobs = Vec::new();
        for bytes in [20, 20, 1, 1_000] {
            jobs.extend(bench.rung(1, |job| NewJob { source: Some(sized(bytes)), ..job }).await);
        }
        let worker = bench.join("w").await;
        let memory = Gate::Resource("memory".into());
        // 50 and 50; the small one does not pass the large one, and what needs more than there is runs alone.
        let both = bench.claim_some(worker.holder(), lane()).await;
        assert_eq!((ids(&both.holdings), bench.in_use(&memory, None).await), (jobs[..2].to_vec(), 100));
        for holding in &both.holdings {
            bench.settle(&holding.lease, Verdict::Succeed).await.unwrap();
        }
        let small = bench.claim_some(worker.holder(), lane()).await;
        assert_eq!((ids(&small.holdings), bench.in_use(&memory, None).await), (jobs[2..3].to_vec(), 12));
        bench.settle(&small.holdings[0].lease, Verdict::Succeed).await.unwrap();
        assert_eq!(ids(&bench.claim_some(worker.holder(), lane()).await.holdings), jobs[3..]);
        assert_eq!(bench.in_use(&memory, None).await, 100);

        // The same of what a process has for itself: nobody else is told of it.
        let mut limits = Limits::default();
        limits.need(kind("plain"), needs);
        bench.store.limit(limits);
        let plain = |bytes| move |job| NewJob { kind: kind("plain"), source: Some(sized(bytes)), ..job };
        let mut jobs = bench.rung(1, plain(20)).await;
        jobs.extend(bench.rung(1, plain(10)).await);
        let room =
            |used| [Room { name: "memory".into(), used, all: Some(100), rate: None, ahead: Duration::ZERO }];
        let claim = async |used| {
            let lanes = quota(free_lane());
            bench.store.claim_lanes(worker.holder(), &lanes, 9, LEASE, &room(used)).await.unwrap()
        };
        let none = claim(60).await;
        assert_eq!((none.holdings.len(), none.stops.len()), (0, 1), "50 do not fit beside 60");
        assert_eq!(ids(&claim(50).await.holdings), jobs[..1]);
        let pointer = [(jobs[1], owner("acme"))];
        let waits = bench.store.claim_pointers(worker.holder(), &pointer, LEASE, &room(80)).await.unwrap();
        assert!(matches!(waits[..], [Claim::Waits(_)]), "{waits:?}");
        let runs = bench.store.claim_pointers(worker.holder(), &pointer, LEASE, &room(50)).await.unwrap();
        assert!(matches!(runs[..], [Claim::Run(_)]), "{runs:?}");
        assert_eq!(bench.in_use(&memory, None).await, 100, "what is taken here is nobody else's matter");
    })
    .await;
}
