//! `mapae dead`: jobs that failed for good, for a person to decide on.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::jobs::pages;
use super::segment;
use crate::client::{Call, Client};
use crate::command::job::ROWS;
use crate::global::Global;
use crate::output::{self, Column, confirm, say};
use crate::trouble::{Exit, Trouble};

const COLUMNS: &[Column] = &[
    ("ID", "id"),
    ("KIND", "kind"),
    ("OWNER", "owner"),
    ("ASSIGNEE", "assignee"),
    ("FAILED", "finished_at"),
    ("ATTEMPTS", "attempt"),
    ("FAILURE", "failure.code"),
    ("MESSAGE", "failure.message"),
];

#[derive(Subcommand)]
pub(crate) enum Dead {
    /// The newest first
    List(List),
    /// One of them
    Show { id: String },
    /// Send them back to work with a fresh budget
    Redrive(Which),
    /// Close them: the jobs and their files are deleted
    Resolve(Which),
    /// Say who looks after them
    Assign(Assign),
}

#[derive(Args)]
pub(crate) struct Assign {
    #[command(flatten)]
    which: Which,
    /// The person or team
    #[arg(long, value_name = "NAME", required_unless_present = "nobody")]
    to: Option<String>,
    /// Nobody does from now on
    #[arg(long, conflicts_with = "to")]
    nobody: bool,
}

#[derive(Args)]
pub(crate) struct List {
    #[arg(long)]
    kind: Option<String>,
    #[arg(long)]
    owner: Option<String>,
    /// Part of the file's name, or the beginning of an id
    #[arg(long = "q", value_name = "TEXT")]
    text: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// Either ids, or a filter.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Which {
    /// These
    #[arg(conflicts_with_all = ["all", "kind", "owner", "text", "code", "unassigned"])]
    ids: Vec<String>,
    /// All that fit the filter, or all there are
    #[arg(long)]
    all: bool,
    #[arg(long)]
    kind: Option<String>,
    #[arg(long)]
    owner: Option<String>,
    /// Part of the file's name, or the beginning of an id
    #[arg(long = "q", value_name = "TEXT")]
    text: Option<String>,
    /// The failure's code
    #[arg(long)]
    code: Option<String>,
    /// Only those that nobody looks after
    #[arg(long)]
    unassigned: bool,
    /// Say which they are, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Dead {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let client = global.client().await?;
        match self {
            Self::List(list) => {
                let filter = [
                    ("kind", list.kind.as_deref()),
                    ("owner", list.owner.as_deref()),
                    ("q", list.text.as_deref()),
                ];
                let items = pages(&*client, "/v1/dead", &filter, list.limit).await?;
                output::list(global.output, &items, COLUMNS, "id")?;
            }
            Self::Show { id } => {
                let job = client.json(Call::get(format!("/v1/jobs/{}", segment(&id)))).await?;
                output::one(global.output, &job, ROWS, "id")?;
            }
            Self::Redrive(which) => return which.act(global, &*client, "redrive", json!({})).await,
            Self::Resolve(which) => {
                if !which.dry_run {
                    confirm(which.yes, "Delete these dead letters and their files?")?;
                }
                return which.act(global, &*client, "resolve", json!({})).await;
            }
            Self::Assign(Assign { which, to, nobody: _ }) => {
                return which.act(global, &*client, "assign", json!({ "assignee": to })).await;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Which {
    /// `body` is what the call takes beside the choice.
    async fn act(
        &self,
        global: &Global,
        client: &dyn Client,
        what: &str,
        mut body: Value,
    ) -> Result<ExitCode, Trouble> {
        body["dry_run"] = json!(self.dry_run);
        if self.ids.is_empty() {
            body["filter"] = json!({
                "kind": self.kind, "owner": self.owner, "q": self.text, "code": self.code,
                "unassigned": self.unassigned,
            });
        } else {
            body["ids"] = json!(self.ids);
        }
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        loop {
            let mut answer = client.json(Call::post(format!("/v1/dead/{what}")).json(body.clone())).await?;
            let take = |answer: &mut Value, name: &str| {
                answer[name].as_array_mut().map(std::mem::take).unwrap_or_default()
            };
            let acted = take(&mut answer, "done");
            let cursor = answer["cursor"].take();
            let more = !cursor.is_null() && body["filter"].is_object();
            if more {
                body["filter"]["cursor"] = cursor;
            }
            done.extend(acted);
            refused.extend(take(&mut answer, "refused"));
            if !more {
                break;
            }
        }
        let items: Vec<Value> = done.iter().map(|id| json!({ "id": id })).collect();
        output::list(global.output, &items, &[("ID", "id")], "id")?;
        if refused.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let exit = if done.is_empty() { Exit::NotFound } else { Exit::Partly };
        say(&format!("Not dead letters, or not yours: {} of the ids.", refused.len()));
        Ok(ExitCode::from(exit as u8))
    }
}
