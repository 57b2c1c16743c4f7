//! Keys of Valkey or Redis that begin with a prefix.

use redis::aio::MultiplexedConnection;

use crate::trouble::{Outcome, Trouble};

/// Streams that hold entries, read or unread.
pub(super) async fn left(server: &str, prefix: &str) -> Outcome<Vec<String>> {
    let mut connection = connection(server).await?;
    let mut left = Vec::new();
    for key in keys(&mut connection, prefix).await? {
        let entries: u64 = redis::cmd("XLEN").arg(&key).query_async(&mut connection).await?;
        // What is parked has no group.
        let pending = redis::cmd("XPENDING").arg(&key).arg("mapae").query_async(&mut connection).await;
        let pending: u64 = match pending {
            Ok(redis::Value::Array(parts)) => {
                parts.into_iter().next().and_then(|count| redis::from_redis_value(count).ok()).unwrap_or(0)
            }
            _ => 0,
        };
        if entries + pending > 0 {
            left.push(format!("{key}: {entries} entries, and {pending} pending"));
        }
    }
    Ok(left)
}

pub(super) async fn clear(server: &str, prefix: &str) -> Outcome<()> {
    let mut connection = connection(server).await?;
    for key in keys(&mut connection, prefix).await? {
        let _: u64 = redis::cmd("DEL").arg(key).query_async(&mut connection).await?;
    }
    Ok(())
}

async fn connection(server: &str) -> Outcome<MultiplexedConnection> {
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(super::PATIENCE))
        .set_response_timeout(Some(super::PATIENCE));
    Ok(redis::Client::open(server)?.get_multiplexed_async_connection_with_config(&patient).await?)
}

async fn keys(connection: &mut MultiplexedConnection, prefix: &str) -> Outcome<Vec<String>> {
    Ok(redis::cmd("KEYS").arg(format!("{{{prefix}}}:*")).query_async(connection).await?)
}

impl From<redis::RedisError> for Trouble {
    fn from(error: redis::RedisError) -> Self {
        Self::Site(error.to_string())
    }
}
