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
            let plan = RingPlan {
                window: Some(10),
                again: Duration::from_secs(60),
                rescan: Some(Vec::new()),
                max: 10,
            };
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
