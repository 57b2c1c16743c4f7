//! When a pointer that nobody claimed is taken for lost.
//!
//! One measure answers both how long a lane's pointers wait and whether its backlog explains that a row
//! waits: the age of the pointer that the broker has had unread for longest. A row that was rung before that
//! one was published is not behind it. So it is rung again once it was rung longer ago than
//! `max(rescan_after, 2 × that age)`; the double leaves time to what a worker has read and not yet begun.
//!
//! A broker that only counts what it has unread tells the same with the rows' help: of a lane's pointers it has
//! the latest ones, so that the oldest of these is as old as the row that was rung so many rings ago.
//!
//! A lost row is in no broker, so it cannot raise its own wait; a broker that was emptied explains nothing;
//! and where pointers are read, their age falls again, so that a lost row waits for twice what others wait.

use std::time::Duration;

use tracing::debug;

use crate::broker::contract::BrokerError;
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
    let lanes: Vec<Lane> = parts.store.windows(1).await?.into_iter().map(|window| window.lane).collect();
    if lanes.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let unread = match tokio::time::timeout(ASK_PATIENCE, unread(parts, &lanes)).await {
        Ok(Ok(unread)) => unread,
        Ok(Err(error)) => {
            debug!(?error, "the broker does not tell how long its pointers wait");
            return Ok(None);
        }
        Err(_) => {
            debug!("the broker does not tell in time how long its pointers wait");
            return Ok(None);
        }
    };
    let counted = counted(&lanes, &unread);
    let ago =
        if counted.is_empty() { Vec::new() } else { parts.store.rung_ago(&counted, rescan_after).await? };
    let mut ago = ago.into_iter();
    let told = lanes.into_iter().zip(unread).filter_map(|(lane, unread)| {
        let waited = match unread {
            Unread::For(waited) => waited,
            Unread::Count(_) => ago.next()?,
            Unread::Unknown => return None,
        };
        Some((lane, beyond(rescan_after, waited)?))
    });
    Ok(Some(told.collect()))
}

/// What a broker tells of a lane's unread pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// The oldest has waited for so long.
    For(Duration),
    /// There are so many.
    Count(u64),
    /// It cannot tell, and so explains nothing.
    Unknown,
}

async fn unread(parts: &Parts, lanes: &[Lane]) -> Result<Vec<Unread>, BrokerError> {
    let mut told = Vec::with_capacity(lanes.len());
    for (lane, waited) in lanes.iter().zip(parts.broker.oldest_unread(lanes).await?) {
        told.push(match waited {
            Some(waited) => Unread::For(waited),
            None => {
                let depth = parts.broker.stats(lane).await?.depth;
                depth.map_or(Unread::Unknown, |depth| Unread::Count(depth.value))
            }
        });
    }
    Ok(told)
}

/// The lanes whose rows have to say how old so many pointers are, in order.
fn counted(lanes: &[Lane], unread: &[Unread]) -> Vec<(Lane, usize)> {
    let count = |(lane, unread): (&Lane, &Unread)| match unread {
        Unread::Count(count) => Some((lane.clone(), usize::try_from(*count).unwrap_or(usize::MAX))),
        Unread::For(_) | Unread::Unknown => None,
    };
    lanes.iter().zip(unread).filter_map(count).collect()
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
    fn the_rows_are_asked_only_where_the_broker_counts() {
        let lanes: Vec<Lane> = ["a", "b", "c", "d"].map(|lane| lane.parse().unwrap()).into();
        let unread = [Unread::For(MINUTE), Unread::Count(3), Unread::Unknown, Unread::Count(0)];
        assert_eq!(counted(&lanes, &unread), [(lanes[1].clone(), 3), (lanes[3].clone(), 0)]);
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
