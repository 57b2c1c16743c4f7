//! Reading. Deleted jobs are not there.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::{Sqlite, job, job_columns, limit, now, one};
use crate::job::State;
use crate::job::event::{Event, EventKind, Position};
use crate::job::follow::Followed;
use crate::job::lease::Holder;
use crate::job::name::{JobId, Kind, Lane, Owner};
use crate::job::record::{Job, Output};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{
    COUNT_MAX, EventFilter, Found, JobFilter, LANE_COUNT_MAX, LANES_MAX, LOOK_MAX, LaneStats, Page, Puller,
    Scope, Stats, StoreError, View, WorkerReport, WorkerRow,
};
use crate::store::row::{as_like, as_micros, big, count, lane, state, unreadable};

/// The columns of an event called `e`.
macro_rules! event_columns {
    () => {
        "e.job, e.sequence, e.owner, e.kind, e.event, e.at, e.attempt, e.worker, e.code, e.number"
    };
}

pub(super) fn event(row: &SqliteRow) -> Result<Event, StoreError> {
    let event: String = row.try_get("event")?;
    Ok(Event {
        job: JobId(row.try_get("job")?),
        owner: Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?,
        kind: Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
        sequence: big(row.try_get("sequence")?)?,
        event: EventKind::parse(&event).ok_or_else(|| unreadable("an event that is none"))?,
        at: Timestamp::from_micros(row.try_get("at")?),
        attempt: count(row.try_get("attempt")?)?,
        worker: row.try_get("worker")?,
        code: row.try_get("code")?,
        position: Position { transaction: 0, number: big(row.try_get("number")?)?, at: row.try_get("at")? },
    })
}

impl Sqlite {
    /// The place to read on from: the beginning where the reader's was given out before this database was restored
    /// from a backup.
    async fn place(&self, after: Position) -> Result<Position, StoreError> {
        if after.at == 0 {
            return Ok(after);
        }
        let query = sqlx::query("select at from events where number <= $1 order by number desc limit 1")
            .bind(i64::try_from(after.number).unwrap_or(i64::MAX));
        let last: Option<i64> = self.row(query).await?.map(|row| row.try_get("at")).transpose()?;
        Ok(if last.is_some_and(|at| after.is_of_another_life(at)) { Position::default() } else { after })
    }
}

/// The jobs that come into question, as far as an index leads to them. Binds $1 owner, $2 after.
fn newest_first(scope: &Scope, filter: &JobFilter, page: &Page) -> String {
    let mut query = String::from("jobs where not delete_asked");
    if let Some(state) = filter.state {
        // As it stands, so that the plan may take the index over those that have ended.
        query.push_str(&format!(" and state = '{}'", state.as_str()));
    }
    for (given, condition) in
        [(scope.owner().is_some(), " and owner = $1"), (page.after.is_some(), " and id < $2")]
    {
        if given {
            query.push_str(condition);
        }
    }
    query.push_str(" order by id desc");
    query
}

#[async_trait]
impl View for Sqlite {
    async fn job(&self, scope: &Scope, id: JobId) -> Result<Option<Job>, StoreError> {
        let query = sqlx::query(concat!(
            "select ",
            job_columns!(),
            " from jobs where id = $1 and ($2 is null or owner = $2) and not delete_asked",
        ))
        .bind(id.0)
        .bind(scope.owner());
        self.row(query).await?.as_ref().map(job).transpose()
    }

