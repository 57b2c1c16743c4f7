//! Claim, settle, and what a running job writes. Every write carries the token.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, PgPool, Row};
use tracing::{error, warn};
use uuid::Uuid;

use super::ask::{Ask, within};
use super::{AT_ONCE_MAX, Postgres, job_columns};
use crate::job::State;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::limit::Stop;
use crate::job::name::{JobId, Kind, Owner};
use crate::job::record::{Checkpoint, Progress};
use crate::job::resource::Room;
use crate::job::retry::{Failure, SNOOZES_MAX, THROTTLES_MAX, Verdict};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{
    Claim, Claimed, Gates, Holding, Join, JoinError, LaneQuota, Member, Run, SettleError, Settlement,
    StoreError,
};
use crate::store::limited::{Candidate, in_turn};
use crate::store::row::{as_micros, job_row, state, unreadable};

/// When a job is asked for again whose row another transaction held.
const HELD_WAIT: Duration = Duration::from_millis(50);

/// The end of both claims: what is `free (id, state, place, turn)` becomes running, once more under its own
/// guard, is told of, and is answered. Binds $3 holder, $4 incarnation, $5 lease, $6 outbox, $7 the
/// failure of an attempt whose worker was lost.
///
/// Rows are found by their id and compared with the state they were locked in, by value: with `state = '…'` the
/// planner, as long as it knows little of the table, reads through a partial index of that state; without the
/// bound it takes the batch for a tenth of the table and reads all of that.
macro_rules! claimed {
    () => {
        concat!(
            "
            claimed as (
                update mapae.jobs j
                   set state = 'running', attempt = j.attempt + 1, epoch = j.epoch + 1, token = gen_random_uuid(),
                       holder = $3, incarnation = $4, leased_until = now() + $5 * interval '1 microsecond',
                       started_at = now(), progress = null,
                       failure = case free.state when 'running' then $7::jsonb || jsonb_build_object('attempt', j.attempt)
                                                 else j.failure end, hint = 0, turn = null, ring_at = null,
                       sequence = j.sequence + case free.state when 'running' then 2 else 1 end
                  from (select * from free limit 1000) free
                 where j.id = free.id and j.state = free.state and j.attempt < j.attempts_max
                returning j.*, free.state as was, free.place, free.turn as turned
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
                select id, sequence - 1, owner, kind, 'lost', now(), attempt - 1, null, failure->>'code', not $6
                  from claimed where was = 'running'
                union all
                select id, sequence, owner, kind, 'claimed', now(), attempt, $3, null, not $6 from claimed
            )
            select ",
            job_columns!(),
            " from claimed j",
        )
    };
}

#[async_trait]
impl Run for Postgres {
    async fn join(&self, join: &Join) -> Result<Box<dyn Member>, JoinError> {
        super::member::join(self, join).await
    }

    async fn claim_pointers(
        &self,
        holder: &Holder,
        pointers: &[(JobId, Owner)],
        lease: Duration,
        room: &[Room],
    ) -> Result<Vec<Claim>, StoreError> {
        let mut claims = Vec::with_capacity(pointers.len());
        for pointers in pointers.chunks(AT_ONCE_MAX) {
            claims.extend(self.claim_some(holder, pointers, lease, room).await?);
        }
        Ok(claims)
    }

    async fn claim_lanes(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
        room: &[Room],
    ) -> Result<Claimed, StoreError> {
        let mut claimed = Claimed::default();
        for (limited, lanes) in in_turn(lanes, &self.limits(), room) {
            let left = max.min(AT_ONCE_MAX) - claimed.holdings.len();
            if lanes.is_empty() || left == 0 {
                continue;
            }
            if limited {
                let some = self.claim_limited(holder, &lanes, left, lease, room).await?;
                claimed.holdings.extend(some.holdings);
                claimed.stops.extend(some.stops);
            } else {
                claimed.holdings.extend(self.claim_plain(holder, &lanes, left, lease).await?);
            }
        }
        Ok(claimed)
    }

