//! The commands of this repository: `cargo xtask` prints them.
//!
//! Only the standard library, so that it builds in seconds on a machine that has nothing yet. What it starts it
//! stops: servers are values, and their `Drop` ends them (`server.rs`).

mod ahead;
mod bench;
mod check;
mod demo;
mod faults;
mod fleet;
mod install;
mod kafka;
mod models;
mod postgres;
mod rabbitmq;
mod s3;
mod sdk;
mod server;
mod step;
mod streams;

use std::path::Path;
use std::process::ExitCode;

use step::{Failure, Outcome};

const HELP: &str = "\
Usage: cargo xtask COMMAND

  test                        everything: formatting, lints, all tests on real servers (PostgreSQL,
                              Valkey, Redis, RabbitMQ, Kafka), the Python package, documentation,
                              dependencies, the demo
  test --embedded             the quick part that needs no server; it proves less, and says so
  test --s3                   only the tests that need a real S3 server; builds one the first time (minutes)
  faults [OPTIONS]            kill and freeze real processes at every step; `faults --help` shows the options
  bench [NAME...]             measure beside hand-written loops, on a PostgreSQL that syncs to disk
  demo                        build for release and analyse the documents in examples/
  models                      make the packs of the models in models/ (once; downloads 66 MB of packages)
  python [OPTIONS]            types, tests and examples of the Python package, with the program in target/debug;
                              options are pytest's
  bench ai                    measure what understanding texts costs on one core
  bench documents             measure what reading a long PDF costs, beside pdftotext
  score [DIR]                 measure against the documents in DIR (default ../shared/data), if it is there
  servers NAMES -- CMD...     start private servers (postgres,valkey,redis,rabbitmq,kafka or all), run CMD
                              with their addresses in MAPAE_TEST_POSTGRES and so on, stop them
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Every command may rely on paths from the repository's root.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    let outcome = std::env::set_current_dir(root)
        .map_err(|error| {
            Failure::new(format!("cannot enter {}: {error}", root.display()), "check its permissions")
        })
        .and_then(|()| run(&words));
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("\nerror: {}\nhelp:  {}", failure.what, failure.help);
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Outcome<ExitCode> {
    match words {
        [] | ["help" | "--help" | "-h"] => print!("{HELP}"),
        ["test"] => check::everything()?,
        ["test", "--embedded"] => check::embedded()?,
        ["test", "--s3"] => check::s3()?,
        ["faults", options @ ..] => return faults::faults(options),
        ["bench", "ai"] => bench::ai()?,
        ["bench", "documents"] => bench::documents()?,
        ["bench", names @ ..] => return bench::run(names),
        ["demo"] => demo::analyze_examples()?,
        ["models"] => models::make()?,
        ["python", options @ ..] => sdk::python(&fleet::Fleet::named("postgres")?, options)?,
        ["score"] => demo::score(Path::new("../shared/data"))?,
        ["score", folder] => demo::score(Path::new(folder))?,
        ["servers", names, "--", program, args @ ..] => return fleet::run_with(names, program, args),
        _ => {
            eprint!("{HELP}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
