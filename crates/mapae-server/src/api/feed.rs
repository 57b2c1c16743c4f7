//! Events as they come, read once for everybody who follows them: whoever waits for something to happen is woken,
//! and streams of all events are given what was read.

use std::sync::Arc;
use std::time::Duration;

use mapae::job::event::{Event, Position};
use mapae::store::contract::{EventFilter, Scope, Store, StoreError};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

/// How often the store is asked while anybody follows.
const EVERY: Duration = Duration::from_millis(200);

/// Events read at a time.
const BATCH: usize = 1_000;

/// Pages kept for streams that are slow. Who is slower still reads for himself.
const PAGES_MAX: usize = 32;

pub(super) struct Feed {
    /// Counts up whenever there are new events.
    bell: watch::Sender<u64>,
    pages: broadcast::Sender<Arc<Page>>,
}

/// All events between two positions, of all owners: whoever hands them out looks at whose they are.
#[derive(Debug)]
pub(super) struct Page {
    /// All that stand at or before it were read before.
    pub after: Position,
    /// Where the last of them stands.
    pub to: Position,
    pub events: Vec<Event>,
}

impl Default for Feed {
    fn default() -> Self {
        Self { bell: watch::Sender::new(0), pages: broadcast::Sender::new(PAGES_MAX) }
    }
}

impl Feed {
    /// From now on the receiver changes within moments of a new event.
    pub(super) fn follow(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    /// From now on the receiver is given all events.
    pub(super) fn pages(&self) -> broadcast::Receiver<Arc<Page>> {
        self.pages.subscribe()
    }

    /// Watches until `stop`, resting while nobody follows.
    pub(super) fn start(&self, store: Arc<dyn Store>, stop: CancellationToken) {
        let (bell, pages) = (self.bell.clone(), self.pages.clone());
        tokio::spawn(async move {
            let mut after = None;
            while !stop.is_cancelled() {
                let followed = bell.receiver_count() + pages.receiver_count() > 0;
                // A database that does not answer tells nothing new.
                let page = if followed { read(&*store, &mut after).await } else { Ok(None) };
                if !followed {
                    after = None;
                }
                let full = page.as_ref().is_ok_and(|page| page.as_ref().is_some_and(Page::is_full));
                if let Ok(Some(page)) = page {
                    let _ = pages.send(Arc::new(page));
                    bell.send_modify(|count| *count = count.wrapping_add(1));
                }
                let wait = if full { Duration::ZERO } else { EVERY };
                let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
            }
        });
    }
}

impl Page {
    fn is_full(&self) -> bool {
        self.events.len() >= BATCH
    }
}

/// What has come after `after`. Where nobody followed until now that is not known: an empty page says from where on
/// it is, so that whoever has read less looks for himself.
async fn read(store: &dyn Store, after: &mut Option<Position>) -> Result<Option<Page>, StoreError> {
    let Some(from) = *after else {
        let from = store.last_position().await?;
        *after = Some(from);
        return Ok(Some(Page { after: from, to: from, events: Vec::new() }));
    };
    let filter = EventFilter { job: None, after: from };
    let events = store.events(&Scope::All, &filter, BATCH).await?;
    let Some(to) = events.iter().map(|event| event.position).max() else { return Ok(None) };
    *after = Some(to);
    Ok(Some(Page { after: from, to, events }))
}
