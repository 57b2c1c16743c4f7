//! A durable runtime for long work.

pub mod blob;
