//! What a keeper asks for: the windows, the next that is due, the events. Ringing is in `ring.rs`, ends in `end.rs`.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;

use super::ring::outbox_lanes;
use super::window::offered_lanes;
use super::{Sqlite, hex, limit, now, one};
use crate::job::name::{JobId, Lane};
use crate::store::contract::{
    DOUBLINGS_MAX, Keep, LaneWindow, OwnerTurn, Reaped, RingPlan, Rung, StoreError,
};
use crate::store::row::{as_micros, big, lane, unreadable};

#[async_trait]
impl Keep for Sqlite {
    async fn ring(&self, plan: &RingPlan) -> Result<Vec<Rung>, StoreError> {
        self.ring_all(plan).await
    }

    async fn rung(&self, pointers: &[(JobId, u32)], age: Duration) -> Result<(), StoreError> {
        let given: Value = pointers
            .iter()
            .map(|(job, hint)| {
                let wait = age.saturating_mul(1 << hint.saturating_sub(1).min(DOUBLINGS_MAX));
                json!([hex(job.0), hint, as_micros(wait)])
            })
            .collect();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update jobs as j
                   set ring_at = $2 + (g.value->>2)
                  from json_each($1) g
                 where j.id = unhex(g.value->>0) and j.state = 'pending' and j.hint = g.value->>1
                ",
            )
            .bind(given)
            .bind(tx.now);
            tx.run(query).await?;
            Ok(())
        })
        .await
    }

    async fn windows(&self, cap: usize) -> Result<Vec<LaneWindow>, StoreError> {
        let query = sqlx::query(concat!(
            offered_lanes!(),
            "
            select l.lane, (select count(*) from (select 1 from jobs j
                             where j.lane = l.lane and j.state = 'pending' and j.hint > 0 limit $1)) as waiting,
                   (select j.turn from jobs j where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                     order by j.turn limit 1) as turn
              from lanes l
             where l.lane is not null
            ",
        ))
        .bind(limit(cap));
        self.rows(query)
            .await?
            .iter()
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
        let mut waits = Vec::with_capacity(lanes.len());
        for (lane, count) in lanes {
            let query = sqlx::query(concat!(
                "
                select ",
                now!(),
                " - min(rung) as ago
                  from (select j.ring_at - $1 * (1 << min(j.hint - 1, $2)) as rung from jobs j
                         where j.lane = $3 and j.state = 'pending' and j.hint > 0
                         order by rung desc limit $4)
                ",
            ))
            .bind(as_micros(age))
            .bind(DOUBLINGS_MAX)
            .bind(lane.to_string())
            .bind(limit(*count));
            let ago = one(self.row(query).await?)?.try_get::<Option<i64>, _>("ago")?;
            waits.push(Duration::from_micros(ago.unwrap_or(0).max(0).unsigned_abs()));
        }
        Ok(waits)
    }

    async fn next_due(&self, horizon: Duration) -> Result<Option<Duration>, StoreError> {
        let query = sqlx::query(concat!(
            outbox_lanes!(),
            "
            select min(due) - ",
            now!(),
            " as wait
              from (select (select j.due_at from jobs j
                             where j.lane = l.lane and j.state = 'pending' and j.hint = 0
                             order by j.due_at limit 1) as due
                      from lanes l
                     where l.lane is not null and not exists (select 1 from pauses p where p.lane = l.lane))
            ",
        ));
        let wait = one(self.row(query).await?)?.try_get::<Option<i64>, _>("wait")?;
        Ok(wait.map(|wait| Duration::from_micros(wait.max(0).unsigned_abs())).filter(|wait| *wait <= horizon))
    }

    async fn reap(&self, max: usize) -> Result<Vec<Reaped>, StoreError> {
        self.reap_some(max).await
    }

    async fn expire(&self, max: usize) -> Result<usize, StoreError> {
        self.expire_some(max).await
    }
}
