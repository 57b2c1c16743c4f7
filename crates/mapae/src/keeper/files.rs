//! Files, and rows past their retention: what nobody refers to any more goes.

use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use tracing::{info, warn};

use super::{BATCH, BREATH, Keeper};
use crate::blob::{Area, BlobName};
use crate::fault::{self, Point};
use crate::store::contract::{Garbage, StoreError};

/// How often it prunes, and how often it looks through the file store.
const PRUNE: Duration = Duration::from_secs(30);
const SWEEP: Duration = Duration::from_secs(3600);

/// How long a file nobody refers to is left alone: longer than any upload or attempt takes.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// The longest a broker may take to put pointers back.
const SWEEP_PATIENCE: Duration = Duration::from_secs(10);

impl Keeper {
    pub(super) async fn files(&self) -> Result<Duration, StoreError> {
        // Where one pass was not enough the next one follows at once.
        let wait = if self.prune().await? { BREATH } else { PRUNE };
        // A broker that does not answer is told of by whoever needs it.
        if let Ok(Ok(swept @ 1..)) =
            tokio::time::timeout(SWEEP_PATIENCE, self.parts.broker.sweep(BATCH)).await
        {
            warn!(swept, "the broker had put pointers aside; they are offered again");
        }
        let due = {
            let mut swept_at = self.swept_at.lock().unwrap_or_else(PoisonError::into_inner);
            let due = swept_at.elapsed() >= SWEEP;
            if due {
                *swept_at = Instant::now();
            }
            due
        };
        if due {
            self.sweep().await?;
        }
        Ok(wait)
    }

    /// Whether there was as much as one pass takes.
    async fn prune(&self) -> Result<bool, StoreError> {
        fault::at(Point::PruneAsked);
        let pruned = self.parts.store.prune(&self.plan.retention, BATCH).await?;
        if pruned.buried + pruned.expired > 0 {
            fault::at(Point::PruneKept);
            info!(buried = pruned.buried, expired = pruned.expired, "pruned");
        }
        // Nothing is removed from a store that is not the database's.
        let garbage = match self.parts.blobs.verify().await {
            Ok(()) => self.parts.store.garbage(BATCH).await?,
            Err(_) => Vec::new(),
        };
        let full = garbage.len() >= BATCH;
        let mut swept: Vec<Garbage> = Vec::with_capacity(garbage.len());
        for file in garbage {
            // What is not a file of ours cannot be there.
            let gone = match BlobName::parse(&file.file) {
                Ok(name) => self.parts.blobs.delete(&name).await.is_ok(),
                Err(_) => true,
            };
            if gone {
                fault::at(Point::GarbageGone);
                swept.push(file);
            }
        }
        self.parts.store.swept(&swept).await?;
        if !swept.is_empty() {
            fault::at(Point::GarbageKept);
        }
        // What could not be removed would be tried again at once, for ever.
        Ok(full && !swept.is_empty() || pruned.buried >= BATCH || pruned.expired >= BATCH)
    }

    /// Files that no row refers to: of attempts that were lost, and of uploads that were never accepted.
    async fn sweep(&self) -> Result<(), StoreError> {
        let Some(before) = SystemTime::now().checked_sub(ORPHAN_AGE) else { return Ok(()) };
        if let Err(error) = self.parts.blobs.verify().await {
            warn!(code = error.code(), "files of nobody are not looked for in this file store");
            return Ok(());
        }
        let _ = self.parts.blobs.remove_unfinished(before).await;
        for area in [Area::Originals, Area::Results] {
            let mut chunks = self.parts.blobs.list(area, before).ready_chunks(BATCH);
            while let Some(chunk) = chunks.next().await {
                let files: Vec<BlobName> = chunk.into_iter().flatten().map(|listed| listed.name).collect();
                let names: Vec<String> = files.iter().map(ToString::to_string).collect();
                let kept = self.parts.store.referenced(&names).await?;
                for name in files.iter().filter(|name| !kept.iter().any(|kept| kept == name.as_str())) {
                    let _ = self.parts.blobs.delete(name).await;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::accept::Window;
    use crate::blob::{Blobs, PutLimits};
    use crate::broker::{self, BrokerPlan};
    use crate::job::name::{Kind, Owner};
    use crate::job::record::{NewJob, Source};
    use crate::keeper::KeeperPlan;
    use crate::keeper::tell::{TellPlan, Teller};
    use crate::store::contract::{Control, Retention};
    use crate::store::memory::Memory;
    use crate::worker::Parts;

    #[tokio::test]
    async fn only_old_files_that_no_row_refers_to_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&format!("file:{}", folder.path().display())).unwrap();
        let plan = BrokerPlan { url: "embedded:".into(), database_url: "memory:".into() };
        let store = Arc::new(Memory::in_real_time());
        let broker = broker::open(&plan).unwrap();
        let window = Arc::new(Window::new(1_000, broker.caps().source));
        let parts = Parts { store: store.clone(), broker, blobs: blobs.clone(), metrics: Arc::default() };
        let plan = KeeperPlan {
            window,
            rescan_after: Duration::from_secs(60),
            retention: Retention::default(),
            tell: TellPlan::default(),
            bell: Arc::default(),
            schedules: Vec::new(),
        };
        let teller = Teller::new(parts.clone(), TellPlan::default(), CancellationToken::new());
        let keeper = Keeper::new(parts, plan, teller);

        let mut job = NewJob::new(Owner::new("o").unwrap(), Kind::new("k").unwrap(), Value::Null);
        let of_a_job = BlobName::original(job.id.0);
        let orphans = [(); 3].map(|()| BlobName::original(uuid::Uuid::new_v4()));
        for name in orphans.iter().chain([&of_a_job]) {
            let body = futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"x"))]);
            blobs.put(name, body, PutLimits { bytes_max: 9 }).await.unwrap();
        }
        job.source = Some(Source {
            name: "a.txt".into(),
            bytes: 1,
            sha256: "0".into(),
            media_type: "text/plain".into(),
            file: of_a_job.to_string(),
        });
        store.accept(job).await.unwrap();
        let past = SystemTime::now() - 2 * ORPHAN_AGE;
        for old in [&orphans[0], &orphans[1], &of_a_job] {
            let file = std::fs::File::options().write(true).open(folder.path().join(old.as_str())).unwrap();
            file.set_modified(past).unwrap();
        }

        keeper.sweep().await.unwrap();

        let there = [&orphans[0], &orphans[1], &orphans[2], &of_a_job]
            .map(|name| folder.path().join(name.as_str()).exists());
        assert_eq!(
            there,
            [false, false, true, true],
            "the young one may be an upload that is not accepted yet"
        );
    }
}
