//! A job's row as both SQL stores read it, and the job it stands for.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::contract::{Holding, StoreError};
use crate::job::State;
use crate::job::event::{Event, Position};
use crate::job::follow::Next;
use crate::job::lease::{Holder, Lease, Token};
use crate::job::name::{Assignee, JobId, Kind, Lane, Owner, Priority};
use crate::job::record::Job;
use crate::job::retry::{Backoff, RetryPolicy};
use crate::job::timestamp::Timestamp;

/// The columns as they come: numbers and text. Times are microseconds.
pub(super) struct JobRow {
    pub id: Uuid,
    pub owner: String,
    pub kind: String,
    pub priority: i16,
    pub params: Value,
    pub source: Option<Value>,
    pub trace: Option<String>,
    pub state: String,
    pub attempt: i32,
    pub attempts_max: i32,
    pub backoff_first_us: i64,
    pub backoff_max_us: i64,
    pub throttled: i32,
    pub snoozed: i32,
    pub redrives: i32,
    pub parent: Option<Uuid>,
    pub cancel_asked: bool,
    pub created_at: i64,
    pub due_at: i64,
    pub deadline: Option<i64>,
    pub started_at: Option<i64>,
    pub finished_at: Option<i64>,
    pub holder: Option<String>,
    pub incarnation: Option<Uuid>,
    pub token: Option<Uuid>,
    pub leased_until: Option<i64>,
    pub epoch: i64,
    pub progress: Option<Value>,
    pub failure: Option<Value>,
    pub assignee: Option<String>,
    pub hint: i32,
    pub sequence: i64,
}

/// Reads a [`JobRow`] off a row of either database: the columns are named alike in both.
macro_rules! job_row {
    ($row:expr) => {{
        let row = $row;
        $crate::store::row::JobRow {
            id: row.try_get("id")?,
            owner: row.try_get("owner")?,
            kind: row.try_get("kind")?,
            priority: row.try_get("priority")?,
            params: row.try_get("params")?,
            source: row.try_get("source")?,
            trace: row.try_get("trace")?,
            state: row.try_get("state")?,
            attempt: row.try_get("attempt")?,
            attempts_max: row.try_get("attempts_max")?,
            backoff_first_us: row.try_get("backoff_first_us")?,
            backoff_max_us: row.try_get("backoff_max_us")?,
            throttled: row.try_get("throttled")?,
            snoozed: row.try_get("snoozed")?,
            redrives: row.try_get("redrives")?,
            parent: row.try_get("parent")?,
            cancel_asked: row.try_get("cancel_asked")?,
            created_at: row.try_get("created_at")?,
            due_at: row.try_get("due_at")?,
            deadline: row.try_get("deadline")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
            holder: row.try_get("holder")?,
            incarnation: row.try_get("incarnation")?,
            token: row.try_get("token")?,
            leased_until: row.try_get("leased_until")?,
            epoch: row.try_get("epoch")?,
            progress: row.try_get("progress")?,
            failure: row.try_get("failure")?,
            assignee: row.try_get("assignee")?,
            hint: row.try_get("hint")?,
            sequence: row.try_get("sequence")?,
        }
    }};
}
pub(super) use job_row;

/// Reads a part of a batch off a row of either database, given its job and how that ended.
macro_rules! member_row {
    ($row:expr, $job:expr, $state:expr) => {{
        use crate::store::row::{count, unreadable};
        let row = $row;
        let output: Option<serde_json::Value> = row.try_get("output")?;
        let failure: Option<serde_json::Value> = row.try_get("failure")?;
        let bad = |_| unreadable("what a part gave cannot be read");
        Ok(crate::job::batch::Member {
            number: count(row.try_get("number")?)?,
            job: $job,
            state: $state,
            output: output.map(serde_json::from_value).transpose().map_err(bad)?,
            failure: failure.map(serde_json::from_value).transpose().map_err(bad)?,
        })
    }};
}
pub(super) use member_row;

/// Reads a delivery off a row of either database: the columns are named alike in both.
macro_rules! delivery_row {
    ($row:expr, $token:expr) => {{
        use crate::job::{event, name, timestamp::Timestamp};
        use crate::store::row::{big, count, unreadable};
        let row = $row;
        let (told, age): (String, i64) = (row.try_get("event")?, row.try_get("age")?);
        Ok(Delivery {
            id: big(row.try_get("id")?)?,
            token: $token,
            url: row.try_get("url")?,
            tries: count(row.try_get("tries")?)?,
            age: std::time::Duration::from_micros(age.max(0).unsigned_abs()),
            event: event::Event {
                job: name::JobId(row.try_get("job")?),
                owner: name::Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?,
                kind: name::Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
                sequence: big(row.try_get("sequence")?)?,
                event: event::EventKind::parse(&told).ok_or_else(|| unreadable("an event that is none"))?,
                at: Timestamp::from_micros(row.try_get("at")?),
                attempt: count(row.try_get("attempt")?)?,
                worker: row.try_get("worker")?,
                code: row.try_get("code")?,
                position: event::Position::default(),
            },
        })
    }};
}
pub(super) use delivery_row;

