//! What is read back.

use mapae::job::name::JobId;
use mapae::job::record::Job;
use mapae::job::{State, Status};
use mapae::store::contract::{EventFilter, JobFilter, Page, Scope};

use super::{Known, SLACK};
use crate::stores::soon;
use crate::stores::walk::{DAY, Walk};

impl Walk<'_> {
    pub(super) fn assert_job(&self, place: usize, job: &Job) {
        let known = &self.jobs[place];
        let life = &known.life;
        assert_eq!(job.state, life.state(), "the state of job {place}");
        assert_eq!(job.attempt, life.attempt, "attempts of job {place}");
        assert_eq!((job.throttled, job.redrives), (life.throttled, life.redrives), "of job {place}");
        assert_eq!(job.snoozed, life.snoozed, "of job {place}");
        assert_eq!(job.sequence, life.sequence, "events of job {place}");
        assert_eq!(job.deadline.is_some(), life.deadline.is_some(), "the deadline of job {place}");
        if life.state() == State::Pending {
            self.assert_at("the job is due", job.due_at, life.due_at);
        }
        if let (Some(told), Some(deadline)) = (job.deadline, life.deadline) {
            self.assert_at("its deadline", told, deadline);
        }
        assert_eq!(job.finished_at.is_some(), life.state().is_terminal(), "the end of job {place}");
        if let (Some(told), Some(at)) = (job.finished_at, known.finished_at) {
            self.assert_at("it ended", told, at);
        }
        assert_eq!(job.holder.as_ref(), known.holder(), "the holder of job {place}");
        if let Status::Running { cancel_asked, .. } = &life.status {
            assert_eq!(job.cancel_asked, *cancel_asked, "job {place}");
            assert!(job.started_at.is_some());
            assert_eq!(job.progress, known.progress, "of job {place}");
        }
        if life.state() != State::Cancelled {
            let failure = job.failure.as_ref().map(|failure| (failure.code.clone(), failure.attempt));
            assert_eq!(failure, known.failure, "the failure of job {place}");
        }
        assert_eq!(
            (&job.owner, &job.kind, &job.params),
            (&known.new.owner, &known.new.kind, &known.new.params)
        );
        assert_eq!((job.priority, job.retry), (known.new.priority, known.new.retry));
    }

    /// Everything that can be read of a job is as the books say.
    pub(in crate::stores::walk) async fn look_at(&self, place: usize) {
        let known = &self.jobs[place];
        let id = known.new.id;
        let job = self.store.job(&Scope::All, id).await.unwrap();
        assert_eq!(job.is_some(), known.readable(), "job {place} can be read");
        let filter = EventFilter { job: Some(id), ..EventFilter::default() };
        let Some(job) = job else {
            assert_eq!(self.store.events(&Scope::All, &filter, 1000).await.unwrap(), []);
            assert_eq!(self.store.output(&Scope::All, id).await.unwrap(), None);
            return;
        };
        self.assert_job(place, &job);
        let events = soon("all events can be read", async || {
            let events = self.store.events(&Scope::All, &filter, 1000).await.unwrap();
            (events.len() >= known.events.len()).then_some(events)
        })
        .await;
        assert_eq!(events.len(), known.events.len(), "no event that was not told");
        assert!(events.is_sorted_by(|a, b| a.position < b.position));
        for (number, (event, (kind, attempt))) in events.iter().zip(&known.events).enumerate() {
            assert_eq!(event.sequence, number as u64 + 1);
            assert_eq!(event.event, *kind, "event {} of job {place}", number + 1);
            assert!(attempt.is_none_or(|attempt| attempt == event.attempt), "of {event:?}");
        }
    }

    pub(in crate::stores::walk) async fn look_at_everything(&self) {
        let now = self.now();
        for (place, known) in self.jobs.iter().enumerate() {
            self.look_at(place).await;
            let id = known.new.id;
            let output = self.store.output(&Scope::All, id).await.unwrap();
            let shown = known.readable() && known.life.state() == State::Succeeded;
            assert_eq!(output, known.output.clone().filter(|_| shown), "the result of job {place}");
            let foreign = Scope::Owner(crate::stores::owner("nobody"));
            assert_eq!(self.store.job(&foreign, id).await.unwrap(), None);
            if known.readable() {
                let mut kept = self.store.checkpoints(id).await.unwrap();
                let mut expected = known.checkpoints.clone();
                kept.sort_by(|a, b| a.stage.cmp(&b.stage));
                expected.sort_by(|a, b| a.stage.cmp(&b.stage));
                assert_eq!(kept, expected, "the stages of job {place}");
            }
        }

        let page = Page { after: None, limit: 1000 };
        let listed = self.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap();
        let listed: Vec<JobId> = listed.jobs.iter().map(|job| job.id).collect();
        let mut expected: Vec<JobId> =
            self.jobs.iter().filter(|known| known.readable()).map(|known| known.new.id).collect();
        expected.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(listed, expected);

        let stats = self.store.stats().await.unwrap();
        for state in State::ALL {
            let told = stats.states.iter().find(|(known, _)| *known == state).expect("zero-filled").1;
            let counted =
                self.jobs.iter().filter(|known| known.readable() && known.life.state() == state).count();
            assert_eq!(told, counted as u64, "{}", state.as_str());
        }

        let unrung = |known: &&Known| known.hint() == Some(0);
        let paused = |known: &Known| self.paused.contains(&known.new.lane());
        if !self.jobs.iter().filter(unrung).any(paused) {
            let due = self.jobs.iter().filter(unrung).map(|known| known.life.due_at.since(now)).min();
            let told = self.store.next_due(100 * DAY).await.unwrap();
            assert_eq!(told.is_some(), due.is_some());
            if let (Some(told), Some(due)) = (told, due) {
                assert!(told.abs_diff(due) < SLACK, "{told:?} instead of {due:?}");
            }
        }
    }
}
