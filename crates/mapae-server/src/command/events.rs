//! `mapae events`: what has happened to jobs, in order, and telling it to others.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::job::event_line;
use super::watch::follow;
use super::{query, segment};
use crate::client::{Call, Client};
use crate::global::Global;
use crate::output::{self, Column, confirm, print, say};
use crate::trouble::{Exit, Trouble};

const DEAD: &[Column] = &[
    ("ID", "id"),
    ("RECEIVER", "receiver"),
    ("JOB", "job"),
    ("SEQUENCE", "sequence"),
    ("EVENT", "event"),
    ("TRIES", "tries"),
    ("CODE", "code"),
    ("GIVEN UP", "dead_at"),
];

const RECEIVERS: &[Column] = &[
    ("NAME", "name"),
    ("WAITING", "waiting"),
    ("DEAD", "dead"),
    ("OLDEST (S)", "oldest_seconds"),
    ("CONFIGURED", "configured"),
];

#[derive(Subcommand)]
pub(crate) enum Events {
    /// Everything so far, oldest first
    List(List),
    /// Who is told, and what stands before them
    Receivers,
    /// Events that a receiver did not take and that were given up, newest first
    Dead(Dead),
    /// Tell them again, as if they were new
    Resend(Chosen),
    /// Forget them: nobody is told
    Resolve(Resolve),
    /// Tell a receiver again what has happened, as far as it is kept
    Replay(Replay),
    /// What an owner's callbacks are signed with
    Secret {
        /// For keys of all owners
        #[arg(long)]
        owner: Option<String>,
    },
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

#[derive(Args)]
pub(crate) struct Dead {
    /// Only of this receiver
    #[arg(long, value_name = "NAME")]
    receiver: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// Either ids, or all of a receiver, or all.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Chosen {
    /// These
    ids: Vec<String>,
    /// All of this receiver
    #[arg(long, value_name = "NAME")]
    receiver: Option<String>,
    /// All there are
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
pub(crate) struct Resolve {
    #[command(flatten)]
    chosen: Chosen,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Args)]
pub(crate) struct Replay {
    /// The receiver, as `mapae events receivers` names it
    #[arg(long, value_name = "NAME")]
    to: String,
    /// Only what happened at this time or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what happened before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only of this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,
}

impl Events {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let client = global.client().await?;
        match self {
            Self::List(list) => list.run(global, &*client).await?,
            Self::Receivers => {
                let found = client.json(Call::get("/v1/receivers")).await?;
                output::list(global.output, &items(&found), RECEIVERS, "name")?;
            }
            Self::Dead(dead) => {
                let found = dead.pages(&*client).await?;
                output::list(global.output, &found, DEAD, "id")?;
            }
            Self::Resend(chosen) => return chosen.act(global, &*client, "resend").await,
            Self::Resolve(resolve) => {
                confirm(resolve.yes, "Forget these events? Nobody will be told of them.")?;
                return resolve.chosen.act(global, &*client, "resolve").await;
            }
            Self::Replay(replay) => replay.run(global, &*client).await?,
            Self::Secret { owner } => {
                let query = query(&[("owner", owner.as_deref())]);
                let found = client.json(Call::get(format!("/v1/callbacks/secrets{query}"))).await?;
                for secret in found["secrets"].as_array().into_iter().flatten() {
                    print(&format!("{}\n", secret.as_str().unwrap_or_default()))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl List {
    async fn run(&self, global: &Global, client: &dyn Client) -> Result<(), Trouble> {
        let following = if self.follow { "true" } else { "false" };
        let query = query(&[("after", Some(&self.after)), ("follow", Some(following))]);
        let path = match &self.job {
            Some(id) => format!("/v1/jobs/{}/events{query}", segment(id)),
            None => format!("/v1/events{query}"),
        };
        follow(client, Call::get(path), |event| {
            // Progress is not an event: it is not kept.
            if event.name == "progress" { Ok(()) } else { print(&event_line(global.output, &event.data)) }
        })
        .await
    }
}

impl Dead {
    async fn pages(&self, client: &dyn Client) -> Result<Vec<Value>, Trouble> {
        let (mut found, mut cursor): (Vec<Value>, Option<String>) = (Vec::new(), None);
        while found.len() < self.limit {
            let limit = (self.limit - found.len()).min(200).to_string();
            let query = query(&[
                ("receiver", self.receiver.as_deref()),
                ("cursor", cursor.as_deref()),
                ("limit", Some(&limit)),
            ]);
            let page = client.json(Call::get(format!("/v1/events/dead{query}"))).await?;
            found.extend(items(&page));
            cursor = page["cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

impl Chosen {
    async fn act(&self, global: &Global, client: &dyn Client, what: &str) -> Result<ExitCode, Trouble> {
        let body = match &self.receiver {
            Some(receiver) => json!({ "receiver": receiver }),
            None if self.all => json!({ "all": true }),
            None => json!({ "ids": self.ids }),
        };
        let (mut done, mut refused) = (Vec::new(), 0);
        loop {
            let answer = client.json(Call::post(format!("/v1/events/{what}")).json(body.clone())).await?;
            let acted = answer["done"].as_array().cloned().unwrap_or_default();
            refused += answer["refused"].as_array().map_or(0, Vec::len);
            let more = answer["more"] == true && !acted.is_empty();
            done.extend(acted.into_iter().map(|id| json!({ "id": id })));
            if !more {
                break;
            }
        }
        output::list(global.output, &done, &[("ID", "id")], "id")?;
        if refused == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        say(&format!("Not events that were given up, or not yours: {refused} of the ids."));
        let exit = if done.is_empty() { Exit::NotFound } else { Exit::Partly };
        Ok(ExitCode::from(exit as u8))
    }
}

impl Replay {
    async fn run(&self, global: &Global, client: &dyn Client) -> Result<(), Trouble> {
        let (mut replayed, mut cursor) = (0, Value::Null);
        loop {
            let body = json!({
                "receiver": self.to, "since": self.since, "until": self.until, "job": self.job, "cursor": cursor,
            });
            let answer = client.json(Call::post("/v1/events/replay").json(body)).await?;
            replayed += answer["replayed"].as_u64().unwrap_or_default();
            cursor = answer["cursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        let told = json!({ "receiver": self.to, "replayed": replayed });
        output::one(global.output, &told, &[("RECEIVER", "receiver"), ("REPLAYED", "replayed")], "receiver")
    }
}

fn items(page: &Value) -> Vec<Value> {
    page["items"].as_array().cloned().unwrap_or_default()
}
