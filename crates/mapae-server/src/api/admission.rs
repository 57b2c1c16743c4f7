//! What is let in, decided before a body is read: so many uploads, so many bytes, so many streams, so
//! many waiting jobs of one owner.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mapae::job::name::{Lane, Owner};
use mapae::store::contract::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{self, Problem};
use crate::config::Limits;

/// What an upload of unannounced size is counted as.
const UNANNOUNCED: u64 = 64 << 20;

/// How long a count of waiting jobs is believed.
const COUNTED: Duration = Duration::from_secs(1);

/// Counts remembered; beyond that all are forgotten.
const COUNTS_MAX: usize = 10_000;

pub(super) struct Admission {
    uploads: Arc<Semaphore>,
    uploading: Arc<AtomicU64>,
    uploading_max: u64,
    upload_max: u64,
    streams: Arc<Semaphore>,
    waiting: Mutex<HashMap<(Lane, Owner), (Instant, usize)>>,
    pending_max: usize,
}

/// An upload that was let in; its place is free again when this is dropped.
pub(super) struct Upload {
    _place: OwnedSemaphorePermit,
    bytes: u64,
    uploading: Arc<AtomicU64>,
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.uploading.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Admission {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            uploads: Arc::new(Semaphore::new(limits.uploads)),
            uploading: Arc::default(),
            uploading_max: limits.uploading,
            upload_max: limits.upload,
            streams: Arc::new(Semaphore::new(limits.streams)),
            waiting: Mutex::default(),
            pending_max: limits.pending,
        }
    }

    /// `announced` is the body's `Content-Length`, which a multipart body exceeds its file by.
    pub(super) fn upload(&self, announced: Option<u64>) -> Result<Upload, Problem> {
        const MULTIPART_EXTRA: u64 = 1 << 20;
        if announced.is_some_and(|bytes| bytes > self.upload_max.saturating_add(MULTIPART_EXTRA)) {
            return Err(self.too_large());
        }
        let bytes = announced.unwrap_or(UNANNOUNCED);
        let place = self.uploads.clone().try_acquire_owned().map_err(|_| overloaded())?;
        let before = self.uploading.fetch_add(bytes, Ordering::AcqRel);
        let upload = Upload { _place: place, bytes, uploading: self.uploading.clone() };
        // One upload is always let in: a limit below the largest file would refuse that for ever.
        if before > 0 && before.saturating_add(bytes) > self.uploading_max {
            return Err(overloaded());
        }
        Ok(upload)
    }

    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.streams.clone().try_acquire_owned().map_err(|_| overloaded())
    }

    /// Lets so many more jobs of the owner into the lane, all or none, or says that there are enough. Exact to within
    /// what other processes accept in a second.
    pub(super) async fn pending(
        &self,
        store: &dyn Store,
        lane: Lane,
        owner: Owner,
        more: usize,
    ) -> Result<(), Problem> {
        let key = (lane, owner);
        if !self.is_counted(&key) {
            let count = store.waiting(&key.0, &key.1, self.pending_max).await?;
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() >= COUNTS_MAX {
                waiting.clear();
            }
            waiting.insert(key.clone(), (Instant::now(), count));
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, count)) = waiting.get_mut(&key) else { return Ok(()) };
        // One call is always let into a lane that is empty, as a single job is.
        if *count >= self.pending_max || (*count > 0 && *count + more > self.pending_max) {
            let detail = format!("At most {} may wait in the lane {}.", self.pending_max, key.0);
            return Err(Problem::from(&problem::TOO_MANY_PENDING).detail(detail).retry_after(30));
        }
        *count += more;
        Ok(())
    }

    fn is_counted(&self, key: &(Lane, Owner)) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get(key).is_some_and(|(at, _)| at.elapsed() < COUNTED)
    }

    pub(super) fn too_large(&self) -> Problem {
        let detail = format!("A file may be at most {} bytes.", self.upload_max);
        Problem::from(&problem::BODY_TOO_LARGE).detail(detail)
    }
}

fn overloaded() -> Problem {
    Problem::from(&problem::OVERLOADED).retry_after(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(upload: u64, uploads: usize, uploading: u64) -> Admission {
        Admission::new(&Limits { upload, uploads, uploading, pending: 1, streams: 1 })
    }

    #[test]
    fn a_body_announced_as_too_large_is_refused_before_it_is_read() {
        let refused = admission(100, 9, 1000).upload(Some(2 << 20)).err().unwrap();
        assert_eq!(refused.refusal.code, "body-too-large");
    }

    #[test]
    fn places_and_bytes_are_given_back_when_an_upload_ends() {
        let admission = admission(1000, 2, 1000);
        let first = admission.upload(Some(600)).unwrap();
        assert_eq!(admission.upload(Some(600)).err().unwrap().refusal.code, "overloaded");
        let second = admission.upload(Some(300)).unwrap();
        assert_eq!(admission.upload(Some(1)).err().unwrap().refusal.code, "overloaded");
        drop((first, second));
        assert!(admission.upload(Some(1000)).is_ok());
        assert_eq!(admission.uploading.load(Ordering::Relaxed), 0);
    }
}
