//! What RabbitMQ adds to the laws: bad input, epochs, lines that are cut, and what the server puts aside.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lapin::types::AMQPValue;
use mapae::broker::contract::{BrokerError, Published, Settle, Settled};
use mapae::broker::{self, BrokerPlan};
use mapae::job::lease::Holder;
use mapae::job::name::JobId;

use super::rabbitmq::servers;
use super::{NEVER, job, lanes, opened, publish, read, reader};
use crate::site::PATIENCE;
use crate::stores::soon;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_no_pointer_is_handed_over_as_it_is_and_kept_apart() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let foreign = [b"{\"v\":2}".to_vec(), b"words \xff".to_vec(), vec![b'x'; 200_000], Vec::new()];
        for body in &foreign {
            hand.publish(&hand.queue(&lanes[0]), body).await;
        }
        let jobs = publish(&*broker, &lanes[0], 1).await;
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();

        let mut came = read(&*intake, 5).await;

        assert_eq!(job(&came.pop().unwrap()), jobs[0], "what comes behind them is read");
        let bodies: Vec<Vec<u8>> = came.iter().map(|it| it.pointer.clone().unwrap_err()).collect();
        assert_eq!(bodies, foreign);
        let park: Vec<_> = came.into_iter().map(|it| (it.receipt, Settle::Park("not a pointer"))).collect();
        assert_eq!(intake.settle(&park).await, vec![Settled::Ok; 4]);
        assert_eq!(intake.settle(&park).await, vec![Settled::Stale; 4]);
        soon("all lie apart", async || (hand.depth(&hand.parked()).await == Some(4)).then_some(())).await;
        assert!(broker.check().await.unwrap()[0].what.contains(&hand.parked()), "doctor tells of them");
        let mut kept = Vec::new();
        for _ in 0..4 {
            let (body, headers) = hand.take(&hand.parked()).await.unwrap();
            let header = |name: &str| headers.inner().get(name).cloned();
            assert_eq!(header("why"), Some(AMQPValue::LongString("not a pointer".into())));
            assert_eq!(header("from"), Some(AMQPValue::LongString(hand.queue(&lanes[0]).into())));
            kept.push(body);
        }
        assert!(foreign.iter().all(|body| kept.contains(body)), "whole, for a person to look at");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_declared_otherwise_is_said_with_its_name_and_the_argument() {
    for (server, hand) in servers() {
        let lanes = lanes(&["k", "l"]);
        let text = |words: &str| AMQPValue::LongString(words.into());
        let returned = hand.returned();
        let quorum = [
            ("x-queue-type", text("quorum")),
            ("x-delivery-limit", AMQPValue::LongInt(20)),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text(&returned)),
            ("x-dead-letter-strategy", text("at-least-once")),
            ("x-overflow", text("reject-publish")),
        ];
        hand.declare(&hand.queue(&lanes[0]), &quorum).await;

        let refused = server.broker().ensure(&lanes).await;

        let Err(BrokerError::Topology(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains(&hand.queue(&lanes[0])) && why.contains("'x-delivery-limit'"), "{why}");

        // What cannot be made is not published to.
        hand.wipe().await;
        hand.declare(&hand.parked(), &[("x-queue-type", text("quorum"))]).await;
        let answers = server.broker().publish(&[super::pointer(&lanes[1])]).await;
        assert!(matches!(answers[..], [Published::Refused(BrokerError::Topology(_))]), "{answers:?}");

        // By choice it is another.
        let broker = opened(&format!("{}&queue=classic", server.url));
        hand.wipe().await;
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 2).await;
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        assert_eq!(read(&*intake, 2).await.iter().map(job).collect::<Vec<_>>(), jobs);
        let refused = server.broker().ensure(&lanes).await;
        assert!(matches!(refused, Err(BrokerError::Topology(_))), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_wrong_is_told_with_what_to_look_at() {
    for (server, _) in servers() {
        let wrong = [
            server.url.replace("guest:guest", "guest:geheim"),
            server.url.replace("guest:guest", "nobody:geheim"),
            server.url.replace("/%2f", "/no-such-host"),
        ];
        for url in wrong {
            let broker = opened(&url);
            let refused = broker.ensure(&lanes(&["k"])).await;
            let Err(BrokerError::Fatal(why)) = refused else { panic!("{refused:?}") };
            assert!(why.contains("broker.url") && !why.contains("geheim"), "{why}");
            let answers = broker.publish(&[super::pointer(&lanes(&["k"])[0])]).await;
            assert!(matches!(answers[..], [Published::Refused(BrokerError::Fatal(_))]), "{answers:?}");
            let intake = broker.open(&reader(&lanes(&["k"]), &Holder::new("w"), NEVER)).await.unwrap();
            let read = intake.next(1, &[], Duration::from_millis(1)).await;
            assert!(matches!(read, Err(BrokerError::Fatal(_))), "{read:?}");
        }
        for url in [format!("{}&queue=lazy", server.url), server.url.replace("prefix=", "prefix=a:")] {
            let refused = broker::open(&BrokerPlan { url, database_url: String::new() });
            assert!(matches!(refused, Err(BrokerError::Fatal(_))));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_a_reason_to_try_again() {
    // Nobody listens on the port of a service that was given up decades ago.
    let broker = opened("amqp://127.0.0.1:1");
    assert!(matches!(broker.ensure(&lanes(&["k"])).await, Err(BrokerError::Transient(_))));
    let answers = broker.publish(&[super::pointer(&lanes(&["k"])[0])]).await;
    assert!(matches!(answers[..], [Published::Unknown]), "{answers:?}");
    let intake = broker.open(&reader(&lanes(&["k"]), &Holder::new("w"), NEVER)).await.unwrap();
    assert!(matches!(intake.orphans(1).await, Err(BrokerError::Transient(_))), "nothing is recovered");
    assert!(matches!(intake.next(1, &[], Duration::from_millis(1)).await, Err(BrokerError::Transient(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_and_not_confirmed_is_unknown_and_the_next_is_confirmed_again() {
    for (server, hand) in servers() {
        let line = server.over_a_line().await;
        let (broker, lanes) = (opened(&line.url), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        publish(&*broker, &lanes[0], 1).await;
        line.freeze();

        let answers = broker.publish(&[super::pointer(&lanes[0]), super::pointer(&lanes[0])]).await;

        assert!(matches!(answers[..], [Published::Unknown, Published::Unknown]), "{answers:?}");
        // What asks has a connection of its own, and makes it anew in its own time.
        publish(&*broker, &lanes[0], 1).await;
        assert_eq!(hand.depth(&hand.queue(&lanes[0])).await, Some(2), "those two were never sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_of_an_earlier_connection_settles_nothing() {
    for (server, hand) in servers() {
        let line = server.over_a_line().await;
        let (broker, lanes) = (opened(&line.url), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 3).await;
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let before = read(&*intake, 3).await;

        line.freeze();
        line.hang_up();
        let lost =
            soon("it is noticed", async || intake.next(1, &[], Duration::from_millis(1)).await.err()).await;
        assert!(matches!(lost, BrokerError::Transient(_)), "{lost:?}");
        let after = read(&*intake, 3).await;

        assert_eq!(after.iter().map(job).collect::<BTreeSet<_>>(), jobs.into_iter().collect());
        let tags = |came: &[mapae::broker::contract::Delivery]| {
            came.iter().map(|it| it.receipt.id.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(tags(&before), tags(&after), "the server counts from one again");
        let old: Vec<_> = before.into_iter().map(|it| (it.receipt, Settle::Done)).collect();
        assert_eq!(intake.settle(&old).await, vec![Settled::Stale; 3]);
        let old: Vec<_> = old.into_iter().map(|(receipt, _)| receipt).collect();
        intake.hand_back(&old).await.unwrap();
        intake.close(Instant::now() + PATIENCE).await;
        soon("all three are still there", async || {
            (hand.depth(&hand.queue(&lanes[0])).await == Some(3)).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_cut_fifty_times_loses_nothing_and_settles_nothing_wrongly() {
    for (server, hand) in servers() {
        let line = server.over_a_line().await;
        let (broker, lanes) = (opened(&line.url), lanes(&["k"]));
        server.broker().ensure(&lanes).await.unwrap();
        let jobs: BTreeSet<JobId> = publish(&*server.broker(), &lanes[0], 200).await.into_iter().collect();
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let (mut done, mut cuts) = (BTreeSet::new(), 0);
        let deadline = Instant::now() + 3 * PATIENCE;

        // What was acknowledged and is delivered again was not acknowledged after all, which is allowed; what
        // was never answered may not be gone.
        while done.len() < jobs.len() || cuts < 50 {
            assert!(Instant::now() < deadline, "{} of 200 after {cuts} cuts", done.len());
            let came = intake.next(4, &[], Duration::from_millis(200)).await.unwrap_or_default();
            let cut = cuts < 50 && cuts * 4 <= done.len();
            let settle: Vec<_> = came.iter().map(|it| (it.receipt.clone(), Settle::Done)).collect();
            let settling = intake.settle(&settle);
            let settled = if cut {
                cuts += 1;
                let cutting = async {
                    tokio::task::yield_now().await;
                    line.freeze();
                    line.hang_up();
                };
                tokio::join!(settling, cutting).0
            } else {
                settling.await
            };
            for (delivery, settled) in came.iter().zip(settled) {
                // The one that may still be there is seen again.
                if settled == Settled::Ok {
                    done.insert(job(delivery));
                }
            }
        }

        assert_eq!(done, jobs);
        drop(intake);
        let rest = server.broker().open(&reader(&lanes, &Holder::new("rest"), NEVER)).await.unwrap();
        soon("nothing is left", async || {
            let came = rest.next(50, &[], Duration::from_millis(300)).await.unwrap();
            assert!(came.iter().all(|it| jobs.contains(&job(it))));
            let settle: Vec<_> = came.iter().map(|it| (it.receipt.clone(), Settle::Done)).collect();
            rest.settle(&settle).await;
            (came.is_empty() && hand.depth(&hand.queue(&lanes[0])).await == Some(0)).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_the_server_closes_ends_the_epoch_and_the_next_reads_on() {
    for (server, _) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 5).await;
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let held = read(&*intake, 2).await;

        // Until the server's consumer timeout is over, for which it closes the channel with all that it holds.
        let deadline = Instant::now() + 2 * PATIENCE;
        let closed = loop {
            assert!(Instant::now() < deadline, "the channel is never closed");
            match intake.next(1, &lanes, Duration::from_secs(1)).await {
                Ok(none) => assert!(none.is_empty()),
                Err(error) => break error,
            }
        };
        assert!(matches!(closed, BrokerError::Transient(_)), "{closed:?}");

        let all = read(&*intake, 5).await;
        assert_eq!(all.iter().map(job).collect::<BTreeSet<_>>(), jobs.into_iter().collect());
        let old: Vec<_> = held.into_iter().map(|it| (it.receipt, Settle::Done)).collect();
        assert_eq!(intake.settle(&old).await, [Settled::Stale, Settled::Stale]);
        let new: Vec<_> = all.into_iter().map(|it| (it.receipt, Settle::Done)).collect();
        assert_eq!(intake.settle(&new).await, vec![Settled::Ok; 5]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_worker_keeps_nothing_from_others() {
    for (server, _) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k", "l"]));
        broker.ensure(&lanes).await.unwrap();
        let busy = broker.open(&reader(&lanes, &Holder::new("busy"), NEVER)).await.unwrap();
        publish(&*broker, &lanes[0], 20).await;
        publish(&*broker, &lanes[1], 20).await;
        let held = read(&*busy, 4).await;

        // It does not ask again.
        let idle = broker.open(&reader(&lanes, &Holder::new("idle"), NEVER)).await.unwrap();
        let mut others = BTreeSet::new();
        for delivery in read(&*idle, 36).await {
            assert!(others.insert(job(&delivery)));
        }
        assert!(held.iter().all(|it| !others.contains(&job(it))), "what it has taken stays its own");
        let done: Vec<_> = held.into_iter().map(|it| (it.receipt, Settle::Done)).collect();
        assert_eq!(busy.settle(&done).await, vec![Settled::Ok; 4]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_puts_aside_is_swept_back() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        assert_eq!(broker.sweep(10).await.unwrap(), 0, "nothing was made yet");
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 2).await;
        let queue = hand.queue(&lanes[0]);
        soon("two wait", async || (hand.depth(&queue).await == Some(2)).then_some(())).await;
        hand.reject(&queue).await;
        hand.publish(&hand.returned(), b"from nowhere").await;
        soon("two lie aside", async || (hand.depth(&hand.returned()).await == Some(2)).then_some(())).await;

        soon("swept", async || (broker.sweep(10).await.unwrap() == 0).then_some(())).await;

        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();
        let came = read(&*intake, 2).await;
        assert_eq!(came.iter().map(job).collect::<BTreeSet<_>>(), jobs.into_iter().collect());
        let (body, _) = hand.take(&hand.parked()).await.unwrap();
        assert_eq!(body, b"from nowhere");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pointer_that_came_back_thirty_times_is_still_there() {
    for (server, _) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 1).await;
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();

        // RabbitMQ 4 deletes it on the 21st return, unless it is told otherwise.
        for _ in 0..30 {
            let came = read(&*intake, 1).await.remove(0);
            assert_eq!(job(&came), jobs[0]);
            intake.hand_back(&[came.receipt]).await.unwrap();
        }
        let came = read(&*intake, 1).await.remove(0);
        assert_eq!((job(&came), came.deliveries), (jobs[0], Some(31)));
    }
}
