//! Ringing: what is due gets its turn (T2), and what may have been lost its next (T8).

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Row;

use super::{Sqlite, Transaction, limit};
use crate::job::limit::EachOwner;
use crate::job::name::{JobId, Lane, Owner};
use crate::store::contract::{Gates, RingPlan, Rung, StoreError};
use crate::store::row::{as_micros, count, lane, unreadable};

/// How many owners one pass goes round for a lane. Owners beyond come in by age, then by later passes.
const OWNERS_MAX: i64 = 64;

/// The lanes with jobs that are not rung yet, one step in the index for each.
macro_rules! outbox_lanes {
    () => {
        "
        with recursive lanes (lane) as (
            select min(lane) from jobs where state = 'pending' and hint = 0
            union all
            select (select min(j.lane) from jobs j where j.state = 'pending' and j.hint = 0 and j.lane > l.lane)
              from lanes l where l.lane is not null
        )"
    };
}
pub(super) use outbox_lanes;

/// The owners who have jobs in lane $1 that are due at $4 and not rung, each found by two looks at the index. Those whose
/// jobs come later take no place of theirs.
macro_rules! owners {
    () => {
        "
        with recursive named (owner) as (
            select min(owner) from jobs where lane = $1 and state = 'pending' and hint = 0
            union all
            select (select min(j.owner) from jobs j
                     where j.lane = $1 and j.state = 'pending' and j.hint = 0 and j.owner > last.owner)
              from named last where last.owner is not null
        ), owners (owner) as (
            select owner from named
             where owner is not null
               and exists (select 1 from jobs j
                            where j.lane = $1 and j.owner = named.owner and j.state = 'pending' and j.hint = 0
                              and j.due_at <= $4)
        ), "
    };
}

/// The end of both ways to ring: what is `taken (id, owner, due_at)` gets its turn. Binds $1 lane, $3 again,
/// $4 now. Without its `in` the planner goes through the whole outbox for the few that are placed.
macro_rules! take_turns {
    () => {
        "
            base (turn) as (
                select coalesce((select w.turn from jobs w
                                  where w.lane = $1 and w.state = 'pending' and w.hint > 0
                                  order by w.turn limit 1), 0)
            ), waiting as (
                select owner, count(*) as jobs
                  from (select owner from jobs where lane = $1 and state = 'pending' and hint > 0
                         order by turn limit 1000)
                 group by owner
            ), placed as materialized (
                select t.id, base.turn + coalesce(mine.jobs, 0)
                           + row_number() over (partition by t.owner order by t.due_at, t.id) as turn
                  from taken t
                 cross join base
                  left join waiting mine on mine.owner = t.owner
            )
            update jobs as j
               set hint = 1, turn = placed.turn, ring_at = $4 + $3
              from placed
             where j.id in (select id from placed) and j.id = placed.id
               and j.state = 'pending' and j.hint = 0 and j.due_at <= $4
            returning id, owner, lane, hint, trace, turn
        "
    };
}

impl Sqlite {
    /// T2, and T8 where the plan says so.
    pub(super) async fn ring_all(&self, plan: &RingPlan) -> Result<Vec<Rung>, StoreError> {
        let (plan, limits) = (plan.clone(), self.limits());
        self.write(async move |tx| {
            let mut rung = match &plan.rescan {
                Some(patience) => ring_again(tx, &plan, patience).await?,
                None => Vec::new(),
            };
            for (lane, room) in lanes_to_ring(tx, &plan).await? {
                let room = room.min(limit(plan.max.saturating_sub(rung.len())));
                if room == 0 {
                    break;
                }
                let kind = self::lane(&lane)?.kind;
                if let Some(each) = limits.each_owner(&kind) {
                    rung.extend(ring_each(tx, &lane, room, plan.again, &each).await?);
                    continue;
                }
                let fair = ring_fair(tx, &lane, room, plan.again).await?;
                let rest = room - limit(fair.len());
                rung.extend(fair);
                if rest > 0 {
                    rung.extend(ring_oldest(tx, &lane, rest, plan.again).await?);
                }
            }
            Ok(rung)
        })
        .await
    }
}

/// T8: rows rung before whose time has come again. They are in their windows already.
async fn ring_again(
    tx: &mut Transaction<'_>,
    plan: &RingPlan,
    patience: &[(Lane, Duration)],
) -> Result<Vec<Rung>, StoreError> {
    let patience: Value =
        patience.iter().map(|(lane, patience)| json!([lane.to_string(), as_micros(*patience)])).collect();
    let query = sqlx::query(
        "
        update jobs
           set hint = hint + 1, ring_at = $3 + $1
         where id in (select r.id from jobs r
                       where r.state = 'pending' and r.hint > 0 and r.ring_at <= $3 and r.due_at <= $3
                         and r.ring_at <= $3 - coalesce((select p.value->>1 from json_each($4) p
                                                          where p.value->>0 = r.lane), 0)
                         and not exists (select 1 from pauses p where p.lane = r.lane)
                       order by r.lane, r.turn, r.id limit $2)
           and state = 'pending' and hint > 0 and ring_at <= $3
        returning id, owner, lane, hint, trace, turn
        ",
    )
    .bind(as_micros(plan.again))
    .bind(limit(plan.max))
    .bind(tx.now)
    .bind(patience);
    rung(tx, query).await
}

