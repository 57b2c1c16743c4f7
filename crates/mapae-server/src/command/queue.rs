//! `mapae queue`: lanes of waiting jobs.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::segment;
use crate::client::Call;
use crate::global::Global;
use crate::output::{self, Column};
use crate::trouble::Trouble;

const COLUMNS: &[Column] = &[
    ("LANE", "lane"),
    ("READY", "ready"),
    ("SCHEDULED", "scheduled"),
    ("RUNNING", "running"),
    ("OLDEST (S)", "oldest_ready_seconds"),
    ("PAUSED", "paused"),
];

#[derive(Subcommand)]
pub(crate) enum Queue {
    /// What waits where
    Show,
    /// Start nothing of a lane until it is resumed
    Pause(Lane),
    /// Go on
    Resume(Lane),
}

#[derive(Args)]
pub(crate) struct Lane {
    /// A kind, or KIND:high or KIND:low
    lane: String,
    /// All lanes of the kind, whatever their priority
    #[arg(long)]
    all: bool,
}

impl Lane {
    fn path(&self, what: &str) -> String {
        let of = if self.all { "kinds" } else { "lanes" };
        format!("/v1/{of}/{}/{what}", segment(&self.lane))
    }
}

impl Queue {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let client = global.client().await?;
        match self {
            Self::Show => {
                let stats = client.json(Call::get("/v1/stats")).await?;
                let lanes = stats["lanes"].as_array().cloned().unwrap_or_default();
                output::list(global.output, &lanes, COLUMNS, "lane")?;
            }
            Self::Pause(lane) => drop(client.ask(Call::post(lane.path("pause"))).await?),
            Self::Resume(lane) => drop(client.ask(Call::post(lane.path("resume"))).await?),
        }
        Ok(ExitCode::SUCCESS)
    }
}
