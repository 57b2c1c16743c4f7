//! Who is alive: a connection that does nothing but hold two advisory locks, one for the worker's name and
//! one for this life of it. When the process dies the server notices within milliseconds, because the
//! session is idle, and the locks are free; a keeper looks for workers whose lock nobody holds.
//!
//! Behind a pooler that shares the server's sessions (transaction mode) a lock stays with whatever session
//! took it, and goes with that, while the connection lives on and no error tells. A presence found so is
//! never claimed again: the lease alone decides.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::Postgres;
use super::ask::{Ask, within};
use crate::job::lease::Holder;
use crate::store::contract::StoreError;

/// How long the presence may take to show itself: leases wait behind it.
const GLANCE: Duration = Duration::from_secs(1);

/// How many sessions are kept busy while a lock is looked for: a pooler has that many to give before the one
/// with the lock would be free again.
const BUSY: usize = 3;

/// Nobody holds the lock of the life of worker `w`.
macro_rules! absent {
    () => {
        "not exists (
            select from pg_locks l
             where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and l.classid::bigint = (w.presence >> 32) & 4294967295
               and l.objid::bigint = w.presence & 4294967295)"
    };
}
pub(super) use absent;

pub(super) struct Presence {
    store: Postgres,
    session: PgConnection,
    name: i64,
    life: i64,
    /// Which of its locks the session holds: of the name, of this life.
    held: (bool, bool),
    /// A session that did not answer in time. The server may believe in it still, and so may the row: it is let
    /// go of only once the row says otherwise, or a keeper would see a row that claims a lock nobody holds.
    former: Option<PgConnection>,
    /// Its locks were gone without an error: others have its session at times.
    shared: bool,
}

impl Presence {
    /// The presence of `holder`, whose name `session` holds already.
    pub(super) async fn begin(
        store: &Postgres,
        mut session: PgConnection,
        holder: &Holder,
    ) -> Result<Self, StoreError> {
        let life = key(&["mapae worker life", &holder.incarnation.to_string()]);
        let held = (true, lock(&mut session, life).await?);
        let shared = held.1 && !lasts(store, &mut session, life).await?;
        let name = name_lock(&holder.name);
        let presence = Self { store: store.clone(), session, name, life, held, former: None, shared };
        if shared {
            presence.tell();
        }
        Ok(presence)
    }

    /// The lock by which keepers may judge this worker; none while it holds none.
    pub(super) fn claimed(&self) -> Option<i64> {
        (self.held.1 && !self.shared).then_some(self.life)
    }

    /// What was claimed is there, and what was missing has been taken up if it is to be had; within two
    /// seconds. Nothing is claimed that is not there.
    pub(super) async fn appear(&mut self) {
        if !matches!(tokio::time::timeout(2 * GLANCE, self.take_up()).await, Ok(Ok(()))) {
            self.held.1 = false;
        }
    }

    /// The row has said what [`Presence::claimed`] is.
    pub(super) fn said(&mut self) {
        self.former = None;
    }

    pub(super) async fn end(self) -> Result<(), StoreError> {
        Ok(self.session.close().await?)
    }

    /// Until the server has let go of a lost connection its locks are not to be had; then this worker says that
    /// it has none, and keepers judge it by its leases alone. Another process may hold the name by now: this
    /// one goes on under its incarnation.
    async fn take_up(&mut self) -> Result<(), StoreError> {
        match tokio::time::timeout(GLANCE, holds(&mut self.session, self.life)).await {
            Ok(Ok(holds)) => {
                if self.held.1 && !holds && !self.shared {
                    self.shared = true;
                    self.tell();
                }
            }
            _ => {
                self.held = (false, false);
                let next = connect(&self.store).await?;
                let former = std::mem::replace(&mut self.session, next);
                self.former.get_or_insert(former);
            }
        }
        if self.shared {
            return Ok(());
        }
        if !self.held.0 {
            self.held.0 = lock(&mut self.session, self.name).await?;
        }
        if !self.held.1 {
            self.held.1 = lock(&mut self.session, self.life).await?;
        }
        Ok(())
    }

    fn tell(&self) {
        tracing::warn!(
            "the database gives this worker's session to others too, as a pooler in transaction mode does: \
             if this host is lost its jobs wait for the end of their leases; connect directly or in session mode"
        );
    }
}

/// Whether a lock lasts as long as the connection that took it, so that a presence can be seen.
pub(super) async fn is_seen(store: &Postgres) -> Result<bool, StoreError> {
    let mut session = connect(store).await?;
    let life = key(&["mapae looks whether a lock lasts", &uuid::Uuid::new_v4().to_string()]);
    let seen = lock(&mut session, life).await? && lasts(store, &mut session, life).await?;
    if seen {
        session.close().await?;
    }
    Ok(seen)
}

/// Whether the lock is still the session's while others are at work: a pooler that shares sessions has given
/// away the one that took it.
async fn lasts(store: &Postgres, session: &mut PgConnection, key: i64) -> Result<bool, StoreError> {
    let mut others = Vec::with_capacity(BUSY);
    for _ in 0..BUSY {
        let mut other = connect(store).await?;
        within(sqlx::raw_sql("begin; select 1").execute(&mut other)).await?;
        others.push(other);
    }
    let holds = holds(session, key).await;
    for other in others {
        within(other.close()).await?;
    }
    holds
}

pub(super) async fn connect(store: &Postgres) -> Result<PgConnection, StoreError> {
    within(PgConnection::connect_with(&store.options)).await
}

pub(super) async fn lock(connection: &mut PgConnection, key: i64) -> Result<bool, StoreError> {
    let row = sqlx::query("select pg_try_advisory_lock($1) as got").bind(key).one(connection).await?;
    Ok(row.try_get("got")?)
}

/// Whether the session that answers holds the lock. One message each way, so that one session answers.
async fn holds(connection: &mut PgConnection, key: i64) -> Result<bool, StoreError> {
    let statement = format!(
        "
        select exists (
            select from pg_locks l
             where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.pid = pg_backend_pid()
               and l.classid::bigint = ({key}::bigint >> 32) & 4294967295
               and l.objid::bigint = {key}::bigint & 4294967295) as holds
        "
    );
    let row = within(sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(connection)).await?;
    Ok(row.try_get("holds")?)
}

pub(super) fn name_lock(name: &str) -> i64 {
    key(&["mapae worker name", name])
}

/// Advisory locks are numbers: the first 64 bits of a hash.
fn key(parts: &[&str]) -> i64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}
