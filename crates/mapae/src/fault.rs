//! Named points of a job's road at which a process can be made to die or to freeze, from outside.
//!
//! Only with the feature `faults`: without it a point is nothing, and no variable is read. What is here is for
//! tests of whole processes (`cargo xtask faults`); a handler alone is tested with [`crate::testing`].
//!
//! | variable | |
//! |---|---|
//! | `MAPAE_FAULT` | `settle.asked:kill:1`: at the first passing of that point; several with commas |
//! | `MAPAE_FAULT_LOG` | a file that gets a line for each point passed and each fault, before it happens |
//! | `MAPAE_FAULT_MUTANT` | one of [`Mutant`]: what the tests must notice |

#[cfg(feature = "faults")]
mod armed;

macro_rules! points {
    ($($(#[$about:meta])* $point:ident = $name:literal,)*) => {
        /// A point of the road. `…Asked` is just before a commit is asked for, `…Kept` just after it. What is said of
        /// pointers is passed only where a broker delivers them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Point { $($(#[$about])* $point,)* }

        impl Point {
            /// In the order of the road.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$point => $name,)* }
            }
        }
    };
}

points! {
    AcceptAsked = "accept.asked",
    AcceptKept = "accept.kept",
    /// Before the bell of the fast path rings.
    BellPulled = "bell.pulled",
    BellRung = "bell.rung",
    /// Pointers: their rows say that they are out.
    BellMarked = "bell.marked",
    /// The file is made and empty.
    FileBegun = "file.begun",
    FileWritten = "file.written",
    FileSynced = "file.synced",
    /// Under its name, the folder not synced.
    FileLinked = "file.linked",
    FileKept = "file.kept",
    JoinAsked = "join.asked",
    JoinKept = "join.kept",
    /// Pointers: before those that others left are looked for.
    TakeOverAsked = "takeover.asked",
    /// Pointers: with some that others left, claimed by nobody.
    TakeOverKept = "takeover.kept",
    /// Pointers: before new ones are read.
    ReadAsked = "read.asked",
    /// Pointers: with new ones, claimed by nobody.
    ReadKept = "read.kept",
    ClaimAsked = "claim.asked",
    ClaimKept = "claim.kept",
    RunBegun = "run.begun",
    HandlerBegins = "handler.begins",
    HandlerEnded = "handler.ended",
    ProgressAsked = "progress.asked",
    ProgressKept = "progress.kept",
    CheckpointAsked = "checkpoint.asked",
    CheckpointKept = "checkpoint.kept",
    /// With leases to renew.
    BeatAsked = "beat.asked",
    BeatKept = "beat.kept",
    /// Pointers: the leases are renewed, and the broker does not know of it.
    HoldAsked = "hold.asked",
    /// Pointers.
    HoldKept = "hold.kept",
    SettleAsked = "settle.asked",
    SettleKept = "settle.kept",
    /// Pointers: with some to settle in the broker, after the claim or after the end, as it wants.
    AckAsked = "ack.asked",
    /// Pointers.
    AckKept = "ack.kept",
    Acknowledged = "acknowledged",
    /// The lease is given up.
    RunOver = "run.over",
    RingAsked = "ring.asked",
    RingKept = "ring.kept",
    RingRung = "ring.rung",
    /// Pointers: as `bell.marked`.
    RingMarked = "ring.marked",
    ReapAsked = "reap.asked",
    ReapKept = "reap.kept",
    ExpireAsked = "expire.asked",
    ExpireKept = "expire.kept",
    EventOffered = "event.offered",
    EventTaken = "event.taken",
    EventMarked = "event.marked",
    PruneAsked = "prune.asked",
    PruneKept = "prune.kept",
    /// The file is gone, the row that says so is not.
    GarbageGone = "garbage.gone",
    GarbageKept = "garbage.kept",
    /// In the open transaction of the one writer.
    SqliteCommit = "sqlite.commit",
    SqliteCommitted = "sqlite.committed",
}

/// A promise broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A settle is taken whoever holds the lease.
    NoFence,
    /// The event of a settle is written a while after its transaction.
    LateEvent,
    /// Nobody ends the leases of the dead.
    NoReaper,
    /// A cancel takes also what has ended.
    NoCancelGuard,
    /// Pointers are settled in the broker before their rows are asked.
    EarlyAck,
    /// What a reader left in the broker is not looked for.
    NoTakeOver,
}

impl Mutant {
    pub const ALL: &[Self] = &[
        Self::NoFence,
        Self::LateEvent,
        Self::NoReaper,
        Self::NoCancelGuard,
        Self::EarlyAck,
        Self::NoTakeOver,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::NoFence => "no-fence",
            Self::LateEvent => "late-event",
            Self::NoReaper => "no-reaper",
            Self::NoCancelGuard => "no-cancel-guard",
            Self::EarlyAck => "early-ack",
            Self::NoTakeOver => "no-take-over",
        }
    }
}

/// Whether this program was built to fail.
pub const BUILT_IN: bool = cfg!(feature = "faults");

/// What is planned for this point happens here; mostly nothing.
#[cfg(feature = "faults")]
pub(crate) fn at(point: Point) {
    armed::at(point);
}

#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn at(_: Point) {}

/// Whether this promise is broken in this process.
#[cfg(feature = "faults")]
pub(crate) fn broken(mutant: Mutant) -> bool {
    armed::broken(mutant)
}

#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn broken(_: Mutant) -> bool {
    false
}
