//! The keeper's statements, over every database.

use std::time::Duration;

use mapae::store::contract::{Retention, RingPlan};
use serde_json::Value;

use crate::site::{Site, databases};

#[tokio::test(flavor = "multi_thread")]
async fn every_duty_can_be_done_on_an_empty_database_and_on_one_with_work() {
    for database in databases().await {
        let site = Site::without_keeper(&database).await;
        for round in 0..2 {
            let store = site.store();
            store.next_due(Duration::from_secs(1)).await.unwrap();
            let plan =
                RingPlan { window: 10, again: Duration::from_secs(60), rescan: Some(Vec::new()), max: 10 };
            let rung = store.ring(&plan).await.unwrap();
            assert_eq!(rung.len(), round * 3, "{}", database.name);
            store.rung(&[], Duration::from_secs(60)).await.unwrap();
            store.windows(10).await.unwrap();
            store.reap(10).await.unwrap();
            store.expire(10).await.unwrap();
            store.unsent(10).await.unwrap();
            store.sent(&[]).await.unwrap();
            store.prune(&Retention::default(), 10).await.unwrap();
            store.garbage(10).await.unwrap();
            store.swept(&[]).await.unwrap();
            store.referenced(&["originals/x".into()]).await.unwrap();
            store.stats().await.unwrap();
            for kind in ["a", "b", "b"] {
                // Not due when accepted, so that the door does not ring for it.
                site.submit(kind, Value::Null, |job| {
                    job.run_at = Some(mapae::job::timestamp::Timestamp::default())
                })
                .await;
            }
        }
        site.close().await;
    }
}

#[cfg(all(feature = "streams", feature = "rabbitmq"))]
#[tokio::test(flavor = "multi_thread")]
async fn events_are_put_into_a_stream_each_job_in_order() {
    use std::sync::Arc;

    use mapae::job::event::EventKind;
    use mapae::job::retry::Backoff;
    use mapae::keeper::stream::Stream;
    use mapae::keeper::tell::{LinePlan, TellPlan};
    use mapae::keeper::{self, KeeperPlan};
    use mapae::store;
    use mapae::store::contract::{Receiver, Scope};

    let Ok(server) = std::env::var("MAPAE_TEST_VALKEY") else { return };
    let key = format!("events-{}", uuid::Uuid::new_v4().simple());
    let address = format!("{}/{key}", server.trim_end_matches('/'));
    let database = databases().await.remove(0);
    let mut site = Site::without_keeper(&database).await;
    site.parts.store = store::open(&database.url, true).await.unwrap();
    let job = mapae::job::record::NewJob::new(
        crate::site::owner(),
        mapae::job::name::Kind::new("k").unwrap(),
        Value::Null,
    );
    let id = site.store().accept(job).await.unwrap().id;
    site.store().cancel(&Scope::All, id).await.unwrap();
    let to = Receiver { name: "stream".into(), events: Vec::new(), kinds: Vec::new() };
    let line = LinePlan {
        courier: Arc::new(Stream::parse(&address, "https://jobs.example").unwrap()),
        concurrent: 4,
        backoff: Backoff { first: Duration::from_millis(1), max: Duration::from_millis(2) },
        give_up: Duration::from_secs(3600),
    };
    let plan = KeeperPlan {
        window: site.window.clone(),
        rescan_after: Duration::from_secs(60),
        retention: Retention::default(),
        sink: None,
        tell: Some(TellPlan { receivers: vec![(to, line)], callbacks: None }),
        bell: Arc::default(),
        schedules: Vec::new(),
    };
    let keeper = keeper::start(site.parts.clone(), plan);
    let client = redis::Client::open(server).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let entries = crate::stores::soon("both are there", async || {
        let mut range = redis::cmd("XRANGE");
        range.arg(&key).arg("-").arg("+");
        let found: Vec<(String, Vec<String>)> = range.query_async(&mut connection.clone()).await.unwrap();
        (found.len() >= 2).then_some(found)
    })
    .await;
    let mut told = Vec::new();
    for (place, (_, fields)) in entries.iter().enumerate() {
        let [_, event_id, _, kind, _, event] = &fields[..] else { panic!("{fields:?}") };
        assert_eq!(*event_id, format!("{id}/{}", place + 1));
        let event: Value = serde_json::from_str(event).unwrap();
        assert_eq!(
            (&event["type"], &event["subject"]),
            (&Value::from(kind.as_str()), &Value::from(id.to_string()))
        );
        told.push(kind.clone());
    }
    let kinds =
        [EventKind::Accepted, EventKind::Cancelled].map(|kind| format!("mapae.job.{}", kind.as_str()));
    assert_eq!(told, kinds);
    keeper.stop().await;
    let _: i64 = redis::cmd("DEL").arg(&key).query_async(&mut connection).await.unwrap();
    site.close().await;
}