/// Reads one that was given up.
macro_rules! undelivered_row {
    ($row:expr) => {{
        use crate::job::{event, name, timestamp::Timestamp};
        use crate::store::row::{big, count, unreadable};
        let row = $row;
        let told: String = row.try_get("event")?;
        Ok(Undelivered {
            id: big(row.try_get("id")?)?,
            receiver: row.try_get("receiver")?,
            job: name::JobId(row.try_get("job")?),
            sequence: big(row.try_get("sequence")?)?,
            owner: row.try_get("owner")?,
            kind: name::Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
            event: event::EventKind::parse(&told).ok_or_else(|| unreadable("an event that is none"))?,
            tries: count(row.try_get("tries")?)?,
            code: row.try_get("refusal")?,
            dead_at: Timestamp::from_micros(row.try_get("dead_at")?),
        })
    }};
}
pub(super) use undelivered_row;

/// A schedule with its last tick, of a row of either database.
macro_rules! schedule_row {
    ($row:expr) => {{
        use crate::job::{name, schedule::Missed, timestamp::Timestamp};
        use crate::store::row::unreadable;
        let row = $row;
        let missed: String = row.try_get("missed")?;
        let last_at = row.try_get::<Option<i64>, _>("last_at")?.map(Timestamp::from_micros);
        Ok(crate::store::contract::Schedule {
            name: name::ScheduleName::new(row.try_get::<String, _>("name")?).map_err(unreadable)?,
            owner: name::Owner::new(row.try_get::<String, _>("owner")?).map_err(unreadable)?,
            kind: name::Kind::new(row.try_get::<String, _>("kind")?).map_err(unreadable)?,
            cron: row.try_get("cron")?,
            zone: row.try_get("zone")?,
            missed: Missed::parse(&missed)
                .ok_or_else(|| unreadable("a way to treat missed ticks that is none"))?,
            next_at: row.try_get::<Option<i64>, _>("next_at")?.map(Timestamp::from_micros),
            last: last_at.zip(row.try_get::<Option<uuid::Uuid>, _>("job")?.map(name::JobId)),
            paused: row.try_get("paused")?,
        })
    }};
}
pub(super) use schedule_row;

/// A set of labels, of a row of either database.
macro_rules! label_set_row {
    ($row:expr) => {{
        use crate::job::{name, timestamp::Timestamp};
        use crate::store::row::{big, count, unreadable};
        let row = $row;
        Ok(crate::store::contract::LabelSet {
            name: name::SetName::new(row.try_get::<String, _>("name")?).map_err(unreadable)?,
            version: row.try_get("version")?,
            examples: count(row.try_get("examples")?)?,
            labels: count(row.try_get("labels")?)?,
            bytes: big(row.try_get("bytes")?)?,
            changed_at: Timestamp::from_micros(row.try_get("changed_at")?),
        })
    }};
}
pub(super) use label_set_row;

/// A labelled example, of a row of either database.
macro_rules! example_row {
    ($row:expr) => {{
        let row = $row;
        let label = crate::job::name::LabelName::new(row.try_get::<String, _>("label")?);
        Ok(crate::store::contract::Example {
            label: label.map_err(crate::store::row::unreadable)?,
            title: row.try_get("title")?,
            text: row.try_get("text")?,
            describes: row.try_get("describes")?,
        })
    }};
}
pub(super) use example_row;

