//! The service that does the jobs' work. It writes down each call, and can keep its answers back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Larger than what is kept in a row.
const LARGE: usize = 300_000;

/// A call, as it came.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) job: String,
    pub(crate) attempt: i64,
}

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) address: String,
    calls: Arc<Mutex<Vec<Call>>>,
    /// Calls that come now are kept waiting.
    holding: watch::Sender<bool>,
    /// Calls that wait.
    held: watch::Sender<usize>,
    /// Counts the times that they were let go.
    released: watch::Sender<u64>,
}

impl Service {
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let service = Self {
            address: listener.local_addr()?.to_string(),
            calls: Arc::default(),
            holding: watch::Sender::new(false),
            held: watch::Sender::new(0),
            released: watch::Sender::new(0),
        };
        let router = Router::new().route("/", post(work)).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(service)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn hold(&self, hold: bool) {
        self.holding.send_replace(hold);
    }

    pub(crate) fn held(&self) -> usize {
        *self.held.borrow()
    }

    /// Lets all go that wait.
    pub(crate) fn release(&self) {
        self.released.send_modify(|times| *times += 1);
    }

    /// What was called so far is of a time that never was.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a call among those that wait, also where its caller is gone.
struct Held(watch::Sender<usize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.send_modify(|held| *held -= 1);
    }
}

async fn work(State(service): State<Service>, Json(asked): Json<Value>) -> Json<Value> {
    let attempt = asked["job"]["attempt"].as_i64().unwrap_or_default();
    let job = asked["job"]["id"].as_str().unwrap_or_default().to_owned();
    let number = {
        let mut calls = service.lock();
        calls.push(Call { job: job.clone(), attempt });
        calls.len()
    };
    if *service.holding.borrow() {
        let mut released = service.released.subscribe();
        service.held.send_modify(|held| *held += 1);
        let _held = Held(service.held.clone());
        let _ = released.changed().await;
    }
    let large = asked["params"]["large"].as_bool().unwrap_or_default();
    let padding = if large { "x".repeat(LARGE) } else { String::new() };
    Json(json!({ "job": job, "attempt": attempt, "call": number, "padding": padding }))
}
