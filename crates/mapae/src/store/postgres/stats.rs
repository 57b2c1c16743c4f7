//! The whole at a glance, at a cost that does not grow with the table.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::{PgPool, Row};

use super::ask::Ask;
use crate::job::State;
use crate::job::name::Owner;
use crate::store::contract::{COUNT_MAX, LANE_COUNT_MAX, LANES_MAX, LaneStats, Stats, StoreError};
use crate::store::row::{big, lane, state, unreadable};

pub(super) async fn read(views: &PgPool) -> Result<Stats, StoreError> {
    let (count_max, lane_max) = (limit(COUNT_MAX), limit(LANE_COUNT_MAX));
    let mut stats = Stats { states: State::ALL.map(|state| (state, 0)).to_vec(), ..Stats::default() };
    // Each count ends at its bound and reads an index that has little else, in that index's order: a plan that
    // does not know the bound would read the table. What is deleted and not yet buried is taken off.
    let rows = sqlx::query(
        "
        select 'pending' as state,
               (select count(*) from (select from mapae.jobs where state = 'pending' and hint = 0
                                       order by lane, due_at, id limit $1) c)
             + (select count(*) from (select from mapae.jobs where state = 'pending' and hint > 0
                                       order by lane, turn, id limit $1) c) as jobs
        union all
        select 'running', (select count(*) from (select from mapae.jobs where state = 'running'
                                                  order by leased_until limit $1) c)
        union all
        select 'succeeded', (select count(*) from (select from mapae.jobs where state = 'succeeded'
                                                    order by state, id limit $1) c)
        union all
        select 'failed', (select count(*) from (select from mapae.jobs where state = 'failed'
                                                 order by state, id limit $1) c)
        union all
        select 'cancelled', (select count(*) from (select from mapae.jobs where state = 'cancelled'
                                                    order by state, id limit $1) c)
        union all
        select 'stale', (select count(*) from (select from mapae.jobs where state = 'stale'
                                                order by state, id limit $1) c)
        union all
        select d.state, -count(*) from (select state from mapae.jobs where delete_asked order by id limit $1) d
         group by d.state
        ",
    )
    .bind(count_max)
    .rows(views)
    .await?;
    let mut counts: HashMap<State, i64> = HashMap::new();
    for row in rows {
        *counts.entry(state(row.try_get("state")?)?).or_default() += row.try_get::<i64, _>("jobs")?;
    }
    for (state, count) in &mut stats.states {
        *count = counts.get(state).copied().unwrap_or_default().clamp(0, count_max).unsigned_abs();
    }
    stats.dead = stats.states.iter().find(|(state, _)| *state == State::Failed).map_or(0, |(_, jobs)| *jobs);
    // Each lane is found by one look at each index.
    let rows = sqlx::query(
        "
        with recursive unrung (lane) as (
            (select lane from mapae.jobs where state = 'pending' and hint = 0 order by lane limit 1)
            union all
            select (select j.lane from mapae.jobs j
                     where j.state = 'pending' and j.hint = 0 and j.lane > l.lane order by j.lane limit 1)
              from unrung l where l.lane is not null
        ), rung (lane) as (
            (select lane from mapae.jobs where state = 'pending' and hint > 0 order by lane limit 1)
            union all
            select (select j.lane from mapae.jobs j
                     where j.state = 'pending' and j.hint > 0 and j.lane > l.lane order by j.lane limit 1)
              from rung l where l.lane is not null
        ), running as (
            select r.lane, count(*) as jobs, min(r.owner) as owner
              from (select lane, owner from mapae.jobs where state = 'running' limit $3) r group by r.lane
        ), lanes as (
            select lane from (
                   (select lane from unrung where lane is not null limit $1)
                   union
                   (select lane from rung where lane is not null limit $1)
                   union
                   (select lane from running)) l
             order by lane limit $1
        )
        select l.lane, least(d.jobs + w.jobs, $2) as ready, s.jobs as scheduled, coalesce(r.jobs, 0) as running,
               (extract(epoch from now() - least(d.due_at, w.due_at)) * 1000000)::bigint as oldest,
               exists (select from mapae.pauses p where p.lane = l.lane)                 as paused,
               coalesce((select j.owner from mapae.jobs j
                          where j.lane = l.lane and j.state = 'pending' and j.hint = 0 order by j.due_at limit 1),
                        (select j.owner from mapae.jobs j
                          where j.lane = l.lane and j.state = 'pending' and j.hint > 0 order by j.turn limit 1),
                        r.owner)                                                         as owner
          from lanes l
         cross join lateral (select count(*) as jobs, min(x.due_at) as due_at
                               from (select j.due_at from mapae.jobs j
                                      where j.lane = l.lane and j.state = 'pending' and j.hint = 0
                                        and j.due_at <= now() order by j.due_at limit $2) x) d
         cross join lateral (select count(*) as jobs
                               from (select from mapae.jobs j
                                      where j.lane = l.lane and j.state = 'pending' and j.hint = 0
                                        and j.due_at > now() order by j.due_at limit $2) x) s
         cross join lateral (select count(*) as jobs, min(x.due_at) as due_at
                               from (select j.due_at from mapae.jobs j
                                      where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                                      order by j.turn limit $2) x) w
          left join running r on r.lane = l.lane
         order by l.lane
        ",
    )
    .bind(limit(LANES_MAX))
    .bind(lane_max)
    .bind(count_max)
    .rows(views)
    .await?;
    for row in rows {
        stats.lanes.push(LaneStats {
            lane: lane(row.try_get("lane")?)?,
            owner: row
                .try_get::<Option<String>, _>("owner")?
                .map(Owner::new)
                .transpose()
                .map_err(unreadable)?,
            ready: big(row.try_get("ready")?)?,
            scheduled: big(row.try_get("scheduled")?)?,
            running: big(row.try_get("running")?)?,
            oldest_ready: row.try_get::<Option<i64>, _>("oldest")?.map(micros),
            paused: row.try_get("paused")?,
        });
    }
    let row = sqlx::query(
        "
        select (select (extract(epoch from now() - min(finished_at)) * 1000000)::bigint
                  from mapae.jobs where state = 'failed')                                       as dead_oldest,
               (select count(*) from (select from mapae.jobs
                                       where state = 'failed' and assignee is null and not delete_asked
                                       order by finished_at limit $2) d)                        as unassigned,
               (select count(*) from (select from mapae.events where not sent limit $1) e)      as outbox
        ",
    )
    .bind(count_max)
    .bind(lane_max)
    .one(views)
    .await?;
    stats.dead_unassigned = big(row.try_get("unassigned")?)?;
    stats.dead_oldest = row.try_get::<Option<i64>, _>("dead_oldest")?.map(micros);
    stats.outbox = big(row.try_get("outbox")?)?;
    Ok(stats)
}

fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

fn micros(number: i64) -> Duration {
    Duration::from_micros(number.max(0).unsigned_abs())
}
