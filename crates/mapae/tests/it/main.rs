//! The library as a whole, from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod sqlite;
