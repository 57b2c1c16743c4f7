//! The hot window from outside: what is beyond it, and whose turns it holds.

use sqlx::Row;

use super::Postgres;
use super::ask::Ask;
use crate::job::name::Owner;
use crate::store::contract::{OwnerTurn, StoreError};
use crate::store::row::{big, lane, unreadable};

/// The lanes with jobs that are offered, one step in the index for each.
macro_rules! offered_lanes {
    () => {
        "
            with recursive lanes (lane) as (
                (select lane from mapae.jobs where state = 'pending' and hint > 0 order by lane limit 1)
                union all
                select (select j.lane from mapae.jobs j
                         where j.state = 'pending' and j.hint > 0 and j.lane > l.lane order by j.lane limit 1)
                  from lanes l where l.lane is not null
            )"
    };
}
pub(super) use offered_lanes;

impl Postgres {
    /// What is offered beyond twice the window is its own outbox again.
    pub(super) async fn withdraw_beyond(&self, window: usize, max: usize) -> Result<usize, StoreError> {
        let window = i64::try_from(window).unwrap_or(i64::MAX / 4);
        let done = sqlx::query(concat!(
            offered_lanes!(),
            ", beyond as (
                select x.id
                  from lanes l
                 cross join lateral (
                       select j.turn, j.id from mapae.jobs j
                        where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                        order by j.turn, j.id offset $1 limit 1) last
                 cross join lateral (
                       select j.id from mapae.jobs j
                        where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                          and (j.turn, j.id) >= (last.turn, last.id)
                        order by j.turn desc, j.id desc limit $3
                          for update skip locked) x
                 where l.lane is not null
                   and exists (select from mapae.jobs j
                                where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                                order by j.turn, j.id offset $2 limit 1)
                 limit $3
            )
            update mapae.jobs j
               set hint = 0, turn = null, ring_at = null
             where j.id = any(array(select id from beyond)) and j.state = 'pending' and j.hint > 0
            ",
        ))
        .bind(window)
        .bind(2 * window)
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .done(&self.pool)
        .await?;
        Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
    }

    /// One look at the index for each owner.
    pub(super) async fn turns_of_owners(&self, max: usize) -> Result<Vec<OwnerTurn>, StoreError> {
        let rows = sqlx::query(
            "
            with recursive owners (lane, owner) as (
                (select lane, owner from mapae.jobs where state = 'pending' and hint > 0 order by lane, owner limit 1)
                union all
                select n.lane, n.owner
                  from owners o
                 cross join lateral (
                       select j.lane, j.owner from mapae.jobs j
                        where j.state = 'pending' and j.hint > 0 and (j.lane, j.owner) > (o.lane, o.owner)
                        order by j.lane, j.owner limit 1) n
            )
            select o.lane, o.owner, t.turn
              from (select lane, owner from owners limit $1) o
             cross join lateral (
                   select j.turn from mapae.jobs j
                    where j.lane = o.lane and j.owner = o.owner and j.state = 'pending' and j.hint > 0
                    order by j.turn desc limit 1) t
            ",
        )
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(OwnerTurn {
                    lane: lane(row.try_get("lane")?)?,
                    owner: Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?,
                    turn: big(row.try_get("turn")?)?,
                })
            })
            .collect()
    }
}
