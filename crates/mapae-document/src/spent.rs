//! How much of its processor time this process has left before parsers are to come to an end by themselves.
//!
//! The kernel ends a process at its limit, and all it had read is lost with it. Who looks here in time ends a page or
//! a document early, says so with a warning, and gives what there is.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::limits::Limits;

/// The share of the processor time after which a reading ends by itself: the rest is for the answer.
const SHARE: f64 = 0.6;

/// The processor time at which readings end.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Duration);

impl Deadline {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self(Duration::from_secs(limits.cpu_seconds).mul_f64(SHARE))
    }

    pub(crate) fn is_over(self) -> bool {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = u64::try_from(spent.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(spent.tv_nsec).unwrap_or_default();
        Duration::new(seconds, nanos) > self.0
    }
}
