//! What the keeper rings, and in which order.

use std::collections::HashSet;
use std::time::Duration;

use mapae::job::name::{Class, JobId, Priority};
use mapae::job::record::{FirstRing, NewJob};
use mapae::job::retry::Verdict;
use mapae::store::contract::{DOUBLINGS_MAX, LaneQuota, RingPlan};

use super::quota;
use crate::stores::{LEASE, everywhere, job, kind, lane, owner, plan};

#[tokio::test]
async fn a_newcomers_first_job_comes_next_however_much_of_anothers_is_rung() {
    everywhere(async |bench| {
        let rung = |turn| Some(FirstRing { turn, again: LEASE });
        for place in 1..=100 {
            bench.accept(NewJob { rung: rung(place), ..job() }).await;
        }
        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 10, LEASE).await.unwrap();
        assert_eq!(held.len(), 10);
        let newcomer = bench.accept(NewJob { owner: owner("globex"), rung: rung(12), ..job() }).await;
        let waiting = bench.accept(NewJob { owner: owner("initech"), ..job() }).await;
        assert_eq!(bench.ring().await.len(), 1);
        let next = bench.store.claim_rung(worker.holder(), &quota(lane()), 4, LEASE).await.unwrap();
        let next: Vec<JobId> = next.iter().map(|holding| holding.job.id).collect();
        assert!(next.contains(&newcomer), "rung with its accept");
        assert!(next.contains(&waiting), "rung by a keeper");
    })
    .await;
}

#[tokio::test]
async fn one_owner_with_a_thousand_jobs_does_not_starve_another() {
    everywhere(async |bench| {
        for _ in 0..1000 {
            bench.accept(job()).await;
        }
        let small = bench.accept(NewJob { owner: owner("globex"), ..job() }).await;
        let plan = RingPlan { window: 10, least: 0, again: LEASE, rescan: Some(Vec::new()), max: 100 };
        let rung = bench.store.ring(&plan).await.unwrap();
        assert_eq!(rung.len(), 10, "no more than the window");
        assert!(rung.iter().any(|rung| rung.job == small), "the small owner's job is among the first");
        assert!(bench.store.ring(&plan).await.unwrap().is_empty(), "the window is full");

        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 4, LEASE).await.unwrap();
        assert_eq!(held.len(), 4);
        assert_eq!(bench.store.ring(&plan).await.unwrap().len(), 4, "four places are free again");
    })
    .await;
}

