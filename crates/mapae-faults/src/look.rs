//! Looks at a database and a folder of files, past the code that wrote them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use futures_util::StreamExt;
use mapae::blob::{Area, Blobs};
use mapae::job::record::Output;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use crate::cell::Store;
use crate::facts::{Event, Facts, Job};
use crate::trouble::{Outcome, Trouble};

/// A database, to be read as it is.
pub(crate) enum Database {
    Sqlite(sqlx::SqlitePool),
    Postgres(sqlx::PgPool),
}

/// The rows of a statement in which `{}` stands before each table, each read by `$read`.
macro_rules! rows {
    ($database:expr, $sql:expr, $row:ident => $read:expr) => {
        match $database {
            Database::Sqlite(pool) => {
                let rows = sqlx::query(AssertSqlSafe($sql.replace("{}", ""))).fetch_all(pool).await?;
                rows.iter().map(|$row| $read).collect::<Result<Vec<_>, sqlx::Error>>()?
            }
            Database::Postgres(pool) => {
                let rows = sqlx::query(AssertSqlSafe($sql.replace("{}", "mapae."))).fetch_all(pool).await?;
                rows.iter().map(|$row| $read).collect::<Result<Vec<_>, sqlx::Error>>()?
            }
        }
    };
}

impl Database {
    pub(crate) fn open(store: Store, url: &str) -> Outcome<Self> {
        Ok(match store {
            Store::Sqlite => {
                let options: sqlx::sqlite::SqliteConnectOptions = url.parse()?;
                let options = options.busy_timeout(std::time::Duration::from_secs(60));
                Self::Sqlite(
                    sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options),
                )
            }
            Store::Postgres => {
                Self::Postgres(sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_lazy(url)?)
            }
        })
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }

    /// Statements in which `{}` stands before each table, all or none of them.
    async fn run(&self, statements: &str) -> Outcome<()> {
        match self {
            Self::Sqlite(pool) => {
                let mut tx = pool.begin_with("begin immediate").await?;
                sqlx::raw_sql(AssertSqlSafe(statements.replace("{}", ""))).execute(&mut *tx).await?;
                tx.commit().await?;
            }
            Self::Postgres(pool) => {
                let mut tx = pool.begin().await?;
                sqlx::raw_sql(AssertSqlSafe(statements.replace("{}", "mapae."))).execute(&mut *tx).await?;
                tx.commit().await?;
            }
        }
        Ok(())
    }

    /// A file with all that is in this one, committed so far.
    pub(crate) async fn copy_to(&self, file: &Path) -> Outcome<()> {
        if let Self::Sqlite(pool) = self {
            sqlx::query("vacuum into $1").bind(file.display().to_string()).execute(pool).await?;
        }
        Ok(())
    }

    /// Keeps jobs and events as they are now.
    pub(crate) async fn back_up(&self) -> Outcome<()> {
        self.run(
            "create table backup_jobs as select * from {}jobs;
             create table backup_events as select * from {}events;",
        )
        .await
    }

    /// Makes them what they were then.
    pub(crate) async fn restore(&self) -> Outcome<()> {
        self.run(
            "delete from {}events; delete from {}jobs;
             insert into {}jobs select * from backup_jobs;
             insert into {}events select * from backup_events;",
        )
        .await
    }

    pub(crate) async fn jobs(&self) -> Outcome<Vec<Job>> {
        let sql = "
            select id, kind, state, cast(attempt as bigint) as attempt, cast(sequence as bigint) as sequence,
                   cast(case when token is null then 0 else 1 end as bigint) as leased, cast(params as text) as params
              from {}jobs order by id";
        Ok(rows!(self, sql, row => Ok(Job {
            id: row.try_get("id")?,
            kind: row.try_get("kind")?,
            state: row.try_get("state")?,
            attempt: row.try_get("attempt")?,
            sequence: row.try_get("sequence")?,
            leased: row.try_get::<i64, _>("leased")? != 0,
            key: key(row.try_get("params")?),
        })))
    }

    pub(crate) async fn events(&self) -> Outcome<Vec<(Uuid, Event)>> {
        let sql = "
            select job, cast(sequence as bigint) as sequence, event, cast(attempt as bigint) as attempt
              from {}events order by job, sequence";
        Ok(rows!(self, sql, row => Ok((row.try_get("job")?, Event {
            sequence: row.try_get("sequence")?,
            event: row.try_get("event")?,
            attempt: row.try_get("attempt")?,
        }))))
    }

    /// Events that have not been taken yet.
    pub(crate) async fn untold(&self) -> Outcome<i64> {
        let sql = "select (select cast(count(*) as bigint) from {}events where not sent)
                        + (select cast(count(*) as bigint) from {}deliveries) as n";
        let counts = rows!(self, sql, row => row.try_get::<i64, _>("n"));
        Ok(counts.first().copied().unwrap_or_default())
    }

    /// Files that are to be removed and are not yet.
    pub(crate) async fn garbage(&self) -> Outcome<i64> {
        let sql = "select cast(count(*) as bigint) as n from {}garbage";
        let counts = rows!(self, sql, row => row.try_get::<i64, _>("n"));
        Ok(counts.first().copied().unwrap_or_default())
    }

    /// What jobs gave, and what is kept of their stages.
    async fn outputs(&self, table: &str) -> Outcome<Vec<(Uuid, Output)>> {
        let sql = format!("select job, cast(output as text) as output from {{}}{table}");
        let outputs = rows!(self, sql, row => {
            Ok((row.try_get::<Uuid, _>("job")?, row.try_get::<String, _>("output")?))
        });
        let read = outputs.into_iter().map(|(job, text)| Some((job, serde_json::from_str(&text).ok()?)));
        read.collect::<Option<_>>()
            .ok_or_else(|| Trouble::broken(format!("{table}: an output cannot be read")))
    }

    async fn sources(&self) -> Outcome<Vec<String>> {
        let sql = "select cast(source as text) as source from {}jobs where source is not null";
        let sources = rows!(self, sql, row => row.try_get::<String, _>("source"));
        let file = |text: &String| {
            let source: Value = serde_json::from_str(text).ok()?;
            source["file"].as_str().map(str::to_owned)
        };
        Ok(sources.iter().filter_map(file).collect())
    }

    /// Everything there is, with the files below `files`.
    pub(crate) async fn facts(&self, files: &Path) -> Outcome<Facts> {
        let mut facts = Facts { jobs: self.jobs().await?, ..Facts::default() };
        for (job, event) in self.events().await? {
            facts.events.entry(job).or_default().push(event);
        }
        let mut named: BTreeSet<String> = self.sources().await?.into_iter().collect();
        for (job, output) in self.outputs("results").await? {
            let value = match output {
                Output::Inline(value) => Some(value),
                Output::File { name, .. } => {
                    let bytes = std::fs::read(files.join(&name)).ok();
                    named.insert(name);
                    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok())
                }
            };
            facts.results.insert(job, value);
        }
        for (_, output) in self.outputs("checkpoints").await? {
            if let Output::File { name, .. } = output {
                named.insert(name);
            }
        }
        let there = walk(files)?;
        facts.missing = named.iter().filter(|name| !there.contains(*name)).cloned().collect();
        let mut listed = BTreeSet::new();
        let blobs =
            Blobs::open(&format!("file:{}", files.display())).map_err(|e| Trouble::Site(e.to_string()))?;
        let soon = SystemTime::now() + std::time::Duration::from_secs(3600);
        for area in [Area::Originals, Area::Results] {
            let names: Vec<_> = blobs.list(area, soon).collect().await;
            listed.extend(names.into_iter().flatten().map(|listed| listed.name.to_string()));
        }
        // Which file store this is, which no row names and nobody is to collect.
        for name in there.iter().filter(|name| !named.contains(*name) && *name != "identity") {
            let found = listed.contains(name) || name.starts_with("unfinished/");
            if found { &mut facts.orphans } else { &mut facts.hidden }.push(name.clone());
        }
        Ok(facts)
    }
}

fn key(params: String) -> Option<String> {
    let params: Value = serde_json::from_str(&params).ok()?;
    params["key"].as_str().map(str::to_owned)
}

/// Every file below `root`, by its path from there.
fn walk(root: &Path) -> std::io::Result<BTreeSet<String>> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(inside) = path.strip_prefix(root) {
                found.insert(inside.display().to_string());
            }
        }
    }
    Ok(found)
}
