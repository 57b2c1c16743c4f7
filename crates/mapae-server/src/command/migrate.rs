//! `mapae migrate`: the database's schema.

use std::process::ExitCode;

use clap::Args;
use mapae::store;
use serde_json::json;

use crate::global::Global;
use crate::output::{self, say};
use crate::runtime::open_store;
use crate::trouble::Trouble;

#[derive(Args)]
pub(crate) struct Migrate {
    /// Say what is there and what is known, and change nothing
    #[arg(long)]
    status: bool,
    /// Print the statements of every migration, for a person to run, and change nothing
    #[arg(long, conflicts_with = "status")]
    print: bool,
}

impl Migrate {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let config = global.configuration(&[])?;
        if self.print {
            for (number, statements) in store::migrations(config.database.reveal()) {
                output::print(&format!("-- migration {number}\n{statements}\n"))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let store = open_store(&config).await?;
        let done = async {
            if !self.status {
                store.migrate().await?;
            }
            store.schema().await
        };
        let schema = done.await;
        store.close().await;
        let schema = schema?;
        let item = json!({ "store": store.name(), "found": schema.found, "known": schema.known });
        output::one(
            global.output,
            &item,
            &[("store", "store"), ("found", "found"), ("known", "known")],
            "found",
        )?;
        if self.status && schema.found < schema.known {
            say("Run `mapae migrate`.");
        }
        Ok(ExitCode::SUCCESS)
    }
}