    async fn settle(&self, settlement: Settlement) -> Result<State, SettleError> {
        let batcher = if self.writes_back(&settlement).await? { &self.written } else { &self.settles };
        batcher.ask(settlement).await?
    }

    async fn progress(&self, lease: &Lease, progress: &Progress) -> Result<(), SettleError> {
        let done = sqlx::query(
            "update mapae.jobs set progress = $3 where id = $1 and token = $2 and state = 'running'",
        )
        .bind(lease.job.0)
        .bind(lease.token.0)
        .bind(serde_json::json!(progress))
        .done(&self.pool)
        .await?;
        if done.rows_affected() > 0 { Ok(()) } else { Err(lost(&self.pool, lease).await?) }
    }

    async fn checkpoint(&self, lease: &Lease, checkpoint: &Checkpoint) -> Result<(), SettleError> {
        let mut connection = within(self.pool.acquire()).await?;
        checkpoint_on(&mut connection, lease, checkpoint, self.outbox).await
    }

    async fn checkpoints(&self, job: JobId) -> Result<Vec<Checkpoint>, StoreError> {
        let rows = sqlx::query(
            "select stage, output, took_us from mapae.checkpoints where job = $1 order by at, stage",
        )
        .bind(job.0)
        .rows(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Checkpoint {
                    stage: row.try_get("stage")?,
                    output: serde_json::from_value(row.try_get("output")?)
                        .map_err(|_| unreadable("a checkpoint that cannot be read"))?,
                    took: Duration::from_micros(crate::store::row::big(row.try_get("took_us")?)?),
                })
            })
            .collect()
    }
}

impl Postgres {
    /// The answers to pointers of one statement.
    async fn claim_some(
        &self,
        holder: &Holder,
        pointers: &[(JobId, Owner)],
        lease: Duration,
        room: &[Room],
    ) -> Result<Vec<Claim>, StoreError> {
        let ids: Vec<Uuid> = pointers.iter().map(|(id, _)| id.0).collect();
        let owners: Vec<String> = pointers.iter().map(|(_, owner)| owner.to_string()).collect();
        // Rows are locked in one order, so that two claims of the same pointers cannot wait for each
        // other; the later one looks again after the earlier one's commit.
        let limits = self.limits();
        let decided: Vec<String> = limits.decided(room).iter().map(ToString::to_string).collect();
        let any_decided = !decided.is_empty();
        let rows = sqlx::query(concat!(
            "
            with free as (
                select j.id, j.state, null::bigint as place, null::bigint as turn
                  from unnest($1::uuid[], $2::text[]) p (id, owner)
                  join mapae.jobs j on j.id = p.id and j.owner = p.owner
                 where ((j.state = 'pending' and j.due_at <= now())
                        or (j.state = 'running' and j.leased_until <= now()))
                   and not exists (select from mapae.pauses p where p.lane = j.lane)
                   and not j.cancel_asked and j.attempt < j.attempts_max
                   and (j.deadline is null or j.deadline > now())
                   and j.kind <> all($8)
                   and not exists (select from mapae.gates g where g.name = 'kind/' || j.kind and g.owner = ''
                                      and g.shut_until > now())
                 order by j.id
                   for update of j
            ), ",
            claimed!(),
        ))
        .bind(&ids)
        .bind(&owners)
        .bind(&holder.name)
        .bind(holder.incarnation)
        .bind(as_micros(lease))
        .bind(self.outbox)
        .bind(serde_json::json!(Failure::lost()))
        .bind(decided)
        .rows(&self.pool)
        .await?;
        let mut holdings = self.readable(&rows).await?;
        let mut waits = HashMap::new();
        if holdings.len() < pointers.len() && any_decided {
            let (limited, stopped) = self.claim_limited_pointers(holder, pointers, lease, room).await?;
            holdings.extend(limited);
            waits = stopped;
        }
        let mut run: HashMap<Uuid, Holding> = HashMap::with_capacity(holdings.len());
        for holding in holdings {
            run.insert(holding.job.id.0, holding);
        }
        let granted: HashMap<Uuid, (Owner, Timestamp)> =
            run.iter().map(|(id, holding)| (*id, (holding.job.owner.clone(), holding.lease.until))).collect();
        let told = |id: &Uuid| granted.contains_key(id) || waits.contains_key(id);
        let rest: Vec<Uuid> = ids.iter().copied().filter(|id| !told(id)).collect();
        let mut others =
            if rest.is_empty() { HashMap::new() } else { self.why_not(&rest, &owners, &ids).await? };
        let mut answer = |(id, owner): &(JobId, Owner)| match granted.get(&id.0) {
            Some((rightful, _)) if rightful != owner => Claim::Foreign,
            Some((_, until)) => match run.remove(&id.0) {
                Some(holding) => Claim::Run(Box::new(holding)),
                // A pointer that stands twice in one batch: its first has the lease.
                None => Claim::Busy(*until),
            },
            None if waits.contains_key(&id.0) => Claim::Waits(waits[&id.0].clone()),
            None => match others.get_mut(&(id.0, owner.to_string())) {
                // What the first of two pointers ended is ended for the second.
                Some(answers) => std::mem::replace(&mut answers.0, answers.1.clone()),
                None => Claim::Stale,
            },
        };
        Ok(pointers.iter().map(&mut answer).collect())
    }

