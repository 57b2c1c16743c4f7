//! Against the server that `cargo xtask test --s3` starts. A prefix for each test.

use super::*;

/// The first size that goes up in parts, and one with a rest.
const LARGE: [usize; 2] = [8 * MIB, 17 * MIB + 3];

fn bucket() -> String {
    std::env::var("MAPAE_TEST_S3").expect("MAPAE_TEST_S3 is not set: run `cargo xtask test --s3`")
}

fn fresh() -> Blobs {
    Blobs::open(&format!("{}/{}", bucket(), Uuid::new_v4())).unwrap()
}

#[tokio::test]
async fn a_bucket_returns_what_was_put_with_its_size_and_hash() {
    for size in [0, 1, 8 * MIB - 1, LARGE[0], LARGE[1]] {
        suite::what_is_put_comes_back_with_its_size_and_hash(&fresh(), size).await;
    }
}

#[tokio::test]
async fn a_bucket_keeps_nothing_of_a_body_over_the_limit() {
    for size in [1, LARGE[0], LARGE[1]] {
        suite::a_body_over_the_limit_leaves_nothing(&fresh(), size).await;
    }
}

#[tokio::test]
async fn a_bucket_keeps_nothing_of_a_body_that_is_cut_off() {
    for size in [0, LARGE[0], LARGE[1]] {
        suite::a_body_that_is_cut_off_leaves_nothing(&fresh(), size).await;
    }
}

#[tokio::test]
async fn a_body_that_is_cut_off_leaves_no_parts_in_the_service_either() {
    // A bucket that no other test uses, seen from the server's disk: parts are in no listing.
    let data = std::env::var("MAPAE_TEST_S3_DATA").expect("MAPAE_TEST_S3_DATA is not set");
    let own = Path::new(&data).join("mapae-parts");
    std::fs::create_dir(&own).unwrap();
    let blobs = Blobs::open("s3://mapae-parts").unwrap();
    suite::a_body_that_is_cut_off_leaves_nothing(&blobs, LARGE[1]).await;
    assert_eq!(files_below(&own), 0);
    // And the count sees what there is.
    blobs.put(&original(), body(b"x"), GENEROUS).await.unwrap();
    assert_eq!(files_below(&own), 1);
}

fn files_below(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

#[tokio::test]
async fn a_bucket_refuses_a_second_file_of_the_same_name() {
    for size in [1000, LARGE[1]] {
        suite::a_second_put_is_refused_and_changes_nothing(&fresh(), size).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bucket_lets_one_of_many_puts_win() {
    for _ in 0..5 {
        suite::of_many_puts_at_once_one_wins_and_its_content_stays(&fresh(), 1000).await;
    }
    suite::of_many_puts_at_once_one_wins_and_its_content_stays(&fresh(), LARGE[0]).await;
}

#[tokio::test]
async fn a_bucket_keeps_nothing_of_a_put_that_is_dropped() {
    for size in [1000, LARGE[1]] {
        suite::a_put_that_is_dropped_half_way_leaves_nothing(&fresh(), size).await;
    }
}

#[tokio::test]
async fn a_bucket_tells_a_missing_file_from_other_errors() {
    suite::a_missing_file_is_an_error_of_its_own(&fresh()).await;
    let no_bucket = Blobs::open("s3://no-such-bucket/prefix").unwrap();
    let error = no_bucket.get(&original()).await.map(drop);
    assert!(matches!(error, Err(BlobError::Unavailable(_))), "{error:?}");
}

#[tokio::test]
async fn a_bucket_deletes_once_however_often_it_is_asked() {
    suite::deleting_twice_is_deleting_once(&fresh()).await;
}

#[tokio::test]
async fn a_bucket_lists_by_area_and_age() {
    suite::the_list_tells_the_files_of_an_area_by_age(&fresh()).await;
    // Without a prefix too, where the names begin at the bucket's root.
    suite::the_list_tells_the_files_of_an_area_by_age(&Blobs::open(&bucket()).unwrap()).await;
}

#[tokio::test]
async fn a_bucket_has_one_identity_whoever_asks() {
    suite::all_who_ask_for_its_identity_get_the_same(&fresh()).await;
}

#[tokio::test]
async fn a_bucket_that_is_not_the_right_one_misses_no_file() {
    suite::a_file_is_not_missing_because_another_store_has_it_not(&fresh()).await;
}

#[tokio::test]
async fn a_bucket_passes_its_check() {
    suite::the_check_passes_and_leaves_nothing(&fresh()).await;
}

#[test]
fn a_large_upload_to_a_bucket_takes_little_memory() {
    in_a_child("env", "blob::s3::a_large_upload_to_a_bucket_takes_little_memory", async || {
        passes_in_less_than_64_mib(&fresh(), 256 * MIB).await;
    });
}

#[test]
fn a_bucket_refuses_a_wrong_key() {
    in_a_child("env AWS_SECRET_ACCESS_KEY=wrong", "blob::s3::a_bucket_refuses_a_wrong_key", async || {
        let refused = fresh().check().await;
        assert!(matches!(refused, Err(BlobError::NotPermitted(_))), "{refused:?}");
    });
}
