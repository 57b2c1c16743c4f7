//! Which stores there are.

pub mod contract;
pub mod memory;
