//! What every place for files promises.

use super::*;

pub(super) async fn what_is_put_comes_back_with_its_size_and_hash(blobs: &Blobs, size: usize) {
    let (content, name) = (content(size), original());
    let stored = blobs.put(&name, body(&content), GENEROUS).await.unwrap();
    let expected = Stored { bytes: size as u64, sha256: Sha256::digest(&content).into() };
    assert_eq!(stored, expected);

    let reading = blobs.get(&name).await.unwrap();
    assert_eq!(reading.bytes, size as u64);
    let chunks: Vec<Bytes> = reading.body.try_collect().await.unwrap();
    assert!(chunks.concat() == content, "the content of {size} bytes came back changed");
    let mut local = Vec::new();
    blobs.open_local(&name).await.unwrap().read_to_end(&mut local).unwrap();
    assert!(local == content, "the local file of {size} bytes is another one");
}

pub(super) async fn a_body_over_the_limit_leaves_nothing(blobs: &Blobs, size: usize) {
    let name = original();
    let limits = PutLimits { bytes_max: size as u64 - 1 };
    let refused = blobs.put(&name, body(&content(size)), limits).await;
    assert!(matches!(refused, Err(BlobError::TooLarge { bytes_max }) if bytes_max == size as u64 - 1));
    leaves_nothing(blobs, &name).await;
    // The limit itself is allowed.
    let limits = PutLimits { bytes_max: size as u64 };
    blobs.put(&name, body(&content(size)), limits).await.unwrap();
}

pub(super) async fn a_body_that_is_cut_off_leaves_nothing(blobs: &Blobs, size: usize) {
    let name = original();
    let cut = stream::iter([Err(io::Error::from(io::ErrorKind::ConnectionReset))]);
    let refused = blobs.put(&name, body(&content(size)).chain(cut), GENEROUS).await;
    assert!(matches!(refused, Err(BlobError::BodyCut(_))), "{refused:?}");
    leaves_nothing(blobs, &name).await;
}

pub(super) async fn a_second_put_is_refused_and_changes_nothing(blobs: &Blobs, size: usize) {
    let name = original();
    let first = content(size);
    blobs.put(&name, body(&first), GENEROUS).await.unwrap();
    let second = blobs.put(&name, body(b"another"), GENEROUS).await;
    assert!(matches!(second, Err(BlobError::AlreadyThere)), "{second:?}");
    assert!(read(blobs, &name).await == first, "the first file was changed");
    nothing_unfinished(blobs).await;
}

pub(super) async fn of_many_puts_at_once_one_wins_and_its_content_stays(blobs: &Blobs, size: usize) {
    let name = original();
    // All bodies end at the same moment, when every put has passed the look whether the name is free.
    let gate = std::sync::Arc::new(tokio::sync::Barrier::new(8));
    let puts = (0..8u8).map(|writer| {
        let (blobs, name, gate) = (blobs.clone(), name.clone(), gate.clone());
        tokio::spawn(async move {
            let content = vec![writer; size];
            let together = stream::once(async move {
                gate.wait().await;
                Ok(Bytes::from(content))
            });
            blobs.put(&name, together, GENEROUS).await
        })
    });
    let answers: Vec<_> = stream::iter(puts).buffered(8).map(Result::unwrap).collect().await;
    let winners: Vec<u8> = (0u8..).zip(&answers).filter(|(_, a)| a.is_ok()).map(|(w, _)| w).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    let losers = answers.iter().filter(|answer| matches!(answer, Err(BlobError::AlreadyThere)));
    assert_eq!(losers.count(), 7, "{answers:?}");
    assert!(read(blobs, &name).await == vec![winners[0]; size], "the content is not the winner's");
    nothing_unfinished(blobs).await;
}

pub(super) async fn a_put_that_is_dropped_half_way_leaves_nothing(blobs: &Blobs, size: usize) {
    let name = original();
    let (started, begun) = tokio::sync::oneshot::channel();
    let never = stream::once(async move {
        started.send(()).unwrap();
        std::future::pending().await
    });
    let put = {
        let (blobs, name, content) = (blobs.clone(), name.clone(), content(size));
        tokio::spawn(async move { blobs.put(&name, body(&content).chain(never), GENEROUS).await })
    };
    begun.await.unwrap();
    put.abort();
    assert!(put.await.unwrap_err().is_cancelled());
    leaves_nothing(blobs, &name).await;
}

