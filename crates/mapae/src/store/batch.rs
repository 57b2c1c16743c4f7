//! Group commit without a timer: whatever waits when the last round trip returned goes into the next.
//!
//! Under no load a request travels alone and at once; under load many share one commit. Nobody waits
//! for a batch to fill.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::contract::{PATIENCE, StoreError};
use crate::yielding::yield_to_others;

type Waiting<I, O> = (I, oneshot::Sender<Result<O, StoreError>>);
type Answers<O> = Pin<Box<dyn Future<Output = Result<Vec<O>, StoreError>> + Send>>;

/// Requests of one sort, answered in batches.
pub(super) struct Batcher<I, O> {
    sender: mpsc::Sender<Waiting<I, O>>,
}

impl<I: Clone + Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// `run` answers each request of a batch in order, or fails for all of them, having done none. Up
    /// to `lanes` batches are under way at a time, so that one's commit overlaps another's.
    pub(super) fn spawn(
        lanes: usize,
        batch_max: usize,
        run: impl Fn(Vec<I>) -> Answers<O> + Send + Sync + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::channel::<Waiting<I, O>>(batch_max * 2);
        let receiver = Arc::new(Mutex::new(receiver));
        let run = Arc::new(run);
        for _ in 0..lanes {
            let (receiver, run) = (receiver.clone(), run.clone());
            tokio::spawn(async move {
                loop {
                    let mut batch = Vec::new();
                    if !gather(&receiver, &mut batch, batch_max).await {
                        return;
                    }
                    // A panic costs this batch its answers and nothing else.
                    let _ = AssertUnwindSafe(answer(&*run, batch)).catch_unwind().await;
                }
            });
        }
        Self { sender }
    }

    /// The answer to one request, once the batch it travelled in is committed; within [`PATIENCE`], or unknown.
    pub(super) async fn ask(&self, request: I) -> Result<O, StoreError> {
        let (answer, answered) = oneshot::channel();
        let asking = async {
            self.sender.send((request, answer)).await.map_err(|_| closed())?;
            answered.await.map_err(|_| closed())?
        };
        let late = |_| Err(StoreError::Unavailable("no answer in time".into()));
        tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(late)
    }
}

/// Whatever waits, and what is asked for at the same moment. False when nobody can ask any more.
async fn gather<T>(receiver: &Mutex<mpsc::Receiver<T>>, batch: &mut Vec<T>, batch_max: usize) -> bool {
    let mut receiver = receiver.lock().await;
    if receiver.recv_many(batch, batch_max).await == 0 {
        return false;
    }
    yield_to_others().await;
    while batch.len() < batch_max {
        let Ok(more) = receiver.try_recv() else { break };
        batch.push(more);
    }
    true
}

async fn answer<I: Clone, O>(run: &(impl Fn(Vec<I>) -> Answers<O> + ?Sized), batch: Vec<Waiting<I, O>>) {
    let (requests, waiting): (Vec<I>, Vec<_>) = batch.into_iter().unzip();
    match run(requests.clone()).await {
        Ok(answers) => {
            for (answer, waiting) in answers.into_iter().zip(waiting) {
                // Whoever asked may have given up; the answer stands all the same.
                let _ = waiting.send(Ok(answer));
            }
        }
        // One request that the database refuses, or whose row another holds, must not fail its neighbours: each
        // goes alone.
        Err(StoreError::Broken(_) | StoreError::Locked(_)) if requests.len() > 1 => {
            for (request, waiting) in requests.into_iter().zip(waiting) {
                let alone = run(vec![request]).await;
                let _ = waiting.send(alone.and_then(|mut answers| answers.pop().ok_or_else(closed)));
            }
        }
        Err(error) => {
            let mut error = Some(error);
            for waiting in waiting {
                let _ = waiting.send(Err(error.take().unwrap_or_else(shared)));
            }
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

fn shared() -> StoreError {
    StoreError::Unavailable("the batch this request travelled in was not committed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scheduler of many threads takes first whoever was woken last: without yielding that is the batcher.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_is_asked_at_one_moment_travels_together() {
        let batches = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = batches.clone();
        let batcher = Arc::new(Batcher::spawn(1, 100, move |batch: Vec<u32>| {
            seen.lock().expect("no panic").push(batch.len());
            Box::pin(async move { Ok(batch) })
        }));
        let asked = tokio::spawn(async move {
            let asking = (0..20).map(|n| {
                let batcher = batcher.clone();
                tokio::spawn(async move { batcher.ask(n).await })
            });
            futures_util::future::join_all(asking.collect::<Vec<_>>()).await
        });
        assert!(asked.await.expect("no panic").into_iter().all(|answer| matches!(answer, Ok(Ok(_)))));
        assert_eq!(*batches.lock().expect("no panic"), [20]);
    }

    #[tokio::test]
    async fn one_bad_request_does_not_fail_its_neighbours() {
        let batcher = Batcher::spawn(1, 100, |batch: Vec<u32>| {
            Box::pin(async move {
                if batch.contains(&13) { Err(StoreError::Broken("13".into())) } else { Ok(batch) }
            })
        });
        let answers = futures_util::future::join_all((0..20).map(|n| batcher.ask(n))).await;
        for (n, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.ok(), (n != 13).then_some(n as u32), "{n}");
        }
    }
}
