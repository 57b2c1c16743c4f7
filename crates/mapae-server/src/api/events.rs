//! Events as they happen, over SSE: of one job from its beginning, or of all jobs from now on.
//!
//! An event's id is its position in the store, so a client that comes back with `Last-Event-ID` goes on
//! where it was, whatever server it reaches and however often that was restarted. Progress is not kept, nor that
//! a waiting job's pointer has been handed out (`published`): they have no id and are told as they are when
//! somebody looks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use mapae::job::batch::BatchState;
use mapae::job::event::{Event, Position};
use mapae::job::record::Progress;
use mapae::store::contract::{EventFilter, Scope, StoreError};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use utoipa::IntoParams;

use super::Api;
use super::auth::{Caller, Identity, JobsRead};
use super::extract::{Id, Query};
use super::feed::Page;
use super::problem::{self, Problem, ProblemBody};
use crate::runtime::Runtime;
use std::sync::Arc;

/// Events read at a time.
const BATCH: usize = 200;

/// How often a job's progress is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How often a stream of all events on which nothing happens asks whether its key is still good.
const CHECK: Duration = Duration::from_secs(2);

/// How long a stream rests when the database does not answer.
const TROUBLED: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct From {
    /// As `Last-Event-ID`, for clients that cannot set a header; `0-0` is the beginning.
    after: Option<String>,
    /// `false` ends the stream once everything so far has been told.
    follow: Option<bool>,
}

