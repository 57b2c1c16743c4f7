//! Clients: they ask until they are answered, and write down every answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Answer, call};
use crate::trouble::{Outcome, Trouble};
use crate::wait::{PATIENCE, until};

/// The key that every door lets in.
pub(crate) const KEY: &str = "faults";

/// The kind whose work the service does.
pub(crate) const KIND: &str = "fault.call";

/// Whose the jobs are.
pub(crate) const OWNER: &str = "faults";

/// A caller's own patience with one request.
const REQUEST: Duration = Duration::from_secs(20);

/// Between two requests for the same.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// What is asked for, under its idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: String,
    /// A job's parameters.
    pub(crate) params: Value,
    /// With this file, which the job works on.
    pub(crate) file: Option<Vec<u8>>,
    /// The file's name, where it is a document to be analysed.
    document: Option<String>,
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Accepted { key: String, id: String },
    Deleted { id: String },
}

#[derive(Clone, Default)]
pub(crate) struct Client {
    log: Arc<Mutex<Vec<Told>>>,
}

impl Ask {
    pub(crate) fn new(key: impl Into<String>) -> Self {
        let key = key.into();
        Self { params: json!({ "key": key }), key, file: None, document: None }
    }

    pub(crate) fn document(name: &str, text: String) -> Self {
        Self { file: Some(text.into_bytes()), document: Some(name.to_owned()), ..Self::new(name) }
    }

    pub(crate) fn large(mut self) -> Self {
        self.params["large"] = true.into();
        self
    }

    pub(crate) fn with_bytes(mut self, bytes: usize) -> Self {
        self.file = Some(vec![b'x'; bytes]);
        self
    }

    pub(crate) fn with_file(mut self) -> Self {
        self.file = Some(format!("the file of {}, ", self.key).repeat(5_000).into_bytes());
        self
    }
}

impl Client {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Told>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log(&self) -> Vec<Told> {
        self.lock().clone()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        let accepted = self.log().into_iter().filter_map(|told| match told {
            Told::Accepted { id, .. } => Some(id),
            Told::Deleted { .. } => None,
        });
        let mut ids: Vec<String> = accepted.collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Asks once. `None`: it is not known what became of it.
    pub(crate) async fn ask(&self, door: &str, ask: &Ask) -> Option<String> {
        let answer = self.answer(door, ask).await?;
        if !matches!(answer.status, 200 | 202) {
            return None;
        }
        let body: Value = serde_json::from_str(&answer.body).ok()?;
        let id = body["id"].as_str()?.to_owned();
        self.lock().push(Told::Accepted { key: ask.key.clone(), id: id.clone() });
        Some(id)
    }

    /// The answer to asking once, whatever it says; nothing of it is written down.
    pub(crate) async fn answer(&self, door: &str, ask: &Ask) -> Option<Answer> {
        let authorization = format!("Bearer {KEY}");
        let mut headers = vec![
            ("authorization", authorization.as_str()),
            ("idempotency-key", ask.key.as_str()),
            ("content-type", "application/json"),
        ];
        let answered = match &ask.file {
            Some(bytes) => {
                headers[2].1 = "application/octet-stream";
                let path = match &ask.document {
                    Some(name) => format!("/v1/documents?name={name}&owner={OWNER}"),
                    None => format!("/v1/documents?kind={KIND}&name=file.txt&owner={OWNER}"),
                };
                call(door, "POST", &path, &headers, bytes, REQUEST).await
            }
            None => {
                let body = json!({ "kind": KIND, "params": ask.params, "owner": OWNER });
                call(door, "POST", "/v1/jobs", &headers, body.to_string().as_bytes(), REQUEST).await
            }
        };
        answered.ok()
    }

    /// Asks until it is answered.
    pub(crate) async fn insist(&self, door: &str, ask: &Ask) -> Outcome<String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(id) = self.ask(door, ask).await {
                return Ok(id);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Trouble::broken(format!("{} is not accepted in time at {door}", ask.key)))
    }

    /// What the job gave, where it gave anything.
    pub(crate) async fn result(&self, door: &str, id: &str) -> Option<String> {
        let authorization = format!("Bearer {KEY}");
        let headers = [("authorization", authorization.as_str())];
        let answer =
            call(door, "GET", &format!("/v1/jobs/{id}/result"), &headers, &[], REQUEST).await.ok()?;
        (answer.status == 200).then_some(answer.body)
    }

    /// The status of the answer to a request without a body.
    pub(crate) async fn status(&self, door: &str, method: &str, path: &str) -> Option<u16> {
        let authorization = format!("Bearer {KEY}");
        let headers = [("authorization", authorization.as_str())];
        call(door, method, path, &headers, &[], REQUEST).await.ok().map(|answer| answer.status)
    }

    /// Whoever has ended stays as it is: a cancel is refused.
    pub(crate) async fn cancel_too_late(&self, door: &str) -> Outcome<()> {
        for id in self.ids() {
            let path = format!("/v1/jobs/{id}/cancel");
            let mut answer = None;
            until(PATIENCE, async || {
                answer = self.status(door, "POST", &path).await;
                answer.is_some_and(|status| status < 500)
            })
            .await;
            if !matches!(answer, Some(404 | 409)) {
                return Err(Trouble::broken(format!(
                    "a cancel of a job that has ended is answered {answer:?}"
                )));
            }
        }
        Ok(())
    }
}
