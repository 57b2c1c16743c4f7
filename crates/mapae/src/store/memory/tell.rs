//! Telling the outside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{Memory, Tables};
use crate::job::event::Event;
use crate::job::name::JobId;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{
    Answer, Call, Crowd, Delivery, NOT_IN_TIME, Queue, Receiver, Scope, StoreError, Tell, Told, Undelivered,
};

/// What stands before a receiver.
pub(super) struct Standing {
    receiver: String,
    url: Option<String>,
    event: Event,
    tries: u32,
    since: Timestamp,
    due_at: Timestamp,
    token: Option<Uuid>,
    refusal: Option<String>,
    dead_at: Option<Timestamp>,
}

#[async_trait]
impl Tell for Memory {
    async fn spread(&self, to: &[Receiver], max: usize) -> Result<usize, StoreError> {
        let mut tables = self.tables();
        let unsent = |event: &&Event| !tables.sent.contains(&(event.job, event.sequence));
        let events: Vec<Event> = tables.events.iter().filter(unsent).take(max).cloned().collect();
        for event in &events {
            tables.sent.insert((event.job, event.sequence));
            for receiver in to.iter().filter(|receiver| receiver.wants(event)) {
                tables.stand(receiver.name.clone(), None, event);
            }
            let callback = tables.jobs.get(&event.job).and_then(|row| row.new.callback.clone());
            if let Some(callback) = callback.filter(|callback| callback.events.contains(&event.event)) {
                tables.stand(callback.line(&event.owner), Some(callback.url), event);
            }
        }
        Ok(events.len())
    }