    /// T3 for lanes without gates.
    async fn claim_plain(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Holding>, StoreError> {
        let rows = sqlx::query(concat!(
            "
            with free as (
                select x.id, x.state, q.place, x.turn
                  from unnest($1::text[], $2::bigint[]) with ordinality q (lane, max, place)
                 cross join lateral (
                       select j.id, j.state, j.turn
                         from mapae.jobs j
                        where j.lane = q.lane and j.state = 'pending' and j.hint > 0 and j.due_at <= now()
                          and (j.deadline is null or j.deadline > now())
                        order by j.turn, j.id
                        limit q.max
                          for update skip locked) x
                 where not exists (select from mapae.pauses p where p.lane = q.lane)
                   and not exists (select from mapae.gates g where g.name = 'kind/' || split_part(q.lane, ':', 1)
                                      and g.owner = '' and g.shut_until > now())
                 limit $8
            ), ",
            claimed!(),
            " order by j.place, j.turned, j.id",
        ))
        .bind(lanes.iter().map(|quota| quota.lane.to_string()).collect::<Vec<_>>())
        .bind(lanes.iter().map(|quota| i64::try_from(quota.max).unwrap_or(i64::MAX)).collect::<Vec<_>>())
        .bind(&holder.name)
        .bind(holder.incarnation)
        .bind(as_micros(lease))
        .bind(self.outbox)
        .bind(serde_json::json!(Failure::lost()))
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        self.readable(&rows).await
    }

    /// What was claimed. A row that cannot be read has failed: it must not take its neighbours along.
    pub(super) async fn readable(&self, rows: &[PgRow]) -> Result<Vec<Holding>, StoreError> {
        let mut holdings = Vec::with_capacity(rows.len());
        for row in rows {
            match holding(row) {
                Ok(holding) => holdings.push(holding),
                Err(error) => {
                    let lease = Lease {
                        job: JobId(row.try_get("id")?),
                        token: Token(row.try_get("token")?),
                        epoch: 0,
                        until: Timestamp::default(),
                    };
                    error!(job_id = %lease.job, said = error.said(), "a job's row cannot be read; the job has failed");
                    let verdict = Verdict::Fail { failure: Failure::unreadable() };
                    let _ = self.settles.ask(Settlement { lease, verdict, output: None }).await?;
                }
            }
        }
        Ok(holdings)
    }

    /// For pointers that may not run: settles what their claim was to settle (T3b, T3c), and says where
    /// each row stands, to the first of equal pointers and to the others.
    async fn why_not(
        &self,
        rest: &[Uuid],
        owners: &[String],
        ids: &[Uuid],
    ) -> Result<HashMap<(Uuid, String), (Claim, Claim)>, StoreError> {
        let rows = sqlx::query(
            "
            with over as (
                select j.id, j.state,
                       case when j.cancel_asked then 'cancelled' else 'failed' end as next,
                       case when j.cancel_asked then $4::jsonb
                            when j.attempt >= j.attempts_max then $5::jsonb
                            else $6::jsonb end as failure
                  from unnest($1::uuid[], $2::text[]) p (id, owner)
                  join mapae.jobs j on j.id = p.id and j.owner = p.owner
                 where ((j.state = 'running' and j.leased_until <= now()
                         and (j.cancel_asked or j.attempt >= j.attempts_max or j.deadline <= now()))
                        or (j.state = 'pending' and j.deadline <= now()))
                   and not exists (select from mapae.pauses p where p.lane = j.lane)
                 order by j.id
                   for update of j
            ), ended as (
                update mapae.jobs j
                   set state = over.next, finished_at = now(), token = null, holder = null, incarnation = null,
                       leased_until = null, progress = null, hint = 0, turn = null, ring_at = null,
                       failure = over.failure || jsonb_build_object('attempt', j.attempt),
                       sequence = j.sequence + 1
                  from over
                 where j.id = any(array(select id from over)) and j.id = over.id and j.state = over.state
                returning j.id, j.owner, j.kind, j.state, j.sequence, j.attempt, j.failure
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, code, sent)
                select id, sequence, owner, kind, state, now(), attempt, failure->>'code', not $3 from ended
            )
            select id, state from ended
            ",
        )
        .bind(ids)
        .bind(owners)
        .bind(self.outbox)
        .bind(serde_json::json!(Failure::cancelled()))
        .bind(serde_json::json!(Failure::lost()))
        .bind(serde_json::json!(Failure::overdue()))
        .rows(&self.pool)
        .await;
        // What was claimed beside them is not given up for what could not be ended; a keeper tries that again.
        let rows = rows.unwrap_or_else(|error| {
            warn!(code = error.code(), said = error.said(), "what was to end with a claim could not");
            Vec::new()
        });
        let mut ended = HashMap::with_capacity(rows.len());
        for row in rows {
            let answer = match state(row.try_get("state")?)? {
                State::Cancelled => Claim::Cancelled,
                State::Failed => Claim::Failed,
                other => Claim::Finished(other),
            };
            ended.insert(row.try_get::<Uuid, _>("id")?, answer);
        }
        let rows = sqlx::query(
            "
            select j.id, j.state, p.owner, j.owner = p.owner                      as ours,
                   (extract(epoch from j.due_at) * 1000000)::bigint       as due_at,
                   (extract(epoch from j.leased_until) * 1000000)::bigint as leased_until,
                   j.due_at > now() and (j.deadline is null or j.deadline > now()) as early,
                   j.leased_until > now()                                 as held,
                   j.delete_asked, j.kind,
                   (select (extract(epoch from g.shut_until - now()) * 1000000)::bigint from mapae.gates g
                     where g.name = 'kind/' || j.kind and g.owner = '' and g.shut_until > now()) as shut_us,
                   exists (select from mapae.pauses s where s.lane = j.lane) as paused
              from unnest($1::uuid[], $2::text[]) p (id, owner)
              join mapae.jobs j on j.id = p.id
             where j.id = any($3)
            ",
        )
        .bind(ids)
        .bind(owners)
        .bind(rest)
        .rows(&self.pool)
        .await?;
        let mut answers = HashMap::with_capacity(rows.len());
        for row in rows {
            let id: Uuid = row.try_get("id")?;
            let until = row.try_get::<Option<i64>, _>("leased_until")?.unwrap_or_default();
            let found = state(row.try_get("state")?)?;
            let again = match found {
                _ if !row.try_get::<bool, _>("ours")? => Claim::Foreign,
                State::Running if row.try_get::<Option<bool>, _>("held")? == Some(true) => {
                    Claim::Busy(Timestamp::from_micros(until))
                }
                State::Pending if row.try_get("early")? => {
                    Claim::NotDue(Timestamp::from_micros(row.try_get("due_at")?))
                }
                State::Running | State::Pending => match row.try_get::<Option<i64>, _>("shut_us")? {
                    Some(wait) => Claim::Waits(Stop::asked(
                        Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
                        Duration::from_micros(wait.max(0).unsigned_abs()),
                    )),
                    None if row.try_get("paused")? => Claim::Paused,
                    // It could run: another transaction held its row while it was claimed.
                    None => Claim::Waits(Stop::asked(
                        Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
                        HELD_WAIT,
                    )),
                },
                _ if row.try_get("delete_asked")? => Claim::Stale,
                ended => Claim::Finished(ended),
            };
            let first = match ended.get(&id) {
                Some(ended) if again != Claim::Foreign => ended.clone(),
                _ => again.clone(),
            };
            answers.insert((id, row.try_get("owner")?), (first, again));
        }
        Ok(answers)
    }
}

