//! Whether a server is set up so that it keeps what it is given.

use std::time::Duration;

use redis::Value;

use super::link::Link;
use crate::broker::contract::{BrokerError, Concern};

/// The oldest version whose stream commands do all that is needed.
const OLDEST: (u32, u32) = (7, 0);

pub(super) async fn of(link: &Link) -> Result<Vec<Concern>, BrokerError> {
    let info: String = link.ask(redis::cmd("INFO").arg("server"), Duration::ZERO).await?;
    let mut concerns: Vec<Concern> = age(&info).into_iter().collect();
    // A managed server may not say; then nothing is known, which is not the same as wrong.
    if let Some(policy) = setting(link, "maxmemory-policy").await
        && policy != "noeviction"
    {
        concerns.push(Concern {
            what: format!(
                "maxmemory-policy is {policy}: when memory runs out, whole streams vanish without an error"
            ),
            help: "set maxmemory-policy to noeviction".into(),
        });
    }
    if setting(link, "appendonly").await.as_deref() == Some("no") {
        concerns.push(Concern {
            what: "appendonly is off: a restart of the broker forgets every pointer, and the jobs wait for a rescan".into(),
            help: "set appendonly to yes".into(),
        });
    }
    Ok(concerns)
}

/// Valkey calls itself Redis 7.2 and is new enough under that name.
fn age(info: &str) -> Option<Concern> {
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?.trim();
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let found = (parts.next()?, parts.next().unwrap_or(0));
    (found < OLDEST).then(|| Concern {
        what: format!("the broker is Redis {version}"),
        help: format!("use Valkey, or Redis {}.{} or newer", OLDEST.0, OLDEST.1),
    })
}

async fn setting(link: &Link, name: &str) -> Option<String> {
    let answer: Value = link.ask(redis::cmd("CONFIG").arg("GET").arg(name), Duration::ZERO).await.ok()?;
    let pair: Vec<String> = redis::from_redis_value(answer).ok()?;
    pair.into_iter().nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_named() {
        assert!(age("redis_version:6.2.14\r\n").unwrap().what.contains("6.2.14"));
        for fine in [
            "redis_version:7.0.0\r\n",
            "redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n",
            "redis_version:8.2.3",
        ] {
            assert!(age(fine).is_none(), "{fine}");
        }
    }
}
