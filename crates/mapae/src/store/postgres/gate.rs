//! Limits over all processes.
//!
//! A claim under limits is one transaction that holds the rows of its gates, taken in one order, before it looks
//! at what is in use: each statement after that sees what every claim before it has committed. Nothing else
//! ever waits for these rows, and whoever holds them waits for no job's row.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgTransaction, Row};
use uuid::Uuid;

use super::Postgres;
use super::ask::{Ask, within};
use crate::job::lease::Holder;
use crate::job::limit::{Account, Gate, Key, Ledger, Limits, Stop};
use crate::job::name::{JobId, Kind, Owner};
use crate::job::resource::Room;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Claimed, GateRow, Gates, Holding, LaneQuota, StoreError};
use crate::store::limited::{Candidate, Taken, Tolls, book, choose, look, whose};
use crate::store::row::{as_micros, big, unreadable};

#[async_trait]
impl Gates for Postgres {
    fn limit(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits.into();
    }

    fn limits(&self) -> Arc<Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn shut(&self, gate: &Gate, wait: Duration) -> Result<(), StoreError> {
        sqlx::query(
            "
            insert into mapae.gates as g (name, shut_until) values ($1, now() + $2 * interval '1 microsecond')
            on conflict (name, owner) do update set shut_until = greatest(g.shut_until, excluded.shut_until)
            ",
        )
        .bind(gate.to_string())
        .bind(as_micros(wait))
        .done(&self.pool)
        .await?;
        Ok(())
    }

    async fn gates(&self, owner: Option<&Owner>) -> Result<Vec<GateRow>, StoreError> {
        let rows = sqlx::query(
            "
            select s.gate, s.owner, sum(s.amount)::bigint as in_use, null::bigint as next_at, null::bigint as shut_until
              from mapae.shares s
              join mapae.jobs j on j.id = s.job and j.token = s.token
             where s.owner in ('', $1) and j.state = 'running' and j.leased_until > now()
             group by s.gate, s.owner
            union all
            select g.name, g.owner, 0, (extract(epoch from g.next_at) * 1000000)::bigint,
                   (extract(epoch from g.shut_until) * 1000000)::bigint
              from mapae.gates g
             where g.owner in ('', $1)
            ",
        )
        .bind(owner.map(Owner::as_str).unwrap_or_default())
        .rows(&self.views)
        .await?;
        let mut gates: Vec<(Key, Account)> = accounts(&rows)?.into_iter().collect();
        gates.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(gates.into_iter().map(|((gate, owner), account)| GateRow { gate, owner, account }).collect())
    }
}

impl Postgres {
    /// T3 for lanes with gates. Whether anything waits there is asked first: who has nothing to claim holds no gate.
    pub(super) async fn claim_limited(
        &self,
        holder: &Holder,
        lanes: &[LaneQuota],
        max: usize,
        lease: Duration,
        room: &[Room],
    ) -> Result<Claimed, StoreError> {
        let limits = self.limits();
        let names: Vec<String> = lanes.iter().map(|quota| quota.lane.to_string()).collect();
        let row = sqlx::query(
            "
            select exists (
                select from unnest($1::text[]) q (lane)
                 cross join lateral (
                       select from mapae.jobs j
                        where j.lane = q.lane and j.state = 'pending' and j.hint > 0 and j.due_at <= now()
                        limit 1) x) as some
            ",
        )
        .bind(&names)
        .one(&self.pool)
        .await?;
        if !row.try_get::<bool, _>("some")? {
            return Ok(Claimed::default());
        }
        let tolls = Tolls::of(lanes.iter().map(|quota| &quota.lane.kind), &limits, room);
        let mut tx = self.hold(&tolls).await?;
        let rows = sqlx::query(
            "
            select x.id, x.owner, x.kind, x.bytes, q.place
              from unnest($1::text[], $2::bigint[]) with ordinality q (lane, max, place)
             cross join lateral (
                   select j.id, j.owner, j.kind, coalesce((j.source->>'bytes')::bigint, 0) as bytes, j.turn
                     from mapae.jobs j
                    where j.lane = q.lane and j.state = 'pending' and j.hint > 0 and j.due_at <= now()
                      and (j.deadline is null or j.deadline > now())
                    order by j.turn, j.id
                    limit q.max) x
             where not exists (select from mapae.pauses p where p.lane = q.lane)
             order by q.place, x.turn, x.id
            ",
        )
        .bind(&names)
        .bind(
            lanes
                .iter()
                .map(|quota| i64::try_from(look(quota, &limits)).unwrap_or(i64::MAX))
                .collect::<Vec<_>>(),
        )
        .rows(&mut *tx)
        .await?;
        let candidates = rows.iter().map(candidate).collect::<Result<Vec<_>, _>>()?;
        let quotas: Vec<usize> = lanes.iter().map(|quota| quota.max).collect();
        let (holdings, stopped) =
            self.start_allowed(tx, holder, &candidates, &tolls, &quotas, max, lease, room).await?;
        let mut claimed = Claimed { holdings, ..Claimed::default() };
        stopped.into_iter().for_each(|(_, stop)| claimed.stopped(stop));
        Ok(claimed)
    }

