//! Which stores there are.

pub mod contract;
