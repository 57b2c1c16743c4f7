//! Telling the outside: one receiver that wants everything.

use std::collections::BTreeMap;
use std::time::Duration;

use mapae::job::timestamp::Timestamp;
use mapae::store::contract::{Answer, Delivery, Receiver, Told};
use uuid::Uuid;

use crate::stores::walk::Walk;

const NAME: &str = "everything";

/// An event that stands before the receiver.
pub(in crate::stores::walk) struct Standing {
    job: usize,
    sequence: u64,
    since: Timestamp,
    due: Timestamp,
    tries: u32,
    token: Option<Uuid>,
    pub(super) dead_at: Option<Timestamp>,
}

impl Walk<'_> {
    /// All events that nobody was told of stand there from now on.
    pub(in crate::stores::walk) async fn expect_spread(&mut self) {
        let to = Receiver { name: NAME.into(), events: Vec::new(), kinds: Vec::new() };
        let spread = self.store.spread(&[to], 1000).await.unwrap();
        self.log.push(format!("spread => {spread}"));
        let (now, mut expected) = (self.now(), 0);
        for (job, known) in self.jobs.iter_mut().enumerate() {
            let told = known.spread..known.events.len() as u64;
            expected += told.end - told.start;
            known.spread = told.end;
            self.standing.extend(told.map(|before| Standing {
                job,
                sequence: before + 1,
                since: now,
                due: now,
                tries: 0,
                token: None,
                dead_at: None,
            }));
        }
        assert_eq!(spread as u64, expected);
    }

    /// The lowest of each job, where it is due.
    pub(in crate::stores::walk) async fn expect_take(&mut self, max: usize, hold: Duration) {
        let now = self.now();
        let mut lowest = BTreeMap::<usize, usize>::new();
        for (place, one) in self.standing.iter().enumerate().filter(|(_, one)| one.dead_at.is_none()) {
            let known = lowest.entry(one.job).or_insert(place);
            if one.sequence < self.standing[*known].sequence {
                *known = place;
            }
        }
        lowest.retain(|_, place| self.standing[*place].due <= now);
        let taken = self.store.take(NAME, max, hold).await.unwrap();
        let names: Vec<String> = taken.iter().map(|one| self.event_name(one)).collect();
        self.log.push(format!("take {max}, hold {hold:?} => {names:?}"));
        assert_eq!(taken.len(), max.min(lowest.len()), "of {} that are due", lowest.len());
        for delivery in &taken {
            let job = self.known(delivery.event.job);
            let place = lowest.remove(&job).expect("a job's lowest, once, and due");
            let (one, known) = (&mut self.standing[place], &self.jobs[job]);
            assert_eq!(delivery.event.sequence, one.sequence, "job {job}'s events come in order");
            assert_eq!(delivery.event.event, known.events[one.sequence as usize - 1].0);
            assert_eq!(delivery.event.owner, known.new.owner);
            (one.tries, one.token, one.due) = (one.tries + 1, Some(delivery.token), now + hold);
            assert_eq!(delivery.tries, one.tries);
            if one.tries > 1 {
                self.met.insert("told again");
            }
        }
        self.taken.extend(taken);
    }

    /// An answer of whoever took it, which counts while nobody has taken it since.
    pub(in crate::stores::walk) async fn expect_told(&mut self, delivery: &Delivery, answer: Answer) {
        self.log.push(format!("told {}: {answer:?}", self.event_name(delivery)));
        let told = Told { id: delivery.id, token: delivery.token, answer: answer.clone() };
        self.store.told(&[told]).await.unwrap();
        let (now, job) = (self.now(), self.known(delivery.event.job));
        let held = self.standing.iter().position(|one| one.token == Some(delivery.token) && one.job == job);
        let Some(place) = held else {
            self.met.insert("told too late");
            return;
        };
        let one = &mut self.standing[place];
        one.token = None;
        match answer {
            Answer::Taken => {
                self.met.insert("told");
                self.standing.remove(place);
            }
            Answer::Dead { .. } => {
                self.met.insert("told in vain");
                one.dead_at = Some(now);
            }
            Answer::Later { wait, .. } => {
                self.met.insert("put off");
                one.due = now + wait;
                let sequence = one.sequence;
                let after = |other: &&mut Standing| other.job == job && other.sequence > sequence;
                for other in self.standing.iter_mut().filter(after).filter(|other| other.dead_at.is_none()) {
                    other.due = other.due.max(now + wait);
                }
            }
        }
    }

    /// What has stood too long, but for what is being told.
    pub(in crate::stores::walk) async fn expect_give_up(&mut self, age: Duration) {
        let given_up = self.store.give_up(age, 1000).await.unwrap();
        self.log.push(format!("give up {age:?} => {given_up}"));
        let (now, mut expected) = (self.now(), 0);
        for one in self.standing.iter_mut().filter(|one| one.dead_at.is_none() && one.since + age <= now) {
            if one.token.is_none() || one.due <= now {
                (one.token, one.dead_at) = (None, Some(now));
                expected += 1;
            }
        }
        assert_eq!(given_up, expected);
        if expected > 0 {
            self.met.insert("given up");
        }
    }

    fn event_name(&self, delivery: &Delivery) -> String {
        format!("{}/{}", self.name(delivery.event.job), delivery.event.sequence)
    }
}
