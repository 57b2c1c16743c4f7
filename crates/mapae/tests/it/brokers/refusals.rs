//! Bad input of streams: what is not ours, and what is not as it should be.

use std::time::Duration;

use mapae::broker::contract::{BrokerError, Settle, Settled};
use mapae::job::lease::Holder;

use super::streams::servers;
use super::{NEVER, lanes, opened, orphans, publish, read, reader};

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_not_a_pointer_is_handed_over_as_it_is_and_kept_apart() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let mut connection = hand.connection().await;
        for (field, value) in [("p", "{\"v\":2}"), ("other", "words"), ("p", &"x".repeat(100_000))] {
            let mut add = redis::cmd("XADD");
            add.arg(hand.key(&lanes[0])).arg("*").arg(field).arg(value);
            let _: String = add.query_async(&mut connection).await.unwrap();
        }
        let intake = broker.open(&reader(&lanes, &Holder::new("w"), NEVER)).await.unwrap();

        let foreign = read(&*intake, 3).await;

        assert!(foreign.iter().all(|it| it.pointer.is_err()), "{}", server.name);
        let park: Vec<_> =
            foreign.into_iter().map(|it| (it.receipt, Settle::Park("not a pointer"))).collect();
        assert_eq!(intake.settle(&park).await, vec![Settled::Ok; 3]);
        assert_eq!(hand.length(&lanes[0]).await, 0);
        let kept: usize = redis::cmd("XLEN").arg(hand.parked()).query_async(&mut connection).await.unwrap();
        assert_eq!(kept, 3, "a person can look at them");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_type_under_our_name_is_said_with_the_name() {
    for (server, hand) in servers() {
        let lanes = lanes(&["k"]);
        let mut connection = hand.connection().await;
        let key = hand.key(&lanes[0]);
        let _: () = redis::cmd("SET").arg(&key).arg("a string").query_async(&mut connection).await.unwrap();

        let refused = server.broker().ensure(&lanes).await;

        let Err(BrokerError::Fatal(why)) = refused else { panic!("{}: {refused:?}", server.name) };
        assert!(why.contains(&key) && why.contains("stream"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_is_refused_is_told_to_look_at_the_address() {
    for (server, _) in servers() {
        let url = server.url.replace("://", "://nobody:wrong@");
        let refused = opened(&url).ensure(&lanes(&["k"])).await;
        let Err(BrokerError::Fatal(why)) = refused else { panic!("{}: {refused:?}", server.name) };
        assert!(why.contains("broker.url") && !why.contains("wrong@"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_a_reason_to_try_again() {
    // Nobody listens on the port of a service that was given up decades ago.
    let broker = opened("valkey://127.0.0.1:1");
    assert!(matches!(broker.ensure(&lanes(&["k"])).await, Err(BrokerError::Transient(_))));
    let answers = broker.publish(&[super::pointer(&lanes(&["k"])[0])]).await;
    assert!(matches!(answers[..], [mapae::broker::contract::Published::Unknown]), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_deleted_under_its_holder_is_let_go() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        publish(&*broker, &lanes[0], 1).await;
        let first = broker.open(&reader(&lanes, &Holder::new("first"), NEVER)).await.unwrap();
        read(&*first, 1).await;
        let mut connection = hand.connection().await;
        let mut trim = redis::cmd("XTRIM");
        trim.arg(hand.key(&lanes[0])).arg("MAXLEN").arg(0);
        let _: i64 = trim.query_async(&mut connection).await.unwrap();

        let second = Duration::from_millis(1);
        let second = broker.open(&reader(&lanes, &Holder::new("second"), second)).await.unwrap();
        assert!(second.orphans(10).await.unwrap().is_empty());
        let later = broker.open(&reader(&lanes, &Holder::new("first"), NEVER)).await.unwrap();
        assert!(later.orphans(10).await.unwrap().is_empty());
        assert_eq!(
            broker.stats(&lanes[0]).await.unwrap().unacknowledged.unwrap().value,
            0,
            "{}",
            server.name
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_lost_with_their_connection_come_back_from_the_own_list() {
    for (server, hand) in servers() {
        let (broker, lanes) = (server.broker(), lanes(&["k"]));
        broker.ensure(&lanes).await.unwrap();
        let jobs = publish(&*broker, &lanes[0], 3).await;
        let holder = Holder::new("w");
        // Read in this consumer's name, with the answer lost.
        let mut connection = hand.connection().await;
        let mut lost = redis::cmd("XREADGROUP");
        lost.arg("GROUP").arg("mapae").arg(format!("{}/{}", holder.name, holder.incarnation));
        lost.arg("COUNT").arg(2).arg("STREAMS").arg(hand.key(&lanes[0])).arg(">");
        let _: redis::Value = lost.query_async(&mut connection).await.unwrap();

        let intake = broker.open(&reader(&lanes, &holder, NEVER)).await.unwrap();
        let known = read(&*intake, 1).await;
        let found = orphans(&*intake, 2).await;

        assert_eq!(known.iter().map(super::job).collect::<Vec<_>>(), jobs[2..], "{}", server.name);
        assert_eq!(found.iter().map(super::job).collect::<Vec<_>>(), jobs[..2]);
        assert!(intake.orphans(10).await.unwrap().is_empty(), "what is known is not offered again");
    }
}
