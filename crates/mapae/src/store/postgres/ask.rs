//! Asking the server, with an end to the patience: a connection whose packets vanish is not waited for.
//!
//! A call that is given up is dropped with its connection in mid-statement; the pool finds that out when it
//! next looks at the connection, within its own time limit.

use sqlx::PgExecutor;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow};
use sqlx::query::Query;

use crate::store::contract::{PATIENCE, StoreError};

/// Within [`PATIENCE`], or unavailable.
pub(super) async fn within<T, E: Into<StoreError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(StoreError::Unavailable("no answer in time".into())),
    }
}

/// The ways to run a statement, each bounded.
pub(super) trait Ask<'q> {
    async fn rows<'e>(self, on: impl PgExecutor<'e>) -> Result<Vec<PgRow>, StoreError>;
    async fn one<'e>(self, on: impl PgExecutor<'e>) -> Result<PgRow, StoreError>;
    async fn maybe<'e>(self, on: impl PgExecutor<'e>) -> Result<Option<PgRow>, StoreError>;
    async fn done<'e>(self, on: impl PgExecutor<'e>) -> Result<PgQueryResult, StoreError>;
}

impl<'q> Ask<'q> for Query<'q, sqlx::Postgres, PgArguments> {
    async fn rows<'e>(self, on: impl PgExecutor<'e>) -> Result<Vec<PgRow>, StoreError> {
        within(self.fetch_all(on)).await
    }

    async fn one<'e>(self, on: impl PgExecutor<'e>) -> Result<PgRow, StoreError> {
        within(self.fetch_one(on)).await
    }

    async fn maybe<'e>(self, on: impl PgExecutor<'e>) -> Result<Option<PgRow>, StoreError> {
        within(self.fetch_optional(on)).await
    }

    async fn done<'e>(self, on: impl PgExecutor<'e>) -> Result<PgQueryResult, StoreError> {
        within(self.execute(on)).await
    }
}
