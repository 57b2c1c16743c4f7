//! `mapae adopt`: rows of a table of your own that wait become jobs (PostgreSQL).

use std::process::ExitCode;

use clap::Args;
use mapae::job::name::{Kind, Owner};
use mapae::store::{AdoptError, Adoption, Postgres};
use serde_json::json;

use crate::global::Global;
use crate::output::{self, say};
use crate::trouble::{Exit, Trouble};

#[derive(Args)]
pub(crate) struct Adopt {
    /// The table, as in a statement
    table: String,
    /// Which rows wait, over the table's columns, such as "status = 'PENDING'"
    #[arg(long, value_name = "SQL")]
    pending: String,
    /// The kind of their jobs, whose params name the row by its primary key
    #[arg(long)]
    kind: Kind,
    /// Whose jobs they are
    #[arg(long, default_value = "default")]
    owner: Owner,
    /// Run it, and make a job for each row that waits and has none; safe to run twice
    #[arg(long, conflicts_with = "undo")]
    apply: bool,
    /// Remove it; jobs that were made stay
    #[arg(long)]
    undo: bool,
}

impl Adopt {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let config = global.configuration(&[])?;
        if !["postgres", "postgresql"].contains(&config.database.scheme()) {
            let help = "set database.url to the PostgreSQL database that the table is in";
            let sentence = "Tables are adopted only on PostgreSQL.".to_owned();
            return Err(Trouble::new(Exit::Usage, "not-postgresql", sentence, help));
        }
        let store = Postgres::open(config.database.reveal(), config.events.any()).await?;
        let adoption = Adoption {
            table: self.table.clone(),
            pending: self.pending.clone(),
            kind: self.kind,
            owner: self.owner,
        };
        let plan = store.adoption(&adoption).await.map_err(trouble)?;
        if self.undo {
            store.disown(&plan).await.map_err(trouble)?;
            say("Its rows become jobs no more.");
        } else if self.apply {
            let made = store.adopt(&plan).await.map_err(trouble)?;
            let told = json!({ "table": self.table, "jobs": made });
            output::one(global.output, &told, &[("TABLE", "table"), ("JOBS MADE", "jobs")], "jobs")?;
        } else {
            output::print(&format!(
                "{}\n-- Again and again, with the key `last` of the answer before as $1, while it finds $2 rows.\n{}",
                plan.apply, plan.backfill
            ))?;
            say("Nothing was changed. `--apply` runs this.");
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn trouble(error: AdoptError) -> Trouble {
    let (exit, code, help) = match error {
        AdoptError::Store(error) => return error.into(),
        AdoptError::NoTable => {
            (Exit::NotFound, "table-not-found", "name it with its schema, as in app.contexts")
        }
        AdoptError::NoKey => (Exit::Usage, "table-without-key", "give the table a primary key"),
        AdoptError::NoCondition => {
            (Exit::Usage, "condition-invalid", "give one condition, without `;` and `$`")
        }
        AdoptError::Busy => (
            Exit::Unavailable,
            "table-locked",
            "run it again when no long transaction writes to the table; nothing was changed",
        ),
        AdoptError::Refused(_) => (
            Exit::Usage,
            "adoption-refused",
            "check the condition, and run `mapae migrate` where that was not done",
        ),
    };
    let sentence = error.to_string();
    let (first, rest) = sentence.split_at(1);
    Trouble::new(exit, code, format!("{}{rest}.", first.to_uppercase()), help)
}
