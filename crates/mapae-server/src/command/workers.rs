//! `mapae workers`: who is working.

use std::process::ExitCode;

use crate::client::Call;
use crate::global::Global;
use crate::output::{self, Column};
use crate::trouble::Trouble;

const COLUMNS: &[Column] = &[
    ("NAME", "name"),
    ("PHASE", "phase"),
    ("BUSY", "busy"),
    ("SLOTS", "slots"),
    ("KINDS", "kinds"),
    ("STARTED", "started_at"),
    ("SEEN", "seen_at"),
];

pub(crate) async fn run(global: &Global) -> Result<ExitCode, Trouble> {
    let client = global.client().await?;
    let workers = client.json(Call::get("/v1/workers")).await?;
    let items = workers["items"].as_array().cloned().unwrap_or_default();
    output::list(global.output, &items, COLUMNS, "name")?;
    Ok(ExitCode::SUCCESS)
}
