//! The binary `mapae` as a library, so that its tests can stand where it stands.
//!
//! | module | |
//! |---|---|
//! | [`config`] | what the operator says |
//! | [`runtime`] | store, broker, files, worker and keeper, as the configuration wants them |
//! | [`api`] | the HTTP API |
//! | [`documents`] | the kind `document.analyze` |

pub mod api;
pub mod config;
pub mod credential;
pub mod documents;
mod http;
mod log;
mod media;
pub mod runtime;
mod signals;
mod upload;
mod why;
