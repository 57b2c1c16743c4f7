//! Pruning.

use async_trait::async_trait;

use super::{Memory, Tables};
use crate::job::State;
use crate::job::event::Event;
use crate::job::name::JobId;
use crate::store::contract::{Garbage, Pruned, Retention, StoreError, Tidy};
use crate::store::row::job_of_file;

#[async_trait]
impl Tidy for Memory {
    async fn prune(&self, retention: &Retention, max: usize) -> Result<Pruned, StoreError> {
        Ok(self.tables().prune(retention, max))
    }

    async fn garbage(&self, max: usize) -> Result<Vec<Garbage>, StoreError> {
        Ok(self.tables().garbage.iter().take(max).cloned().collect())
    }

    async fn swept(&self, files: &[Garbage]) -> Result<(), StoreError> {
        self.tables().garbage.retain(|known| files.iter().all(|swept| swept.file != known.file));
        Ok(())
    }

    async fn referenced(&self, files: &[String]) -> Result<Vec<String>, StoreError> {
        let tables = self.tables();
        let known = |file: &&String| {
            let row = job_of_file(file).and_then(|job| tables.jobs.get(&JobId(job)));
            row.is_some_and(|row| row.finished_at.is_none() || row.files().any(|known| known == *file))
        };
        Ok(files.iter().filter(known).cloned().collect())
    }
}

impl Tables {
    fn prune(&mut self, retention: &Retention, max: usize) -> Pruned {
        let now = self.now();
        let mut pruned = Pruned::default();
        let ended: Vec<JobId> =
            self.jobs.values().filter(|row| row.finished_at.is_some()).map(|row| row.new.id).collect();
        for id in ended {
            let row = &self.jobs[&id];
            let kept = if row.life.state() == State::Failed { retention.failed } else { retention.finished };
            let past = row.finished_at.is_some_and(|at| at + kept <= now);
            let unsent = |event: &Event| event.job == id && !self.sent.contains(&(id, event.sequence));
            // Where they are told is known as long as there is something to tell.
            let to_tell = row.new.callback.is_some() && self.events.iter().any(unsent);
            if pruned.buried + pruned.expired == max
                || to_tell
                || self.has_strays(id)
                || (self.is_awaited(id) && !row.life.delete_asked)
                || !(past || row.life.delete_asked)
            {
                continue;
            }
            let row = self.jobs.remove(&id).expect("it was just looked at");
            self.batches.remove(&id);
            self.discard(row.files().map(str::to_owned).collect::<Vec<_>>());
            let sent = &self.sent;
            self.events.retain(|event| event.job != id || !sent.contains(&(id, event.sequence)));
            self.sent.retain(|(job, _)| *job != id);
            if row.life.delete_asked {
                pruned.buried += 1;
            } else {
                pruned.expired += 1;
            }
        }
        self.forget_dead(retention.failed);
        let jobs = &self.jobs;
        self.uniques.retain(|_, holder| jobs.contains_key(&holder.job));
        let unfinished = |job: &JobId| self.jobs.get(job).is_some_and(|row| row.finished_at.is_none());
        self.submissions.retain(|_, submission| {
            if unfinished(&submission.job) {
                submission.at = now;
            }
            now < submission.at + retention.memory
        });
        self.workers.retain(|_, worker| worker.present || now < worker.row.seen_at + retention.memory);
        pruned
    }
}
