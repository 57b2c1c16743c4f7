//! The keeper's statements: ring, reap, expire, send.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgRow;
use tracing::warn;
use uuid::Uuid;

use super::absence::Missing;
use super::ask::Ask;
use super::presence::absent;
use super::view::{event, event_columns};
use super::{AT_ONCE_MAX, Postgres};
use crate::job::event::Event;
use crate::job::lease::Holder;
use crate::job::limit::EachOwner;
use crate::job::name::{JobId, Kind, Lane, Owner};
use crate::job::retry::Failure;
use crate::store::contract::{DOUBLINGS_MAX, Gates, Keep, LaneWindow, Reaped, RingPlan, Rung, StoreError};
use crate::store::row::{as_micros, big, count, lane, state, unreadable};

/// Most jobs whose end is written back that one pass ends one by one, after it could not end all at once.
const ALONE_MAX: usize = 100;

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

/// The end of all ways to ring: what is `taken (id, owner, due_at, state, hint)` gets its turn. Binds $1 lane,
/// $3 again. Joined by id alone, and to the state by value: see `claimed!` in `run.rs`.
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
/// Of jobs: those of kinds whose end is written back, or all others.
macro_rules! written {
    (true) => {
        " and exists (select from mapae.kinds k where k.kind = jobs.kind and k.writes <> '{}')"
    };
    (false) => {
        " and not exists (select from mapae.kinds k where k.kind = jobs.kind and k.writes <> '{}')"
    };
}

/// T7, of these jobs in this order.
macro_rules! reap {
    ($of:expr, $order:expr) => {
        concat!(
            "
            with gone as (
                select w.incarnation
                  from mapae.workers w
                 where w.incarnation = any($6)
                   and ",
            absent!(),
            "
            ), lost as (
                select j.id, j.cancel_asked, j.holder = $7 as lent,
                       case when j.holder = $7
                            then random() * least(j.backoff_first_us * power(2, least(j.attempt - 1, 31)),
                                                  j.backoff_max_us) * interval '1 microsecond'
                            when j.attempt <= 1 then interval '0'
                            else random() * least(j.backoff_first_us * power(2, least(j.attempt - 2, 31)),
                                                  j.backoff_max_us) * interval '1 microsecond' end as wait
                  from mapae.jobs j
                 where j.id = any(array(select id from mapae.jobs
                                         where state = 'running' and leased_until <= now()",
            $of,
            "
                                         order by ",
            $order,
            " limit $1 for update skip locked)
                               || array(select id from mapae.jobs
                                         where state = 'running' and leased_until > now()
                                           and incarnation in (select incarnation from gone)",
            $of,
            "
                                         limit $1 for update skip locked))
                   and j.state = 'running'
                 limit $1
                   for update of j
            ), fate as (
                select l.*, now() + l.wait as due,
                       case when l.cancel_asked then 'cancelled'
                            when j.attempt >= j.attempts_max then 'failed'
                            when j.deadline <= now() + l.wait then 'failed'
                            else 'pending' end as next,
                       case when l.cancel_asked then $3::jsonb
                            when j.attempt < j.attempts_max and j.deadline <= now() + l.wait then $5::jsonb
                            when l.lent then $8::jsonb
                            else $4::jsonb end as failure
                  from lost l
                  join mapae.jobs j on j.id = l.id
            ), reaped as (
                update mapae.jobs j
                   set state = fate.next,
                       due_at = case fate.next when 'pending' then fate.due else j.due_at end,
                       finished_at = case fate.next when 'pending' then null else now() end,
                       failure = fate.failure || jsonb_build_object('attempt', j.attempt),
                       token = null, holder = null, incarnation = null, leased_until = null, progress = null,
                       sequence = j.sequence + 1
                  from fate
                 where j.id = any(array(select id from fate)) and j.id = fate.id and j.state = 'running'
                returning j.id, j.owner, j.kind, j.state, j.sequence, j.attempt, j.failure, fate.lent
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, code, sent)
                select id, sequence, owner, kind,
                       case when state <> 'pending' then state when lent then 'retrying' else 'lost' end,
                       now(), attempt, failure->>'code', not $2
                  from reaped
            )
            select id, kind, state from reaped
            ",
        )
    };
}

