//! The promises, as questions to the facts. Pure.
//!
//! It knows nothing of the code under test, and tells the life of a job from its events alone.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::client::Told;
use crate::facts::{ENDS, Event, Facts, Job};

/// Files that one fault may leave to the collector: what was being written.
const ORPHANS_EACH: usize = 4;

/// The kind whose work the program does itself.
const DOCUMENT: &str = "document.analyze";

/// Every promise that does not hold, in words. `faults` is how many there were.
pub(crate) fn broken_promises(facts: &Facts, faults: usize) -> Vec<String> {
    let mut broken = Vec::new();
    accepted(facts, &mut broken);
    for job in &facts.jobs {
        let events = facts.events.get(&job.id).map(Vec::as_slice).unwrap_or_default();
        let life = life(job, events);
        broken.extend(life.err().map(|why| format!("job {}: {why}; its events: {}", job.id, show(events))));
        effects(facts, job, &mut broken);
    }
    sent(facts, &mut broken);
    broken.extend(facts.missing.iter().map(|file| format!("the file {file} is lost")));
    broken.extend(facts.hidden.iter().map(|file| format!("no collector would find the file {file}")));
    broken.extend(facts.left.iter().map(|left| format!("the broker still has {left}")));
    if facts.orphans.len() > faults * ORPHANS_EACH {
        broken.push(format!("{} files belong to nobody after {faults} faults", facts.orphans.len()));
    }
    broken
}

/// What was accepted is there, once.
fn accepted(facts: &Facts, broken: &mut Vec<String>) {
    let mut ids: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut deleted = BTreeSet::new();
    for told in &facts.told {
        match told {
            Told::Accepted { key, id } => drop(ids.entry(key).or_default().insert(id)),
            Told::Deleted { id } => drop(deleted.insert(id.as_str())),
        }
    }
    for (key, ids) in &ids {
        if ids.len() > 1 {
            broken.push(format!("{key} was answered with several jobs: {ids:?}"));
        }
        for id in ids {
            let there = facts.jobs.iter().any(|job| job.id.to_string() == **id);
            if there == deleted.contains(id) {
                broken.push(format!("{key}: job {id} is {}", if there { "still there" } else { "lost" }));
            }
        }
    }
    let mut seen = BTreeSet::new();
    for job in &facts.jobs {
        // Of a file's job the client's key is not in the row; its id was told.
        let told = ids.values().any(|ids| ids.contains(job.id.to_string().as_str()));
        if !told {
            broken
                .push(format!("job {} was made and never answered for, though its client insisted", job.id));
        }
        if let Some(key) = &job.key
            && !seen.insert(key)
        {
            broken.push(format!("{key} was made into several jobs"));
        }
    }
}

/// Follows a job's events from its acceptance to its one end.
fn life(job: &Job, events: &[Event]) -> Result<(), String> {
    let (mut state, mut attempt) = ("", 0);
    for (at, event) in events.iter().enumerate() {
        if event.sequence != at as i64 + 1 {
            return Err(format!("event {} is missing", at + 1));
        }
        let next = match (state, event.event.as_str()) {
            ("", "accepted") => "pending",
            ("pending", "claimed") => {
                attempt += 1;
                "running"
            }
            ("running", "lost" | "retrying") => "pending",
            ("running", "released" | "throttled" | "snoozed" | "awaiting") => {
                attempt -= 1;
                "pending"
            }
            ("pending", "batch-ended") => "pending",
            ("running", "stage" | "handed-over" | "cancel-requested") => "running",
            ("pending" | "running", end) if ENDS.contains(&end) => {
                if state == "pending" && end == "succeeded" {
                    return Err("it succeeded without running".into());
                }
                ENDS.into_iter().find(|known| *known == end).unwrap_or_default()
            }
            (state, event) => return Err(format!("{event} after {state:?}")),
        };
        if event.event == "claimed" && event.attempt != attempt {
            return Err(format!("attempt {} is told where it is {attempt}", event.attempt));
        }
        state = next;
    }
    if state != job.state {
        return Err(format!("its row says {} and its events say {state:?}", job.state));
    }
    if !ENDS.contains(&state) {
        return Err(format!("it never ended: it is {state}"));
    }
    if events.len() as i64 != job.sequence {
        return Err(format!("its row counts {} events", job.sequence));
    }
    if job.attempt != attempt {
        return Err(format!("its row counts {} attempts and its events {attempt}", job.attempt));
    }
    if job.leased {
        return Err("it has ended and is leased".into());
    }
    Ok(())
}

