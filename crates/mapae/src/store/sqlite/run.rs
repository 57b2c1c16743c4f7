//! What a worker asks for. Claims are in `claim.rs`, settling in `settle.rs`; every write carries the token.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use sqlx::Row;

use super::claim::{claim_plain, claim_pointers};
use super::gate::claim_limited;
use super::{Sqlite, Told, Transaction, tell};
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
impl Run for Sqlite {
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
        let (holder, pointers) = (holder.clone(), pointers.to_vec());
        let (limits, room, unreadable) = (self.limits(), room.to_vec(), self.unreadable.clone());
        self.write(async move |tx| {
            let claims = claim_pointers(tx, &holder, &pointers, lease, &limits, &room).await;
            unreadable.fetch_add(std::mem::take(&mut tx.unreadable), Ordering::Relaxed);
            claims
        })
        .await
    }

    async fn claim_lanes(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
        room: &[Room],
    ) -> Result<Claimed, StoreError> {
        let (holder, limits, room) = (holder.clone(), self.limits(), room.to_vec());
        let lanes = in_turn(lanes, &limits, &room);
        let unreadable = self.unreadable.clone();
        self.write(async move |tx| {
            let mut claimed = Claimed::default();
            for (limited, lanes) in lanes {
                let left = max - claimed.holdings.len();
                if lanes.is_empty() || left == 0 {
                    continue;
                }
                if limited {
                    let some = claim_limited(tx, &holder, &lanes, left, lease, &limits, &room).await?;
                    claimed.holdings.extend(some.holdings);
                    claimed.stops.extend(some.stops);
                } else {
                    claimed.holdings.extend(claim_plain(tx, &holder, &lanes, left, lease).await?);
                }
            }
            unreadable.fetch_add(std::mem::take(&mut tx.unreadable), Ordering::Relaxed);
            Ok(claimed)
        })
        .await
    }

    async fn taken(&self, holder: &Holder, since: Duration) -> Result<Vec<(JobId, Token)>, StoreError> {
        let incarnation = holder.incarnation;
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                select id, token from jobs
                 where state = 'running' and incarnation = $1 and started_at >= $2
                ",
            )
            .bind(incarnation)
            .bind(tx.now - as_micros(since));
            let rows = tx.rows(query).await?;
            rows.iter().map(|row| Ok((JobId(row.try_get("id")?), Token(row.try_get("token")?)))).collect()
        })
        .await
    }

    async fn settle(&self, settlement: Settlement) -> Result<State, SettleError> {
        self.settles.ask(settlement).await?
    }

    async fn progress(&self, lease: &Lease, progress: &Progress) -> Result<(), SettleError> {
        let (lease, progress) = (lease.clone(), json!(progress));
        self.write(async move |tx| {
            let query = sqlx::query(
                "update jobs set progress = $3 where id = $1 and token = $2 and state = 'running'",
            )
            .bind(lease.job.0)
            .bind(lease.token.0)
            .bind(progress);
            if tx.run(query).await? > 0 { Ok(()) } else { Err(refused(tx, &lease).await?) }
        })
        .await
    }

    async fn checkpoint(&self, lease: &Lease, checkpoint: &Checkpoint) -> Result<(), SettleError> {
        let (lease, checkpoint) = (lease.clone(), checkpoint.clone());
        self.write(async move |tx| checkpoint_on(tx, &lease, &checkpoint).await).await
    }

    async fn checkpoints(&self, job: JobId) -> Result<Vec<Checkpoint>, StoreError> {
        let query =
            sqlx::query("select stage, output, took_us from checkpoints where job = $1 order by rowid")
                .bind(job.0);
        self.rows(query)
            .await?
            .iter()
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

/// A stage and its event, under the job's token.
pub(super) async fn checkpoint_on(
    tx: &mut Transaction<'_>,
    lease: &Lease,
    checkpoint: &Checkpoint,
) -> Result<(), SettleError> {
    let query = sqlx::query(
        "
        update jobs set sequence = sequence + 1
         where id = $1 and token = $2 and state = 'running'
        returning attempt, holder
        ",
    )
    .bind(lease.job.0)
    .bind(lease.token.0);
    let Some(row) = tx.row(query).await? else { return Err(refused(tx, lease).await?) };
    let query = sqlx::query(
        "insert or replace into checkpoints (job, stage, output, took_us, at) values ($1, $2, $3, $4, $5)",
    )
    .bind(lease.job.0)
    .bind(&checkpoint.stage)
    .bind(json!(checkpoint.output))
    .bind(as_micros(checkpoint.took))
    .bind(tx.now);
    tx.run(query).await?;
    let told = Told {
        job: lease.job.0,
        event: "stage".into(),
        attempt: row.try_get("attempt").map_err(StoreError::from)?,
        worker: row.try_get("holder").map_err(StoreError::from)?,
        code: Some(checkpoint.stage.clone()),
    };
    Ok(tell(tx, &[told]).await?)
}

/// What no row changed means.
pub(super) async fn refused(tx: &mut Transaction<'_>, lease: &Lease) -> Result<SettleError, StoreError> {
    let query = sqlx::query(
        "select state from jobs where id = $1 and not (delete_asked and finished_at is not null)",
    )
    .bind(lease.job.0);
    let row = tx.row(query).await?;
    Ok(SettleError::LeaseLost(row.map(|row| state(row.try_get("state")?)).transpose()?))
}
