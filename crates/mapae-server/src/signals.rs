//! Being told to stop: the first signal asks, the second one does not.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What a shell reports for a process that ended by an interrupt.
const INTERRUPTED: i32 = 130;

/// Cancelled at the first SIGTERM or SIGINT. The second ends the process at once; leases then end by
/// themselves.
pub(crate) fn stop_token() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if told.is_cancelled() {
                std::process::exit(INTERRUPTED);
            }
            told.cancel();
        }
    });
    Ok(token)
}
