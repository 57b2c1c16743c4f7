//! Heartbeat of a worker, and its standing in the store.

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

use super::Postgres;
use super::ask::{Ask, within};
use super::presence::{Presence, absent, connect, lock, name_lock};
use crate::job::lease::{Holder, Token};
use crate::job::name::JobId;
use crate::store::contract::{Beat, Join, JoinError, Member, PATIENCE, StoreError, WorkerReport};
use crate::store::row::as_micros;

/// How many of one name may work side by side: `host`, `host-2` … Beyond that it is a mistake.
const NAMESAKES_MAX: u32 = 1_000;

/// The least that an answer to a beat is waited for before another connection is tried.
const BEAT_MIN: Duration = Duration::from_secs(1);

struct PgMember {
    holder: Holder,
    join: Join,
    store: Postgres,
    presence: Presence,
    pulse: PgConnection,
}

pub(super) async fn join(store: &Postgres, join: &Join) -> Result<Box<dyn Member>, JoinError> {
    let mut session = connect(store).await?;
    let mut name = join.name.clone();
    let mut namesake = 1;
    while !lock(&mut session, name_lock(&name)).await? {
        namesake += 1;
        if join.strict || namesake > NAMESAKES_MAX {
            return Err(JoinError::NameTaken(name));
        }
        name = format!("{}-{namesake}", join.name);
    }
    let holder = Holder::new(name);
    let mut member = PgMember {
        presence: Presence::begin(store, session, &holder).await?,
        pulse: connect(store).await?,
        holder,
        join: join.clone(),
        store: store.clone(),
    };
    member.renew(&[], Duration::ZERO, &WorkerReport::default()).await?;
    // T9: the name is this process's now, and whoever had it is gone. That all locks are free after a restart
    // of the server proves nothing of those who have not told of themselves since: keepers judge them.
    sqlx::query(concat!(
        "
        update mapae.jobs j set leased_until = now()
         where j.state = 'running' and j.holder = $1 and j.incarnation <> $2 and j.leased_until > now()
           and not exists (select from mapae.workers w
                            where w.incarnation = j.incarnation
                              and (w.presence is null or w.seen_at <= pg_postmaster_start_time() or not ",
        absent!(),
        "))
        ",
    ))
    .bind(&member.holder.name)
    .bind(member.holder.incarnation)
    .done(&mut member.pulse)
    .await?;
    Ok(Box::new(member))
}

impl PgMember {
    /// Leases renewed, and the row by which keepers and people know this life of the worker. A row that another
    /// transaction holds is passed over: the others' leases must not wait for it.
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
                   for update of j skip locked
            ), renewed as (
                update mapae.jobs j
                   set leased_until = greatest(j.leased_until, now() + $3 * interval '1 microsecond')
                  from mine
                 where j.id = any(array(select id from mine)) and j.id = mine.id and j.state = 'running'
                returning j.id, j.token, j.cancel_asked
            )
            select id, token, cancel_asked, true as renewed from renewed
            union all
            select j.id, j.token, false, false
              from unnest($1::uuid[], $2::uuid[]) g (id, token)
              join mapae.jobs j on j.id = g.id and j.token = g.token
             where j.id = any($1) and j.state = 'running' and not exists (select from mine m where m.id = j.id)
            ",
        )
        .bind(leases.iter().map(|(job, _)| job.0).collect::<Vec<_>>())
        .bind(leases.iter().map(|(_, token)| token.0).collect::<Vec<_>>())
        .bind(as_micros(lease))
        .bind(self.holder.incarnation)
        .bind(&self.holder.name)
        .bind(self.presence.claimed())
        .bind(self.join.kinds.iter().map(ToString::to_string).collect::<Vec<_>>())
        .bind(i32::try_from(self.join.slots).unwrap_or(i32::MAX))
        .bind(serde_json::json!(report))
        .rows(&mut self.pulse)
        .await?;
        beats(&rows, leases)
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
        self.presence.appear().await;
        // Another connection may answer, and the leases do not wait for long.
        let patience = match report.heartbeat_ms {
            0 => PATIENCE,
            told => Duration::from_millis(told).clamp(BEAT_MIN, PATIENCE),
        };
        let renewed = tokio::time::timeout(patience, self.renew(leases, lease, report)).await;
        let beats = match renewed.unwrap_or_else(|_| Err(StoreError::Unavailable("no answer in time".into())))
        {
            // A connection that failed once is not trusted again.
            Err(StoreError::Unavailable(_)) => {
                self.pulse = connect(&self.store).await?;
                within(self.renew(leases, lease, report)).await?
            }
            other => other?,
        };
        self.presence.said();
        Ok(beats)
    }

    async fn leave(mut self: Box<Self>) -> Result<(), StoreError> {
        sqlx::query("delete from mapae.workers where incarnation = $1")
            .bind(self.holder.incarnation)
            .done(&mut self.pulse)
            .await?;
        self.pulse.close().await?;
        self.presence.end().await
    }
}

/// The answer to each lease, of rows that have been renewed, or passed over because another transaction has them.
pub(super) fn beats(rows: &[PgRow], leases: &[(JobId, Token)]) -> Result<Vec<Beat>, StoreError> {
    let mut answers = HashMap::with_capacity(rows.len());
    for row in rows {
        let lease: (Uuid, Uuid) = (row.try_get("id")?, row.try_get("token")?);
        let beat = match row.try_get("renewed")? {
            true => Beat::Renewed { cancel_asked: row.try_get("cancel_asked")? },
            false => Beat::Busy,
        };
        answers.insert(lease, beat);
    }
    let answer = |(job, token): &(JobId, Token)| answers.get(&(job.0, token.0)).copied();
    Ok(leases.iter().map(|lease| answer(lease).unwrap_or(Beat::Lost)).collect())
}
