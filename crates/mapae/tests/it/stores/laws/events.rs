//! Events: all of them, in order.

use std::collections::BTreeMap;

use mapae::job::event::{EventKind, Position};
use mapae::job::name::JobId;
use mapae::store::contract::{EventFilter, Pruned, Scope};

use crate::stores::{LEASE, everywhere, job, soon};

#[tokio::test]
async fn an_event_reader_misses_nothing_however_many_write() {
    everywhere(async |bench| {
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let store = bench.store.clone();
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let id = store.accept(job()).await.unwrap().id;
                        store.cancel(&Scope::All, id).await.unwrap();
                    }
                })
            })
            .collect();
        let mut seen: BTreeMap<JobId, Vec<EventKind>> = BTreeMap::new();
        let (mut after, mut count) = (Position::default(), 0);
        while count < 8 * 20 * 2 {
            let filter = EventFilter { job: None, after };
            let page = soon("more events", async || {
                let page = bench.store.events(&Scope::All, &filter, 7).await.unwrap();
                (!page.is_empty()).then_some(page)
            });
            for event in page.await {
                assert!(event.position > after, "positions only rise");
                after = event.position;
                count += 1;
                let told = seen.entry(event.job).or_default();
                told.push(event.event);
                assert_eq!(event.sequence, told.len() as u64, "no gap, and in order");
            }
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert!(seen.values().all(|told| told[..] == [EventKind::Accepted, EventKind::Cancelled]));
        assert!(bench.store.last_position().await.unwrap() >= after);
    })
    .await;
}

#[tokio::test]
async fn events_are_handed_out_in_order_until_they_are_sent() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        bench.store.cancel(&Scope::All, id).await.unwrap();
        let mut told = Vec::new();
        for _ in 0..2 {
            let unsent = soon("the outbox is read", async || {
                let unsent = bench.store.unsent(10).await.unwrap();
                (!unsent.is_empty()).then_some(unsent)
            });
            let lowest = unsent.await.remove(0);
            assert_eq!(bench.store.unsent(10).await.unwrap()[0], lowest, "again until it is marked");
            bench.store.sent(&[(id, lowest.sequence)]).await.unwrap();
            told.push(lowest.event);
        }
        assert_eq!(told, [EventKind::Accepted, EventKind::Cancelled]);
        assert_eq!(bench.store.unsent(10).await.unwrap(), []);
        assert_eq!(bench.store.stats().await.unwrap().outbox, 0);
    })
    .await;
}

#[tokio::test]
async fn an_event_is_sent_even_when_its_job_is_gone_before() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        bench.store.delete(&Scope::All, id).await.unwrap();
        assert_eq!(bench.prune(1000 * LEASE).await, Pruned { buried: 1, expired: 0 });
        let mut told = Vec::new();
        while let Some(event) = bench.store.unsent(10).await.unwrap().pop() {
            bench.store.sent(&[(id, event.sequence)]).await.unwrap();
            told.push(event.event);
        }
        assert_eq!(told, [EventKind::Accepted, EventKind::Cancelled]);
    })
    .await;
}
