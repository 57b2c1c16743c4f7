//! Files in a local folder.
//!
//! ```text
//! ROOT/unfinished/RANDOM     being written; a killed process leaves it, remove_unfinished takes it away
//! ROOT/identity              which file store this is
//! ROOT/originals/JOB         a hard link to it, made when all of it is on disk
//! ROOT/results/JOB/EPOCH/FILE
//! ```
//!
//! A hard link is the one step that puts a complete file under its name *and* fails when the name is taken;
//! a rename would overwrite. This is written with the standard library and not with `object_store`'s local
//! store, whose large uploads overwrite, and whose half-written files are hidden from its own listing, so that
//! no collector could ever find them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_util::io::ReaderStream;
use uuid::Uuid;

use super::identity::{self, IDENTITY};
use super::{Area, BlobError, BlobName, Listed, Meter, PutLimits, Reading, Stored};
use crate::fault::{self, Point};

const UNFINISHED: &str = "unfinished";
const READ_CHUNK_BYTES: usize = 64 * 1024;
const LIST_AHEAD: usize = 256;

#[derive(Debug, Clone)]
pub(super) struct Folder {
    root: Arc<Path>,
}

impl Folder {
    pub(super) fn open(root: &Path) -> Result<Self, BlobError> {
        // Absolute, so that a later change of the working directory moves nothing.
        let root = std::path::absolute(root).map_err(BlobError::from_disk)?;
        let first_there = root.ancestors().find(|folder| folder.exists()).unwrap_or(&root).to_owned();
        for folder in [UNFINISHED, Area::Originals.folder(), Area::Results.folder()] {
            private_folders().create(root.join(folder)).map_err(BlobError::from_disk)?;
        }
        sync_up_to(&root.join(UNFINISHED), &first_there).map_err(BlobError::from_disk)?;
        Ok(Self { root: root.into() })
    }

    pub(super) async fn put(
        &self,
        name: &BlobName,
        body: impl Stream<Item = io::Result<Bytes>> + Send,
        limits: PutLimits,
    ) -> Result<Stored, BlobError> {
        let target = self.path(name);
        // A repeated request is refused before its body is read; the link below decides the races.
        if tokio::fs::try_exists(&target).await.map_err(BlobError::from_disk)? {
            return Err(BlobError::AlreadyThere);
        }
        let unfinished = Unfinished(self.root.join(UNFINISHED).join(Uuid::new_v4().to_string()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file =
            tokio::fs::OpenOptions::from(options).open(&unfinished.0).await.map_err(BlobError::from_disk)?;

        fault::at(Point::FileBegun);
        let mut meter = Meter::new(limits);
        let mut body = pin!(body);
        while let Some(chunk) = body.next().await {
            let chunk = meter.take(chunk)?;
            file.write_all(&chunk).await.map_err(BlobError::from_disk)?;
        }
        file.flush().await.map_err(BlobError::from_disk)?;
        fault::at(Point::FileWritten);
        let file = file.into_std().await;
        let root = Arc::clone(&self.root);
        blocking(move || publish(&file, unfinished, &target, &root)).await?;
        Ok(meter.finish())
    }

    pub(super) async fn get(&self, name: &BlobName) -> Result<Reading, BlobError> {
        let file = self.open_file(name).await?;
        let bytes = file.metadata().map_err(BlobError::from_disk)?.len();
        let body = ReaderStream::with_capacity(tokio::fs::File::from_std(file), READ_CHUNK_BYTES);
        Ok(Reading { bytes, body: body.boxed() })
    }

    pub(super) async fn open_file(&self, name: &BlobName) -> Result<File, BlobError> {
        let path = self.path(name);
        let root = Arc::clone(&self.root);
        blocking(move || File::open(&path).map_err(|error| missing_or_broken(error, &root))).await
    }

    pub(super) async fn delete(&self, name: &BlobName) -> Result<(), BlobError> {
        let path = self.path(name);
        let root = Arc::clone(&self.root);
        blocking(move || match fs::remove_file(&path) {
            Ok(()) => forget_folders(&path, &root).map_err(BlobError::from_disk),
            Err(error) => match missing_or_broken(error, &root) {
                BlobError::Missing => Ok(()),
                error => Err(error),
            },
        })
        .await
    }

    pub(super) fn list(
        &self,
        area: Area,
        before: SystemTime,
    ) -> BoxStream<'static, Result<Listed, BlobError>> {
        let root = Arc::clone(&self.root);
        let (found, listing) = mpsc::channel(LIST_AHEAD);
        tokio::task::spawn_blocking(move || walk(&root, area.folder(), before, &found));
        futures_util::stream::unfold(listing, |mut listing| async move {
            listing.recv().await.map(|one| (one, listing))
        })
        .boxed()
    }

    pub(super) async fn remove_unfinished(&self, before: SystemTime) -> Result<u64, BlobError> {
        let folder = self.root.join(UNFINISHED);
        blocking(move || {
            let mut removed = 0;
            for entry in fs::read_dir(folder).map_err(BlobError::from_disk)? {
                let entry = entry.map_err(BlobError::from_disk)?;
                // An upload that ends meanwhile takes its file away itself.
                let Some((_, written_at)) = size_and_time(&entry).map_err(BlobError::from_disk)? else {
                    continue;
                };
                if written_at < before && fs::remove_file(entry.path()).is_ok() {
                    removed += 1;
                }
            }
            Ok(removed)
        })
        .await
    }

    pub(super) async fn identity(&self) -> Result<Option<Vec<u8>>, BlobError> {
        let path = self.root.join(IDENTITY);
        blocking(move || {
            let file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(BlobError::from_disk(error)),
            };
            let mut content = Vec::new();
            file.take(identity::BYTES_MAX).read_to_end(&mut content).map_err(BlobError::from_disk)?;
            Ok(Some(content))
        })
        .await
    }

