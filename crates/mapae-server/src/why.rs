//! Why a job is not running, in words. A pure function over facts that somebody else collects.

use mapae::job::State;
use mapae::job::batch::BatchState;
use mapae::job::limit::{Gate, Limit, Stop};
use mapae::job::record::Job;
use mapae::job::timestamp::Timestamp;

use crate::api::resources::show_rate;
use crate::runtime::handler_resource;

/// What is known about a waiting job's surroundings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub now: Timestamp,
    /// The batch that it waits for.
    pub batch: Option<BatchState>,
    pub lane_paused: bool,
    /// Workers alive, and those of them that run its kind.
    pub workers: usize,
    pub workers_of_kind: usize,
    /// The gate over all workers that is closed to it, with what it lets through.
    pub stop: Option<(Stop, Limit)>,
    /// The resource for which all workers of its kind wait.
    pub resource: Option<String>,
    /// Jobs before it in its lane, counted up to [`Facts::AHEAD_MAX`].
    pub ahead: usize,
}

impl Facts {
    pub(crate) const AHEAD_MAX: usize = 1000;
}

/// One sentence, or `None` where the job is not waiting or about to start. The first reason that alone
/// would keep it from running is told.
pub(crate) fn why_waiting(job: &Job, facts: &Facts) -> Option<String> {
    if job.state != State::Pending {
        return None;
    }
    if let Some(batch) = &facts.batch {
        return Some(for_parts(batch));
    }
    if job.due_at > facts.now {
        return Some(not_due(job));
    }
    if facts.lane_paused {
        return Some(format!("The lane {} is paused.", job.lane()));
    }
    if facts.workers_of_kind == 0 {
        return Some(match facts.workers {
            0 => "No worker is running.".to_owned(),
            1 => format!("The one worker that is running does not run the kind {}.", job.kind),
            many => format!("None of the {many} workers runs the kind {}.", job.kind),
        });
    }
    if let Some((stop, limit)) = &facts.stop {
        return Some(at_a_gate(stop, limit, facts.now));
    }
    if let Some(resource) = &facts.resource {
        if *resource == handler_resource(&job.kind) {
            return Some("All calls that may be made to its service at a time are being made.".to_owned());
        }
        return Some(format!("It waits for the resource {resource}."));
    }
    match facts.ahead {
        0 => None,
        1 => Some("One job is ahead of it.".to_owned()),
        many if many >= Facts::AHEAD_MAX => {
            Some(format!("A backlog of {} jobs or more is ahead of it.", Facts::AHEAD_MAX))
        }
        many => Some(format!("A backlog of {many} jobs is ahead of it.")),
    }
}

fn at_a_gate(stop: &Stop, limit: &Limit, now: Timestamp) -> String {
    let until = now + stop.again;
    let kind = &stop.kind;
    if stop.asked {
        return format!("Its service is left alone: no job of the kind {kind} starts before {until}.");
    }
    let paced = limit.rate.filter(|_| stop.paced).map(show_rate);
    let places = limit.concurrent.unwrap_or_default();
    match (&stop.gate, paced) {
        (Gate::Owner(_), Some(rate)) => {
            format!("Its owner may start {rate} jobs of the kind {kind}: the next one not before {until}.")
        }
        (Gate::Owner(_), None) => {
            format!("Its owner is at its limit: {places} of its jobs of the kind {kind} run at a time.")
        }
        (Gate::Kind(_), Some(rate)) => {
            format!("Jobs of the kind {kind} start at {rate}: the next one not before {until}.")
        }
        (Gate::Kind(_), None) => {
            format!("The kind {kind} is at its limit: {places} of its jobs run at a time.")
        }
        (Gate::Resource(name), Some(rate)) => {
            format!(
                "It waits for the resource {name}, which may be begun to be used at {rate}: not before {until}."
            )
        }
        (Gate::Resource(name), None) => {
            format!("It waits for the resource {name}, of which there are {places} over all workers.")
        }
    }
}

fn for_parts(batch: &BatchState) -> String {
    let (ended, parts) = (batch.ended(), batch.parts);
    let more = if batch.sealed { "" } else { ", and it takes more until it is sealed" };
    format!("It waits for its parts: {ended} of {parts} have ended{more}.")
}

