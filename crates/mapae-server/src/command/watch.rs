//! Following one job's events until it has ended, over restarts of the server.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use tokio::time::Instant;

use super::segment;
use crate::client::{Call, Client};
use crate::output::Line;
use crate::trouble::{Exit, Trouble};

/// Waits between attempts to come back, doubling.
const RETRY: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(10));

/// How long a server may be gone before watching gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest event that is read, in bytes.
const EVENT_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Ended,
    TimedOut,
}

/// Calls `told` with every event of the job until it has ended or `timeout` has passed. Progress is shown
/// on a terminal.
pub(crate) async fn watch(
    client: &dyn Client,
    id: &str,
    timeout: Duration,
    mut told: impl FnMut(&Value) -> Result<(), Trouble>,
) -> Result<Until, Trouble> {
    let deadline = Instant::now() + timeout;
    let mut line = Line::default();
    let mut last_id: Option<String> = None;
    let mut gone_since: Option<Instant> = None;
    let mut wait = RETRY.0;
    loop {
        let mut call = Call::get(format!("/v1/jobs/{}/events", segment(id)));
        if let Some(last_id) = &last_id {
            call = call.header("last-event-id", last_id.clone());
        }
        let following = follow(client, call, |event| {
            gone_since = None;
            wait = RETRY.0;
            last_id = event.id.clone().or(last_id.take());
            match event.name.as_str() {
                "progress" => {
                    line.show(&progress(&event.data));
                    return Ok(());
                }
                "published" => return Ok(()),
                _ => {}
            }
            line.clear();
            told(&event.data)
        });
        match tokio::time::timeout_at(deadline, following).await {
            Err(_) => return Ok(Until::TimedOut),
            // The server ends the stream only when it stops, or when the job has ended.
            Ok(Ok(())) if ended(client, id).await.unwrap_or(false) => return Ok(Until::Ended),
            Ok(Ok(())) => {}
            Ok(Err(trouble)) if !matches!(trouble.exit, Exit::TryAgain | Exit::Unavailable) => {
                return Err(trouble);
            }
            Ok(Err(trouble)) => {
                let since = *gone_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(trouble);
                }
            }
        }
        line.show("The connection was lost; trying again.");
        if tokio::time::timeout_at(deadline, tokio::time::sleep(wait)).await.is_err() {
            return Ok(Until::TimedOut);
        }
        wait = (wait * 2).min(RETRY.1);
    }
}

async fn ended(client: &dyn Client, id: &str) -> Result<bool, Trouble> {
    let job = client.json(Call::get(format!("/v1/jobs/{}", segment(id)))).await?;
    Ok(job["finished_at"].is_string())
}

fn progress(data: &Value) -> String {
    let progress = &data["progress"];
    let stage = progress["stage"].as_str().unwrap_or_default();
    match (progress["done"].as_u64(), progress["of"].as_u64()) {
        (Some(done), Some(of)) if of > 0 => format!("{stage} {done}/{of}"),
        _ => format!("{stage} …"),
    }
}

/// One event of a stream.
pub(crate) struct Event {
    pub id: Option<String>,
    pub name: String,
    pub data: Value,
}

/// Reads a stream of events to its end.
pub(crate) async fn follow(
    client: &dyn Client,
    call: Call,
    mut told: impl FnMut(Event) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut answer = client.ask(call.header("accept", "text/event-stream")).await?;
    let mut buffer = Vec::new();
    let mut event = Raw::default();
    while let Some(chunk) = answer.body.next().await {
        buffer.extend_from_slice(&chunk.map_err(|_| crate::client::cut_off())?);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(event) = event.line(line.trim_end_matches(['\n', '\r'])) {
                told(event)?;
            }
        }
        if buffer.len() > EVENT_BYTES_MAX {
            return Err(Trouble::new(
                Exit::Unavailable,
                "not-mapae",
                "What answered is not mapae.",
                "check --url",
            ));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Raw {
    id: Option<String>,
    name: String,
    data: String,
}

impl Raw {
    /// Takes a line; an empty one ends the event.
    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let raw = std::mem::take(self);
            let data = serde_json::from_str(&raw.data).ok()?;
            return Some(Event { id: raw.id, name: raw.name, data });
        }
        let (field, value) = line.split_once(':')?;
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "event" => self.name = value.to_owned(),
            "data" => self.data.push_str(value),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_line_by_line_and_comments_are_none() {
        let mut raw = Raw::default();
        let lines = ["", ": alive", "", "id: 0-7", "event: claimed", "data: {\"a\":1}", ""];
        let events: Vec<Event> = lines.iter().filter_map(|line| raw.line(line)).collect();
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].id.as_deref(), events[0].name.as_str()), (Some("0-7"), "claimed"));
        assert_eq!(events[0].data["a"], 1);
    }
}
