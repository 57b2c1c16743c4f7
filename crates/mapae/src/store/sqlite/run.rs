//! Claim, settle, and what a running job writes. Every write carries the token.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use tracing::error;

use super::gate::{claim_limited, claim_limited_pointers};
use super::{Sqlite, Told, Transaction, hex, job_columns, limit, tell};
use crate::job::State;
use crate::job::batch::AWAIT_US;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::limit::{Limits, Stop};
use crate::job::name::{JobId, Kind, Owner};
use crate::job::record::{Checkpoint, Progress};
use crate::job::resource::Room;
use crate::job::retry::{Failure, SNOOZES_MAX, THROTTLES_MAX, Verdict};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{
    Claim, Claimed, Gates, Holding, Join, JoinError, LaneQuota, Member, Run, SettleError, Settlement,
    StoreError,
};
use crate::store::limited::in_turn;
use crate::store::row::{as_micros, job_row, state, unreadable};

/// A job and the owner that the pointer to it names. Both have to be right.
type Pointer = (JobId, Owner);

/// The holder's job with what the verdict makes of it, by the row as it is before that: `held`.
/// Binds $1 job, $2 token, $3 verdict, $4 delay, $5 failure, $6 throttles, $7 now, $11 snoozes.
macro_rules! held {
    () => {
        "
        with held as (
            select j.id, j.owner, j.kind, j.sequence, j.attempt, j.holder, $7 + $4 as due,
                   case when j.cancel_asked then 'cancelled'
                        when $3 = 'succeed' then 'succeeded'
                        when $3 = 'fail' then 'failed'
                        when $3 = 'stale' then 'stale'
                        when $3 = 'retry' and j.attempt >= j.attempts_max then 'failed'
                        when $3 = 'throttle' and j.throttled >= $6 then 'failed'
                        when $3 = 'snooze' and j.snoozed >= $11 then 'failed'
                        when $3 not in ('hand-back', 'await') and j.deadline <= $7 + $4 then 'failed'
                        else 'pending' end as next
              from jobs j
             where j.id = $1 and j.token = $2 and j.state = 'running'
        )"
    };
}

