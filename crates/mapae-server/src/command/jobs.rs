//! `mapae jobs`: lists.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::query;
use crate::client::{Call, Client};
use crate::global::Global;
use crate::output::{self, Column};
use crate::trouble::Trouble;

const COLUMNS: &[Column] = &[
    ("ID", "id"),
    ("KIND", "kind"),
    ("OWNER", "owner"),
    ("PHASE", "phase"),
    ("ATTEMPT", "attempt"),
    ("CREATED", "created_at"),
    ("FILE", "source.name"),
    ("FAILURE", "failure.code"),
];

#[derive(Args)]
pub(crate) struct Jobs {
    /// pending, running, succeeded, failed, cancelled or stale
    #[arg(long)]
    state: Option<String>,
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

impl Jobs {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let client = global.client().await?;
        let filter = [
            ("state", self.state.as_deref()),
            ("kind", self.kind.as_deref()),
            ("owner", self.owner.as_deref()),
            ("q", self.text.as_deref()),
        ];
        let items = pages(&*client, "/v1/jobs", &filter, self.limit).await?;
        output::list(global.output, &items, COLUMNS, "id")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Up to `limit` items of a list, page after page.
pub(crate) async fn pages(
    client: &dyn Client,
    path: &str,
    filter: &[(&str, Option<&str>)],
    limit: usize,
) -> Result<Vec<Value>, Trouble> {
    let mut items: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    while items.len() < limit {
        let size = (limit - items.len()).min(200).to_string();
        let mut pairs = filter.to_vec();
        pairs.extend([("limit", Some(size.as_str())), ("cursor", cursor.as_deref())]);
        let mut page = client.json(Call::get(format!("{path}{}", query(&pairs)))).await?;
        if let Some(found) = page["items"].as_array_mut() {
            items.append(found);
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(items)
}
