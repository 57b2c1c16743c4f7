//! Stored files: one suite over every place, then what only a folder or only a bucket can do.

#[cfg(feature = "test-s3")]
mod s3;
mod suite;

use std::future::Future;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use mapae::blob::{Area, BlobError, BlobName, Blobs, PutLimits, Stored};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::child::in_a_child;

const GENEROUS: PutLimits = PutLimits { bytes_max: 1 << 40 };
const MIB: usize = 1024 * 1024;

/// A folder for each test, so that none sees another's files.
async fn in_a_folder<F: Future<Output = ()>>(test: impl FnOnce(Blobs) -> F) {
    let folder = tempfile::tempdir().unwrap();
    test(open(folder.path())).await;
}

#[tokio::test]
async fn a_folder_returns_what_was_put_with_its_size_and_hash() {
    in_a_folder(async |blobs| {
        for size in [0, 1, 65_535, 65_536, 65_537, 3 * MIB + 1] {
            suite::what_is_put_comes_back_with_its_size_and_hash(&blobs, size).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_folder_keeps_nothing_of_a_body_over_the_limit() {
    in_a_folder(async |blobs| {
        suite::a_body_over_the_limit_leaves_nothing(&blobs, 1).await;
        suite::a_body_over_the_limit_leaves_nothing(&blobs, 3 * MIB).await;
    })
    .await;
}

#[tokio::test]
async fn a_folder_keeps_nothing_of_a_body_that_is_cut_off() {
    in_a_folder(async |blobs| {
        suite::a_body_that_is_cut_off_leaves_nothing(&blobs, 0).await;
        suite::a_body_that_is_cut_off_leaves_nothing(&blobs, 3 * MIB).await;
    })
    .await;
}

#[tokio::test]
async fn a_folder_refuses_a_second_file_of_the_same_name() {
    in_a_folder(async |blobs| suite::a_second_put_is_refused_and_changes_nothing(&blobs, 1000).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_folder_lets_one_of_many_puts_win() {
    in_a_folder(async |blobs| {
        for _ in 0..20 {
            suite::of_many_puts_at_once_one_wins_and_its_content_stays(&blobs, 1000).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_folder_keeps_nothing_of_a_put_that_is_dropped() {
    in_a_folder(async |blobs| suite::a_put_that_is_dropped_half_way_leaves_nothing(&blobs, MIB).await).await;
}

#[tokio::test]
async fn a_folder_tells_a_missing_file_from_other_errors() {
    in_a_folder(async |blobs| suite::a_missing_file_is_an_error_of_its_own(&blobs).await).await;
}

#[tokio::test]
async fn a_folder_deletes_once_however_often_it_is_asked() {
    in_a_folder(async |blobs| suite::deleting_twice_is_deleting_once(&blobs).await).await;
}

#[tokio::test]
async fn a_folder_lists_by_area_and_age() {
    in_a_folder(async |blobs| suite::the_list_tells_the_files_of_an_area_by_age(&blobs).await).await;
}

#[tokio::test]
async fn a_folder_passes_its_check() {
    in_a_folder(async |blobs| suite::the_check_passes_and_leaves_nothing(&blobs).await).await;
}

#[tokio::test]
async fn a_folder_has_one_identity_whoever_asks() {
    in_a_folder(async |blobs| suite::all_who_ask_for_its_identity_get_the_same(&blobs).await).await;
}

#[tokio::test]
async fn a_folder_that_is_not_the_right_one_misses_no_file() {
    in_a_folder(async |blobs| suite::a_file_is_not_missing_because_another_store_has_it_not(&blobs).await)
        .await;
}

#[tokio::test]
async fn a_copied_folder_is_the_same_store_and_an_empty_one_is_none() {
    let (folder, moved, empty) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let id = open(folder.path()).identify().await.unwrap();
    std::fs::copy(folder.path().join("identity"), moved.path().join("identity")).unwrap();
    let verify = async |folder: &Path| {
        let blobs = open(folder);
        blobs.expect(id);
        blobs.verify().await
    };
    verify(moved.path()).await.unwrap();
    let refused = verify(empty.path()).await.unwrap_err();
    assert!(matches!(refused, BlobError::Foreign { known, found: None } if known == id), "{refused:?}");
    assert!(refused.may_pass(), "it may be mounted yet");
}

/// As a disk that is taken away from below a running process, and leaves the folder that it was mounted on.
#[tokio::test]
async fn nothing_is_put_into_a_folder_that_is_not_the_store_any_more() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("files");
    let blobs = open(&root);
    blobs.expect(blobs.identify().await.unwrap());
    std::fs::rename(&root, place.path().join("away")).unwrap();
    open(&root);
    let put = blobs.put(&original(), body(b"x"), GENEROUS).await;
    assert!(matches!(put, Err(BlobError::Foreign { found: None, .. })), "{put:?}");
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::rename(place.path().join("away"), &root).unwrap();
    blobs.put(&original(), body(b"x"), GENEROUS).await.unwrap();
}

#[tokio::test]
async fn a_folder_that_vanished_is_not_a_thousand_missing_files() {
    let folder = tempfile::tempdir().unwrap();
    let (blobs, name) = (open(folder.path()), original());
    blobs.put(&name, body(b"x"), GENEROUS).await.unwrap();
    std::fs::rename(folder.path().join("originals"), folder.path().join("elsewhere")).unwrap();
    assert!(matches!(blobs.get(&name).await.map(drop), Err(BlobError::Unavailable(_))));
    assert!(matches!(blobs.delete(&name).await, Err(BlobError::Unavailable(_))));
    assert!(blobs.list(Area::Originals, soon()).any(async |one| one.is_err()).await);
}

#[tokio::test]
async fn what_a_killed_process_left_is_removed_by_age_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let (blobs, name) = (open(folder.path()), original());
    blobs.put(&name, body(b"x"), GENEROUS).await.unwrap();
    for (left, age) in [("old", 7200), ("young", 60)] {
        let file = std::fs::File::create(folder.path().join("unfinished").join(left)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    assert_eq!(blobs.remove_unfinished(an_hour_ago).await.unwrap(), 1);
    assert!(!folder.path().join("unfinished/old").exists());
    assert!(folder.path().join("unfinished/young").exists());
    assert_eq!(read(&blobs, &name).await, b"x");
}

#[tokio::test]
async fn a_list_passes_over_what_is_not_ours() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let (blobs, name) = (open(folder.path()), original());
    blobs.put(&name, body(b"x"), GENEROUS).await.unwrap();
    std::fs::write(folder.path().join("originals/notes.txt"), "somebody's").unwrap();
    std::fs::create_dir(folder.path().join("results/somebody")).unwrap();
    std::fs::write(folder.path().join("results/somebody/else"), "somebody's").unwrap();
    let job = Uuid::new_v4();
    std::fs::create_dir_all(outside.path().join("1")).unwrap();
    std::fs::write(outside.path().join("1/document.json"), "outside").unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join(format!("results/{job}"))).unwrap();

    let originals: Vec<_> = blobs.list(Area::Originals, soon()).try_collect().await.unwrap();
    assert_eq!(originals.iter().map(|one| &one.name).collect::<Vec<_>>(), [&name]);
    let results: Vec<_> = blobs.list(Area::Results, soon()).try_collect().await.unwrap();
    assert_eq!(results, []);
}

#[test]
fn only_the_owner_can_read_the_folders_and_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("files");
    let name = original();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let blobs = open(&root);
    runtime.block_on(blobs.put(&name, body(b"x"), GENEROUS)).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join("originals")), 0o700);
    assert_eq!(mode(&root.join(name.as_str())), 0o600);
}

#[test]
fn a_folder_without_write_permission_says_so_and_still_reads() {
    // Root may write anywhere unless it gives that power up, which only a new process can.
    in_a_child(
        "setpriv --bounding-set=-dac_override,-dac_read_search",
        "blob::a_folder_without_write_permission_says_so_and_still_reads",
        async || {
            use std::os::unix::fs::PermissionsExt;
            let folder = tempfile::tempdir().unwrap();
            let (blobs, name) = (open(folder.path()), original());
            blobs.put(&name, body(b"x"), GENEROUS).await.unwrap();
            let close = |mode| {
                for closed in ["unfinished", "originals"] {
                    let permissions = std::fs::Permissions::from_mode(mode);
                    std::fs::set_permissions(folder.path().join(closed), permissions).unwrap();
                }
            };
            close(0o500);
            let refused = blobs.put(&original(), body(b"y"), GENEROUS).await;
            let checked = blobs.check().await;
            let kept = read(&blobs, &name).await;
            let deleted = blobs.delete(&name).await;
            close(0o700);
            assert!(matches!(refused, Err(BlobError::NotPermitted(_))), "{refused:?}");
            assert!(matches!(checked, Err(BlobError::NotPermitted(_))), "{checked:?}");
            assert!(matches!(deleted, Err(BlobError::NotPermitted(_))), "{deleted:?}");
            assert_eq!(kept, b"x");
        },
    );
}

#[test]
fn a_disk_that_takes_no_more_is_full_and_keeps_nothing() {
    // A file size limit fails a write in the middle of a file, as a full disk does, without a disk to fill.
    in_a_child(
        "prlimit --fsize=1000000 env --ignore-signal=XFSZ",
        "blob::a_disk_that_takes_no_more_is_full_and_keeps_nothing",
        async || {
            let folder = tempfile::tempdir().unwrap();
            let (blobs, name) = (open(folder.path()), original());
            let refused = blobs.put(&name, body(&content(3 * MIB)), GENEROUS).await;
            assert!(matches!(refused, Err(BlobError::Full(_))), "{refused:?}");
            assert!(matches!(blobs.get(&name).await.map(drop), Err(BlobError::Missing)));
            assert_eq!(blobs.remove_unfinished(soon()).await.unwrap(), 0);
            blobs.put(&name, body(&content(MIB / 2)), GENEROUS).await.unwrap();
        },
    );
}

#[test]
fn a_large_upload_takes_little_memory() {
    in_a_child("env", "blob::a_large_upload_takes_little_memory", async || {
        let folder = tempfile::tempdir().unwrap();
        passes_in_less_than_64_mib(&open(folder.path()), 2048 * MIB).await;
    });
}

#[test]
fn an_address_that_cannot_be_used_is_refused_with_the_reason() {
    for url in
        ["", "files", "ftp://host/x", "file:", "file://host/path", "s3://", "s3:bucket", "gs:///x", "s3://b"]
    {
        let refused = Blobs::open(url);
        assert!(matches!(refused, Err(BlobError::Address(_))), "{url}: {refused:?}");
    }
}

#[test]
fn every_error_has_a_code_and_a_way_out_and_repeats_no_cause() {
    let secret = || io::Error::other("content of a customer");
    let errors = [
        BlobError::Missing,
        BlobError::AlreadyThere,
        BlobError::TooLarge { bytes_max: 5 },
        BlobError::BodyCut(secret()),
        BlobError::Full(secret()),
        BlobError::ReadOnly(secret()),
        BlobError::NotPermitted(Box::new(secret())),
        BlobError::Unavailable(Box::new(secret())),
    ];
    let codes: std::collections::BTreeSet<_> = errors.iter().map(BlobError::code).collect();
    assert_eq!(codes.len(), errors.len());
    for error in &errors {
        assert!(!error.help().is_empty());
        assert!(!error.to_string().contains("customer"), "{error}");
    }
}

#[test]
fn a_name_reads_back_as_it_was_written() {
    let job = Uuid::new_v4();
    for name in [BlobName::original(job), result(job, 0, "a"), result(job, u64::MAX, "tables-01.csv")] {
        assert_eq!(BlobName::parse(name.as_str()).unwrap(), name);
        assert_eq!(name.job(), job);
    }
}

#[test]
fn a_name_that_we_did_not_make_is_refused() {
    let job = "0197a7c2-6f0e-7cc3-98c4-dc0c0c07398f";
    let refused = [
        String::new(),
        "originals".to_owned(),
        "originals/".to_owned(),
        "originals/..".to_owned(),
        "originals/../../etc/passwd".to_owned(),
        format!("/originals/{job}"),
        format!("originals//{job}"),
        format!("originals/{job}/"),
        format!("originals/{job}/x"),
        format!("originals/{job}\0"),
        format!("originals/{job} "),
        format!("originals/{}", job.to_uppercase()),
        format!("originals/{{{job}}}"),
        format!("originals/urn:uuid:{job}"),
        format!("originals/{}", job.replace('-', "")),
        format!("unfinished/{job}"),
        format!("results/{job}"),
        format!("results/{job}/1"),
        format!("results/{job}/1/"),
        format!("results/{job}/1/."),
        format!("results/{job}/1/.."),
        format!("results/{job}/1/.hidden"),
        format!("results/{job}/1/-rf"),
        format!("results/{job}/1/A.json"),
        format!("results/{job}/1/a b"),
        format!("results/{job}/1/a\\b"),
        format!("results/{job}/1/a/b"),
        format!("results/{job}/1/a%2fb"),
        format!("results/{job}/1/보고서"),
        format!("results/{job}/1/{}", "a".repeat(121)),
        format!("results/{job}/01/a"),
        format!("results/{job}/+1/a"),
        format!("results/{job}/-1/a"),
        format!("results/{job}/18446744073709551616/a"),
        format!("results/../1/{job}"),
    ];
    for text in refused {
        assert!(BlobName::parse(&text).is_err(), "{text:?} was taken for a name");
    }
}

/// Sends and reads at least so many bytes that exist nowhere in memory, and asks the kernel for this process's peak.
async fn passes_in_less_than_64_mib(blobs: &Blobs, bytes_min: usize) {
    let name = original();
    // Chunks of an odd size, which never end where a part does.
    let chunk = Bytes::from(content(65_521));
    let chunks = bytes_min / chunk.len() + 1;
    let bytes = (chunks * chunk.len()) as u64;
    let body = stream::iter((0..chunks).map(|_| Ok(chunk.clone())));
    assert_eq!(blobs.put(&name, body, GENEROUS).await.unwrap().bytes, bytes);
    let mut read = 0;
    let mut reading = blobs.get(&name).await.unwrap();
    while let Some(chunk) = reading.body.try_next().await.unwrap() {
        read += chunk.len() as u64;
    }
    assert_eq!(read, bytes);

    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 64 * 1024, "the peak was {} MiB", kib / 1024);
}

fn open(folder: &Path) -> Blobs {
    Blobs::open(&format!("file:{}", folder.display())).unwrap()
}

fn original() -> BlobName {
    BlobName::original(Uuid::new_v4())
}

fn result(job: Uuid, epoch: u64, file: &str) -> BlobName {
    BlobName::result(job, epoch, file).unwrap()
}

fn soon() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

/// Bytes in which no two pages are alike, so that a part in the wrong place shows.
fn content(size: usize) -> Vec<u8> {
    (0u64..).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).take(size).collect()
}

/// A body in chunks of an odd size, so that they never end where a part does.
fn body(content: &[u8]) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
    let chunks: Vec<_> = content.chunks(10_007).map(Bytes::copy_from_slice).map(Ok).collect();
    stream::iter(chunks)
}

async fn read(blobs: &Blobs, name: &BlobName) -> Vec<u8> {
    let chunks: Vec<Bytes> = blobs.get(name).await.unwrap().body.try_collect().await.unwrap();
    chunks.concat()
}
