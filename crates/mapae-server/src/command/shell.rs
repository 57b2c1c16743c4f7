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

#[derive(Args)]
pub(crate) struct Man {
    /// The command that the page is of, such as `submit` or `dead redrive` [default: the whole program]
    command: Vec<String>,
}

impl Man {
    pub(crate) fn run(self, mut cli: Command) -> Result<ExitCode, Trouble> {
        // Commands learn of the options that all have.
        cli.build();
        let mut page = cli;
        for word in &self.command {
            let Some(of) = page.find_subcommand(word) else {
                let sentence = format!("There is no command `{}`.", self.command.join(" "));
                return Err(Trouble::usage("command-unknown", sentence, "`mapae --help` lists them"));
            };
            page = of.clone();
        }
        let mut text = Vec::new();
        clap_mangen::Man::new(page).render(&mut text)?;
        print(&String::from_utf8_lossy(&text))?;
        Ok(ExitCode::SUCCESS)
    }
}
