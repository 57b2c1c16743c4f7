//! Promises broken on purpose ([`crate::fault::Mutant`]), to see that the tests notice.

use std::time::Duration;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Sqlite, Told, Transaction, tell};
use crate::fault::{Mutant, broken};
use crate::job::State;
use crate::job::lease::Token;
use crate::job::name::JobId;
use crate::store::contract::{Settlement, StoreError};

/// How late an event comes that should have come with its job's state.
const LATE: Duration = Duration::from_secs(1);

/// Whoever has the lease: it is taken for this one's.
pub(super) async fn fence(tx: &mut Transaction<'_>, settlement: &mut Settlement) -> Result<(), StoreError> {
    if broken(Mutant::NoFence) {
        let query = sqlx::query("select token from jobs where id = $1 and token is not null");
        if let Some(row) = tx.row(query.bind(settlement.lease.job.0)).await? {
            settlement.lease.token = Token(row.try_get("token")?);
        }
    }
    Ok(())
}

/// Takes the job's last event out of the transaction.
pub(super) async fn withhold(tx: &mut Transaction<'_>, job: JobId) -> Result<Option<SqliteRow>, StoreError> {
    if !broken(Mutant::LateEvent) {
        return Ok(None);
    }
    let query = sqlx::query(
        "
        delete from events
         where job = $1 and sequence = (select sequence from jobs where id = $1)
        returning job, sequence, owner, kind, event, at, attempt, worker, code, sent
        ",
    );
    tx.row(query.bind(job.0)).await
}

/// Writes it after all, in a transaction of its own.
pub(super) fn tell_late(store: &Sqlite, withheld: SqliteRow) {
    let store = store.clone();
    tokio::spawn(async move {
        tokio::time::sleep(LATE).await;
        let told = store.write(async move |tx| {
            let query = sqlx::query(
                "
                insert into events (job, sequence, owner, kind, event, at, attempt, worker, code, sent)
                values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                ",
            )
            .bind(withheld.try_get::<Vec<u8>, _>("job")?)
            .bind(withheld.try_get::<i64, _>("sequence")?)
            .bind(withheld.try_get::<String, _>("owner")?)
            .bind(withheld.try_get::<String, _>("kind")?)
            .bind(withheld.try_get::<String, _>("event")?)
            .bind(withheld.try_get::<i64, _>("at")?)
            .bind(withheld.try_get::<i64, _>("attempt")?)
            .bind(withheld.try_get::<Option<String>, _>("worker")?)
            .bind(withheld.try_get::<Option<String>, _>("code")?)
            .bind(withheld.try_get::<i64, _>("sent")?);
            tx.run(query).await
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