/// A stage and its event in one statement, under the job's token.
pub(super) async fn checkpoint_on(
    connection: &mut PgConnection,
    lease: &Lease,
    checkpoint: &Checkpoint,
    outbox: bool,
) -> Result<(), SettleError> {
    let done = sqlx::query(
        "
        with held as (
            update mapae.jobs set sequence = sequence + 1
             where id = $1 and token = $2 and state = 'running'
            returning id, owner, kind, sequence, attempt, holder
        ), kept as (
            insert into mapae.checkpoints (job, stage, output, took_us, at)
            select id, $3, $4, $5, clock_timestamp() from held
            on conflict (job, stage) do update
               set output = excluded.output, took_us = excluded.took_us, at = excluded.at
        ), told as (
            insert into mapae.events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
            select id, sequence, owner, kind, 'stage', now(), attempt, holder, $3, not $6 from held
        )
        select id from held
        ",
    )
    .bind(lease.job.0)
    .bind(lease.token.0)
    .bind(&checkpoint.stage)
    .bind(serde_json::json!(checkpoint.output))
    .bind(as_micros(checkpoint.took))
    .bind(outbox)
    .rows(&mut *connection)
    .await?;
    if done.is_empty() { Err(lost(connection, lease).await?) } else { Ok(()) }
}

