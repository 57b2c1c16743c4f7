//! What a worker asks for. Claims are in `claim.rs`, settling in `settle.rs`; every write carries the token.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{PgConnection, PgExecutor, Row};

use super::ask::{Ask, within};
use super::{AT_ONCE_MAX, Postgres};
use crate::job::State;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::name::{JobId, Owner};
use crate::job::record::{Checkpoint, Progress};
use crate::job::resource::Room;
use crate::store::contract::{
    Claim, Claimed, Gates, Join, JoinError, LaneQuota, Member, Run, SettleError, Settlement, StoreError,
};
use crate::store::limited::in_turn;
use crate::store::row::{as_micros, state, unreadable};

#[async_trait]
impl Run for Postgres {
    async fn join(&self, join: &Join) -> Result<Box<dyn Member>, JoinError> {
        super::member::join(self, join).await
    }

    async fn claim_pointers(
        &self,
        holder: &Holder,
        pointers: &[(JobId, Owner)],
        lease: Duration,
        room: &[Room],
    ) -> Result<Vec<Claim>, StoreError> {
        let mut claims = Vec::with_capacity(pointers.len());
        for pointers in pointers.chunks(AT_ONCE_MAX) {
            match self.claim_some(holder, pointers, lease, room).await {
                Ok(some) => claims.extend(some),
                Err(error) if claims.is_empty() => return Err(error),
                // What is claimed already is not given up for it.
                Err(error) => {
                    super::claim::told_of(&error);
                    claims.extend(pointers.iter().map(|_| Claim::Later(super::claim::HELD_WAIT)));
                }
            }
        }
        Ok(claims)
    }

    async fn claim_lanes(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
        room: &[Room],
    ) -> Result<Claimed, StoreError> {
        let mut claimed = Claimed::default();
        for (limited, lanes) in in_turn(lanes, &self.limits(), room) {
            let left = max.min(AT_ONCE_MAX) - claimed.holdings.len();
            if lanes.is_empty() || left == 0 {
                continue;
            }
            let some = match limited {
                true => self.claim_limited(holder, &lanes, left, lease, room).await,
                false => {
                    let plain = self.claim_plain(holder, &lanes, left, lease).await;
                    plain.map(|holdings| Claimed { holdings, ..Claimed::default() })
                }
            };
            match some {
                Ok(some) => {
                    claimed.holdings.extend(some.holdings);
                    claimed.stops.extend(some.stops);
                }
                Err(error) if claimed.holdings.is_empty() => return Err(error),
                // What is claimed already is not given up for it.
                Err(error) => {
                    super::claim::told_of(&error);
                    claimed.unsure = true;
                }
            }
        }
        Ok(claimed)
    }

    async fn taken(&self, holder: &Holder, since: Duration) -> Result<Vec<(JobId, Token)>, StoreError> {
        let rows = sqlx::query(
            "
            select id, token from mapae.jobs
             where state = 'running' and incarnation = $1
               and started_at >= now() - $2 * interval '1 microsecond'
            ",
        )
        .bind(holder.incarnation)
        .bind(as_micros(since))
        .rows(&self.pool)
        .await?;
        rows.iter().map(|row| Ok((JobId(row.try_get("id")?), Token(row.try_get("token")?)))).collect()
    }

    async fn settle(&self, settlement: Settlement) -> Result<State, SettleError> {
        if !self.writes_back(&settlement).await? {
            return self.settles.ask(settlement).await?;
        }
        // A record that somebody else has locked is waited for among others like it, and keeps nobody from its place.
        match self.written.ask(settlement.clone()).await {
            Err(StoreError::Locked(_)) => self.patient.ask(settlement).await?,
            answer => answer?,
        }
    }

    async fn progress(&self, lease: &Lease, progress: &Progress) -> Result<(), SettleError> {
        let done = sqlx::query(
            "update mapae.jobs set progress = $3 where id = $1 and token = $2 and state = 'running'",
        )
        .bind(lease.job.0)
        .bind(lease.token.0)
        .bind(serde_json::json!(progress))
        .done(&self.pool)
        .await?;
        if done.rows_affected() > 0 { Ok(()) } else { Err(lost(&self.pool, lease).await?) }
    }

    async fn checkpoint(&self, lease: &Lease, checkpoint: &Checkpoint) -> Result<(), SettleError> {
        let mut connection = within(self.pool.acquire()).await?;
        checkpoint_on(&mut connection, lease, checkpoint, self.outbox).await
    }

    async fn checkpoints(&self, job: JobId) -> Result<Vec<Checkpoint>, StoreError> {
        let rows = sqlx::query(
            "select stage, output, took_us from mapae.checkpoints where job = $1 order by at, stage",
        )
        .bind(job.0)
        .rows(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Checkpoint {
                    stage: row.try_get("stage")?,
                    output: serde_json::from_value(row.try_get("output")?)
                        .map_err(|_| unreadable("a checkpoint that cannot be read"))?,
                    took: Duration::from_micros(crate::store::row::big(row.try_get("took_us")?)?),
                })
            })
            .collect()
    }
}

/// A stage and its event in one statement, under the job's token.
pub(super) async fn checkpoint_on(
    connection: &mut PgConnection,
    lease: &Lease,
    checkpoint: &Checkpoint,
    outbox: bool,
) -> Result<(), SettleError> {
    let done = sqlx::query(
        "
        with held as (
            update mapae.jobs set sequence = sequence + 1
             where id = $1 and token = $2 and state = 'running'
            returning id, owner, kind, sequence, attempt, holder
        ), kept as (
            insert into mapae.checkpoints (job, stage, output, took_us, at)
            select id, $3, $4, $5, clock_timestamp() from held
            on conflict (job, stage) do update
               set output = excluded.output, took_us = excluded.took_us, at = excluded.at
        ), told as (
            insert into mapae.events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
            select id, sequence, owner, kind, 'stage', now(), attempt, holder, $3, not $6 from held
        )
        select id from held
        ",
    )
    .bind(lease.job.0)
    .bind(lease.token.0)
    .bind(&checkpoint.stage)
    .bind(serde_json::json!(checkpoint.output))
    .bind(as_micros(checkpoint.took))
    .bind(outbox)
    .rows(&mut *connection)
    .await?;
    if done.is_empty() { Err(lost(connection, lease).await?) } else { Ok(()) }
}

/// What no row changed means.
pub(super) async fn lost(on: impl PgExecutor<'_>, lease: &Lease) -> Result<SettleError, StoreError> {
    let row = sqlx::query(
        "select state from mapae.jobs where id = $1 and not (delete_asked and finished_at is not null)",
    )
    .bind(lease.job.0)
    .maybe(on)
    .await?;
    let found = row.map(|row| row.try_get("state").map_err(StoreError::from).and_then(state)).transpose()?;
    Ok(SettleError::LeaseLost(found))
}
