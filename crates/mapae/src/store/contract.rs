//! What a store promises. Each doc comment says what is true once the call has returned.
//!
//! One trait for each side that stands before a store: [`Run`] is the worker's, [`Remote`] that of work that
//! others do, [`Keep`], [`Tell`], [`Tidy`] and [`Schedules`] the keeper's, [`View`] the reader's, [`Control`] that of people
//! and of accepting; [`Gates`] is what holds between all of them; [`Records`] is what it does for the user's own;
//! [`Batches`] is that of jobs that wait for others; [`Labels`] is what owners teach with. A store is all twelve.
//!
//! | rule | |
//! |---|---|
//! | one authority | a job's row decides; every transition of [`Life`](crate::job::Life) is one transaction with its guard in the statement |
//! | one clock | every `now` is the database's |
//! | fenced | whatever a running side writes applies only where state is `running` and the token is its own |
//! | scoped | whatever a caller reads or changes is restricted to its [`Scope`] in the statement |
//! | batched | concurrent accepts, settles and fenced writes share commits without a timer |
//! | bounded | every call ends: within [`PATIENCE`] it has an answer or is `Unavailable` |
//!
//! An error of [`StoreError::Unavailable`] on a write means *unknown*, not *failed*: asked again by key
//! or token the store says which.

mod batch;
mod control;
mod gate;
mod keep;
mod label;
mod record;
mod remote;
mod run;
mod schedule;
mod tell;
mod tidy;
mod view;

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

pub use self::batch::Batches;
pub use self::control::{AcceptError, Accepted, AddError, Control, ControlError, KeyRecord, NewKey};
pub use self::gate::{GateRow, Gates};
pub use self::keep::{DOUBLINGS_MAX, Keep, LaneWindow, OwnerTurn, Reaped, RingPlan, Rung};
pub(crate) use self::label::distinct;
pub use self::label::{
    Example, ExampleId, LABELS_MAX, LabelSet, Labels, SET_BYTES_MAX, SET_EXAMPLES_MAX, SETS_MAX,
    TEXT_CHARS_MAX, TeachError,
};
pub use self::record::{Configuration, DESCRIBED_EVERY, Described, KindPlan, Records};
pub use self::remote::{Awaited, Puller, Remote};
pub use self::run::{
    Beat, Claim, Claimed, Holding, Join, JoinError, LaneQuota, Member, Run, SettleError, Settlement,
    WorkerReport,
};
pub use self::schedule::{Schedule, Schedules};
pub use self::tell::{Answer, Call, Crowd, Delivery, NOT_IN_TIME, Queue, Receiver, Tell, Told, Undelivered};
pub use self::tidy::{Garbage, Pruned, Retention, Tidy};
pub use self::view::{
    COUNT_MAX, EventFilter, Found, JobFilter, LANE_COUNT_MAX, LANES_MAX, LOOK_MAX, LaneStats, Page, Stats,
    View, WorkerRow,
};

use crate::job::name::Owner;
use crate::job::timestamp::Timestamp;

/// The longest any call to a store takes before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Where jobs live.
#[async_trait]
pub trait Store:
    Run
    + Remote
    + Keep
    + Tell
    + Tidy
    + Schedules
    + Batches
    + Records
    + Labels
    + View
    + Control
    + Gates
    + Send
    + Sync
    + 'static
{
    /// `sqlite`, `postgres` or `memory`.
    fn name(&self) -> &'static str;

    /// The database answered; this is its clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// The schema is this program's. Safe to call from many processes at once.
    async fn migrate(&self) -> Result<(), StoreError>;

    /// The schema found and the one this program knows, without changing anything.
    async fn schema(&self) -> Result<Schema, StoreError>;

    /// The file store that the files of the jobs are in; `None` while none is known.
    async fn files(&self) -> Result<Option<Uuid>, StoreError>;

    /// The files of the jobs are in the file store `id`, unless one was known before; answers which it is. Of many
    /// at once, all get the same answer.
    async fn adopt_files(&self, id: Uuid) -> Result<Uuid, StoreError>;

    /// How many jobs the claims of this handle have failed since it was last asked, because their rows could not be
    /// read: nobody else hears of them.
    fn take_unreadable(&self) -> u64 {
        0
    }

    /// Whether keepers can see that a worker is gone. Where they cannot, behind a pooler that shares the server's
    /// sessions, the lease alone tells.
    async fn sees_presence(&self) -> Result<bool, StoreError>;

    /// Nothing more is written by this handle, and what was answered is durable.
    async fn close(&self);
}

/// Migration numbers: 0 is an empty database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    pub found: u32,
    pub known: u32,
}

/// Whose jobs a caller may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Owner(Owner),
    /// For administrators and the runtime itself.
    All,
}

impl Scope {
    /// The owner to restrict to, as statements bind it.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::Owner(owner) => Some(owner.as_str()),
            Self::All => None,
        }
    }
}

/// One variant for each thing a caller does differently.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Unreachable, overloaded or restarting: try again later. A write may or may not have happened.
    #[error("the database cannot be reached")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// Another transaction holds a row that was to be changed, and has not let go of it: nothing was changed; try
    /// again later.
    #[error("the database holds a row for another transaction")]
    Locked(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// No room for what was to be written, which therefore was not: free space, then try again.
    #[error("the database has no room or is read-only")]
    Full(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// Written by a newer program. Nothing was changed.
    #[error("the database has schema {} but this program knows only {}: use a newer mapae", .0.found, .0.known)]
    NewerSchema(Schema),

    /// `mapae migrate` has not been run.
    #[error("the database has schema {} and needs {}: run `mapae migrate`", .0.found, .0.known)]
    OlderSchema(Schema),

    /// A statement was refused or a row could not be read: a fault in this program or in the data.
    #[error("the database refused a statement or holds a row that cannot be read")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// The address is not one of a store.
    #[error("{0}")]
    Address(String),
}

impl StoreError {
    /// Stable, for problem bodies and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "database-unavailable",
            Self::Locked(_) => "database-locked",
            Self::Full(_) => "database-full",
            Self::NewerSchema(_) => "database-newer",
            Self::OlderSchema(_) => "database-older",
            Self::Broken(_) => "database-broken",
            Self::Address(_) => "database-address",
        }
    }

    /// What the database said, for logs: its codes and names of ours, never its words, which quote rows.
    pub fn said(&self) -> String {
        let source = std::error::Error::source(self).and_then(|source| source.downcast_ref::<sqlx::Error>());
        match source {
            Some(sqlx::Error::Database(error)) => {
                let code = error.code().unwrap_or_default();
                format!("{code} {}", error.constraint().unwrap_or_default()).trim_end().to_owned()
            }
            Some(sqlx::Error::Io(error)) => error.kind().to_string(),
            Some(sqlx::Error::PoolTimedOut) => "no connection was free in time".into(),
            _ => String::new(),
        }
    }

    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Locked(_) | Self::Full(_))
    }
}
