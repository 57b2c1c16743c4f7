//! The hot window from outside: what is beyond it, and whose turns it holds.

use sqlx::Row;

use super::{Sqlite, limit};
use crate::job::name::Owner;
use crate::store::contract::{OwnerTurn, StoreError};
use crate::store::row::{big, lane, unreadable};

/// The lanes with jobs that are offered, one step in the index for each.
macro_rules! offered_lanes {
    () => {
        "
            with recursive lanes (lane) as (
                select min(lane) from jobs where state = 'pending' and hint > 0
                union all
                select (select min(j.lane) from jobs j where j.state = 'pending' and j.hint > 0 and j.lane > l.lane)
                  from lanes l where l.lane is not null
            )"
    };
}
pub(super) use offered_lanes;

impl Sqlite {
    /// What is offered beyond twice the window is its own outbox again.
    pub(super) async fn withdraw_beyond(&self, window: usize, max: usize) -> Result<usize, StoreError> {
        let (window, max) = (limit(window).min(i64::MAX / 4), limit(max));
        let query = sqlx::query(concat!(
            offered_lanes!(),
            "
            select l.lane,
                   (select j.turn from jobs j where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                     order by j.turn, j.id limit 1 offset $1) as turn,
                   (select j.id from jobs j where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                     order by j.turn, j.id limit 1 offset $1) as id
              from lanes l
             where l.lane is not null
               and exists (select 1 from jobs j where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                            limit 1 offset $2)
            ",
        ));
        let lanes = self.rows(query.bind(window).bind(2 * window)).await?;
        if lanes.is_empty() {
            return Ok(0);
        }
        self.write(async move |tx| {
            let mut withdrawn = 0;
            for row in &lanes {
                let query = sqlx::query(
                    "
                    update jobs set hint = 0, turn = null, ring_at = null
                     where id in (select id from jobs
                                   where lane = $1 and state = 'pending' and hint > 0 and (turn, id) >= ($2, $3)
                                   order by turn desc, id desc limit $4)
                       and state = 'pending' and hint > 0
                    ",
                )
                .bind(row.try_get::<String, _>("lane")?)
                .bind(row.try_get::<i64, _>("turn")?)
                .bind(row.try_get::<Vec<u8>, _>("id")?)
                .bind(max - limit(withdrawn));
                withdrawn += usize::try_from(tx.run(query).await?).unwrap_or(usize::MAX);
            }
            Ok(withdrawn)
        })
        .await
    }

    /// One look at the index for each owner.
    pub(super) async fn turns_of_owners(&self, max: usize) -> Result<Vec<OwnerTurn>, StoreError> {
        let query = sqlx::query(
            "
            with recursive owners (lane, owner) as (
                select lane, owner from (select lane, owner from jobs
                                          where state = 'pending' and hint > 0 and lane > ''
                                          order by lane, owner limit 1)
                union all
                select n.lane, n.owner
                  from owners known
                 cross join jobs n on n.rowid = (
                       select j.rowid from jobs j
                        where j.state = 'pending' and j.hint > 0 and (j.lane, j.owner) > (known.lane, known.owner)
                        order by j.lane, j.owner limit 1)
                 limit $1
            )
            select known.lane, known.owner,
                   (select j.turn from jobs j
                     where j.lane = known.lane and j.owner = known.owner and j.state = 'pending' and j.hint > 0
                     order by j.turn desc limit 1) as turn
              from owners known
            ",
        );
        self.rows(query.bind(limit(max)))
            .await?
            .iter()
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