/// Lanes with due work that is not rung and room in their window.
async fn lanes_to_ring(tx: &mut Transaction<'_>, plan: &RingPlan) -> Result<Vec<(String, i64)>, StoreError> {
    let query = sqlx::query(concat!(
        outbox_lanes!(),
        "
        select lane, room
          from (select l.lane, max($3, $1 - (select count(*) from (select 1 from jobs w
                             where w.lane = l.lane and w.state = 'pending' and w.hint > 0 limit $1))) as room
                  from lanes l
                 where l.lane is not null
                   and not exists (select 1 from pauses p where p.lane = l.lane)
                   and exists (select 1 from jobs d where d.lane = l.lane and d.state = 'pending'
                                  and d.hint = 0 and d.due_at <= $2))
         where room > 0
        ",
    ))
    .bind(limit(plan.window))
    .bind(tx.now)
    .bind(limit(plan.least));
    tx.rows(query).await?.iter().map(|row| Ok((row.try_get("lane")?, row.try_get("room")?))).collect()
}

/// T2, some from each owner, so that a newcomer need not wait until older backlogs are drained.
async fn ring_fair(
    tx: &mut Transaction<'_>,
    lane: &str,
    room: i64,
    again: Duration,
) -> Result<Vec<Rung>, StoreError> {
    // In another order in each pass: of more owners than one pass takes, all come round.
    let query = sqlx::query(concat!(
        owners!(),
        "some (owner) as materialized (
            select owner from owners order by random() limit $5
        ), taken as (
            select j.id, j.owner, j.due_at
              from some
             cross join jobs j on j.id in (select x.id from jobs x
                                            where x.lane = $1 and x.owner = some.owner and x.state = 'pending'
                                              and x.hint = 0 and x.due_at <= $4
                                            order by x.due_at, x.id
                                            limit max($2 / $5, 1))
             limit $2
        ), ",
        take_turns!(),
    ))
    .bind(lane)
    .bind(room)
    .bind(as_micros(again))
    .bind(tx.now)
    .bind(OWNERS_MAX);
    rung(tx, query).await
}

/// T2 where each owner has a limit: of those that do not wait for themselves, as much as could start soon.
async fn ring_each(
    tx: &mut Transaction<'_>,
    lane: &str,
    room: i64,
    again: Duration,
    each: &EachOwner,
) -> Result<Vec<Rung>, StoreError> {
    let query = sqlx::query(concat!(
        owners!(),
        "working as (
            select s.owner, sum(s.amount) as jobs
              from shares s
             cross join jobs j on j.id = s.job and j.token = s.token
             where s.gate = $6 and j.state = 'running' and j.leased_until > $4
             group by s.owner
        ), some (owner, places) as materialized (
            select known.owner, $7 - known.jobs
              from (select named.owner, coalesce(busy.jobs, 0)
                           + (select count(*) from (select 1 from jobs f
                               where f.lane = $1 and f.owner = named.owner and f.state = 'pending' and f.hint > 0
                               limit $7)) as jobs
                      from owners named
                      left join working busy on busy.owner = named.owner) known
             where known.jobs < $7
               and not exists (select 1 from gates g
                                where g.name = $6 and g.owner = known.owner
                                  and g.next_at > $4 + $8 and g.next_at <= $4 + $9)
             order by random() limit $5
        ), ranked as (
            select j.id, j.owner, j.due_at, some.places,
                   row_number() over (partition by j.owner order by j.due_at, j.id) as place
              from some
             cross join jobs j on j.id in (select x.id from jobs x
                                            where x.lane = $1 and x.owner = some.owner and x.state = 'pending'
                                              and x.hint = 0 and x.due_at <= $4
                                            order by x.due_at, x.id
                                            limit $7)
        ), taken as (
            select id, owner, due_at from ranked where place <= places limit $2
        ), ",
        take_turns!(),
    ))
    .bind(lane.to_owned())
    .bind(room)
    .bind(as_micros(again))
    .bind(tx.now)
    .bind(OWNERS_MAX)
    .bind(each.gate.to_string())
    .bind(i64::try_from(each.places).unwrap_or(i64::MAX / 4))
    .bind(as_micros(each.spare))
    .bind(as_micros(each.reach));
    rung(tx, query).await
}

/// T2, what has been due longest, into the room that is left.
async fn ring_oldest(
    tx: &mut Transaction<'_>,
    lane: &str,
    room: i64,
    again: Duration,
) -> Result<Vec<Rung>, StoreError> {
    let query = sqlx::query(concat!(
        "
        with taken as (
            select j.id, j.owner, j.due_at from jobs j
             where j.lane = $1 and j.state = 'pending' and j.hint = 0 and j.due_at <= $4
             order by j.due_at, j.id
             limit $2
        ), ",
        take_turns!(),
    ))
    .bind(lane)
    .bind(room)
    .bind(as_micros(again))
    .bind(tx.now);
    rung(tx, query).await
}

/// What that statement has rung, by turn: rows come back from an update in any order.
async fn rung(tx: &mut Transaction<'_>, query: super::Query) -> Result<Vec<Rung>, StoreError> {
    let mut rung = Vec::new();
    for row in tx.rows(query).await? {
        let lane = lane(row.try_get("lane")?)?;
        rung.push((
            row.try_get::<i64, _>("turn")?,
            Rung {
                job: JobId(row.try_get("id")?),
                owner: Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?,
                lane,
                hint: count(row.try_get("hint")?)?,
                trace: row.try_get("trace")?,
            },
        ));
    }
    rung.sort_by_key(|(turn, rung)| (*turn, rung.job));
    Ok(rung.into_iter().map(|(_, rung)| rung).collect())
}
