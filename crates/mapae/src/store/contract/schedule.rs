//! Schedules: when each ticks next, kept where all keepers see it.

use async_trait::async_trait;

use super::StoreError;
use crate::job::name::{JobId, Kind, Owner, ScheduleName};
use crate::job::record::NewJob;
use crate::job::schedule::Missed;
use crate::job::timestamp::Timestamp;

#[async_trait]
pub trait Schedules {
    /// These schedules are known as given. One that is new, or whose time table is another now, ticks next at
    /// `next_at`; any other as before. Paused ones stay paused.
    async fn define(&self, schedules: &[Schedule]) -> Result<(), StoreError>;

    /// All that were ever defined, by name.
    async fn schedules(&self) -> Result<Vec<Schedule>, StoreError>;

    /// The schedule has moved from its tick at `from` to the one at `to` (`None`: to no other), and there is a job
    /// for each of these ticks, all in one transaction; false, with nothing done, where it is paused or no
    /// longer at `from`, because another keeper was first. No tick ever has two jobs.
    async fn tick(
        &self,
        name: &ScheduleName,
        from: Timestamp,
        to: Option<Timestamp>,
        jobs: &[(Timestamp, NewJob)],
    ) -> Result<bool, StoreError>;

    /// No job is made until it is resumed. False where there is no such schedule.
    async fn pause_schedule(&self, name: &ScheduleName) -> Result<bool, StoreError>;

    /// It goes on with the tick at `next_at`: what came meanwhile was not missed but paused.
    async fn resume_schedule(
        &self,
        name: &ScheduleName,
        next_at: Option<Timestamp>,
    ) -> Result<bool, StoreError>;
}

/// A schedule as the store knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub name: ScheduleName,
    pub owner: Owner,
    pub kind: Kind,
    pub cron: String,
    pub zone: String,
    pub missed: Missed,
    /// `None`: never again.
    pub next_at: Option<Timestamp>,
    /// The last tick that a job was made for, and that job.
    pub last: Option<(Timestamp, JobId)>,
    pub paused: bool,
}