/// Deadlines, of these jobs in this order.
macro_rules! expire {
    ($of:expr, $order:expr) => {
        concat!(
            "
            with expired as (
                update mapae.jobs j
                   set state = 'failed', finished_at = now(), hint = 0, turn = null, ring_at = null,
                       failure = $3::jsonb || jsonb_build_object('attempt', j.attempt), sequence = j.sequence + 1
                 where j.id = any(array(select id from mapae.jobs where state = 'pending' and deadline <= now()",
            $of,
            "
                                         order by ",
            $order,
            " limit $1 for update skip locked))
                   and j.state = 'pending' and j.deadline <= now()
                returning j.id, j.owner, j.kind, j.state, j.sequence, j.attempt, j.failure
            ), told as (
                -- Its record may be gone: then it is stale (`mapae.write_back`).
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, code, sent)
                select id, sequence, owner, kind, state, now(), attempt, failure->>'code', not $2 from expired
            )
            select id from expired
            ",
        )
    };
}

#[async_trait]
impl Keep for Postgres {
    async fn ring(&self, plan: &RingPlan) -> Result<Vec<Rung>, StoreError> {
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
        let rows = sqlx::query(
            "
            with recursive lanes (lane) as (
                (select lane from mapae.jobs where state = 'pending' and hint > 0 order by lane limit 1)
                union all
                select (select j.lane from mapae.jobs j
                         where j.state = 'pending' and j.hint > 0 and j.lane > l.lane order by j.lane limit 1)
                  from lanes l where l.lane is not null
            )
            select l.lane, (select count(*) from (select from mapae.jobs j
                             where j.lane = l.lane and j.state = 'pending' and j.hint > 0 limit $1) w) as waiting,
                   (select j.turn from mapae.jobs j where j.lane = l.lane and j.state = 'pending' and j.hint > 0
                     order by j.turn limit 1)                                                       as turn
              from lanes l
             where l.lane is not null
            ",
        )
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
        let gone = self.gone().await?;
        let all = self.reap_by(reap!("", "leased_until"), &gone, max).await;
        let Err(error) = all else { return all };
        if !self.may_be_a_record(&error) {
            return Err(error);
        }
        let mut reaped = self.reap_by(reap!(written!(false), "leased_until"), &gone, max).await?;
        for _ in 0..max.min(ALONE_MAX) {
            match self.reap_by(reap!(written!(true), "random()"), &gone, 1).await {
                Ok(one) if one.is_empty() => break,
                Ok(one) => reaped.extend(one),
                Err(error) => warn!(
                    code = error.code(),
                    said = error.said(),
                    "a job cannot end: its record cannot be written"
                ),
            }
        }
        Ok(reaped)
    }

    async fn expire(&self, max: usize) -> Result<usize, StoreError> {
        let all = self.expire_by(expire!("", "deadline"), max).await;
        let Err(error) = all else { return all };
        if !self.may_be_a_record(&error) {
            return Err(error);
        }
        let mut expired = self.expire_by(expire!(written!(false), "deadline"), max).await?;
        for _ in 0..max.min(ALONE_MAX) {
            match self.expire_by(expire!(written!(true), "random()"), 1).await {
                Ok(0) => break,
                Ok(one) => expired += one,
                Err(error) => warn!(
                    code = error.code(),
                    said = error.said(),
                    "a job cannot end: its record cannot be written"
                ),
            }
        }
        Ok(expired)
    }

    async fn unsent(&self, max: usize) -> Result<Vec<Event>, StoreError> {
        let rows = sqlx::query(concat!(
            "select ",
            event_columns!(),
            "
              from mapae.events e
             where not e.sent
               and not exists (select from mapae.events b where b.job = e.job and b.sequence < e.sequence and not b.sent)
             order by e.number
             limit $1
            ",
        ))
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        rows.iter().map(event).collect()
    }

    async fn sent(&self, events: &[(JobId, u64)]) -> Result<(), StoreError> {
        sqlx::query(
            "
            with given as (
                select * from unnest($1::uuid[], $2::bigint[]) g (job, sequence)
            ), last as (
                delete from mapae.events e using given g
                 where e.job = any($1) and e.job = g.job and e.sequence = g.sequence
                   and not exists (select from mapae.jobs j where j.id = e.job)
            )
            update mapae.events e set sent = true
              from given g
             where e.job = any($1) and e.job = g.job and e.sequence = g.sequence
               and exists (select from mapae.jobs j where j.id = e.job)
            ",
        )
        .bind(events.iter().map(|(job, _)| job.0).collect::<Vec<_>>())
        .bind(
            events
                .iter()
                .map(|(_, sequence)| i64::try_from(*sequence).unwrap_or(i64::MAX))
                .collect::<Vec<_>>(),
        )
        .done(&self.pool)
        .await?;
        Ok(())
    }
}

impl Postgres {
    /// The lives of workers that have ended: nobody holds their lock, and [`Absences`](super::absence::Absences) has seen enough of that.
    async fn gone(&self) -> Result<Vec<Uuid>, StoreError> {
        let lock = || self.absences.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken away until this look has succeeded: an outage begins the count anew.
        let before = std::mem::take(&mut *lock());
        let rows = sqlx::query(concat!(
            "
            select w.incarnation, coalesce((w.report->>'heartbeat_ms')::bigint, 0) as heartbeat_ms,
                   w.seen_at > (select backend_start from pg_stat_activity where pid = pg_backend_pid()) as witnessed
              from mapae.workers w
             where w.presence is not null
               and ",
            absent!(),
            "
            ",
        ))
        .rows(&self.pool)
        .await?;
        let mut missing = Vec::with_capacity(rows.len());
        for row in rows {
            missing.push(Missing {
                life: row.try_get("incarnation")?,
                heartbeat: Duration::from_millis(big(row.try_get("heartbeat_ms")?)?),
                witnessed: row.try_get("witnessed")?,
            });
        }
        let (after, gone) = before.after(&missing, Instant::now());
        *lock() = after;
        Ok(gone)
    }

    /// Whether this may come of a record that cannot be written just now, or ever: what else is to end must not
    /// wait for that one.
    fn may_be_a_record(&self, error: &StoreError) -> bool {
        self.writes_any()
            && matches!(error, StoreError::Locked(_) | StoreError::Broken(_) | StoreError::Unavailable(_))
    }

    async fn reap_by(
        &self,
        statement: &'static str,
        gone: &[Uuid],
        max: usize,
    ) -> Result<Vec<Reaped>, StoreError> {
        let rows = sqlx::query(statement)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .bind(self.outbox)
            .bind(serde_json::json!(Failure::cancelled()))
            .bind(serde_json::json!(Failure::lost()))
            .bind(serde_json::json!(Failure::overdue()))
            .bind(gone)
            .bind(Holder::service().name)
            .bind(serde_json::json!(Failure::unanswered()))
            .rows(&self.pool)
            .await?;
        rows.iter()
            .map(|row| {
                let kind = Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?;
                Ok(Reaped { job: JobId(row.try_get("id")?), kind, state: state(row.try_get("state")?)? })
            })
            .collect()
    }

    async fn expire_by(&self, statement: &'static str, max: usize) -> Result<usize, StoreError> {
        let rows = sqlx::query(statement)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .bind(self.outbox)
            .bind(serde_json::json!(Failure::overdue()))
            .rows(&self.pool)
            .await?;
        Ok(rows.len())
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
                select owner from owners where owner is not null
                 order by md5(owner || $4) limit $5
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
                select o.owner, $7 - o.jobs
                  from (select k.owner, coalesce(r.jobs, 0)
                               + (select count(*) from (select from mapae.jobs f
                                   where f.lane = $1 and f.owner = k.owner and f.state = 'pending' and f.hint > 0
                                   limit $7) f) as jobs
                          from owners k
                          left join running r on r.owner = k.owner
                         where k.owner is not null) o
                 where o.jobs < $7
                   and not exists (select from mapae.gates g
                                    where g.name = $6 and g.owner = o.owner
                                      and g.next_at > now() + $8 * interval '1 microsecond')
                 order by md5(o.owner || $4) limit $5
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
