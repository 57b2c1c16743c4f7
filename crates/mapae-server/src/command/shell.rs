//! `mapae completions` and `mapae man`: made from the command line as it stands.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::print;
use crate::trouble::Trouble;

#[derive(Args)]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut cli: Command) -> Result<ExitCode, Trouble> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut cli, "mapae", &mut text);
        print(&String::from_utf8_lossy(&text))?;
        Ok(ExitCode::SUCCESS)
    }
}

pub(crate) fn man(cli: Command) -> Result<ExitCode, Trouble> {
    let mut text = Vec::new();
    clap_mangen::Man::new(cli).render(&mut text)?;
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
