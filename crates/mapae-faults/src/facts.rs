//! What is left when all is over: rows, files, pointers, calls, and what clients were told. Plain values.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use crate::client::Told;
use crate::service::Call;

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) told: Vec<Told>,
    pub(crate) calls: Vec<Call>,
    pub(crate) jobs: Vec<Job>,
    /// By job, in the order of their numbers.
    pub(crate) events: BTreeMap<Uuid, Vec<Event>>,
    /// What each job gave: where it is in a file, what the file holds, or `None` where that is not there.
    pub(crate) results: BTreeMap<Uuid, Option<Value>>,
    /// Files that rows name and that are not there.
    pub(crate) missing: Vec<String>,
    /// Files that no row names and that no collector would ever find.
    pub(crate) hidden: Vec<String>,
    /// Files that no row names, left to the collector.
    pub(crate) orphans: Vec<String>,
    /// Events in the order they were taken: job and number. `None` where nobody takes any.
    pub(crate) taken: Option<Vec<(Uuid, i64)>>,
    /// What of ours the broker still has, in words.
    pub(crate) left: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: Uuid,
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) attempt: i64,
    pub(crate) sequence: i64,
    pub(crate) leased: bool,
    /// The client's own key, which stands in the parameters.
    pub(crate) key: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) sequence: i64,
    pub(crate) event: String,
    pub(crate) attempt: i64,
}

pub(crate) const ENDS: [&str; 4] = ["succeeded", "failed", "cancelled", "stale"];
