//! The life of a consumer, and whether it is ready: a pure function of what has happened (S0-15).
//!
//! ```text
//! starting → recovering → consuming ⇄ unhealthy
//!     ▲___________________________│         any → draining → stopped
//!        the read loop ended
//! ```

use std::time::{Duration, Instant};

/// Failures in a row after which a consumer is unhealthy.
pub const FAILURES_MAX: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Connecting, making sure of the lanes.
    Starting,
    /// Taking back what an earlier life left.
    Recovering,
    Consuming,
    /// Reads fail; trying on.
    Unhealthy,
    /// Told to stop: running jobs end, nothing new begins.
    Draining,
    Stopped,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Recovering => "recovering",
            Self::Consuming => "consuming",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
        }
    }
}

/// What happens to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Ensured,
    Recovered,
    ReadOk,
    ReadFailed,
    /// The read loop ended for any reason but draining.
    LoopEnded,
    Drain,
    Stopped,
}

/// The state of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    pub phase: Phase,
    pub failures_in_a_row: u32,
    pub last_read: Option<Instant>,
    /// The database's last answer to a heartbeat.
    pub last_beat: Option<Instant>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { phase: Phase::Starting, failures_in_a_row: 0, last_read: None, last_beat: None }
    }
}

impl Readiness {
    pub fn after(self, signal: Signal, now: Instant) -> Self {
        use Phase::{Consuming, Draining, Recovering, Starting, Stopped, Unhealthy};
        let phase = match (self.phase, signal) {
            (_, Signal::Stopped) => Stopped,
            (Stopped, _) => Stopped,
            (_, Signal::Drain) => Draining,
            (Draining, _) => Draining,
            (_, Signal::LoopEnded) => Starting,
            (Starting, Signal::Ensured) => Recovering,
            (Recovering, Signal::Recovered) => Consuming,
            (Unhealthy, Signal::ReadOk) => Consuming,
            (Consuming, Signal::ReadFailed) if self.failures_in_a_row + 1 >= FAILURES_MAX => Unhealthy,
            (phase, _) => phase,
        };
        let (failures_in_a_row, last_read) = match signal {
            Signal::ReadOk => (0, Some(now)),
            // The first read is on its way.
            Signal::Recovered => (self.failures_in_a_row, Some(now)),
            Signal::ReadFailed => (self.failures_in_a_row + 1, self.last_read),
            Signal::LoopEnded => (0, None),
            _ => (self.failures_in_a_row, self.last_read),
        };
        Self { phase, failures_in_a_row, last_read, ..self }
    }

    /// Why it is not ready, `None` where it is. `wait` is how long a read may wait for work; `lease` how
    /// long the database may be silent.
    pub fn unready(&self, now: Instant, wait: Duration, lease: Duration) -> Option<&'static str> {
        let younger =
            |at: Option<Instant>, than: Duration| at.is_some_and(|at| now.duration_since(at) < than);
        match self.phase {
            Phase::Consuming if !younger(self.last_beat, lease) => Some("the database does not answer"),
            Phase::Consuming if !younger(self.last_read, 3 * wait) => Some("the last read is too long ago"),
            Phase::Consuming => None,
            Phase::Starting => Some("the consumer is starting"),
            Phase::Recovering => Some("the consumer is taking back what an earlier life left"),
            Phase::Unhealthy => Some("reads fail"),
            Phase::Draining => Some("the worker is draining"),
            Phase::Stopped => Some("the worker has stopped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    /// All of it at one moment, which is not this one by the time anybody looks.
    fn after(signals: &[Signal], now: Instant) -> Readiness {
        let start = Readiness { last_beat: Some(now), ..Readiness::default() };
        signals.iter().fold(start, |readiness, signal| readiness.after(*signal, now))
    }

    fn ready(signals: &[Signal]) -> bool {
        let now = Instant::now();
        after(signals, now).unready(now, WAIT, LEASE).is_none()
    }

    #[test]
    fn readiness_follows_the_consumers_life() {
        use Signal::*;
        assert!(!ready(&[]), "before the lanes are ensured");
        assert!(!ready(&[Ensured]), "while recovering");
        assert!(ready(&[Ensured, Recovered]));
        assert!(ready(&[Ensured, Recovered, ReadOk, ReadFailed, ReadFailed]), "two failures are a hiccup");
        assert!(!ready(&[Ensured, Recovered, ReadFailed, ReadFailed, ReadFailed]));
        assert!(ready(&[Ensured, Recovered, ReadFailed, ReadFailed, ReadFailed, ReadOk]), "reads recovered");
        assert!(!ready(&[Ensured, Recovered, LoopEnded]), "back to the start");
        assert!(!ready(&[Ensured, Recovered, Drain]));
        assert!(!ready(&[Ensured, Recovered, Drain, ReadOk, Ensured, Recovered]), "draining is for good");
        assert_eq!(after(&[Drain, Stopped, Ensured], Instant::now()).phase, Phase::Stopped);
    }

    #[test]
    fn a_database_that_does_not_answer_makes_it_unready() {
        let now = Instant::now();
        let readiness = after(&[Signal::Ensured, Signal::Recovered], now);
        assert!(readiness.unready(now + LEASE, WAIT, LEASE).is_some());
    }

    #[test]
    fn a_read_that_hangs_makes_it_unready_though_heartbeats_go_on() {
        let now = Instant::now();
        let readiness = after(&[Signal::Ensured, Signal::Recovered, Signal::ReadOk], now);
        let later = now + 3 * WAIT;
        let beating = Readiness { last_beat: Some(later), ..readiness };
        assert_eq!(beating.unready(later, WAIT, LEASE), Some("the last read is too long ago"));
    }
}
