//! Accepting what may be the same work as another job.

use super::Tables;
use crate::job::State;
use crate::job::name::JobId;
use crate::job::record::NewJob;
use crate::job::timestamp::Timestamp;

/// A job that holds a unique key.
pub(super) struct Holder {
    pub(super) job: JobId,
    states: Vec<State>,
    until: Option<Timestamp>,
}

impl Tables {
    /// The job that holds this one's unique key, where it is another. Otherwise this one holds the key, if it
    /// wants one.
    pub(super) fn holder(&mut self, job: &NewJob) -> Option<JobId> {
        let unique = job.unique.as_ref()?;
        let now = self.now();
        if let Some(holder) = self.uniques.get(&unique.key)
            && holder.until.is_none_or(|until| now < until)
            && let Some(row) = self.jobs.get(&holder.job)
            && !row.life.delete_asked
            && holder.states.contains(&row.life.state())
        {
            return (holder.job != job.id).then_some(holder.job);
        }
        let until = unique.period.map(|period| now + period);
        self.uniques.insert(unique.key, Holder { job: job.id, states: unique.states.clone(), until });
        None
    }
}
