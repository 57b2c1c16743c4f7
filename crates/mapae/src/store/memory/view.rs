//! Reading.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{Memory, Row};
use crate::job::State;
use crate::job::event::{Event, Position};
use crate::job::follow::Followed;
use crate::job::name::{JobId, Lane};
use crate::job::record::{Job, Output};
use crate::store::contract::{
    EventFilter, Found, JobFilter, LaneStats, Page, Puller, Scope, Stats, StoreError, View, WorkerRow,
};

#[async_trait]
impl View for Memory {
    async fn job(&self, scope: &Scope, id: JobId) -> Result<Option<Job>, StoreError> {
        Ok(self.tables().row(scope, id).map(Row::job))
    }

    async fn jobs(&self, scope: &Scope, filter: &JobFilter, page: &Page) -> Result<Found, StoreError> {
        let tables = self.tables();
        let older = |row: &&Row| page.after.is_none_or(|after| row.new.id < after);
        let newest_first = tables.jobs.values().rev().filter(older);
        let found = newest_first.filter(|row| row.within(scope) && matches(filter, row));
        let jobs: Vec<Job> = found.take(page.limit).map(Row::job).collect();
        let next = jobs.last().filter(|_| jobs.len() == page.limit).map(|job| job.id);
        Ok(Found { jobs, next })
    }

    async fn output(&self, scope: &Scope, id: JobId) -> Result<Option<Output>, StoreError> {
        Ok(self.tables().row(scope, id).and_then(|row| row.output.clone()))
    }

    async fn followed(&self, scope: &Scope, id: JobId) -> Result<Vec<Followed>, StoreError> {
        Ok(self.tables().row(scope, id).map(Row::declared).unwrap_or_default())
    }

    async fn events(
        &self,
        scope: &Scope,
        filter: &EventFilter,
        max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let tables = self.tables();
        let last = tables.events.iter().rfind(|event| event.position.number <= filter.after.number);
        let lost = last.is_some_and(|last| filter.after.is_of_another_life(last.at.micros()));
        let after = if lost { 0 } else { filter.after.number };
        let wanted = |event: &&Event| {
            event.position.number > after
                && filter.job.is_none_or(|job| job == event.job)
                && tables.row(scope, event.job).is_some()
        };
        Ok(tables.events.iter().filter(wanted).take(max).cloned().collect())
    }

    async fn last_position(&self) -> Result<Position, StoreError> {
        let tables = self.tables();
        Ok(Position { transaction: 0, number: tables.events_told, at: tables.now().micros() })
    }

    async fn ahead(&self, job: &Job, max: usize) -> Result<usize, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        // Rung ones stand in the order of their turns, before all that are only due.
        let place = |row: &Row| {
            let unrung = row.hint() == Some(0);
            (unrung, if unrung { 0 } else { row.turn }, row.life.due_at, row.new.id)
        };
        let Some(mine) = tables.jobs.get(&job.id).map(place) else { return Ok(0) };
        let before = tables.jobs.values().filter(|row| {
            row.hint().is_some()
                && row.life.due_at <= now
                && row.new.lane() == job.lane()
                && place(row) < mine
        });
        Ok(before.take(max).count())
    }

    async fn paused(&self) -> Result<Vec<Lane>, StoreError> {
        Ok(self.tables().paused.iter().cloned().collect())
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let workers = tables.workers.values().map(|worker| &worker.row).filter(|row| row.is_seen(now));
        let pullers = tables.pullers.values().filter(|row| now.since(row.seen_at) < Puller::SEEN);
        Ok(workers.chain(pullers).cloned().collect())
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let tables = self.tables();
        let now = tables.now();
        let mut stats = Stats { states: State::ALL.map(|state| (state, 0)).to_vec(), ..Stats::default() };
        let mut lanes: BTreeMap<Lane, LaneStats> = BTreeMap::new();
        for row in tables.jobs.values().filter(|row| !row.life.delete_asked) {
            let state = row.life.state();
            for (_, count) in stats.states.iter_mut().filter(|(known, _)| *known == state) {
                *count += 1;
            }
            if state == State::Failed {
                stats.dead += 1;
                stats.dead_unassigned += u64::from(row.assignee.is_none());
                stats.dead_oldest = stats.dead_oldest.max(row.finished_at.map(|at| now.since(at)));
            }
            if !state.is_terminal() {
                let lane = row.new.lane();
                let paused = tables.paused.contains(&lane);
                let entry = lanes.entry(lane.clone()).or_insert_with(|| LaneStats {
                    lane,
                    owner: Some(row.new.owner.clone()),
                    ready: 0,
                    scheduled: 0,
                    running: 0,
                    oldest_ready: None,
                    paused,
                });
                if state == State::Running {
                    entry.running += 1;
                } else if row.life.due_at <= now {
                    entry.ready += 1;
                    entry.oldest_ready = entry.oldest_ready.max(Some(now.since(row.life.due_at)));
                } else {
                    entry.scheduled += 1;
                }
            }
        }
        stats.lanes = lanes.into_values().collect();
        let unsent = tables.events.iter().filter(|event| !tables.sent.contains(&(event.job, event.sequence)));
        stats.outbox = unsent.count() as u64;
        Ok(stats)
    }
}

fn matches(filter: &JobFilter, row: &Row) -> bool {
    let text_found = |text: &String| {
        let named = row.new.source.as_ref().is_some_and(|source| source.name.contains(text.as_str()));
        named || row.new.id.to_string().starts_with(text.as_str())
    };
    filter.state.is_none_or(|state| state == row.life.state())
        && filter.kind.as_ref().is_none_or(|kind| *kind == row.new.kind)
        && filter.text.as_ref().is_none_or(text_found)
}
