//! What a handler sees and keeps, with a worker that dies, is cut off or is told to stop at each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mapae::handler::{Context, Handlers};
use mapae::job::State;
use mapae::job::record::{NewJob, Progress};
use mapae::job::retry::{Failure, FailureClass};
use mapae::store::contract::Claim;
use mapae::testing::{Delivered, Fault, LEASE, Point, Trial, job};
use serde_json::{Value, json};

/// Counts how often each stage was really worked on. The second gives more than a row takes.
#[derive(Clone, Default)]
struct Work(Arc<[AtomicU32; 2]>);

impl Work {
    fn did(&self, stage: usize) {
        self.0[stage].fetch_add(1, Ordering::SeqCst);
    }

    fn done(&self) -> [u32; 2] {
        [0, 1].map(|stage: usize| self.0[stage].load(Ordering::SeqCst))
    }

    fn handlers(&self) -> Handlers {
        let mut handlers = Handlers::default();
        let work = self.clone();
        handlers.add_fn("read", move |pages: u64, ctx: Context| {
            let work = work.clone();
            async move {
                let pages = ctx
                    .stage("small", || async {
                        work.did(0);
                        Ok(pages + 1)
                    })
                    .await?;
                let text: String = ctx
                    .stage("large", || async {
                        work.did(1);
                        Ok("가".repeat(200_000))
                    })
                    .await?;
                Ok(json!({ "pages": pages, "letters": text.chars().count() }))
            }
        });
        handlers
    }

    async fn trial(&self) -> Trial {
        Trial::new(self.handlers(), job("read", json!(6))).await
    }
}

#[tokio::test]
async fn a_worker_may_die_at_any_step_and_no_stage_that_was_kept_is_done_again() {
    let every = [
        (Point::AfterClaim, [1, 1]),
        (Point::AfterStage("small"), [1, 1]),
        (Point::AfterStage("large"), [1, 1]),
        (Point::BeforeSettle, [1, 1]),
    ];
    for (point, done) in every {
        let work = Work::default();
        let trial = work.trial().await;
        assert_eq!(trial.run_with(Fault::Crash, point).await, Delivered::Crashed, "{point:?}");
        let early = trial.run().await;
        assert!(matches!(early, Delivered::Refused(Claim::Busy(_))), "{point:?}: {early:?}");
        trial.expire_lease();
        assert_eq!(trial.run().await, Delivered::Settled(State::Succeeded), "{point:?}");
        assert_eq!(work.done(), done, "{point:?}");
        assert_eq!(trial.output().await, Some(json!({ "pages": 7, "letters": 200_000 })));
        assert_eq!(trial.job().await.attempt, 2);
    }
}

