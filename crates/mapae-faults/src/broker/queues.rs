//! Queues of RabbitMQ, by their names.

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};

use crate::trouble::{Outcome, Trouble};

/// Queues in which messages wait. What a reader has and has not settled is not counted.
pub(super) async fn left(server: &str, queues: &[String]) -> Outcome<Vec<String>> {
    let held = look(server, queues).await?;
    let held = held.into_iter().filter(|(_, messages, _)| *messages > 0);
    Ok(held.map(|(queue, messages, _)| format!("{queue}: {messages} messages")).collect())
}

/// How many read any of them.
pub(super) async fn readers(server: &str, queues: &[String]) -> Outcome<u32> {
    Ok(look(server, queues).await?.iter().map(|(_, _, readers)| readers).sum())
}

pub(super) async fn clear(server: &str, queues: &[String]) -> Outcome<()> {
    let connection = connection(server).await?;
    let channel = connection.create_channel().await?;
    for queue in queues {
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await?;
    }
    leave(connection).await;
    Ok(())
}

/// Those that there are, each with its messages and readers.
async fn look(server: &str, queues: &[String]) -> Outcome<Vec<(String, u32, u32)>> {
    let connection = connection(server).await?;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let mut there = Vec::new();
    for queue in queues {
        // One that is missing closes the channel.
        let channel = connection.create_channel().await?;
        let told = channel.queue_declare(queue.as_str().into(), passive, FieldTable::default()).await;
        if let Ok(told) = told {
            there.push((queue.clone(), told.message_count(), told.consumer_count()));
        }
    }
    leave(connection).await;
    Ok(there)
}

/// Nothing is asked any more, and so nothing depends on the answer.
async fn leave(connection: Connection) {
    let _ = connection.close(200, "done".into()).await;
}

async fn connection(server: &str) -> Outcome<Connection> {
    Ok(Connection::connect(server, ConnectionProperties::default()).await?)
}

impl From<lapin::Error> for Trouble {
    fn from(error: lapin::Error) -> Self {
        Self::Site(error.to_string())
    }
}
