//! Presence and heartbeat of a worker.
//!
//! Presence is two locked files, one for the worker's name and one for this life of it ([`super::presence`]).
//! When the process dies the system lets go of them at once, and a keeper looks for workers whose file
//! nobody holds. The heartbeat has a writer of its own, so that it never queues behind other requests.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Row;
use sqlx::types::Json;
use uuid::Uuid;

use super::presence::Held;
use super::writer::Writer;
use super::{Sqlite, Transaction, hex};
use crate::job::lease::{Holder, Token};
use crate::job::name::JobId;
use crate::store::contract::{Beat, Join, JoinError, Member, StoreError, WorkerReport};
use crate::store::row::as_micros;

/// How many of one name may work side by side: `host`, `host-2` … Beyond that it is a mistake.
const NAMESAKES_MAX: u32 = 1_000;

struct SqliteMember {
    holder: Holder,
    join: Join,
    store: Sqlite,
    /// The locks of the name and of this life. The name's may have gone to another process.
    presence: (Option<Held>, Option<Held>),
    pulse: Writer,
}

pub(super) async fn join(store: &Sqlite, join: &Join) -> Result<Box<dyn Member>, JoinError> {
    let mut name = join.name.clone();
    let mut namesake = 1;
    let held = loop {
        if let Some(held) = store.presence.take(&name_lock(&name))? {
            break held;
        }
        namesake += 1;
        if join.strict || namesake > NAMESAKES_MAX {
            return Err(JoinError::NameTaken(name));
        }
        name = format!("{}-{namesake}", join.name);
    };
    let holder = Holder::new(name);
    let life = store.presence.take(&life_lock(&holder))?;
    let pulse = match store.readers {
        Some(_) => Writer::spawn(store.options.clone(), false, store.outbox)?,
        None => store.writer.clone(),
    };
    let member = SqliteMember {
        holder,
        join: join.clone(),
        store: store.clone(),
        presence: (Some(held), life),
        pulse,
    };
    member.renew(&[], Duration::ZERO, &WorkerReport::default()).await?;
    // T9: the name is this process's now, and whoever had it is gone.
    let (holder, presence) = (member.holder.clone(), store.presence.clone());
    member
        .pulse
        .write(async move |tx| {
            let former = sqlx::query(
                "
                select distinct incarnation from jobs
                 where state = 'running' and holder = $1 and incarnation <> $2 and leased_until > $3
                ",
            )
            .bind(&holder.name)
            .bind(holder.incarnation)
            .bind(tx.now);
            for row in tx.rows(former).await? {
                let life: Uuid = row.try_get("incarnation")?;
                // Held while its leases end, so that it is not back in between.
                let Some(_gone) = presence.take(&life.to_string())? else { continue };
                let query = sqlx::query(
                    "
                    update jobs set leased_until = $2
                     where state = 'running' and incarnation = $1 and leased_until > $2
                    ",
                )
                .bind(life)
                .bind(tx.now);
                tx.run(query).await?;
            }
            Ok::<_, StoreError>(())
        })
        .await?;
    Ok(Box::new(member))
}

impl SqliteMember {
    /// Leases renewed, and the row by which keepers and people know this life of the worker.
    async fn renew(
        &self,
        leases: &[(JobId, Token)],
        lease: Duration,
        report: &WorkerReport,
    ) -> Result<Vec<Beat>, StoreError> {
        let given: Vec<Value> = leases.iter().map(|(job, token)| json!([hex(job.0), hex(token.0)])).collect();
        let (report, holder, join) = (json!(report), self.holder.clone(), self.join.clone());
        let renewed = self
            .pulse
            .write(async move |tx| {
                let query = sqlx::query(
                    "
                    insert into workers (incarnation, name, presence, kinds, slots, report, started_at, seen_at)
                    values ($1, $2, $3, $4, $5, $6, $7, $7)
                    on conflict (incarnation) do update set seen_at = excluded.seen_at, report = excluded.report
                    ",
                )
                .bind(holder.incarnation)
                .bind(&holder.name)
                .bind(life_lock(&holder))
                .bind(Json(join.kinds))
                .bind(i32::try_from(join.slots).unwrap_or(i32::MAX))
                .bind(report)
                .bind(tx.now);
                tx.run(query).await?;
                renew_on(tx, given, lease).await
            })
            .await?;
        Ok(leases
            .iter()
            .map(|(job, token)| renewed.get(&(job.0, token.0)).copied().unwrap_or(Beat::Lost))
            .collect())
    }

    /// Takes up again what of the presence was taken away; what still stands is never let go of. Another
    /// process may hold the name by now: this one's leases are fenced whatever happens, so it goes on
    /// under its incarnation.
    async fn reappear(&mut self) -> Result<(), StoreError> {
        let (name, life) = &mut self.presence;
        for (held, key) in [(name, name_lock(&self.holder.name)), (life, life_lock(&self.holder))] {
            if !stands(held) {
                *held = self.store.presence.take(&key)?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Member for SqliteMember {
    fn holder(&self) -> &Holder {
        &self.holder
    }

    async fn beat(
        &mut self,
        leases: &[(JobId, Token)],
        lease: Duration,
        report: &WorkerReport,
    ) -> Result<Vec<Beat>, StoreError> {
        let beats = self.renew(leases, lease, report).await?;
        if !stands(&self.presence.0) || !stands(&self.presence.1) {
            self.reappear().await?;
        }
        Ok(beats)
    }

    async fn leave(mut self: Box<Self>) -> Result<(), StoreError> {
        let incarnation = self.holder.incarnation;
        self.pulse
            .write(async move |tx| {
                tx.run(sqlx::query("delete from workers where incarnation = $1").bind(incarnation)).await?;
                Ok(())
            })
            .await
    }
}

async fn renew_on(
    tx: &mut Transaction<'_>,
    given: Vec<Value>,
    lease: Duration,
) -> Result<HashMap<(Uuid, Uuid), Beat>, StoreError> {
    let query = sqlx::query(
        "
        update jobs as j
           set leased_until = max(j.leased_until, $2 + $3)
          from json_each($1) g
         where j.id = unhex(g.value->>0) and j.token = unhex(g.value->>1) and j.state = 'running'
        returning id, token, cancel_asked
        ",
    )
    .bind(Value::from(given))
    .bind(tx.now)
    .bind(as_micros(lease));
    let mut renewed = HashMap::new();
    for row in tx.rows(query).await? {
        let lease: (Uuid, Uuid) = (row.try_get("id")?, row.try_get("token")?);
        renewed.insert(lease, Beat::Renewed { cancel_asked: row.try_get("cancel_asked")? });
    }
    Ok(renewed)
}

fn stands(held: &Option<Held>) -> bool {
    held.as_ref().is_some_and(Held::stands)
}

/// A name may hold what a file's may not, so its hash stands for it.
fn name_lock(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let short: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("name-{short}")
}

fn life_lock(holder: &Holder) -> String {
    holder.incarnation.to_string()
}