impl JobRow {
    pub(super) fn job(self) -> Result<Job, StoreError> {
        let holder = match (self.holder, self.incarnation) {
            (Some(name), Some(incarnation)) => Some(Holder { name, incarnation }),
            _ => None,
        };
        let backoff = Backoff { first: micros(self.backoff_first_us), max: micros(self.backoff_max_us) };
        Ok(Job {
            id: JobId(self.id),
            owner: Owner::new(self.owner).map_err(unreadable)?,
            kind: Kind::new(self.kind).map_err(unreadable)?,
            state: state(&self.state)?,
            params: self.params,
            source: self.source.map(serde_json::from_value).transpose().map_err(|_| no_json())?,
            priority: u8::try_from(self.priority)
                .map_err(unreadable)
                .and_then(|p| Priority::new(p).map_err(unreadable))?,
            attempt: count(self.attempt)?,
            retry: RetryPolicy { attempts: count(self.attempts_max)?, backoff },
            created_at: Timestamp::from_micros(self.created_at),
            due_at: Timestamp::from_micros(self.due_at),
            deadline: self.deadline.map(Timestamp::from_micros),
            started_at: self.started_at.map(Timestamp::from_micros),
            finished_at: self.finished_at.map(Timestamp::from_micros),
            holder,
            cancel_asked: self.cancel_asked,
            progress: self.progress.map(serde_json::from_value).transpose().map_err(|_| no_json())?,
            failure: self.failure.map(serde_json::from_value).transpose().map_err(|_| no_json())?,
            assignee: self.assignee.map(Assignee::new).transpose().map_err(unreadable)?,
            hint: count(self.hint)?,
            throttled: count(self.throttled)?,
            snoozed: count(self.snoozed)?,
            redrives: count(self.redrives)?,
            parent: self.parent.map(JobId),
            trace: self.trace,
            sequence: big(self.sequence)?,
        })
    }

    /// For a row that was just claimed.
    pub(super) fn holding(self) -> Result<Holding, StoreError> {
        let (Some(token), Some(until)) = (self.token, self.leased_until) else {
            return Err(unreadable("a claimed row without a lease"));
        };
        let lease = Lease {
            job: JobId(self.id),
            token: Token(token),
            epoch: big(self.epoch)?,
            until: Timestamp::from_micros(until),
        };
        Ok(Holding { job: self.job()?, lease })
    }
}

pub(super) fn state(text: &str) -> Result<State, StoreError> {
    State::parse(text).ok_or_else(|| unreadable("a state that is none"))
}

pub(super) fn lane(text: &str) -> Result<Lane, StoreError> {
    text.parse().map_err(unreadable)
}

pub(super) fn count(number: i32) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(unreadable)
}

pub(super) fn big(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(unreadable)
}

fn micros(number: i64) -> Duration {
    Duration::from_micros(number.max(0).unsigned_abs())
}

/// Microseconds as the columns hold them.
pub(super) fn as_micros(duration: Duration) -> i64 {
    // A century: later than anything, and still far from where sums with a date would overflow.
    const MOST: i64 = 100 * 366 * 24 * 3600 * 1_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(MOST).min(MOST)
}

/// A job that is to be made later, as the column `next` of `follows` holds it.
pub(super) fn stored(next: &Next) -> Value {
    let mut stored = json!({
        "kind": next.kind,
        "lane": next.lane().to_string(),
        "priority": next.priority,
        "params": next.params,
        "attempts_max": i32::try_from(next.retry.attempts).unwrap_or(i32::MAX),
        "backoff_first_us": as_micros(next.retry.backoff.first),
        "backoff_max_us": as_micros(next.retry.backoff.max),
        "delay_us": as_micros(next.delay),
    });
    if !next.on.is_empty() {
        let on = next.on.iter().map(|follow| (follow.after.as_str().to_owned(), self::stored(&follow.next)));
        stored["on"] = Value::Object(on.collect());
    }
    stored
}

/// For a value in the database that this program would not have written.
pub(super) fn unreadable(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Broken(why.into())
}

/// serde's own message may quote what it read.
fn no_json() -> StoreError {
    unreadable("a column does not hold the JSON it should")
}

/// Escapes what `like` would read as a pattern.
pub(super) fn as_like(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

/// The job that a file in the file store belongs to: `originals/<job>`, `results/<job>/…`.
pub(super) fn job_of_file(file: &str) -> Option<Uuid> {
    file.split('/').nth(1).and_then(|part| Uuid::try_parse(part).ok())
}

/// Each job's events by sequence, in the places that job's events have.
pub(super) fn in_job_order(events: Vec<Event>) -> Vec<Event> {
    let mut by_job: HashMap<JobId, Vec<Event>> = HashMap::new();
    let places: Vec<JobId> = events.iter().map(|event| event.job).collect();
    let positions: Vec<Position> = events.iter().map(|event| event.position).collect();
    for event in events {
        by_job.entry(event.job).or_default().push(event);
    }
    for events in by_job.values_mut() {
        events.sort_by_key(|event| std::cmp::Reverse(event.sequence));
    }
    places
        .iter()
        .zip(positions)
        .filter_map(|(job, position)| Some(Event { position, ..by_job.get_mut(job)?.pop()? }))
        .collect()
}
