//! What has happened to a job, told once, in order: the timeline, the event stream, the outbox.
//!
//! A job's events are numbered 1, 2, 3 … without a gap, each written in the transaction that made it
//! true. They hold no content and no result.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::name::{JobId, Kind, Owner};
use super::timestamp::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    Accepted,
    Claimed,
    /// A service accepted the work and will tell its end later.
    HandedOver,
    Stage,
    /// An attempt failed and another will follow.
    Retrying,
    /// Put off by a busy downstream, no attempt used.
    Throttled,
    /// Put off by its own handler, no attempt used.
    Snoozed,
    /// Waits for the parts of its batch, no attempt used.
    Awaiting,
    /// All parts of its batch have ended, and it goes on.
    BatchEnded,
    /// Handed back by a draining worker, no attempt used.
    Released,
    /// The worker of an attempt went away; another attempt will follow.
    Lost,
    CancelRequested,
    /// A dead letter was sent back to work.
    Redriven,
    Succeeded,
    Failed,
    Cancelled,
    Stale,
}

impl EventKind {
    pub const ALL: [Self; 17] = [
        Self::Accepted,
        Self::Claimed,
        Self::HandedOver,
        Self::Stage,
        Self::Retrying,
        Self::Throttled,
        Self::Snoozed,
        Self::Awaiting,
        Self::BatchEnded,
        Self::Released,
        Self::Lost,
        Self::CancelRequested,
        Self::Redriven,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Stale,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Claimed => "claimed",
            Self::HandedOver => "handed-over",
            Self::Stage => "stage",
            Self::Retrying => "retrying",
            Self::Throttled => "throttled",
            Self::Snoozed => "snoozed",
            Self::Awaiting => "awaiting",
            Self::BatchEnded => "batch-ended",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::CancelRequested => "cancel-requested",
            Self::Redriven => "redriven",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Stale => "stale",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Stale)
    }
}

/// One line of a job's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub job: JobId,
    pub owner: Owner,
    pub kind: Kind,
    /// Gapless and ascending within a job.
    pub sequence: u64,
    pub event: EventKind,
    pub at: Timestamp,
    /// The attempt it tells of, 0 where it tells of none.
    pub attempt: u32,
    /// Who did it, where a worker did.
    pub worker: Option<String>,
    /// A failure's code, or a stage's name.
    pub code: Option<String>,
    /// Where the event stands among all events of the store: what `Last-Event-ID` resumes from.
    pub position: Position,
}

impl Event {
    /// What whoever is told twice knows it by.
    pub fn id(&self) -> String {
        format!("{}/{}", self.job, self.sequence)
    }

    /// CloudEvents 1.0 as JSON: no content, no result, only where to find them, below `base`.
    pub fn cloud_event(&self, base: &str) -> Value {
        let this = format!("{base}/v1/jobs/{}", self.job);
        json!({
            "specversion": "1.0",
            "id": self.id(),
            "source": "/v1/jobs",
            "type": format!("mapae.job.{}", self.event.as_str()),
            "subject": self.job,
            "time": self.at,
            "sequence": self.sequence,
            "partitionkey": self.job,
            "datacontenttype": "application/json",
            "data": {
                "job": self.job,
                "owner": self.owner,
                "kind": self.kind,
                "event": self.event.as_str(),
                "attempt": self.attempt,
                "worker": self.worker,
                "code": self.code,
                "links": { "self": this, "result": format!("{this}/result") },
            },
        })
    }
}

/// A place in the stream of all events. Opaque outside of the store that made it; later is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The transaction that wrote the event (0 where the store writes one at a time).
    pub transaction: u64,
    pub number: u64,
    /// When what stands here was written, by the database's clock; 0 where that is not known. A database restored from
    /// a backup gives places out again: what stands there then is younger than this.
    pub at: i64,
}

impl Position {
    /// How much younger than a reader has seen may be what stands before its place: an event of a transaction that
    /// was long in committing, in microseconds.
    const LATE_MAX: i64 = 10_000_000;

    /// Whether this place was given out by a database that was restored from a backup since, judged by when the last
    /// event that stands here or before was written.
    pub fn is_of_another_life(&self, last_at: i64) -> bool {
        self.at > 0 && last_at > self.at.saturating_add(Self::LATE_MAX)
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.transaction, self.number)?;
        if self.at > 0 { write!(f, "-{}", self.at) } else { Ok(()) }
    }
}

impl std::str::FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (transaction, rest) = text.split_once('-').ok_or(())?;
        // Without its time: given out by a program of before.
        let (number, at) = rest.split_once('-').unwrap_or((rest, "0"));
        Ok(Self {
            transaction: transaction.parse().map_err(drop)?,
            number: number.parse().map_err(drop)?,
            at: at.parse().map_err(drop)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_is_written_and_read() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::parse(kind.as_str()), Some(kind));
        }
    }

    #[test]
    fn a_position_is_written_and_read() {
        for at in [0, 1_767_225_600_000_000] {
            let position = Position { transaction: 7, number: 12, at };
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        assert_eq!("7-12".parse(), Ok(Position { transaction: 7, number: 12, at: 0 }));
        for wrong in ["7", "7-", "7-12-", "7-12-x", "7-12-1-1"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }
}