/// What no row changed means.
pub(super) async fn lost(on: impl PgExecutor<'_>, lease: &Lease) -> Result<SettleError, StoreError> {
    let row = sqlx::query(
        "select state from mapae.jobs where id = $1 and not (delete_asked and finished_at is not null)",
    )
    .bind(lease.job.0)
    .maybe(on)
    .await?;
    let found = row.map(|row| row.try_get("state").map_err(StoreError::from).and_then(state)).transpose()?;
    Ok(SettleError::LeaseLost(found))
}

/// The claim of jobs that passed their gates, in their order. None is waited for that another holds: whoever
/// waits while it holds gates may be what that other waits for.
pub(super) async fn claim_chosen(
    tx: &mut PgConnection,
    holder: &Holder,
    chosen: &[&Candidate],
    lease: Duration,
    outbox: bool,
) -> Result<Vec<PgRow>, StoreError> {
    sqlx::query(concat!(
        "
        with free as (
            select j.id, j.state, g.place, null::bigint as turn
              from unnest($1::uuid[], $2::text[]) with ordinality g (id, owner, place)
              join mapae.jobs j on j.id = g.id and j.owner = g.owner
             where j.id = any($1)
               and ((j.state = 'pending' and j.due_at <= now())
                    or (j.state = 'running' and j.leased_until <= now()))
               and not exists (select from mapae.pauses p where p.lane = j.lane)
               and not j.cancel_asked and j.attempt < j.attempts_max
               and (j.deadline is null or j.deadline > now())
               for update of j skip locked
        ), ",
        claimed!(),
        " order by j.place",
    ))
    .bind(chosen.iter().map(|candidate| candidate.id).collect::<Vec<_>>())
    .bind(chosen.iter().map(|candidate| candidate.owner.to_string()).collect::<Vec<_>>())
    .bind(&holder.name)
    .bind(holder.incarnation)
    .bind(as_micros(lease))
    .bind(outbox)
    .bind(serde_json::json!(Failure::lost()))
    .rows(tx)
    .await
}

