//! A place of its own for each cell: folder, database, part of a broker, service, and the processes that run there.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mapae::job::name::{Kind, Owner};
use mapae::job::record::NewJob;
use mapae::store::contract::{NewKey, Scope};
use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use uuid::Uuid;

use crate::broker::Corner;
use crate::cell::{Cell, Pair, Store};
use crate::check::broken_promises;
use crate::client::{Client, KEY, KIND, OWNER, Told};
use crate::facts::ENDS;
use crate::look::Database;
use crate::process::Process;
use crate::service::Service;
use crate::subject;
use crate::trouble::{Outcome, Trouble};
use crate::wait::until;

/// What all sites have in common.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The program `mapae`, built to fail.
    pub(crate) mapae: PathBuf,
    /// A server in which each site makes a database; without one there is only SQLite.
    pub(crate) postgres: Option<String>,
    pub(crate) mutant: Option<String>,
    /// How long all jobs may take to end, once nothing goes wrong any more.
    pub(crate) bound: Duration,
    /// How soon what a broker has lost is rung again, where that is not for the scene to say.
    pub(crate) rescan: Option<Duration>,
}

pub(crate) struct Site {
    world: World,
    pub(crate) folder: PathBuf,
    pub(crate) url: String,
    pub(crate) database: Database,
    pub(crate) service: Service,
    pub(crate) client: Client,
    pub(crate) corner: Corner,
    name: String,
    store: Store,
}

impl Site {
    pub(crate) async fn make(world: &World, pair: Pair) -> Outcome<Self> {
        let store = pair.store;
        let folder = tempfile::Builder::new().prefix("mapae-faults-").tempdir()?.keep();
        let name = format!("mapae_faults_{}", Uuid::new_v4().simple());
        let url = match store {
            Store::Sqlite => format!("sqlite:{}", folder.join("jobs.db").display()),
            Store::Postgres => {
                let server =
                    world.postgres.as_deref().ok_or_else(|| Trouble::Site("no PostgreSQL".into()))?;
                let mut connection = PgConnection::connect(server).await?;
                connection.execute(AssertSqlSafe(format!("create database {name}"))).await?;
                connection.close().await?;
                let base = server.rsplit_once('/').map_or(server, |(base, _)| base);
                format!("{base}/{name}")
            }
        };
        let corner = Corner::new(pair.broker, &name)?;
        let service = Service::start().await?;
        let client = Client::default();
        let site = Self {
            world: world.clone(),
            database: Database::open(store, &url)?,
            folder,
            url,
            service,
            client,
            corner,
            name,
            store,
        };
        site.prepare().await?;
        Ok(site)
    }

    /// The schema, a key and the configuration.
    async fn prepare(&self) -> Outcome<()> {
        let store = self.store().await?;
        store.migrate().await?;
        let hash: [u8; 32] = Sha256::digest(KEY.as_bytes()).into();
        let scopes = vec!["admin".to_owned()];
        store.add_key(NewKey { id: "faults".into(), hash, owner: None, scopes, lifetime: None }).await?;
        store.close().await;
        std::fs::create_dir_all(self.files())?;
        let configuration = format!(
            r#"
            database.url = "{database}"
            broker.url = "{broker}"
            files.url = "file:{files}"
            worker.slots = 2
            worker.kinds = ["fault.*"]
            worker.lease = "3s"
            worker.heartbeat = "500ms"
            rescan.after = "{rescan}s"
            log.format = "json"
            [kind."{KIND}"]
            attempts = 500
            backoff = "100ms..500ms"
            [handler."{KIND}"]
            url = "{service}"
            timeout = "60s"
            "#,
            database = self.url,
            broker = self.corner.url(),
            rescan = self.rescan().as_secs(),
            files = self.files().display(),
            service = self.service.url(),
        );
        std::fs::write(self.folder.join("mapae.toml"), configuration)?;
        Ok(())
    }

    fn rescan(&self) -> Duration {
        self.world.rescan.unwrap_or_else(|| self.corner.rescan())
    }

