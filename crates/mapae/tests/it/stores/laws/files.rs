//! The file store that the jobs' files are in.

use uuid::Uuid;

use crate::stores::everywhere;

#[tokio::test]
async fn of_many_file_stores_the_first_is_the_one_and_stays_it() {
    everywhere(async |bench| {
        assert_eq!(bench.store.files().await.unwrap(), None);
        let adopting = (0..8).map(|_| {
            let store = bench.store.clone();
            tokio::spawn(async move { store.adopt_files(Uuid::new_v4()).await.unwrap() })
        });
        let mut answers = Vec::new();
        for one in adopting.collect::<Vec<_>>() {
            answers.push(one.await.unwrap());
        }
        let known = bench.store.files().await.unwrap().unwrap();
        assert!(answers.iter().all(|answer| *answer == known), "{answers:?}");
        assert_eq!(bench.store.adopt_files(Uuid::new_v4()).await.unwrap(), known);
    })
    .await;
}
