//! Claims (T3): which of these pointers, or of what waits in these lanes, may run, and why the others may not.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use tracing::{error, warn};
use uuid::Uuid;

use super::ask::Ask;
use super::{Postgres, job_columns};
use crate::job::State;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::limit::Stop;
use crate::job::name::{JobId, Kind, Owner};
use crate::job::resource::Room;
use crate::job::retry::{Failure, Verdict};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Claim, Gates, Holding, LaneQuota, Settlement, StoreError};
use crate::store::limited::Candidate;
use crate::store::row::{as_micros, job_row, state, unreadable};

/// When a job is asked for again whose row another transaction held, or of which the store could not say.
pub(super) const HELD_WAIT: Duration = Duration::from_millis(50);

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

impl Postgres {
    /// The answers to pointers of one statement.
    pub(super) async fn claim_some(
        &self,
        holder: &Holder,
        pointers: &[(JobId, Owner)],
        lease: Duration,
        room: &[Room],
    ) -> Result<Vec<Claim>, StoreError> {
        let ids: Vec<Uuid> = pointers.iter().map(|(id, _)| id.0).collect();
        let owners: Vec<String> = pointers.iter().map(|(_, owner)| owner.to_string()).collect();
        // A row that another transaction holds is asked for again a little later: a claim never waits, and so costs
        // its neighbours nothing and no two claims can wait for each other.
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
                   for update of j skip locked
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
        let (mut waits, mut unsure) = (HashMap::new(), false);
        if holdings.len() < pointers.len() && any_decided {
            match self.claim_limited_pointers(holder, pointers, lease, room).await {
                Ok((limited, stopped)) => {
                    holdings.extend(limited);
                    waits = stopped;
                }
                // What is claimed already is not given up for it.
                Err(error) if holdings.is_empty() => return Err(error),
                Err(error) => {
                    told_of(&error);
                    unsure = true;
                }
            }
        }
        let mut run: HashMap<Uuid, Holding> = HashMap::with_capacity(holdings.len());
        for holding in holdings {
            run.insert(holding.job.id.0, holding);
        }
        let granted: HashMap<Uuid, (Owner, Timestamp)> =
            run.iter().map(|(id, holding)| (*id, (holding.job.owner.clone(), holding.lease.until))).collect();
        let told = |id: &Uuid| granted.contains_key(id) || waits.contains_key(id);
        let rest: Vec<Uuid> = ids.iter().copied().filter(|id| !told(id)).collect();
        let others = match rest[..] {
            [] => Ok(HashMap::new()),
            _ => self.why_not(&rest, &owners, &ids).await,
        };
        let mut others = match others {
            // Their rows may say that they are held, and not that it is by us.
            _ if unsure => None,
            Ok(others) => Some(others),
            Err(error) if run.is_empty() => return Err(error),
            Err(error) => {
                told_of(&error);
                None
            }
        };
        let mut answer = |(id, owner): &(JobId, Owner)| match granted.get(&id.0) {
            Some((rightful, _)) if rightful != owner => Claim::Foreign,
            Some((_, until)) => match run.remove(&id.0) {
                Some(holding) => Claim::Run(Box::new(holding)),
                // A pointer that stands twice in one batch: its first has the lease.
                None => Claim::Busy(*until),
            },
            None if waits.contains_key(&id.0) => Claim::Waits(waits[&id.0].clone()),
            None => match others.as_mut().map(|others| others.get_mut(&(id.0, owner.to_string()))) {
                // What the first of two pointers ended is ended for the second.
                Some(Some(answers)) => std::mem::replace(&mut answers.0, answers.1.clone()),
                Some(None) => Claim::Stale,
                None => Claim::Later(HELD_WAIT),
            },
        };
        Ok(pointers.iter().map(&mut answer).collect())
    }

    /// T3 for lanes without gates.
    pub(super) async fn claim_plain(
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
                    let settled = self.settles.ask(Settlement { lease, verdict, output: None }).await;
                    // Otherwise its lease runs out, and the next claim meets it again.
                    if matches!(settled, Ok(Ok(_))) {
                        self.unreadable.fetch_add(1, Ordering::Relaxed);
                    }
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
                   for update of j skip locked
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
                    None => Claim::Later(HELD_WAIT),
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
        let paused = |(_, again): &&(Claim, Claim)| *again == Claim::Paused;
        if answers.values().any(|answer| paused(&answer)) {
            let ids = answers.iter().filter(|(_, answer)| paused(answer)).map(|((id, _), _)| *id);
            let query = sqlx::query(
                "
                update mapae.jobs j set hint = 0, turn = null, ring_at = null
                 where j.id = any(array(select id from mapae.jobs where id = any($1) for update skip locked))
                   and j.state = 'pending' and j.hint > 0
                ",
            );
            // Otherwise it is rung again when its pointer counts as lost.
            if let Err(error) = query.bind(ids.collect::<Vec<_>>()).done(&self.pool).await {
                told_of(&error);
            }
        }
        Ok(answers)
    }
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

pub(super) fn told_of(error: &StoreError) {
    warn!(code = error.code(), said = error.said(), "a part of a claim failed; the rest of it holds");
}

fn holding(row: &PgRow) -> Result<Holding, StoreError> {
    job_row!(row).holding()
}
