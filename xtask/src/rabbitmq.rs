//! A private RabbitMQ, and the port mapper without which no Erlang node starts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::install::debian_package;
use crate::server::{Folder, Server, free_port, private};
use crate::step::{Failure, Outcome, step, succeeds};

/// Not the one in `PATH`, which goes through `su` and changes the folder.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// `consumer_timeout` is half an hour by default: here a test can wait for it, and none meets it by chance.
const CONFIGURATION: &str = "\
consumer_timeout = 20000
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
log.console = true
log.console.level = info
log.file = false
";

/// What `rabbitmq.conf` cannot say: how often the server looks for that timeout, in milliseconds.
const ADVANCED: &str = "[{rabbit, [{channel_tick_interval, 500}]}].\n";

/// Installs it where it is missing, starts it, and returns it with its address.
pub(crate) fn start() -> Outcome<(Server, String)> {
    if !Path::new(PROGRAM).exists() {
        step("RabbitMQ: install", || debian_package(&["rabbitmq-server"], "true"))?;
    }
    let (port, distribution, mapper) = (free_port()?, free_port()?, free_port()?.to_string());
    let names = port_mapper(&mapper)?;
    let folder = Folder::new("rabbitmq", None)?;
    let write = |name: &str, content: &str| {
        std::fs::write(folder.path.join(name), content)
            .map_err(|error| Failure::new(format!("cannot write {name}: {error}"), "is the disk full?"))
    };
    write("rabbitmq.conf", &format!("listeners.tcp.1 = 127.0.0.1:{port}\n{CONFIGURATION}"))?;
    write("advanced.config", ADVANCED)?;
    write("enabled_plugins", "[].\n")?;

    let mut command = private(Path::new("env"), None);
    command.arg("-i");
    let mut set = |name: &str, value: &str| {
        command.arg(format!("{name}={value}"));
    };
    set("PATH", &std::env::var("PATH").unwrap_or_default());
    set("LANG", "C.UTF-8");
    set("HOME", &folder.path.display().to_string());
    set("RABBITMQ_NODENAME", "mapae@localhost");
    // Derived from a variable and not from the configured port: without it every node takes the same.
    set("RABBITMQ_DIST_PORT", &distribution.to_string());
    set("ERL_EPMD_PORT", &mapper);
    set("ERL_EPMD_ADDRESS", "127.0.0.1");
    set("ERL_CRASH_DUMP_SECONDS", "0");
    set("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}");
    // Without it a shell stays in front of the server, and a signal meets the shell alone.
    set("RUNNING_UNDER_SYSTEMD", "true");
    // Nothing of a RabbitMQ that the machine may have for itself.
    set("RABBITMQ_CONF_ENV_FILE", "/dev/null");
    for (name, place) in [
        ("RABBITMQ_MNESIA_BASE", "mnesia"),
        ("RABBITMQ_LOG_BASE", "log-files"),
        ("RABBITMQ_GENERATED_CONFIG_DIR", "generated"),
        ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
        ("RABBITMQ_ADVANCED_CONFIG_FILE", "advanced.config"),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
        ("RABBITMQ_PID_FILE", "pid"),
    ] {
        set(name, &folder.path.join(place).display().to_string());
    }
    command.arg(PROGRAM);
    let server =
        step("RabbitMQ: start", || Server::start(command, folder, "TERM", || speaks(port).unwrap_or(false)))?;
    Ok((server.beside(names), format!("amqp://guest:guest@127.0.0.1:{port}/%2f")))
}

/// The server would start one for the whole machine, which outlives it.
fn port_mapper(port: &str) -> Outcome<Server> {
    let mut command = private(Path::new("epmd"), None);
    command.args(["-port", port, "-address", "127.0.0.1"]);
    let mut ask = Command::new("epmd");
    ask.args(["-port", port, "-names"]);
    let ask = std::cell::RefCell::new(ask);
    Server::start(command, Folder::new("epmd", None)?, "TERM", || succeeds(&mut ask.borrow_mut()))
}

/// Whether it answers the greeting of AMQP 0-9-1 with a method, as a server does that has come up.
fn speaks(port: u16) -> std::io::Result<bool> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    connection.write_all(b"AMQP\x00\x00\x09\x01")?;
    let mut frame = [0; 1];
    connection.read_exact(&mut frame)?;
    Ok(frame == [1])
}
