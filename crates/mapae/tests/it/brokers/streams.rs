//! What only streams have: keys, and consumers that one can look at.

use mapae::job::name::Lane;
use redis::aio::MultiplexedConnection;

pub(crate) struct Hand {
    address: String,
    prefix: String,
}

impl Hand {
    pub(super) fn new(address: &str, prefix: String) -> Self {
        Self { address: address.into(), prefix }
    }

    pub(super) async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.address.as_str()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    pub(super) fn key(&self, lane: &Lane) -> String {
        format!("{{{}}}:{lane}", self.prefix)
    }

    pub(super) fn parked(&self) -> String {
        format!("{{{}}}::parked", self.prefix)
    }

    pub(super) async fn wipe(&self) {
        let mut connection = self.connection().await;
        let pattern = format!("{{{}}}:*", self.prefix);
        let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.unwrap();
        if !keys.is_empty() {
            let _: i64 = redis::cmd("DEL").arg(keys).query_async(&mut connection).await.unwrap();
        }
    }

    /// Entries in the stream, settled ones gone.
    pub(super) async fn length(&self, lane: &Lane) -> usize {
        let mut connection = self.connection().await;
        redis::cmd("XLEN").arg(self.key(lane)).query_async(&mut connection).await.unwrap()
    }
}
