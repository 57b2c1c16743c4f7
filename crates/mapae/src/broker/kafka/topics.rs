//! Which topics there are, and how they are to be.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::link::{self, ANSWER_PATIENCE, Client, Link};
use super::place::Place;
use super::voice::class_of;
use crate::broker::contract::{BrokerError, Concern};
use crate::job::name::{Class, Lane};

/// The longest a new topic takes until it can be used.
const MADE_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Most bytes that are kept apart for a person to look at.
const PARKED_BYTES: &str = "67108864";

/// How topics are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Of a lane: at most so many workers read it at a time.
    pub(super) partitions: i32,
    /// `None`: as many replicas as the cluster makes by itself.
    pub(super) replicas: Option<i32>,
    pub(super) retention: Duration,
}

/// The names of our topics. Those of lanes have at most 134 characters; Kafka allows 249.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) prefix: String,
}

impl Names {
    /// No kind has capital letters.
    pub(super) fn of(&self, lane: &Lane) -> String {
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

    /// What nobody writes to: a reader that wants no messages reads it.
    pub(super) fn aside(&self) -> String {
        format!("{}.ASIDE", self.prefix)
    }

    /// The one group that reads.
    pub(super) fn group(&self) -> String {
        self.prefix.clone()
    }
}

/// Makes sure of every lane's topic, and of those that stand beside them.
pub(super) async fn ensure(
    place: &Place,
    link: &Link,
    names: &Names,
    shape: &Shape,
    lanes: &[Lane],
) -> Result<(), BrokerError> {
    let mut wanted: Vec<(String, i32)> = vec![(names.parked(), 1), (names.aside(), 1)];
    wanted.extend(lanes.iter().map(|lane| (names.of(lane), shape.partitions)));
    let topics: Vec<String> = wanted.iter().map(|(topic, _)| topic.clone()).collect();
    let there = counts(link, topics.clone()).await?;
    let missing: Vec<(String, i32)> = wanted
        .iter()
        .zip(&there)
        .filter(|(_, there)| there.is_none())
        .map(|(wanted, _)| wanted.clone())
        .collect();
    let old: Vec<String> = topics
        .iter()
        .zip(&there)
        .filter(|(_, there)| there.is_some())
        .map(|(topic, _)| topic.clone())
        .collect();
    if !missing.is_empty() {
        make(place, names, shape, missing).await?;
    }
    let made = used(link, topics).await?;
    for ((topic, partitions), there) in wanted.iter().zip(made) {
        if there < *partitions {
            return Err(otherwise(
                topic,
                &format!("it has {there} partitions, and partitions={partitions} is wanted"),
            ));
        }
    }
    for (topic, settings) in settings(place, old).await {
        if settings.get("cleanup.policy").is_some_and(|policy| policy.contains("compact")) {
            return Err(otherwise(
                &topic,
                "its cleanup.policy is compact, which deletes pointers that nobody has read",
            ));
        }
    }
    Ok(())
}

fn otherwise(topic: &str, how: &str) -> BrokerError {
    BrokerError::Topology(format!(
        "the topic {topic} is made otherwise than mapae does it ({how}); change or delete it, or give another \
         prefix or partitions in broker.url"
    ))
}

/// How many partitions each topic has, `None` where there is no such topic.
async fn counts(link: &Link, topics: Vec<String>) -> Result<Vec<Option<i32>>, BrokerError> {
    link.ask(move |client| topics.iter().map(|topic| count(client, topic)).collect()).await
}

fn count(client: &Client, topic: &str) -> KafkaResult<Option<i32>> {
    let told = link::topic(client, topic)?;
    let count =
        |told: rdkafka::metadata::Metadata| told.topics().first().map(|topic| topic.partitions().len());
    Ok(told.and_then(count).and_then(|count| i32::try_from(count).ok()))
}

/// How many partitions each topic has, once all of them have a broker that leads them.
async fn used(link: &Link, topics: Vec<String>) -> Result<Vec<i32>, BrokerError> {
    let deadline = Instant::now() + MADE_PATIENCE;
    link.ask(move |client| {
        let mut counts = Vec::new();
        for name in topics {
            counts.push(loop {
                let told = link::topic(client, &name)?;
                let led = |told: &rdkafka::metadata::Metadata| {
                    let partitions = told.topics().first()?.partitions();
                    let led = !partitions.is_empty() && partitions.iter().all(|it| it.leader() >= 0);
                    led.then(|| i32::try_from(partitions.len()).unwrap_or(i32::MAX))
                };
                if let Some(count) = told.as_ref().and_then(led) {
                    break count;
                }
                if Instant::now() >= deadline {
                    return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::LeaderNotAvailable));
                }
                std::thread::sleep(LOOK_EVERY);
            });
        }
        Ok(counts)
    })
    .await
}

