//! What comes after a job, and where its events are told. Making it is the trigger's business (`migrations/sqlite/0004_plans.sql`).

use serde_json::{Value, json};
use sqlx::Row;

use super::{Sqlite, Transaction};
use crate::job::End;
use crate::job::follow::Followed;
use crate::job::name::{JobId, Kind};
use crate::job::record::NewJob;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Scope, StoreError};
use crate::store::row::{stored, unreadable};

/// The declarations of a job made in the transaction that is open.
pub(super) async fn declare(tx: &mut Transaction<'_>, job: &NewJob) -> Result<(), StoreError> {
    if let Some(callback) = &job.callback {
        let events: Value = callback.events.iter().map(|event| event.as_str()).collect();
        let query = sqlx::query("insert into callbacks (job, url, line, events) values ($1, $2, $3, $4)")
            .bind(job.id.0)
            .bind(callback.url.clone())
            .bind(callback.line(&job.owner))
            .bind(events);
        tx.run(query).await?;
    }
    if job.on.is_empty() {
        return Ok(());
    }
    let on: Value =
        job.on.iter().map(|follow| json!([follow.after.as_str(), stored(&follow.next)])).collect();
    let query = sqlx::query(
        "
        insert into follows (job, after, next, sent)
        select $1, g.value->>0, g.value->1, not $3 from json_each($2) g
        ",
    )
    .bind(job.id.0)
    .bind(on)
    .bind(tx.outbox);
    tx.run(query).await?;
    Ok(())
}

impl Sqlite {
    pub(super) async fn followed_of(&self, scope: &Scope, id: JobId) -> Result<Vec<Followed>, StoreError> {
        let query = sqlx::query(
            "
            select f.after, f.next->>'kind' as kind, f.made, f.made_at
              from follows f
              join jobs j on j.id = f.job
             where f.job = $1 and ($2 is null or j.owner = $2) and not j.delete_asked
             order by f.after
            ",
        )
        .bind(id.0)
        .bind(scope.owner().map(str::to_owned));
        self.rows(query)
            .await?
            .iter()
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
