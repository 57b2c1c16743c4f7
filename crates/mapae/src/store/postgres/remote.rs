//! Leases held outside. Every write of the running side carries the token.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;

use super::Postgres;
use super::ask::Ask;
use super::member::beats;
use super::run::lost;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::name::{BusinessKey, JobId, Kind, Lane, Owner};
use crate::store::contract::{Awaited, Beat, Puller, Remote, Scope, SettleError, StoreError};
use crate::store::row::{as_micros, state, unreadable};

#[async_trait]
impl Remote for Postgres {
    async fn lend(&self, lease: &Lease, until: Duration) -> Result<(), SettleError> {
        let service = Holder::service();
        let rows = sqlx::query(
            "
            with held as (
                select j.id, j.holder as worker from mapae.jobs j
                 where j.id = $1 and j.token = $2 and j.state = 'running' and j.holder <> $3
                   for update of j
            ), lent as (
                update mapae.jobs j
                   set holder = $3, incarnation = $4, leased_until = now() + $5 * interval '1 microsecond',
                       sequence = j.sequence + 1
                  from held
                 where j.id = $1 and j.id = held.id and j.token = $2 and j.state = 'running' and j.holder <> $3
                returning j.id, j.owner, j.kind, j.sequence, j.attempt, held.worker
            ), told as (
                insert into mapae.events (job, sequence, owner, kind, event, at, attempt, worker, sent)
                select id, sequence, owner, kind, 'handed-over', now(), attempt, worker, not $6 from lent
            )
            select id from lent
            ",
        )
        .bind(lease.job.0)
        .bind(lease.token.0)
        .bind(&service.name)
        .bind(service.incarnation)
        .bind(as_micros(until))
        .bind(self.outbox)
        .rows(&self.pool)
        .await?;
        if !rows.is_empty() {
            return Ok(());
        }
        let row = sqlx::query(
            "
            select state, state = 'running' and token = $2 as lent from mapae.jobs
             where id = $1 and not (delete_asked and finished_at is not null)
            ",
        )
        .bind(lease.job.0)
        .bind(lease.token.0)
        .maybe(&self.pool)
        .await?;
        let Some(row) = row else { return Err(SettleError::LeaseLost(None)) };
        // Asked before, and the answer was lost: it stands.
        if row.try_get::<Option<bool>, _>("lent").map_err(StoreError::from)? == Some(true) {
            return Ok(());
        }
        let found = row.try_get("state").map_err(StoreError::from).and_then(state)?;
        Err(SettleError::LeaseLost(Some(found)))
    }

    async fn correlate(&self, lease: &Lease, key: &BusinessKey) -> Result<(), SettleError> {
        let done = sqlx::query(
            "update mapae.jobs set business_key = $3 where id = $1 and token = $2 and state = 'running'",
        )
        .bind(lease.job.0)
        .bind(lease.token.0)
        .bind(key.as_str())
        .done(&self.pool)
        .await?;
        if done.rows_affected() > 0 { Ok(()) } else { Err(lost(&self.pool, lease).await?) }
    }

    async fn renew(&self, leases: &[(JobId, Token)], lease: Duration) -> Result<Vec<Beat>, StoreError> {
        let rows = sqlx::query(
            "
            with mine as (
                select j.id
                  from unnest($1::uuid[], $2::uuid[]) g (id, token)
                  join mapae.jobs j on j.id = g.id and j.token = g.token
                 where j.id = any($1) and j.state = 'running'
                   for update of j skip locked
            ), renewed as (
                update mapae.jobs j
                   set leased_until = case j.holder when $4 then j.leased_until
                                           else greatest(j.leased_until, now() + $3 * interval '1 microsecond') end
                  from mine
                 where j.id = any(array(select id from mine)) and j.id = mine.id and j.state = 'running'
                returning j.id, j.token, j.cancel_asked
            )
            select id, token, cancel_asked, true as renewed from renewed
            union all
            select j.id, j.token, false, false
              from unnest($1::uuid[], $2::uuid[]) g (id, token)
              join mapae.jobs j on j.id = g.id and j.token = g.token
             where j.id = any($1) and j.state = 'running' and not exists (select from mine m where m.id = j.id)
            ",
        )
        .bind(leases.iter().map(|(job, _)| job.0).collect::<Vec<_>>())
        .bind(leases.iter().map(|(_, token)| token.0).collect::<Vec<_>>())
        .bind(as_micros(lease))
        .bind(Holder::service().name)
        .rows(&self.pool)
        .await?;
        beats(&rows, leases)
    }

