//! Ringing: what is due gets its turn (T2), and what may have been lost its next (T8).

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::ask::Ask;
use super::{AT_ONCE_MAX, Postgres};
use crate::job::limit::EachOwner;
use crate::job::name::{JobId, Lane, Owner};
use crate::store::contract::{Gates, RingPlan, Rung, StoreError};
use crate::store::row::{as_micros, count, lane, unreadable};

/// How many owners one pass goes round for a lane. Owners beyond come in by age, then by later passes.
const OWNERS_MAX: i64 = 64;

/// The owners who have jobs in lane $1 that are not rung, each found by one look at the index.
macro_rules! owners {
    () => {
        "
            with recursive owners (owner) as (
                (select owner from mapae.jobs
                  where lane = $1 and state = 'pending' and hint = 0 order by owner limit 1)
                union all
                select (select j.owner from mapae.jobs j
                         where j.lane = $1 and j.state = 'pending' and j.hint = 0 and j.owner > o.owner
                         order by j.owner limit 1)
                  from owners o where o.owner is not null
            ), "
    };
}

/// One of the jobs of `k.owner` in lane $1 that are not rung is due: an owner whose jobs come later takes no place of
/// those who wait. As a value, so that it is looked at for one owner after the other.
macro_rules! has_due {
    () => {
        "(select true from mapae.jobs d
           where d.lane = $1 and d.owner = k.owner and d.state = 'pending' and d.hint = 0 and d.due_at <= now()
           limit 1)"
    };
}

/// The end of all ways to ring: what is `taken (id, owner, due_at, state, hint)` gets its turn. Binds $1 lane,
/// $3 again. Joined by id alone, and to the state by value: see `claimed!` in `claim.rs`.
macro_rules! take_turns {
    () => {
        "
            base as (
                select coalesce((select w.turn from mapae.jobs w
                                  where w.lane = $1 and w.state = 'pending' and w.hint > 0
                                  order by w.turn limit 1), 0) as turn
            ), waiting as (
                select owner, count(*) as jobs
                  from (select owner from mapae.jobs where lane = $1 and state = 'pending' and hint > 0
                         order by turn limit 1000) w
                 group by owner
            ), placed as (
                select t.id, t.state, t.hint,
                       base.turn + coalesce(w.jobs, 0) + row_number() over (partition by t.owner order by t.due_at, t.id)
                       as turn
                  from taken t
                 cross join base
                  left join waiting w on w.owner = t.owner
                 limit 1000
            )
            update mapae.jobs j
               set hint = 1, turn = placed.turn, ring_at = now() + $3 * interval '1 microsecond'
              from placed
             where j.id = placed.id and j.state = placed.state and j.hint = placed.hint and j.due_at <= now()
            returning j.id, j.owner, j.lane, j.hint, j.trace, j.turn
        "
    };
}

impl Postgres {
    /// T2, and T8 where the plan says so.
    pub(super) async fn ring_all(&self, plan: &RingPlan) -> Result<Vec<Rung>, StoreError> {
        let mut rung = match &plan.rescan {
            Some(patience) => self.ring_again(plan, patience).await?,
            None => Vec::new(),
        };
        for (lane, room) in self.lanes_to_ring(plan).await? {
            let left = plan.max.saturating_sub(rung.len()).min(AT_ONCE_MAX);
            let room = room.min(i64::try_from(left).unwrap_or(i64::MAX));
            if room == 0 {
                break;
            }
            let kind = crate::store::row::lane(&lane)?.kind;
            if let Some(each) = self.limits().each_owner(&kind) {
                rung.extend(self.ring_each(&lane, room, plan.again, &each).await?);
                continue;
            }
            let fair = self.ring_fair(&lane, room, plan.again).await?;
            let rest = room - i64::try_from(fair.len()).unwrap_or(room);
            rung.extend(fair);
            if rest > 0 {
                rung.extend(self.ring_oldest(&lane, rest, plan.again).await?);
            }
        }
        Ok(rung)
    }

