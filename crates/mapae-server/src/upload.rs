//! Taking a file in: its name, its first bytes, then all of it into the file store, never in memory.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use mapae::blob::{BlobError, BlobName, Blobs, PutLimits};
use mapae::job::name::JobId;
use mapae::job::record::Source;

use crate::credential::hex;
use crate::media::{HEAD_BYTES, Look, clean_name, look};

/// A file in the file store that no row names yet. Dropped, it is removed; [`Taken::keep`] leaves it.
pub(crate) struct Taken {
    pub source: Source,
    blob: Option<(Blobs, BlobName)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("the file is empty")]
    Empty,
    #[error("the file is {found} and not {named}")]
    Mismatch { named: &'static str, found: &'static str },
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

/// Whether a name that contradicts the bytes is refused here, or left to whoever reads the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Checked,
    Believed,
}

/// Stores the file of `job`. Nothing is kept on an error.
pub(crate) async fn take(
    blobs: &Blobs,
    job: JobId,
    name: &str,
    names: Names,
    body: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    limits: PutLimits,
) -> Result<Taken, UploadError> {
    let name = clean_name(name);
    let (head, body) = peek(body).await;
    let media_type = match look(&name, &head) {
        Look::Fits(media_type) => media_type,
        Look::Mismatch { named, .. } if names == Names::Believed => named,
        Look::Mismatch { named, found } => return Err(UploadError::Mismatch { named, found }),
    };
    let blob = BlobName::original(job.0);
    let stored = blobs.put(&blob, body, limits).await?;
    let source = Source {
        name,
        bytes: stored.bytes,
        sha256: hex(&stored.sha256),
        media_type: media_type.to_owned(),
        file: blob.to_string(),
    };
    let taken = Taken { source, blob: Some((blobs.clone(), blob)) };
    if stored.bytes == 0 && names == Names::Checked {
        return Err(UploadError::Empty);
    }
    Ok(taken)
}

impl Taken {
    /// The file stays. To be called before the row is written: whether it was, may never be known, and
    /// a file that no row names is collected by the keeper.
    pub(crate) fn keep(&mut self) -> Option<(Blobs, BlobName)> {
        self.blob.take()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some((blobs, name)) = self.blob.take() {
            remove_later(blobs, name);
        }
    }
}

/// Removes a file that nobody will ever name. Where that fails the keeper collects it.
pub(crate) fn remove_later(blobs: Blobs, name: BlobName) {
    tokio::spawn(async move { blobs.delete(&name).await });
}

/// The first bytes of a body, and the body with them.
async fn peek<S>(body: S) -> (Vec<u8>, impl Stream<Item = io::Result<Bytes>> + Send)
where
    S: Stream<Item = io::Result<Bytes>> + Send + Unpin,
{
    // A body shorter than the look has ended by now, and is asked again all the same.
    let mut body = body.fuse();
    let mut head = Vec::new();
    let mut seen = Vec::new();
    while head.len() < HEAD_BYTES {
        let Some(chunk) = body.next().await else { break };
        let failed = chunk.is_err();
        if let Ok(bytes) = &chunk {
            head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES - head.len())]);
        }
        seen.push(chunk);
        if failed {
            break;
        }
    }
    (head, futures_util::stream::iter(seen).chain(body))
}

/// A body that fails with [`io::ErrorKind::TimedOut`] when nothing comes for `patience`.
pub(crate) fn patient<S, E>(
    body: S,
    patience: Duration,
) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let next = move |mut body: S| async move {
        let chunk = match tokio::time::timeout(patience, body.next()).await {
            Ok(chunk) => chunk?.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        Some((chunk, body))
    };
    Box::pin(futures_util::stream::unfold(body, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(chunks: &[&'static str]) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Bytes::from_static(chunk.as_bytes()))).collect();
        futures_util::stream::iter(chunks)
    }

    fn files(folder: &tempfile::TempDir) -> Vec<std::path::PathBuf> {
        let originals = folder.path().join("originals");
        std::fs::read_dir(originals).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }

    #[tokio::test]
    async fn a_file_is_kept_whole_and_measured_whatever_its_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&format!("file:{}", folder.path().display())).unwrap();
        let limits = PutLimits { bytes_max: 100 };
        let patient = patient(body(&["%P", "DF-1.7 ", "x"]), Duration::from_secs(60));
        let mut taken =
            take(&blobs, JobId::new(), "../r.pdf", Names::Checked, patient, limits).await.unwrap();
        assert_eq!((taken.source.name.as_str(), taken.source.bytes), ("r.pdf", 10));
        assert_eq!(taken.source.media_type, "application/pdf");
        taken.keep();
        drop(taken);
        let kept = files(&folder);
        assert_eq!(std::fs::read(&kept[0]).unwrap(), b"%PDF-1.7 x");
    }

    #[tokio::test]
    async fn what_is_refused_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&format!("file:{}", folder.path().display())).unwrap();
        let limits = PutLimits { bytes_max: 5 };
        let take = async |name, chunks: &[&'static str]| {
            take(&blobs, JobId::new(), name, Names::Checked, body(chunks), limits).await.err().unwrap()
        };
        assert!(matches!(take("a.xlsx", &["%PDF-1.7"]).await, UploadError::Mismatch { .. }));
        assert!(matches!(take("a.txt", &["123456"]).await, UploadError::Blobs(BlobError::TooLarge { .. })));
        assert!(matches!(take("a.txt", &[]).await, UploadError::Empty));
        // The empty one was stored and is removed by a task of its own.
        let removed = async {
            while !files(&folder).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), removed).await.expect("nothing is left");
    }
}
