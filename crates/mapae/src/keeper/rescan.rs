//! When a pointer that nobody claimed is taken for lost.
//!
//! One measure answers both how long a lane's pointers wait and whether its backlog explains that a row
//! waits: the age of the pointer that the broker has had unread for longest. A row that was rung before that
//! one was published is not behind it. So it is rung again once it was rung longer ago than
//! `max(rescan_after, 2 × that age)`; the double leaves time to what a worker has read and not yet begun.
//!
//! A lost row is in no broker, so it cannot raise its own wait; a broker that was emptied explains nothing;
//! and where pointers are read, their age falls again, so that a lost row waits for twice what others wait.

use std::time::Duration;

use tracing::debug;

use crate::broker::contract::Source;
use crate::job::name::Lane;
use crate::store::contract::StoreError;
use crate::worker::Parts;

/// The longest a broker is asked for.
const ASK_PATIENCE: Duration = Duration::from_secs(2);

/// For so long a broker that does not answer is left alone: what it does not answer it would not take either,
/// and each vain ring makes a row wait longer for the next. After that it explains nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// No wait longer than this is believed: a clock may be wrong.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The lanes in which a rung row is left alone for some time beyond its age, and for how long.
pub(super) type Patience = Vec<(Lane, Duration)>;

/// What the broker's backlog explains, or `None` where the broker does not answer.
pub(super) async fn patience(parts: &Parts, rescan_after: Duration) -> Result<Option<Patience>, StoreError> {
    if parts.broker.caps().source == Source::Rows {
        return Ok(Some(Vec::new()));
    }
    let lanes: Vec<Lane> = parts.store.windows(1).await?.into_iter().map(|window| window.lane).collect();
    if lanes.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let waits = match tokio::time::timeout(ASK_PATIENCE, parts.broker.oldest_unread(&lanes)).await {
        Ok(Ok(waits)) => waits,
        Ok(Err(error)) => {
            debug!(?error, "the broker does not tell how long its pointers wait");
            return Ok(None);
        }
        Err(_) => {
            debug!("the broker does not tell in time how long its pointers wait");
            return Ok(None);
        }
    };
    let told = lanes.into_iter().zip(waits);
    Ok(Some(told.filter_map(|(lane, waited)| Some((lane, beyond(rescan_after, waited?)?))).collect()))
}

/// Whether rows are rung again now, and with which patience, where the broker has been silent for so long.
pub(super) fn decide(told: Option<Patience>, silence: Duration) -> Option<Patience> {
    told.or_else(|| (silence >= SILENCE_MAX).then(Vec::new))
}

/// How long beyond `rescan_after` a row is left alone where pointers have waited for so long.
fn beyond(rescan_after: Duration, waited: Duration) -> Option<Duration> {
    let patience = (2 * waited.min(WAIT_MAX)).saturating_sub(rescan_after);
    (!patience.is_zero()).then_some(patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_row_is_rung_again_after_its_age_or_twice_the_wait_whichever_is_longer() {
        let age = |waited| MINUTE + beyond(MINUTE, waited).unwrap_or_default();
        assert_eq!(age(Duration::ZERO), MINUTE, "nothing waits");
        assert_eq!(age(MINUTE / 2), MINUTE);
        assert_eq!(age(10 * MINUTE), 20 * MINUTE);
    }

    #[test]
    fn a_broker_that_does_not_answer_is_left_alone_and_not_for_ever() {
        let told = vec![("k".parse().unwrap(), MINUTE)];
        assert_eq!(decide(Some(told.clone()), Duration::ZERO), Some(told));
        assert_eq!(decide(None, Duration::from_secs(59)), None);
        assert_eq!(decide(None, MINUTE), Some(Vec::new()), "it explains nothing");
    }

    #[test]
    fn a_wait_that_cannot_be_true_is_not_believed() {
        assert_eq!(beyond(Duration::ZERO, Duration::MAX), Some(2 * WAIT_MAX));
        assert_eq!(beyond(Duration::MAX, Duration::MAX), None);
    }
}