    /// T8: rows rung before whose time has come again. They are in their windows already.
    async fn ring_again(
        &self,
        plan: &RingPlan,
        patience: &[(Lane, Duration)],
    ) -> Result<Vec<Rung>, StoreError> {
        let rows = sqlx::query(
            "
            update mapae.jobs j
               set hint = j.hint + 1, ring_at = now() + $1 * interval '1 microsecond'
             where j.id = any(array(select r.id from mapae.jobs r
                                     where r.state = 'pending' and r.hint > 0 and r.ring_at <= now()
                                       and r.ring_at <= now() - coalesce(
                                               (select g.patience from unnest($3::text[], $4::bigint[]) g (lane, patience)
                                                 where g.lane = r.lane), 0) * interval '1 microsecond'
                                       and not exists (select from mapae.pauses p where p.lane = r.lane)
                                     order by r.lane, r.turn limit $2 for update skip locked))
               and j.state = 'pending' and j.hint > 0 and j.ring_at <= now()
            returning j.id, j.owner, j.lane, j.hint, j.trace, j.turn
            ",
        )
        .bind(as_micros(plan.again))
        .bind(i64::try_from(plan.max).unwrap_or(i64::MAX))
        .bind(patience.iter().map(|(lane, _)| lane.to_string()).collect::<Vec<_>>())
        .bind(patience.iter().map(|(_, patience)| as_micros(*patience)).collect::<Vec<_>>())
        .rows(&self.pool)
        .await?;
        by_turn(&rows)
    }

    /// Lanes with due work that is not rung and room in their window.
    async fn lanes_to_ring(&self, plan: &RingPlan) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = sqlx::query(
            "
            with recursive lanes (lane) as (
                (select lane from mapae.jobs where state = 'pending' and hint = 0 order by lane limit 1)
                union all
                select (select j.lane from mapae.jobs j
                         where j.state = 'pending' and j.hint = 0 and j.lane > l.lane order by j.lane limit 1)
                  from lanes l where l.lane is not null
            )
            select lane, room
              from (select l.lane, greatest($2, $1 - (select count(*) from (select from mapae.jobs w
                                 where w.lane = l.lane and w.state = 'pending' and w.hint > 0 limit $1) w)) as room
                      from lanes l
                     where l.lane is not null
                       and not exists (select from mapae.pauses p where p.lane = l.lane)
                       and exists (select from mapae.jobs d where d.lane = l.lane and d.state = 'pending'
                                      and d.hint = 0 and d.due_at <= now())) r
             where room > 0
            ",
        )
        .bind(i64::try_from(plan.window).unwrap_or(i64::MAX))
        .bind(i64::try_from(plan.least).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter().map(|row| Ok((row.try_get("lane")?, row.try_get("room")?))).collect()
    }