    /// The store, as a client inside the program has it: with an outbox that somebody empties.
    pub(crate) async fn store(&self) -> Outcome<Arc<dyn mapae::store::contract::Store>> {
        Ok(mapae::store::open(&self.url, true).await?)
    }

    /// Jobs whose rows are written and for which nobody rings.
    pub(crate) async fn accept(
        &self,
        kind: &str,
        number: usize,
        change: impl Fn(&mut NewJob),
    ) -> Outcome<()> {
        let store = self.store().await?;
        let site = |error: &dyn std::fmt::Display| Trouble::Site(error.to_string());
        for at in 0..number {
            let key = format!("key-{at}");
            let owner = Owner::new(OWNER).map_err(|error| site(&error))?;
            let kind = Kind::new(kind).map_err(|error| site(&error))?;
            let mut job = NewJob::new(owner, kind, json!({ "key": key }));
            change(&mut job);
            let accepted = store.accept(job).await.map_err(|error| site(&error))?;
            self.client.lock().push(Told::Accepted { key, id: accepted.id.to_string() });
        }
        store.close().await;
        Ok(())
    }

    /// Asks for the deletion of a job that has ended.
    pub(crate) async fn delete(&self, id: &str) -> Outcome<()> {
        let store = self.store().await?;
        let job = id.parse().map_err(|_| Trouble::Site(format!("{id} is no job's id")))?;
        let deleted = store.delete(&Scope::All, job).await;
        store.close().await;
        deleted.map_err(|error| Trouble::Site(error.to_string()))?;
        self.client.lock().push(Told::Deleted { id: id.to_owned() });
        Ok(())
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// `mapae serve`; answers with it where it listens.
    pub(crate) fn door(&self, name: &str, armed: Option<Cell>) -> Outcome<(Process, String)> {
        self.door_in(&[], name, armed)
    }

    pub(crate) fn door_in(
        &self,
        around: &[&str],
        name: &str,
        armed: Option<Cell>,
    ) -> Outcome<(Process, String)> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let arguments = ["--config", "mapae.toml", "serve", "--listen", &address];
        Ok((self.start(around, name, &self.world.mapae, &arguments, armed)?, address))
    }

    /// `mapae work`.
    pub(crate) fn worker(&self, name: &str, armed: Option<Cell>) -> Outcome<Process> {
        self.worker_in(&[], name, armed)
    }

    pub(crate) fn worker_in(&self, around: &[&str], name: &str, armed: Option<Cell>) -> Outcome<Process> {
        let arguments = ["--config", "mapae.toml", "work", "--name", name];
        self.start(around, name, &self.world.mapae, &arguments, armed)
    }

    /// The process `process`, which is configured with the worker's name `name`.
    pub(crate) fn worker_as(&self, process: &str, name: &str, armed: Option<Cell>) -> Outcome<Process> {
        let arguments = ["--config", "mapae.toml", "work", "--name", name];
        self.start(&[], process, &self.world.mapae, &arguments, armed)
    }

    /// A worker made with the library.
    pub(crate) fn subject(&self, name: &str, armed: Option<Cell>) -> Outcome<Process> {
        let (files, taken) = (self.files(), self.taken());
        let arguments = [
            subject::COMMAND,
            name,
            &self.url,
            &self.corner.url(),
            &self.rescan().as_secs().to_string(),
            &files.display().to_string(),
            &self.service.address,
            &taken.display().to_string(),
        ];
        self.start(&[], name, &std::env::current_exe()?, &arguments, armed)
    }

    /// Where subjects write down the events that they have taken.
    pub(crate) fn taken(&self) -> PathBuf {
        self.folder.join("taken")
    }

    fn start(
        &self,
        around: &[&str],
        name: &str,
        program: &Path,
        arguments: &[&str],
        armed: Option<Cell>,
    ) -> Outcome<Process> {
        let mutant = self.world.mutant.as_deref();
        Process::start(&self.folder, around, name, program, arguments, armed, mutant)
    }