type Admin = AdminClient<DefaultClientContext>;

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER_PATIENCE)).operation_timeout(Some(ANSWER_PATIENCE))
}

async fn make(
    place: &Place,
    names: &Names,
    shape: &Shape,
    missing: Vec<(String, i32)>,
) -> Result<(), BrokerError> {
    let admin: Admin = place.admin().create().map_err(link::of)?;
    let retention = shape.retention.as_millis().to_string();
    let parked = names.parked();
    let replicas = TopicReplication::Fixed;
    let topics: Vec<NewTopic<'_>> = missing
        .iter()
        .map(|(name, partitions)| {
            let topic = NewTopic::new(name, *partitions, replicas(shape.replicas.unwrap_or(-1)))
                .set("cleanup.policy", "delete")
                .set("retention.ms", &retention);
            if *name == parked { topic.set("retention.bytes", PARKED_BYTES) } else { topic }
        })
        .collect();
    let made = admin.create_topics(&topics, &options()).await.map_err(link::of)?;
    // It waits for a thread of its own.
    tokio::task::spawn_blocking(move || drop(admin));
    for made in made {
        match made {
            // Another was faster.
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((
                topic,
                code @ (RDKafkaErrorCode::InvalidReplicationFactor
                | RDKafkaErrorCode::InvalidTopic
                | RDKafkaErrorCode::InvalidPartitions
                | RDKafkaErrorCode::InvalidConfig
                | RDKafkaErrorCode::PolicyViolation),
            )) => {
                return Err(BrokerError::Fatal(format!(
                    "the cluster does not make the topic {topic}: {code}; look at prefix, partitions and \
                     replicas in broker.url"
                )));
            }
            Err((topic, code)) => {
                return Err(class_of(code, format!("the topic {topic} is not made: {code}")));
            }
        }
    }
    Ok(())
}

type Settings = HashMap<String, String>;

/// How topics are set up, as far as the cluster tells this user.
async fn settings(place: &Place, topics: Vec<String>) -> Vec<(String, Settings)> {
    let Ok(admin) = place.admin().create::<Admin>() else { return Vec::new() };
    let asked: Vec<ResourceSpecifier<'_>> =
        topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let told = admin.describe_configs(&asked, &options()).await.unwrap_or_default();
    tokio::task::spawn_blocking(move || drop(admin));
    let settings = |resource: rdkafka::admin::ConfigResource| {
        let entries = resource.entries.into_iter();
        entries.filter_map(|entry| Some((entry.name, entry.value?))).collect::<Settings>()
    };
    topics.iter().cloned().zip(told).filter_map(|(topic, told)| Some((topic, settings(told.ok()?)))).collect()
}

/// How many messages of a topic the group has not marked as settled, `None` where there is no such topic.
pub(super) async fn unread(link: &Link, topic: String, group: bool) -> Result<Option<u64>, BrokerError> {
    link.ask(move |client| {
        let Some(partitions) = count(client, &topic)? else { return Ok(None) };
        let list = |offset: Offset| -> KafkaResult<TopicPartitionList> {
            let mut list = TopicPartitionList::new();
            list.add_partition_range(&topic, 0, partitions - 1);
            list.set_all_offsets(offset)?;
            Ok(list)
        };
        // These two stand for times: before the first message, and after the last.
        let first = client.offsets_for_times(list(Offset::Beginning)?, ANSWER_PATIENCE)?;
        let last = client.offsets_for_times(list(Offset::End)?, ANSWER_PATIENCE)?;
        let marks = match group {
            true => client.committed_offsets(list(Offset::Invalid)?, ANSWER_PATIENCE)?,
            false => list(Offset::Invalid)?,
        };
        let at = |list: &TopicPartitionList, partition: i32| match list
            .find_partition(&topic, partition)?
            .offset()
        {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        let mut unread = 0;
        for partition in 0..partitions {
            // Without one of them nothing is known, which is not the same as nothing.
            let unknown = KafkaError::OffsetFetch(RDKafkaErrorCode::LeaderNotAvailable);
            let ends = at(&first, partition).zip(at(&last, partition));
            let (from, to) = ends.ok_or(unknown)?;
            unread += u64::try_from(to - from.max(at(&marks, partition).unwrap_or(0))).unwrap_or(0);
        }
        Ok(Some(unread))
    })
    .await
}

/// What of the topics endangers what is given to them.
pub(super) async fn concerns(link: &Link, names: &Names) -> Result<Vec<Concern>, BrokerError> {
    let parked = unread(link, names.parked(), false).await?.unwrap_or(0);
    let concern = Concern {
        what: format!("{parked} messages that are no pointers of ours lie in {}", names.parked()),
        help: "look at who publishes to mapae's topics, then delete these messages with kafka-delete-records; the \
               topic stays"
            .into(),
    };
    Ok(if parked > 0 { vec![concern] } else { Vec::new() })
}
