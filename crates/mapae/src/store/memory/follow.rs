//! What comes after a job.

use super::{Row, Tables};
use crate::job::follow::Followed;
use crate::job::name::JobId;
use crate::job::{Life, Status};

impl Tables {
    /// The job has taken a step: where that ended it, what comes after is made.
    pub(super) fn follow(&mut self, id: JobId, before: &Life) {
        let now = self.now();
        let Some(row) = self.jobs.get_mut(&id) else { return };
        let Status::Ended(end) = row.life.status else { return };
        if before.state().is_terminal() || row.followed.iter().any(|(after, _, _)| *after == end) {
            return;
        }
        let Some(follow) = row.new.on.iter().find(|follow| follow.after == end) else { return };
        let next = follow.next.job(&row.new, now);
        row.followed.push((end, next.id, now));
        self.accept(next);
    }
}

impl Row {
    pub(super) fn declared(&self) -> Vec<Followed> {
        let mut declared: Vec<Followed> = self
            .new
            .on
            .iter()
            .map(|follow| Followed {
                after: follow.after,
                kind: follow.next.kind.clone(),
                made: self
                    .followed
                    .iter()
                    .find(|(after, _, _)| *after == follow.after)
                    .map(|(_, job, at)| (*job, *at)),
            })
            .collect();
        declared.sort_by_key(|followed| followed.after.as_str());
        declared
    }
}
