//! What only topics have: a hand that makes, looks, takes and deletes as any other program may.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mapae::job::name::{Class, Lane};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Headers, Message};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::Server;
use crate::stores::soon;

/// Partitions of a lane: more than workers in any test, and few enough that a test server bears all topics.
pub(super) const PARTITIONS: i32 = 3;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Hand {
    pub(super) servers: String,
    prefix: String,
}

/// Kafka with a hand on it, where this run tests it.
pub(super) fn servers() -> Vec<(Server, Hand)> {
    let with_hand = |server: Server| match &server.hand {
        super::Hand::Topics(hand) => Some((hand.clone(), server)),
        _ => None,
    };
    super::servers().into_iter().filter_map(with_hand).map(|(hand, server)| (server, hand)).collect()
}

/// The address without the lines behind it.
pub(super) fn address(variable: &str) -> &str {
    variable.split('#').next().unwrap()
}

/// Where the node listens for a line, and a listener where it says that it does: a client goes where it is told to,
/// past whatever else stands between. A line that a test holds cannot be taken by another.
pub(super) fn line() -> (String, TcpListener) {
    static LINES: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let variable = std::env::var("MAPAE_TEST_KAFKA").unwrap();
    let lines = variable.split_once('#').expect("the lines of Kafka").1;
    let free = lines.split(',').find_map(|line| {
        let (listens, tells) = line.split_once(':').unwrap();
        let listener = TcpListener::bind(format!("127.0.0.1:{tells}")).ok()?;
        Some((format!("127.0.0.1:{listens}"), listener))
    });
    free.expect("a line that no other test holds")
}

impl Hand {
    pub(super) fn new(address: &str, prefix: String) -> Self {
        Self { servers: address.trim_start_matches("kafka://").to_owned(), prefix }
    }

    pub(super) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers).set("allow.auto.create.topics", "false");
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().unwrap()
    }

    pub(super) fn topic(&self, lane: &Lane) -> String {
        let class = match lane.class {
            Class::High => ".HIGH",
            Class::Normal => "",
            Class::Low => ".LOW",
        };
        format!("{}.{}{class}", self.prefix, lane.kind)
    }

    pub(super) fn parked(&self) -> String {
        format!("{}.PARKED", self.prefix)
    }

    pub(super) async fn lose(&self, lane: &Lane) {
        self.delete(&[self.topic(lane)]).await;
    }

    /// The topics are gone, where they were, and perhaps made anew by who reads or rings. The node learns what becomes
    /// of topics in order: once it knows of one that was made after all this, it knows of all this.
    pub(super) async fn delete(&self, topics: &[String]) {
        static MARKERS: AtomicUsize = AtomicUsize::new(0);
        self.ask_to_delete(topics).await;
        let marker = format!("{}.MARKER-{}", self.prefix, MARKERS.fetch_add(1, Ordering::SeqCst));
        self.make(&marker, 1, &[]).await;
        let client: BaseConsumer = self.config().create().unwrap();
        soon("the node knows of it", async || {
            let told = client.fetch_metadata(Some(&marker), PATIENCE).unwrap();
            told.topics()[0].error().is_none().then_some(())
        })
        .await;
        self.ask_to_delete(&[marker]).await;
    }

    async fn ask_to_delete(&self, topics: &[String]) {
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        for deleted in self.admin().delete_topics(&names, &options).await.unwrap() {
            match deleted {
                Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// The lanes of all kinds that the tests have, and what stands beside them.
    pub(super) async fn wipe(&self) {
        let mut topics = vec![self.parked(), format!("{}.ASIDE", self.prefix)];
        for kind in ["k", "l", "other"] {
            for class in ["", ":high", ":low"] {
                topics.push(self.topic(&format!("{kind}{class}").parse().unwrap()));
            }
        }
        self.delete(&topics).await;
    }

    pub(super) async fn make(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let topic = settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        let made = self.admin().create_topics([&topic], &AdminOptions::new()).await.unwrap();
        made.into_iter().for_each(|made| drop(made.unwrap()));
    }

    pub(super) async fn publish(&self, topic: &str, partition: i32, body: &[u8]) {
        let producer: FutureProducer = self.config().create().unwrap();
        let record = FutureRecord::<(), _>::to(topic).partition(partition).payload(body);
        producer.send(record, PATIENCE).await.unwrap();
    }

    /// Where the group's mark stands in each partition, and where each ends.
    pub(super) fn marks(&self, lane: &Lane) -> Vec<(Option<i64>, i64)> {
        let client: BaseConsumer = self.config().set("group.id", &self.prefix).create().unwrap();
        let topic = self.topic(lane);
        let told = client.fetch_metadata(Some(&topic), PATIENCE).unwrap();
        let partitions = told.topics()[0].partitions().len() as i32;
        let mut list = TopicPartitionList::new();
        list.add_partition_range(&topic, 0, partitions - 1);
        let marks = client.committed_offsets(list, PATIENCE).unwrap();
        let of = |partition: i32| {
            let mark = match marks.find_partition(&topic, partition).unwrap().offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            };
            (mark, client.fetch_watermarks(&topic, partition, PATIENCE).unwrap().1)
        };
        (0..partitions).map(of).collect()
    }

    /// All messages of a topic of one partition, each with the header `why`.
    pub(super) fn all(&self, topic: &str) -> Vec<(Vec<u8>, String)> {
        let client: BaseConsumer = self.config().set("group.id", "the hand").create().unwrap();
        let (_, end) = client.fetch_watermarks(topic, 0, PATIENCE).unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        client.assign(&list).unwrap();
        let mut all = Vec::new();
        while (all.len() as i64) < end {
            let message = client.poll(PATIENCE).expect("another message").unwrap();
            let headers = message.headers().map(|headers| headers.iter().collect::<Vec<_>>());
            let why = headers.into_iter().flatten().find(|header| header.key == "why");
            let why =
                why.and_then(|header| header.value).map(|why| String::from_utf8_lossy(why).into_owned());
            all.push((message.payload().unwrap_or_default().to_vec(), why.unwrap_or_default()));
        }
        all
    }
}
