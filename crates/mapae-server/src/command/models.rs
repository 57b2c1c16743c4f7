//! `mapae models`: the packs of models, where they come from, and whether they are as they were made.

use std::process::ExitCode;

use clap::Subcommand;
use mapae_ai::models::{FILES, Models};
use mapae_ai::pack::Pack;
use serde_json::{Value, json};

use crate::ai::folders;
use crate::global::Global;
use crate::output::{self, Column};
use crate::trouble::{Exit, Trouble};

#[derive(Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the packs of models
    List,
    /// Read every byte of the packs and compare checksums
    Verify,
}

const COLUMNS: &[Column] = &[
    ("PACK", "file"),
    ("STATUS", "status"),
    ("MODEL", "id"),
    ("FOR", "purpose"),
    ("LICENCE", "licence"),
    ("SOURCE", "source"),
    ("MB", "megabytes"),
];

impl ModelsCommand {
    pub(crate) fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let verify = matches!(self, Self::Verify);
        let folders = folders();
        let folder = Models::find(&folders).or(folders.last()).cloned().unwrap_or_default();
        let items: Vec<Value> = FILES.iter().map(|file| row(&folder.join(file), file, verify)).collect();
        output::list(global.output, &items, COLUMNS, "file")?;
        let broken = items.iter().any(|item| item["status"] != "there" && item["status"] != "right");
        let missing = items.iter().any(|item| item["status"] == "missing");
        if missing {
            let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            output::say(&format!(
                "Looked in {}. `cargo xtask models` makes the packs.",
                places.join(" and ")
            ));
        }
        let failed = verify && broken || items.iter().any(|item| item["status"] == "broken");
        Ok(if failed { ExitCode::from(Exit::Failed as u8) } else { ExitCode::SUCCESS })
    }
}

fn row(path: &std::path::Path, file: &str, verify: bool) -> Value {
    let pack = match Pack::open(path) {
        Ok(pack) => pack,
        Err(_) if !path.exists() => return json!({ "file": file, "status": "missing" }),
        Err(error) => return json!({ "file": file, "status": "broken", "code": error.code() }),
    };
    let status = match verify.then(|| pack.verify()) {
        None => "there",
        Some(Ok(())) => "right",
        Some(Err(_)) => "broken",
    };
    let header = pack.header();
    json!({
        "file": file,
        "status": status,
        "id": header.id,
        "purpose": header.purpose,
        "licence": header.licence,
        "source": header.source,
        "source_sha256": header.source_sha256,
        "sha256": header.body_sha256,
        "megabytes": pack.bytes() / 1_000_000,
        "path": path,
    })
}
