//! `mapae config`: what is in force, and where it came from.

use std::process::ExitCode;

use clap::Subcommand;

use crate::config::{Config, Settings};
use crate::global::Global;
use crate::output::{print, say};
use crate::trouble::{Exit, Trouble};

#[derive(Subcommand)]
pub(crate) enum Configuration {
    /// Every mistake at once
    Check,
    /// Every value in force, as TOML, without secrets
    Print,
    /// One key: its value, where that came from, and what is possible
    Explain { key: String },
}

impl Configuration {
    pub(crate) fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let settings = Settings::of_process(global.config.as_deref(), &[])?;
        match self {
            Self::Check => {
                Config::resolve(&settings)?;
                say("The configuration is right.");
            }
            Self::Print => print(&settings.print())?,
            Self::Explain { key } => match settings.explain(&key) {
                Ok(text) => print(&text)?,
                Err(nearest) => {
                    let help = match nearest {
                        Some(nearest) => format!("did you mean {nearest}?"),
                        None => "`mapae config print` shows the keys in force".to_owned(),
                    };
                    let sentence = "There is no such key in the configuration.";
                    return Err(Trouble::new(Exit::NotFound, "config-key-unknown", sentence, help));
                }
            },
        }
        Ok(ExitCode::SUCCESS)
    }
}
