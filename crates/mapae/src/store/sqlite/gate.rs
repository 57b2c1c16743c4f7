//! Limits over all processes.
//!
//! There is one writer at a time, so a claim under limits is a transaction like any other: nobody else decides
//! between its statements.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Sqlite, Transaction, hex, limit, now};
use crate::job::lease::Holder;
use crate::job::limit::{Account, Gate, Key, Ledger, Limits, Stop};
use crate::job::name::{JobId, Kind, Owner};
use crate::job::resource::Room;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Claimed, GateRow, Gates, Holding, LaneQuota, StoreError};
use crate::store::limited::{Candidate, Taken, Tolls, book, choose, look, whose};
use crate::store::row::{as_micros, big, unreadable};

#[async_trait]
impl Gates for Sqlite {
    fn limit(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits.into();
    }

    fn limits(&self) -> Arc<Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn shut(&self, gate: &Gate, wait: Duration) -> Result<(), StoreError> {
        let gate = gate.to_string();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                insert into gates as g (name, shut_until) values ($1, $2)
                on conflict (name, owner) do update set shut_until = max(coalesce(g.shut_until, 0), excluded.shut_until)
                ",
            )
            .bind(gate)
            .bind(tx.now + as_micros(wait));
            tx.run(query).await?;
            Ok(())
        })
        .await
    }

    async fn gates(&self, owner: Option<&Owner>) -> Result<Vec<GateRow>, StoreError> {
        let query = sqlx::query(concat!(
            "
            select s.gate, s.owner, sum(s.amount) as in_use, null as next_at, null as shut_until
              from shares s
             cross join jobs j on j.id = s.job and j.token = s.token
             where s.owner in ('', $1) and j.state = 'running' and j.leased_until > ",
            now!(),
            "
             group by s.gate, s.owner
            union all
            select g.name, g.owner, 0, g.next_at, g.shut_until
              from gates g
             where g.owner in ('', $1)
            ",
        ))
        .bind(owner.map(ToString::to_string).unwrap_or_default());
        let mut gates: Vec<(Key, Account)> = accounts(&self.rows(query).await?)?.into_iter().collect();
        gates.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(gates.into_iter().map(|((gate, owner), account)| GateRow { gate, owner, account }).collect())
    }
}

