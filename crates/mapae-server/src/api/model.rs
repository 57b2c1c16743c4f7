//! The JSON that goes out: jobs, lists, figures. What comes in stands beside the call that takes it.

use mapae::job::State;
use mapae::job::event::{Event, EventKind};
use mapae::job::follow::Followed;
use mapae::job::record::{Checkpoint, Job, Progress, Source};
use mapae::job::timestamp::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// A job as its owner sees it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub(super) struct JobBody {
    /// UUIDv7.
    pub id: String,
    pub owner: String,
    #[schema(example = "document.analyze")]
    pub kind: String,
    /// `pending`, `running`, `succeeded`, `failed`, `cancelled` or `stale`.
    pub state: &'static str,
    /// The state in finer words: a pending job is `ready`, `scheduled`, in
    /// `backoff`, or `awaiting` the parts of its batch.
    pub phase: &'static str,
    pub attempt: u32,
    pub max_attempts: u32,
    pub priority: u8,
    pub created_at: String,
    pub due_at: String,
    pub deadline: Option<String>,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    /// Its running worker has been asked to stop it.
    pub cancel_requested: bool,
    /// How often it was sent back to work after it had failed.
    pub redrives: u32,
    /// How often its handler put it off.
    pub snoozed: u32,
    pub progress: Option<ProgressBody>,
    /// Left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<StageBody>>,
    /// The last failure, kept while later attempts run.
    pub failure: Option<FailureBody>,
    /// Who looks after it, while it is a dead letter.
    pub assignee: Option<String>,
    /// One sentence; `null` where it is not waiting, and in lists. The answer to a submission does not count what is
    /// ahead of it.
    pub why_waiting: Option<String>,
    pub source: Option<SourceBody>,
    /// Left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Vec<TimelineEntry>>,
    /// The job that this one comes after. It may be gone by now.
    pub parent: Option<String>,
    /// The batch that it is a part of. Left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// What comes after it, by how it ends. Left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_ups: Option<Vec<FollowUpBody>>,
    /// True in the answer to a submission that is the same work as this job, which was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<bool>,
    pub links: Links,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FollowUp)]
pub(super) struct FollowUpBody {
    /// `succeeded`, `failed`, `stale` or `cancelled`.
    pub after: &'static str,
    pub kind: String,
    /// The job, once it was made.
    pub job: Option<String>,
    pub link: Option<String>,
}