#[tokio::test]
async fn what_comes_back_is_rung_beside_a_backlog_that_was_rung_when_it_was_accepted() {
    everywhere(async |bench| {
        for turn in 1..=20 {
            bench.accept(NewJob { rung: Some(FirstRing { turn, again: LEASE }), ..job() }).await;
        }
        for _ in 0..5 {
            bench.accept(job()).await;
        }
        let plan = RingPlan { window: 10, least: 3, again: LEASE, rescan: None, max: 100 };
        for rung in [3, 2, 0] {
            assert_eq!(bench.store.ring(&plan).await.unwrap().len(), rung);
        }
        assert!(bench.store.ring(&RingPlan { least: 0, ..plan }).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_waits_of_an_owner_is_counted_whether_it_was_offered_or_not() {
    everywhere(async |bench| {
        for turn in 1..=3 {
            bench.accept(NewJob { rung: Some(FirstRing { turn, again: LEASE }), ..job() }).await;
        }
        for _ in 0..2 {
            bench.accept(job()).await;
        }
        bench.accept(NewJob { owner: owner("globex"), ..job() }).await;
        let waiting = async |max| bench.store.waiting(&lane(), &job().owner, max).await.unwrap();
        assert_eq!((waiting(100).await, waiting(4).await, waiting(1).await), (5, 4, 1));
    })
    .await;
}

#[tokio::test]
async fn a_full_lane_leaves_room_in_the_others() {
    everywhere(async |bench| {
        let low = || NewJob { priority: Priority::new(9).unwrap(), ..job() };
        for _ in 0..5 {
            bench.accept(job()).await;
        }
        let other = bench.accept(low()).await;
        let plan = RingPlan { window: 2, least: 0, again: LEASE, rescan: Some(Vec::new()), max: 100 };
        let rung = bench.store.ring(&plan).await.unwrap();
        assert_eq!(rung.len(), 3);
        assert_eq!(rung.iter().filter(|rung| rung.lane.class == Class::Low).count(), 1);

        let worker = bench.join("w").await;
        let lanes = [LaneQuota { lane: low().lane(), max: 4 }, LaneQuota { lane: lane(), max: 1 }];
        let held = bench.store.claim_rung(worker.holder(), &lanes, 9, LEASE).await.unwrap();
        assert_eq!(held.len(), 2, "one there, and one for the other lane's quota");
        assert_eq!(held[0].job.id, other, "lanes come in the given order");
    })
    .await;
}

#[tokio::test]
async fn a_lane_is_told_of_with_the_owner_of_a_job_that_is_there() {
    everywhere(async |bench| {
        let told = async || {
            let lanes = bench.store.stats().await.unwrap().lanes;
            lanes.into_iter().map(|lane| (lane.lane, lane.owner.unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(told().await, []);
        let id = bench.accept(job()).await;
        assert_eq!(told().await, [(lane(), owner("acme"))], "waiting");
        bench.ring().await;
        assert_eq!(told().await, [(lane(), owner("acme"))], "rung");
        let worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        assert_eq!(told().await, [(lane(), owner("acme"))], "running");
        bench.settle(&held.lease, Verdict::Succeed).await.unwrap();
        bench.accept(NewJob { owner: owner("initech"), ..job() }).await;
        assert_eq!(told().await, [(lane(), owner("initech"))], "no job of the other is left");
    })
    .await;
}

#[tokio::test]
async fn two_keepers_at_once_ring_a_job_once() {
    everywhere(async |bench| {
        for _ in 0..50 {
            bench.accept(job()).await;
        }
        let keepers: Vec<_> = (0..8)
            .map(|_| {
                let store = bench.store.clone();
                tokio::spawn(async move { store.ring(&plan()).await.unwrap() })
            })
            .collect();
        let mut rung = Vec::new();
        for keeper in keepers {
            rung.extend(keeper.await.unwrap());
        }
        // A keeper may leave to another what that one is just looking at.
        rung.extend(bench.ring().await);
        assert!(rung.iter().all(|rung| rung.hint == 1));
        assert_eq!(rung.len(), 50);
        assert_eq!(rung.iter().map(|rung| rung.job).collect::<HashSet<_>>().len(), 50);
    })
    .await;
}

#[tokio::test]
async fn how_long_ago_a_lanes_pointers_were_rung_is_told_from_the_latest_to_the_first() {
    everywhere(async |bench| {
        let age = 3 * LEASE;
        let ago = async |count| bench.store.rung_ago(&[(lane(), count)], age).await.unwrap()[0];
        assert_eq!(ago(1).await, Duration::ZERO, "none waits");
        // The first is rung twice, and once more than the second: its last time counts.
        let first = bench.accept(job()).await;
        let plan = RingPlan { again: LEASE, ..plan() };
        bench.store.ring(&plan).await.unwrap();
        bench.harness.pass(LEASE).await;
        let second = bench.accept(job()).await;
        let rung = bench.store.ring(&RingPlan { rescan: Some(Vec::new()), ..plan }).await.unwrap();
        let hints: Vec<(JobId, u32)> = rung.iter().map(|rung| (rung.job, rung.hint)).collect();
        assert!(hints.contains(&(first, 2)) && hints.contains(&(second, 1)), "{hints:?}");
        bench.store.rung(&hints, age).await.unwrap();
        bench.harness.pass(LEASE).await;
        let third = bench.accept(job()).await;
        bench.ring().await;
        bench.store.rung(&[(third, 1)], age).await.unwrap();

        assert!(ago(0).await.is_zero() && ago(1).await < LEASE, "{:?}", ago(1).await);
        for count in [2, 3, 1_000] {
            let told = ago(count).await;
            assert!((LEASE..2 * LEASE).contains(&told), "of {count}: {told:?}");
        }
        let other = NewJob { priority: Priority::new(9).unwrap(), ..job() }.lane();
        let told = bench.store.rung_ago(&[(other, 5), (lane(), 2)], age).await.unwrap();
        assert!(told[0].is_zero() && told[1] >= LEASE, "{told:?}");

        let worker = bench.join("w").await;
        bench
            .store
            .claim(worker.holder(), &[(first, owner("acme")), (second, owner("acme"))], LEASE)
            .await
            .unwrap();
        assert!(ago(3).await < LEASE, "what runs does not wait");
    })
    .await;
}

#[tokio::test]
async fn a_pointer_that_was_not_published_comes_back_and_a_published_one_waits_for_its_age() {
    everywhere(async |bench| {
        let (lost, published) = (bench.accept(job()).await, bench.accept(job()).await);
        let plan = RingPlan { again: LEASE, ..plan() };
        assert_eq!(bench.store.ring(&plan).await.unwrap().len(), 2);
        bench.store.rung(&[(published, 1)], 3 * LEASE).await.unwrap();
        assert_eq!(bench.store.ring(&plan).await.unwrap(), []);
        bench.harness.pass(LEASE).await;
        let back = bench.store.ring(&plan).await.unwrap();
        assert_eq!(back.iter().map(|rung| (rung.job, rung.hint)).collect::<Vec<_>>(), [(lost, 2)]);
        bench.store.rung(&[(lost, 2)], LEASE).await.unwrap();
        bench.harness.pass(LEASE).await;
        assert_eq!(bench.store.ring(&plan).await.unwrap(), [], "the age doubles with the hint");
        bench.harness.pass(LEASE).await;
        let both: HashSet<JobId> =
            bench.store.ring(&plan).await.unwrap().iter().map(|rung| rung.job).collect();
        assert_eq!(both, HashSet::from([lost, published]));
    })
    .await;
}

#[tokio::test]
async fn a_keeper_is_told_when_the_next_job_becomes_due() {
    everywhere(async |bench| {
        assert_eq!(bench.store.next_due(10 * LEASE).await.unwrap(), None);
        let run_at = Some(bench.store.now().await.unwrap() + 2 * LEASE);
        let id = bench.accept(NewJob { run_at, ..job() }).await;
        assert_eq!(bench.ring().await, []);
        assert_eq!(bench.store.next_due(LEASE).await.unwrap(), None);
        let wait = bench.store.next_due(10 * LEASE).await.unwrap().expect("it is within the horizon");
        assert!(wait > LEASE && wait <= 2 * LEASE, "{wait:?}");
        bench.harness.pass(2 * LEASE).await;
        assert_eq!(bench.store.next_due(LEASE).await.unwrap(), Some(Duration::ZERO));
        assert_eq!(bench.ring().await[0].job, id);
        assert_eq!(bench.store.next_due(10 * LEASE).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_pointer_rung_in_vain_for_long_is_not_believed_for_longer_than_the_bound() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let again = RingPlan { again: Duration::from_secs(1), ..plan() };
        // A broker that is down: rung over and over, and never confirmed.
        for hint in 1..=30 {
            let rung = bench.store.ring(&again).await.unwrap();
            assert_eq!(rung.iter().map(|rung| rung.hint).collect::<Vec<_>>(), [hint]);
            bench.harness.pass(Duration::from_secs(2)).await;
        }
        let age = Duration::from_secs(60);
        bench.store.rung(&[(id, 30)], age).await.unwrap();
        bench.harness.pass(age * (1 << DOUBLINGS_MAX) / 2).await;
        assert_eq!(bench.ring().await, [], "believed for a while");
        bench.harness.pass(age * (1 << DOUBLINGS_MAX)).await;
        assert_eq!(bench.ring().await.len(), 1, "it may have been lost after all");
    })
    .await;
}

#[tokio::test]
async fn what_was_rung_before_is_left_alone_for_as_long_as_its_lanes_backlog_explains() {
    everywhere(async |bench| {
        let low = || NewJob { priority: Priority::new(9).unwrap(), ..job() };
        let (slow, quick) = (bench.accept(job()).await, bench.accept(low()).await);
        assert_eq!(bench.ring().await.len(), 2);
        bench.harness.pass(LEASE).await;
        let rung = async |rescan| {
            let rung = bench.store.ring(&RingPlan { rescan, again: 100 * LEASE, ..plan() }).await.unwrap();
            rung.into_iter().map(|rung| (rung.job, rung.hint)).collect::<Vec<_>>()
        };
        let patient = || Some(vec![(lane(), 2 * LEASE)]);

        assert_eq!(rung(None).await, [], "nothing that was rung before");
        let new = bench.accept(job()).await;
        assert_eq!(
            rung(patient()).await,
            [(quick, 2), (new, 1)],
            "another lane, and what is new in this one"
        );
        bench.harness.pass(LEASE).await;
        assert_eq!(rung(patient()).await, []);
        bench.harness.pass(LEASE).await;
        assert_eq!(rung(patient()).await, [(slow, 2)], "not for good");
    })
    .await;
}

#[tokio::test]
async fn what_is_offered_beyond_twice_the_window_waits_to_be_rung_again() {
    everywhere(async |bench| {
        let mut jobs = Vec::new();
        for _ in 0..7 {
            jobs.push(bench.accept(job()).await);
        }
        assert_eq!(bench.ring().await.len(), 7);
        let waiting = async || bench.store.windows(100).await.unwrap()[0].waiting;
        assert_eq!(bench.store.withdraw(4, 100).await.unwrap(), 0, "not twice as much");
        assert_eq!(bench.store.withdraw(3, 3).await.unwrap(), 3);
        assert_eq!((waiting().await, bench.store.withdraw(3, 100).await.unwrap()), (4, 0));
        assert_eq!(bench.store.withdraw(1, 100).await.unwrap(), 3);
        // Those that come first stay; the others are rung as ones that never were, and no pointer is worth less.
        let worker = bench.join("w").await;
        let held = bench.store.claim_rung(worker.holder(), &quota(lane()), 9, LEASE).await.unwrap();
        assert_eq!(held.iter().map(|held| held.job.id).collect::<Vec<_>>(), jobs[..1]);
        bench.claim(worker.holder(), jobs[6]).await;
        let rung = bench.ring().await;
        assert_eq!(
            rung.iter().map(|rung| (rung.job, rung.hint)).collect::<Vec<_>>(),
            jobs[1..6].iter().map(|job| (*job, 1)).collect::<Vec<_>>()
        );
    })
    .await;
}

#[tokio::test]
async fn the_store_tells_how_far_each_owner_reaches() {
    everywhere(async |bench| {
        assert_eq!(bench.store.turns(10).await.unwrap(), []);
        let rung = |turn| Some(FirstRing { turn, again: LEASE });
        for (name, turn) in [("acme", 1), ("acme", 7), ("zeta", 3), ("acme", 2)] {
            bench.accept(NewJob { owner: owner(name), rung: rung(turn), ..job() }).await;
        }
        bench.accept(NewJob { kind: kind("other"), rung: rung(4), ..job() }).await;
        let waiting = bench.accept(NewJob { owner: owner("late"), ..job() }).await;
        let told = bench.store.turns(10).await.unwrap();
        let told: Vec<_> =
            told.iter().map(|told| (told.lane.to_string(), told.owner.to_string(), told.turn)).collect();
        let expected = |lane: &str, owner: &str, turn| (lane.to_owned(), owner.to_owned(), turn);
        assert_eq!(
            told,
            [expected("analyze", "acme", 7), expected("analyze", "zeta", 3), expected("other", "acme", 4)]
        );
        assert_eq!(bench.store.turns(2).await.unwrap().len(), 2);
        assert_eq!(bench.state(waiting).await, mapae::job::State::Pending);
    })
    .await;
}
