//! Real processes of `mapae`, killed and frozen at every step, on both stores. `cargo xtask faults` runs it.
//!
//! | module | |
//! |---|---|
//! | `cell` | the plan: point × scene × store × broker × fault |
//! | `scene`, `random`, `beside` | what goes on around a fault |
//! | `site`, `broker`, `process`, `server` | folder, database, part of a broker, processes |
//! | `service`, `client`, `subject` | who works, who asks, and a worker made with the library |
//! | `look`, `facts`, `check` | what is left, and whether the promises hold |
//! | `plan`, `report` | what was asked for, and what is told |

mod beside;
mod broker;
mod cell;
mod check;
mod client;
mod facts;
mod http;
mod line;
mod look;
mod plan;
mod process;
mod random;
mod report;
mod run;
mod scene;
mod server;
mod service;
mod site;
mod subject;
mod trouble;
mod wait;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    if words.first().is_some_and(|word| word == subject::COMMAND) {
        return match runtime.block_on(subject::run(&words[1..])) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    match plan::Plan::read(&words) {
        Ok(plan) => runtime.block_on(run::run(plan)),
        Err(why) => {
            eprintln!("error: {why}\n\n{}", plan::HELP);
            ExitCode::from(2)
        }
    }
}