#[async_trait]
impl Run for Sqlite {
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
        let (holder, pointers) = (holder.clone(), pointers.to_vec());
        let (limits, room, unreadable) = (self.limits(), room.to_vec(), self.unreadable.clone());
        self.write(async move |tx| {
            // Jobs with gates apart: their pointers are the only ones for which it matters what others hold.
            let mut waits = HashMap::new();
            let mut run = if limits.decided(&room).is_empty() {
                lose(tx, &pointers).await?;
                start(tx, &holder, &pointers, lease).await?
            } else {
                let free = ungated(tx, &pointers, &limits, &room).await?;
                lose(tx, &free).await?;
                let mut run = start(tx, &holder, &free, lease).await?;
                let (limited, stopped) =
                    claim_limited_pointers(tx, &holder, &pointers, lease, &limits, &room).await?;
                waits = stopped;
                run.extend(
                    limited.into_iter().map(|holding| ((holding.job.id, holding.job.owner.clone()), holding)),
                );
                run
            };
            unreadable.fetch_add(std::mem::take(&mut tx.unreadable), Ordering::Relaxed);
            if run.len() == pointers.len() {
                return Ok(pointers
                    .iter()
                    .filter_map(|pointer| run.remove(pointer))
                    .map(|holding| Claim::Run(Box::new(holding)))
                    .collect());
            }
            let mut ended = end(tx, &pointers).await?;
            let mut others = why_not(tx, &pointers).await?;
            Ok(pointers
                .iter()
                .enumerate()
                .map(|(place, pointer)| match (run.remove(pointer), ended.remove(pointer)) {
                    (Some(holding), _) => Claim::Run(Box::new(holding)),
                    (None, Some(claim)) => claim,
                    (None, None) if waits.contains_key(&pointer.0.0) => {
                        Claim::Waits(waits[&pointer.0.0].clone())
                    }
                    (None, None) => others.remove(&place).unwrap_or(Claim::Stale),
                })
                .collect())
        })
        .await
    }

    async fn claim_lanes(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
        room: &[Room],
    ) -> Result<Claimed, StoreError> {
        let (holder, limits, room) = (holder.clone(), self.limits(), room.to_vec());
        let lanes = in_turn(lanes, &limits, &room);
        let unreadable = self.unreadable.clone();
        self.write(async move |tx| {
            let mut claimed = Claimed::default();
            for (limited, lanes) in lanes {
                let left = max - claimed.holdings.len();
                if lanes.is_empty() || left == 0 {
                    continue;
                }
                if limited {
                    let some = claim_limited(tx, &holder, &lanes, left, lease, &limits, &room).await?;
                    claimed.holdings.extend(some.holdings);
                    claimed.stops.extend(some.stops);
                } else {
                    claimed.holdings.extend(claim_plain(tx, &holder, &lanes, left, lease).await?);
                }
            }
            unreadable.fetch_add(std::mem::take(&mut tx.unreadable), Ordering::Relaxed);
            Ok(claimed)
        })
        .await
    }

    #[cfg(feature = "faults")]
    async fn settle(&self, mut settlement: Settlement) -> Result<State, SettleError> {
        let settled = self.write(async move |tx| {
            super::mutant::fence(tx, &mut settlement).await?;
            let state = settle(tx, &settlement).await?;
            Ok::<_, SettleError>((state, super::mutant::withhold(tx, settlement.lease.job).await?))
        });
        let (state, withheld) = settled.await?;
        if let Some(withheld) = withheld {
            super::mutant::tell_late(self, withheld);
        }
        Ok(state)
    }

    #[cfg(not(feature = "faults"))]
    async fn settle(&self, settlement: Settlement) -> Result<State, SettleError> {
        self.write(async move |tx| settle(tx, &settlement).await).await
    }

    async fn progress(&self, lease: &Lease, progress: &Progress) -> Result<(), SettleError> {
        let (lease, progress) = (lease.clone(), json!(progress));
        self.write(async move |tx| {
            let query = sqlx::query(
                "update jobs set progress = $3 where id = $1 and token = $2 and state = 'running'",
            )
            .bind(lease.job.0)
            .bind(lease.token.0)
            .bind(progress);
            if tx.run(query).await? > 0 { Ok(()) } else { Err(refused(tx, &lease).await?) }
        })
        .await
    }

    async fn checkpoint(&self, lease: &Lease, checkpoint: &Checkpoint) -> Result<(), SettleError> {
        let (lease, checkpoint) = (lease.clone(), checkpoint.clone());
        self.write(async move |tx| checkpoint_on(tx, &lease, &checkpoint).await).await
    }

    async fn checkpoints(&self, job: JobId) -> Result<Vec<Checkpoint>, StoreError> {
        let query =
            sqlx::query("select stage, output, took_us from checkpoints where job = $1 order by rowid")
                .bind(job.0);
        self.rows(query)
            .await?
            .iter()
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

/// A stage and its event, under the job's token.
pub(super) async fn checkpoint_on(
    tx: &mut Transaction<'_>,
    lease: &Lease,
    checkpoint: &Checkpoint,
) -> Result<(), SettleError> {
    let query = sqlx::query(
        "
        update jobs set sequence = sequence + 1
         where id = $1 and token = $2 and state = 'running'
        returning attempt, holder
        ",
    )
    .bind(lease.job.0)
    .bind(lease.token.0);
    let Some(row) = tx.row(query).await? else { return Err(refused(tx, lease).await?) };
    let query = sqlx::query(
        "insert or replace into checkpoints (job, stage, output, took_us, at) values ($1, $2, $3, $4, $5)",
    )
    .bind(lease.job.0)
    .bind(&checkpoint.stage)
    .bind(json!(checkpoint.output))
    .bind(as_micros(checkpoint.took))
    .bind(tx.now);
    tx.run(query).await?;
    let told = Told {
        job: lease.job.0,
        event: "stage".into(),
        attempt: row.try_get("attempt").map_err(StoreError::from)?,
        worker: row.try_get("holder").map_err(StoreError::from)?,
        code: Some(checkpoint.stage.clone()),
    };
    Ok(tell(tx, &[told]).await?)
}

/// T3 for lanes without gates.
async fn claim_plain(
    tx: &mut Transaction<'_>,
    holder: &Holder,
    lanes: &[LaneQuota],
    max: usize,
    lease: Duration,
) -> Result<Vec<Holding>, StoreError> {
    let mut holdings = Vec::new();
    for quota in lanes {
        let room = quota.max.min(max - holdings.len());
        if room == 0 {
            continue;
        }
        let query = sqlx::query(
            "
            select j.id, j.owner
              from jobs j
             where j.lane = $1 and j.state = 'pending' and j.hint > 0 and j.due_at <= $2
               and (j.deadline is null or j.deadline > $2)
               and not exists (select 1 from pauses p where p.lane = $1)
             order by j.turn, j.id
             limit $3
            ",
        )
        .bind(quota.lane.to_string())
        .bind(tx.now)
        .bind(limit(room));
        let mut next = Vec::new();
        for row in tx.rows(query).await? {
            let owner = Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?;
            next.push((JobId(row.try_get("id")?), owner));
        }
        let mut started = start(tx, holder, &next, lease).await?;
        holdings.extend(next.iter().filter_map(|pointer| started.remove(pointer)));
    }
    Ok(holdings)
}

pub(super) fn given(pointers: &[Pointer]) -> Value {
    pointers.iter().map(|(id, owner)| json!([hex(id.0), owner])).collect()
}

/// Those pointers whose jobs have no gates to pass.
async fn ungated(
    tx: &mut Transaction<'_>,
    pointers: &[Pointer],
    limits: &Limits,
    room: &[Room],
) -> Result<Vec<Pointer>, StoreError> {
    let kinds: Value = limits.decided(room).into_iter().map(|kind| json!(kind)).collect();
    let query = sqlx::query(
        "
        select p.key as place
          from json_each($1) p
         cross join jobs j on j.id = unhex(p.value->>0)
         where j.kind in (select value from json_each($2))
        ",
    )
    .bind(given(pointers))
    .bind(kinds);
    let mut gated = HashSet::new();
    for row in tx.rows(query).await? {
        gated.insert(usize::try_from(row.try_get::<i64, _>("place")?).map_err(unreadable)?);
    }
    let free = pointers.iter().enumerate().filter(|(place, _)| !gated.contains(place));
    Ok(free.map(|(_, pointer)| pointer.clone()).collect())
}

/// The first half of a claim of jobs whose lease ran out: told as lost, as a reaper would have.
pub(super) async fn lose(tx: &mut Transaction<'_>, pointers: &[Pointer]) -> Result<(), StoreError> {
    let query = sqlx::query(
        "
        update jobs as j
           set failure = json_set($3, '$.attempt', j.attempt), sequence = j.sequence + 1
          from json_each($1) p
         where j.id = unhex(p.value->>0) and j.owner = p.value->>1
           and j.state = 'running' and j.leased_until <= $2
           and not j.cancel_asked and j.attempt < j.attempts_max and (j.deadline is null or j.deadline > $2)
           and not exists (select 1 from pauses where lane = j.lane)
           and not exists (select 1 from gates where name = 'kind/' || j.kind and owner = '' and shut_until > $2)
        returning id, attempt, failure->>'code' as code
        ",
    )
    .bind(given(pointers))
    .bind(tx.now)
    .bind(json!(Failure::lost()));
    let mut told = Vec::new();
    for row in tx.rows(query).await? {
        told.push(Told {
            job: row.try_get("id")?,
            event: "lost".into(),
            attempt: row.try_get("attempt")?,
            worker: None,
            code: row.try_get("code")?,
        });
    }
    tell(tx, &told).await
}

/// The end of both claims: those of these that are free become running, and are told of and answered.
pub(super) async fn start(
    tx: &mut Transaction<'_>,
    holder: &Holder,
    pointers: &[Pointer],
    lease: Duration,
) -> Result<HashMap<Pointer, Holding>, StoreError> {
    let query = sqlx::query(concat!(
        "
        update jobs as j
           set state = 'running', attempt = j.attempt + 1, epoch = j.epoch + 1, token = randomblob(16),
               holder = $3, incarnation = $4, leased_until = $2 + $5,
               started_at = $2, progress = null, hint = 0, turn = null, ring_at = null,
               sequence = j.sequence + 1
          from json_each($1) p
         where j.id = unhex(p.value->>0) and j.owner = p.value->>1
           and ((j.state = 'pending' and j.due_at <= $2) or (j.state = 'running' and j.leased_until <= $2))
           and not j.cancel_asked and j.attempt < j.attempts_max and (j.deadline is null or j.deadline > $2)
           and not exists (select 1 from pauses where lane = j.lane)
           and not exists (select 1 from gates where name = 'kind/' || j.kind and owner = '' and shut_until > $2)
        returning ",
        job_columns!(),
    ))
    .bind(given(pointers))
    .bind(tx.now)
    .bind(holder.name.as_str())
    .bind(holder.incarnation)
    .bind(as_micros(lease));
    let mut started = HashMap::with_capacity(pointers.len());
    let mut told = Vec::with_capacity(pointers.len());
    let mut bad = Vec::new();
    for row in tx.rows(query).await? {
        told.push(Told {
            job: row.try_get("id")?,
            event: "claimed".into(),
            attempt: row.try_get("attempt")?,
            worker: Some(holder.name.clone()),
            code: None,
        });
        match holding(&row) {
            Ok(holding) => drop(started.insert((holding.job.id, holding.job.owner.clone()), holding)),
            Err(error) => {
                let job = JobId(row.try_get("id")?);
                error!(job_id = %job, said = error.said(), "a job's row cannot be read; the job has failed");
                let token = Token(row.try_get("token")?);
                tx.unreadable += 1;
                bad.push(Lease { job, token, epoch: 0, until: Timestamp::default() });
            }
        }
    }
    tell(tx, &told).await?;
    // It must not take its neighbours along.
    for lease in bad {
        let verdict = Verdict::Fail { failure: Failure::unreadable() };
        let settled = settle(tx, &Settlement { lease, verdict, output: None }).await;
        if let Err(SettleError::Store(error)) = settled {
            return Err(error);
        }
    }
    Ok(started)
}

fn holding(row: &SqliteRow) -> Result<Holding, StoreError> {
    job_row!(row).holding()
}

/// For pointers that may not run: settles what their claim was to settle (T3b, T3c).
async fn end(tx: &mut Transaction<'_>, pointers: &[Pointer]) -> Result<HashMap<Pointer, Claim>, StoreError> {
    let query = sqlx::query(
        "
        update jobs as j
           set state = case when j.cancel_asked then 'cancelled' else 'failed' end, finished_at = $2,
               token = null, holder = null, incarnation = null, leased_until = null, progress = null,
               hint = 0, turn = null, ring_at = null,
               failure = json_set(case when j.cancel_asked then $3
                                       when j.attempt >= j.attempts_max then $4
                                       else $5 end, '$.attempt', j.attempt),
               sequence = j.sequence + 1
          from json_each($1) p
         where j.id = unhex(p.value->>0) and j.owner = p.value->>1
           and ((j.state = 'running' and j.leased_until <= $2
                 and (j.cancel_asked or j.attempt >= j.attempts_max or j.deadline <= $2))
                or (j.state = 'pending' and j.deadline <= $2))
           and not exists (select 1 from pauses where lane = j.lane)
        returning id, owner, state, attempt, failure->>'code' as code
        ",
    )
    .bind(given(pointers))
    .bind(tx.now)
    .bind(json!(Failure::cancelled()))
    .bind(json!(Failure::lost()))
    .bind(json!(Failure::overdue()));
    let mut ended = HashMap::new();
    let mut told = Vec::new();
    for row in tx.rows(query).await? {
        let owner = Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?;
        let state = state(row.try_get("state")?)?;
        let claim = if state == State::Cancelled { Claim::Cancelled } else { Claim::Failed };
        ended.insert((JobId(row.try_get("id")?), owner), claim);
        told.push(Told {
            job: row.try_get("id")?,
            event: state.as_str().into(),
            attempt: row.try_get("attempt")?,
            worker: None,
            code: row.try_get("code")?,
        });
    }
    tell(tx, &told).await?;
    Ok(ended)
}

/// Where each of these rows stands, by the pointer's place.
async fn why_not(
    tx: &mut Transaction<'_>,
    pointers: &[Pointer],
) -> Result<HashMap<usize, Claim>, StoreError> {
    let query = sqlx::query(
        "
        select p.key as place, j.state, j.owner = p.value->>1 as ours, j.delete_asked,
               j.due_at, j.due_at > $2 and (j.deadline is null or j.deadline > $2) as early,
               j.leased_until, j.leased_until > $2 as held, j.kind,
               (select g.shut_until - $2 from gates g
                 where g.name = 'kind/' || j.kind and g.owner = '' and g.shut_until > $2) as shut_us
          from json_each($1) p
         cross join jobs j on j.id = unhex(p.value->>0)
        ",
    )
    .bind(given(pointers))
    .bind(tx.now);
    let mut answers = HashMap::new();
    for row in tx.rows(query).await? {
        let until = row.try_get::<Option<i64>, _>("leased_until")?.unwrap_or_default();
        let answer = match state(row.try_get("state")?)? {
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
                None => Claim::Paused,
            },
            _ if row.try_get("delete_asked")? => Claim::Stale,
            ended => Claim::Finished(ended),
        };
        answers.insert(usize::try_from(row.try_get::<i64, _>("place")?).map_err(unreadable)?, answer);
    }
    Ok(answers)
}

