//! What only queues have: a hand that declares, looks and takes as any other program may.

use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use mapae::job::name::Lane;

use super::Server;

#[derive(Clone)]
pub(crate) struct Hand {
    pub(super) address: String,
    prefix: String,
}

/// RabbitMQ with a hand on it, where this run tests it.
pub(super) fn servers() -> Vec<(Server, Hand)> {
    let with_hand = |server: Server| match &server.hand {
        super::Hand::Queues(hand) => Some((hand.clone(), server)),
        super::Hand::Streams(_) | super::Hand::Topics(_) => None,
    };
    super::servers().into_iter().filter_map(with_hand).map(|(hand, server)| (server, hand)).collect()
}

/// A connection that is closed with its channel.
pub(super) struct Line {
    _connection: Connection,
    pub(super) channel: Channel,
}

impl Hand {
    pub(super) fn new(address: &str, prefix: String) -> Self {
        Self { address: address.into(), prefix }
    }

    pub(super) async fn line(&self) -> Line {
        let connection = Connection::connect(&self.address, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Line { _connection: connection, channel }
    }

    pub(super) fn queue(&self, lane: &Lane) -> String {
        format!("{}:{lane}", self.prefix)
    }

    pub(super) fn parked(&self) -> String {
        format!("{}::parked", self.prefix)
    }

    pub(super) fn returned(&self) -> String {
        format!("{}::returned", self.prefix)
    }

    pub(super) async fn lose(&self, lane: &Lane) {
        self.delete(&self.queue(lane)).await;
    }

    async fn delete(&self, queue: &str) {
        let line = self.line().await;
        let _ = line.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await;
    }

    /// The lanes of all kinds that the tests have, and what stands beside them.
    pub(super) async fn wipe(&self) {
        for kind in ["k", "l", "other"] {
            for class in ["", ":high", ":low"] {
                self.lose(&format!("{kind}{class}").parse().unwrap()).await;
            }
        }
        self.delete(&self.parked()).await;
        self.delete(&self.returned()).await;
    }

    /// How many wait in a queue, `None` where there is none.
    pub(super) async fn depth(&self, queue: &str) -> Option<u32> {
        let line = self.line().await;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let told = line.channel.queue_declare(queue.into(), passive, FieldTable::default()).await;
        told.ok().map(|queue| queue.message_count())
    }

    pub(super) async fn declare(&self, queue: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let line = self.line().await;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        line.channel.queue_declare(queue.into(), durable, table).await.unwrap();
    }

    pub(super) async fn publish(&self, queue: &str, body: &[u8]) {
        let line = self.line().await;
        let properties = BasicProperties::default();
        let sent = line
            .channel
            .basic_publish("".into(), queue.into(), BasicPublishOptions::default(), body, properties)
            .await
            .unwrap();
        assert!(sent.await.unwrap().is_ack());
    }

    /// The first message of a queue with its headers, which it does not hold any more.
    pub(super) async fn take(&self, queue: &str) -> Option<(Vec<u8>, FieldTable)> {
        let line = self.line().await;
        let got = line.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()?;
        got.ack(BasicAckOptions::default()).await.unwrap();
        let headers = got.properties.headers().clone().unwrap_or_default();
        // The acknowledgement has been read when the channel has been closed in order.
        line.channel.close(200, "OK".into()).await.unwrap();
        Some((got.delivery.data.clone(), headers))
    }

    /// The first message of a queue is refused for good, as a server does with one that came back too often.
    pub(super) async fn reject(&self, queue: &str) {
        let line = self.line().await;
        let got = line.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap().unwrap();
        got.reject(BasicRejectOptions { requeue: false }).await.unwrap();
        line.channel.close(200, "OK".into()).await.unwrap();
    }
}
