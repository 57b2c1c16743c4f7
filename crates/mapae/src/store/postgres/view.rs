//! Reading. Deleted jobs are not there.

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{QueryBuilder, Row};

use super::ask::Ask;
use super::{Postgres, job, job_columns};
use crate::job::event::{Event, EventKind, Position};
use crate::job::follow::Followed;
use crate::job::lease::Holder;
use crate::job::name::{JobId, Kind, Lane, Owner};
use crate::job::record::{Job, Output};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{
    EventFilter, Found, JobFilter, LOOK_MAX, Page, Puller, Scope, Stats, StoreError, View, WorkerReport,
    WorkerRow,
};
use crate::store::row::{as_like, as_micros, big, count, lane, unreadable};

/// The columns of an event called `e`.
macro_rules! event_columns {
    () => {
        "e.job, e.sequence, e.owner, e.kind, e.event, (extract(epoch from e.at) * 1000000)::bigint as at,
         e.attempt, e.worker, e.code, e.transaction::text::bigint as transaction, e.number"
    };
}

pub(super) fn event(row: &PgRow) -> Result<Event, StoreError> {
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
        position: Position {
            transaction: big(row.try_get("transaction")?)?,
            number: big(row.try_get("number")?)?,
            at: row.try_get("at")?,
        },
    })
}

/// The jobs that come into question, as far as an index leads to them.
fn newest_first(query: &mut QueryBuilder<sqlx::Postgres>, scope: &Scope, filter: &JobFilter, page: &Page) {
    query.push("mapae.jobs j where not j.delete_asked");
    if let Some(owner) = scope.owner() {
        query.push(" and j.owner = ").push_bind(owner.to_owned());
    }
    if let Some(after) = page.after {
        query.push(" and j.id < ").push_bind(after.0);
    }
    if let Some(state) = filter.state {
        // As it stands, so that the plan knows it and may take the index over those that have ended.
        query.push(format_args!(" and j.state = '{}'", state.as_str()));
    }
    query.push(" order by j.id desc");
}

#[async_trait]
impl View for Postgres {
    async fn job(&self, scope: &Scope, id: JobId) -> Result<Option<Job>, StoreError> {
        let row = sqlx::query(concat!(
            "select ",
            job_columns!(),
            " from mapae.jobs j where j.id = $1 and ($2::text is null or j.owner = $2) and not j.delete_asked",
        ))
        .bind(id.0)
        .bind(scope.owner())
        .maybe(&self.views)
        .await?;
        row.as_ref().map(job).transpose()
    }

    async fn jobs(&self, scope: &Scope, filter: &JobFilter, page: &Page) -> Result<Found, StoreError> {
        let mut query = QueryBuilder::new(concat!("select ", job_columns!(), " from "));
        if filter.is_indexed() {
            newest_first(&mut query, scope, filter, page);
        } else {
            query.push("(select * from ");
            newest_first(&mut query, scope, filter, page);
            // As it stands, so that the plan knows how few they are.
            query.push(format_args!(" limit {LOOK_MAX}) j where true"));
            if let Some(kind) = &filter.kind {
                query.push(" and j.kind = ").push_bind(kind.to_string());
            }
            if let Some(text) = &filter.text {
                query.push(" and (j.id::text like ").push_bind(format!("{}%", as_like(text)));
                query
                    .push(" or j.source->>'name' ilike ")
                    .push_bind(format!("%{}%", as_like(text)))
                    .push(")");
            }
            query.push(" order by j.id desc");
        }
        query.push(" limit ").push_bind(i64::try_from(page.limit).unwrap_or(i64::MAX));
        let rows = query.build().rows(&self.views).await?;
        let jobs = rows.iter().map(job).collect::<Result<Vec<Job>, StoreError>>()?;
        let next = if jobs.len() == page.limit {
            jobs.last().map(|job| job.id)
        } else if filter.is_indexed() {
            None
        } else {
            let mut query = QueryBuilder::new("select j.id from ");
            newest_first(&mut query, scope, filter, page);
            query.push(format_args!(" limit 1 offset {}", LOOK_MAX - 1));
            let looked = query.build().maybe(&self.views).await?;
            looked.map(|row| row.try_get("id").map(JobId)).transpose()?
        };
        Ok(Found { jobs, next })
    }