/// T3 for lanes with gates.
pub(super) async fn claim_limited(
    tx: &mut Transaction<'_>,
    holder: &Holder,
    lanes: &[LaneQuota],
    max: usize,
    lease: Duration,
    limits: &Limits,
    room: &[Room],
) -> Result<Claimed, StoreError> {
    let mut candidates = Vec::new();
    for (place, quota) in lanes.iter().enumerate() {
        let query = sqlx::query(
            "
            select j.id, j.owner, j.kind, coalesce(j.source->>'bytes', 0) as bytes
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
        .bind(limit(look(quota, limits)));
        for row in tx.rows(query).await? {
            candidates.push(candidate(&row, place)?);
        }
    }
    let tolls = Tolls::of(lanes.iter().map(|quota| &quota.lane.kind), limits, room);
    let quotas: Vec<usize> = lanes.iter().map(|quota| quota.max).collect();
    let (holdings, stopped) =
        start_allowed(tx, holder, &candidates, &tolls, &quotas, max, lease, room).await?;
    let mut claimed = Claimed { holdings, ..Claimed::default() };
    stopped.into_iter().for_each(|(_, stop)| claimed.stopped(stop));
    Ok(claimed)
}

/// T3 for pointers to jobs with gates: what was claimed, and what has to wait.
pub(super) async fn claim_limited_pointers(
    tx: &mut Transaction<'_>,
    holder: &Holder,
    pointers: &[(JobId, Owner)],
    lease: Duration,
    limits: &Limits,
    room: &[Room],
) -> Result<(Vec<Holding>, HashMap<Uuid, Stop>), StoreError> {
    let kinds: Value = limits.decided(room).into_iter().map(|kind| json!(kind)).collect();
    let query = sqlx::query(
        "
        select j.id, j.owner, j.kind, coalesce(j.source->>'bytes', 0) as bytes
          from json_each($1) p
         cross join jobs j on j.id = unhex(p.value->>0) and j.owner = p.value->>1
         where j.kind in (select value from json_each($3))
           and ((j.state = 'pending' and j.due_at <= $2) or (j.state = 'running' and j.leased_until <= $2))
           and not j.cancel_asked and j.attempt < j.attempts_max and (j.deadline is null or j.deadline > $2)
           and not exists (select 1 from pauses where lane = j.lane)
         order by p.key
        ",
    )
    .bind(super::claim::given(pointers))
    .bind(tx.now)
    .bind(kinds);
    let mut candidates: Vec<Candidate> = Vec::new();
    for row in tx.rows(query).await? {
        let candidate = candidate(&row, 0)?;
        if candidates.iter().all(|known| known.id != candidate.id) {
            candidates.push(candidate);
        }
    }
    let tolls = Tolls::of(candidates.iter().map(|candidate| &candidate.kind), limits, room);
    let max = candidates.len();
    let (holdings, stopped) =
        start_allowed(tx, holder, &candidates, &tolls, &[max], max, lease, room).await?;
    Ok((holdings, stopped.into_iter().collect()))
}

/// Who may start is claimed, and its shares are written down.
#[expect(clippy::too_many_arguments, reason = "one step of two claims, and nothing to name between them")]
async fn start_allowed(
    tx: &mut Transaction<'_>,
    holder: &Holder,
    candidates: &[Candidate],
    tolls: &Tolls,
    quotas: &[usize],
    max: usize,
    lease: Duration,
    room: &[Room],
) -> Result<(Vec<Holding>, Vec<(Uuid, Stop)>), StoreError> {
    if candidates.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let now = Timestamp::from_micros(tx.now);
    let accounts = standing(tx, tolls, candidates).await?;
    let mut ledger = Ledger::new(now, accounts.clone(), room);
    let (chosen, stopped) = choose(candidates, tolls, quotas, max, &mut ledger);
    if chosen.is_empty() {
        return Ok((Vec::new(), stopped));
    }
    let pointers: Vec<(JobId, Owner)> =
        chosen.iter().map(|candidate| (JobId(candidate.id), candidate.owner.clone())).collect();
    super::claim::lose(tx, &pointers).await?;
    let mut started = super::claim::start(tx, holder, &pointers, lease).await?;
    let (mut holdings, mut claimed) = (Vec::new(), Vec::new());
    for (candidate, pointer) in chosen.into_iter().zip(&pointers) {
        let Some(holding) = started.remove(pointer) else { continue };
        claimed.push((candidate, holding.lease.token.0));
        holdings.push(holding);
    }
    let taken = book(&claimed, tolls, Ledger::new(now, accounts, room));
    write_down(tx, tolls, taken).await?;
    Ok((holdings, stopped))
}

/// What is in use of the gates and how their paces stand, of all owners and of those who wait here.
async fn standing(
    tx: &mut Transaction<'_>,
    tolls: &Tolls,
    candidates: &[Candidate],
) -> Result<HashMap<Key, Account>, StoreError> {
    let (gates, _) = tolls.gates();
    let mut owners: Vec<&str> = candidates.iter().map(|candidate| candidate.owner.as_str()).collect();
    owners.push("");
    owners.sort_unstable();
    owners.dedup();
    let query = sqlx::query(
        "
        select s.gate, s.owner, sum(s.amount) as in_use, null as next_at, null as shut_until
          from shares s
         cross join jobs j on j.id = s.job and j.token = s.token
         where s.gate in (select value from json_each($1)) and j.state = 'running' and j.leased_until > $3
         group by s.gate, s.owner
        union all
        select g.name, g.owner, 0, g.next_at, g.shut_until
          from gates g
         where g.name in (select value from json_each($1)) and g.owner in (select value from json_each($2))
        ",
    )
    .bind(json!(gates))
    .bind(json!(owners))
    .bind(tx.now);
    accounts(&tx.rows(query).await?)
}

/// The shares of what was claimed, and the paces. What leases that are over have left is removed, and owners whose
/// pace has run out are forgotten.
async fn write_down(
    tx: &mut Transaction<'_>,
    tolls: &Tolls,
    Taken { shares, paces }: Taken,
) -> Result<(), StoreError> {
    let (gates, _) = tolls.gates();
    let query = sqlx::query(
        "
        delete from shares
         where gate in (select value from json_each($1))
           and not exists (select 1 from jobs j where j.id = shares.job and j.token = shares.token)
        ",
    )
    .bind(json!(gates));
    tx.run(query).await?;
    let query = sqlx::query(
        "
        delete from gates
         where name in (select value from json_each($1)) and owner <> '' and next_at <= $2
        ",
    )
    .bind(json!(gates))
    .bind(tx.now);
    tx.run(query).await?;
    let shares: Value = shares
        .iter()
        .map(|(job, token, share)| {
            json!([share.gate.to_string(), whose(&share.owner), hex(*job), hex(*token), share.amount])
        })
        .collect();
    let query = sqlx::query(
        "
        insert into shares (gate, owner, job, token, amount)
        select value->>0, value->>1, unhex(value->>2), unhex(value->>3), value->>4 from json_each($1)
        ",
    )
    .bind(shares);
    tx.run(query).await?;
    let paces: Value = paces
        .iter()
        .map(|((gate, owner), next)| json!([gate.to_string(), whose(owner), next.micros()]))
        .collect();
    let query = sqlx::query(
        "
        insert into gates (name, owner, next_at)
        select value->>0, value->>1, value->>2 from json_each($1) where true
        on conflict (name, owner) do update set next_at = excluded.next_at
        ",
    )
    .bind(paces);
    tx.run(query).await?;
    Ok(())
}

fn candidate(row: &SqliteRow, place: usize) -> Result<Candidate, StoreError> {
    Ok(Candidate {
        id: row.try_get("id")?,
        owner: Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?,
        kind: Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
        bytes: big(row.try_get("bytes")?)?,
        place,
    })
}

/// Of rows that each tell a part of what is known of a gate. What this program does not know is left out.
fn accounts(rows: &[SqliteRow]) -> Result<HashMap<Key, Account>, StoreError> {
    let mut accounts: HashMap<Key, Account> = HashMap::new();
    for row in rows {
        let Some(gate) = Gate::parse(row.try_get("gate")?) else { continue };
        let owner = Owner::new(row.try_get::<String, _>("owner")?).ok();
        let account = accounts.entry((gate, owner)).or_default();
        account.in_use += big(row.try_get("in_use")?)?;
        let moment =
            |name| Ok::<_, StoreError>(row.try_get::<Option<i64>, _>(name)?.map(Timestamp::from_micros));
        account.next = moment("next_at")?.or(account.next);
        account.shut_until = moment("shut_until")?.or(account.shut_until);
    }
    Ok(accounts)
}
