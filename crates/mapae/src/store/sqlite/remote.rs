//! Leases held outside. Every write of the running side carries the token.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;

use super::run::refused;
use super::{Sqlite, hex, limit};
use crate::job::lease::{Holder, Lease, Token};
use crate::job::name::{BusinessKey, JobId, Kind, Lane, Owner};
use crate::store::contract::{Awaited, Beat, Puller, Remote, Scope, SettleError, StoreError};
use crate::store::row::{as_micros, state, unreadable};

#[async_trait]
impl Remote for Sqlite {
    async fn lend(&self, lease: &Lease, until: Duration) -> Result<(), SettleError> {
        let lease = lease.clone();
        self.write(async move |tx| {
            let service = Holder::service();
            let query = sqlx::query(
                "
                insert into events (job, sequence, owner, kind, event, at, attempt, worker, sent)
                select id, sequence + 1, owner, kind, 'handed-over', $6, attempt, holder, not $7
                  from jobs
                 where id = $1 and token = $2 and state = 'running' and holder <> $3;
                update jobs
                   set holder = $3, incarnation = $4, leased_until = $6 + $5, sequence = sequence + 1
                 where id = $1 and token = $2 and state = 'running' and holder <> $3;
                select state, state = 'running' and token = $2 as lent from jobs
                 where id = $1 and not (delete_asked and finished_at is not null)
                ",
            )
            .bind(lease.job.0)
            .bind(lease.token.0)
            .bind(service.name)
            .bind(service.incarnation)
            .bind(as_micros(until))
            .bind(tx.now)
            .bind(tx.outbox);
            let Some(row) = tx.row(query).await? else { return Err(SettleError::LeaseLost(None)) };
            // Asked before, and the answer was lost: it stands.
            if row.try_get::<Option<bool>, _>("lent").map_err(StoreError::from)? == Some(true) {
                return Ok(());
            }
            let found = row.try_get("state").map_err(StoreError::from).and_then(state)?;
            Err(SettleError::LeaseLost(Some(found)))
        })
        .await
    }

    async fn correlate(&self, lease: &Lease, key: &BusinessKey) -> Result<(), SettleError> {
        let (lease, key) = (lease.clone(), key.to_string());
        self.write(async move |tx| {
            let query = sqlx::query(
                "update jobs set business_key = $3 where id = $1 and token = $2 and state = 'running'",
            )
            .bind(lease.job.0)
            .bind(lease.token.0)
            .bind(key);
            if tx.run(query).await? > 0 { Ok(()) } else { Err(refused(tx, &lease).await?) }
        })
        .await
    }

    async fn renew(&self, leases: &[(JobId, Token)], lease: Duration) -> Result<Vec<Beat>, StoreError> {
        let given: Value = leases.iter().map(|(job, token)| json!([hex(job.0), hex(token.0)])).collect();
        let leases = leases.to_vec();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                update jobs as j
                   set leased_until = case j.holder when $4 then j.leased_until
                                           else max(j.leased_until, $2 + $3) end
                  from json_each($1) g
                 where j.id = unhex(g.value->>0) and j.token = unhex(g.value->>1) and j.state = 'running'
                returning id, token, cancel_asked
                ",
            )
            .bind(given)
            .bind(tx.now)
            .bind(as_micros(lease))
            .bind(Holder::service().name);
            let mut renewed = std::collections::HashMap::with_capacity(leases.len());
            for row in tx.rows(query).await? {
                let lease = (JobId(row.try_get("id")?), Token(row.try_get("token")?));
                renewed.insert(lease, Beat::Renewed { cancel_asked: row.try_get("cancel_asked")? });
            }
            Ok(leases.iter().map(|lease| renewed.get(lease).copied().unwrap_or(Beat::Lost)).collect())
        })
        .await
    }

    async fn offer(
        &self,
        scope: &Scope,
        lanes: &[Lane],
        max: usize,
    ) -> Result<Vec<(JobId, Owner)>, StoreError> {
        let mut offered = Vec::new();
        for lane in lanes {
            let query = sqlx::query(concat!(
                "
                select id, owner from (
                    select * from (
                        select id, owner, 0 as later, turn as at from jobs
                         where $2 is null and lane = $1 and state = 'pending' and hint > 0 and due_at <= ",
                super::now!(),
                "
                         order by turn, id limit $3)
                    union all
                    select * from (
                        select id, owner, 0 as later, turn as at from jobs
                         where lane = $1 and owner = $2 and state = 'pending' and hint > 0 and due_at <= ",
                super::now!(),
                "
                         order by turn, id limit $3)
                    union all
                    select * from (
                        select id, owner, 1 as later, due_at as at from jobs
                         where lane = $1 and owner = $2 and state = 'pending' and hint = 0 and due_at <= ",
                super::now!(),
                "
                         order by due_at, id limit $3))
                 where not exists (select 1 from pauses p where p.lane = $1)
                 order by later, at, id
                 limit $3
                ",
            ))
            .bind(lane.to_string())
            .bind(scope.owner().map(str::to_owned))
            .bind(limit(max - offered.len()));
            for row in self.rows(query).await? {
                let owner = Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?;
                offered.push((JobId(row.try_get("id")?), owner));
            }
        }
        Ok(offered)
    }

    async fn pulls(&self, client: &Puller) -> Result<(), StoreError> {
        let client = client.clone();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                delete from pullers where seen_at < $5 - 3600000000;
                insert into pullers (owner, name, kinds, slots, started_at, seen_at)
                values ($1, $2, $3, $4, $5, $5)
                on conflict (owner, name) do update
                   set kinds = excluded.kinds, slots = excluded.slots, seen_at = excluded.seen_at
                ",
            )
            .bind(client.owner.map(String::from).unwrap_or_default())
            .bind(client.name.to_string())
            .bind(json!(client.kinds))
            .bind(i32::try_from(client.max).unwrap_or(i32::MAX))
            .bind(tx.now);
            tx.run(query).await?;
            Ok(())
        })
        .await
    }

    async fn awaited(
        &self,
        kind: &Kind,
        key: Option<&BusinessKey>,
        lent: bool,
        max: usize,
    ) -> Result<Vec<Awaited>, StoreError> {
        let query = sqlx::query(
            "
            select id, token, business_key
              from jobs
             where kind = $1 and state = 'running' and business_key is not null
               and ($2 is null or business_key = $2) and (not $3 or holder = $4)
             order by started_at, id
             limit $5
            ",
        )
        .bind(kind.to_string())
        .bind(key.map(ToString::to_string))
        .bind(lent)
        .bind(Holder::service().name)
        .bind(limit(max));
        let mut found = Vec::new();
        for row in self.rows(query).await? {
            let key = BusinessKey::new(row.try_get::<String, _>("business_key")?).map_err(unreadable)?;
            found.push(Awaited { job: JobId(row.try_get("id")?), token: Token(row.try_get("token")?), key });
        }
        Ok(found)
    }
}
