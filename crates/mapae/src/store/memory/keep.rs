//! Ringing, reaping, telling.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::{Memory, Row, Tables, jitter};
use crate::job::Refused;
use crate::job::lease::Holder;
use crate::job::name::{JobId, Lane, Owner};
use crate::job::{State, Status, Step};
use crate::store::contract::{
    DOUBLINGS_MAX, Keep, LaneWindow, OwnerTurn, Reaped, RingPlan, Rung, StoreError,
};

#[async_trait]
impl Keep for Memory {
    async fn ring(&self, plan: &RingPlan) -> Result<Vec<Rung>, StoreError> {
        Ok(self.tables().ring(plan))
    }

    async fn rung(&self, pointers: &[(JobId, u32)], age: Duration) -> Result<(), StoreError> {
        let mut tables = self.tables();
        for (job, told) in pointers {
            tables.rung(*job, *told, age);
        }
        Ok(())
    }

    async fn windows(&self, cap: usize) -> Result<Vec<LaneWindow>, StoreError> {
        let mut windows: BTreeMap<Lane, Vec<u64>> = BTreeMap::new();
        for row in self.tables().jobs.values().filter(|row| row.hint().is_some_and(|hint| hint > 0)) {
            windows.entry(row.new.lane()).or_default().push(row.turn);
        }
        let window = |(lane, turns): (Lane, Vec<u64>)| LaneWindow {
            lane,
            waiting: turns.len().min(cap),
            turn: turns.into_iter().min().unwrap_or_default(),
        };
        Ok(windows.into_iter().map(window).collect())
    }

    async fn withdraw(&self, window: usize, max: usize) -> Result<usize, StoreError> {
        let mut tables = self.tables();
        let mut offered: BTreeMap<Lane, Vec<(u64, JobId)>> = BTreeMap::new();
        for row in tables.jobs.values().filter(|row| row.hint().is_some_and(|hint| hint > 0)) {
            offered.entry(row.new.lane()).or_default().push((row.turn, row.new.id));
        }
        let mut beyond = Vec::new();
        for rows in offered.values_mut().filter(|rows| rows.len() > 2 * window) {
            rows.sort_unstable();
            beyond.extend(rows.iter().skip(window).rev().map(|(_, id)| *id));
        }
        beyond.truncate(max);
        for id in &beyond {
            tables.unring(*id);
        }
        Ok(beyond.len())
    }

    async fn turns(&self, max: usize) -> Result<Vec<OwnerTurn>, StoreError> {
        let mut last: BTreeMap<(Lane, Owner), u64> = BTreeMap::new();
        for row in self.tables().jobs.values().filter(|row| row.hint().is_some_and(|hint| hint > 0)) {
            let turn = last.entry((row.new.lane(), row.new.owner.clone())).or_default();
            *turn = row.turn.max(*turn);
        }
        let turn = |((lane, owner), turn)| OwnerTurn { lane, owner, turn };
        Ok(last.into_iter().take(max).map(turn).collect())
    }

    async fn rung_ago(&self, lanes: &[(Lane, usize)], age: Duration) -> Result<Vec<Duration>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let ago = |(lane, count): &(Lane, usize)| {
            let rung = |row: &Row| match row.life.status {
                Status::Pending { hint: hint @ 1.., ring_at } if row.new.lane() == *lane => {
                    let wait = age.saturating_mul(1 << (hint - 1).min(DOUBLINGS_MAX));
                    Some((now + wait).since(ring_at))
                }
                _ => None,
            };
            let mut ages: Vec<Duration> = tables.jobs.values().filter_map(rung).collect();
            ages.sort_unstable();
            ages.into_iter().take(*count).next_back().unwrap_or_default()
        };
        Ok(lanes.iter().map(ago).collect())
    }

    async fn next_due(&self, horizon: Duration) -> Result<Option<Duration>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let waiting = |row: &&Row| row.hint() == Some(0) && !tables.paused.contains(&row.new.lane());
        let waits = tables.jobs.values().filter(waiting).map(|row| row.life.due_at.since(now));
        Ok(waits.min().filter(|wait| *wait <= horizon))
    }

    async fn reap(&self, max: usize) -> Result<Vec<Reaped>, StoreError> {
        Ok(self.tables().reap(max))
    }

    async fn expire(&self, max: usize) -> Result<usize, StoreError> {
        let mut tables = self.tables();
        let ids: Vec<JobId> = tables.jobs.keys().copied().collect();
        Ok(ids.into_iter().filter(|id| tables.take(*id, &Step::Expire, None).is_ok()).take(max).count())
    }
}

impl Tables {
    /// As if its pointer had never been handed out: a keeper rings.
    pub(super) fn unring(&mut self, job: JobId) {
        if let Some(row) = self.jobs.get_mut(&job).filter(|row| row.hint().is_some()) {
            row.life.status = Status::Pending { hint: 0, ring_at: row.life.due_at };
            row.turn = 0;
        }
    }

