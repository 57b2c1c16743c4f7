//! What later steps will need, built beside one that mostly waits.
//!
//! Nothing is decided here: the step itself asks for the same again, finds it done, or does it and says what is wrong.

use std::process::{Child, Command, Stdio};

use crate::install::{has_cargo_deny, install_cargo_deny};
use crate::step::cargo;

/// Builds under way, with the lowest priority. Dropping it ends them.
pub(crate) struct Ahead {
    children: Vec<Child>,
}

impl Ahead {
    /// The program for release, and cargo-deny where it is missing.
    pub(crate) fn start() -> Self {
        let mut commands = vec![cargo(&["build", "--release", "--locked", "-p", "mapae-server"])];
        if !has_cargo_deny() {
            commands.push(install_cargo_deny());
        }
        Self { children: commands.iter().filter_map(start).collect() }
    }

    /// Until they have ended, however they ended.
    pub(crate) fn finish(mut self) {
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(command: &Command) -> Option<Child> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    nice.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    nice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}
