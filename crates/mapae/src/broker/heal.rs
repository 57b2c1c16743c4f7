//! Publishing where a lane's place may be missing: it is made, and what was refused for it is tried once more.

use async_trait::async_trait;

use super::contract::{Broker, BrokerError, PUBLISH_PATIENCE, Pointer, Published};
use crate::job::name::Lane;

/// A broker whose lanes have places of their own, which may be lost: a stream, a queue, a topic.
#[async_trait]
pub(super) trait Places: Broker {
    /// The answers in order, at the first try: what has no place is refused as [`BrokerError::Topology`].
    async fn try_publish(&self, pointers: &[&(Lane, Pointer)]) -> Vec<Published>;
}

/// As [`Broker::publish`] asks for it.
pub(super) async fn publish(broker: &impl Places, pointers: &[(Lane, Pointer)]) -> Vec<Published> {
    let publishing = publish_or_heal(broker, pointers);
    tokio::time::timeout(PUBLISH_PATIENCE, publishing)
        .await
        .unwrap_or_else(|_| pointers.iter().map(|_| Published::Unknown).collect())
}

async fn publish_or_heal(broker: &impl Places, pointers: &[(Lane, Pointer)]) -> Vec<Published> {
    let all: Vec<&(Lane, Pointer)> = pointers.iter().collect();
    let mut answers = broker.try_publish(&all).await;
    let missing = |answer: &Published| matches!(answer, Published::Refused(BrokerError::Topology(_)));
    let missed: Vec<usize> = (0..answers.len()).filter(|at| missing(&answers[*at])).collect();
    if missed.is_empty() {
        return answers;
    }
    let mut lanes: Vec<Lane> = missed.iter().map(|at| pointers[*at].0.clone()).collect();
    lanes.sort_unstable();
    lanes.dedup();
    if broker.ensure(&lanes).await.is_ok() {
        let again: Vec<&(Lane, Pointer)> = missed.iter().map(|at| &pointers[*at]).collect();
        for (at, answer) in missed.into_iter().zip(broker.try_publish(&again).await) {
            answers[at] = answer;
        }
    }
    answers
}