    /// Owners take turns: the first job of each, then the second of each. A job rung before has its
    /// place in the window already; a new one needs a free place.
    fn ring(&mut self, plan: &RingPlan) -> Vec<Rung> {
        let now = self.now();
        let mut places: BTreeMap<Lane, usize> = BTreeMap::new();
        let mut waiting: BTreeMap<(Lane, Owner), Vec<&Row>> = BTreeMap::new();
        for row in self.jobs.values() {
            let Status::Pending { hint, ring_at } = row.life.status else { continue };
            let lane = row.new.lane();
            let place = places.entry(lane.clone()).or_insert(plan.window);
            *place = place.saturating_sub(usize::from(hint > 0));
            let Some(patience) = (if hint == 0 { Some(Duration::ZERO) } else { plan.patience(&lane) }) else {
                continue;
            };
            if row.life.due_at.max(ring_at + patience) <= now && !self.paused.contains(&lane) {
                waiting.entry((lane, row.new.owner.clone())).or_default().push(row);
            }
        }
        for place in places.values_mut() {
            *place = (*place).max(plan.least);
        }
        let mut turns: Vec<(usize, &Row)> = Vec::new();
        for rows in waiting.values_mut() {
            rows.sort_by_key(|row| (row.life.due_at, row.new.id));
            turns.extend(rows.iter().copied().enumerate());
        }
        turns.sort_by_key(|(turn, row)| (*turn, row.life.due_at, row.new.id));
        let mut chosen: Vec<JobId> = Vec::new();
        let accounts = self.accounts();
        let mut offered: BTreeMap<(Lane, Owner), u64> = BTreeMap::new();
        for (_, row) in turns {
            if chosen.len() == plan.max {
                break;
            }
            let place = places.get_mut(&row.new.lane()).expect("each lane was counted");
            if row.hint() == Some(0) && *place == 0 {
                continue;
            }
            if let Some(each) = self.limits.each_owner(&row.new.kind).filter(|_| row.hint() == Some(0)) {
                let (lane, owner) = (row.new.lane(), row.new.owner.clone());
                let whose = (each.gate.clone(), Some(owner.clone()));
                let account = accounts.get(&whose).copied().unwrap_or_default();
                let rung = || self.turns_of(row.new.id).1;
                let offered = offered.entry((lane, owner)).or_insert_with(rung);
                if *offered + account.in_use >= each.places || each.is_paced(account.next, now) {
                    continue;
                }
                *offered += 1;
            }
            *place -= usize::from(row.hint() == Some(0));
            chosen.push(row.new.id);
        }
        chosen
            .into_iter()
            .map(|id| {
                let (base, waiting) = self.turns_of(id);
                self.ring_one(id, base + waiting + 1, plan.again)
                    .expect("only jobs whose time has come were chosen")
            })
            .collect()
    }

    /// The lowest turn waiting in the job's lane, and how many of its owner's jobs wait there.
    pub(super) fn turns_of(&self, id: JobId) -> (u64, u64) {
        let new = &self.jobs[&id].new;
        let there = |row: &&Row| row.hint().is_some_and(|hint| hint > 0) && row.new.lane() == new.lane();
        let base = self.jobs.values().filter(there).map(|row| row.turn).min().unwrap_or(0);
        let owners = self.jobs.values().filter(there).filter(|row| row.new.owner == new.owner).count();
        (base, owners as u64)
    }

    /// Rings; a job that is rung already keeps its turn.
    pub(super) fn ring_one(&mut self, id: JobId, turn: u64, again: Duration) -> Result<Rung, Refused> {
        self.take(id, &Step::Ring { again }, None)?;
        let row = self.jobs.get_mut(&id).expect("it has just been rung");
        let hint = row.hint().expect("a job that is rung is pending");
        if hint == 1 {
            row.turn = turn;
        }
        Ok(Rung {
            job: id,
            owner: row.new.owner.clone(),
            lane: row.new.lane(),
            hint,
            trace: row.new.trace.clone(),
        })
    }

    /// A pointer that carried the hint `told` is with the broker.
    fn rung(&mut self, id: JobId, told: u32, age: Duration) {
        let now = self.now();
        let Some(row) = self.jobs.get_mut(&id) else { return };
        if let Status::Pending { hint, ring_at } = &mut row.life.status
            && *hint == told
        {
            *ring_at = now + age.saturating_mul(1 << told.saturating_sub(1).min(DOUBLINGS_MAX));
        }
    }

    fn reap(&mut self, max: usize) -> Vec<Reaped> {
        let running: Vec<JobId> = self
            .jobs
            .values()
            .filter(|row| row.life.state() == State::Running)
            .map(|row| row.new.id)
            .collect();
        let mut reaped = Vec::new();
        for id in running {
            if reaped.len() == max {
                break;
            }
            let row = &self.jobs[&id];
            let Status::Running { holder, .. } = &row.life.status else { continue };
            let gone = self.is_gone(holder);
            let (backoff, attempt) = (row.new.retry.backoff, row.life.attempt);
            let delay = match holder.is_service() {
                true => backoff.wait(attempt, jitter()),
                false => backoff.wait_after_loss(attempt, jitter()),
            };
            let kind = row.new.kind.clone();
            if self.take(id, &Step::Reap { gone, delay }, None).is_ok() {
                reaped.push(Reaped { job: id, kind, state: self.jobs[&id].life.state() });
            }
        }
        reaped
    }

    /// Whether this life of a worker is known to be over. Of one that never joined nothing is known.
    fn is_gone(&self, holder: &Holder) -> bool {
        self.workers.get(&holder.name).is_some_and(|worker| worker.row.holder != *holder || !worker.present)
    }
}
