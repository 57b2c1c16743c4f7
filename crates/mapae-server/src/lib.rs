//! The binary `mapae` as a library, so that its tests can stand where it stands.
//!
//! | module | |
//! |---|---|
//! | [`cli`], `command`, `global` | the command line: what there is, each command, what they share |
//! | [`config`] | what the operator says |
//! | [`runtime`] | store, broker, files, worker and keeper, as the configuration wants them |
//! | [`api`], `http` | the HTTP API, and the connections it is served over |
//! | `process` | a long-running process, from its first connection to its last lease |
//! | `client` | how commands reach a runtime |
//! | [`documents`] | the kind `document.analyze` |
//! | [`ai`] | what is understood of texts by the models of this machine, and the kind `context.process` |
//! | [`plans`] | uniqueness and what comes after a job, as people write them |
//! | `upload`, `media` | taking a file in |
//! | `why` | why a job waits, in words |

pub mod ai;
pub mod api;
mod batches;
pub mod cli;
mod client;
mod command;
pub mod config;
pub mod credential;
pub mod documents;
mod files;
mod global;
mod http;
mod log;
mod media;
mod outbound;
mod output;
pub mod plans;
mod probe;
mod process;
pub mod runtime;
mod signals;
mod trouble;
mod upload;
mod why;
