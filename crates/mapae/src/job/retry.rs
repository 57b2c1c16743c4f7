//! What a handler's end means for its job: the failure, its class, and the verdict.
//!
//! The retry question is answered where it is known, in the handler; what follows from the answer is
//! decided here, in one pure function. A broker has no say in it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why an attempt ended without success, as people and programs see it. Never document content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable, kebab-case: `document-encrypted`, `lease-expired`.
    pub code: String,
    pub class: FailureClass,
    /// One sentence, at most [`Failure::MESSAGE_MAX`] characters.
    pub message: String,
    /// The attempt that failed, 0 before a store has filled it in.
    #[serde(default)]
    pub attempt: u32,
    /// When the downstream asked to be called again; with this an attempt is not used up.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// When the handler itself wants to go on; with this it is no failure at all.
    #[serde(skip)]
    pub snooze: Option<Duration>,
    /// The handler waits for the parts of its job; with this it is no failure at all. Set by
    /// [`Context::gather`](crate::handler::Context::gather) and by nothing else: a job without parts is never woken.
    #[serde(skip)]
    #[doc(hidden)]
    pub awaits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureClass {
    /// May go better next time.
    Retryable,
    /// Will never go better.
    Terminal,
    /// What the job points at is gone.
    Stale,
    /// The worker went away.
    Lost,
    /// Took longer than its kind allows.
    Timeout,
    /// Stopped because it was asked to.
    Cancelled,
}

impl FailureClass {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retryable => "retryable",
            Self::Terminal => "terminal",
            Self::Stale => "stale",
            Self::Lost => "lost",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Failure {
    pub const MESSAGE_MAX: usize = 500;
    pub const CODE_MAX: usize = 64;

    fn new(class: FailureClass, code: impl Into<String>, message: impl Into<String>) -> Self {
        // Control characters serve no reader, and a store may refuse one of them (U+0000).
        let plain = |text: String, most: usize| text.chars().filter(|c| !c.is_control()).take(most).collect();
        let (code, message) = (plain(code.into(), Self::CODE_MAX), plain(message.into(), Self::MESSAGE_MAX));
        Self { code, class, message, attempt: 0, retry_after: None, snooze: None, awaits: false }
    }

    pub fn retryable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FailureClass::Retryable, code, message)
    }

    pub fn terminal(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FailureClass::Terminal, code, message)
    }

    pub fn stale(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FailureClass::Stale, code, message)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Timeout, "job-timeout", message)
    }

    pub fn cancelled() -> Self {
        Self::new(FailureClass::Cancelled, "job-cancelled", "The job was stopped before it ended.")
    }

    pub fn lost() -> Self {
        Self::new(FailureClass::Lost, "worker-lost", "The worker stopped answering while it ran the job.")
    }

    /// A service accepted the job for later, and later has passed.
    pub fn unanswered() -> Self {
        Self::new(
            FailureClass::Timeout,
            "completion-overdue",
            "The service accepted the job and did not tell its end in time.",
        )
    }

    /// What stands in the row is not what this program can read.
    pub fn unreadable() -> Self {
        Self::new(FailureClass::Terminal, "row-unreadable", "The job's row cannot be read by this program.")
    }

    pub fn overdue() -> Self {
        Self::new(FailureClass::Terminal, "deadline-passed", "The job's deadline passed before it was done.")
    }

    /// The downstream is busy and said when to come back: no attempt is used.
    pub fn retry_after(wait: Duration, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { retry_after: Some(wait), ..Self::new(FailureClass::Retryable, code, message) }
    }

    /// Not now, again in `wait`: what the job waits for is not there yet. No attempt is used, and nothing
    /// counts as having gone wrong; the job fails only where the wait goes beyond its deadline, or the
    /// time after [`SNOOZES_MAX`] snoozes.
    pub fn snooze(wait: Duration) -> Self {
        Self { snooze: Some(wait), ..Self::overslept() }
    }

    /// The job goes on once all of its parts have ended. Only of one that has parts.
    pub(crate) fn awaiting() -> Self {
        let message = "The job waits for its parts.";
        Self { awaits: true, ..Self::new(FailureClass::Retryable, "parts-awaited", message) }
    }

    /// A snooze that was one too many.
    pub fn overslept() -> Self {
        Self::new(
            FailureClass::Terminal,
            "snoozed-too-long",
            "The handler put the job off beyond its deadline, or more often than a job may be.",
        )
    }
}

/// How long to wait before the next attempt: doubling from `first`, never above `max`, with full jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub first: Duration,
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(2), max: Duration::from_secs(600) }
    }
}

impl Backoff {
    /// The longest wait after attempt number `attempt` (counted from 1).
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }

    /// The wait after `attempt`, where `jitter` is a fresh number from 0 to 1.
    ///
    /// Full jitter (0 to the ceiling) spreads many jobs that failed together; anything narrower keeps
    /// them in step (AWS Architecture Blog, "Exponential Backoff And Jitter", 2015).
    pub fn wait(&self, attempt: u32, jitter: f64) -> Duration {
        self.ceiling(attempt).mul_f64(jitter.clamp(0.0, 1.0))
    }

    /// The wait after an attempt whose worker was lost: none the first time, for the job is most
    /// likely innocent; then as after any failure, for it may be what kills its workers.
    pub fn wait_after_loss(&self, attempt: u32, jitter: f64) -> Duration {
        if attempt <= 1 { Duration::ZERO } else { self.wait(attempt - 1, jitter) }
    }
}