    /// The host and port of the server, and the address of the database with `{}` in their place.
    pub(crate) fn server(&self) -> Option<(String, String)> {
        let (scheme, rest) = self.url.split_once("://")?;
        let (place, database) = rest.split_once('/')?;
        let (user, server) = place.rsplit_once('@')?;
        Some((server.to_owned(), format!("{scheme}://{user}@{{}}/{database}")))
    }

    /// How often anything was claimed.
    pub(crate) async fn claims(&self) -> Outcome<usize> {
        let events = self.database.events().await?;
        Ok(events.iter().filter(|(_, event)| event.event == "claimed").count())
    }

    /// How many jobs have not ended; `None` where the database does not say.
    pub(crate) async fn open_jobs(&self) -> Option<usize> {
        let jobs = self.database.jobs().await.ok()?;
        Some(jobs.iter().filter(|job| !ENDS.contains(&job.state.as_str())).count())
    }

    pub(crate) async fn all_ended(&self) -> bool {
        self.open_jobs().await == Some(0)
    }

    /// Waits until every job has ended.
    pub(crate) async fn ended(&self) -> Outcome<()> {
        if until(self.world.bound, async || self.all_ended().await).await {
            return Ok(());
        }
        let open = self.database.jobs().await?;
        let open: Vec<String> = open
            .iter()
            .filter(|job| !ENDS.contains(&job.state.as_str()))
            .map(|job| format!("{} is {}", job.id, job.state))
            .collect();
        Err(Trouble::broken(format!("not all has ended within {:?}: {}", self.world.bound, open.join(", "))))
    }

    /// Waits until the broker has nothing of ours, while somebody is there who reads it.
    pub(crate) async fn emptied(&self) -> Outcome<()> {
        let mut left = Ok(Vec::new());
        let empty = until(self.world.bound, async || {
            left = self.corner.left().await;
            left.as_ref().is_ok_and(Vec::is_empty)
        });
        if empty.await {
            return Ok(());
        }
        let left = left?.join(", ");
        Err(Trouble::broken(format!(
            "all has ended, and the broker still has, after {:?}: {left}",
            self.world.bound
        )))
    }

    /// Keeps the database as it is now.
    pub(crate) async fn back_up(&self) -> Outcome<()> {
        match self.store {
            Store::Postgres => self.database.back_up().await,
            Store::Sqlite => self.database.copy_to(&self.folder.join("backup.db")).await,
        }
    }

    /// Makes it what it was then. A file is put in the place of the other: who had that open still has it.
    pub(crate) async fn restore(&mut self) -> Outcome<()> {
        if self.store == Store::Postgres {
            return self.database.restore().await;
        }
        self.database.close().await;
        for beside in ["jobs.db-wal", "jobs.db-shm"] {
            match std::fs::remove_file(self.folder.join(beside)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        std::fs::rename(self.folder.join("backup.db"), self.folder.join("jobs.db"))?;
        self.database = Database::open(self.store, &self.url)?;
        Ok(())
    }

    /// Asks every question. Call when nothing runs any more.
    pub(crate) async fn check(&self, faults: usize) -> Outcome<()> {
        let mut facts = self.database.facts(&self.files()).await?;
        facts.told = self.client.log();
        facts.calls = self.service.calls();
        facts.taken = subject::taken(&self.taken());
        self.corner.left_alone().await?;
        facts.left = self.corner.left().await?;
        match broken_promises(&facts, faults) {
            broken if broken.is_empty() => Ok(()),
            broken => Err(Trouble::Broken(broken)),
        }
    }

    /// Removes everything. What failed stays to be looked at.
    pub(crate) async fn clear(self) -> Outcome<()> {
        self.database.close().await;
        self.corner.clear().await?;
        std::fs::remove_dir_all(&self.folder)?;
        if let (Database::Postgres(_), Some(server)) = (&self.database, &self.world.postgres) {
            let mut connection = PgConnection::connect(server).await?;
            let drop = format!("drop database if exists {} with (force)", self.name);
            connection.execute(AssertSqlSafe(drop)).await?;
            connection.close().await?;
        }
        Ok(())
    }
}
