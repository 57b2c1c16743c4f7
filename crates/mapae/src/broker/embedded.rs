//! No broker at all: rung rows are claimed from the database itself, and this only wakes whoever waits.
//!
//! | contract | here |
//! |---|---|
//! | `publish` | rings the bell; the rows were marked by the store |
//! | `next` | waits for the bell; gives no deliveries |
//! | `orphans`, `hold`, `settle`, `hand_back` | nothing: there are no pointers |
//!
//! The bell rings within the process through a channel, and in other processes through a *line*: on
//! PostgreSQL a `NOTIFY` of its own after the commit, rate-limited (inside the accepting transaction it
//! would serialise all commits); beside a SQLite file a socket for each listening process. A bell that
//! is not heard costs one idle poll, nothing more.

mod postgres;
mod sockets;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::{Mutex, watch};

use super::BrokerPlan;
use super::contract::{
    Broker, BrokerError, BrokerStats, Caps, Delivery, Health, Hold, Intake, IntakePlan, Pointer, Published,
    Receipt, Settle, Settled, Settling, Source,
};
use crate::job::name::Lane;

/// Rings in other processes, and hears them ring.
trait Line: Send + Sync {
    /// Never waits; may be lost.
    fn ring(&self);

    /// From now on rings heard from elsewhere are counted up in `bell`, until the listener is dropped.
    fn listen(&self, bell: watch::Sender<u64>) -> Box<dyn Send + Sync>;
}

/// No other process can see these rows.
struct Alone;

impl Line for Alone {
    fn ring(&self) {}

    fn listen(&self, _: watch::Sender<u64>) -> Box<dyn Send + Sync> {
        Box::new(())
    }
}

struct Embedded {
    bell: watch::Sender<u64>,
    line: Box<dyn Line>,
}

pub(super) fn open(plan: &BrokerPlan) -> Result<Arc<dyn Broker>, BrokerError> {
    let line: Box<dyn Line> = match plan.database_url.split(':').next().unwrap_or_default() {
        "postgres" | "postgresql" => Box::new(postgres::Notices::new(&plan.database_url)?),
        "sqlite" if !plan.database_url.contains(":memory:") => {
            Box::new(sockets::Sockets::beside(&plan.database_url))
        }
        _ => Box::new(Alone),
    };
    Ok(Arc::new(Embedded { bell: watch::Sender::new(0), line }))
}

fn ring(bell: &watch::Sender<u64>) {
    bell.send_modify(|rings| *rings = rings.wrapping_add(1));
}

#[async_trait]
impl Broker for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn caps(&self) -> Caps {
        Caps { source: Source::Rows, settling: Settling::AtFinish, holds: false }
    }

    async fn ensure(&self, _: &[Lane]) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn publish(&self, pointers: &[(Lane, Pointer)]) -> Vec<Published> {
        ring(&self.bell);
        self.line.ring();
        pointers.iter().map(|_| Published::Accepted).collect()
    }

    async fn open(&self, _: &IntakePlan) -> Result<Arc<dyn Intake>, BrokerError> {
        let heard = self.bell.subscribe();
        let listener = self.line.listen(self.bell.clone());
        Ok(Arc::new(Bell { heard: Mutex::new(heard), _listener: listener }))
    }

    /// The store counts better: there is nothing here that it does not know.
    async fn stats(&self, _: &Lane) -> Result<BrokerStats, BrokerError> {
        Ok(BrokerStats::default())
    }
}

struct Bell {
    heard: Mutex<watch::Receiver<u64>>,
    _listener: Box<dyn Send + Sync>,
}

#[async_trait]
impl Intake for Bell {
    async fn next(&self, _: usize, _: &[Lane], wait: Duration) -> Result<Vec<Delivery>, BrokerError> {
        // A ring since the last call returns at once, so none is missed between a look and the wait.
        let mut heard = self.heard.lock().await;
        let _ = tokio::time::timeout(wait, heard.changed()).await;
        Ok(Vec::new())
    }

    async fn orphans(&self, _: usize) -> Result<Vec<Delivery>, BrokerError> {
        Ok(Vec::new())
    }

    async fn hold(&self, receipts: &[Receipt]) -> Vec<Hold> {
        receipts.iter().map(|_| Hold::Unsupported).collect()
    }

    async fn settle(&self, receipts: &[(Receipt, Settle)]) -> Vec<Settled> {
        receipts.iter().map(|_| Settled::Ok).collect()
    }

    async fn hand_back(&self, _: &[Receipt]) -> Result<(), BrokerError> {
        Ok(())
    }

    fn health(&self) -> Health {
        // There is nothing to read from: what can fail here is the store, which readiness asks itself.
        Health { last_read: Some(Instant::now()), failures_in_a_row: 0, epoch: 1 }
    }

    async fn close(&self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::lease::Holder;

    fn plan(url: &str) -> BrokerPlan {
        BrokerPlan { url: "embedded:".into(), database_url: url.into() }
    }

    fn intake() -> IntakePlan {
        IntakePlan { lanes: vec![], consumer: Holder::new("w"), take_over_idle: Duration::from_secs(40) }
    }

    #[tokio::test]
    async fn a_ring_between_two_waits_is_not_missed() {
        let broker = open(&plan("sqlite::memory:")).unwrap();
        let intake = broker.open(&intake()).await.unwrap();
        broker.publish(&[]).await;
        let began = Instant::now();
        intake.next(1, &[], Duration::from_secs(60)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "waited instead of hearing the bell");
    }

    #[tokio::test]
    async fn a_bell_beside_a_database_file_is_heard_by_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/jobs.db", folder.path().display());
        // Two opened brokers share nothing but the file's place, as two processes do.
        let (here, there) = (open(&plan(&url)).unwrap(), open(&plan(&url)).unwrap());
        let intake = there.open(&intake()).await.unwrap();
        here.publish(&[]).await;
        let began = Instant::now();
        intake.next(1, &[], Duration::from_secs(60)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "waited instead of hearing the bell");
    }

    /// On the server that the tests are given. A listener that comes late may miss a ring, as a worker may: it polls.
    #[tokio::test]
    async fn a_bell_of_a_postgresql_is_heard_by_another_process() {
        let Ok(url) = std::env::var("MAPAE_TEST_POSTGRES") else { return };
        let (here, there) = (open(&plan(&url)).unwrap(), open(&plan(&url)).unwrap());
        let intake = there.open(&intake()).await.unwrap();
        let ringing = tokio::spawn(async move {
            loop {
                here.publish(&[]).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let began = Instant::now();
        intake.next(1, &[], Duration::from_secs(60)).await.unwrap();
        // A second one: that the listener came is a ring as well.
        intake.next(1, &[], Duration::from_secs(60)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "waited instead of hearing the bell");
        ringing.abort();
    }
}
