//! Files in a bucket: S3 and what speaks its protocol, or Google Cloud Storage.
//!
//! A body of up to one part is stored in one conditional request. A larger one goes up in parts under
//! `unfinished/RANDOM`, is copied by the service to its name on the condition that the name is free, and the
//! first copy is removed: completing an upload under the name itself would overwrite.
//!
//! What a killed process leaves: whole objects in `unfinished/`, which `remove_unfinished` takes away, and
//! parts of uploads, which only a lifecycle rule of the bucket does (`AbortIncompleteMultipartUpload`).

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use super::identity::{self, IDENTITY};
use super::{Area, BlobError, BlobName, Listed, Meter, PutLimits, Reading, Stored};

/// The size of a part, and of a read. Services ask for at least 5 MiB, and 10,000 parts at most.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// What one server-side copy can take.
const BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// One request takes 30 s at most (the client's own default), its retries together no longer than this.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);
const RETRIES_MAX: usize = 3;
const UNFINISHED: &str = "unfinished";

#[derive(Debug, Clone)]
pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl Bucket {
    /// `//BUCKET/PREFIX`, the rest from `AWS_…`.
    #[cfg(feature = "s3")]
    pub(super) fn s3(rest: &str) -> Result<Self, BlobError> {
        use object_store::aws::{AmazonS3Builder, S3CopyIfNotExists};
        let (bucket, prefix) = bucket_and_prefix(rest)?;
        choose_tls();
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retries())
            .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
            .build()
            .map_err(|error| BlobError::Address(error.to_string()))?;
        Ok(Self { store: Arc::new(store), prefix })
    }

    /// `//BUCKET/PREFIX`, the rest from `GOOGLE_…`.
    #[cfg(feature = "gcs")]
    pub(super) fn gcs(rest: &str) -> Result<Self, BlobError> {
        use object_store::gcp::GoogleCloudStorageBuilder;
        let (bucket, prefix) = bucket_and_prefix(rest)?;
        choose_tls();
        let store = GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retries())
            .build()
            .map_err(|error| BlobError::Address(error.to_string()))?;
        Ok(Self { store: Arc::new(store), prefix })
    }

    pub(super) async fn put(
        &self,
        name: &BlobName,
        body: impl Stream<Item = io::Result<Bytes>> + Send,
        limits: PutLimits,
    ) -> Result<Stored, BlobError> {
        let target = self.path(name);
        match self.store.head(&target).await {
            Ok(_) => return Err(BlobError::AlreadyThere),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(from_service(error)),
        }
        let mut meter = Meter::new(PutLimits { bytes_max: limits.bytes_max.min(BYTES_MAX) });
        let mut parts = Parts { body: pin!(body), rest: Bytes::new() };
        let first = parts.next(&mut meter).await?;
        if first.len() < PART_BYTES {
            self.put_small(&target, first).await?;
        } else {
            self.put_large(&target, first, &mut parts, &mut meter).await?;
        }
        Ok(meter.finish())
    }

    async fn put_small(&self, target: &Path, content: Vec<u8>) -> Result<(), BlobError> {
        let put = self.store.put_opts(target, PutPayload::from(content), PutMode::Create.into());
        put.await.map(drop).map_err(from_service)
    }

    async fn put_large(
        &self,
        target: &Path,
        first: Vec<u8>,
        parts: &mut Parts<'_, impl Stream<Item = io::Result<Bytes>>>,
        meter: &mut Meter,
    ) -> Result<(), BlobError> {
        let unfinished = self.prefix.clone().join(UNFINISHED).join(Uuid::new_v4().to_string());
        let upload = self.store.put_multipart(&unfinished).await.map_err(from_service)?;
        let mut upload = Upload(Some(upload));
        if let Err(error) = upload.send_all(first, parts, meter).await {
            upload.abort().await;
            return Err(error);
        }

        let create = CopyOptions::new().with_mode(CopyMode::Create);
        let copied = self.store.copy_opts(&unfinished, target, create).await.map_err(from_service);
        // Best effort: `remove_unfinished` finds what stays.
        let _ = self.store.delete(&unfinished).await;
        copied
    }

    pub(super) async fn get(&self, name: &BlobName) -> Result<Reading, BlobError> {
        let path = self.path(name);
        let bytes = match self.store.head(&path).await {
            Ok(object) => object.size,
            Err(error) => return Err(self.missing_or_broken(error).await),
        };
        let store = Arc::clone(&self.store);
        // One bounded request a part: a long file needs no long request, and a slow reader holds none open.
        let body = futures_util::stream::try_unfold(0, move |from: u64| {
            let (store, path) = (Arc::clone(&store), path.clone());
            async move {
                let to = bytes.min(from.saturating_add(PART_BYTES as u64));
                if from == to {
                    return Ok(None);
                }
                let chunk = store.get_range(&path, from..to).await.map_err(io::Error::other)?;
                if chunk.len() as u64 != to - from {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(Some((chunk, to)))
            }
        });
        Ok(Reading { bytes, body: body.boxed() })
    }

    pub(super) async fn download(&self, name: &BlobName) -> Result<File, BlobError> {
        let mut reading = self.get(name).await?;
        let file = tempfile::tempfile().map_err(BlobError::from_disk)?;
        let mut file = tokio::fs::File::from_std(file);
        while let Some(chunk) = reading.body.next().await {
            let chunk = chunk.map_err(|error| BlobError::Unavailable(Box::new(error)))?;
            file.write_all(&chunk).await.map_err(BlobError::from_disk)?;
        }
        file.flush().await.map_err(BlobError::from_disk)?;
        let mut file = file.into_std().await;
        file.seek(SeekFrom::Start(0)).map_err(BlobError::from_disk)?;
        Ok(file)
    }

    pub(super) async fn delete(&self, name: &BlobName) -> Result<(), BlobError> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) => Ok(()),
            Err(error) => match self.missing_or_broken(error).await {
                BlobError::Missing => Ok(()),
                error => Err(error),
            },
        }
    }

    pub(super) fn list(
        &self,
        area: Area,
        before: SystemTime,
    ) -> BoxStream<'static, Result<Listed, BlobError>> {
        let skip = if self.prefix.is_root() { 0 } else { self.prefix.as_ref().len() + 1 };
        self.store
            .list(Some(&self.prefix.clone().join(area.folder())))
            .map_err(from_service)
            .try_filter_map(move |object| async move {
                let name = object.location.as_ref().get(skip..).map(BlobName::parse);
                let written_at = SystemTime::from(object.last_modified);
                let Some(Ok(name)) = name else { return Ok(None) };
                Ok((written_at < before).then_some(Listed { name, bytes: object.size, written_at }))
            })
            .boxed()
    }

    pub(super) async fn remove_unfinished(&self, before: SystemTime) -> Result<u64, BlobError> {
        let mut objects = self.store.list(Some(&self.prefix.clone().join(UNFINISHED)));
        let mut removed = 0;
        while let Some(object) = objects.try_next().await.map_err(from_service)? {
            if SystemTime::from(object.last_modified) < before {
                self.store.delete(&object.location).await.map_err(from_service)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    pub(super) async fn identity(&self) -> Result<Option<Vec<u8>>, BlobError> {
        let path = self.prefix.clone().join(IDENTITY);
        let head = match self.store.head(&path).await {
            Ok(head) => head,
            Err(error) => {
                return match self.missing_or_broken(error).await {
                    BlobError::Missing => Ok(None),
                    error => Err(error),
                };
            }
        };
        let content = self.store.get_range(&path, 0..head.size.min(identity::BYTES_MAX)).await;
        content.map(|content| Some(content.to_vec())).map_err(from_service)
    }

    pub(super) async fn put_identity(&self, content: Vec<u8>) -> Result<(), BlobError> {
        self.put_small(&self.prefix.clone().join(IDENTITY), content).await
    }

    fn path(&self, name: &BlobName) -> Path {
        name.as_str().split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// A bucket that is not there answers like a file that is not there. Only a bucket that can be listed may
    /// say that a file is missing.
    async fn missing_or_broken(&self, error: object_store::Error) -> BlobError {
        if !matches!(error, object_store::Error::NotFound { .. }) {
            return from_service(error);
        }
        match self.store.list(Some(&self.prefix)).next().await {
            None | Some(Ok(_)) => BlobError::Missing,
            Some(Err(error)) => from_service(error),
        }
    }
}

/// Cuts a body into parts of exactly [`PART_BYTES`], but for the last.
struct Parts<'a, S> {
    body: std::pin::Pin<&'a mut S>,
    rest: Bytes,
}

impl<S: Stream<Item = io::Result<Bytes>>> Parts<'_, S> {
    /// The next part; shorter than [`PART_BYTES`] only at the end. Chunks are copied together, so that a body
    /// of single bytes costs no more memory than a body of large ones.
    async fn next(&mut self, meter: &mut Meter) -> Result<Vec<u8>, BlobError> {
        let mut part = Vec::new();
        loop {
            let fits = self.rest.len().min(PART_BYTES - part.len());
            part.extend_from_slice(&self.rest.split_to(fits));
            if part.len() == PART_BYTES {
                return Ok(part);
            }
            match self.body.next().await {
                Some(chunk) => self.rest = meter.take(chunk)?,
                None => return Ok(part),
            }
        }
    }
}

/// An upload in parts, aborted when it is not completed, also by being dropped half-way.
struct Upload(Option<Box<dyn MultipartUpload>>);

impl Upload {
    async fn send_all(
        &mut self,
        first: Vec<u8>,
        parts: &mut Parts<'_, impl Stream<Item = io::Result<Bytes>>>,
        meter: &mut Meter,
    ) -> Result<(), BlobError> {
        let upload = self.0.as_mut().expect("an upload is gone only once it has ended");
        let mut part = first;
        // A part that is not full is the last; it is empty when the size is a multiple of a part's.
        while !part.is_empty() {
            let is_last = part.len() < PART_BYTES;
            upload.put_part(part.into()).await.map_err(from_service)?;
            part = if is_last { Vec::new() } else { parts.next(meter).await? };
        }
        upload.complete().await.map_err(from_service)?;
        self.0 = None;
        Ok(())
    }

    /// Best effort, as every abort: a rule of the bucket removes what stays.
    async fn abort(mut self) {
        if let Some(mut upload) = self.0.take() {
            let _ = upload.abort().await;
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut upload) = self.0.take() else { return };
        // Its request ends by itself, by its own time limit.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { upload.abort().await });
        }
    }
}

fn bucket_and_prefix(rest: &str) -> Result<(&str, Path), BlobError> {
    let (bucket, prefix) =
        rest.strip_prefix("//").map(|rest| rest.split_once('/').unwrap_or((rest, ""))).unwrap_or_default();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    if bucket.len() < 3 || !bucket.bytes().all(plain) {
        return Err(BlobError::Address("after s3:// or gs:// comes the name of a bucket".to_owned()));
    }
    let prefix = Path::parse(prefix).map_err(|error| BlobError::Address(error.to_string()))?;
    Ok((bucket, prefix))
}

/// The HTTP client takes its TLS from the provider of the process. One that is chosen already is kept.
fn choose_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIME_MAX, ..RetryConfig::default() }
}

fn from_service(error: object_store::Error) -> BlobError {
    use object_store::Error::{AlreadyExists, NotModified, PermissionDenied, Precondition, Unauthenticated};
    match error {
        AlreadyExists { .. } | Precondition { .. } | NotModified { .. } => BlobError::AlreadyThere,
        PermissionDenied { .. } | Unauthenticated { .. } => BlobError::NotPermitted(Box::new(error)),
        _ => BlobError::Unavailable(Box::new(error)),
    }
}