fn holding(row: &PgRow) -> Result<Holding, StoreError> {
    job_row!(row).holding()
}

pub(super) async fn settle(
    pool: &PgPool,
    batch: &[Settlement],
    outbox: bool,
) -> Result<Vec<Result<State, SettleError>>, StoreError> {
    let mut connection = within(pool.acquire()).await?;
    let answers = settle_on(&mut connection, batch, outbox).await;
    drop(connection);
    #[cfg(feature = "faults")]
    {
        let ids: Vec<Uuid> = batch.iter().map(|settlement| settlement.lease.job.0).collect();
        super::mutant::tell_late(pool, &ids).await?;
    }
    answers
}

/// T5, T6, T6b, snoozing and handing back, for any number of jobs: state, result and event in one statement.
pub(super) async fn settle_on(
    connection: &mut PgConnection,
    batch: &[Settlement],
    outbox: bool,
) -> Result<Vec<Result<State, SettleError>>, StoreError> {
    let ids: Vec<Uuid> = batch.iter().map(|settlement| settlement.lease.job.0).collect();
    let tokens: Vec<Uuid> = batch.iter().map(|settlement| settlement.lease.token.0).collect();
    let failures = batch.iter().map(|settlement| match &settlement.verdict {
        Verdict::Retry { failure, .. }
        | Verdict::Throttle { failure, .. }
        | Verdict::Fail { failure }
        | Verdict::Stale { failure } => Some(serde_json::json!(failure)),
        // Only for a snooze that is one too many.
        Verdict::Snooze { .. } => Some(serde_json::json!(Failure::overslept())),
        Verdict::Succeed | Verdict::HandBack => None,
    });
    let delays = batch.iter().map(|settlement| match &settlement.verdict {
        Verdict::Retry { delay, .. } | Verdict::Throttle { delay, .. } | Verdict::Snooze { delay } => {
            as_micros(*delay)
        }
        _ => 0,
    });
    let rows = sqlx::query(
        "
        with given as materialized (
            -- The state by value, as in a claim.
            select *, 'running' as state
              from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::jsonb[], $6::jsonb[])
                as g (id, token, verdict, delay, failure, output)
        ), held as (
            select g.*, j.holder as worker, now() + g.delay * interval '1 microsecond' as due,
                   case when j.cancel_asked then 'cancelled'
                        when g.verdict = 'succeed' then 'succeeded'
                        when g.verdict = 'fail' then 'failed'
                        when g.verdict = 'stale' then 'stale'
                        when g.verdict = 'retry' and j.attempt >= j.attempts_max then 'failed'
                        when g.verdict = 'throttle' and j.throttled >= $7 then 'failed'
                        when g.verdict = 'snooze' and j.snoozed >= $10 then 'failed'
                        when g.verdict <> 'hand-back'
                             and j.deadline <= now() + g.delay * interval '1 microsecond' then 'failed'
                        else 'pending' end as next
              from given g
              join mapae.jobs j on j.id = g.id and j.token = g.token and j.state = g.state
             order by j.id
               for update of j
        ), settled as (
            update mapae.jobs j
               set state        = held.next,
                   due_at       = case held.next when 'pending' then held.due else j.due_at end,
                   finished_at  = case held.next when 'pending' then null else now() end,
                   attempt      = j.attempt - case when held.next = 'pending' and held.verdict <> 'retry' then 1 else 0 end,
                   throttled    = j.throttled
                                  + case when held.next = 'pending' and held.verdict = 'throttle' then 1 else 0 end,
                   snoozed      = j.snoozed
                                  + case when held.next = 'pending' and held.verdict = 'snooze' then 1 else 0 end,
                   failure      = case when held.next = 'succeeded' then null
                                       when held.next = 'cancelled' then $8::jsonb || jsonb_build_object('attempt', j.attempt)
                                       when held.failure is null then j.failure
                                       when held.next = 'pending' and held.verdict = 'snooze' then j.failure
                                       else held.failure || jsonb_build_object('attempt', j.attempt) end,
                   settled_by   = j.token,
                   output       = case when exists (select from mapae.kinds k
                                                     where k.kind = j.kind and k.writes <> '{}') then held.output end,
                   token = null, holder = null, incarnation = null, leased_until = null, progress = null,
                   sequence     = j.sequence + 1
              from held
             where j.id = held.id and j.token = held.token and j.state = held.state
            returning j.id, j.owner, j.kind, j.state, j.sequence, j.started_at, j.settled_by, held.worker, held.verdict, held.output,
                      case when held.next <> j.state then j.failure->>'code'
                           when held.next <> 'pending' or held.verdict <> 'snooze' then held.failure->>'code' end as code,
                      j.attempt + case when held.next = 'pending' and held.verdict <> 'retry' then 1 else 0 end as attempt
        ), kept as (
            insert into mapae.results (job, output, stored_at)
            select id, output, now() from settled where state = 'succeeded' and output is not null
            on conflict (job) do update set output = excluded.output, stored_at = excluded.stored_at
        ), told as (
            insert into mapae.events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
            select id, sequence, owner, kind,
                   case when state <> 'pending' then state
                        when verdict = 'retry' then 'retrying'
                        when verdict = 'throttle' then 'throttled'
                        when verdict = 'snooze' then 'snoozed'
                        else 'released' end,
                   now(), attempt, worker, case when state <> 'cancelled' then code end, not $9
              from settled
        )
        select id, state, settled_by from settled
        ",
    )
    .bind(&ids)
    .bind(&tokens)
    .bind(batch.iter().map(|settlement| verdict_name(&settlement.verdict)).collect::<Vec<_>>())
    .bind(delays.collect::<Vec<_>>())
    .bind(failures.collect::<Vec<_>>())
    .bind(batch.iter().map(|settlement| settlement.output.as_ref().map(|o| serde_json::json!(o))).collect::<Vec<_>>())
    .bind(i32::try_from(THROTTLES_MAX).unwrap_or(i32::MAX))
    .bind(serde_json::json!(Failure::cancelled()))
    .bind(outbox)
    .bind(i32::try_from(SNOOZES_MAX).unwrap_or(i32::MAX))
    .rows(&mut *connection)
    .await?;
    let mut answers = HashMap::with_capacity(batch.len());
    for row in rows {
        answers.insert(
            (row.try_get::<Uuid, _>("id")?, row.try_get::<Uuid, _>("settled_by")?),
            state(row.try_get("state")?)?,
        );
    }
    let refused: Vec<Uuid> = ids
        .iter()
        .zip(&tokens)
        .filter(|(id, token)| !answers.contains_key(&(**id, **token)))
        .map(|(id, _)| *id)
        .collect();
    let mut found = HashMap::new();
    if !refused.is_empty() {
        let rows =
            sqlx::query("select id, state, settled_by, delete_asked from mapae.jobs where id = any($1)")
                .bind(&refused)
                .rows(connection)
                .await?;
        for row in rows {
            let buried: bool = row.try_get("delete_asked")?;
            let settled_by: Option<Uuid> = row.try_get("settled_by")?;
            found.insert(row.try_get::<Uuid, _>("id")?, (state(row.try_get("state")?)?, settled_by, buried));
        }
    }
    Ok(ids
        .iter()
        .zip(&tokens)
        .map(|(id, token)| match (answers.get(&(*id, *token)), found.get(id)) {
            (Some(state), _) => Ok(*state),
            // Asked before, and the answer was lost: it stands.
            (None, Some((state, Some(settled_by), _))) if settled_by == token => Ok(*state),
            (None, Some((state, _, buried))) if !(*buried && state.is_terminal()) => {
                Err(SettleError::LeaseLost(Some(*state)))
            }
            (None, _) => Err(SettleError::LeaseLost(None)),
        })
        .collect())
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Succeed => "succeed",
        Verdict::Retry { .. } => "retry",
        Verdict::Throttle { .. } => "throttle",
        Verdict::Snooze { .. } => "snooze",
        Verdict::Fail { .. } => "fail",
        Verdict::Stale { .. } => "stale",
        Verdict::HandBack => "hand-back",
    }
}
