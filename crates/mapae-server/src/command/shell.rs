//! `mapae completions` and `mapae man`: made from the command line as it stands.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::print;
use crate::trouble::Trouble;

#[derive(Args)]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode, Trouble> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "mapae", &mut text);
        print(&String::from_utf8_lossy(&text))?;
        Ok(ExitCode::SUCCESS)
    }
}

pub(crate) fn man() -> Result<ExitCode, Trouble> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut text)?;
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
