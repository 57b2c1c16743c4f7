//! `mapae serve`: API and keeper.

use std::process::ExitCode;

use clap::Args;
use tracing::info;

use crate::global::Global;
use crate::process::{self, Roles};
use crate::runtime::Migrate;
use crate::trouble::Trouble;
use crate::{log, signals};

#[derive(Args)]
pub(crate) struct Serve {
    /// Where to listen [default: http.listen of the configuration]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

impl Serve {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let flags = self.listen.map(|listen| ("http.listen", listen, "--listen"));
        let config = global.configuration(flags.as_slice())?;
        log::start(&config.log);
        let stop = signals::stop_token()?;
        let listen = config.http.listen;
        let roles = Roles { api: true, worker: false, migrate: Migrate::IfEmpty };
        process::run(config, roles, Some(listen), stop, async |_, _| {
            info!("ready");
            Ok(())
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
