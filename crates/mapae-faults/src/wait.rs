//! Waiting for a state, never for luck.

use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

const LOOK: Duration = Duration::from_millis(25);

/// Until `done` or `patience` is over; whether it was done.
pub(crate) async fn until(patience: Duration, mut done: impl AsyncFnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if done().await {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
}
