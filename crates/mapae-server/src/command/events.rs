//! `mapae events`: what has happened to jobs, in order.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::job::event_line;
use super::watch::follow;
use super::{query, segment};
use crate::client::Call;
use crate::global::Global;
use crate::output::print;
use crate::trouble::Trouble;

#[derive(Subcommand)]
pub(crate) enum Events {
    /// Everything so far, oldest first
    List(List),
}

#[derive(Args)]
pub(crate) struct List {
    /// Only of this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only what came after this position
    #[arg(long, value_name = "POSITION", default_value = "0-0")]
    after: String,
    /// Go on with what comes
    #[arg(long)]
    follow: bool,
}

impl Events {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let Self::List(list) = self;
        let client = global.client().await?;
        let following = if list.follow { "true" } else { "false" };
        let query = query(&[("after", Some(&list.after)), ("follow", Some(following))]);
        let path = match &list.job {
            Some(id) => format!("/v1/jobs/{}/events{query}", segment(id)),
            None => format!("/v1/events{query}"),
        };
        follow(&*client, Call::get(path), |event| {
            // Progress is not an event: it is not kept.
            if event.name == "progress" { Ok(()) } else { print(&event_line(global.output, &event.data)) }
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
