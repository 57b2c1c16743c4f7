//! Tests of the library from outside, in one binary.

// A test says what is wrong by panicking; clippy knows that only of functions marked as tests.
#![allow(clippy::unwrap_used)]

mod accept;
mod blob;
#[cfg(all(feature = "streams", feature = "rabbitmq", feature = "kafka"))]
mod brokers;
mod child;
mod context;
mod explain;
mod faults;
mod heard;
mod inside;
mod keeper;
mod limits;
mod model;
mod order;
#[cfg(feature = "http")]
mod outgoing;
mod pointers;
mod records;
mod scratch;
mod site;
mod sqlite;
mod stores;
mod unruly;
mod worker;
