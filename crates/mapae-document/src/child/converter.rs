//! Starting a program that is not ours, under limits of its own (see `launch`).

use std::io;
use std::path::Path;

use tokio::process::Command;

use super::spawn;
pub(crate) use super::spawn::Group;

/// A command that makes `program` of a child of `reader`, which limits itself first.
pub(crate) fn command(reader: &Path, program: &Path) -> Command {
    let mut command = spawn::child(reader);
    command.arg(program);
    command
}

/// Starts it; it is killed when the group is dropped.
pub(crate) async fn start(command: Command) -> io::Result<Group> {
    spawn::start(command).await
}
