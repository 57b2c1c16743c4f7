//! `mapae resources`: what is limited, and how much of it is in use.

use std::process::ExitCode;

use crate::client::Call;
use crate::global::Global;
use crate::output::{self, Column};
use crate::trouble::Trouble;

const COLUMNS: &[Column] = &[
    ("NAME", "name"),
    ("SCOPE", "scope"),
    ("IN USE", "in_use"),
    ("LIMIT", "limit"),
    ("RATE", "rate"),
    ("EACH OWNER", "owner_limit"),
    ("OWNER RATE", "owner_rate"),
    ("SHUT UNTIL", "shut_until"),
    ("WAITING", "waiting"),
];

/// Resources, and after them the kinds that have limits of their own.
pub(crate) async fn run(global: &Global) -> Result<ExitCode, Trouble> {
    let client = global.client().await?;
    let resources = client.json(Call::get("/v1/resources")).await?;
    let mut items = resources["items"].as_array().cloned().unwrap_or_default();
    for kind in resources["kinds"].as_array().into_iter().flatten() {
        let mut item = kind.clone();
        item["name"] = kind["kind"].clone();
        item["scope"] = "kind".into();
        items.push(item);
    }
    output::list(global.output, &items, COLUMNS, "name")?;
    Ok(ExitCode::SUCCESS)
}
