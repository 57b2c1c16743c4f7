//! Promises broken on purpose ([`crate::fault::Mutant`]), to see that the tests notice.

use std::time::Duration;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::writer::Writer;
use super::{Told, Transaction, hexes, tell};
use crate::fault::{Mutant, broken};
use crate::job::State;
use crate::job::lease::Token;
use crate::job::name::JobId;
use crate::store::contract::{Settlement, StoreError};

/// How late an event comes that should have come with its job's state.
const LATE: Duration = Duration::from_secs(1);

/// Whoever has the leases: they are taken for these ones'.
pub(super) async fn fence(tx: &mut Transaction<'_>, batch: &mut [Settlement]) -> Result<(), StoreError> {
    if broken(Mutant::NoFence) {
        for settlement in batch {
            let query = sqlx::query("select token from jobs where id = $1 and token is not null");
            if let Some(row) = tx.row(query.bind(settlement.lease.job.0)).await? {
                settlement.lease.token = Token(row.try_get("token")?);
            }
        }
    }
    Ok(())
}

/// Takes the jobs' last events out of the transaction.
pub(super) async fn withhold(
    tx: &mut Transaction<'_>,
    batch: &[Settlement],
) -> Result<Vec<SqliteRow>, StoreError> {
    if !broken(Mutant::LateEvent) {
        return Ok(Vec::new());
    }
    let query = sqlx::query(
        "
        delete from events
         where (job, sequence) in (select j.id, j.sequence from json_each($1) g
                                    cross join jobs j on j.id = unhex(g.value))
        returning job, sequence, owner, kind, event, at, attempt, worker, code, sent
        ",
    );
    tx.rows(query.bind(hexes(batch.iter().map(|settlement| settlement.lease.job.0)))).await
}

/// Writes them after all, in a transaction of its own.
pub(super) fn tell_late(writer: &Writer, withheld: Vec<SqliteRow>) {
    if withheld.is_empty() {
        return;
    }
    let writer = writer.clone();
    tokio::spawn(async move {
        tokio::time::sleep(LATE).await;
        let told = writer.write(async move |tx| {
            for row in withheld {
                let query = sqlx::query(
                    "
                    insert into events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
                    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                    ",
                )
                .bind(row.try_get::<Vec<u8>, _>("job")?)
                .bind(row.try_get::<i64, _>("sequence")?)
                .bind(row.try_get::<String, _>("owner")?)
                .bind(row.try_get::<String, _>("kind")?)
                .bind(row.try_get::<String, _>("event")?)
                .bind(row.try_get::<i64, _>("at")?)
                .bind(row.try_get::<i64, _>("attempt")?)
                .bind(row.try_get::<Option<String>, _>("worker")?)
                .bind(row.try_get::<Option<String>, _>("code")?)
                .bind(row.try_get::<i64, _>("sent")?);
                tx.run(query).await?;
            }
            Ok::<_, StoreError>(())
        });
        let _ = told.await;
    });
}

/// Cancels the job whatever it is.
pub(super) async fn cancel(tx: &mut Transaction<'_>, id: JobId) -> Result<Option<State>, StoreError> {
    if !broken(Mutant::NoCancelGuard) {
        return Ok(None);
    }
    let query = sqlx::query(
        "
        update jobs
           set state = 'cancelled', finished_at = $2, token = null, holder = null, incarnation = null,
               leased_until = null, hint = 0, turn = null, ring_at = null, sequence = sequence + 1
         where id = $1
        returning attempt
        ",
    );
    let Some(row) = tx.row(query.bind(id.0).bind(tx.now)).await? else { return Ok(None) };
    let attempt = row.try_get("attempt")?;
    tell(tx, &[Told { job: id.0, event: "cancelled".into(), attempt, worker: None, code: None }]).await?;
    Ok(Some(State::Cancelled))
}
