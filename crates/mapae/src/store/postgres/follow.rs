//! What comes after a job, and where its events are told. Making it is the trigger's business (`migrations/postgres/0004_plans.sql`).

use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::Postgres;
use super::ask::Ask;
use crate::job::End;
use crate::job::follow::Followed;
use crate::job::name::{JobId, Kind};
use crate::job::record::NewJob;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Scope, StoreError};
use crate::store::row::{stored, unreadable};

/// The declarations of a job made in the transaction that is open.
pub(super) async fn declare(
    connection: &mut PgConnection,
    job: &NewJob,
    outbox: bool,
) -> Result<(), StoreError> {
    if let Some(callback) = &job.callback {
        sqlx::query("insert into mapae.callbacks (job, url, line, events) values ($1, $2, $3, $4)")
            .bind(job.id.0)
            .bind(&callback.url)
            .bind(callback.line(&job.owner))
            .bind(callback.events.iter().map(|event| event.as_str().to_owned()).collect::<Vec<_>>())
            .done(&mut *connection)
            .await?;
    }
    if job.on.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "
        insert into mapae.follows (job, after, next, sent)
        select $1, after, next, not $4 from unnest($2::text[], $3::jsonb[]) g (after, next)
        ",
    )
    .bind(job.id.0)
    .bind(job.on.iter().map(|follow| follow.after.as_str().to_owned()).collect::<Vec<_>>())
    .bind(job.on.iter().map(|follow| stored(&follow.next)).collect::<Vec<_>>())
    .bind(outbox)
    .done(connection)
    .await?;
    Ok(())
}

impl Postgres {
    pub(super) async fn followed_of(&self, scope: &Scope, id: JobId) -> Result<Vec<Followed>, StoreError> {
        let rows = sqlx::query(
            "
            select f.after, f.next->>'kind' as kind, f.made,
                   (extract(epoch from f.made_at) * 1000000)::bigint as made_at
              from mapae.follows f
              join mapae.jobs j on j.id = f.job
             where f.job = $1 and ($2::text is null or j.owner = $2) and not j.delete_asked
             order by f.after
            ",
        )
        .bind(id.0)
        .bind(scope.owner())
        .rows(&self.views)
        .await?;
        rows.iter()
            .map(|row| {
                let made = row.try_get::<Option<_>, _>("made")?.map(JobId);
                let at = row.try_get::<Option<i64>, _>("made_at")?.map(Timestamp::from_micros);
                Ok(Followed {
                    after: End::parse(row.try_get("after")?)
                        .ok_or_else(|| unreadable("an end that is none"))?,
                    kind: Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
                    made: made.zip(at),
                })
            })
            .collect()
    }
}
