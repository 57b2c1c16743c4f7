//! Claims (T3): who may run what now, and where the others stand.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use tracing::error;

use super::gate::claim_limited_pointers;
use super::settle::settle;
use super::{Told, Transaction, hex, job_columns, limit, tell};
use crate::job::State;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::limit::{Limits, Stop};
use crate::job::name::{JobId, Kind, Owner};
use crate::job::resource::Room;
use crate::job::retry::{Failure, Verdict};
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Claim, Holding, LaneQuota, Settlement, StoreError};
use crate::store::row::{as_micros, job_row, state, unreadable};

/// A job and the owner that the pointer to it names. Both have to be right.
type Pointer = (JobId, Owner);

/// The answer to each of these pointers, in their order.
pub(super) async fn claim_pointers(
    tx: &mut Transaction<'_>,
    holder: &Holder,
    pointers: &[Pointer],
    lease: Duration,
    limits: &Limits,
    room: &[Room],
) -> Result<Vec<Claim>, StoreError> {
    // Jobs with gates apart: their pointers are the only ones for which it matters what others hold.
    let mut waits = HashMap::new();
    let mut run = if limits.decided(room).is_empty() {
        lose(tx, pointers).await?;
        start(tx, holder, pointers, lease).await?
    } else {
        let free = ungated(tx, pointers, limits, room).await?;
        lose(tx, &free).await?;
        let mut run = start(tx, holder, &free, lease).await?;
        let (limited, stopped) = claim_limited_pointers(tx, holder, pointers, lease, limits, room).await?;
        waits = stopped;
        run.extend(limited.into_iter().map(|holding| ((holding.job.id, holding.job.owner.clone()), holding)));
        run
    };
    if run.len() == pointers.len() {
        return Ok(pointers
            .iter()
            .filter_map(|pointer| run.remove(pointer))
            .map(|holding| Claim::Run(Box::new(holding)))
            .collect());
    }
    let mut ended = end(tx, pointers).await?;
    let mut others = why_not(tx, pointers).await?;
    Ok(pointers
        .iter()
        .enumerate()
        .map(|(place, pointer)| match (run.remove(pointer), ended.remove(pointer)) {
            (Some(holding), _) => Claim::Run(Box::new(holding)),
            (None, Some(claim)) => claim,
            (None, None) if waits.contains_key(&pointer.0.0) => Claim::Waits(waits[&pointer.0.0].clone()),
            (None, None) => others.remove(&place).unwrap_or(Claim::Stale),
        })
        .collect())
}

/// T3 for lanes without gates.
pub(super) async fn claim_plain(
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
    let fail = |lease| {
        let verdict = Verdict::Fail { failure: Failure::unreadable() };
        Settlement { lease, verdict, output: None }
    };
    let bad: Vec<Settlement> = bad.into_iter().map(fail).collect();
    if !bad.is_empty() {
        settle(tx, &bad).await?;
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
               j.id, j.due_at, j.due_at > $2 and (j.deadline is null or j.deadline > $2) as early,
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
    let mut paused = Vec::new();
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
                None => {
                    paused.push(json!(hex(row.try_get("id")?)));
                    Claim::Paused
                }
            },
            _ if row.try_get("delete_asked")? => Claim::Stale,
            ended => Claim::Finished(ended),
        };
        answers.insert(usize::try_from(row.try_get::<i64, _>("place")?).map_err(unreadable)?, answer);
    }
    if !paused.is_empty() {
        let query = sqlx::query(
            "
            update jobs set hint = 0, turn = null, ring_at = null
             where id in (select unhex(value) from json_each($1)) and state = 'pending' and hint > 0
            ",
        );
        tx.run(query.bind(Value::Array(paused))).await?;
    }
    Ok(answers)
}