pub(super) async fn a_missing_file_is_an_error_of_its_own(blobs: &Blobs) {
    let name = BlobName::result(Uuid::new_v4(), 3, "document.json").unwrap();
    assert!(matches!(blobs.get(&name).await.map(drop), Err(BlobError::Missing)));
    assert!(matches!(blobs.open_local(&name).await.map(drop), Err(BlobError::Missing)));
}

pub(super) async fn deleting_twice_is_deleting_once(blobs: &Blobs) {
    let job = Uuid::new_v4();
    let names = [
        BlobName::original(job),
        result(job, 1, "a.json"),
        result(job, 1, "b.json"),
        result(job, 2, "a.json"),
    ];
    for name in &names {
        blobs.put(name, body(b"x"), GENEROUS).await.unwrap();
    }
    for gone in 0..names.len() {
        blobs.delete(&names[gone]).await.unwrap();
        blobs.delete(&names[gone]).await.unwrap();
        for (at, name) in names.iter().enumerate() {
            assert_eq!(blobs.get(name).await.is_ok(), at > gone, "{name} after {} was deleted", names[gone]);
        }
    }
    // A name is free again once its file is deleted.
    blobs.put(&names[1], body(b"y"), GENEROUS).await.unwrap();
    assert_eq!(read(blobs, &names[1]).await, b"y");
}

pub(super) async fn the_list_tells_the_files_of_an_area_by_age(blobs: &Blobs) {
    let job = Uuid::new_v4();
    let (upload, output) = (BlobName::original(job), result(job, 7, "tables.json"));
    blobs.put(&upload, body(b"12345"), GENEROUS).await.unwrap();
    blobs.put(&output, body(b"123"), GENEROUS).await.unwrap();

    let found = |area, before| {
        let listed = blobs.list(area, before).try_collect::<Vec<_>>();
        async move {
            let mut of_job: Vec<_> =
                listed.await.unwrap().into_iter().filter(|one| one.name.job() == job).collect();
            of_job.sort_by(|a, b| a.name.cmp(&b.name));
            of_job.into_iter().map(|one| (one.name, one.bytes)).collect::<Vec<_>>()
        }
    };
    assert_eq!(found(Area::Originals, soon()).await, [(upload, 5)]);
    assert_eq!(found(Area::Results, soon()).await, [(output, 3)]);
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    assert_eq!(found(Area::Originals, an_hour_ago).await, []);
    assert_eq!(found(Area::Results, an_hour_ago).await, []);
}

pub(super) async fn the_check_passes_and_leaves_nothing(blobs: &Blobs) {
    let count = |blobs: &Blobs| blobs.list(Area::Originals, soon()).count();
    let before = count(blobs).await;
    blobs.check().await.unwrap();
    assert_eq!(count(blobs).await, before);
    nothing_unfinished(blobs).await;
}

pub(super) async fn all_who_ask_for_its_identity_get_the_same(blobs: &Blobs) {
    assert_eq!(blobs.identity().await.unwrap(), None);
    let asking = (0..8).map(|_| {
        let blobs = blobs.clone();
        tokio::spawn(async move { blobs.identify().await.unwrap() })
    });
    let told: Vec<Uuid> = stream::iter(asking).buffered(8).map(Result::unwrap).collect().await;
    let id = blobs.identity().await.unwrap().unwrap();
    assert!(told.iter().all(|one| *one == id), "{told:?}");
    nothing_unfinished(blobs).await;
}

pub(super) async fn a_file_is_not_missing_because_another_store_has_it_not(blobs: &Blobs) {
    let (known, name) = (Uuid::new_v4(), original());
    let found = blobs.identify().await.unwrap();
    blobs.expect(known);
    let is_foreign = |error: BlobError| matches!(error, BlobError::Foreign { known: k, found: Some(f) } if k == known && f == found);
    assert!(is_foreign(blobs.verify().await.unwrap_err()));
    assert!(is_foreign(blobs.get(&name).await.map(drop).unwrap_err()));
    assert!(is_foreign(blobs.open_local(&name).await.map(drop).unwrap_err()));
}

async fn leaves_nothing(blobs: &Blobs, name: &BlobName) {
    assert!(matches!(blobs.get(name).await.map(drop), Err(BlobError::Missing)));
    let mut listed = blobs.list(Area::Originals, soon());
    while let Some(one) = listed.try_next().await.unwrap() {
        assert_ne!(&one.name, name);
    }
    nothing_unfinished(blobs).await;
}

async fn nothing_unfinished(blobs: &Blobs) {
    assert_eq!(blobs.remove_unfinished(soon()).await.unwrap(), 0, "an unfinished file was left");
}