    /// T3 for pointers to jobs with gates: what was claimed, and what has to wait.
    pub(super) async fn claim_limited_pointers(
        &self,
        holder: &Holder,
        pointers: &[(JobId, Owner)],
        lease: Duration,
        room: &[Room],
    ) -> Result<(Vec<Holding>, HashMap<Uuid, Stop>), StoreError> {
        let limits = self.limits();
        let rows = sqlx::query(
            "
            select j.id, j.owner, j.kind, coalesce((j.source->>'bytes')::bigint, 0) as bytes, 1::bigint as place
              from unnest($1::uuid[], $2::text[]) with ordinality p (id, owner, place)
              join mapae.jobs j on j.id = p.id and j.owner = p.owner
             where j.id = any($1) and j.kind = any($3)
               and ((j.state = 'pending' and j.due_at <= now()) or (j.state = 'running' and j.leased_until <= now()))
               and not exists (select from mapae.pauses p where p.lane = j.lane)
               and not j.cancel_asked and j.attempt < j.attempts_max
               and (j.deadline is null or j.deadline > now())
             order by p.place
            ",
        )
        .bind(pointers.iter().map(|(id, _)| id.0).collect::<Vec<_>>())
        .bind(pointers.iter().map(|(_, owner)| owner.to_string()).collect::<Vec<_>>())
        .bind(limits.decided(room).iter().map(ToString::to_string).collect::<Vec<_>>())
        .rows(&self.pool)
        .await?;
        if rows.is_empty() {
            return Ok((Vec::new(), HashMap::new()));
        }
        let mut candidates = rows.iter().map(candidate).collect::<Result<Vec<_>, _>>()?;
        let mut seen = std::collections::HashSet::new();
        candidates.retain(|candidate| seen.insert(candidate.id));
        let tolls = Tolls::of(candidates.iter().map(|candidate| &candidate.kind), &limits, room);
        let tx = self.hold(&tolls).await?;
        let max = candidates.len();
        let (holdings, stopped) =
            self.start_allowed(tx, holder, &candidates, &tolls, &[max], max, lease, room).await?;
        Ok((holdings, stopped.into_iter().collect()))
    }

    /// A transaction that holds the gates.
    async fn hold(&self, tolls: &Tolls) -> Result<PgTransaction<'static>, StoreError> {
        let (_, gates) = tolls.gates();
        // Whatever the server's own default is: a later statement has to see what was committed meanwhile.
        let mut tx = within(self.pool.begin_with("begin isolation level read committed")).await?;
        for _ in 0..2 {
            let held = sqlx::query(
                "select name from mapae.gates where name = any($1) and owner = '' order by name for update",
            )
            .bind(&gates)
            .rows(&mut *tx)
            .await?;
            if held.len() == gates.len() {
                return Ok(tx);
            }
            sqlx::query(
                "insert into mapae.gates (name) select g from unnest($1::text[]) g order by g on conflict do nothing",
            )
            .bind(&gates)
            .done(&mut *tx)
            .await?;
        }
        Err(StoreError::Unavailable("a gate's row went away".into()))
    }

    /// With the gates held: who may start is claimed, and its shares are written down.
    #[expect(clippy::too_many_arguments, reason = "one step of two claims, and nothing to name between them")]
    async fn start_allowed(
        &self,
        mut tx: PgTransaction<'static>,
        holder: &Holder,
        candidates: &[Candidate],
        tolls: &Tolls,
        quotas: &[usize],
        max: usize,
        lease: Duration,
        room: &[Room],
    ) -> Result<(Vec<Holding>, Vec<(Uuid, Stop)>), StoreError> {
        let (now, accounts) = standing(&mut tx, tolls, candidates).await?;
        let mut ledger = Ledger::new(now, accounts.clone(), room);
        let (chosen, stopped) = choose(candidates, tolls, quotas, max, &mut ledger);
        if chosen.is_empty() {
            within(tx.rollback()).await?;
            return Ok((Vec::new(), stopped));
        }
        let rows = super::claim::claim_chosen(&mut tx, holder, &chosen, lease, self.outbox).await?;
        let mut tokens: HashMap<Uuid, Uuid> = HashMap::with_capacity(rows.len());
        for row in &rows {
            tokens.insert(row.try_get("id")?, row.try_get("token")?);
        }
        let claimed: Vec<(&Candidate, Uuid)> = chosen
            .into_iter()
            .filter_map(|candidate| Some((candidate, *tokens.get(&candidate.id)?)))
            .collect();
        let taken = book(&claimed, tolls, Ledger::new(now, accounts, room));
        write_down(&mut tx, tolls, taken).await?;
        within(tx.commit()).await?;
        Ok((self.readable(&rows).await?, stopped))
    }
}

