//! What a stream tells of itself. `lag` is not asked for: it is null or wrong after deletions.

use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisError, Value};

use super::GROUP;
use super::link::{Link, class_of};
use crate::broker::contract::{BrokerError, BrokerStats, Figure};

/// Of so many pending entries at most the delivery counts are looked at.
const LOOKED_AT: usize = 1_000;

pub(super) async fn of(link: &Link, key: &str) -> Result<BrokerStats, BrokerError> {
    let mut pipe = redis::pipe();
    pipe.cmd("XLEN").arg(key);
    pipe.cmd("XPENDING").arg(key).arg(GROUP);
    pipe.cmd("XPENDING").arg(key).arg(GROUP).arg("-").arg("+").arg(LOOKED_AT);
    pipe.cmd("XINFO").arg("CONSUMERS").arg(key).arg(GROUP);
    pipe.cmd("TIME");
    let answers = link.pipe(pipe).await?;
    let [length, summary, pending, consumers, time]: [Result<Value, RedisError>; 5] =
        answers.try_into().map_err(|_| BrokerError::Transient("the server answered too little".into()))?;
    let length: u64 = read(length)?;
    let (pending_count, oldest_id): (u64, Option<String>) = match read(summary) {
        Ok(Value::Array(parts)) => {
            let mut parts = parts.into_iter();
            (read(parts.next().ok_or(missing()))?, read(parts.next().ok_or(missing()))?)
        }
        Ok(_) => (0, None),
        // Never made: nothing waits there.
        Err(BrokerError::Topology(_)) => return Ok(BrokerStats::default()),
        Err(error) => return Err(error),
    };
    let (seconds, micros): (u64, u64) = read(time)?;
    let now = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let rows: Vec<(String, String, u64, u64)> = read(pending)?;
    let age_of = |id: &str| {
        let millis = id.split('-').next()?.parse().ok()?;
        Some(now.saturating_sub(Duration::from_millis(millis)))
    };
    let as_of = Instant::now();
    Ok(BrokerStats {
        depth: Some(Figure { value: length.saturating_sub(pending_count), exact: true, as_of }),
        unacknowledged: Some(Figure { value: pending_count, exact: true, as_of }),
        // When it was added, not when it was taken: what is held is young again and again.
        oldest_unacknowledged: match oldest_id {
            None => Some(Figure { value: Duration::ZERO, exact: true, as_of }),
            Some(id) => age_of(&id).map(|value| Figure { value, exact: false, as_of }),
        },
        deliveries_max: Some(Figure {
            value: rows.iter().map(|(_, _, _, times)| *times).max().unwrap_or(0),
            exact: pending_count <= LOOKED_AT as u64,
            as_of,
        }),
        consumers: Some(Figure { value: inactivity(read(consumers)?), exact: false, as_of }),
    })
}

/// Each consumer and for how long it has done nothing. `inactive` is newer than 7.0; `idle` also counts
/// reads that found nothing.
fn inactivity(rows: Vec<Vec<Value>>) -> Vec<(String, Duration)> {
    let of = |row: Vec<Value>| {
        let fields: Vec<(String, Value)> = row
            .chunks_exact(2)
            .filter_map(|pair| Some((String::from_redis_value(pair[0].clone()).ok()?, pair[1].clone())))
            .collect();
        let field =
            |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone());
        let name = String::from_redis_value(field("name")?).ok()?;
        let since = i64::from_redis_value(field("inactive").or_else(|| field("idle"))?).ok()?;
        Some((name, Duration::from_millis(u64::try_from(since).unwrap_or(0))))
    };
    rows.into_iter().filter_map(of).collect()
}

fn missing() -> RedisError {
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, "the server answered too little"))
}

fn read<T: FromRedisValue>(answer: Result<Value, RedisError>) -> Result<T, BrokerError> {
    let value = answer.map_err(class_of)?;
    T::from_redis_value(value).map_err(|error| BrokerError::Transient(error.into()))
}
