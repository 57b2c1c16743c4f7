//! `mapae dev`: everything in one process, on a folder of its own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::config::{Flag, Secret};
use crate::global::Global;
use crate::output::{print, say};
use crate::process::{self, Roles};
use crate::runtime::Migrate;
use crate::trouble::{Exit, Trouble};
use crate::{credential, log, signals};

/// How long a key lives that `dev` made.
const KEY_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Args)]
pub(crate) struct Dev {
    /// The folder for database and files [default: ./mapae-data, or as configured]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:7070, or as configured]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

impl Dev {
    /// The global `--key` is the key to let in; without one a new key is made and shown.
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let mut flags: Vec<Flag> = Vec::new();
        if let Some(data) = &self.data {
            let Some(folder) = data.to_str() else {
                let help = "choose a folder whose name is UTF-8";
                return Err(Trouble::usage("data-folder", "The name of the folder is not UTF-8.", help));
            };
            flags.push(("database.url", format!("sqlite:{folder}/mapae.db"), "--data"));
            flags.push(("files.url", format!("file:{folder}/files"), "--data"));
        }
        flags.extend(self.listen.map(|listen| ("http.listen", listen, "--listen")));
        let config = global.configuration(&flags)?;
        log::start(&config.log);
        let stop = signals::stop_token()?;
        let listen = config.http.listen;
        let given = global.key.clone().map(Secret::new);
        let roles = Roles { api: true, worker: true, migrate: Migrate::Always };
        process::run(config, roles, Some(listen), stop, async |runtime, address| {
            let key = match given {
                Some(key) => {
                    credential::admit(&*runtime.store, key.reveal()).await?;
                    key.reveal().to_owned()
                }
                None => {
                    let made = credential::make(None, vec!["admin".to_owned()], Some(KEY_LIFETIME));
                    let made = made.ok_or_else(no_randomness)?;
                    runtime.store.add_key(made.kept).await?;
                    made.key
                }
            };
            let address = address.map(|address| address.to_string()).unwrap_or_default();
            print(&format!(
                "API  http://{address}\nkey  {key}\n\ncurl -H 'Authorization: Bearer {key}' -F file=@report.pdf http://{address}/v1/documents\n"
            ))?;
            say("Stop with Ctrl-C.");
            Ok(())
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}

pub(crate) fn no_randomness() -> Trouble {
    let help = "check that the system's random number generator works";
    Trouble::new(Exit::Unavailable, "randomness", "The system gave no random numbers.", help)
}
