//! Originals and results: the files of jobs, in a local folder, in S3 or in Google Cloud Storage.
//!
//! A file is written once, under a name of its own, and never changed: so a reader needs no lock, a repeated
//! attempt leaves at most garbage, and a worker that lost its lease overwrites nothing. Whether a file counts
//! is decided by the reference in the job's row, not here.
//!
//! ```text
//! put ─ body, chunk by chunk ─► unfinished (hidden) ─ all there, synced ─► its name (visible)
//!         │ sha256 on the way        │ cut off, too large, disk full
//!         ▼                          ▼
//!       Stored                    removed; what a killed process left: remove_unfinished
//! ```
//!
//! Not for: what a person called the file, its media type, who may read it (columns of the row).

#[cfg(any(feature = "s3", feature = "gcs"))]
mod bucket;
mod error;
mod folder;
mod identity;
mod name;

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use self::error::BlobError;
pub use self::name::{Area, BlobName, NameRefused};

/// The place where files are kept. Cheap to clone; all clones are the same place.
#[derive(Debug, Clone)]
pub struct Blobs {
    place: Place,
    /// Which store it has to be, once that is known.
    expected: Arc<OnceLock<Uuid>>,
}

#[derive(Debug, Clone)]
enum Place {
    Folder(folder::Folder),
    #[cfg(any(feature = "s3", feature = "gcs"))]
    Bucket(bucket::Bucket),
}

/// What one upload may take.
#[derive(Debug, Clone, Copy)]
pub struct PutLimits {
    /// A body with more bytes than this is refused.
    pub bytes_max: u64,
}

/// What was stored, measured on the way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The size of the file.
    pub bytes: u64,
    /// SHA-256 of the whole file.
    pub sha256: [u8; 32],
}

/// A file being read.
pub struct Reading {
    /// The size of the file.
    pub bytes: u64,
    /// Its content in chunks of at most 8 MiB. Ends early only with an error.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A file found by [`Blobs::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: BlobName,
    /// Its size.
    pub bytes: u64,
    /// When it was written, by the clock of the machine or service that keeps it.
    pub written_at: SystemTime,
}

impl Blobs {
    /// Opens `file:PATH`, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
    ///
    /// A folder is created where it is missing, readable by its owner only. S3 takes endpoint, region, keys
    /// and path style from the usual `AWS_…` environment variables, Google from `GOOGLE_…`; no request is
    /// made yet ([`check`](Self::check) makes some). `s3:` and `gs:` exist where the cargo features `s3` and
    /// `gcs` are on.
    ///
    /// # Errors
    /// [`BlobError::Address`] when the address cannot be used; the disk's own errors for a folder.
    pub fn open(url: &str) -> Result<Self, BlobError> {
        let place = match url.split_once(':') {
            Some(("file", path)) => Place::Folder(folder::Folder::open(folder_path(path)?)?),
            #[cfg(feature = "s3")]
            Some(("s3", rest)) => Place::Bucket(bucket::Bucket::s3(rest)?),
            #[cfg(feature = "gcs")]
            Some(("gs", rest)) => Place::Bucket(bucket::Bucket::gcs(rest)?),
            // Reached for the ones whose feature is off.
            Some((scheme, _)) if matches!(scheme, "s3" | "gs") => {
                return Err(BlobError::Address(format!("this program was built without {scheme}:")));
            }
            _ => {
                return Err(BlobError::Address("it does not begin with file:, s3:// or gs://".to_owned()));
            }
        };
        Ok(Self { place, expected: Arc::default() })
    }

    /// Stores `body` under `name`.
    ///
    /// Once it has returned `Ok`, the file is complete, on disk (file and folder entry are synced) or
    /// acknowledged by the service, and stays under its name until it is deleted. On an error nothing is
    /// visible under `name`. When the call is dropped before it returns, the file is there whole or not at
    /// all. Memory: a few parts of 8 MiB, whatever the size. The wait for the next chunk is the body's own:
    /// give it a time limit.
    ///
    /// # Errors
    /// [`AlreadyThere`](BlobError::AlreadyThere) when the name is taken, also by a put at the same moment: one
    /// of them wins. [`TooLarge`](BlobError::TooLarge), [`BodyCut`](BlobError::BodyCut), or what the disk or
    /// service says. After [`Unavailable`](BlobError::Unavailable) from a bucket the outcome is unknown.
    pub async fn put(
        &self,
        name: &BlobName,
        body: impl Stream<Item = io::Result<Bytes>> + Send,
        limits: PutLimits,
    ) -> Result<Stored, BlobError> {
        match &self.place {
            Place::Folder(folder) => {
                // A disk that was taken away leaves a folder behind, in which nobody would look for the file later.
                self.verify().await?;
                folder.put(name, body, limits).await
            }
            #[cfg(any(feature = "s3", feature = "gcs"))]
            Place::Bucket(bucket) => bucket.put(name, body, limits).await,
        }
    }

    /// Reads the file `name` from its beginning.
    ///
    /// # Errors
    /// [`BlobError::Missing`] only when the store answers and has no such file: a folder that is not mounted
    /// or a bucket that is gone is [`BlobError::Unavailable`], one that is not the store it has to be
    /// [`BlobError::Foreign`], so that no job is given up for it.
    pub async fn get(&self, name: &BlobName) -> Result<Reading, BlobError> {
        let got = match &self.place {
            Place::Folder(folder) => folder.get(name).await,
            #[cfg(any(feature = "s3", feature = "gcs"))]
            Place::Bucket(bucket) => bucket.get(name).await,
        };
        self.missing_here(got).await
    }