#[tokio::test]
async fn a_death_between_the_outcome_and_the_acknowledgement_costs_nothing() {
    let trial = Work::default().trial().await;
    assert_eq!(trial.run_with(Fault::Crash, Point::AfterSettle).await, Delivered::Crashed);
    assert_eq!(trial.run().await, Delivered::Refused(Claim::Finished(State::Succeeded)), "delivered twice");
    assert_eq!(trial.job().await.attempt, 1);
    assert_eq!(trial.events().await, ["accepted", "claimed", "stage", "stage", "succeeded"]);
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_keeps_no_stage_and_no_result() {
    for point in [Point::AfterClaim, Point::AfterStage("small"), Point::BeforeSettle] {
        let work = Work::default();
        let trial = work.trial().await;
        assert_eq!(trial.run_with(Fault::LoseLease, point).await, Delivered::LeaseLost, "{point:?}");
        assert_eq!((trial.output().await, trial.job().await.state), (None, State::Pending));
        let stages = trial.events().await.iter().filter(|event| **event == "stage").count();
        assert_eq!(
            stages,
            match point {
                Point::AfterClaim => 0,
                Point::AfterStage(_) => 1,
                _ => 2,
            }
        );
        assert_eq!(trial.run().await, Delivered::Settled(State::Succeeded), "{point:?}");
    }
}

#[tokio::test]
async fn a_cancelled_job_ends_cancelled_at_its_next_stage_and_gives_nothing() {
    let work = Work::default();
    let trial = work.trial().await;
    let ended = trial.run_with(Fault::Cancel, Point::AfterStage("small")).await;
    assert_eq!(ended, Delivered::Settled(State::Cancelled));
    assert_eq!((work.done(), trial.output().await), ([1, 0], None));
    // Before it was claimed.
    let trial = work.trial().await;
    trial.cancel().await;
    assert_eq!(trial.run().await, Delivered::Refused(Claim::Finished(State::Cancelled)));
    // Too late to be heard by the handler, but not for the row.
    let trial = work.trial().await;
    let ended = trial.run_with(Fault::Cancel, Point::BeforeSettle).await;
    assert_eq!((ended, trial.output().await), (Delivered::Settled(State::Cancelled), None));
}

#[tokio::test]
async fn a_failure_waits_its_backoff_and_a_panic_says_nothing_of_its_words() {
    let mut handlers = Handlers::default();
    handlers.add_fn("read", |(): (), ctx: Context| async move {
        match ctx.job().attempt {
            1 => Err(Failure::retryable("vendor-down", "The vendor did not answer.")),
            2 => panic!("the customer's secret"),
            _ => Ok(()),
        }
    });
    let trial = Trial::new(handlers, job("read", Value::Null)).await;
    assert_eq!(trial.run().await, Delivered::Settled(State::Pending));
    let early = trial.run().await;
    assert!(matches!(early, Delivered::Refused(Claim::NotDue(_))), "{early:?}");
    trial.pass(LEASE * 100);
    assert_eq!(trial.run().await, Delivered::Settled(State::Pending));
    let failure = trial.job().await.failure.unwrap();
    assert_eq!((failure.class, failure.attempt), (FailureClass::Retryable, 2));
    assert!(!failure.message.contains("secret"));
    trial.pass(LEASE * 100);
    assert_eq!(trial.run().await, Delivered::Settled(State::Succeeded));
}

#[tokio::test]
async fn progress_is_of_the_stage_named_last_and_gone_when_the_job_has_ended() {
    let mut handlers = Handlers::default();
    handlers.add_fn("read", |(): (), ctx: Context| async move {
        ctx.stage_progress("pages", 0, 9);
        ctx.progress(3, 9);
        // It is written beside the handler.
        tokio::task::yield_now().await;
        ctx.stage("kept", || async { Ok(()) }).await
    });
    let trial = Trial::new(handlers, job("read", Value::Null)).await;
    trial.run_with(Fault::Crash, Point::AfterStage("kept")).await;
    assert_eq!(trial.job().await.progress, Some(Progress { stage: "pages".into(), done: 3, of: 9 }));
    trial.expire_lease();
    trial.run().await;
    assert_eq!(trial.job().await.progress, None);
}

#[tokio::test]
async fn params_that_are_not_the_kinds_end_the_job_and_a_source_that_is_gone_makes_it_stale() {
    let mut handlers = Handlers::default();
    handlers.add_fn("read", |_: u64, ctx: Context| async move { ctx.source().await.map(|_| ()) });
    let trial = Trial::new(handlers.clone(), job("read", json!("many"))).await;
    assert_eq!(trial.run().await, Delivered::Settled(State::Failed));
    assert_eq!(trial.job().await.failure.unwrap().code, "params-invalid");

    let mut gone: NewJob = job("read", json!(1));
    gone.source = Some(mapae::job::record::Source {
        name: "a.pdf".into(),
        bytes: 1,
        sha256: "0".repeat(64),
        media_type: "application/pdf".into(),
        file: format!("originals/{}", gone.id),
    });
    let trial = Trial::new(handlers, gone).await;
    assert_eq!(trial.run().await, Delivered::Settled(State::Stale));
    assert_eq!(trial.job().await.failure.unwrap().code, "source-gone");
}
