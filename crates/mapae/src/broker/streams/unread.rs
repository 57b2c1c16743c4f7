//! How long the first entry that the group has not read has waited: the time is in its id.

use std::time::Duration;

use redis::{FromRedisValue, RedisError, Value};

use super::link::Link;
use super::{GROUP, Keys};
use crate::broker::contract::BrokerError;
use crate::job::name::Lane;

/// Two round trips for all lanes. `None` for a lane that has no stream or no group.
pub(super) async fn oldest(
    link: &Link,
    keys: &Keys,
    lanes: &[Lane],
) -> Result<Vec<Option<Duration>>, BrokerError> {
    let mut pipe = redis::pipe();
    for lane in lanes {
        pipe.cmd("XINFO").arg("GROUPS").arg(keys.of(lane));
    }
    let groups = link.pipe(pipe).await?;
    let read: Vec<Option<String>> = groups.into_iter().map(|answer| last_read(answer.ok()?)).collect();

    let mut pipe = redis::pipe();
    for (lane, last) in lanes.iter().zip(&read) {
        // Where there is no group nothing comes after the greatest id.
        let last = last.as_deref().unwrap_or("18446744073709551615");
        pipe.cmd("XRANGE").arg(keys.of(lane)).arg(format!("({last}")).arg("+").arg("COUNT").arg(1);
    }
    pipe.cmd("TIME");
    let mut answers = link.pipe(pipe).await?;
    let Some(Ok(now)) = answers.pop().map(clock) else {
        return Err(BrokerError::Transient("the server did not tell its time".into()));
    };
    let told = read.into_iter().zip(answers).map(|(last, entries)| last.and_then(|_| waited(entries, now)));
    Ok(told.collect())
}

/// The id of the last entry that our group has read.
fn last_read(groups: Value) -> Option<String> {
    let groups = Vec::<Vec<Value>>::from_redis_value(groups).ok()?;
    groups.into_iter().find_map(|group| {
        let field = |name: &str| {
            let mut pairs = group.chunks_exact(2);
            let pair = pairs
                .find(|pair| String::from_redis_value(pair[0].clone()).is_ok_and(|field| field == name))?;
            String::from_redis_value(pair[1].clone()).ok()
        };
        (field("name")? == GROUP).then(|| field("last-delivered-id")).flatten()
    })
}

fn clock(answer: Result<Value, RedisError>) -> Result<Duration, BrokerError> {
    let told = answer.and_then(|value| Ok(<(u64, u64)>::from_redis_value(value)?));
    let (seconds, micros) = told.map_err(|error| BrokerError::Transient(error.into()))?;
    Ok(Duration::from_secs(seconds) + Duration::from_micros(micros))
}

fn waited(entries: Result<Value, RedisError>, now: Duration) -> Option<Duration> {
    let entries = Vec::<(String, Value)>::from_redis_value(entries.ok()?).ok()?;
    match entries.first() {
        None => Some(Duration::ZERO),
        Some((id, _)) => {
            let millis = id.split('-').next()?.parse().ok()?;
            Some(now.saturating_sub(Duration::from_millis(millis)))
        }
    }
}