    /// Opens the file `name` for reading as a file of this machine, to hand its descriptor to a child
    /// process. From a bucket it is downloaded into an unnamed temporary file first (in `TMPDIR`), which
    /// vanishes when it is closed.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn open_local(&self, name: &BlobName) -> Result<File, BlobError> {
        let opened = match &self.place {
            Place::Folder(folder) => folder.open_file(name).await,
            #[cfg(any(feature = "s3", feature = "gcs"))]
            Place::Bucket(bucket) => bucket.download(name).await,
        };
        self.missing_here(opened).await
    }

    /// Removes the file `name`; a file that is not there is removed already. Once it has returned, the file
    /// does not come back after a crash.
    ///
    /// # Errors
    /// What the disk or service says.
    pub async fn delete(&self, name: &BlobName) -> Result<(), BlobError> {
        match &self.place {
            Place::Folder(folder) => folder.delete(name).await,
            #[cfg(any(feature = "s3", feature = "gcs"))]
            Place::Bucket(bucket) => bucket.delete(name).await,
        }
    }

    /// The files of `area` that were written before `before`, in no order, for the collection of those that
    /// no row refers to. Files whose names are not ours are passed over: they are somebody else's.
    pub fn list(&self, area: Area, before: SystemTime) -> BoxStream<'static, Result<Listed, BlobError>> {
        match &self.place {
            Place::Folder(folder) => folder.list(area, before),
            #[cfg(any(feature = "s3", feature = "gcs"))]
            Place::Bucket(bucket) => bucket.list(area, before),
        }
    }

    /// Removes what killed processes left of uploads they began before `before`, and returns how many. An
    /// unfinished multipart upload of a bucket is not seen here: give the bucket a lifecycle rule for those.
    ///
    /// # Errors
    /// What the disk or service says.
    pub async fn remove_unfinished(&self, before: SystemTime) -> Result<u64, BlobError> {
        match &self.place {
            Place::Folder(folder) => folder.remove_unfinished(before).await,
            #[cfg(any(feature = "s3", feature = "gcs"))]
            Place::Bucket(bucket) => bucket.remove_unfinished(before).await,
        }
    }

    /// Writes, refuses to overwrite, reads and removes a small file, for `doctor` and for the start.
    ///
    /// # Errors
    /// [`BlobError::Unsound`] when the store answered and did something else than it was asked; otherwise
    /// what the disk or service says.
    pub async fn check(&self) -> Result<(), BlobError> {
        let name = BlobName::original(Uuid::new_v4());
        let written = self.check_with(&name).await;
        let removed = self.delete(&name).await;
        written?;
        removed?;
        match self.get(&name).await {
            Err(BlobError::Missing) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(BlobError::Unsound("a deleted file is still there")),
        }
    }

    async fn check_with(&self, name: &BlobName) -> Result<(), BlobError> {
        const CONTENT: &[u8] = b"mapae looks whether this store works";
        let probe = || futures_util::stream::iter([Ok(Bytes::from_static(CONTENT))]);
        let limits = PutLimits { bytes_max: CONTENT.len() as u64 };
        self.put(name, probe(), limits).await?;
        match self.put(name, probe(), limits).await {
            Err(BlobError::AlreadyThere) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(BlobError::Unsound("a second file was stored under the same name")),
        }
        let mut reading = self.get(name).await?;
        let mut content = Vec::new();
        while let Some(chunk) = reading.body.next().await {
            content.extend_from_slice(&chunk.map_err(BlobError::from_disk)?);
        }
        if content == CONTENT { Ok(()) } else { Err(BlobError::Unsound("a file came back changed")) }
    }
}

/// Counts and hashes a body on its way, and refuses the chunk that goes past the limit.
struct Meter {
    bytes: u64,
    sha256: Sha256,
    limits: PutLimits,
}

impl Meter {
    fn new(limits: PutLimits) -> Self {
        Self { bytes: 0, sha256: Sha256::new(), limits }
    }

    /// The chunk, if the body may have it.
    fn take(&mut self, chunk: io::Result<Bytes>) -> Result<Bytes, BlobError> {
        let chunk = chunk.map_err(BlobError::BodyCut)?;
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        if self.bytes > self.limits.bytes_max {
            return Err(BlobError::TooLarge { bytes_max: self.limits.bytes_max });
        }
        self.sha256.update(&chunk);
        Ok(chunk)
    }

    fn finish(self) -> Stored {
        Stored { bytes: self.bytes, sha256: self.sha256.finalize().into() }
    }
}

/// The path of a `file:` address: `file:relative`, `file:/absolute` or `file:///absolute`.
fn folder_path(path: &str) -> Result<&std::path::Path, BlobError> {
    let path = match path.strip_prefix("//") {
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(_) => return Err(BlobError::Address("file:// names a host; write file:PATH".to_owned())),
        None => path,
    };
    if path.is_empty() || path.contains('\0') {
        return Err(BlobError::Address("file: needs the path of a folder".to_owned()));
    }
    Ok(std::path::Path::new(path))
}
