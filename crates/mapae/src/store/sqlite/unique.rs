//! Accepting what may be the same work as another job: who holds the key is decided by its row.

use sqlx::Row;
use sqlx::types::Json;

use super::{Transaction, one};
use crate::job::name::JobId;
use crate::job::record::NewJob;
use crate::job::unique::Unique;
use crate::store::contract::StoreError;
use crate::store::row::as_micros;

/// The job that holds this one's unique key, where it is another; its idempotency key, if it has one, names
/// that job then. Otherwise this one holds the key, if it wants one.
pub(super) async fn holder(tx: &mut Transaction<'_>, job: &NewJob) -> Result<Option<JobId>, StoreError> {
    let Some(unique) = &job.unique else { return Ok(None) };
    let holder = hold(tx, job.id, unique).await?;
    if holder == job.id {
        return Ok(None);
    }
    if let Some((key, _)) = &job.idempotency {
        let query = sqlx::query("update idempotency set job = $3 where owner = $1 and key = $2")
            .bind(job.owner.as_str())
            .bind(key.as_str())
            .bind(holder.0);
        tx.run(query).await?;
    }
    Ok(Some(holder))
}

/// The key is this job's, or another's that holds it.
async fn hold(tx: &mut Transaction<'_>, job: JobId, unique: &Unique) -> Result<JobId, StoreError> {
    let query = sqlx::query(
        "
        insert into uniques as u (key, job, states, until) values ($1, $2, $3, $4 + $5)
        on conflict (key) do update
           set job = excluded.job, states = excluded.states, until = excluded.until
         where u.until <= $4
            or exists (select 1 from jobs j
                        where j.id = u.job
                          and (j.delete_asked or j.state not in (select value from json_each(u.states))))
        ",
    )
    .bind(unique.key.as_slice())
    .bind(job.0)
    .bind(Json(unique.states.iter().map(|state| state.as_str()).collect::<Vec<_>>()))
    .bind(tx.now)
    .bind(unique.period.map(as_micros));
    tx.run(query).await?;
    let query = sqlx::query("select job from uniques where key = $1").bind(unique.key.as_slice());
    Ok(JobId(one(tx.row(query).await?)?.try_get("job")?))
}