impl FollowUpBody {
    pub(super) fn of(followed: &Followed) -> Self {
        let job = followed.made.map(|(job, _)| job.to_string());
        let link = job.as_ref().map(|job| format!("/v1/jobs/{job}"));
        Self { after: followed.after.as_str(), kind: followed.kind.to_string(), job, link }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub(super) struct ProgressBody {
    pub stage: String,
    pub done: u64,
    pub of: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stage)]
pub(super) struct StageBody {
    pub name: String,
    /// `done`, `running`, or `stopped` where the job ended or waits in the middle of it.
    pub state: &'static str,
    /// How long it took, once done.
    pub seconds: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
pub(super) struct FailureBody {
    pub code: String,
    /// `retryable`, `terminal`, `stale`, `lost`, `timeout` or `cancelled`.
    #[schema(value_type = String)]
    pub class: &'static str,
    pub message: String,
    pub attempt: u32,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Source)]
pub(super) struct SourceBody {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
    pub media_type: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TimelineEntry {
    pub at: String,
    pub event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// A failure's code, a stage's name, or the kind of the job that came after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The job that came after, where the event is `followed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Links {
    #[serde(rename = "self")]
    pub itself: String,
    pub events: String,
    pub result: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// One page of jobs. The `Link` header has the address of the next page.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobList {
    pub items: Vec<JobBody>,
    /// For the next page; `null` on the last.
    pub cursor: Option<String>,
}

impl SourceBody {
    pub(super) fn of(source: &Source) -> Self {
        Self {
            name: source.name.clone(),
            bytes: source.bytes,
            sha256: source.sha256.clone(),
            media_type: source.media_type.clone(),
        }
    }
}

impl ProgressBody {
    pub(super) fn of(progress: &Progress) -> Self {
        Self { stage: progress.stage.clone(), done: progress.done, of: progress.of }
    }
}

impl JobBody {
    /// Without what takes more queries: as lists show it.
    pub(super) fn brief(job: &Job, now: Timestamp) -> Self {
        let this = format!("/v1/jobs/{}", job.id);
        Self {
            id: job.id.to_string(),
            owner: job.owner.to_string(),
            kind: job.kind.to_string(),
            state: job.state.as_str(),
            phase: job.phase(now),
            attempt: job.attempt,
            max_attempts: job.retry.attempts,
            priority: job.priority.get(),
            created_at: job.created_at.to_string(),
            due_at: job.due_at.to_string(),
            deadline: job.deadline.map(|at| at.to_string()),
            started_at: job.started_at.map(|at| at.to_string()),
            finished_at: job.finished_at.map(|at| at.to_string()),
            cancel_requested: job.cancel_asked,
            redrives: job.redrives,
            snoozed: job.snoozed,
            progress: job.progress.as_ref().map(ProgressBody::of),
            stages: None,
            failure: job.failure.as_ref().map(|failure| FailureBody {
                code: failure.code.clone(),
                class: failure.class.as_str(),
                message: failure.message.clone(),
                attempt: failure.attempt,
            }),
            assignee: job.assignee.as_ref().map(ToString::to_string),
            why_waiting: None,
            source: job.source.as_ref().map(SourceBody::of),
            timeline: None,
            parent: job.parent.map(|parent| parent.to_string()),
            batch: None,
            follow_ups: None,
            duplicate: None,
            links: Links {
                events: format!("{this}/events"),
                result: format!("{this}/result"),
                parent: job.parent.map(|parent| format!("/v1/jobs/{parent}")),
                itself: this,
            },
        }
    }
}

/// The stages done, and the one that progress was last told of.
pub(super) fn stages(job: &Job, done: &[Checkpoint]) -> Vec<StageBody> {
    let mut stages: Vec<StageBody> = done
        .iter()
        .map(|checkpoint| StageBody {
            name: checkpoint.stage.clone(),
            state: "done",
            seconds: Some(checkpoint.took.as_secs_f64()),
        })
        .collect();
    if let Some(progress) = &job.progress
        && !progress.stage.is_empty()
        && stages.iter().all(|stage| stage.name != progress.stage)
    {
        let state = if job.state == State::Running { "running" } else { "stopped" };
        stages.push(StageBody { name: progress.stage.clone(), state, seconds: None });
    }
    stages
}

impl TimelineEntry {
    /// How every timeline begins.
    pub(super) fn accepted(at: Timestamp) -> Self {
        Self {
            at: at.to_string(),
            event: EventKind::Accepted.as_str(),
            worker: None,
            attempt: None,
            code: None,
            job: None,
        }
    }
}

/// The job's events, and the jobs that came after it, each when it was made.
pub(super) fn timeline(events: &[Event], followed: &[Followed]) -> Vec<TimelineEntry> {
    let told = events.iter().map(|event| {
        let entry = TimelineEntry {
            at: event.at.to_string(),
            event: event.event.as_str(),
            worker: event.worker.clone(),
            attempt: Some(event.attempt).filter(|attempt| *attempt > 0),
            code: event.code.clone(),
            job: None,
        };
        (event.at, entry)
    });
    let made = followed.iter().filter_map(|followed| {
        let (job, at) = followed.made?;
        let entry = TimelineEntry {
            at: at.to_string(),
            event: "followed",
            worker: None,
            attempt: None,
            code: Some(followed.kind.to_string()),
            job: Some(job.to_string()),
        };
        Some((at, entry))
    });
    let mut entries: Vec<_> = told.chain(made).collect();
    // Both are in their order already; what was made at an end comes after it.
    entries.sort_by_key(|(at, _)| *at);
    entries.into_iter().map(|(_, entry)| entry).collect()
}
