//! A private Kafka: one node that is controller and broker at once.
//!
//! Its classes come from Maven Central, once. What the virtual machine makes of them is kept beside them, so that a
//! start takes half as long.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::install::{TOOLS, debian_package};
use crate::server::{Folder, Server, free_port, private};
use crate::step::{Failure, Outcome, persist, run, step, succeeds};

const VERSION: &str = "4.4.0";

/// A line has a listener of its own: a client goes where the node says that it is, past whatever stands in
/// between, unless the node says so of that.
const LINES: usize = 8;

/// Any sixteen bytes.
const CLUSTER: &str = "bWFwYWUncyBvd24gbm9kZQ";

/// For a short life: no time is spent on optimising what runs for minutes.
const MACHINE: [&str; 5] = [
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// One node in place of three; groups that settle at once; a killed node that comes back within seconds; small
/// files, since tests make many topics.
const CONFIGURATION: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
num.network.threads=2
num.io.threads=2
background.threads=2
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=200
group.initial.rebalance.delay.ms=0
log.index.size.max.bytes=65536
log.segment.delete.delay.ms=1000
";

/// Installs it where it is missing, starts it, and returns it with its address. Behind a `#` stand the lines: the
/// port at which the node listens, and the one at which it says that it does.
pub(crate) fn start() -> Outcome<(Server, String)> {
    let jars = jars()?;
    let archive = archive(&jars)?;
    let shared = format!("-XX:SharedArchiveFile={}", archive.display());
    step("Kafka: start", || {
        let (server, port, lines) = node(&jars, &[&shared, "-Xshare:auto", "-Xlog:cds=off"], LINES)?;
        Ok((server, format!("kafka://127.0.0.1:{port}#{lines}")))
    })
}

fn node(jars: &str, flags: &[&str], lines: usize) -> Outcome<(Server, u16, String)> {
    let folder = Folder::new("kafka", None)?;
    let (port, controller) = (free_port()?, free_port()?);
    let mut listeners = vec![("PLAINTEXT".to_owned(), port, port)];
    for line in 1..=lines {
        listeners.push((format!("LINE{line}"), free_port()?, free_port()?));
    }
    let mut settings = CONFIGURATION.to_owned();
    let joined = |told: bool| {
        let of = |(name, listens, tells): &(String, u16, u16)| {
            format!("{name}://127.0.0.1:{}", if told { tells } else { listens })
        };
        listeners.iter().map(of).collect::<Vec<_>>().join(",")
    };
    let security: Vec<String> = listeners.iter().map(|(name, ..)| format!("{name}:PLAINTEXT")).collect();
    let written = write!(
        settings,
        "listeners={},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners={}\n\
         listener.security.protocol.map={},CONTROLLER:PLAINTEXT\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         log.dirs={}\n",
        joined(false),
        joined(true),
        security.join(","),
        folder.path.join("data").display()
    );
    written.map_err(|error| Failure::new(error.to_string(), "is there memory?"))?;
    let properties = folder.path.join("server.properties");
    std::fs::write(&properties, settings).map_err(|error| {
        Failure::new(format!("cannot write its configuration: {error}"), "is the disk full?")
    })?;

    let mut format = Command::new("java");
    format.args(MACHINE).args(["-cp", jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER]);
    format.arg("-c").arg(&properties).stdout(std::process::Stdio::null());
    run(&mut format, "see the message above")?;
    let mut command = private(Path::new("java"), None);
    command.args(MACHINE).args(flags).args(["-cp", jars, "kafka.Kafka"]).arg(&properties);
    let server = Server::start(command, folder, "TERM", || answers(port).unwrap_or(false))?;
    let lines: Vec<String> =
        listeners[1..].iter().map(|(_, listens, tells)| format!("{listens}:{tells}")).collect();
    Ok((server, port, lines.join(",")))
}

/// Whether it names a broker when it is asked for all there are, as the protocol's `Metadata` does in its version 1.
fn answers(port: u16) -> std::io::Result<bool> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    // Length; key 3 in version 1; number; no client; no topics.
    connection.write_all(&[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0])?;
    let mut answer = [0; 12];
    connection.read_exact(&mut answer)?;
    Ok(answer[8..] != [0; 4])
}

/// The classes, as Java wants them named.
fn jars() -> Outcome<String> {
    if !succeeds(Command::new("java").arg("-version")) {
        step("Java: install", || {
            debian_package(
                &["openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless"],
                "true",
            )
        })?;
    }
    let folder = absolute(&Path::new(TOOLS).join(format!("kafka-{VERSION}")))?;
    if !folder.exists() {
        if !succeeds(Command::new("mvn").arg("--version")) {
            step("Maven: install", || debian_package(&["maven"], "true"))?;
        }
        step("Kafka: install", || fetch(&folder))?;
    }
    Ok(format!("{}/*", folder.display()))
}

fn fetch(folder: &Path) -> Outcome<()> {
    let new = folder.with_extension("new");
    let disk =
        |error: std::io::Error| Failure::new(format!("cannot keep Kafka: {error}"), "is the disk full?");
    if new.exists() {
        std::fs::remove_dir_all(&new).map_err(disk)?;
    }
    std::fs::create_dir_all(&new).map_err(disk)?;
    let project = new.join("pom.xml");
    let text = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>mapae</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies>\
         <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>\
         <version>{VERSION}</version></dependency>\
         <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>\
         <version>1.7.36</version></dependency>\
         </dependencies></project>\n"
    );
    std::fs::write(&project, text).map_err(disk)?;
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]).arg(&project).arg("dependency:copy-dependencies");
    maven.arg(format!("-DoutputDirectory={}", new.display()));
    persist(&mut maven, "is Maven Central reachable?")?;
    std::fs::remove_file(&project).map_err(disk)?;
    std::fs::rename(&new, folder).map_err(disk)
}

/// What the virtual machine made of the classes at an earlier start. Tied to the files they came from.
fn archive(jars: &str) -> Outcome<PathBuf> {
    let archive = absolute(&Path::new(TOOLS).join(format!("kafka-{VERSION}.jsa")))?;
    if !archive.exists() {
        let made = format!("-XX:ArchiveClassesAtExit={}", archive.display());
        step("Kafka: archive its classes", || {
            node(jars, &[&made, "-Xlog:cds=off", "-Xlog:cds+dynamic=off"], 0).map(drop)
        })?;
    }
    Ok(archive)
}

fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        Failure::new(format!("cannot tell where {} is: {error}", path.display()), "enter the repository")
    })
}
