//! Streams of Valkey or Redis (7.0 and later).
//!
//! | contract | here |
//! |---|---|
//! | lane | a stream of its own, read by the one group `mapae`; all keys in one hash slot |
//! | consumer | a worker's name and incarnation |
//! | `ensure` | `XGROUP CREATE … 0 MKSTREAM`: from the start, never `$`, which would skip what came before |
//! | `publish` | `XADD NOMKSTREAM`; its reply is `Accepted` |
//! | `next` | `XREADGROUP … >`: lane by lane without waiting, then one that waits for all of them |
//! | `orphans` | the pending list: of earlier lives of this name, then `XAUTOCLAIM` by each entry's idle time |
//! | `hold` | `XCLAIM … JUSTID` by a script that looks at the owner first |
//! | `settle` | `XACK` and `XDEL` in one script that looks at the owner first: at finish |
//! | `hand_back` | the entry is added anew and the old one deleted, in one script |
//! | `oldest_unread` | the age of the first entry after the group's `last-delivered-id` |
//! | `Park` | copied to a list of its own, cut to the newest 10,000 |
//!
//! An acknowledgement names no consumer, so without the look at the owner a worker that was stopped would
//! erase the entry of whoever took its job over. Nothing is ever trimmed by length: that deletes what nobody
//! has read, without a word. A key that is gone (`FLUSHALL`, a fail-over) is made again by whoever meets it
//! first; the pointers that were in it are rung again by the keeper.

mod check;
mod intake;
mod link;
mod scripts;
mod stats;
mod unread;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use self::link::{Link, Place};
use super::contract::{
    Broker, BrokerError, BrokerStats, Caps, Concern, Intake, IntakePlan, Pointer, Published, Settling, Source,
};
use super::heal::{self, Places};
use super::{BrokerPlan, address};
use crate::job::name::Lane;

/// The one group that reads. With a second one an entry could not be deleted when it is settled.
const GROUP: &str = "mapae";

/// The field of an entry that holds the pointer.
const FIELD: &str = "p";

struct Streams {
    name: &'static str,
    place: Place,
    keys: Keys,
    link: Link,
}

pub(super) fn open(plan: &BrokerPlan) -> Result<Arc<dyn Broker>, BrokerError> {
    let (url, [prefix]) = address::apart(&plan.url, ["prefix"]);
    let prefix = address::prefix(prefix)?;
    let place = Place::parse(&url)?;
    let name = if plan.url.starts_with("redis") { "redis" } else { "valkey" };
    Ok(Arc::new(Streams { name, keys: Keys { prefix }, link: Link::new(place.clone()), place }))
}

/// The names of our keys. The braces keep all of them in one slot of a cluster, which reads of several
/// streams and scripts need.
#[derive(Clone, Debug)]
struct Keys {
    prefix: String,
}

impl Keys {
    fn of(&self, lane: &Lane) -> String {
        format!("{{{}}}:{lane}", self.prefix)
    }

    /// No lane is called like that.
    fn parked(&self) -> String {
        format!("{{{}}}::parked", self.prefix)
    }
}

/// Makes sure of every lane's stream and group.
async fn ensure(link: &Link, keys: &Keys, lanes: &[Lane]) -> Result<(), BrokerError> {
    let mut pipe = redis::pipe();
    for lane in lanes {
        pipe.cmd("XGROUP").arg("CREATE").arg(keys.of(lane)).arg(GROUP).arg("0").arg("MKSTREAM");
    }
    for (answer, lane) in link.pipe(pipe).await?.into_iter().zip(lanes) {
        match answer {
            Ok(_) => {}
            Err(error) if error.code() == Some("BUSYGROUP") => {}
            Err(error) if error.code() == Some("WRONGTYPE") => {
                return Err(BrokerError::Fatal(format!(
                    "the key {} of the broker holds something else than a stream: delete it or use another database",
                    keys.of(lane)
                )));
            }
            Err(error) => return Err(link::class_of(error)),
        }
    }
    Ok(())
}

#[async_trait]
impl Places for Streams {
    async fn try_publish(&self, pointers: &[&(Lane, Pointer)]) -> Vec<Published> {
        let mut pipe = redis::pipe();
        for (lane, pointer) in pointers {
            pipe.cmd("XADD")
                .arg(self.keys.of(lane))
                .arg("NOMKSTREAM")
                .arg("*")
                .arg(FIELD)
                .arg(pointer.encode());
        }
        let answer = |(answer, (lane, _)): (Result<Value, redis::RedisError>, &&(Lane, Pointer))| match answer
        {
            Ok(Value::Nil) => Published::Refused(BrokerError::Topology(lane.to_string())),
            Ok(_) => Published::Accepted,
            Err(error) => Published::Refused(link::class_of(error)),
        };
        match self.link.pipe(pipe).await {
            Ok(answers) => answers.into_iter().zip(pointers).map(answer).collect(),
            Err(BrokerError::Transient(_)) => pointers.iter().map(|_| Published::Unknown).collect(),
            Err(error) => {
                let why = error.to_string();
                pointers.iter().map(|_| Published::Refused(BrokerError::Fatal(why.clone()))).collect()
            }
        }
    }
}

#[async_trait]
impl Broker for Streams {
    fn name(&self) -> &'static str {
        self.name
    }

    fn caps(&self) -> Caps {
        Caps { source: Source::Pointers, settling: Settling::AtFinish, holds: true }
    }

    async fn ensure(&self, lanes: &[Lane]) -> Result<(), BrokerError> {
        ensure(&self.link, &self.keys, lanes).await
    }

    async fn publish(&self, pointers: &[(Lane, Pointer)]) -> Vec<Published> {
        heal::publish(self, pointers).await
    }

    async fn open(&self, plan: &IntakePlan) -> Result<Arc<dyn Intake>, BrokerError> {
        Ok(Arc::new(intake::Reader::new(&self.place, &self.keys, plan)))
    }

    async fn check(&self) -> Result<Vec<Concern>, BrokerError> {
        check::of(&self.link).await
    }

    async fn oldest_unread(&self, lanes: &[Lane]) -> Result<Vec<Option<Duration>>, BrokerError> {
        unread::oldest(&self.link, &self.keys, lanes).await
    }

    async fn stats(&self, lane: &Lane) -> Result<BrokerStats, BrokerError> {
        stats::of(&self.link, &self.keys.of(lane)).await
    }
}
