//! A durable runtime for long work.