    async fn jobs(&self, scope: &Scope, filter: &JobFilter, page: &Page) -> Result<Found, StoreError> {
        let candidates = newest_first(scope, filter, page);
        let query = if filter.is_indexed() {
            format!(concat!("select ", job_columns!(), " from {} limit $5"), candidates)
        } else {
            let mut query = format!(
                concat!("select ", job_columns!(), " from (select * from {} limit $6) where true"),
                candidates
            );
            if filter.kind.is_some() {
                query.push_str(" and kind = $3");
            }
            if filter.text.is_some() {
                query.push_str(
                    " and (lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4)
                               || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) like $4 || '%' escape '\\'
                         or source->>'$.name' like '%' || $4 || '%' escape '\\')",
                );
            }
            query.push_str(" order by id desc limit $5");
            query
        };
        let ask = async |query: String| {
            let query = sqlx::query(AssertSqlSafe(query))
                .bind(scope.owner())
                .bind(page.after.map(|after| after.0))
                .bind(filter.kind.as_ref().map(Kind::as_str))
                .bind(filter.text.as_deref().map(as_like))
                .bind(limit(page.limit))
                .bind(limit(LOOK_MAX));
            self.rows(query).await
        };
        let jobs = ask(query).await?.iter().map(job).collect::<Result<Vec<Job>, StoreError>>()?;
        let next = if jobs.len() == page.limit {
            jobs.last().map(|job| job.id)
        } else if filter.is_indexed() {
            None
        } else {
            let looked = format!(
                "select count(*) as jobs, min(id) as last from (select * from {candidates} limit $6)"
            );
            match ask(looked).await?.first() {
                Some(row) if row.try_get::<i64, _>("jobs")? >= limit(LOOK_MAX) => {
                    row.try_get::<Option<Uuid>, _>("last")?.map(JobId)
                }
                _ => None,
            }
        };
        Ok(Found { jobs, next })
    }

    async fn output(&self, scope: &Scope, id: JobId) -> Result<Option<Output>, StoreError> {
        let query = sqlx::query(
            "
            select r.output
              from results r
              join jobs j on j.id = r.job
             where j.id = $1 and ($2 is null or j.owner = $2) and not j.delete_asked and j.state = 'succeeded'
            ",
        )
        .bind(id.0)
        .bind(scope.owner());
        let Some(row) = self.row(query).await? else { return Ok(None) };
        serde_json::from_value(row.try_get("output")?).map_err(|_| unreadable("a result that cannot be read"))
    }

    async fn followed(&self, scope: &Scope, id: JobId) -> Result<Vec<Followed>, StoreError> {
        self.followed_of(scope, id).await
    }

    async fn events(
        &self,
        scope: &Scope,
        filter: &EventFilter,
        max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let after = self.place(filter.after).await?;
        // Numbers are given in the order of commits, for nobody else writes meanwhile.
        let mut query = String::from(concat!(
            "select ",
            event_columns!(),
            " from events e cross join jobs j on j.id = e.job and not j.delete_asked where e.number > $1",
        ));
        for (given, condition) in
            [(filter.job.is_some(), " and e.job = $2"), (scope.owner().is_some(), " and e.owner = $3")]
        {
            if given {
                query.push_str(condition);
            }
        }
        query.push_str(" order by e.number limit $4");
        let query = sqlx::query(AssertSqlSafe(query))
            .bind(i64::try_from(after.number).unwrap_or(i64::MAX))
            .bind(filter.job.map(|job| job.0))
            .bind(scope.owner())
            .bind(limit(max));
        self.rows(query).await?.iter().map(event).collect()
    }

    async fn last_position(&self) -> Result<Position, StoreError> {
        let query = concat!("select coalesce(max(number), 0) as last, ", now!(), " as at from events");
        let row = one(self.row(sqlx::query(query)).await?)?;
        Ok(Position { transaction: 0, number: big(row.try_get("last")?)?, at: row.try_get("at")? })
    }

    async fn ahead(&self, job: &Job, max: usize) -> Result<usize, StoreError> {
        // Rung and not rung apart, each by its own index.
        let query = sqlx::query(concat!(
            "
            select count(*) as ahead from (
                select 1 from jobs j
                 cross join jobs o on o.lane = j.lane and o.state = 'pending' and o.hint > 0
                 where j.id = $1 and o.id <> j.id and (j.hint = 0 or (o.turn, o.id) < (j.turn, j.id))
                   and o.due_at <= ",
            now!(),
            "
                union all
                select 1 from jobs j
                 cross join jobs o on o.lane = j.lane and o.state = 'pending' and o.hint = 0
                 where j.id = $1 and o.id <> j.id and j.hint = 0
                   and (o.due_at, o.id) < (j.due_at, j.id) and o.due_at <= ",
            now!(),
            "
                limit $2)
            ",
        ))
        .bind(job.id.0)
        .bind(limit(max));
        usize::try_from(one(self.row(query).await?)?.try_get::<i64, _>("ahead")?).map_err(unreadable)
    }

    async fn waiting(&self, lane: &Lane, owner: &Owner, max: usize) -> Result<usize, StoreError> {
        let query = sqlx::query(
            "
            select count(*) as waiting from (
                select 1 from jobs where lane = $1 and owner = $2 and state = 'pending' and hint = 0
                union all
                select 1 from jobs where lane = $1 and owner = $2 and state = 'pending' and hint > 0
                 limit $3)
            ",
        )
        .bind(lane.to_string())
        .bind(owner.as_str())
        .bind(limit(max));
        usize::try_from(one(self.row(query).await?)?.try_get::<i64, _>("waiting")?).map_err(unreadable)
    }

    async fn paused(&self) -> Result<Vec<Lane>, StoreError> {
        let rows = self.rows(sqlx::query("select lane from pauses order by lane")).await?;
        rows.iter().map(|row| lane(row.try_get("lane")?)).collect()
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let query = sqlx::query(concat!(
            "
            select name, incarnation, kinds, slots, report, started_at, seen_at
              from (select name, incarnation, kinds, slots, report, started_at, seen_at from workers
                     where seen_at > ",
            super::now!(),
            " - 1000 * max(3 * coalesce(report->>'$.heartbeat_ms', 0), $3)
                    union all
                    select 'pull:' || name, $1, kinds, slots, json_object('phase', 'pulling', 'busy', 0, 'waiting', json_array()),
                           started_at, seen_at
                      from pullers where seen_at > ",
            super::now!(),
            " - $2)
             order by name, started_at
            ",
        ))
        .bind(uuid::Uuid::nil())
        .bind(as_micros(Puller::SEEN))
        .bind(WorkerRow::SEEN_MIN_MS);
        self.rows(query).await?.iter().map(worker).collect()
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let mut stats = Stats { states: State::ALL.map(|state| (state, 0)).to_vec(), ..Stats::default() };
        // Each count ends at its bound and reads an index that has little else; what is deleted and not yet
        // buried is taken off.
        let query = sqlx::query(
            "
            select s.value as state,
                   (case s.value
                    when 'pending' then
                         (select count(*) from (select 1 from jobs where state = 'pending' and hint = 0 limit $2))
                       + (select count(*) from (select 1 from jobs where state = 'pending' and hint > 0 limit $2))
                    when 'running' then (select count(*) from (select 1 from jobs where state = 'running' limit $2))
                    else (select count(*) from (select 1 from jobs e
                                                 where e.state in ('succeeded', 'failed', 'cancelled', 'stale')
                                                   and e.state = s.value limit $2)) end)
                   - (select count(*) from (select 1 from jobs d where d.delete_asked and d.state = s.value limit $2))
                   as jobs
              from json_each($1) s
            ",
        )
        .bind(Json(State::ALL.map(State::as_str).to_vec()))
        .bind(limit(COUNT_MAX));
        for row in self.rows(query).await? {
            let (found, jobs) = (state(row.try_get("state")?)?, row.try_get::<i64, _>("jobs")?);
            let jobs = jobs.clamp(0, limit(COUNT_MAX)).unsigned_abs();
            stats.states.iter_mut().filter(|(state, _)| *state == found).for_each(|(_, count)| *count = jobs);
        }
        stats.dead =
            stats.states.iter().find(|(state, _)| *state == State::Failed).map_or(0, |(_, jobs)| *jobs);
        // Each lane is found by one look at each index.
        let query = sqlx::query(concat!(
            "
            with recursive clock (now) as materialized (select ",
            now!(),
            "), unrung (lane) as (
                select * from (select lane from jobs where state = 'pending' and hint = 0 order by lane limit 1)
                union all
                select (select j.lane from jobs j
                         where j.state = 'pending' and j.hint = 0 and j.lane > l.lane order by j.lane limit 1)
                  from unrung l where l.lane is not null
                 limit $1
            ), rung (lane) as (
                select * from (select lane from jobs where state = 'pending' and hint > 0 order by lane limit 1)
                union all
                select (select j.lane from jobs j
                         where j.state = 'pending' and j.hint > 0 and j.lane > l.lane order by j.lane limit 1)
                  from rung l where l.lane is not null
                 limit $1
            ), running (lane, jobs, owner) as (
                select lane, count(*), min(owner) from (select lane, owner from jobs where state = 'running' limit $3)
                 group by lane
            ), lanes (lane) as (
                select lane from (select lane from unrung union select lane from rung union select lane from running)
                 where lane is not null order by lane limit $1
            )
            select l.lane,
                   coalesce((select j.owner from jobs j where j.lane = l.lane and j.state = 'pending' and j.hint = 0
                              order by j.due_at limit 1),
                            (select j.owner from jobs j where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                              order by j.turn limit 1),
                            (select r.owner from running r where r.lane = l.lane))               as owner,
                   (select count(*) from (select 1 from jobs j where j.lane = l.lane and j.state = 'pending'
                                             and j.hint = 0 and j.due_at <= clock.now limit $2)) as due,
                   (select count(*) from (select 1 from jobs j where j.lane = l.lane and j.state = 'pending'
                                             and j.hint > 0 limit $2))                           as offered,
                   (select count(*) from (select 1 from jobs j where j.lane = l.lane and j.state = 'pending'
                                             and j.hint = 0 and j.due_at > clock.now limit $2))  as scheduled,
                   coalesce((select r.jobs from running r where r.lane = l.lane), 0)             as running,
                   clock.now - (select j.due_at from jobs j where j.lane = l.lane and j.state = 'pending' and j.hint = 0
                                   and j.due_at <= clock.now order by j.due_at limit 1)           as oldest_due,
                   clock.now - (select min(due_at) from (select j.due_at from jobs j where j.lane = l.lane
                                   and j.state = 'pending' and j.hint > 0 order by j.turn limit $2)) as oldest_offered,
                   exists (select 1 from pauses p where p.lane = l.lane)                          as paused
              from lanes l, clock
             order by l.lane
            ",
        ))
        .bind(limit(LANES_MAX))
        .bind(limit(LANE_COUNT_MAX))
        .bind(limit(COUNT_MAX));
        for row in self.rows(query).await? {
            let (due, offered): (i64, i64) = (row.try_get("due")?, row.try_get("offered")?);
            let oldest: [Option<i64>; 2] = [row.try_get("oldest_due")?, row.try_get("oldest_offered")?];
            stats.lanes.push(LaneStats {
                lane: lane(row.try_get("lane")?)?,
                owner: row
                    .try_get::<Option<String>, _>("owner")?
                    .map(Owner::new)
                    .transpose()
                    .map_err(unreadable)?,
                ready: big((due + offered).min(limit(LANE_COUNT_MAX)))?,
                scheduled: big(row.try_get("scheduled")?)?,
                running: big(row.try_get("running")?)?,
                oldest_ready: oldest.into_iter().flatten().max().map(micros),
                paused: row.try_get("paused")?,
            });
        }
        let query = sqlx::query(concat!(
            "
            select ",
            now!(),
            " - (select min(finished_at) from jobs where state = 'failed')                    as dead_oldest,
                   (select count(*) from (select 1 from jobs
                                           where state = 'failed' and assignee is null and not delete_asked
                                           order by finished_at limit $2))                    as unassigned,
                   (select count(*) from (select 1 from events where not sent limit $1))      as outbox
            ",
        ))
        .bind(limit(COUNT_MAX))
        .bind(limit(LANE_COUNT_MAX));
        let row = one(self.row(query).await?)?;
        stats.dead_unassigned = big(row.try_get("unassigned")?)?;
        stats.dead_oldest = row.try_get::<Option<i64>, _>("dead_oldest")?.map(micros);
        stats.outbox = big(row.try_get("outbox")?)?;
        Ok(stats)
    }
}

fn micros(number: i64) -> Duration {
    Duration::from_micros(number.max(0).unsigned_abs())
}

fn worker(row: &SqliteRow) -> Result<WorkerRow, StoreError> {
    let Json(kinds) = row.try_get::<Json<Vec<String>>, _>("kinds")?;
    Ok(WorkerRow {
        holder: Holder { name: row.try_get("name")?, incarnation: row.try_get("incarnation")? },
        kinds: kinds.into_iter().map(Kind::new).collect::<Result<_, _>>().map_err(unreadable)?,
        slots: count(row.try_get("slots")?)?,
        report: serde_json::from_value::<WorkerReport>(row.try_get("report")?).unwrap_or_default(),
        started_at: Timestamp::from_micros(row.try_get("started_at")?),
        seen_at: Timestamp::from_micros(row.try_get("seen_at")?),
    })
}