    async fn offer(
        &self,
        scope: &Scope,
        lanes: &[Lane],
        max: usize,
    ) -> Result<Vec<(JobId, Owner)>, StoreError> {
        let rows = sqlx::query(
            "
            select x.id, x.owner
              from unnest($1::text[]) with ordinality q (lane, place)
             cross join lateral (
                   (select j.id, j.owner, 0 as later, j.turn as at
                      from mapae.jobs j
                     where $2::text is null and j.lane = q.lane and j.state = 'pending' and j.hint > 0
                       and j.due_at <= now()
                     order by j.turn, j.id limit $3)
                   union all
                   (select j.id, j.owner, 0 as later, j.turn as at
                      from mapae.jobs j
                     where j.lane = q.lane and j.owner = $2 and j.state = 'pending' and j.hint > 0
                       and j.due_at <= now()
                     order by j.turn, j.id limit $3)
                   union all
                   (select j.id, j.owner, 1 as later, (extract(epoch from j.due_at) * 1000000)::bigint as at
                      from mapae.jobs j
                     where j.lane = q.lane and j.owner = $2 and j.state = 'pending' and j.hint = 0
                       and j.due_at <= now()
                     order by j.due_at, j.id limit $3)) x
             where not exists (select from mapae.pauses p where p.lane = q.lane)
             order by q.place, x.later, x.at, x.id
             limit $3
            ",
        )
        .bind(lanes.iter().map(ToString::to_string).collect::<Vec<_>>())
        .bind(scope.owner())
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        let mut offered = Vec::with_capacity(rows.len());
        for row in rows {
            let owner = Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?;
            offered.push((JobId(row.try_get("id")?), owner));
        }
        Ok(offered)
    }

    async fn pulls(&self, client: &Puller) -> Result<(), StoreError> {
        sqlx::query(
            "
            with old as (delete from mapae.pullers where seen_at < now() - interval '1 hour')
            insert into mapae.pullers (owner, name, kinds, slots, started_at, seen_at)
            values ($1, $2, $3, $4, now(), now())
            on conflict (owner, name) do update
               set kinds = excluded.kinds, slots = excluded.slots, seen_at = now()
            ",
        )
        .bind(client.owner.as_ref().map_or("", Owner::as_str))
        .bind(client.name.as_str())
        .bind(client.kinds.iter().map(ToString::to_string).collect::<Vec<_>>())
        .bind(i32::try_from(client.max).unwrap_or(i32::MAX))
        .done(&self.pool)
        .await?;
        Ok(())
    }

    async fn awaited(
        &self,
        kind: &Kind,
        key: Option<&BusinessKey>,
        lent: bool,
        max: usize,
    ) -> Result<Vec<Awaited>, StoreError> {
        let rows = sqlx::query(
            "
            select id, token, business_key
              from mapae.jobs
             where kind = $1 and state = 'running' and business_key is not null
               and ($2::text is null or business_key = $2) and (not $3 or holder = $4)
             order by started_at, id
             limit $5
            ",
        )
        .bind(kind.as_str())
        .bind(key.map(BusinessKey::as_str))
        .bind(lent)
        .bind(Holder::service().name)
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .rows(&self.pool)
        .await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            let key = BusinessKey::new(row.try_get::<String, _>("business_key")?).map_err(unreadable)?;
            found.push(Awaited { job: JobId(row.try_get("id")?), token: Token(row.try_get("token")?), key });
        }
        Ok(found)
    }
}
