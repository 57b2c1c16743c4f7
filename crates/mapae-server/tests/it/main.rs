//! What a user of the binary and of its API relies on.

// A test says what is wrong by panicking; clippy knows that only of functions marked as tests.
#![allow(clippy::unwrap_used)]

mod batches;
mod binary;
mod canary;
mod config;
mod documents;
mod events;
mod health;
mod jobs;
mod kinds;
mod labels;
mod limits;
mod metrics;
mod plans;
mod problems;
mod remote;
mod routes;
mod site;
mod tell;
mod understand;
