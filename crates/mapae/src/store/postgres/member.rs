//! Presence and heartbeat of a worker.
//!
//! Presence is a connection that does nothing but hold two advisory locks, one for the worker's name and
//! one for this life of it. When the process dies the server notices within milliseconds, because the
//! session is idle, and the locks are free; a keeper looks for workers whose lock nobody holds. Through a
//! pooler that shares sessions this does not work: then the lease alone decides.

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use sqlx::{Connection, PgConnection, Row};
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

use super::Postgres;
use super::ask::{Ask, within};
use crate::job::lease::{Holder, Token};
use crate::job::name::JobId;
use crate::store::contract::{Beat, Join, JoinError, Member, StoreError, WorkerReport};
use crate::store::row::as_micros;

/// How many of one name may work side by side: `host`, `host-2` … Beyond that it is a mistake.
const NAMESAKES_MAX: u32 = 1_000;

/// How long the presence may take to show itself: leases wait behind it.
const GLANCE: Duration = Duration::from_secs(1);

struct PgMember {
    holder: Holder,
    join: Join,
    store: Postgres,
    presence: PgConnection,
    /// Which of its locks the presence holds: of the name, of this life.
    held: (bool, bool),
    /// A presence that did not answer in time. The server may believe in it still, and so may the row: it is let
    /// go of only once the row says otherwise, or a keeper would see a row that claims a lock nobody holds.
    former: Option<PgConnection>,
    pulse: PgConnection,
}

pub(super) async fn join(store: &Postgres, join: &Join) -> Result<Box<dyn Member>, JoinError> {
    let mut presence = connect(store).await?;
    let mut name = join.name.clone();
    let mut namesake = 1;
    while !lock(&mut presence, name_lock(&name)).await? {
        namesake += 1;
        if join.strict || namesake > NAMESAKES_MAX {
            return Err(JoinError::NameTaken(name));
        }
        name = format!("{}-{namesake}", join.name);
    }
    let holder = Holder::new(name);
    let held = (true, lock(&mut presence, life_lock(&holder)).await?);
    let mut member = PgMember {
        pulse: connect(store).await?,
        holder,
        join: join.clone(),
        store: store.clone(),
        presence,
        held,
        former: None,
    };
    member.renew(&[], Duration::ZERO, &WorkerReport::default()).await?;
    // T9: whoever had this name before has no presence any more, or this process would not have it.
    sqlx::query(
        "
        update mapae.jobs set leased_until = now()
         where state = 'running' and holder = $1 and incarnation <> $2 and leased_until > now()
        ",
    )
    .bind(&member.holder.name)
    .bind(member.holder.incarnation)
    .done(&mut member.pulse)
    .await?;
    Ok(Box::new(member))
}

impl PgMember {
    /// Leases renewed, and the row by which keepers and people know this life of the worker.
    async fn renew(
        &mut self,
        leases: &[(JobId, Token)],
        lease: Duration,
        report: &WorkerReport,
    ) -> Result<Vec<Beat>, StoreError> {
        let rows = sqlx::query(
            "
            with seen as (
                insert into mapae.workers (incarnation, name, presence, kinds, slots, report, started_at, seen_at)
                values ($4, $5, $6, $7, $8, $9, now(), now())
                on conflict (incarnation) do update
                   set seen_at = now(), report = excluded.report, presence = excluded.presence
            ), mine as (
                select j.id
                  from unnest($1::uuid[], $2::uuid[]) g (id, token)
                  join mapae.jobs j on j.id = g.id and j.token = g.token
                 where j.id = any($1) and j.state = 'running'
                 order by j.id
                   for update of j
            )
            update mapae.jobs j
               set leased_until = greatest(j.leased_until, now() + $3 * interval '1 microsecond')
              from mine
             where j.id = any(array(select id from mine)) and j.id = mine.id and j.state = 'running'
            returning j.id, j.token, j.cancel_asked
            ",
        )
        .bind(leases.iter().map(|(job, _)| job.0).collect::<Vec<_>>())
        .bind(leases.iter().map(|(_, token)| token.0).collect::<Vec<_>>())
        .bind(as_micros(lease))
        .bind(self.holder.incarnation)
        .bind(&self.holder.name)
        .bind(self.held.1.then(|| life_lock(&self.holder)))
        .bind(self.join.kinds.iter().map(ToString::to_string).collect::<Vec<_>>())
        .bind(i32::try_from(self.join.slots).unwrap_or(i32::MAX))
        .bind(serde_json::json!(report))
        .rows(&mut self.pulse)
        .await?;
        let mut renewed = HashMap::with_capacity(rows.len());
        for row in rows {
            let lease: (Uuid, Uuid) = (row.try_get("id")?, row.try_get("token")?);
            renewed.insert(lease, Beat::Renewed { cancel_asked: row.try_get("cancel_asked")? });
        }
        Ok(leases
            .iter()
            .map(|(job, token)| renewed.get(&(job.0, token.0)).copied().unwrap_or(Beat::Lost))
            .collect())
    }

    /// Takes up what of the presence is missing. Until the server has let go of a lost connection its locks
    /// are not to be had; then this worker says that it has none, and keepers judge it by its leases alone.
    /// Another process may hold the name by now: this one goes on under its incarnation.
    async fn appear(&mut self) -> Result<(), StoreError> {
        let pinged = tokio::time::timeout(GLANCE, self.presence.ping()).await;
        if !matches!(pinged, Ok(Ok(()))) {
            self.held = (false, false);
            let next = connect(&self.store).await?;
            let former = std::mem::replace(&mut self.presence, next);
            self.former.get_or_insert(former);
        }
        if !self.held.0 {
            self.held.0 = lock(&mut self.presence, name_lock(&self.holder.name)).await?;
        }
        if !self.held.1 {
            self.held.1 = lock(&mut self.presence, life_lock(&self.holder)).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Member for PgMember {
    fn holder(&self) -> &Holder {
        &self.holder
    }

    async fn beat(
        &mut self,
        leases: &[(JobId, Token)],
        lease: Duration,
        report: &WorkerReport,
    ) -> Result<Vec<Beat>, StoreError> {
        // The row must not claim a presence that is not there.
        if !matches!(tokio::time::timeout(2 * GLANCE, self.appear()).await, Ok(Ok(()))) {
            self.held.1 = false;
        }
        let beats = match within(self.renew(leases, lease, report)).await {
            // A connection that failed once is not trusted again.
            Err(StoreError::Unavailable(_)) => {
                self.pulse = connect(&self.store).await?;
                within(self.renew(leases, lease, report)).await?
            }
            other => other?,
        };
        self.former = None;
        Ok(beats)
    }

    async fn leave(mut self: Box<Self>) -> Result<(), StoreError> {
        sqlx::query("delete from mapae.workers where incarnation = $1")
            .bind(self.holder.incarnation)
            .done(&mut self.pulse)
            .await?;
        self.pulse.close().await?;
        self.presence.close().await?;
        Ok(())
    }
}

async fn connect(store: &Postgres) -> Result<PgConnection, StoreError> {
    within(PgConnection::connect_with(&store.options)).await
}

async fn lock(connection: &mut PgConnection, key: i64) -> Result<bool, StoreError> {
    let row = sqlx::query("select pg_try_advisory_lock($1) as got").bind(key).one(connection).await?;
    Ok(row.try_get("got")?)
}

fn name_lock(name: &str) -> i64 {
    key(&["mapae worker name", name])
}

fn life_lock(holder: &Holder) -> i64 {
    key(&["mapae worker life", &holder.incarnation.to_string()])
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