fn not_due(job: &Job) -> String {
    let until = job.due_at;
    match &job.failure {
        Some(failure) if job.attempt > 0 => format!(
            "Attempt {} of {} ended with {}; the next one is not due until {until}.",
            job.attempt, job.retry.attempts, failure.code
        ),
        Some(failure) if job.throttled > 0 => {
            format!("It was put off by {}; it is not due until {until}.", failure.code)
        }
        None if job.snoozed > 0 => format!("Its handler put it off; it is not due until {until}."),
        _ => format!("It is not due until {until}."),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mapae::job::limit::Rate;
    use mapae::job::name::{JobId, Kind, Owner, Priority};
    use mapae::job::retry::{Failure, RetryPolicy};

    use super::*;

    fn waiting() -> Job {
        let at = Timestamp::from_micros(1_796_000_000_000_000);
        Job {
            id: JobId::new(),
            owner: Owner::new("acme").unwrap(),
            kind: Kind::new("mail").unwrap(),
            state: State::Pending,
            params: serde_json::Value::Null,
            source: None,
            priority: Priority::new(1).unwrap(),
            attempt: 0,
            retry: RetryPolicy::default(),
            created_at: at,
            due_at: at,
            deadline: None,
            started_at: None,
            finished_at: None,
            holder: None,
            cancel_asked: false,
            progress: None,
            failure: None,
            assignee: None,
            hint: 0,
            throttled: 0,
            snoozed: 0,
            redrives: 0,
            parent: None,
            trace: None,
            sequence: 1,
        }
    }

    #[test]
    fn the_first_reason_that_alone_keeps_a_job_from_running_is_told() {
        let job = waiting();
        let idle = Facts { now: job.due_at, workers: 2, workers_of_kind: 1, ..Facts::default() };
        let later = Job { due_at: job.due_at + Duration::from_secs(60), ..job.clone() };
        let backoff = Job { attempt: 2, failure: Some(Failure::retryable("ai-down", "x")), ..later.clone() };
        let snoozed = Job { snoozed: 2, ..later.clone() };
        let running = Job { state: State::Running, ..job.clone() };
        let at = |gate, paced| {
            let kind = job.kind.clone();
            let stop = Stop { gate, paced, ..Stop::asked(kind, Duration::from_secs(6)) };
            let limit = Limit { concurrent: Some(2), rate: Some(Rate::new(10, Duration::from_secs(60))) };
            Facts { stop: Some((Stop { asked: false, ..stop }, limit)), ahead: 3, ..idle.clone() }
        };
        let parts = BatchState { parts: 3, succeeded: 1, failed: 1, sealed: true, ..BatchState::default() };
        let cases = [
            (
                &later,
                Facts { batch: Some(parts), ..idle.clone() },
                Some("It waits for its parts: 2 of 3 have ended."),
            ),
            (&job, idle.clone(), None),
            (&running, Facts { lane_paused: true, ..idle.clone() }, None),
            (&later, idle.clone(), Some("It is not due until 2026-11-30T00:54:20.000Z.")),
            (
                &snoozed,
                idle.clone(),
                Some("Its handler put it off; it is not due until 2026-11-30T00:54:20.000Z."),
            ),
            (
                &backoff,
                idle.clone(),
                Some(
                    "Attempt 2 of 5 ended with ai-down; the next one is not due until 2026-11-30T00:54:20.000Z.",
                ),
            ),
            (
                &job,
                Facts { lane_paused: true, workers_of_kind: 0, ahead: 3, ..idle.clone() },
                Some("The lane mail:high is paused."),
            ),
            (
                &job,
                Facts { workers_of_kind: 0, ahead: 9, ..idle.clone() },
                Some("None of the 2 workers runs the kind mail."),
            ),
            (&job, Facts { workers: 0, workers_of_kind: 0, ..idle.clone() }, Some("No worker is running.")),
            (
                &job,
                Facts { resource: Some("ai".into()), ahead: 3, ..idle.clone() },
                Some("It waits for the resource ai."),
            ),
            (
                &job,
                at(Gate::Owner(job.kind.clone()), false),
                Some("Its owner is at its limit: 2 of its jobs of the kind mail run at a time."),
            ),
            (
                &job,
                at(Gate::Owner(job.kind.clone()), true),
                Some(
                    "Its owner may start 10/min jobs of the kind mail: the next one not before 2026-11-30T00:53:26.000Z.",
                ),
            ),
            (
                &job,
                at(Gate::Resource("ai".into()), false),
                Some("It waits for the resource ai, of which there are 2 over all workers."),
            ),
            (
                &job,
                Facts {
                    stop: Some((Stop::asked(job.kind.clone(), Duration::from_secs(6)), Limit::default())),
                    ..idle.clone()
                },
                Some(
                    "Its service is left alone: no job of the kind mail starts before 2026-11-30T00:53:26.000Z.",
                ),
            ),
            (
                &job,
                Facts { resource: Some("handler.mail".into()), ahead: 3, ..idle.clone() },
                Some("All calls that may be made to its service at a time are being made."),
            ),
            (&job, Facts { ahead: 3, ..idle.clone() }, Some("A backlog of 3 jobs is ahead of it.")),
            (&job, Facts { ahead: 1000, ..idle }, Some("A backlog of 1000 jobs or more is ahead of it.")),
        ];
        for (job, facts, words) in cases {
            assert_eq!(why_waiting(job, &facts).as_deref(), words, "{facts:?}");
        }
    }
}
