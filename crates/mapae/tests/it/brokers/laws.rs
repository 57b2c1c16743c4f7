//! The seam, method by method.

use std::collections::BTreeSet;
use std::time::Duration;

use mapae::broker::contract::{BrokerError, Hold, Pointer, Published, Settle, Settled};
use mapae::job::lease::Holder;
use mapae::job::name::JobId;

use super::{NEVER, job, lanes, orphans, pointer, publish, read, reader, servers, streams};
use crate::stores::soon;

const SOON: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_comes_once_in_order_and_is_gone_when_it_is_settled() {
    for server in servers() {
        let (broker, lanes) = (server.in_order(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 20).await;
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();

        let deliveries = read(&*intake, 20).await;

        assert_eq!(deliveries.iter().map(job).collect::<Vec<_>>(), jobs, "{}", server.name);
        let done: Vec<_> = deliveries.into_iter().map(|it| (it.receipt, Settle::Done)).collect();
        assert_eq!(intake.settle(&done).await, vec![Settled::Ok; 20]);
        assert_eq!(intake.settle(&done).await, vec![Settled::Stale; 20], "once is enough");
        // Whatever a connection has not settled is another's when it ends.
        intake.close(std::time::Instant::now() + super::PATIENCE).await;
        let other = broker.open(&reader(&lanes, &Holder::new("other"), SOON)).await.unwrap();
        assert!(other.orphans(20).await.unwrap().is_empty(), "{}: nothing is left behind", server.name);
        assert!(other.next(20, &[], Duration::from_millis(300)).await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_comes_than_is_asked_for_and_nothing_of_a_shut_lane() {
    for server in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["a", "b:high", "c:low"]));
        broker.ensure(&lanes).await.unwrap();
        for lane in &lanes {
            publish(&*broker, lane, 5).await;
        }
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();

        let deadline = std::time::Instant::now() + super::PATIENCE;
        let mut count = 0;
        while count < 6 {
            assert!(std::time::Instant::now() < deadline, "{}: only {count} came", server.name);
            let read = intake.next(2, &lanes[1..2], Duration::from_secs(1)).await.unwrap();
            assert!(read.len() <= 2, "{}", server.name);
            assert!(read.iter().all(|it| it.pointer.as_ref().unwrap().kind != lanes[1].kind));
            count += read.len();
        }

        let rest = super::read(&*intake, 15 - count).await;
        let high = rest.iter().filter(|it| it.pointer.as_ref().unwrap().kind == lanes[1].kind).count();
        assert_eq!(high, 5, "what was shut is still there");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_given_up_strands_nothing() {
    for server in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let (mut published, mut seen) = (BTreeSet::new(), BTreeSet::new());

        for round in 0..300_u32 {
            let reading = async {
                tokio::select! {
                    read = intake.next(3, &[], Duration::from_secs(1)) => read.unwrap(),
                    // At a different moment each time: before, while and after an entry is on its way.
                    () = spin(round % 40) => Vec::new(),
                }
            };
            let (jobs, read) = tokio::join!(publish(&*broker, &lanes[0], 1), reading);
            published.extend(jobs);
            for delivery in read {
                assert!(seen.insert(job(&delivery)), "{}: twice", server.name);
            }
        }

        for delivery in read(&*intake, published.len() - seen.len()).await {
            assert!(seen.insert(job(&delivery)), "{}: twice", server.name);
        }
        assert_eq!(seen, published);
    }
}

/// Lets others go on for so many turns.
async fn spin(turns: u32) {
    for _ in 0..turns * 5 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_life_left_comes_first_and_at_once() {
    for (server, _) in streams::servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let left = publish(&*broker, &lanes[0], 7).await;
        let earlier = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let old = read(&*earlier, 7).await;
        let other = broker.open(&reader(&lanes, &Holder::new("w-2"), NEVER)).await.unwrap();
        publish(&*broker, &lanes[0], 2).await;
        let others: Vec<JobId> = read(&*other, 2).await.iter().map(job).collect();

        let later = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let found = orphans(&*later, 7).await;

        assert_eq!(found.iter().map(job).collect::<Vec<_>>(), left, "{}", server.name);
        assert!(
            later.orphans(10).await.unwrap().is_empty(),
            "those of another name are not its own: {others:?}"
        );
        let old: Vec<_> = old.into_iter().map(|it| (it.receipt, Settle::Done)).collect();
        assert_eq!(earlier.settle(&old).await, vec![Settled::Stale; 7], "the earlier life settles nothing");
        let new: Vec<_> = found.into_iter().map(|it| (it.receipt, Settle::Done)).collect();
        assert_eq!(later.settle(&new).await, vec![Settled::Ok; 7]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_has_held_without_a_sign_of_life_is_taken_over_and_what_it_renews_is_not() {
    for (server, hand) in streams::servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        publish(&*broker, &lanes[0], 2).await;
        let stopped = broker.open(&reader(&lanes, &Holder::new("stopped"), NEVER)).await.unwrap();
        let theirs = read(&*stopped, 2).await;
        let patient = broker.open(&reader(&lanes, &Holder::new("patient"), NEVER)).await.unwrap();
        assert!(patient.orphans(10).await.unwrap().is_empty(), "{}: too early", server.name);

        let eager = broker.open(&reader(&lanes, &Holder::new("eager"), SOON)).await.unwrap();
        let taken = orphans(&*eager, 2).await;

        assert_eq!(taken.len(), 2);
        let receipts: Vec<_> = theirs.iter().map(|it| it.receipt.clone()).collect();
        assert_eq!(stopped.hold(&receipts).await, [Hold::Lost, Hold::Lost], "it does not take them back");
        let done: Vec<_> = receipts.into_iter().map(|it| (it, Settle::Done)).collect();
        assert_eq!(stopped.settle(&done).await, [Settled::Stale, Settled::Stale]);
        assert_eq!(hand.length(&lanes[0]).await, 2, "it erases nothing of the new holder's");
        let mine: Vec<_> = taken.iter().map(|it| it.receipt.clone()).collect();
        assert_eq!(eager.hold(&mine).await, [Hold::Held, Hold::Held]);
        let done: Vec<_> = mine.into_iter().map(|it| (it, Settle::Done)).collect();
        assert_eq!(eager.settle(&done).await, [Settled::Ok, Settled::Ok]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_back_is_anothers_at_once() {
    for server in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 3).await;
        let leaving = broker.open(&reader(&lanes, &Holder::new("leaving"), NEVER)).await.unwrap();
        let held = read(&*leaving, 3).await;

        let receipts: Vec<_> = held.into_iter().map(|it| it.receipt).collect();
        leaving.hand_back(&receipts).await.unwrap();

        let other = broker.open(&reader(&lanes, &Holder::new("other"), NEVER)).await.unwrap();
        let found: BTreeSet<JobId> = read(&*other, 3).await.iter().map(job).collect();
        assert_eq!(found, jobs.into_iter().collect(), "{}", server.name);
        let done: Vec<_> = receipts.into_iter().map(|it| (it, Settle::Done)).collect();
        assert_eq!(leaving.settle(&done).await, vec![Settled::Stale; 3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_closes_leaves_nothing_that_was_read_for_it() {
    for server in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let closing = broker.open(&reader(&lanes, &Holder::new("closing"), NEVER)).await.unwrap();
        // A read that was given up and goes on by itself.
        let given_up = closing.next(5, &[], Duration::from_millis(300));
        let _ = tokio::time::timeout(Duration::from_millis(20), given_up).await;
        let jobs = publish(&*broker, &lanes[0], 1).await;

        closing.close(std::time::Instant::now() + super::PATIENCE).await;

        let other = broker.open(&reader(&lanes, &Holder::new("other"), NEVER)).await.unwrap();
        assert_eq!(read(&*other, 1).await.iter().map(job).collect::<Vec<_>>(), jobs, "{}", server.name);
        let stats = broker.stats(&lanes[0]).await.unwrap();
        let consumers = stats.consumers.map(|it| it.value).unwrap_or_default();
        assert!(consumers.iter().all(|(name, _)| !name.starts_with("closing")), "{consumers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_wiped_is_whole_again_after_ensure() {
    for server in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k", "k:high"]));
        broker.ensure(&lanes).await.unwrap();
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        publish(&*broker, &lanes[0], 3).await;
        read(&*intake, 1).await;

        for _ in 0..2 {
            server.wipe().await;
            // Some are told a moment later that a queue is gone.
            let read = soon("the reader knows", async || intake.next(1, &[], SOON).await.err()).await;
            assert!(matches!(read, BrokerError::Topology(_)), "{}: {read:?}", server.name);
            broker.ensure(&lanes).await.unwrap();
            broker.ensure(&lanes).await.unwrap();
            let job = publish(&*broker, &lanes[1], 1).await;
            assert_eq!(super::read(&*intake, 1).await.iter().map(super::job).collect::<Vec<_>>(), job);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_accepted_can_be_read_even_where_nothing_was_made_before() {
    for server in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k", "l"]));
        let pointers: Vec<_> = lanes.iter().chain(&lanes).map(pointer).collect();
        let answers = broker.publish(&pointers).await;
        let accepted: Vec<&Pointer> = answers
            .iter()
            .zip(&pointers)
            .filter(|(answer, _)| matches!(answer, Published::Accepted))
            .map(|(_, (_, pointer))| pointer)
            .collect();

        broker.ensure(&lanes).await.unwrap();
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let found: BTreeSet<JobId> = read(&*intake, accepted.len()).await.iter().map(job).collect();
        assert_eq!(found, accepted.iter().map(|pointer| pointer.job).collect(), "{}", server.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_six_figures_are_told_and_what_is_not_known_is_not_zero() {
    for server in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        let never_made = broker.stats(&lanes[0]).await.unwrap();
        assert!(never_made.depth.is_none() && never_made.unacknowledged.is_none(), "{}", server.name);
        broker.ensure(&lanes).await.unwrap();
        publish(&*broker, &lanes[0], 5).await;
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        read(&*intake, 2).await;

        let stats = broker.stats(&lanes[0]).await.unwrap();

        let depth = if server.counts_unread() { 3 } else { 5 };
        assert_eq!(stats.depth.map(|it| it.value), Some(depth), "{}", server.name);
        if !broker.caps().holds {
            // The protocol tells no more.
            assert!(stats.unacknowledged.is_none() && stats.deliveries_max.is_none());
            assert!(stats.oldest_unacknowledged.is_none() && stats.consumers.is_none());
            continue;
        }
        assert_eq!(stats.unacknowledged.map(|it| it.value), Some(2));
        assert_eq!(stats.deliveries_max.map(|it| it.value), Some(1));
        assert!(stats.oldest_unacknowledged.is_some());
        assert!(stats.consumers.unwrap().value.iter().any(|(name, _)| name.starts_with("w/")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_tells_how_long_its_oldest_unread_pointer_has_waited() {
    for (server, _) in streams::servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k", "empty", "never-made"]));
        broker.ensure(&lanes[..2]).await.unwrap();
        let told = async || broker.oldest_unread(&lanes).await.unwrap();
        assert_eq!(told().await, [Some(Duration::ZERO), Some(Duration::ZERO), None], "{}", server.name);

        publish(&*broker, &lanes[0], 2).await;
        let waited = soon("it grows", async || told().await[0].filter(|it| !it.is_zero())).await;
        let intake = broker.open(&reader(&lanes[..1], &Holder::new("w"), NEVER)).await.unwrap();
        let first = read(&*intake, 1).await;
        assert!(told().await[0].unwrap() >= waited, "the second has waited as long");
        read(&*intake, 1).await;
        assert_eq!(told().await[0], Some(Duration::ZERO), "what is read and not settled is not unread");
        intake.settle(&[(first[0].receipt.clone(), Settle::Done)]).await;
        assert_eq!(told().await, [Some(Duration::ZERO), Some(Duration::ZERO), None]);

        publish(&*broker, &lanes[0], 1).await;
        server.wipe().await;
        assert_eq!(told().await, [None, None, None], "nothing is known of what is gone");
    }
}
