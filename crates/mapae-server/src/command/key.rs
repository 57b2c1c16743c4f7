//! `mapae key`: who is let in. Keys are made where the database is, never over HTTP.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use mapae::job::name::Owner;
use mapae::store::contract::KeyRecord;
use serde_json::{Value, json};

use super::dev::no_randomness;
use super::submit::duration;
use crate::api::auth::SCOPES;
use crate::config::nearest;
use crate::credential;
use crate::global::Global;
use crate::output::{self, Column, Form, print, say};
use crate::runtime::{Migrate, Runtime};
use crate::trouble::{Exit, Trouble};

const COLUMNS: &[Column] = &[
    ("ID", "id"),
    ("OWNER", "owner"),
    ("SCOPES", "scopes"),
    ("CREATED", "created_at"),
    ("EXPIRES", "expires_at"),
    ("REVOKED", "revoked_at"),
];

#[derive(Subcommand)]
pub(crate) enum Key {
    /// Make a key; it is shown once
    Create(Create),
    /// All keys, without their secrets
    List,
    /// Let a key in no longer; acts within 5 s
    Revoke {
        /// The part between the first two `_` of the key
        id: String,
    },
}

#[derive(Args)]
pub(crate) struct Create {
    /// Whose jobs it is for; `--all-owners` is for those of all
    #[arg(long, required_unless_present = "all_owners", conflicts_with = "all_owners")]
    owner: Option<String>,
    /// For the jobs of all owners
    #[arg(long)]
    all_owners: bool,
    /// Comma-separated: jobs:write, jobs:read, jobs:work, files:read, dead:write, admin
    #[arg(long, value_delimiter = ',', required = true)]
    scopes: Vec<String>,
    /// How long it lives, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires: Option<Duration>,
}

impl Key {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        if global.is_remote() {
            let help = "run it on the machine that has the configuration of the database, without --url";
            return Err(Trouble::usage("key-local", "Keys are not made over HTTP.", help));
        }
        let create = match &self {
            Self::Create(create) => Some(create.checked()?),
            _ => None,
        };
        let runtime = Runtime::open(&global.configuration(&[])?, Migrate::IfEmpty).await?;
        let done = match (self, create) {
            (Self::Create(command), owner) => command.run(global, &runtime, owner.flatten()).await,
            (Self::List, _) => {
                let keys = runtime.store.keys().await?;
                let items: Vec<Value> = keys.iter().map(shown).collect();
                output::list(global.output, &items, COLUMNS, "id")
            }
            (Self::Revoke { id }, _) => match runtime.store.revoke_key(&id).await? {
                true => Ok(()),
                false => Err(Trouble::new(
                    Exit::NotFound,
                    "key-not-found",
                    "There is no such key.",
                    "see `mapae key list`",
                )),
            },
        };
        runtime.store.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }
}

impl Create {
    /// The owner, once everything given is right.
    fn checked(&self) -> Result<Option<Owner>, Trouble> {
        for scope in &self.scopes {
            if !SCOPES.contains(&scope.as_str()) {
                let help = match nearest(scope, SCOPES.iter().copied()) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => format!("scopes are {}", SCOPES.join(", ")),
                };
                return Err(Trouble::usage("scope-unknown", "One of --scopes is no scope.", help));
            }
        }
        let owner = self.owner.as_ref().map(Owner::new).transpose();
        owner
            .map_err(|bad| Trouble::usage("owner-invalid", format!("--owner: {bad}."), "choose another name"))
    }

    async fn run(self, global: &Global, runtime: &Runtime, owner: Option<Owner>) -> Result<(), Trouble> {
        let made = credential::make(owner, self.scopes, self.expires).ok_or_else(no_randomness)?;
        let record = runtime.store.add_key(made.kept).await?;
        if global.output == Form::Table {
            print(&format!("{}\n", made.key))?;
            say("This is the only time it is shown.");
            return Ok(());
        }
        let mut item = shown(&record);
        item["key"] = json!(made.key);
        output::one(global.output, &item, COLUMNS, "id")
    }
}

fn shown(key: &KeyRecord) -> Value {
    json!({
        "id": key.id,
        "owner": key.owner,
        "scopes": key.scopes,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    })
}
