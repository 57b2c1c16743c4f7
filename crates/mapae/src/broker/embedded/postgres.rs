//! The line between processes that share a PostgreSQL database: `NOTIFY`, on a connection of its own,
//! never in the transaction that accepts, and never more often than [`PAUSE`] allows.

use std::sync::OnceLock;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{Connection, PgConnection};
use tokio::sync::{mpsc, watch};

use super::Line;
use crate::broker::contract::BrokerError;

const CHANNEL: &str = "mapae_bell";

/// Shortest time between two notices of a process.
const PAUSE: Duration = Duration::from_millis(5);

/// The longest the server may take to answer: a line cut without a word is given up then.
const PATIENCE: Duration = Duration::from_secs(5);

/// After so long without a notice the listener looks whether its line still stands.
const SILENCE: Duration = Duration::from_secs(15);

/// Waits between attempts to connect, doubling.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

pub(super) struct Notices {
    options: PgConnectOptions,
    /// Started at the first ring, for it needs a runtime.
    sender: OnceLock<mpsc::Sender<()>>,
}

impl Notices {
    pub(super) fn new(url: &str) -> Result<Self, BrokerError> {
        // The message may repeat the address, and with it a password.
        let options =
            url.parse().map_err(|_| BrokerError::Fatal("database.url is not a PostgreSQL address".into()))?;
        Ok(Self { options, sender: OnceLock::new() })
    }
}

impl Line for Notices {
    fn ring(&self) {
        let sender = self.sender.get_or_init(|| {
            let (sender, rings) = mpsc::channel(1);
            tokio::spawn(notify(self.options.clone(), rings));
            sender
        });
        // A full channel means that a notice is about to go out anyway.
        let _ = sender.try_send(());
    }

    fn listen(&self, bell: watch::Sender<u64>) -> Box<dyn Send + Sync> {
        Box::new(Listening(tokio::spawn(listen(self.options.clone(), bell))))
    }
}

struct Listening(tokio::task::JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a notice for each ring, many rings in one, until the broker is dropped.
async fn notify(options: PgConnectOptions, mut rings: mpsc::Receiver<()>) {
    let mut connection: Option<PgConnection> = None;
    while rings.recv().await.is_some() {
        if connection.is_none() {
            // A notice that cannot be sent is dropped: workers poll.
            let connecting = tokio::time::timeout(PATIENCE, PgConnection::connect_with(&options)).await;
            connection = connecting.ok().and_then(Result::ok);
        }
        if let Some(open) = &mut connection {
            let notice = sqlx::query("select pg_notify($1, '')").bind(CHANNEL).execute(open);
            if !matches!(tokio::time::timeout(PATIENCE, notice).await, Ok(Ok(_))) {
                connection = None;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listen(options: PgConnectOptions, bell: watch::Sender<u64>) {
    let mut wait = RETRY.0;
    loop {
        if let Some(mut listener) = connect(&options).await {
            wait = RETRY.0;
            // Whatever rang while nobody listened.
            super::ring(&bell);
            while let Some(rung) = heard(&mut listener).await {
                if rung {
                    super::ring(&bell);
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// Whether the bell rang, or `None` where the line is gone.
async fn heard(listener: &mut PgListener) -> Option<bool> {
    match tokio::time::timeout(SILENCE, listener.try_recv()).await {
        Ok(notice) => notice.ok().flatten().map(|_| true),
        Err(_) => {
            let ping = sqlx::query("select 1").execute(listener);
            tokio::time::timeout(PATIENCE, ping).await.ok()?.ok().map(|_| false)
        }
    }
}

async fn connect(options: &PgConnectOptions) -> Option<PgListener> {
    let connecting = async {
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(CHANNEL).await?;
        Ok::<_, sqlx::Error>(listener)
    };
    tokio::time::timeout(PATIENCE, connecting).await.ok()?.ok()
}
