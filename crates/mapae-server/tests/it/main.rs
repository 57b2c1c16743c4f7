//! What a user of the binary and of its API relies on.

mod binary;
mod config;
mod documents;
mod events;
mod health;
mod jobs;
mod problems;
mod routes;
mod site;