    /// As a file is put: whole or not at all, and never over another.
    pub(super) async fn put_identity(&self, content: Vec<u8>) -> Result<(), BlobError> {
        let root = Arc::clone(&self.root);
        blocking(move || {
            let unfinished = Unfinished(root.join(UNFINISHED).join(Uuid::new_v4().to_string()));
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let mut file = options.open(&unfinished.0).map_err(BlobError::from_disk)?;
            file.write_all(&content).map_err(BlobError::from_disk)?;
            publish(&file, unfinished, &root.join(IDENTITY), &root)
        })
        .await
    }

    fn path(&self, name: &BlobName) -> PathBuf {
        self.root.join(name.as_str())
    }
}

/// A file being written; removed when the upload ends in any way, also by being dropped half-way.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Best effort: what stays is found by `remove_unfinished`.
        let _ = fs::remove_file(&self.0);
    }
}

/// Puts a written file under its name, durably.
fn publish(file: &File, unfinished: Unfinished, target: &Path, root: &Path) -> Result<(), BlobError> {
    file.sync_all().map_err(BlobError::from_disk)?;
    fault::at(Point::FileSynced);
    link(&unfinished.0, target)?;
    fault::at(Point::FileLinked);
    if let Err(error) = sync_up_to(target, root) {
        // Visible but perhaps not durable: it must not be reported as either, so it goes.
        let _ = fs::remove_file(target);
        return Err(BlobError::from_disk(error));
    }
    fault::at(Point::FileKept);
    Ok(())
}

fn link(from: &Path, target: &Path) -> Result<(), BlobError> {
    let folder = target.parent().expect("a name is below the root");
    // A delete may take the empty folder away between the two steps: a few tries settle it.
    for _ in 0..8 {
        private_folders().create(folder).map_err(BlobError::from_disk)?;
        match fs::hard_link(from, target) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BlobError::AlreadyThere);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(BlobError::from_disk(error)),
        }
    }
    Err(BlobError::Unavailable("the folder of the file keeps vanishing".into()))
}

/// Syncs every folder above `target` up to `last`. All of them, not only those just made: another upload may
/// have made one and not synced it yet.
fn sync_up_to(target: &Path, last: &Path) -> io::Result<()> {
    for folder in target.ancestors().skip(1) {
        sync_folder(folder)?;
        if folder == last {
            break;
        }
    }
    Ok(())
}

/// Syncs the removal of `path`, then removes the folders it leaves empty, never `originals` or `results`.
fn forget_folders(path: &Path, root: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1) {
        match sync_folder(folder) {
            // Another delete has removed this folder, and syncs its parent.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            synced => synced?,
        }
        let is_area = folder.parent() == Some(root);
        if is_area || fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Content of customers: nobody but the owner of the process reads it.
fn private_folders() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

/// A file that is not there is `Missing` only while its store is: a disk that is not mounted must not look
/// like a thousand deleted files.
fn missing_or_broken(error: io::Error, root: &Path) -> BlobError {
    let store_is_there = || root.join(Area::Originals.folder()).is_dir();
    if error.kind() == io::ErrorKind::NotFound && store_is_there() {
        return BlobError::Missing;
    }
    BlobError::from_disk(error)
}

/// Sends the files below `folder` on, until all are sent or nobody listens.
fn walk(root: &Path, folder: &str, before: SystemTime, found: &mpsc::Sender<Result<Listed, BlobError>>) {
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // A folder that a delete took away meanwhile has nothing to list.
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder.parent() != Some(root) => {
                continue;
            }
            Err(error) => {
                let _ = found.blocking_send(Err(BlobError::from_disk(error)));
                return;
            }
        };
        for entry in entries {
            let listed = entry.and_then(|entry| look_at(root, &entry, before, &mut folders));
            let Some(one) = listed.map_err(BlobError::from_disk).transpose() else { continue };
            let failed = one.is_err();
            if found.blocking_send(one).is_err() || failed {
                return;
            }
        }
    }
}

fn look_at(
    root: &Path,
    entry: &fs::DirEntry,
    before: SystemTime,
    folders: &mut Vec<PathBuf>,
) -> io::Result<Option<Listed>> {
    let path = entry.path();
    // `file_type` does not follow a link, so nothing outside the root is ever listed.
    let file_type = entry.file_type()?;
    if file_type.is_dir() {
        folders.push(path);
        return Ok(None);
    }
    let name = path.strip_prefix(root).ok().and_then(Path::to_str).map(BlobName::parse);
    let (true, Some(Ok(name))) = (file_type.is_file(), name) else { return Ok(None) };
    let Some((bytes, written_at)) = size_and_time(entry)? else { return Ok(None) };
    Ok((written_at < before).then_some(Listed { name, bytes, written_at }))
}

/// `None` when the file is gone meanwhile.
fn size_and_time(entry: &fs::DirEntry) -> io::Result<Option<(u64, SystemTime)>> {
    match entry.metadata() {
        Ok(metadata) => Ok(Some((metadata.len(), metadata.modified()?))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|stopped| Err(BlobError::Unavailable(Box::new(stopped))))
}
