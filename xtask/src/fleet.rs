//! The servers that a run of the tests needs, by name.

use std::process::{Command, ExitCode};

use crate::server::Server;
use crate::step::{Failure, Outcome, exit_code, status};
use crate::{kafka, postgres, rabbitmq, streams};

type Start = fn() -> Outcome<(Server, String)>;

/// Each server: its name, the variable that tells the tests where it is, and how it is started.
const SERVERS: &[(&str, &str, Start)] = &[
    ("postgres", "MAPAE_TEST_POSTGRES", postgres::start),
    ("valkey", "MAPAE_TEST_VALKEY", streams::valkey),
    ("redis", "MAPAE_TEST_REDIS", streams::redis),
    ("rabbitmq", "MAPAE_TEST_RABBITMQ", rabbitmq::start),
    ("kafka", "MAPAE_TEST_KAFKA", kafka::start),
];

/// Running servers, stopped with the value.
pub(crate) struct Fleet {
    _servers: Vec<Server>,
    variables: Vec<(&'static str, String)>,
}

impl Fleet {
    /// All there are.
    pub(crate) fn whole() -> Outcome<Self> {
        Self::of(|_| true)
    }

    /// Those named, with commas between them, or `all`.
    pub(crate) fn named(names: &str) -> Outcome<Self> {
        if names == "all" {
            return Self::whole();
        }
        let known = || SERVERS.iter().map(|(name, ..)| *name);
        if let Some(unknown) = names.split(',').find(|name| !known().any(|known| known == *name)) {
            return Err(Failure::new(
                format!("no server is called {unknown}"),
                format!("there are {}, and all", known().collect::<Vec<_>>().join(", ")),
            ));
        }
        Self::of(|name| names.split(',').any(|named| named == name))
    }

    fn of(wanted: impl Fn(&str) -> bool) -> Outcome<Self> {
        let mut fleet = Self { _servers: Vec::new(), variables: Vec::new() };
        for (_, variable, start) in SERVERS.iter().filter(|(name, ..)| wanted(name)) {
            let (server, address) = start()?;
            fleet._servers.push(server);
            fleet.variables.push((variable, address));
        }
        Ok(fleet)
    }

    /// The command finds these servers and no others.
    pub(crate) fn show<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        hide(command).envs(self.variables.iter().map(|(variable, address)| (variable, address)))
    }
}

/// The command finds no server, whatever the environment says.
pub(crate) fn hide(command: &mut Command) -> &mut Command {
    for (_, variable, _) in SERVERS {
        command.env_remove(variable);
    }
    command
}

/// Runs a command beside servers of its own, and passes its exit code on.
pub(crate) fn run_with(names: &str, program: &str, args: &[&str]) -> Outcome<ExitCode> {
    let fleet = Fleet::named(names)?;
    for (variable, address) in &fleet.variables {
        eprintln!("{variable}={address}");
    }
    status(fleet.show(Command::new(program).args(args))).map(exit_code)
}