    async fn output(&self, scope: &Scope, id: JobId) -> Result<Option<Output>, StoreError> {
        let row = sqlx::query(
            "
            select r.output
              from mapae.results r
              join mapae.jobs j on j.id = r.job
             where j.id = $1 and ($2::text is null or j.owner = $2) and not j.delete_asked and j.state = 'succeeded'
            ",
        )
        .bind(id.0)
        .bind(scope.owner())
        .maybe(&self.views)
        .await?;
        let Some(row) = row else { return Ok(None) };
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
        // Positions rise with the transaction; what a transaction still running could come before is
        // left for later. Within a job the sequence decides, for the writer that came second in a job
        // may have begun first: such a predecessor beyond the page is brought along. `offset 0` keeps that
        // a look for each event of the page: a plan that does not know the page's length reads all events.
        let after = self.place(filter.after).await?;
        let mut query = QueryBuilder::new(concat!(
            "with page as (select ",
            event_columns!(),
            " from mapae.events e join mapae.jobs j on j.id = e.job and not j.delete_asked
              where (e.transaction, e.number) > (",
        ));
        push_position(&mut query, after);
        query.push(")");
        match filter.job {
            // One job's events are numbered without a gap under its row's lock: none can come before.
            Some(job) => query.push(" and e.job = ").push_bind(job.0),
            None => query.push(" and e.transaction < pg_snapshot_xmin(pg_current_snapshot())"),
        };
        if let Some(owner) = scope.owner() {
            query.push(" and e.owner = ").push_bind(owner.to_owned());
        }
        query
            .push(" order by e.transaction, e.number limit ")
            .push_bind(i64::try_from(max).unwrap_or(i64::MAX));
        query.push(concat!(
            "), early as (select ",
            event_columns!(),
            " from page p
             cross join lateral (select * from mapae.events e
                                  where e.job = p.job and e.sequence < p.sequence offset 0) e
              where (e.transaction, e.number) > (",
        ));
        push_position(&mut query, after);
        query.push(")) select * from page union select * from early order by transaction, number");
        let rows = query.build().rows(&self.views).await?;
        let events = rows.iter().map(event).collect::<Result<Vec<_>, _>>()?;
        Ok(crate::store::row::in_job_order(events))
    }

    async fn last_position(&self) -> Result<Position, StoreError> {
        let row = sqlx::query(
            "
            select pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin,
                   (extract(epoch from clock_timestamp()) * 1000000)::bigint as at
            ",
        )
        .one(&self.views)
        .await?;
        // All that is readable now was written by transactions before this one.
        let transaction = big(row.try_get("xmin")?)?.saturating_sub(1);
        Ok(Position { transaction, number: i64::MAX.unsigned_abs(), at: row.try_get("at")? })
    }

    async fn ahead(&self, job: &Job, max: usize) -> Result<usize, StoreError> {
        let row = sqlx::query(
            "
            with mine as (select id, lane, hint, turn, due_at from mapae.jobs where id = $1)
            select count(*) as ahead from (
                (select from mapae.jobs o, mine
                  where o.lane = mine.lane and o.state = 'pending' and o.hint > 0 and o.id <> mine.id
                    and (mine.hint = 0 or (o.turn, o.id) < (mine.turn, mine.id))
                  limit $2)
                union all
                (select from mapae.jobs o, mine
                  where o.lane = mine.lane and o.state = 'pending' and o.hint = 0
                    and mine.hint = 0 and o.due_at <= now() and (o.due_at, o.id) < (mine.due_at, mine.id)
                  limit $2)
                limit $2) a
            ",
        )
        .bind(job.id.0)
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .one(&self.views)
        .await?;
        usize::try_from(row.try_get::<i64, _>("ahead")?).map_err(unreadable)
    }

    async fn waiting(&self, lane: &Lane, owner: &Owner, max: usize) -> Result<usize, StoreError> {
        let row = sqlx::query(
            "
            select count(*) as waiting from (
                (select from mapae.jobs
                  where lane = $1 and owner = $2 and state = 'pending' and hint = 0 limit $3)
                union all
                (select from mapae.jobs
                  where lane = $1 and owner = $2 and state = 'pending' and hint > 0 limit $3)
                limit $3) w
            ",
        )
        .bind(lane.to_string())
        .bind(owner.as_str())
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .one(&self.views)
        .await?;
        usize::try_from(row.try_get::<i64, _>("waiting")?).map_err(unreadable)
    }

    async fn paused(&self) -> Result<Vec<Lane>, StoreError> {
        let rows = sqlx::query("select lane from mapae.pauses order by lane").rows(&self.views).await?;
        rows.iter().map(|row| lane(row.try_get("lane")?)).collect()
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let rows = sqlx::query(
            "
            select name, incarnation, kinds, slots, report,
                   (extract(epoch from started_at) * 1000000)::bigint as started_at,
                   (extract(epoch from seen_at) * 1000000)::bigint    as seen_at
              from (select name, incarnation, kinds, slots, report, started_at, seen_at from mapae.workers
                     where seen_at > now() - greatest(3 * coalesce((report->>'heartbeat_ms')::bigint, 0), $3) * interval '1 millisecond'
                    union all
                    select 'pull:' || name, $1, kinds, slots, jsonb_build_object('phase', 'pulling', 'busy', 0, 'waiting', jsonb_build_array()),
                           started_at, seen_at
                      from mapae.pullers where seen_at > now() - $2 * interval '1 microsecond') w
             order by name, started_at
            ",
        )
        .bind(uuid::Uuid::nil())
        .bind(as_micros(Puller::SEEN))
        .bind(WorkerRow::SEEN_MIN_MS)
        .rows(&self.views)
        .await?;
        rows.iter().map(worker).collect()
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        super::stats::read(&self.views).await
    }
}

impl Postgres {
    /// The place to read on from: the beginning where the reader's was given out before this database was restored
    /// from a backup.
    async fn place(&self, after: Position) -> Result<Position, StoreError> {
        if after.at == 0 {
            return Ok(after);
        }
        let row = sqlx::query(
            "
            select (extract(epoch from e.at) * 1000000)::bigint as at
              from mapae.events e
             where (e.transaction, e.number) <= ($1::xid8, $2)
             order by e.transaction desc, e.number desc limit 1
            ",
        )
        .bind(after.transaction.to_string())
        .bind(i64::try_from(after.number).unwrap_or(i64::MAX))
        .maybe(&self.views)
        .await?;
        let last: Option<i64> = row.map(|row| row.try_get("at")).transpose()?;
        Ok(if last.is_some_and(|at| after.is_of_another_life(at)) { Position::default() } else { after })
    }
}

/// The position after which to read. One that this server cannot have given out yet is of the server that a backup
/// was taken from: everything is told again, for nobody knows how far its reader had come.
fn push_position(query: &mut QueryBuilder<sqlx::Postgres>, after: Position) {
    query.push("case when ").push_bind(after.transaction.to_string());
    query.push("::xid8 < pg_snapshot_xmax(pg_current_snapshot()) then ");
    query.push_bind(after.transaction.to_string()).push("::xid8 else '0'::xid8 end, case when ");
    query.push_bind(after.transaction.to_string());
    query.push("::xid8 < pg_snapshot_xmax(pg_current_snapshot()) then ");
    query.push_bind(i64::try_from(after.number).unwrap_or(i64::MAX)).push("::bigint else 0 end");
}

fn worker(row: &PgRow) -> Result<WorkerRow, StoreError> {
    let kinds: Vec<String> = row.try_get("kinds")?;
    Ok(WorkerRow {
        holder: Holder { name: row.try_get("name")?, incarnation: row.try_get("incarnation")? },
        kinds: kinds.into_iter().map(Kind::new).collect::<Result<_, _>>().map_err(unreadable)?,
        slots: count(row.try_get("slots")?)?,
        report: serde_json::from_value::<WorkerReport>(row.try_get("report")?).unwrap_or_default(),
        started_at: Timestamp::from_micros(row.try_get("started_at")?),
        seen_at: Timestamp::from_micros(row.try_get("seen_at")?),
    })
}
