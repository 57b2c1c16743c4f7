//! A PostgreSQL of its own, for what would hurt everybody who shares one.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::process::{Child, Command};

use crate::trouble::{Outcome, Trouble};
use crate::wait::{PATIENCE, until};

/// How a server goes down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// Sessions are ended and everything is written: SIGINT.
    Fast,
    /// As a crash: nothing is written, and what the log holds is recovered at the next start. SIGQUIT.
    Immediate,
}

pub(crate) struct Server {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
    /// The address of its first database.
    pub(crate) url: String,
}

impl Server {
    /// Made with the programs of the server at `other`, which has to be of this machine and to let its user look.
    pub(crate) async fn start(other: &str) -> Outcome<Self> {
        let mut connection = PgConnection::connect(other).await?;
        let programs: String = sqlx::query_scalar("select setting from pg_config() where name = 'BINDIR'")
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        // Its user is not root, and has to get in: not the temporary folder of this process.
        let folder = PathBuf::from(format!("/tmp/mapae-faults-postgres-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&folder)?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        let mut server = Self { programs: programs.into(), folder, port, child: None, url };
        if server.is_root()? {
            server.done(Command::new("chown").arg("postgres").arg(&server.folder)).await?;
        }
        let mut init = server.as_its_user("initdb")?;
        init.arg("-D").arg(server.folder.join("db"));
        init.args(["-N", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]);
        server.done(init.stdout(Stdio::null())).await?;
        server.up().await?;
        Ok(server)
    }

    fn is_root(&self) -> Outcome<bool> {
        Ok(std::fs::metadata("/proc/self")?.uid() == 0)
    }

    /// It refuses to run as root.
    fn as_its_user(&self, program: &str) -> Outcome<Command> {
        let mut command = Command::new("setpriv");
        if self.is_root()? {
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--reset-env"]);
        }
        command.args(["--pdeathsig", "KILL"]).arg(self.programs.join(program));
        command.current_dir(&self.folder).stdin(Stdio::null()).kill_on_drop(true);
        Ok(command)
    }

    async fn done(&self, command: &mut Command) -> Outcome<()> {
        match command.status().await? {
            status if status.success() => Ok(()),
            status => Err(Trouble::Site(format!("a PostgreSQL of its own cannot be made: {status}"))),
        }
    }

    /// Starts it and waits until it answers.
    pub(crate) async fn up(&mut self) -> Outcome<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = self.as_its_user("postgres")?;
        command.arg("-D").arg(self.folder.join("db"));
        // A crash of the machine would hurt it; the death of its processes does not.
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"] {
            command.args(["-c", setting]);
        }
        command.args(["-c", &format!("port={}", self.port)]).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        let answers = async || {
            let connecting = PgConnection::connect(&self.url);
            matches!(tokio::time::timeout(Duration::from_secs(1), connecting).await, Ok(Ok(_)))
        };
        if until(PATIENCE, answers).await {
            return Ok(());
        }
        Err(Trouble::Site("a PostgreSQL of its own does not answer".into()))
    }

    /// Takes it down, and returns when it has ended.
    pub(crate) async fn down(&mut self, how: Stop) -> Outcome<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let signal = match how {
            Stop::Fast => "-INT",
            Stop::Immediate => "-QUIT",
        };
        let id = child.id().ok_or_else(|| Trouble::NotHit("the database fell by itself".into()))?;
        self.done(Command::new("kill").args([signal, &id.to_string()])).await?;
        match tokio::time::timeout(PATIENCE, child.wait()).await {
            Ok(ended) => Ok(ended.map(drop)?),
            Err(_) => Err(Trouble::NotHit("the database does not stop".into())),
        }
    }

    pub(crate) async fn clear(mut self) -> Outcome<()> {
        self.down(Stop::Immediate).await?;
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }
}