    /// T2, some from each owner, so that a newcomer need not wait until older backlogs are drained.
    async fn ring_fair(&self, lane: &str, room: i64, again: Duration) -> Result<Vec<Rung>, StoreError> {
        let rows = sqlx::query(concat!(
            owners!(),
            "chosen (owner) as (
                select k.owner
                  from (select owner from owners where owner is not null order by md5(owner || $4)) k
                 where ",
            has_due!(),
            "
                 limit $5
            ), taken as (
                select x.id, x.owner, x.due_at, x.state, x.hint
                  from chosen
                 cross join lateral (
                       select j.id, j.owner, j.due_at, j.state, j.hint from mapae.jobs j
                        where j.lane = $1 and j.owner = chosen.owner and j.state = 'pending' and j.hint = 0
                          and j.due_at <= now()
                        order by j.due_at, j.id
                        limit greatest($2 / $5, 1)
                          for update skip locked) x
                 limit $2
            ), ",
            take_turns!(),
        ))
        .bind(lane)
        .bind(room)
        .bind(as_micros(again))
        // Another order in each pass: of more owners than one pass takes, all come round.
        .bind(Uuid::new_v4().to_string())
        .bind(OWNERS_MAX)
        .rows(&self.pool)
        .await?;
        by_turn(&rows)
    }

    /// T2 where each owner has a limit: of those that do not wait for themselves, as much as could start soon.
    async fn ring_each(
        &self,
        lane: &str,
        room: i64,
        again: Duration,
        each: &EachOwner,
    ) -> Result<Vec<Rung>, StoreError> {
        let rows = sqlx::query(concat!(
            owners!(),
            "running as (
                select s.owner, sum(s.amount)::bigint as jobs
                  from mapae.shares s
                  join mapae.jobs j on j.id = s.job and j.token = s.token
                 where s.gate = $6 and j.state = 'running' and j.leased_until > now()
                 group by s.owner
            ), chosen (owner, places) as (
                select k.owner, $7 - k.jobs
                  from (select o.owner, coalesce((select r.jobs from running r where r.owner = o.owner), 0)
                               + (select count(*) from (select from mapae.jobs f
                                   where f.lane = $1 and f.owner = o.owner and f.state = 'pending' and f.hint > 0
                                   limit $7) f) as jobs
                          from (select owner from owners where owner is not null order by md5(owner || $4)) o) k
                 where k.jobs < $7
                   and (select true from mapae.gates g
                         where g.name = $6 and g.owner = k.owner
                           and g.next_at > now() + $8 * interval '1 microsecond'
                           and g.next_at <= now() + $9 * interval '1 microsecond') is null
                   and ",
            has_due!(),
            "
                 limit $5
            ), taken as (
                select x.id, x.owner, x.due_at, x.state, x.hint
                  from chosen
                 cross join lateral (
                       select j.id, j.owner, j.due_at, j.state, j.hint from mapae.jobs j
                        where j.lane = $1 and j.owner = chosen.owner and j.state = 'pending' and j.hint = 0
                          and j.due_at <= now()
                        order by j.due_at, j.id
                        limit chosen.places
                          for update skip locked) x
                 limit $2
            ), ",
            take_turns!(),
        ))
        .bind(lane)
        .bind(room)
        .bind(as_micros(again))
        .bind(Uuid::new_v4().to_string())
        .bind(OWNERS_MAX)
        .bind(each.gate.to_string())
        .bind(i64::try_from(each.places).unwrap_or(i64::MAX / 4))
        .bind(as_micros(each.spare))
        .bind(as_micros(each.reach))
        .rows(&self.pool)
        .await?;
        by_turn(&rows)
    }

    /// T2, what has been due longest, into the room that is left.
    async fn ring_oldest(&self, lane: &str, room: i64, again: Duration) -> Result<Vec<Rung>, StoreError> {
        let rows = sqlx::query(concat!(
            "
            with taken as (
                select j.id, j.owner, j.due_at, j.state, j.hint from mapae.jobs j
                 where j.lane = $1 and j.state = 'pending' and j.hint = 0 and j.due_at <= now()
                 order by j.due_at, j.id
                 limit $2
                   for update skip locked
            ), ",
            take_turns!(),
        ))
        .bind(lane)
        .bind(room)
        .bind(as_micros(again))
        .rows(&self.pool)
        .await?;
        by_turn(&rows)
    }
}

/// What that statement has rung, by turn: rows come back from an update in any order.
fn by_turn(rows: &[PgRow]) -> Result<Vec<Rung>, StoreError> {
    let mut rung = Vec::with_capacity(rows.len());
    for row in rows {
        rung.push((row.try_get::<Option<i64>, _>("turn")?, self::rung(row)?));
    }
    rung.sort_by_key(|(turn, rung)| (*turn, rung.job));
    Ok(rung.into_iter().map(|(_, rung)| rung).collect())
}

fn rung(row: &PgRow) -> Result<Rung, StoreError> {
    Ok(Rung {
        job: JobId(row.try_get("id")?),
        owner: Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?,
        lane: lane(row.try_get("lane")?)?,
        hint: count(row.try_get("hint")?)?,
        trace: row.try_get("trace")?,
    })
}
