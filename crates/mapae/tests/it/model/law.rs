//! What must hold, what may go wrong from outside, and what may be done wrongly.

/// What must hold at every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Law {
    /// A result becomes visible once, and only with `succeeded`.
    OneResult,
    /// A job ends once until a person redrives it.
    OneEnd,
    /// Nothing is written under a token that does not stand in the row of a running job.
    Fence,
    /// A lease ends by its holder, its time or its holder's end.
    LiveLease,
    /// Attempts counted are runs begun and not given back.
    Attempts,
    /// Every event is told, in order.
    Events,
    /// What was answered "cancelled" or "asked to stop" does not succeed.
    Cancel,
    /// What was answered "deleted" is shown to nobody and does not start again.
    Deleted,
    /// The outside sees one effect of a stage.
    OneCall,
}

/// What may go wrong, or be wanted. As bits.
pub(super) mod fault {
    pub(in super::super) const CRASH: u32 = 1;
    pub(in super::super) const FREEZE: u32 = 1 << 1;
    /// Heartbeats of a live worker come too late.
    pub(in super::super) const SLOW_BEAT: u32 = 1 << 2;
    /// The settle was committed, its answer was lost.
    pub(in super::super) const LOST_ANSWER: u32 = 1 << 3;
    /// The settle was not committed, and the worker does not know.
    pub(in super::super) const LOST_REQUEST: u32 = 1 << 4;
    pub(in super::super) const LOST_CLAIM: u32 = 1 << 5;
    pub(in super::super) const DUPLICATE: u32 = 1 << 6;
    pub(in super::super) const LOSE_POINTER: u32 = 1 << 7;
    pub(in super::super) const WIPE_BROKER: u32 = 1 << 8;
    /// A keeper, or an API between its commit and its publish, dies.
    pub(in super::super) const KEEPER_CRASH: u32 = 1 << 9;
    /// A live worker is taken for gone.
    pub(in super::super) const FALSE_GONE: u32 = 1 << 10;
    pub(in super::super) const RETRY: u32 = 1 << 11;
    pub(in super::super) const THROTTLE: u32 = 1 << 12;
    pub(in super::super) const FAIL: u32 = 1 << 13;
    pub(in super::super) const STALE: u32 = 1 << 14;
    pub(in super::super) const HAND_BACK: u32 = 1 << 15;
    pub(in super::super) const CANCEL: u32 = 1 << 16;
    pub(in super::super) const DELETE: u32 = 1 << 17;
    pub(in super::super) const REDRIVE: u32 = 1 << 18;
    pub(in super::super) const DEADLINE: u32 = 1 << 19;
    pub(in super::super) const SNOOZE: u32 = 1 << 20;
    pub(in super::super) const ALL: u32 = (1 << 21) - 1;
}

/// A way of being wrong. Each alters a step of the model, never the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A settle or stage asks only whether the job is running. So does a fence by worker name, for two
    /// slots of one process.
    NoFence,
    /// The attempt's number is the token.
    TokenIsAttempt,
    /// A settle asks nothing.
    UnconditionalWrite,
    /// A claim does not look at the lease.
    NoLeaseCheck,
    /// Pointers are taken from a live consumer, because its name is old.
    StealFromLive,
    /// A pointer to a busy job is acknowledged.
    BusyAcked,
    /// So is the pointer of a run that lost its lease.
    AckWhenFenced,
    /// A restarted worker does not end the leases of its former life.
    NoVacate,
    /// Pointers are acknowledged before they are claimed.
    AckFirst,
    /// The keeper reaps by age and does not look at the lease.
    BlindReap,
    /// The keeper reads which leases ran out, and later writes by id.
    StaleReap,
    /// A redelivery counts an attempt too.
    RedeliveryCounts,
    /// A crash is not an attempt.
    CrashUncounted,
    HandBackCounts,
    /// The last event is written after the transaction.
    EventAfter,
    MarkBeforeSend,
    EventsAnyOrder,
    /// A settle does not look at the cancel flag again.
    CancelNotReread,
    /// Nor does the reaper.
    ReaperForgetsCancel,
    /// The outside is called under the number of the attempt.
    CallByAttempt,
    /// A deleted job is shown until it has ended.
    DeletedShown,
    /// The pointer of a deleted job is put back.
    DeletedRetried,
    PublishBeforeCommit,
    /// A row counts as rung when it is committed.
    NoOutbox,
    /// A settle without an answer is taken for done.
    UnknownIsDone,
    /// A worker that is told its lease is lost goes on.
    DeafToLoss,
    /// An answer to a repeated settle is acknowledged although the job runs again.
    AckWhileRunning,
}
