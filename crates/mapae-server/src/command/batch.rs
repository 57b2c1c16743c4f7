//! `mapae batch`: many jobs as one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use mapae::job::batch::PARTS_MAX;
use serde_json::{Value, json};

use super::submit::{duration, finish};
use super::{job, segment};
use crate::client::{Call, Client};
use crate::global::Global;
use crate::output::{self, Column};
use crate::trouble::Trouble;

/// What a person is shown of a batch.
const ROWS: &[Column] = &[
    ("id", "id"),
    ("parts", "parts"),
    ("ended", "ended"),
    ("succeeded", "succeeded"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
    ("stale", "stale"),
    ("sealed", "sealed"),
];

const PARTS: &[Column] = &[("NO", "number"), ("ID", "id"), ("STATE", "state"), ("FAILURE", "failure")];

#[derive(Subcommand)]
pub(crate) enum Batch {
    /// Submit the jobs of a file, one JSON object a line: {"kind": "…", "params": {…}}
    Submit(Submit),
    /// How far it has come
    Show(Id),
    /// Its parts, in their order
    Jobs(Id),
    /// Add the jobs of a file to one that is open
    Add(Add),
    /// Add no more: it ends once all parts have
    Seal(Id),
    /// Cancel it with all that is left of it
    Cancel(Id),
}

#[derive(Args)]
pub(crate) struct Id {
    id: String,
}

#[derive(Args)]
pub(crate) struct Add {
    id: String,
    file: PathBuf,
    #[command(flatten)]
    once: Once,
}

#[derive(Args)]
struct Once {
    /// Given twice under one key, it is done once
    #[arg(id = "idempotency", long = "key", alias = "idempotency-key", value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The key for the server; `--key` before `batch`, or MAPAE_KEY, is the same
    // Under the name of the global one: it stands in its place, because `--key` is another here.
    #[arg(id = "key", long = "api-key", value_name = "KEY")]
    _api_key: Option<String>,
}

#[derive(Args)]
pub(crate) struct Submit {
    file: PathBuf,
    /// The kind of the job that runs once all have ended [default: one that only counts them]
    #[arg(long, value_name = "KIND")]
    then: Option<String>,
    /// Its parameters
    #[arg(long, value_name = "JSON", requires = "then")]
    params: Option<String>,
    /// Leave it open for more parts
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    once: Once,
    /// Wait until it has ended; the exit code says how
    #[arg(long)]
    wait: bool,
    /// How long to wait at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration, requires = "wait")]
    timeout: Duration,
}

impl Batch {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let path = |id: &str, what: &str| format!("/v1/batches/{}{what}", segment(id));
        let batch = |found: &Value| output::one(global.output, found, ROWS, "id");
        let client = global.client().await?;
        match self {
            Self::Submit(command) => return command.run(global).await,
            Self::Show(Id { id }) => batch(&client.json(Call::get(path(&id, ""))).await?)?,
            Self::Jobs(Id { id }) => {
                let mut items = Vec::new();
                let mut next = path(&id, "/jobs?limit=1000");
                loop {
                    let page = client.json(Call::get(next)).await?;
                    items.extend(page["items"].as_array().cloned().unwrap_or_default());
                    let Some(cursor) = page["cursor"].as_u64() else { break };
                    next = path(&id, &format!("/jobs?limit=1000&cursor={cursor}"));
                }
                output::list(global.output, &items, PARTS, "id")?;
            }
            Self::Add(Add { id, file, once }) => {
                let key = once.idempotency_key.as_deref();
                batch(&add(&*client, &id, jobs(&file)?, key).await?)?;
            }
            Self::Seal(Id { id }) => batch(&client.json(Call::post(path(&id, "/seal"))).await?)?,
            Self::Cancel(Id { id }) => {
                let cancelled = client.json(Call::post(format!("/v1/jobs/{}/cancel", segment(&id)))).await?;
                output::one(global.output, &cancelled, job::ROWS, "id")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Submit {
    async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let mut first = jobs(&self.file)?;
        // What is more than one call takes is added to the open batch.
        let more = first.split_off(first.len().min(PARTS_MAX));
        let mut body = json!({ "jobs": first, "open": self.open || !more.is_empty() });
        if let Some(kind) = &self.then {
            let params: Value = match &self.params {
                None => json!({}),
                Some(text) => serde_json::from_str(text).map_err(|_| {
                    let help = "quote it for the shell: --params '{\"a\": 1}'";
                    Trouble::usage("params-invalid", "--params is not JSON.", help)
                })?,
            };
            body["whole"] = json!({ "kind": kind, "params": params });
        }
        let client = global.client().await?;
        let mut call = Call::post("/v1/batches").json(body);
        let key = self.once.idempotency_key.as_deref();
        if let Some(key) = key {
            call = call.header("idempotency-key", key);
        }
        let submitted = client.json(call).await?;
        if !more.is_empty() {
            let id = submitted["id"].as_str().unwrap_or_default();
            let rest = key.map(|key| format!("{key}/more"));
            let rest = rest.as_deref();
            complete(&*client, id, more, rest, !self.open).await.map_err(|trouble| half(trouble, id, key))?;
        }
        if !self.wait {
            output::one(global.output, &submitted, job::ROWS, "id")?;
            return Ok(ExitCode::SUCCESS);
        }
        finish(&*client, global, submitted["id"].as_str().unwrap_or_default(), self.timeout).await
    }
}

/// Adds the jobs, as many at a time as a call takes.
async fn add(client: &dyn Client, id: &str, jobs: Vec<Value>, key: Option<&str>) -> Result<Value, Trouble> {
    let path = format!("/v1/batches/{}/jobs", segment(id));
    let mut shown = Value::Null;
    for (at, jobs) in jobs.chunks(PARTS_MAX).enumerate() {
        let mut call = Call::post(path.clone()).json(json!({ "jobs": jobs }));
        if let Some(key) = key {
            call = call.header("idempotency-key", format!("{key}/{}", at + 1));
        }
        shown = client.json(call).await?;
    }
    match shown {
        Value::Null => client.json(Call::get(format!("/v1/batches/{}", segment(id)))).await,
        shown => Ok(shown),
    }
}

/// Adds the rest of a batch's jobs; one that is submitted again may be sealed already.
async fn complete(
    client: &dyn Client,
    id: &str,
    more: Vec<Value>,
    key: Option<&str>,
    seal: bool,
) -> Result<(), Trouble> {
    let shown = add(client, id, more, key).await?;
    if seal && shown["sealed"] != true {
        client.json(Call::post(format!("/v1/batches/{}/seal", segment(id)))).await?;
    }
    Ok(())
}

/// Some of the jobs are parts already, and the batch waits for the others.
fn half(trouble: Trouble, id: &str, key: Option<&str>) -> Trouble {
    let help = match key {
        Some(_) => {
            format!("the batch {id} waits for the rest: run the same again under its key; {}", trouble.help)
        }
        None => format!(
            "the batch {id} is half there: `mapae batch cancel {id}`, then submit it with --key, which may be \
             repeated; {}",
            trouble.help
        ),
    };
    Trouble { help, ..trouble }
}

/// The jobs of a file of JSON lines.
fn jobs(file: &Path) -> Result<Vec<Value>, Trouble> {
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|_| {
                let sentence = format!("Line {} is not JSON.", at + 1);
                Trouble::usage("jobs-invalid", sentence, "write one object a line: {\"kind\": \"…\"}")
            })
        })
        .collect()
}
