//! Schedules.

use async_trait::async_trait;

use super::Memory;
use crate::job::name::ScheduleName;
use crate::job::record::NewJob;
use crate::job::timestamp::Timestamp;
use crate::store::contract::{Schedule, Schedules, StoreError};

#[async_trait]
impl Schedules for Memory {
    async fn define(&self, schedules: &[Schedule]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        for schedule in schedules {
            let known = tables.schedules.get(&schedule.name);
            let same = known.filter(|known| (&known.cron, &known.zone) == (&schedule.cron, &schedule.zone));
            let next_at = same.map_or(schedule.next_at, |known| known.next_at);
            let paused = known.is_some_and(|known| known.paused);
            let defined = Schedule { next_at, paused, ..schedule.clone() };
            tables.schedules.insert(schedule.name.clone(), defined);
        }
        Ok(())
    }

    async fn schedules(&self) -> Result<Vec<Schedule>, StoreError> {
        let tables = self.tables();
        let last = |name: &ScheduleName| {
            let mut ticks = tables.ticks.iter().filter(|((schedule, _), _)| schedule == name);
            ticks.next_back().map(|((_, at), job)| (*at, *job))
        };
        let with_last = |schedule: &Schedule| Schedule { last: last(&schedule.name), ..schedule.clone() };
        Ok(tables.schedules.values().map(with_last).collect())
    }

    async fn tick(
        &self,
        name: &ScheduleName,
        from: Timestamp,
        to: Option<Timestamp>,
        jobs: &[(Timestamp, NewJob)],
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let Some(schedule) = tables.schedules.get_mut(name) else { return Ok(false) };
        if schedule.paused || schedule.next_at != Some(from) {
            return Ok(false);
        }
        schedule.next_at = to;
        for (at, job) in jobs {
            let tick = (name.clone(), *at);
            if !tables.ticks.contains_key(&tick) {
                let holder = tables.holder(job);
                tables.ticks.insert(tick, holder.unwrap_or(job.id));
                if holder.is_none() {
                    tables.accept(job.clone());
                }
            }
        }
        Ok(true)
    }

    async fn pause_schedule(&self, name: &ScheduleName) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let Some(schedule) = tables.schedules.get_mut(name) else { return Ok(false) };
        schedule.paused = true;
        Ok(true)
    }

    async fn resume_schedule(
        &self,
        name: &ScheduleName,
        next_at: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let Some(schedule) = tables.schedules.get_mut(name) else { return Ok(false) };
        if std::mem::take(&mut schedule.paused) {
            schedule.next_at = next_at;
        }
        Ok(true)
    }
}
