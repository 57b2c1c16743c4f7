//! What only streams have: keys, and consumers that one can look at.

use mapae::job::name::Lane;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::Server;
use crate::site::PATIENCE;

/// Those of the servers that have streams, each with a hand on it.
pub(super) fn servers() -> Vec<(Server, Hand)> {
    let with_hand = |server: Server| match &server.hand {
        super::Hand::Streams(hand) => {
            Some((Hand { address: hand.address.clone(), prefix: hand.prefix.clone() }, server))
        }
        super::Hand::Queues(_) | super::Hand::Topics(_) => None,
    };
    super::servers().into_iter().filter_map(with_hand).map(|(hand, server)| (server, hand)).collect()
}

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
        // The default is half a second, which a busy machine may take.
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
    }

    pub(super) fn key(&self, lane: &Lane) -> String {
        format!("{{{}}}:{lane}", self.prefix)
    }

    pub(super) fn parked(&self) -> String {
        format!("{{{}}}::parked", self.prefix)
    }

    /// The lane's stream is gone.
    pub(super) async fn lose(&self, lane: &Lane) {
        let mut connection = self.connection().await;
        let _: i64 = redis::cmd("DEL").arg(self.key(lane)).query_async(&mut connection).await.unwrap();
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
