//! Accepting what may be the same work as another job: who holds the key is decided by its row.

use std::collections::HashMap;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, PgPool, Row};
use uuid::Uuid;

use super::ask::{Ask, within};
use super::control::{first_accepted, key_is_free, make};
use crate::job::name::JobId;
use crate::job::record::NewJob;
use crate::job::unique::Unique;
use crate::store::contract::{AcceptError, Accepted, StoreError};
use crate::store::row::{as_micros, unreadable};

type Answers = Vec<Result<Accepted, AcceptError>>;

/// All in one transaction, in the order of their keys, so that two batches seldom wait for each other.
pub(super) async fn accept(pool: &PgPool, jobs: &[NewJob], outbox: bool) -> Result<Answers, StoreError> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let keys = |at: &usize| {
        let job = &jobs[*at];
        let named = job.idempotency.as_ref().map(|(key, _)| (job.owner.as_str(), key.as_str()));
        (job.unique.as_ref().map(|unique| unique.key), named)
    };
    order.sort_by(|one, other| keys(one).cmp(&keys(other)));
    let mut connection = within(pool.acquire()).await?;
    let mut transaction = within(connection.begin()).await?;
    let mut answers = Vec::with_capacity(jobs.len());
    for at in order {
        answers.push((at, accept_on(&mut transaction, &jobs[at], outbox).await?));
    }
    within(transaction.commit()).await?;
    answers.sort_by_key(|(at, _)| *at);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

/// T1 in the transaction that is open, with what comes after the job.
pub(super) async fn accept_on(
    connection: &mut PgConnection,
    job: &NewJob,
    outbox: bool,
) -> Result<Result<Accepted, AcceptError>, StoreError> {
    let accepted = match &job.unique {
        None => make_one(connection, job, outbox).await?,
        Some(unique) => accept_unique(connection, job, unique, outbox).await?,
    };
    if let Ok(Accepted { again: false, .. }) = &accepted {
        super::follow::declare(connection, job, outbox).await?;
    }
    Ok(accepted)
}

/// The idempotency key first, as ever; then the unique key, whose holder is the answer; then the row.
async fn accept_unique(
    connection: &mut PgConnection,
    job: &NewJob,
    unique: &Unique,
    outbox: bool,
) -> Result<Result<Accepted, AcceptError>, StoreError> {
    if let Some((key, body)) = &job.idempotency {
        let first = sqlx::query(concat!(
            "
            insert into mapae.idempotency as i (owner, key, body, job, created_at) values ($1, $2, $3, $4, now())
            on conflict (owner, key) do update
               set body = excluded.body, job = excluded.job, created_at = excluded.created_at
             where ",
            key_is_free!(),
        ))
        .bind(job.owner.as_str())
        .bind(key.as_str())
        .bind(body.as_slice())
        .bind(job.id.0)
        .done(&mut *connection)
        .await?;
        if first.rows_affected() == 0 {
            let mut answers = HashMap::new();
            first_accepted(connection, std::slice::from_ref(job), &mut answers).await?;
            return answers.remove(&job.id.0).ok_or_else(|| unreadable("a key without its submission"));
        }
    }
    let holder = hold(connection, job.id, unique).await?;
    if holder == job.id {
        return make_one(connection, &NewJob { idempotency: None, ..job.clone() }, outbox).await;
    }
    if let Some((key, _)) = &job.idempotency {
        sqlx::query("update mapae.idempotency set job = $3 where owner = $1 and key = $2")
            .bind(job.owner.as_str())
            .bind(key.as_str())
            .bind(holder.0)
            .done(connection)
            .await?;
    }
    Ok(Ok(Accepted { id: holder, again: true, duplicate: true }))
}

async fn make_one(
    connection: &mut PgConnection,
    job: &NewJob,
    outbox: bool,
) -> Result<Result<Accepted, AcceptError>, StoreError> {
    let mut answers = make(connection, std::slice::from_ref(job), outbox).await?;
    answers.pop().ok_or_else(|| unreadable("no answer to an accept"))
}

/// The key is this job's, or another's that holds it. Its row stays locked until the transaction ends.
///
/// A holder that this statement cannot see yet was accepted a moment ago and holds the key: only one that is
/// seen to have ended gives it up.
async fn hold(connection: &mut PgConnection, job: JobId, unique: &Unique) -> Result<JobId, StoreError> {
    let taken = sqlx::query(
        "
        insert into mapae.uniques as u (key, job, states, until)
        values ($1, $2, $3, now() + $4 * interval '1 microsecond')
        on conflict (key) do update
           set job = excluded.job, states = excluded.states, until = excluded.until
         where u.until <= now()
            or exists (select from mapae.jobs j
                        where j.id = u.job and (j.delete_asked or j.state <> all(u.states)))
        returning job
        ",
    )
    .bind(unique.key.as_slice())
    .bind(job.0)
    .bind(unique.states.iter().map(|state| state.as_str().to_owned()).collect::<Vec<_>>())
    .bind(unique.period.map(as_micros))
    .maybe(&mut *connection)
    .await?;
    if taken.is_some() {
        return Ok(job);
    }
    let row = sqlx::query("select job from mapae.uniques where key = $1")
        .bind(unique.key.as_slice())
        .one(connection)
        .await?;
    Ok(JobId(row.try_get::<Uuid, _>("job")?))
}