/// What is in use of the gates and how their paces stand, of all owners and of those who wait here.
async fn standing(
    tx: &mut PgConnection,
    tolls: &Tolls,
    candidates: &[Candidate],
) -> Result<(Timestamp, HashMap<Key, Account>), StoreError> {
    let (gates, _) = tolls.gates();
    let mut owners: Vec<&str> = candidates.iter().map(|candidate| candidate.owner.as_str()).collect();
    owners.push("");
    owners.sort_unstable();
    owners.dedup();
    let rows = sqlx::query(
        "
        select null::text as gate, '' as owner, 0::bigint as in_use,
               (extract(epoch from clock_timestamp()) * 1000000)::bigint as next_at, null::bigint as shut_until
        union all
        select s.gate, s.owner, sum(s.amount)::bigint, null, null
          from mapae.shares s
          join mapae.jobs j on j.id = s.job and j.token = s.token
         where s.gate = any($1) and j.state = 'running' and j.leased_until > now()
         group by s.gate, s.owner
        union all
        select g.name, g.owner, 0, (extract(epoch from g.next_at) * 1000000)::bigint,
               (extract(epoch from g.shut_until) * 1000000)::bigint
          from mapae.gates g
         where g.name = any($1) and g.owner = any($2)
        ",
    )
    .bind(&gates)
    .bind(owners.iter().map(ToString::to_string).collect::<Vec<_>>())
    .rows(&mut *tx)
    .await?;
    let clock =
        rows.iter().find(|row| row.try_get::<Option<String>, _>("gate").is_ok_and(|gate| gate.is_none()));
    let clock = clock.ok_or_else(|| unreadable("a query without its clock"))?;
    let now = Timestamp::from_micros(clock.try_get("next_at")?);
    Ok((now, accounts(&rows)?))
}

/// The shares of what was claimed, and the paces. What leases that are over have left is removed, and owners whose
/// pace has run out are forgotten.
async fn write_down(
    tx: &mut PgConnection,
    tolls: &Tolls,
    Taken { shares, paces }: Taken,
) -> Result<(), StoreError> {
    let (gates, _) = tolls.gates();
    sqlx::query(
        "
        with over as (
            delete from mapae.shares s
             where s.gate = any($1)
               and not exists (select from mapae.jobs j where j.id = s.job and j.token = s.token)
        ), idle as (
            delete from mapae.gates g
             where g.name = any($1) and g.owner <> '' and g.next_at <= now() and g.owner <> all($8)
        ), given as (
            insert into mapae.shares (gate, owner, job, token, amount)
            select * from unnest($2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::bigint[])
        )
        insert into mapae.gates (name, owner, next_at)
        select p.name, p.owner, timestamptz 'epoch' + p.next_at * interval '1 microsecond'
          from unnest($7::text[], $8::text[], $9::bigint[]) p (name, owner, next_at)
        on conflict (name, owner) do update set next_at = excluded.next_at
        ",
    )
    .bind(&gates)
    .bind(shares.iter().map(|(_, _, share)| share.gate.to_string()).collect::<Vec<_>>())
    .bind(shares.iter().map(|(_, _, share)| whose(&share.owner)).collect::<Vec<_>>())
    .bind(shares.iter().map(|(job, ..)| *job).collect::<Vec<_>>())
    .bind(shares.iter().map(|(_, token, _)| *token).collect::<Vec<_>>())
    .bind(
        shares.iter().map(|(.., share)| i64::try_from(share.amount).unwrap_or(i64::MAX)).collect::<Vec<_>>(),
    )
    .bind(paces.iter().map(|((gate, _), _)| gate.to_string()).collect::<Vec<_>>())
    .bind(paces.iter().map(|((_, owner), _)| whose(owner)).collect::<Vec<_>>())
    .bind(paces.iter().map(|(_, next)| next.micros()).collect::<Vec<_>>())
    .done(&mut *tx)
    .await?;
    Ok(())
}

fn candidate(row: &PgRow) -> Result<Candidate, StoreError> {
    Ok(Candidate {
        id: row.try_get("id")?,
        owner: Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?,
        kind: Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
        bytes: big(row.try_get("bytes")?)?,
        place: usize::try_from(row.try_get::<i64, _>("place")? - 1).map_err(unreadable)?,
    })
}

/// Of rows that each tell a part of what is known of a gate. What this program does not know is left out.
fn accounts(rows: &[PgRow]) -> Result<HashMap<Key, Account>, StoreError> {
    let mut accounts: HashMap<Key, Account> = HashMap::new();
    for row in rows {
        let name = row.try_get::<Option<String>, _>("gate")?;
        let Some(gate) = name.and_then(|name| Gate::parse(&name)) else { continue };
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