    async fn due(&self, receivers: &[String]) -> Result<Vec<String>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let due =
            |name: &&String| tables.standing.values().any(|one| one.is_alive_at(name) && one.due_at <= now);
        Ok(receivers.iter().filter(due).cloned().collect())
    }

    async fn callers(&self, after: &str, max: usize) -> Result<Vec<String>, StoreError> {
        let tables = self.tables();
        let calls = tables.standing.values().filter(|one| one.dead_at.is_none() && one.url.is_some());
        let owners: BTreeSet<&str> = calls.map(|one| one.event.owner.as_str()).collect();
        Ok(owners.into_iter().filter(|name| *name > after).take(max).map(str::to_owned).collect())
    }

    async fn calls(&self, owners: &[(String, String)], each: usize) -> Result<Vec<Call>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let mut calls = Vec::new();
        for (owner, after) in owners {
            let mut lines: BTreeMap<&str, bool> = BTreeMap::new();
            for one in tables.standing.values().filter(|one| one.dead_at.is_none() && one.url.is_some()) {
                if one.event.owner.as_str() == owner && one.receiver.as_str() > after.as_str() {
                    *lines.entry(&one.receiver).or_default() |= one.due_at <= now;
                }
            }
            let call = |(line, due): (&str, bool)| Call { owner: owner.clone(), line: line.to_owned(), due };
            calls.extend(lines.into_iter().take(each).map(call));
        }
        Ok(calls)
    }

    async fn take(&self, receiver: &str, max: usize, hold: Duration) -> Result<Vec<Delivery>, StoreError> {
        let (mut tables, token) = (self.tables(), Uuid::new_v4());
        let now = tables.now();
        let mut lowest: BTreeMap<JobId, (u64, u64)> = BTreeMap::new();
        for (id, standing) in tables.standing.iter().filter(|(_, one)| one.is_alive_at(receiver)) {
            let this = (standing.event.sequence, *id);
            let lowest = lowest.entry(standing.event.job).or_insert(this);
            *lowest = this.min(*lowest);
        }
        let mut due: Vec<(Timestamp, u64)> = lowest
            .into_values()
            .map(|(_, id)| (tables.standing[&id].due_at, id))
            .filter(|(due_at, _)| *due_at <= now)
            .collect();
        due.sort_unstable();
        let mut ids: Vec<u64> = due.into_iter().take(max).map(|(_, id)| id).collect();
        ids.sort_unstable();
        let mut taken = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(standing) = tables.standing.get_mut(&id) else { continue };
            standing.tries += 1;
            (standing.token, standing.due_at) = (Some(token), now + hold);
            taken.push(Delivery {
                id,
                token,
                event: standing.event.clone(),
                url: standing.url.clone(),
                tries: standing.tries,
                age: now.since(standing.since),
            });
        }
        Ok(taken)
    }

    async fn told(&self, answers: &[Told]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        for told in answers {
            let Some(standing) = tables.standing.get_mut(&told.id) else { continue };
            if standing.token != Some(told.token) {
                continue;
            }
            let (receiver, job, sequence) =
                (standing.receiver.clone(), standing.event.job, standing.event.sequence);
            match &told.answer {
                Answer::Taken => drop(tables.standing.remove(&told.id)),
                Answer::Dead { code } => {
                    (standing.token, standing.refusal) = (None, Some(code.clone()));
                    (standing.dead_at, standing.due_at) = (Some(now), now);
                }
                Answer::Later { wait, code } => {
                    let due = now + *wait;
                    (standing.token, standing.refusal, standing.due_at) = (None, Some(code.clone()), due);
                    for after in tables.standing.values_mut().filter(|one| one.is_alive_at(&receiver)) {
                        if after.event.job == job && after.event.sequence > sequence {
                            after.due_at = after.due_at.max(due);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn give_up(&self, age: Duration, max: usize) -> Result<usize, StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        let overdue = |(_, one): &(&u64, &Standing)| one.may_be_given_up(now) && one.since + age <= now;
        let mut old: Vec<(Timestamp, u64)> =
            tables.standing.iter().filter(overdue).map(|(id, one)| (one.since, *id)).collect();
        old.sort_unstable();
        old.truncate(max);
        for (_, id) in &old {
            tables.standing.entry(*id).and_modify(|one| one.give_up(now));
        }
        Ok(old.len())
    }

    async fn crowd(&self, receiver: &str, most: usize, max: usize) -> Result<Crowd, StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        let mut waiting: Vec<(Timestamp, u64)> = tables
            .standing
            .iter()
            .filter(|(_, one)| one.is_alive_at(receiver))
            .map(|(id, one)| (one.due_at, *id))
            .collect();
        waiting.sort_unstable();
        let first = waiting.len().saturating_sub(most);
        let mut crowd = Crowd::default();
        for (_, id) in waiting.into_iter().take(first) {
            let Some(one) = tables.standing.get_mut(&id) else { continue };
            if crowd.given_up < max && one.may_be_given_up(now) {
                one.give_up(now);
                crowd.given_up += 1;
            }
        }
        let dead: Vec<u64> = tables
            .standing
            .iter()
            .filter(|(_, one)| one.receiver == receiver && one.dead_at.is_some())
            .map(|(id, _)| *id)
            .collect();
        crowd.forgotten = dead.len().saturating_sub(most).min(max);
        for id in &dead[..crowd.forgotten] {
            tables.standing.remove(id);
        }
        Ok(crowd)
    }

    async fn undelivered(
        &self,
        scope: &Scope,
        receiver: Option<&str>,
        before: Option<u64>,
        max: usize,
    ) -> Result<Vec<Undelivered>, StoreError> {
        let tables = self.tables();
        let wanted = |(id, standing): &(&u64, &Standing)| {
            before.is_none_or(|before| **id < before)
                && receiver.is_none_or(|receiver| receiver == standing.receiver)
                && standing.is_of(scope)
        };
        let found = tables.standing.iter().rev().filter(wanted).filter_map(|(id, standing)| {
            Some(Undelivered {
                id: *id,
                receiver: standing.receiver.clone(),
                job: standing.event.job,
                sequence: standing.event.sequence,
                owner: standing.event.owner.to_string(),
                kind: standing.event.kind.clone(),
                event: standing.event.event,
                tries: standing.tries,
                code: standing.refusal.clone().unwrap_or_default(),
                dead_at: standing.dead_at?,
            })
        });
        Ok(found.take(max).collect())
    }

    async fn resend(&self, scope: &Scope, ids: &[u64]) -> Result<Vec<u64>, StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        let mut done = tables.dead(scope, ids);
        done.retain(|id| tables.standing.get_mut(id).map(|standing| standing.begin_anew(now)).is_some());
        Ok(done)
    }

    async fn forgo(&self, scope: &Scope, ids: &[u64]) -> Result<Vec<u64>, StoreError> {
        let mut tables = self.tables();
        let done = tables.dead(scope, ids);
        tables.standing.retain(|id, _| !done.contains(id));
        Ok(done)
    }

    async fn replay(&self, receiver: &str, events: &[(JobId, u64)]) -> Result<usize, StoreError> {
        let mut tables = self.tables();
        let now = tables.now();
        let wanted = |event: &&Event| events.contains(&(event.job, event.sequence));
        let found: Vec<Event> = tables.events.iter().filter(wanted).cloned().collect();
        let mut made = 0;
        for event in found {
            let there = tables.standing.values_mut().find(|one| {
                one.receiver == receiver && (one.event.job, one.event.sequence) == (event.job, event.sequence)
            });
            match there {
                None => tables.stand(receiver.to_owned(), None, &event),
                Some(standing) if standing.dead_at.is_some() => standing.begin_anew(now),
                Some(_) => continue,
            }
            made += 1;
        }
        Ok(made)
    }

    async fn rename(&self, from: &str, to: &str, max: usize) -> Result<usize, StoreError> {
        let mut tables = self.tables();
        let of = |one: &Standing| (one.event.job, one.event.sequence);
        let there: BTreeSet<(JobId, u64)> =
            tables.standing.values().filter(|one| one.receiver == to).map(of).collect();
        let mut some: Vec<((JobId, u64), u64)> = tables
            .standing
            .iter()
            .filter(|(_, one)| one.receiver == from)
            .map(|(id, one)| (of(one), *id))
            .collect();
        some.sort_unstable();
        some.truncate(max);
        for (event, id) in &some {
            if there.contains(event) {
                tables.standing.remove(id);
            } else {
                tables.standing.entry(*id).and_modify(|one| one.receiver = to.to_owned());
            }
        }
        Ok(some.len())
    }

    async fn queues(&self, of: Option<&[String]>, cap: usize) -> Result<Vec<Queue>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let mut queues: BTreeMap<&str, Queue> = BTreeMap::new();
        for name in of.unwrap_or_default() {
            let nothing = Queue { receiver: name.clone(), waiting: 0, dead: 0, oldest: None };
            queues.insert(name, nothing);
        }
        let wanted = |one: &&Standing| of.is_none_or(|names| names.contains(&one.receiver));
        for standing in tables.standing.values().filter(wanted) {
            let receiver = standing.receiver.clone();
            let empty = || Queue { receiver, waiting: 0, dead: 0, oldest: None };
            let queue = queues.entry(&standing.receiver).or_insert_with(empty);
            if standing.dead_at.is_some() {
                queue.dead = (queue.dead + 1).min(cap);
            } else {
                queue.waiting = (queue.waiting + 1).min(cap);
                queue.oldest = queue.oldest.max(Some(now.since(standing.since)));
            }
        }
        Ok(queues.into_values().take(cap).collect())
    }
}

impl Standing {
    fn is_alive_at(&self, receiver: &str) -> bool {
        self.receiver == receiver && self.dead_at.is_none()
    }

    fn is_of(&self, scope: &Scope) -> bool {
        scope.owner().is_none_or(|owner| owner == self.event.owner.as_str() && self.url.is_some())
    }

    /// Nobody tells it just now.
    fn may_be_given_up(&self, now: Timestamp) -> bool {
        self.dead_at.is_none() && (self.token.is_none() || self.due_at <= now)
    }

    fn give_up(&mut self, now: Timestamp) {
        (self.token, self.dead_at) = (None, Some(now));
        self.refusal.get_or_insert_with(|| NOT_IN_TIME.into());
    }

    fn begin_anew(&mut self, now: Timestamp) {
        (self.dead_at, self.refusal, self.tries) = (None, None, 0);
        (self.since, self.due_at) = (now, now);
    }
}

impl Tables {
    fn stand(&mut self, receiver: String, url: Option<String>, event: &Event) {
        let now = self.now();
        self.stood += 1;
        let standing = Standing {
            receiver,
            url,
            event: event.clone(),
            tries: 0,
            since: now,
            due_at: now,
            token: None,
            refusal: None,
            dead_at: None,
        };
        self.standing.insert(self.stood, standing);
    }

    /// What was given up so long ago is forgotten.
    pub(super) fn forget_dead(&mut self, kept: Duration) {
        let now = self.now();
        self.standing.retain(|_, standing| standing.dead_at.is_none_or(|at| now < at + kept));
    }

    /// Of these, those that were given up.
    fn dead(&self, scope: &Scope, ids: &[u64]) -> Vec<u64> {
        let dead = |id: &&u64| {
            self.standing.get(id).is_some_and(|standing| standing.dead_at.is_some() && standing.is_of(scope))
        };
        let mut found: Vec<u64> = ids.iter().filter(dead).copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
