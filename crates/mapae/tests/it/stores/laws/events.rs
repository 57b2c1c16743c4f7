//! Events: all of them, in order.

use std::collections::BTreeMap;

use mapae::job::event::{EventKind, Position};
use mapae::job::name::JobId;
use mapae::store::contract::{EventFilter, Scope};

use crate::stores::{everywhere, job, soon};

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
async fn a_reader_of_a_database_that_was_restored_since_is_told_everything_again() {
    everywhere(async |bench| {
        let (first, second) = (bench.accept(job()).await, bench.accept(job()).await);
        let read = async |after: Position| {
            let filter = EventFilter { job: None, after };
            let events = bench.store.events(&Scope::All, &filter, 10).await.unwrap();
            events.into_iter().map(|event| (event.job, event.position)).collect::<Vec<_>>()
        };
        let all = soon("both are told", async || {
            let all = read(Position::default()).await;
            (all.len() == 2).then_some(all)
        });
        let all = all.await;
        let jobs = |told: &[(JobId, Position)]| told.iter().map(|(job, _)| *job).collect::<Vec<_>>();
        assert_eq!(jobs(&read(all[0].1).await), [second], "on from there");
        assert_eq!(read(all[1].1).await, []);
        assert_eq!(read(bench.store.last_position().await.unwrap()).await, []);
        // The same place, given out by what came after the backup: what stands there now was written since.
        for place in [all[0].1, all[1].1, bench.store.last_position().await.unwrap()] {
            let lost = Position { at: all[0].1.at - 3_600_000_000, ..place };
            assert_eq!(jobs(&read(lost).await), [first, second], "{place}");
            assert_eq!(read(Position { at: 0, ..all[1].1 }).await, [], "nothing is known of its time");
        }
    })
    .await;
}
