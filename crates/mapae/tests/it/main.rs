//! The library as a whole, from outside.

mod sqlite;