/// What a kind's jobs may cost, fixed for a job when it is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// At least 1.
    pub attempts: u32,
    pub backoff: Backoff,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 5, backoff: Backoff::default() }
    }
}

/// How often a job may be put off by a busy downstream before that counts as its failure.
pub const THROTTLES_MAX: u32 = 1_000;

/// How often a handler may put its own job off: one that looks every minute may do so for a week.
pub const SNOOZES_MAX: u32 = 10_000;

/// What the holder of a lease asks the store to make of its job.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Succeed,
    /// Again after `delay`; failed instead where the budget or the deadline does not allow it.
    Retry {
        failure: Failure,
        delay: Duration,
    },
    /// Again after `delay` with the attempt given back.
    Throttle {
        failure: Failure,
        delay: Duration,
    },
    /// Again after `delay` with the attempt given back, because the handler wants it so.
    Snooze {
        delay: Duration,
    },
    Fail {
        failure: Failure,
    },
    Stale {
        failure: Failure,
    },
    /// Until all parts of the job's batch have ended, with the attempt given back.
    Await,
    /// Back to pending at once with the attempt given back: the worker is draining.
    HandBack,
}

impl Verdict {
    /// What went wrong, where something did.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Retry { failure, .. }
            | Self::Throttle { failure, .. }
            | Self::Fail { failure }
            | Self::Stale { failure } => Some(failure),
            Self::Succeed | Self::Snooze { .. } | Self::Await | Self::HandBack => None,
        }
    }
}

/// A number from 0 to 1 for jitter: the random bits of a fresh UUID are enough for that.
pub(crate) fn jitter() -> f64 {
    (uuid::Uuid::new_v4().as_u128() >> 80) as f64 / (1_u64 << 48) as f64
}

/// What follows from a failure. `draining` tells a job stopped for the worker's sake from one that
/// was cancelled for its own.
pub fn verdict(failure: Failure, backoff: &Backoff, attempt: u32, draining: bool, jitter: f64) -> Verdict {
    if failure.awaits {
        return Verdict::Await;
    }
    if let Some(delay) = failure.snooze {
        return Verdict::Snooze { delay };
    }
    if let Some(delay) = failure.retry_after {
        return Verdict::Throttle { failure, delay };
    }
    match failure.class {
        FailureClass::Retryable | FailureClass::Timeout | FailureClass::Lost => {
            let delay = backoff.wait(attempt, jitter);
            Verdict::Retry { failure, delay }
        }
        FailureClass::Terminal => Verdict::Fail { failure },
        FailureClass::Stale => Verdict::Stale { failure },
        FailureClass::Cancelled if draining => Verdict::HandBack,
        // Where a cancel was asked for, the store makes this `cancelled`; a handler that stops of its
        // own accord has simply failed.
        FailureClass::Cancelled => Verdict::Fail { failure },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_ceiling_and_jitters_down_to_nothing() {
        let backoff = Backoff { first: Duration::from_secs(2), max: Duration::from_secs(10) };
        let ceilings: Vec<u64> = (1..=5).map(|attempt| backoff.ceiling(attempt).as_secs()).collect();
        assert_eq!(ceilings, [2, 4, 8, 10, 10]);
        assert_eq!(backoff.wait(3, 0.0), Duration::ZERO);
        assert_eq!(backoff.wait(3, 0.5), Duration::from_secs(4));
        assert_eq!(backoff.wait(u32::MAX, 7.0), Duration::from_secs(10));
    }

    #[test]
    fn the_first_loss_waits_for_nothing_and_the_second_backs_off() {
        let backoff = Backoff::default();
        assert_eq!(backoff.wait_after_loss(1, 1.0), Duration::ZERO);
        assert_eq!(backoff.wait_after_loss(2, 1.0), backoff.first);
    }

    #[test]
    fn each_class_of_failure_has_its_verdict() {
        let judge = |failure, draining| verdict(failure, &Backoff::default(), 1, draining, 1.0);
        assert!(matches!(judge(Failure::retryable("x", ""), false), Verdict::Retry { .. }));
        assert!(matches!(judge(Failure::timeout(""), false), Verdict::Retry { .. }));
        assert!(matches!(judge(Failure::terminal("x", ""), false), Verdict::Fail { .. }));
        assert!(matches!(judge(Failure::stale("x", ""), false), Verdict::Stale { .. }));
        assert!(matches!(judge(Failure::cancelled(), true), Verdict::HandBack));
        assert!(matches!(judge(Failure::cancelled(), false), Verdict::Fail { .. }));
        let busy = Failure::retry_after(Duration::from_secs(9), "x", "");
        assert!(matches!(judge(busy, false), Verdict::Throttle { delay, .. } if delay.as_secs() == 9));
        let later = Failure::snooze(Duration::from_secs(9));
        assert_eq!(judge(later, false), Verdict::Snooze { delay: Duration::from_secs(9) });
    }

    #[test]
    fn a_message_is_cut_at_its_bound_between_characters() {
        let failure = Failure::terminal("x", "가".repeat(600));
        assert_eq!(failure.message.chars().count(), Failure::MESSAGE_MAX);
    }
}
