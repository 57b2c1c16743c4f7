//! The command line: what there is, and what all commands share.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::client::{Client, Local, Remote};
use crate::command::{
    analyze, config, dead, dev, doctor, events, job, jobs, key, migrate, models, queue, serve, shell, submit,
    work, workers,
};
use crate::config::{Config, Flag, Secret};
use crate::output::{Form, say};
use crate::trouble::{Exit, Trouble};

/// Runs long work outside the request that asked for it.
#[derive(Parser)]
#[command(name = "mapae", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
pub struct Global {
    /// The configuration file [default: ./mapae.toml where there is one]
    #[arg(long, global = true, value_name = "FILE", env = "MAPAE_CONFIG")]
    pub config: Option<PathBuf>,
    /// The form of what is printed
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        env = "MAPAE_OUTPUT",
        default_value = "table"
    )]
    pub output: Form,
    /// The server to talk to [default: the local database of the configuration]
    #[arg(long, global = true, value_name = "URL", env = "MAPAE_URL")]
    url: Option<String>,
    /// The key for that server
    #[arg(long, global = true, value_name = "KEY", env = "MAPAE_KEY", hide_env_values = true)]
    pub key: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Analyse documents here and now: no server, no set-up
    Analyze(analyze::Analyze),
    /// API, worker and keeper in one process, to try things out
    Dev(dev::Dev),
    /// API and keeper
    Serve(serve::Serve),
    /// Worker and keeper
    Work(work::Work),
    /// Submit a job
    Submit(submit::Submit),
    /// List jobs
    Jobs(jobs::Jobs),
    /// Look at one job, or act on it
    #[command(subcommand)]
    Job(job::Job),
    /// Jobs that failed for good
    #[command(subcommand)]
    Dead(dead::Dead),
    /// Lanes of jobs that wait
    #[command(subcommand)]
    Queue(queue::Queue),
    /// List workers
    Workers,
    /// Events of jobs
    #[command(subcommand)]
    Events(events::Events),
    /// Keys that let clients in
    #[command(subcommand)]
    Key(key::Key),
    /// Look at the configuration
    #[command(subcommand)]
    Config(config::Configuration),
    /// Packs of models that make the analysis better
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// Bring the database's schema up to date
    Migrate(migrate::Migrate),
    /// Check configuration, database, broker, files and clocks
    Doctor,
    /// Print completions for a shell
    Completions(shell::Completions),
    /// Print the manual page
    Man,
}

/// The program, from its arguments to its exit code.
pub fn run() -> ExitCode {
    // The child reads a stranger's document; it is to have nothing else of this program.
    if std::env::args_os().nth(1).is_some_and(|first| first == mapae_document::child::ARGUMENT) {
        return mapae_document::child::child_main();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help was asked for and goes to stdout; who no longer reads it misses nothing.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Exit::Usage as u8 } else { 0 });
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(cli.run());
            // What still runs in the background has nothing left to tell.
            runtime.shutdown_timeout(std::time::Duration::from_millis(500));
            done
        }
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(code) => code,
        Err(trouble) => {
            if trouble.exit != Exit::Unwanted {
                say(trouble.tell().trim_end());
            }
            ExitCode::from(trouble.exit as u8)
        }
    }
}

impl Cli {
    async fn run(self) -> Result<ExitCode, Trouble> {
        let global = &self.global;
        match self.command {
            Command::Analyze(command) => command.run(global).await,
            Command::Dev(command) => command.run(global).await,
            Command::Serve(command) => command.run(global).await,
            Command::Work(command) => command.run(global).await,
            Command::Submit(command) => command.run(global).await,
            Command::Jobs(command) => command.run(global).await,
            Command::Job(command) => command.run(global).await,
            Command::Dead(command) => command.run(global).await,
            Command::Queue(command) => command.run(global).await,
            Command::Workers => workers::run(global).await,
            Command::Events(command) => command.run(global).await,
            Command::Key(command) => command.run(global).await,
            Command::Config(command) => command.run(global),
            Command::Models(command) => command.run(global),
            Command::Migrate(command) => command.run(global).await,
            Command::Doctor => doctor::run(global).await,
            Command::Completions(command) => command.run(),
            Command::Man => shell::man(),
        }
    }
}

impl Global {
    /// The configuration under these flags.
    pub fn configuration(&self, flags: &[Flag]) -> Result<Config, Trouble> {
        Ok(Config::load(self.config.as_deref(), flags)?)
    }

    /// The server that was named, or the local database.
    pub async fn client(&self) -> Result<Box<dyn Client>, Trouble> {
        if let Some(url) = &self.url {
            return Ok(Box::new(Remote::new(url, self.key.clone().map(Secret::new))?));
        }
        Ok(Box::new(Local::open(self.configuration(&[])?).await?))
    }

    /// Whether commands talk to a server.
    pub fn is_remote(&self) -> bool {
        self.url.is_some()
    }
}