/// One run for each attempt, and the result is the last one's.
fn effects(facts: &Facts, job: &Job, broken: &mut Vec<String>) {
    let id = job.id.to_string();
    let mut attempts = BTreeSet::new();
    for call in facts.calls.iter().filter(|call| call.job == id) {
        if !attempts.insert(call.attempt) {
            broken.push(format!("job {id}: attempt {} ran twice", call.attempt));
        }
        if call.attempt > job.attempt && job.state == "succeeded" {
            broken.push(format!("job {id}: attempt {} ran and is not counted", call.attempt));
        }
    }
    match (job.state.as_str(), facts.results.get(&job.id)) {
        ("succeeded", None) => broken.push(format!("job {id}: it succeeded and has no result")),
        ("succeeded", Some(None)) => broken.push(format!("job {id}: its result cannot be read")),
        // What a document gives is the document's.
        ("succeeded", Some(Some(_))) if job.kind == DOCUMENT => {}
        ("succeeded", Some(Some(result))) => {
            let of = result["attempt"].as_i64();
            if result["job"].as_str() != Some(&id) || of != Some(job.attempt) {
                let why =
                    format!("the result of attempt {of:?} was kept, and attempt {} settled", job.attempt);
                broken.push(format!("job {id}: {why}"));
            }
        }
        (state, Some(_)) => broken.push(format!("job {id}: it is {state} and has a result")),
        (_, None) => {}
    }
}

/// Every event was taken, at least once, and for each job in order.
fn sent(facts: &Facts, broken: &mut Vec<String>) {
    let Some(taken) = &facts.taken else { return };
    let mut last: BTreeMap<Uuid, i64> = BTreeMap::new();
    for (job, sequence) in taken {
        let last = last.entry(*job).or_default();
        if *sequence > *last + 1 {
            broken.push(format!("job {job}: event {sequence} was taken after {last}"));
        }
        *last = (*last).max(*sequence);
    }
    for job in &facts.jobs {
        let taken = last.get(&job.id).copied().unwrap_or_default();
        if taken != job.sequence {
            broken.push(format!("job {}: {taken} of {} events were taken", job.id, job.sequence));
        }
    }
}

fn show(events: &[Event]) -> String {
    let shown = events.iter().map(|event| format!("{} {}({})", event.sequence, event.event, event.attempt));
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::service::Call;

    type Break = fn(&mut Facts);

    /// A job that was lost once and succeeded in its second attempt.
    fn good() -> Facts {
        let id = Uuid::from_u128(7);
        let told = ["accepted", "claimed", "lost", "claimed", "succeeded"];
        let attempts = [0, 1, 1, 2, 2];
        let event =
            |at: usize| Event { sequence: at as i64 + 1, event: told[at].to_owned(), attempt: attempts[at] };
        let mut facts = Facts {
            told: vec![Told::Accepted { key: "k".into(), id: id.to_string() }],
            calls: [1, 2].map(|attempt| Call { job: id.to_string(), attempt }).to_vec(),
            jobs: vec![Job {
                id,
                kind: "fault.call".into(),
                state: "succeeded".into(),
                attempt: 2,
                sequence: 5,
                leased: false,
                key: Some("k".into()),
            }],
            taken: Some((1..=5).map(|sequence| (id, sequence)).collect()),
            ..Facts::default()
        };
        facts.events.insert(id, (0..5).map(event).collect());
        facts.results.insert(id, Some(json!({ "job": id, "attempt": 2 })));
        facts
    }

    #[test]
    fn what_was_lost_and_done_again_breaks_no_promise() {
        assert_eq!(broken_promises(&good(), 1), Vec::<String>::new());
    }

    #[test]
    fn every_broken_promise_is_noticed() {
        let id = Uuid::from_u128(7);
        let breaks: [(&str, Break); 15] = [
            ("a job is lost", |facts| facts.jobs.clear()),
            ("a key has two answers", |facts| {
                facts.told.push(Told::Accepted { key: "k".into(), id: "other".into() });
            }),
            ("a job nobody was told of", |facts| facts.told.clear()),
            ("an event is missing", |facts| drop(facts.events.get_mut(&Uuid::from_u128(7)).unwrap().pop())),
            ("two ends", |facts| {
                let events = facts.events.get_mut(&Uuid::from_u128(7)).unwrap();
                events.push(Event { sequence: 6, event: "cancelled".into(), attempt: 2 });
            }),
            ("it is not over", |facts| facts.jobs[0].state = "running".into()),
            ("an attempt too many", |facts| facts.jobs[0].attempt = 3),
            ("a lease that is left", |facts| facts.jobs[0].leased = true),
            ("an attempt that ran twice", |facts| facts.calls.push(facts.calls[1].clone())),
            ("the result of another attempt", |facts| {
                facts
                    .results
                    .insert(Uuid::from_u128(7), Some(json!({ "job": Uuid::from_u128(7), "attempt": 1 })));
            }),
            ("no result", |facts| facts.results.clear()),
            ("an event that was not taken", |facts| {
                facts.taken.as_mut().unwrap().pop();
            }),
            ("events out of order", |facts| facts.taken.as_mut().unwrap().swap(1, 3)),
            ("a pointer that is left", |facts| facts.left.push("a stream: 1 entry".into())),
            ("files that are nobody's", |facts| facts.orphans = vec!["file".into(); 5]),
        ];
        for (what, break_it) in breaks {
            let mut facts = good();
            break_it(&mut facts);
            assert!(!broken_promises(&facts, 1).is_empty(), "{what} is not noticed");
        }
        let mut deleted = good();
        deleted.told.push(Told::Deleted { id: id.to_string() });
        assert!(!broken_promises(&deleted, 1).is_empty(), "a deleted job that is still there is not noticed");
    }
}
