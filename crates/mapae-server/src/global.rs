//! What all commands share.

use std::path::PathBuf;

use clap::Args;

use crate::client::{Client, Local, Remote};
use crate::config::{Config, Flag, Secret};
use crate::output::{Form, say};
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
        let config = self.configuration(&[])?;
        let missing = missing_file(config.database.reveal()).map(str::to_owned);
        let local = Local::open(config).await?;
        if let Some(file) = missing {
            say(&format!(
                "No database was at {file}: a new one was made. `--url` or MAPAE_URL names a server, `--config` a file."
            ));
        }
        Ok(Box::new(local))
    }

    /// Says so where a server was named to a command that talks to none.
    pub fn is_of_no_use_to(&self, command: &str) {
        if self.url.is_some() {
            say(&format!(
                "`{command}` talks to no server: it looks at the configuration here, and not at --url."
            ));
        }
    }

    /// Whether commands talk to a server.
    pub fn is_remote(&self) -> bool {
        self.url.is_some()
    }
}

/// The file of a database that is not there yet.
fn missing_file(url: &str) -> Option<&str> {
    let file = url.strip_prefix("sqlite:")?.split('?').next()?;
    let file = file.strip_prefix("//").unwrap_or(file);
    (!file.contains(":memory:") && !std::path::Path::new(file).exists()).then_some(file)
}
