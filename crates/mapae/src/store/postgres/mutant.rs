//! Promises broken on purpose ([`crate::fault::Mutant`]), to see that the tests notice.

use std::time::Duration;

use serde_json::Value;
use sqlx::{PgPool, Row};
use uuid::Uuid;

use super::ask::Ask;
use crate::fault::{Mutant, broken};
use crate::job::State;
use crate::job::lease::Token;
use crate::job::name::JobId;
use crate::store::contract::{Settlement, StoreError};

/// How late an event comes that should have come with its job's state.
const LATE: Duration = Duration::from_secs(1);

/// Whoever has the leases: they are taken for these ones'.
pub(super) async fn fence(pool: &PgPool, batch: &mut [Settlement]) -> Result<(), StoreError> {
    if broken(Mutant::NoFence) {
        for settlement in batch {
            let query = sqlx::query("select token from mapae.jobs where id = $1 and token is not null");
            if let Some(row) = query.bind(settlement.lease.job.0).maybe(pool).await? {
                settlement.lease.token = Token(row.try_get("token")?);
            }
        }
    }
    Ok(())
}

/// Takes the jobs' last events away and writes them again later, in a transaction of its own.
pub(super) async fn tell_late(pool: &PgPool, jobs: &[Uuid]) -> Result<(), StoreError> {
    if !broken(Mutant::LateEvent) {
        return Ok(());
    }
    let rows = sqlx::query(
        "
        delete from mapae.events e using mapae.jobs j
         where j.id = any($1) and e.job = j.id and e.sequence = j.sequence
        returning to_jsonb(e) as event
        ",
    )
    .bind(jobs)
    .rows(pool)
    .await?;
    let withheld = rows.iter().map(|row| row.try_get("event")).collect::<Result<Vec<Value>, _>>()?;
    let pool = pool.clone();
    tokio::spawn(async move {
        tokio::time::sleep(LATE).await;
        let query = sqlx::query(
            "
            insert into mapae.events
            select e.* from unnest($1::jsonb[]) w (event)
             cross join lateral jsonb_populate_record(null::mapae.events, w.event) e
            ",
        );
        let _ = query.bind(withheld).done(&pool).await;
    });
    Ok(())
}

/// Cancels the job whatever it is.
pub(super) async fn cancel(pool: &PgPool, id: JobId) -> Result<Option<State>, StoreError> {
    if !broken(Mutant::NoCancelGuard) {
        return Ok(None);
    }
    let row = sqlx::query(
        "
        with changed as (
            update mapae.jobs
               set state = 'cancelled', finished_at = now(), token = null, holder = null, incarnation = null,
                   leased_until = null, hint = 0, turn = null, ring_at = null, sequence = sequence + 1
             where id = $1
            returning id, owner, kind, sequence, attempt
        )
        insert into mapae.events (job, sequence, owner, kind, event, at, attempt, sent)
        select id, sequence, owner, kind, 'cancelled', now(), attempt, true from changed
        returning job
        ",
    )
    .bind(id.0)
    .maybe(pool)
    .await?;
    Ok(row.map(|_| State::Cancelled))
}
