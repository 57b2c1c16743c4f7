//! `mapae schedules`: work that comes at set times.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{job, segment};
use crate::client::Call;
use crate::global::Global;
use crate::output::{self, Column};
use crate::trouble::Trouble;

const COLUMNS: &[Column] = &[
    ("NAME", "name"),
    ("KIND", "kind"),
    ("CRON", "cron"),
    ("ZONE", "zone"),
    ("MISSED", "missed"),
    ("NEXT", "next_at"),
    ("LAST", "last_at"),
    ("LAST JOB", "last_job"),
    ("PAUSED", "paused"),
    ("CONFIGURED", "configured"),
];

#[derive(Subcommand)]
pub(crate) enum Schedules {
    /// What comes when
    List,
    /// Make no job until it is resumed
    Pause(Name),
    /// Go on with its next tick; what came meanwhile was not missed
    Resume(Name),
    /// Make its job now, apart from its ticks
    Run(Name),
}

#[derive(Args)]
pub(crate) struct Name {
    /// As in the configuration: [schedule."NAME"]
    name: String,
}

impl Schedules {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let client = global.client().await?;
        let path = |name: &str, what: &str| format!("/v1/schedules/{}/{what}", segment(name));
        match self {
            Self::List => {
                let found = client.json(Call::get("/v1/schedules")).await?;
                let items = found["items"].as_array().cloned().unwrap_or_default();
                output::list(global.output, &items, COLUMNS, "name")?;
            }
            Self::Pause(Name { name }) => drop(client.ask(Call::post(path(&name, "pause"))).await?),
            Self::Resume(Name { name }) => drop(client.ask(Call::post(path(&name, "resume"))).await?),
            Self::Run(Name { name }) => {
                let made = client.json(Call::post(path(&name, "run"))).await?;
                output::one(global.output, &made, job::ROWS, "id")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
