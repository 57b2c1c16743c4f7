//! What all commands share.

use std::path::PathBuf;

use clap::Args;

use crate::client::{Client, Local, Remote};
use crate::config::{Config, Flag, Secret};
use crate::output::Form;
use crate::trouble::Trouble;

#[derive(Args)]
pub struct Global {
    /// The configuration file [default: ./mapae.toml where there is one]
    #[arg(long, global = true, value_name = "FILE", env = "MAPAE_CONFIG")]
    pub config: Option<PathBuf>,
    /// The form of what is printed
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        env = "MAPAE_OUTPUT",
        default_value = "table"
    )]
    pub output: Form,
    /// The server to talk to [default: the local database of the configuration]
    #[arg(long, global = true, value_name = "URL", env = "MAPAE_URL")]
    url: Option<String>,
    /// The key for that server (before `submit`, where it is --api-key)
    #[arg(long, global = true, value_name = "KEY", env = "MAPAE_KEY", hide_env_values = true)]
    pub key: Option<String>,
}

impl Global {
    /// The configuration under these flags.
    pub fn configuration(&self, flags: &[Flag]) -> Result<Config, Trouble> {
        Ok(Config::load(self.config.as_deref(), flags)?)
    }

    /// The server that was named, or the local database.
    pub async fn client(&self) -> Result<Box<dyn Client>, Trouble> {
        if let Some(url) = &self.url {
            return Ok(Box::new(Remote::new(url, self.key.clone().map(Secret::new))?));
        }
        Ok(Box::new(Local::open(self.configuration(&[])?).await?))
    }

    /// Whether commands talk to a server.
    pub fn is_remote(&self) -> bool {
        self.url.is_some()
    }
}
