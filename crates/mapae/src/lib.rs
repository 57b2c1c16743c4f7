//! A durable runtime for long work: it accepts a job, records who owns it now, proves success before
//! letting go, gives lost work to another, and ends every job in exactly one way.

pub mod accept;
pub mod broker;
pub mod handler;
pub mod job;
pub mod store;
