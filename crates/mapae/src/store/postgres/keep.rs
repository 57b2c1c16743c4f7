//! What a keeper asks for: the windows, the next that is due, the events. Ringing is in `ring.rs`, ends in `end.rs`.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;

use super::Postgres;
use super::ask::Ask;
use super::window::offered_lanes;
use crate::job::name::{JobId, Lane};
use crate::store::contract::{
    DOUBLINGS_MAX, Keep, LaneWindow, OwnerTurn, Reaped, RingPlan, Rung, StoreError,
};
use crate::store::row::{as_micros, big, lane, unreadable};

#[async_trait]
impl Keep for Postgres {
    async fn ring(&self, plan: &RingPlan) -> Result<Vec<Rung>, StoreError> {
        self.ring_all(plan).await
    }

    async fn rung(&self, pointers: &[(JobId, u32)], age: Duration) -> Result<(), StoreError> {
        sqlx::query(
            "
            with mine as (
                -- In the order of claims. One that is held is being claimed: it need not be rung again.
                select j.id, j.state, j.hint
                  from unnest($1::uuid[], $2::integer[]) g (id, hint)
                  join mapae.jobs j on j.id = g.id and j.hint = g.hint
                 where j.id = any($1) and j.state = 'pending'
                 order by j.id
                   for update of j skip locked
            )
            update mapae.jobs j
               set ring_at = now() + $3 * power(2, least(mine.hint - 1, $4)) * interval '1 microsecond'
              from mine
             where j.id = mine.id and j.state = mine.state and j.hint = mine.hint
            ",
        )
        .bind(pointers.iter().map(|(job, _)| job.0).collect::<Vec<_>>())
        .bind(pointers.iter().map(|(_, hint)| i32::try_from(*hint).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(as_micros(age))
        .bind(i32::try_from(DOUBLINGS_MAX).unwrap_or(i32::MAX))
        .done(&self.pool)
        .await?;
        Ok(())
    }

    async fn windows(&self, cap: usize) -> Result<Vec<LaneWindow>, StoreError> {
        let rows = sqlx::query(concat!(
            offered_lanes!(),
            "
            select l.lane, (select count(*) from (select from mapae.jobs j
                             where j.lane = l.lane and j.state = 'pending' and j.hint > 0 limit $1) w) as waiting,
                   (select j.turn from mapae.jobs j where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                     order by j.turn limit 1)                                                       as turn
              from lanes l
             where l.lane is not null
            ",
        ))
        .bind(i64::try_from(cap).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(LaneWindow {
                    lane: lane(row.try_get("lane")?)?,
                    waiting: usize::try_from(row.try_get::<i64, _>("waiting")?).map_err(unreadable)?,
                    turn: big(row.try_get("turn")?)?,
                })
            })
            .collect()
    }

    async fn withdraw(&self, window: usize, max: usize) -> Result<usize, StoreError> {
        self.withdraw_beyond(window, max).await
    }

    async fn turns(&self, max: usize) -> Result<Vec<OwnerTurn>, StoreError> {
        self.turns_of_owners(max).await
    }

    async fn rung_ago(&self, lanes: &[(Lane, usize)], age: Duration) -> Result<Vec<Duration>, StoreError> {
        let rows = sqlx::query(
            "
            select (extract(epoch from now() - n.rung) * 1000000)::bigint as ago
              from unnest($1::text[], $2::bigint[]) with ordinality g (lane, count, place)
             cross join lateral (
                   select min(r.rung) as rung
                     from (select j.ring_at - $3 * power(2, least(j.hint - 1, $4)) * interval '1 microsecond' as rung
                             from mapae.jobs j
                            where j.lane = g.lane and j.state = 'pending' and j.hint > 0
                            order by rung desc limit g.count) r) n
             order by g.place
            ",
        )
        .bind(lanes.iter().map(|(lane, _)| lane.to_string()).collect::<Vec<_>>())
        .bind(lanes.iter().map(|(_, count)| i64::try_from(*count).unwrap_or(i64::MAX)).collect::<Vec<_>>())
        .bind(as_micros(age))
        .bind(i32::try_from(DOUBLINGS_MAX).unwrap_or(i32::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                let ago = row.try_get::<Option<i64>, _>("ago")?;
                Ok(Duration::from_micros(ago.unwrap_or(0).max(0).unsigned_abs()))
            })
            .collect()
    }

    async fn next_due(&self, horizon: Duration) -> Result<Option<Duration>, StoreError> {
        let row = sqlx::query(
            "
            with recursive lanes (lane) as (
                (select lane from mapae.jobs where state = 'pending' and hint = 0 order by lane limit 1)
                union all
                select (select j.lane from mapae.jobs j
                         where j.state = 'pending' and j.hint = 0 and j.lane > l.lane order by j.lane limit 1)
                  from lanes l where l.lane is not null
            )
            select (extract(epoch from min(due) - now()) * 1000000)::bigint as wait
              from (select (select j.due_at from mapae.jobs j
                             where j.lane = l.lane and j.state = 'pending' and j.hint = 0
                             order by j.due_at limit 1) as due
                      from lanes l
                     where l.lane is not null and not exists (select from mapae.pauses p where p.lane = l.lane)) d
            ",
        )
        .one(&self.pool)
        .await?;
        let wait = row.try_get::<Option<i64>, _>("wait")?;
        Ok(wait.map(|wait| Duration::from_micros(wait.max(0).unsigned_abs())).filter(|wait| *wait <= horizon))
    }

    async fn reap(&self, max: usize) -> Result<Vec<Reaped>, StoreError> {
        self.reap_all(max).await
    }

    async fn expire(&self, max: usize) -> Result<usize, StoreError> {
        self.expire_all(max).await
    }
}
