//! The program itself, in processes of its own: a folder with its configuration, a server, workers.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::http::Caller;
use crate::site::{Database, execute, fresh};

/// How long a process may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// `mapae` beside this program, as `cargo xtask bench` builds both.
pub(crate) struct Program {
    folder: tempfile::TempDir,
    binary: PathBuf,
    /// Where the server listens.
    pub(crate) address: String,
    pub(crate) key: String,
    server: Option<Running>,
    /// The database's own server, and the database on it.
    made: Option<(String, String)>,
}

/// A process, killed when it is dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Stopped as if its host were gone: its connections stay.
    pub(crate) fn freeze(&self) {
        Command::new("kill").args(["-STOP", &self.0.id().to_string()]).status().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    /// With a server that runs. `more` is configuration beside the database and the files.
    pub(crate) async fn serve(database: &Database, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (url, made) = match database {
            Database::Sqlite => (format!("sqlite:{}", folder.path().join("mapae.db").display()), None),
            Database::Postgres(server) => {
                let url = fresh(server).await;
                (url.clone(), Some((server.clone(), url)))
            }
        };
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let files = folder.path().join("files");
        let configuration =
            format!("database.url = \"{url}\"\nfiles.url = \"file:{}\"\n{more}", files.display());
        std::fs::write(folder.path().join("mapae.toml"), configuration).unwrap();
        let binary = std::env::current_exe().unwrap().with_file_name("mapae");
        assert!(binary.exists(), "there is no `mapae` beside this program: use `cargo xtask bench`");
        let mut program = Self {
            folder,
            binary,
            address: format!("127.0.0.1:{port}"),
            key: String::new(),
            server: None,
            made,
        };
        assert!(program.command(&["migrate"]).stdout(Stdio::null()).status().unwrap().success());
        let key = ["key", "create", "--owner", "bench", "--scopes", "jobs:write,jobs:read,admin"];
        program.key =
            String::from_utf8(program.command(&key).output().unwrap().stdout).unwrap().trim().to_owned();
        let listen = program.address.clone();
        program.server = Some(program.start(&["serve", "--listen", &listen], "server"));
        program.until("the server is ready", "/readyz", |_| true).await;
        program
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(self.folder.path()).args(words).env_clear().stdin(Stdio::null());
        command
    }

    fn start(&self, words: &[&str], name: &str) -> Running {
        let log = std::fs::File::create(self.folder.path().join(format!("{name}.log"))).unwrap();
        let mut command = self.command(words);
        Running(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    pub(crate) fn worker(&self, name: &str) -> Running {
        self.start(&["work", "--name", name], name)
    }

    /// A worker that has joined.
    pub(crate) async fn joined(&self, name: &str) -> Running {
        let worker = self.worker(name);
        self.until("the worker has joined", "/v1/workers", |body| body.contains(&format!("\"{name}\"")))
            .await;
        worker
    }

    async fn until(&self, what: &str, path: &str, done: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(mut caller) = Caller::to(&self.address, &self.key).await
                && let Some((200, body)) = caller.get(path).await
                && done(&body)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not in time: {what}");
    }

    pub(crate) async fn close(mut self) {
        self.server = None;
        if let Some((server, url)) = self.made.take() {
            let name = url.rsplit('/').next().unwrap();
            execute(&server, &format!("drop database {name} with (force)")).await;
        }
    }
}
