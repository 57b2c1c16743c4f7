//! The command line: what there is.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::command::{
    adopt, analyze, batch, bench, config, dead, dev, doctor, events, job, jobs, key, labels, migrate, models,
    queue, resources, schedules, serve, shell, submit, tables, work, workers,
};
use crate::global::Global;
use crate::output::say;
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

#[derive(Subcommand)]
enum Command {
    /// Analyse documents here and now: no server, no set-up
    Analyze(analyze::Analyze),
    /// Show the tables on a page, and draw what was seen there
    Tables(tables::Tables),
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
    /// Many jobs as one
    #[command(subcommand)]
    Batch(batch::Batch),
    /// Jobs that failed for good
    #[command(subcommand)]
    Dead(dead::Dead),
    /// Lanes of jobs that wait
    #[command(subcommand)]
    Queue(queue::Queue),
    /// Work that comes at set times
    #[command(subcommand)]
    Schedules(schedules::Schedules),
    /// List workers
    Workers,
    /// List resources and limits, and what is in use of them
    Resources,
    /// Events of jobs
    #[command(subcommand)]
    Events(events::Events),
    /// Turn rows of a table of your own into jobs (PostgreSQL)
    Adopt(adopt::Adopt),
    /// Keys that let clients in
    #[command(subcommand)]
    Key(key::Key),
    /// Look at the configuration
    #[command(subcommand)]
    Config(config::Configuration),
    /// Labelled examples that teach the classifier what is whose
    #[command(subcommand)]
    Labels(labels::Labels),
    /// Packs of models that make the analysis better
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// Bring the database's schema up to date
    Migrate(migrate::Migrate),
    /// Check configuration, database, broker, files and clocks
    Doctor(doctor::Doctor),
    /// Measure what the database carries, on one of its own beside it
    Bench(bench::Bench),
    /// Print completions for a shell
    Completions(shell::Completions),
    /// Print the manual page, of the program or of one command
    Man(shell::Man),
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
            if !error.use_stderr() {
                return ExitCode::SUCCESS;
            }
            say("code: arguments\nhelp: `--help` after the command shows what it takes");
            return ExitCode::from(Exit::Usage as u8);
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
        match &self.command {
            Command::Doctor(_) => global.is_of_no_use_to("doctor"),
            Command::Migrate(_) => global.is_of_no_use_to("migrate"),
            Command::Bench(_) => global.is_of_no_use_to("bench"),
            Command::Config(_) => global.is_of_no_use_to("config"),
            Command::Serve(_) => global.is_of_no_use_to("serve"),
            Command::Work(_) => global.is_of_no_use_to("work"),
            Command::Dev(_) => global.is_of_no_use_to("dev"),
            _ => {}
        }
        match self.command {
            Command::Analyze(command) => command.run(global).await,
            Command::Tables(command) => command.run(global).await,
            Command::Dev(command) => command.run(global).await,
            Command::Serve(command) => command.run(global).await,
            Command::Work(command) => command.run(global).await,
            Command::Submit(command) => command.run(global).await,
            Command::Jobs(command) => command.run(global).await,
            Command::Job(command) => command.run(global).await,
            Command::Batch(command) => command.run(global).await,
            Command::Dead(command) => command.run(global).await,
            Command::Queue(command) => command.run(global).await,
            Command::Schedules(command) => command.run(global).await,
            Command::Workers => workers::run(global).await,
            Command::Resources => resources::run(global).await,
            Command::Events(command) => command.run(global).await,
            Command::Adopt(command) => command.run(global).await,
            Command::Key(command) => command.run(global).await,
            Command::Config(command) => command.run(global),
            Command::Labels(command) => command.run(global).await,
            Command::Models(command) => command.run(global),
            Command::Migrate(command) => command.run(global).await,
            Command::Doctor(command) => command.run(global).await,
            Command::Bench(command) => command.run(global).await,
            Command::Completions(command) => command.run(Self::command()),
            Command::Man(command) => command.run(Self::command()),
        }
    }
}
