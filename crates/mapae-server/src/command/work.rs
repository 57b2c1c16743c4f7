//! `mapae work`: worker and keeper.

use std::process::ExitCode;

use clap::Args;
use tracing::info;

use crate::global::Global;
use crate::process::{self, Roles};
use crate::runtime::Migrate;
use crate::trouble::Trouble;
use crate::{log, signals};

#[derive(Args)]
pub(crate) struct Work {
    /// The worker's name [default: worker.name of the configuration]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many jobs run at the same time [default: worker.slots of the configuration]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Which kinds, comma-separated [default: worker.kinds of the configuration]
    #[arg(long, value_name = "KINDS")]
    kinds: Option<String>,
    /// Where to answer for health and metrics [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

impl Work {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let listens = self.listen.is_some();
        let mut flags: Vec<_> = [
            self.name.map(|name| ("worker.name", name, "--name")),
            self.slots.map(|slots| ("worker.slots", slots.to_string(), "--slots")),
            self.kinds.map(|kinds| ("worker.kinds", kinds, "--kinds")),
        ]
        .into_iter()
        .flatten()
        .collect();
        // The flag is about this process; services tell their ends to the API's.
        let api = global.configuration(&flags)?.http.listen;
        flags.extend(self.listen.map(|listen| ("http.listen", listen, "--listen")));
        let mut config = global.configuration(&flags)?;
        config.http.reached_at(api);
        log::start(&config.log);
        let stop = signals::stop_token()?;
        let listen = listens.then_some(config.http.listen);
        let roles = Roles { api: false, worker: true, migrate: Migrate::IfEmpty };
        process::run(config, roles, listen, stop, async |_, _| {
            info!("ready");
            Ok(())
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
