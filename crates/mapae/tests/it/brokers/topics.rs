//! What Kafka adds to the laws: marks, rebalances, bad input, lines that are cut.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mapae::broker::contract::{BrokerError, Delivery, Published, Receipt, Settle, Settled};
use mapae::broker::{self, BrokerPlan};
use mapae::job::lease::Holder;
use mapae::job::name::JobId;

use super::kafka::servers;
use super::{NEVER, job, lanes, opened, publish, read, reader};
use crate::site::PATIENCE;
use crate::stores::soon;

fn jobs_of(deliveries: &[Delivery]) -> BTreeSet<JobId> {
    deliveries.iter().map(job).collect()
}

fn done(deliveries: impl IntoIterator<Item = Delivery>) -> Vec<(Receipt, Settle)> {
    deliveries.into_iter().map(|it| (it.receipt, Settle::Done)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mark_of_a_partition_never_passes_what_is_not_settled() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.in_order(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 5).await;
        let holder = Holder::new("w");
        let intake = broker.open(&reader(&lanes, &holder, NEVER)).await.unwrap();
        let mut held = read(&*intake, 5).await;
        let open = held.remove(1);

        assert_eq!(intake.settle(&done(held)).await, vec![Settled::Ok; 4]);

        soon("the first is marked", async || (hand.marks(&lanes[0]) == [(Some(1), 5)]).then_some(())).await;
        let depth = broker.stats(&lanes[0]).await.unwrap().depth.unwrap().value;
        assert_eq!(depth, 4, "what is behind the open one counts with it");
        // The process dies: its next life is given all from the open one on.
        drop(intake);
        let next = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let again = read(&*next, 4).await;
        assert_eq!(again.iter().map(job).collect::<Vec<_>>(), jobs[1..]);
        assert_eq!(next.settle(&[(open.receipt, Settle::Done)]).await, [Settled::Stale]);
        assert_eq!(next.settle(&done(again)).await, vec![Settled::Ok; 4]);
        soon("all are marked", async || (hand.marks(&lanes[0]) == [(Some(5), 5)]).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_to_another_reader_in_a_rebalance_is_not_settled_by_the_first() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let jobs: BTreeSet<JobId> = publish(&*broker, &lanes[0], 30).await.into_iter().collect();
        let first = broker.open(&reader(&lanes, &Holder::new("first"), NEVER)).await.unwrap();
        let held = read(&*first, 30).await;

        // Between them the group divides the partitions anew, while all is held and nothing is settled.
        let second = broker.open(&reader(&lanes, &Holder::new("second"), NEVER)).await.unwrap();
        let moved = soon("some go to the second", async || {
            first.next(1, &lanes, Duration::from_millis(1)).await.unwrap();
            let came = second.next(30, &[], Duration::from_millis(200)).await.unwrap();
            (!came.is_empty()).then_some(came)
        })
        .await;

        let theirs = jobs_of(&moved);
        let (lost, kept): (Vec<_>, Vec<_>) = held.into_iter().partition(|it| theirs.contains(&job(it)));
        let lost = first.settle(&done(lost)).await;
        assert!(lost.iter().all(|it| *it == Settled::Stale), "{lost:?}");
        first.settle(&done(kept)).await;
        second.settle(&done(moved)).await;
        // Whatever was not settled by either comes once more.
        soon("all is marked", async || {
            for intake in [&first, &second] {
                let came = intake.next(30, &[], Duration::from_millis(1)).await.unwrap();
                assert!(jobs_of(&came).is_subset(&jobs));
                intake.settle(&done(came)).await;
            }
            let whole = |(mark, end): &(Option<i64>, i64)| mark.unwrap_or(0) == *end;
            hand.marks(&lanes[0]).iter().all(whole).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_worker_keeps_nothing_from_others() {
    for (server, _) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k", "l"]));
        broker.ensure(&lanes).await.unwrap();
        let busy = broker.open(&reader(&lanes, &Holder::new("busy"), NEVER)).await.unwrap();
        let mut jobs: BTreeSet<JobId> = publish(&*broker, &lanes[0], 20).await.into_iter().collect();
        jobs.extend(publish(&*broker, &lanes[1], 20).await);
        let held = jobs_of(&read(&*busy, 4).await);

        // It does not ask again.
        let idle = broker.open(&reader(&lanes, &Holder::new("idle"), NEVER)).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut others = BTreeSet::new();
        while !jobs.difference(&held).all(|job| others.contains(job)) {
            assert!(Instant::now() < deadline, "only {} of 36 others came", others.len());
            others.extend(jobs_of(&idle.next(40, &[], Duration::from_secs(1)).await.unwrap()));
        }

        // And when it asks again it is given its share of what is new.
        let new: BTreeSet<JobId> = publish(&*broker, &lanes[0], 30).await.into_iter().collect();
        soon("its share comes", async || {
            let came = jobs_of(&busy.next(40, &[], Duration::from_millis(100)).await.unwrap());
            idle.next(40, &[], Duration::from_millis(1)).await.unwrap();
            (!came.is_disjoint(&new)).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_comes_back_with_other_kinds_reads_them() {
    for (server, _) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k", "l"]));
        broker.ensure(&lanes).await.unwrap();
        let before = broker.open(&reader(&lanes[..1], &Holder::new("w"), NEVER)).await.unwrap();
        publish(&*broker, &lanes[0], 3).await;
        read(&*before, 3).await;
        before.close(Instant::now() + PATIENCE).await;

        let after = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let new = publish(&*broker, &lanes[1], 3).await.into_iter().collect();
        let came = read(&*after, 6).await;
        assert!(jobs_of(&came).is_superset(&new));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_no_pointer_is_handed_over_as_it_is_and_kept_apart() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let foreign = [b"{\"v\":2}".to_vec(), b"words \xff".to_vec(), vec![b'x'; 200_000], Vec::new()];
        for body in &foreign {
            hand.publish(&hand.topic(&lanes[0]), 0, body).await;
        }
        let jobs = publish(&*broker, &lanes[0], 1).await;
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();

        let (ours, theirs): (Vec<_>, Vec<_>) =
            read(&*intake, 5).await.into_iter().partition(|it| it.pointer.is_ok());

        assert_eq!(ours.iter().map(job).collect::<Vec<_>>(), jobs, "what comes beside them is read");
        let bodies: Vec<Vec<u8>> = theirs.iter().map(|it| it.pointer.clone().unwrap_err()).collect();
        assert_eq!(bodies, foreign);
        let park: Vec<_> = theirs.into_iter().map(|it| (it.receipt, Settle::Park("not a pointer"))).collect();
        assert_eq!(intake.settle(&park).await, vec![Settled::Ok; 4]);
        assert_eq!(intake.settle(&park).await, vec![Settled::Stale; 4]);
        let kept: Vec<(Vec<u8>, String)> =
            foreign.iter().map(|body| (body.clone(), "not a pointer".to_owned())).collect();
        assert_eq!(hand.all(&hand.parked()), kept, "whole, for a person to look at");
        assert!(broker.check().await.unwrap()[0].what.contains(&hand.parked()), "doctor tells of them");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_topic_for_what_is_no_pointer_is_missing_it_is_asked_to_be_made() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        hand.publish(&hand.topic(&lanes[0]), 0, b"words").await;
        hand.delete(&[hand.parked()]).await;
        let w = reader(&lanes, &Holder::new("w"), NEVER);
        let park = |came: Vec<Delivery>| {
            came.into_iter().map(|it| (it.receipt, Settle::Park("not a pointer"))).collect::<Vec<_>>()
        };

        let intake = broker.open(&w).await.unwrap();
        let settled = intake.settle(&park(read(&*intake, 1).await)).await;

        assert_eq!(settled, [Settled::Unknown]);
        let said =
            soon("it is said", async || intake.next(1, &[], Duration::from_millis(1)).await.err()).await;
        assert!(matches!(said, BrokerError::Topology(_)), "{said:?}");
        intake.close(Instant::now() + PATIENCE).await;
        // As a worker answers this: the client may not know of the new topic at once.
        soon("it is kept apart", async || {
            broker.ensure(&lanes).await.unwrap();
            let intake = broker.open(&w).await.unwrap();
            let settled = intake.settle(&park(read(&*intake, 1).await)).await;
            intake.close(Instant::now() + PATIENCE).await;
            (settled == [Settled::Ok]).then_some(())
        })
        .await;
        assert_eq!(hand.all(&hand.parked()), [(b"words".to_vec(), "not a pointer".to_owned())]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_made_otherwise_is_said_with_its_name_and_what_differs() {
    for (server, hand) in servers() {
        let lanes = lanes(&["k", "l"]);
        hand.make(&hand.topic(&lanes[0]), 1, &[]).await;
        let refused = server.broker().ensure(&lanes).await;
        let Err(BrokerError::Topology(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains(&hand.topic(&lanes[0])) && why.contains("1 partitions"), "{why}");

        hand.wipe().await;
        hand.make(&hand.parked(), 1, &[("cleanup.policy", "compact")]).await;
        let refused = server.broker().ensure(&lanes).await;
        let Err(BrokerError::Topology(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains(&hand.parked()) && why.contains("cleanup.policy"), "{why}");

        // More replicas than there are brokers: nothing is made, and what is not there is not published to.
        let broker = opened(&format!("{}&replicas=3", server.url));
        hand.wipe().await;
        let refused = broker.ensure(&lanes).await;
        let Err(BrokerError::Fatal(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("replicas in broker.url"), "{why}");
        let answers = broker.publish(&[super::pointer(&lanes[1])]).await;
        assert!(matches!(answers[..], [Published::Refused(BrokerError::Topology(_))]), "{answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_wrong_is_told_with_what_to_look_at() {
    for url in [
        "kafka://h?partitions=0",
        "kafka://h?replicas=many",
        "kafka://h?retention_hours=-1",
        "kafka://h?prefix=a.b",
        "kafka://h?sasl=plain",
        "kafka://h:9092/path",
    ] {
        let refused = broker::open(&BrokerPlan { url: url.into(), database_url: String::new() });
        assert!(matches!(refused, Err(BrokerError::Fatal(_))), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_a_reason_to_try_again() {
    // Nobody listens on the port of a service that was given up decades ago.
    let broker = opened("kafka://127.0.0.1:1");
    assert!(matches!(broker.ensure(&lanes(&["k"])).await, Err(BrokerError::Transient(_))));
    let answers = broker.publish(&[super::pointer(&lanes(&["k"])[0])]).await;
    assert!(matches!(answers[..], [Published::Unknown]), "{answers:?}");
    let intake = broker.open(&reader(&lanes(&["k"]), &Holder::new("w"), NEVER)).await.unwrap();
    assert!(matches!(intake.orphans(1).await, Err(BrokerError::Transient(_))), "nothing is recovered");
    assert!(matches!(intake.next(1, &[], Duration::from_millis(1)).await, Err(BrokerError::Transient(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_over_a_dead_line_is_unknown_and_the_next_arrives() {
    for (server, hand) in servers() {
        let line = server.over_a_line().await;
        let (broker, lanes) = (opened(&line.url), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        publish(&*broker, &lanes[0], 1).await;
        line.freeze();

        let answers = broker.publish(&[super::pointer(&lanes[0]), super::pointer(&lanes[0])]).await;

        assert!(matches!(answers[..], [Published::Unknown, Published::Unknown]), "{answers:?}");
        line.hang_up();
        soon("the next arrives", async || {
            let answers = broker.publish(&[super::pointer(&lanes[0])]).await;
            matches!(answers[..], [Published::Accepted]).then_some(())
        })
        .await;
        let ends: i64 = hand.marks(&lanes[0]).iter().map(|(_, end)| end).sum();
        assert_eq!(ends, 2, "those two were never sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_says_nothing_any_more_is_a_read_that_fails() {
    for (server, _) in servers() {
        let line = server.over_a_line().await;
        let (broker, lanes) = (opened(&line.url), lanes(&["k"]));
        server.broker().ensure(&lanes).await.unwrap();
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        publish(&*server.broker(), &lanes[0], 1).await;
        read(&*intake, 1).await;
        // As long as it answers, reads that find nothing are none that fail.
        let until = Instant::now() + Duration::from_secs(11);
        while Instant::now() < until {
            assert!(intake.next(1, &[], Duration::from_secs(1)).await.unwrap().is_empty());
        }

        line.cut();

        let failed =
            soon("it is noticed", async || intake.next(1, &[], Duration::from_millis(1)).await.err()).await;
        assert!(matches!(failed, BrokerError::Transient(_)), "{failed:?}");
        assert!(intake.orphans(1).await.is_err(), "and it stays a failure");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_cut_again_and_again_loses_nothing_and_settles_nothing_wrongly() {
    for (server, hand) in servers() {
        let line = server.over_a_line().await;
        let (broker, lanes) = (opened(&line.url), lanes(&["k"]));
        server.broker().ensure(&lanes).await.unwrap();
        let jobs: BTreeSet<JobId> = publish(&*server.broker(), &lanes[0], 100).await.into_iter().collect();
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let (mut answered, mut cuts) = (BTreeSet::new(), 0);
        let deadline = Instant::now() + 3 * PATIENCE;

        while answered.len() < jobs.len() || cuts < 10 {
            assert!(Instant::now() < deadline, "{} of 100 after {cuts} cuts", answered.len());
            let came = intake.next(4, &[], Duration::from_millis(200)).await.unwrap_or_default();
            let settle: Vec<_> = came.iter().map(|it| (it.receipt.clone(), Settle::Done)).collect();
            for (delivery, settled) in came.iter().zip(intake.settle(&settle).await) {
                if settled == Settled::Ok {
                    answered.insert(job(delivery));
                }
            }
            if cuts < 10 && cuts * 10 <= answered.len() {
                cuts += 1;
                line.freeze();
                line.hang_up();
            }
        }

        assert_eq!(answered, jobs);
        intake.close(Instant::now() + PATIENCE).await;
        let rest = server.broker().open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        soon("all is marked", async || {
            let came = rest.next(50, &[], Duration::from_millis(100)).await.unwrap();
            assert!(jobs_of(&came).is_subset(&jobs));
            rest.settle(&done(came)).await;
            let whole = |(mark, end): &(Option<i64>, i64)| mark.unwrap_or(0) == *end;
            hand.marks(&lanes[0]).iter().all(whole).then_some(())
        })
        .await;
    }
}
