//! A database for a while: on the disk or the server of another one, empty at first, and gone afterwards.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use uuid::Uuid;

use super::contract::StoreError;
use super::fault::disk;

/// A database that is nobody's. Dropped without [`Scratch::remove`], one on a server stays, under a name that begins
/// with `mapae_scratch_`.
pub struct Scratch {
    url: String,
    of: Of,
}

enum Of {
    /// A folder of its own, with the database in it.
    Disk(PathBuf),
    /// By this name, made by somebody who is connected like this.
    Server { options: Box<PgConnectOptions>, name: String },
}

impl Scratch {
    /// Where the database at this address is: on its disk, or on its server, where its user has to be allowed to make
    /// databases.
    ///
    /// # Errors
    /// [`StoreError::Address`] where there is no store for the address, and whatever making it meets.
    pub async fn beside(url: &str) -> Result<Self, StoreError> {
        let name = format!("mapae_scratch_{}", Uuid::new_v4().simple());
        match url.split(':').next().unwrap_or_default() {
            "sqlite" => {
                let options = SqliteConnectOptions::from_str(url)?;
                let file = std::path::absolute(options.get_filename()).map_err(disk)?;
                // Its folder may not be there yet, and is not made for this.
                let there = file.ancestors().skip(1).find(|folder| folder.is_dir());
                let folder = there.unwrap_or(Path::new("/")).join(name);
                std::fs::create_dir(&folder).map_err(disk)?;
                let url = format!("sqlite:{}", folder.join("mapae.db").display());
                Ok(Self { url, of: Of::Disk(folder) })
            }
            "postgres" | "postgresql" => {
                let options = PgConnectOptions::from_str(url)?;
                run(&options, format!("create database {name}")).await?;
                let url = options.clone().database(&name).to_url_lossy().to_string();
                Ok(Self { url, of: Of::Server { options: options.into(), name } })
            }
            _ => Err(StoreError::Address("no store is known for this address".into())),
        }
    }

    /// Its address. Holds the password of the other one's.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// It is gone, whoever is still connected to it.
    pub async fn remove(self) -> Result<(), StoreError> {
        match &self.of {
            Of::Disk(folder) => std::fs::remove_dir_all(folder).map_err(disk),
            Of::Server { options, name } => {
                run(options, format!("drop database if exists {name} with (force)")).await
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Of::Disk(folder) = &self.of {
            // It is gone already where it was removed.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// One statement on a connection of its own. The name in it is made here, of letters and digits.
async fn run(options: &PgConnectOptions, statement: String) -> Result<(), StoreError> {
    let mut connection = options.connect().await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
    Ok(connection.close().await?)
}
