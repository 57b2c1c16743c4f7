//! What a database's error means to a caller.
//!
//! Only a database's code is kept, never its message: that may repeat what was stored.

use super::contract::StoreError;

/// A database's own error, without its words.
#[derive(Debug, thiserror::Error)]
#[error("database error {code}{}", .constraint.as_ref().map(|name| format!(" ({name})")).unwrap_or_default())]
struct Fault {
    code: String,
    constraint: Option<String>,
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(database) => of_database(&*database),
            sqlx::Error::Io(io) => Self::Unavailable(io.kind().to_string().into()),
            sqlx::Error::PoolTimedOut => Self::Unavailable("no connection became free in time".into()),
            sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Tls(_) => Self::Unavailable("the connection was lost".into()),
            sqlx::Error::Configuration(_) => Self::Address("database.url cannot be understood".into()),
            sqlx::Error::ColumnNotFound(name) => Self::Broken(format!("no column {name}").into()),
            sqlx::Error::ColumnDecode { index, .. } => {
                Self::Broken(format!("column {index} cannot be read").into())
            }
            _ => Self::Broken("a statement failed before it reached the database".into()),
        }
    }
}

/// What an error of the file system means to a caller. Its message may name paths; its kind does not.
pub(super) fn disk(error: std::io::Error) -> StoreError {
    use std::io::ErrorKind;
    let kind = error.kind().to_string().into();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => {
            StoreError::Full(kind)
        }
        _ => StoreError::Unavailable(kind),
    }
}

fn of_database(error: &dyn sqlx::error::DatabaseError) -> StoreError {
    let code = error.code().map(|code| code.into_owned()).unwrap_or_default();
    let constraint = error.constraint().map(str::to_owned);
    let fault = Box::new(Fault { code: code.clone(), constraint });
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        // Extended result codes: the low byte is the kind (sqlite.org/rescode.html).
        return match code.parse::<i32>().unwrap_or_default() & 0xff {
            5 | 6 | 9 | 10 | 14 | 15 => StoreError::Unavailable(fault), // busy, locked, interrupt, ioerr, cantopen, protocol
            8 | 13 => StoreError::Full(fault),                          // readonly, full
            _ => StoreError::Broken(fault),
        };
    }
    // SQLSTATE classes (postgresql.org, appendix A).
    match code.as_str() {
        "53100" | "25006" => StoreError::Full(fault), // disk full, read-only transaction
        "55P03" => StoreError::Locked(fault),         // lock timeout
        // Deadlock, serialisation, statement timeout, a transaction left idle, shutdown, too many connections.
        "40001" | "40P01" | "57014" | "25P03" => StoreError::Unavailable(fault),
        code if ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Unavailable(fault)
        }
        _ => StoreError::Broken(fault),
    }
}
