//! A durable runtime for long work: it accepts a job, records who owns it now, proves success before
//! letting go, gives lost work to another, and ends every job in exactly one way.
//!
//! | module | |
//! |---|---|
//! | [`job`] | the life of a job: pure, no I/O |
//! | [`store`] | where jobs live: SQLite or PostgreSQL |
//! | [`broker`] | the doorbell |
//! | [`blob`] | originals and results |
//! | [`handler`] | what you write |
//! | [`accept`] | file, row, bell |
//! | [`worker`] | receive, claim, run, settle, acknowledge |
//! | [`remote`] | leases held outside: services that answer later, clients that pull |
//! | [`keeper`] | the net under all of it |
//! | `outgoing` | calls to the outside: where they may go |
//! | [`testing`] | your handlers, tested |

pub mod accept;
pub mod blob;
pub mod broker;
#[doc(hidden)]
pub mod fault;
pub mod handler;
pub mod job;
pub mod keeper;
pub mod metrics;
#[cfg(feature = "http")]
pub mod outgoing;
pub mod remote;
pub mod store;
pub mod testing;
pub mod worker;
mod yielding;
