//! Topics of Kafka that begin with a prefix, and the group of that name.

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::PATIENCE;
use crate::trouble::{Outcome, Trouble};

/// Partitions that hold messages which the group has not marked as settled.
pub(super) async fn left(server: &str, prefix: &str) -> Outcome<Vec<String>> {
    asked(server, prefix, |client, topics| {
        let mut left = Vec::new();
        for (topic, partitions) in topics {
            let mut list = TopicPartitionList::new();
            list.add_partition_range(&topic, 0, partitions - 1);
            let marks = client.committed_offsets(list, PATIENCE)?;
            for partition in 0..partitions {
                let (first, end) = client.fetch_watermarks(&topic, partition, PATIENCE)?;
                let mark = match marks.find_partition(&topic, partition).map(|mark| mark.offset()) {
                    Some(Offset::Offset(mark)) => mark,
                    _ => first,
                };
                if mark < end {
                    left.push(format!("{topic}/{partition}: {} messages", end - mark));
                }
            }
        }
        Ok(left)
    })
    .await
}

pub(super) async fn clear(server: &str, prefix: &str) -> Outcome<()> {
    let topics = asked(server, prefix, |_, topics| Ok(topics)).await?;
    if topics.is_empty() {
        return Ok(());
    }
    let admin: AdminClient<DefaultClientContext> = config(server).create()?;
    let topics: Vec<&str> = topics.iter().map(|(topic, _)| topic.as_str()).collect();
    for deleted in admin.delete_topics(&topics, &AdminOptions::new()).await? {
        match deleted {
            Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
            Err((topic, code)) => return Err(Trouble::Site(format!("{topic} is not deleted: {code}"))),
        }
    }
    Ok(())
}

/// Asks with the topics that there are, each with the number of its partitions. The client waits on its thread.
async fn asked<T: Send + 'static>(
    server: &str,
    prefix: &str,
    ask: impl FnOnce(&BaseConsumer, Vec<(String, i32)>) -> Result<T, KafkaError> + Send + 'static,
) -> Outcome<T> {
    let (config, prefix) = (config(server).set("group.id", prefix).clone(), format!("{prefix}."));
    let asking = tokio::task::spawn_blocking(move || {
        let client: BaseConsumer = config.create()?;
        let told = client.fetch_metadata(None, PATIENCE)?;
        let ours = told.topics().iter().filter(|topic| topic.name().starts_with(&prefix));
        let ours = ours.map(|topic| (topic.name().to_owned(), topic.partitions().len() as i32)).collect();
        ask(&client, ours)
    });
    match asking.await {
        Ok(answer) => Ok(answer?),
        Err(error) => Err(Trouble::Site(error.to_string())),
    }
}

fn config(server: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    let servers = server.trim_start_matches("kafka://");
    config.set("bootstrap.servers", servers).set("allow.auto.create.topics", "false");
    config
}

impl From<KafkaError> for Trouble {
    fn from(error: KafkaError) -> Self {
        Self::Site(error.to_string())
    }
}