/// What no row changed means.
pub(super) async fn refused(tx: &mut Transaction<'_>, lease: &Lease) -> Result<SettleError, StoreError> {
    let query = sqlx::query(
        "select state from jobs where id = $1 and not (delete_asked and finished_at is not null)",
    )
    .bind(lease.job.0);
    let row = tx.row(query).await?;
    Ok(SettleError::LeaseLost(row.map(|row| state(row.try_get("state")?)).transpose()?))
}

/// T5, T6, T6b, snoozing and handing back: the event, told from the row as it was, then the state and the result;
/// last, what the row says of who settled it.
pub(super) async fn settle(tx: &mut Transaction<'_>, settlement: &Settlement) -> Result<State, SettleError> {
    let lease = &settlement.lease;
    let failure = match &settlement.verdict {
        Verdict::Retry { failure, .. }
        | Verdict::Throttle { failure, .. }
        | Verdict::Fail { failure }
        | Verdict::Stale { failure } => Some(json!(failure)),
        // Only for a snooze that is one too many.
        Verdict::Snooze { .. } => Some(json!(Failure::overslept())),
        Verdict::Succeed | Verdict::Await | Verdict::HandBack => None,
    };
    let delay = match &settlement.verdict {
        Verdict::Retry { delay, .. } | Verdict::Throttle { delay, .. } | Verdict::Snooze { delay } => {
            as_micros(*delay)
        }
        Verdict::Await => AWAIT_US,
        _ => 0,
    };
    let query = sqlx::query(concat!(
        held!(),
        "
        insert into events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
        select id, sequence + 1, owner, kind,
               case when next <> 'pending' then next
                    when $3 = 'retry' then 'retrying'
                    when $3 = 'throttle' then 'throttled'
                    when $3 = 'snooze' then 'snoozed'
                    when $3 = 'await' then 'awaiting'
                    else 'released' end,
               $7, attempt, holder,
               case when next <> 'cancelled' and (next <> 'pending' or $3 <> 'snooze') then $5->>'code' end, not $8
          from held;
        ",
        held!(),
        "
        update jobs as j
           set state        = held.next,
               due_at       = case held.next when 'pending' then held.due else j.due_at end,
               finished_at  = case held.next when 'pending' then null else $7 end,
               attempt      = j.attempt - (held.next = 'pending' and $3 <> 'retry'),
               throttled    = j.throttled + (held.next = 'pending' and $3 = 'throttle'),
               snoozed      = j.snoozed + (held.next = 'pending' and $3 = 'snooze'),
               failure      = case when held.next = 'succeeded' then null
                                   when held.next = 'cancelled' then json_set($9, '$.attempt', j.attempt)
                                   when $5 is null or (held.next = 'pending' and $3 = 'snooze') then j.failure
                                   else json_set($5, '$.attempt', j.attempt) end,
               settled_by   = j.token,
               token = null, holder = null, incarnation = null, leased_until = null, progress = null,
               sequence     = j.sequence + 1
          from held
         where j.id = held.id and j.token = $2 and j.state = 'running';
        insert into results (job, output, stored_at)
        select id, $10, $7 from jobs
         where id = $1 and settled_by = $2 and state = 'succeeded' and finished_at = $7 and $10 is not null
        on conflict (job) do nothing;
        select state, settled_by = $2 as mine, delete_asked from jobs where id = $1
        ",
    ))
    .bind(lease.job.0)
    .bind(lease.token.0)
    .bind(verdict_name(&settlement.verdict))
    .bind(delay)
    .bind(failure)
    .bind(i32::try_from(THROTTLES_MAX).unwrap_or(i32::MAX))
    .bind(tx.now)
    .bind(tx.outbox)
    .bind(json!(Failure::cancelled()))
    .bind(settlement.output.as_ref().map(|output| json!(output)))
    .bind(i32::try_from(SNOOZES_MAX).unwrap_or(i32::MAX));
    let Some(row) = tx.row(query).await? else { return Err(SettleError::LeaseLost(None)) };
    let state = state(row.try_get("state").map_err(StoreError::from)?)?;
    // Asked before, and the answer was lost: it stands. Any other has lost its lease.
    match row.try_get("mine").map_err(StoreError::from)? {
        Some(true) => Ok(state),
        Some(false) | None => {
            let buried = state.is_terminal() && row.try_get("delete_asked").map_err(StoreError::from)?;
            Err(SettleError::LeaseLost((!buried).then_some(state)))
        }
    }
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Succeed => "succeed",
        Verdict::Retry { .. } => "retry",
        Verdict::Throttle { .. } => "throttle",
        Verdict::Snooze { .. } => "snooze",
        Verdict::Fail { .. } => "fail",
        Verdict::Stale { .. } => "stale",
        Verdict::Await => "await",
        Verdict::HandBack => "hand-back",
    }
}