/// Events of one job, from its first; the stream ends when the job has.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/events", tag = "jobs",
    params(("id" = String, Path), From, ("Last-Event-ID" = Option<String>, Header)),
    security(("key" = ["jobs:read"])),
    responses(
        (status = 200, content_type = "text/event-stream", description = "CloudEvents, one a message."),
        (status = 204, description = "The job has ended and all its events have been told: do not come back."),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn of_job(
    State(api): State<Api>,
    caller: Caller<JobsRead>,
    Id(id): Id,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = resume(&from, &headers)?;
    let scope = caller.scope();
    let job = caller.runtime.store.job(&scope, id).await?.ok_or(&problem::JOB_NOT_FOUND)?;
    let filter = EventFilter { job: Some(id), after: after.unwrap_or_default() };
    // Nothing after that will ever come of a job that has ended.
    if after.is_some()
        && job.state.is_terminal()
        && caller.runtime.store.events(&scope, &filter, 1).await?.is_empty()
    {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    stream(api, caller, filter, from.follow.unwrap_or(true))
}

/// Events of all jobs that the caller may see, from now on.
#[utoipa::path(
    get, path = "/v1/events", tag = "jobs", params(From, ("Last-Event-ID" = Option<String>, Header)),
    security(("key" = ["jobs:read"])),
    responses(
        (status = 200, content_type = "text/event-stream", description = "CloudEvents, one a message."),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn of_all(
    State(api): State<Api>,
    caller: Caller<JobsRead>,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = match resume(&from, &headers)? {
        Some(after) => after,
        None => caller.runtime.store.last_position().await?,
    };
    stream(api, caller, EventFilter { job: None, after }, from.follow.unwrap_or(true))
}

fn resume(from: &From, headers: &HeaderMap) -> Result<Option<Position>, Problem> {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    let Some(text) = header.or(from.after.as_deref()).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|()| (&problem::EVENT_ID_INVALID).into())
}

/// One client that follows.
struct Following {
    api: Api,
    runtime: Arc<Runtime>,
    identity: Identity,
    filter: EventFilter,
    follow: bool,
    waiting: VecDeque<Event>,
    progress: Option<Progress>,
    /// The last handing out of the job's pointer that was told.
    hint: u32,
    /// The last of a job's events that was told.
    sequence: u64,
    feed: watch::Receiver<u64>,
    /// What is read for all.
    pages: broadcast::Receiver<Arc<Page>>,
    /// All events up to `filter.after` have been told: what comes now comes by those pages.
    caught_up: bool,
    _place: OwnedSemaphorePermit,
}

fn stream(
    api: Api,
    caller: Caller<JobsRead>,
    filter: EventFilter,
    follow: bool,
) -> Result<Response, Problem> {
    let following = Following {
        _place: api.admission.stream()?,
        feed: api.feed.follow(),
        pages: api.feed.pages(),
        caught_up: false,
        api,
        runtime: caller.runtime,
        identity: caller.identity,
        filter,
        follow,
        waiting: VecDeque::new(),
        progress: None,
        hint: 0,
        sequence: 0,
    };
    let events = unfold(following, |mut following| async move {
        let sent = following.next().await?;
        Some((Ok::<_, Infallible>(sent), following))
    });
    let alive = KeepAlive::new().interval(Duration::from_secs(15));
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    // Proxies that collect answers would keep events back.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    Ok(response)
}

impl Following {
    /// The next message; `None` ends the stream.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.sequence = event.sequence;
                return Some(message(&event));
            }
            if self.api.stop.is_cancelled()
                || !self.identity.still_valid(&self.api, &self.runtime.store).await
            {
                return None;
            }
            if self.caught_up {
                tokio::select! {
                    page = self.pages.recv() => self.take(page),
                    () = self.api.stop.cancelled() => return None,
                    () = tokio::time::sleep(CHECK) => {}
                }
                continue;
            }
            self.feed.mark_unchanged();
            match self.look().await {
                Ok(Look::Told(sent)) => return Some(*sent),
                Ok(Look::Over) => return None,
                Ok(Look::Events) => {}
                Ok(Look::Nothing) if !self.follow => return None,
                Ok(Look::Nothing) if self.filter.job.is_none() => self.caught_up = true,
                Ok(Look::Nothing) => {
                    tokio::select! {
                        _ = self.feed.changed() => {}
                        () = self.api.stop.cancelled() => return None,
                        () = tokio::time::sleep(LOOK) => {}
                    }
                }
                // The client keeps its place; the database comes back.
                Err(_) => tokio::time::sleep(TROUBLED).await,
            }
        }
    }

    /// Takes over what was read for all. After a gap, or where it was too slow, it reads for itself again.
    fn take(&mut self, page: Result<Arc<Page>, broadcast::error::RecvError>) {
        let page = match page {
            Ok(page) if page.after <= self.filter.after => page,
            _ => {
                self.caught_up = false;
                return;
            }
        };
        let mine = |event: &&Event| {
            event.position > self.filter.after
                && self.identity.owner.as_ref().is_none_or(|owner| *owner == event.owner)
        };
        self.waiting.extend(page.events.iter().filter(mine).cloned());
        self.filter.after = self.filter.after.max(page.to);
    }

    async fn look(&mut self) -> Result<Look, StoreError> {
        let (store, scope) = (&self.runtime.store, self.identity.scope());
        let Some(id) = self.filter.job else {
            // Whatever stands at or before this is among what is read next.
            let seen = store.last_position().await?;
            return Ok(match self.read(&scope).await? {
                true => Look::Events,
                false => {
                    self.filter.after = seen;
                    Look::Nothing
                }
            });
        };
        // The job first: what it says is then never newer than the events.
        let Some(job) = store.job(&scope, id).await? else { return Ok(Look::Over) };
        if self.sequence < job.sequence {
            if self.read(&scope).await? {
                return Ok(Look::Events);
            }
            // They were told before this stream began.
            self.sequence = job.sequence;
        }
        if job.state.is_terminal() && self.sequence >= job.sequence {
            return Ok(Look::Over);
        }
        if job.hint > self.hint {
            self.hint = job.hint;
            let data = json!({ "job": job.id, "published": { "times": job.hint } });
            let sent = Sent::default().event("published").data(data.to_string());
            return Ok(Look::Told(Box::new(sent)));
        }
        self.hint = job.hint;
        let progress = match job.is_awaiting() {
            true => self.runtime.store.batch(&scope, id).await?.as_ref().map(BatchState::progress),
            false => job.progress,
        };
        if !job.state.is_terminal() && progress.is_some() && progress != self.progress {
            self.progress = progress;
            let data = json!({ "job": job.id, "progress": self.progress });
            let sent = Sent::default().event("progress").data(data.to_string());
            return Ok(Look::Told(Box::new(sent)));
        }
        Ok(Look::Nothing)
    }

    /// Whether there was something after what has been told; it waits to be told now.
    async fn read(&mut self, scope: &Scope) -> Result<bool, StoreError> {
        let events = self.runtime.store.events(scope, &self.filter, BATCH).await?;
        let Some(last) = events.last() else { return Ok(false) };
        self.filter.after = last.position;
        self.waiting.extend(events);
        Ok(true)
    }
}

enum Look {
    Events,
    Told(Box<Sent>),
    Nothing,
    Over,
}

fn message(event: &Event) -> Sent {
    Sent::default()
        .id(event.position.to_string())
        .event(event.event.as_str())
        .data(event.cloud_event("").to_string())
}
