//! Tells everybody who follows events that there may be new ones, with one query for all of them.

use std::sync::Arc;
use std::time::Duration;

use mapae::store::contract::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often the store is asked while anybody follows.
const EVERY: Duration = Duration::from_millis(200);

/// Counts up whenever the stream of all events has grown.
pub(super) struct Feed(watch::Sender<u64>);

impl Default for Feed {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Feed {
    /// From now on the receiver changes within moments of a new event.
    pub(super) fn follow(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    /// Watches until `stop`, resting while nobody follows.
    pub(super) fn start(&self, store: Arc<dyn Store>, stop: CancellationToken) {
        let bell = self.0.clone();
        tokio::spawn(async move {
            let mut last = None;
            while !stop.is_cancelled() {
                if bell.receiver_count() > 0 {
                    // A database that does not answer tells nothing new.
                    if let Ok(position) = store.last_position().await
                        && last.replace(position) != Some(position)
                    {
                        bell.send_modify(|count| *count = count.wrapping_add(1));
                    }
                }
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(EVERY) => {}
                }
            }
        });
    }
}
