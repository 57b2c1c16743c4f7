//! `mapae submit`: a job, with a file or without.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::watch::{Until, watch};
use super::{job, query};
use crate::client::{Call, Client};
use crate::config::parse_duration;
use crate::global::Global;
use crate::output;
use crate::trouble::{Exit, Trouble};

#[derive(Args)]
pub(crate) struct Submit {
    /// What sort of work, such as document.analyze
    kind: String,
    /// A file to work on
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A parameter; may be repeated. A value that is JSON is taken as that, any other as text
    #[arg(long = "param", value_name = "NAME=VALUE", conflicts_with = "params")]
    param: Vec<String>,
    /// All parameters as JSON
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
    /// Submitted twice under one key, one job is made
    #[arg(id = "idempotency", long = "key", alias = "idempotency-key", value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The key for the server; `--key` before `submit`, or MAPAE_KEY, is the same
    // Under the name of the global one: it stands in its place, because `--key` is another here.
    #[arg(id = "key", long = "api-key", value_name = "KEY")]
    _api_key: Option<String>,
    /// Answer with the job there is where one with this key waits or runs
    #[arg(long, value_name = "KEY", conflicts_with = "file")]
    unique_key: Option<String>,
    /// The same where these parts are equal, such as kind,params.customer
    #[arg(long, value_name = "PARTS", value_delimiter = ',', conflicts_with = "file")]
    unique_by: Option<Vec<String>>,
    /// The same for so long, also when the first has succeeded
    #[arg(long, value_name = "TIME", conflicts_with = "file")]
    unique_for: Option<String>,
    /// The job that is made when this one has ended, by how it ended: {"succeeded": {"kind": "…"}}
    #[arg(long, value_name = "JSON", conflicts_with = "file")]
    on: Option<String>,
    /// 1 (first) to 9 (last)
    #[arg(long, value_name = "N", conflicts_with = "file")]
    priority: Option<u8>,
    /// When it is first due (RFC 3339)
    #[arg(long, value_name = "TIME", conflicts_with = "file")]
    run_at: Option<String>,
    /// Whose job it is, with a key of all owners
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Wait until it has ended; the exit code says how
    #[arg(long)]
    wait: bool,
    /// How long to wait at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration, requires = "wait")]
    timeout: Duration,
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a time such as 30s, 5m or 2h".to_owned())
}

impl Submit {
    /// Of `submit`, `--key` is another one than before it, which is easily mistaken.
    fn perhaps_a_key(&self, mut trouble: Trouble) -> Trouble {
        if trouble.exit == Exit::NotPermitted && self.idempotency_key.is_some() {
            trouble
                .help
                .push_str("; after `submit`, `--key` is the idempotency key: the server's is `--api-key`");
        }
        trouble
    }

    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let params = self.params()?;
        let client = global.client().await?;
        let mut call = match &self.file {
            Some(file) => self.document(file, &params).await?,
            None => Call::post("/v1/jobs").json(self.body(params)?),
        };
        if let Some(key) = &self.idempotency_key {
            call = call.header("idempotency-key", key.clone());
        }
        let submitted = client.json(call).await.map_err(|trouble| self.perhaps_a_key(trouble))?;
        if !self.wait {
            output::one(global.output, &submitted, job::ROWS, "id")?;
            return Ok(ExitCode::SUCCESS);
        }
        let id = submitted["id"].as_str().unwrap_or_default();
        finish(&*client, global, id, self.timeout).await
    }

    fn params(&self) -> Result<Value, Trouble> {
        let bad = |sentence: &str, help: &str| Trouble::usage("params-invalid", sentence, help);
        if let Some(text) = &self.params {
            return serde_json::from_str(text)
                .map_err(|_| bad("--params is not JSON.", "quote it for the shell: --params '{\"a\": 1}'"));
        }
        let mut params = Map::new();
        for pair in &self.param {
            let (name, text) =
                pair.split_once('=').ok_or_else(|| bad("--param has no `=`.", "write --param NAME=VALUE"))?;
            let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
            params.insert(name.to_owned(), value);
        }
        Ok(Value::Object(params))
    }

    fn body(&self, params: Value) -> Result<Value, Trouble> {
        let mut body = json!({ "kind": self.kind, "params": params });
        let given = [
            ("priority", self.priority.map(Value::from)),
            ("run_at", self.run_at.clone().map(Value::from)),
            ("owner", self.owner.clone().map(Value::from)),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        if self.unique_key.is_some() || self.unique_by.is_some() || self.unique_for.is_some() {
            body["unique"] =
                json!({ "key": self.unique_key, "by": self.unique_by, "period": self.unique_for });
        }
        if let Some(on) = &self.on {
            let help = "quote it for the shell: --on '{\"succeeded\": {\"kind\": \"mail.send\"}}'";
            body["on"] = serde_json::from_str(on)
                .map_err(|_| Trouble::usage("on-invalid", "--on is not JSON.", help))?;
        }
        Ok(body)
    }

    async fn document(&self, path: &Path, params: &Value) -> Result<Call, Trouble> {
        let (file, bytes) = open(path).await?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let params = params.to_string();
        let query = query(&[
            ("kind", Some(&self.kind)),
            ("name", Some(&name)),
            ("params", Some(&params)),
            ("owner", self.owner.as_deref()),
        ]);
        Ok(Call::post(format!("/v1/documents{query}")).file(file, bytes))
    }
}

/// A file that the command was named, with its size.
pub(crate) async fn open(path: &Path) -> Result<(tokio::fs::File, u64), Trouble> {
    let cannot = |error: std::io::Error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            std::io::ErrorKind::PermissionDenied => Exit::NotPermitted,
            _ => Exit::Unavailable,
        };
        let sentence = format!("The file {} cannot be read: {}.", path.display(), error.kind());
        Trouble::new(exit, "file-unreadable", sentence, "check its name and its permissions")
    };
    let file = tokio::fs::File::open(path).await.map_err(cannot)?;
    let meta = file.metadata().await.map_err(cannot)?;
    if !meta.is_file() {
        return Err(Trouble::usage(
            "file-unreadable",
            format!("{} is no file.", path.display()),
            "name a file",
        ));
    }
    Ok((file, meta.len()))
}

/// Waits for the job's end, shows it, and answers with its exit code.
pub(crate) async fn finish(
    client: &dyn Client,
    global: &Global,
    id: &str,
    timeout: Duration,
) -> Result<ExitCode, Trouble> {
    let until = watch(client, id, timeout, |_| Ok(())).await?;
    let ended = client.json(Call::get(format!("/v1/jobs/{id}"))).await?;
    output::one(global.output, &ended, job::ROWS, "id")?;
    match until {
        Until::Ended => Ok(job::exit_code(&ended)),
        Until::TimedOut => Err(Trouble::new(
            Exit::TimedOut,
            "wait-timed-out",
            "The job has not ended in time; it goes on.",
            format!("follow it with `mapae job watch {id}`"),
        )),
    }
}
