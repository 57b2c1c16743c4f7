//! What a user of the binary and of its API relies on.

mod config;
