//! The binary `mapae` as a library, so that its tests can stand where it stands.

pub mod config;
