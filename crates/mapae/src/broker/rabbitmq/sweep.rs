//! What the server put aside goes back to its lane.
//!
//! Mapae sets no limit on how often a message may come back, but somebody may have set one by a policy. Then the
//! server moves a message aside instead of deleting it, and here it goes on.

use lapin::options::{BasicAckOptions, BasicGetOptions, BasicNackOptions};
use lapin::types::AMQPValue;

use super::link::{Link, Problem};
use super::publish::{Message, Publisher};
use super::topology::Names;
use crate::broker::contract::{BrokerError, Published};

/// The header in which the server says where a message was first.
const FROM: &str = "x-first-death-queue";

/// At most `max` messages are back in the queue they came from, or parked where that cannot be told. Answers how
/// many.
pub(super) async fn sweep(
    link: &Link,
    publisher: &Publisher,
    names: &Names,
    max: usize,
) -> Result<usize, BrokerError> {
    for swept in 0..max {
        let asked = link
            .ask(Link::PATIENCE, async |channel| {
                let queue = names.returned().into();
                let Some(got) = channel.basic_get(queue, BasicGetOptions::default()).await? else {
                    return Ok(None);
                };
                let headers = got.properties.headers().as_ref();
                let from = match headers.and_then(|headers| headers.inner().get(FROM)) {
                    Some(AMQPValue::LongString(queue)) => Some(queue.to_string()),
                    _ => None,
                };
                let ours = |queue: &String| queue.starts_with(&format!("{}:", names.prefix));
                let (queue, headers) = match from.filter(ours) {
                    Some(queue) => (queue, Vec::new()),
                    None => (names.parked(), vec![("why", "came back from no queue of ours".to_owned())]),
                };
                let message = Message { queue, body: got.data.clone(), headers };
                let published = publisher.publish(vec![message]).await;
                if matches!(published[..], [Published::Accepted]) {
                    got.ack(BasicAckOptions::default()).await?;
                    return Ok(Some(true));
                }
                got.nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() }).await?;
                Ok(Some(false))
            })
            .await;
        match asked {
            Ok(Some(true)) => {}
            Ok(None) => return Ok(swept),
            Ok(Some(false)) => {
                return Err(BrokerError::Transient("what was put aside cannot go back yet".into()));
            }
            Err(Problem::Missing(_)) => return Ok(swept),
            Err(problem) => return Err(problem.into()),
        }
    }
    Ok(max)
}
