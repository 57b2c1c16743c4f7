//! `mapae job`: one job, to look at or to act on.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::segment;
use super::submit::{duration, finish};
use super::watch::{Until, watch};
use crate::client::Call;
use crate::global::Global;
use crate::output::{self, Column, Form, confirm, plain, print};
use crate::trouble::{Exit, Trouble};

/// What a person is shown of a job.
pub(crate) const ROWS: &[Column] = &[
    ("id", "id"),
    ("kind", "kind"),
    ("owner", "owner"),
    ("phase", "phase"),
    ("why waiting", "why_waiting"),
    ("attempt", "attempt"),
    ("of", "max_attempts"),
    ("file", "source.name"),
    ("created", "created_at"),
    ("due", "due_at"),
    ("started", "started_at"),
    ("finished", "finished_at"),
    ("stage", "progress.stage"),
    ("failure", "failure.code"),
    ("message", "failure.message"),
    ("assignee", "assignee"),
    ("result", "links.result"),
    ("parent", "parent"),
    ("duplicate", "duplicate"),
];

#[derive(Subcommand)]
pub(crate) enum Job {
    /// Everything known about it
    Show(Id),
    /// Its events, until it has ended
    Watch(Watch),
    /// Cancel it, or ask its worker to stop
    Cancel(Id),
    /// Send a failed job back to work
    Retry(Id),
    /// Delete it and its files
    Delete(Delete),
}

#[derive(Args)]
pub(crate) struct Id {
    id: String,
}

#[derive(Args)]
pub(crate) struct Watch {
    id: String,
    /// How long to watch at most
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = duration)]
    timeout: Duration,
}

#[derive(Args)]
pub(crate) struct Delete {
    id: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Say what would be deleted
    #[arg(long)]
    dry_run: bool,
}

impl Job {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        match self {
            Self::Show(Id { id }) => show(global, &id).await,
            Self::Watch(watched) => watched.run(global).await,
            Self::Cancel(Id { id }) => act(global, &id, "cancel").await,
            Self::Retry(Id { id }) => act(global, &id, "retry").await,
            Self::Delete(delete) => delete.run(global).await,
        }
    }
}

async fn show(global: &Global, id: &str) -> Result<ExitCode, Trouble> {
    let client = global.client().await?;
    let job = client.json(Call::get(format!("/v1/jobs/{}", segment(id)))).await?;
    output::one(global.output, &job, ROWS, "id")?;
    if global.output == Form::Table {
        let entries = job["timeline"].as_array().cloned().unwrap_or_default();
        let columns =
            [("AT", "at"), ("EVENT", "event"), ("ATTEMPT", "attempt"), ("WORKER", "worker"), ("", "code")];
        print(&format!("\n{}", output::table(&entries, &columns)))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn act(global: &Global, id: &str, what: &str) -> Result<ExitCode, Trouble> {
    let client = global.client().await?;
    let job = client.json(Call::post(format!("/v1/jobs/{}/{what}", segment(id)))).await?;
    output::one(global.output, &job, ROWS, "id")?;
    Ok(ExitCode::SUCCESS)
}

impl Watch {
    async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let client = global.client().await?;
        let form = global.output;
        let until = watch(&*client, &self.id, self.timeout, |event| print(&event_line(form, event))).await?;
        if until == Until::TimedOut {
            return finish(&*client, global, &self.id, Duration::ZERO).await;
        }
        let job = client.json(Call::get(format!("/v1/jobs/{}", segment(&self.id)))).await?;
        Ok(exit_code(&job))
    }
}

/// An event as one line.
pub(crate) fn event_line(form: Form, event: &Value) -> String {
    let text = |value: &Value| value.as_str().map(plain).unwrap_or_default();
    match form {
        Form::Json | Form::Jsonl => format!("{event}\n"),
        Form::Id => format!("{}\n", text(&event["id"])),
        Form::Table => {
            let data = &event["data"];
            let attempt = data["attempt"].as_u64().filter(|attempt| *attempt > 0);
            let parts = [
                text(&event["time"]),
                text(&event["subject"]),
                text(&data["event"]),
                attempt.map(|attempt| format!("attempt {attempt}")).unwrap_or_default(),
                text(&data["worker"]),
                text(&data["code"]),
            ];
            let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            format!("{}\n", parts.join("  "))
        }
    }
}

/// 0 for a job that succeeded, 1 for one that ended otherwise.
pub(crate) fn exit_code(job: &Value) -> ExitCode {
    if job["state"] == "succeeded" { ExitCode::SUCCESS } else { ExitCode::from(Exit::Failed as u8) }
}

impl Delete {
    async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let client = global.client().await?;
        let path = format!("/v1/jobs/{}", segment(&self.id));
        let job = client.json(Call::get(path.clone())).await?;
        if self.dry_run {
            output::one(global.output, &job, ROWS, "id")?;
            return Ok(ExitCode::SUCCESS);
        }
        confirm(self.yes, "Delete the job, its file and its result?")?;
        client.ask(Call::delete(path)).await?;
        Ok(ExitCode::SUCCESS)
    }
}
