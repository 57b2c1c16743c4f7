//! Which stores there are, and how to open one.

mod batch;
pub mod contract;
mod fault;
mod limited;
pub mod memory;
mod postgres;
mod row;
mod scratch;
mod settled;
mod sqlite;

use std::sync::Arc;

pub use self::postgres::{AdoptError, Adoption, AdoptionPlan, Postgres};
pub use self::scratch::Scratch;
pub use self::sqlite::Sqlite;

use self::contract::{Store, StoreError};

/// Every sort of store there is, by the scheme of its address.
pub const STORES: &[(&str, &str)] =
    &[("sqlite", "one file, one machine"), ("postgres", "PostgreSQL 15 or later")];

/// The store at that address. `outbox` says whether events are sent anywhere.
pub async fn open(url: &str, outbox: bool) -> Result<Arc<dyn Store>, StoreError> {
    match url.split(':').next().unwrap_or_default() {
        "sqlite" => Ok(Arc::new(Sqlite::open(url, outbox).await?)),
        "postgres" | "postgresql" => Ok(Arc::new(Postgres::open(url, outbox).await?)),
        _ => {
            let known: Vec<&str> = STORES.iter().map(|(scheme, _)| *scheme).collect();
            Err(StoreError::Address(format!(
                "no store is known for this address; known are: {}",
                known.join(", ")
            )))
        }
    }
}

/// The statements of every migration of the store at that address, by number; none where there is no such
/// store.
pub fn migrations(url: &str) -> &'static [(u32, &'static str)] {
    match url.split(':').next().unwrap_or_default() {
        "sqlite" => sqlite::MIGRATIONS,
        "postgres" | "postgresql" => postgres::MIGRATIONS,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_alike_and_without_a_gap() {
        for url in ["sqlite:x", "postgres:x"] {
            let numbers = migrations(url).iter().map(|(number, _)| *number);
            assert!(numbers.eq(1..=migrations("sqlite:x").len() as u32), "{url}");
        }
    }
}
