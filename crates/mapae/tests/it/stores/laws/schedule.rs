//! Schedules: one job for each tick, whoever keeps them.

use mapae::job::State;
use mapae::job::name::{JobId, ScheduleName};
use mapae::job::record::NewJob;
use mapae::job::schedule::{Cron, Missed};
use mapae::job::timestamp::Timestamp;
use mapae::job::unique::UniqueRule;
use mapae::store::contract::{JobFilter, Page, Schedule, Scope};

use crate::stores::{Bench, LEASE, everywhere, job, kind, owner};

fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).unwrap()
}

fn hourly(next_at: Timestamp) -> Schedule {
    Schedule {
        name: name("hourly"),
        owner: owner("acme"),
        kind: kind("analyze"),
        cron: "0 * * * *".into(),
        zone: "Asia/Seoul".into(),
        missed: Missed::One,
        next_at: Some(next_at),
        last: None,
        paused: false,
    }
}

impl Bench {
    async fn schedule(&self) -> Schedule {
        let [schedule] = <[Schedule; 1]>::try_from(self.store.schedules().await.unwrap()).unwrap();
        schedule
    }

    async fn jobs(&self) -> Vec<JobId> {
        let page = Page { after: None, limit: 1000 };
        let all = self.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap();
        all.jobs.into_iter().map(|job| job.id).collect()
    }

    /// A whole second: the clocks of stores do not tick finer in all of them.
    async fn at(&self, later: u32) -> Timestamp {
        let now = self.store.now().await.unwrap();
        Timestamp::from_micros(now.micros() / 1_000_000 * 1_000_000) + later * LEASE
    }
}

fn tick_job(at: Timestamp) -> NewJob {
    NewJob { run_at: Some(at), ..job() }
}

#[tokio::test]
async fn a_schedule_is_known_as_it_was_defined_last_and_ticks_on_where_it_was() {
    everywhere(async |bench| {
        let (at, later) = (bench.at(1).await, bench.at(2).await);
        bench.store.define(&[hourly(at)]).await.unwrap();
        assert_eq!(bench.schedule().await, hourly(at));
        // Another start of a process: its next tick is later by now, and what it missed is not forgotten.
        let again = Schedule { missed: Missed::All, ..hourly(later) };
        bench.store.define(std::slice::from_ref(&again)).await.unwrap();
        assert_eq!(bench.schedule().await, Schedule { next_at: Some(at), ..again });
        let other = Schedule { cron: "5 * * * *".into(), ..hourly(later) };
        bench.store.define(std::slice::from_ref(&other)).await.unwrap();
        assert_eq!(bench.schedule().await, other);
    })
    .await;
}

#[tokio::test]
async fn many_keepers_at_once_make_one_job_for_each_tick() {
    everywhere(async |bench| {
        let times = [bench.at(0).await, bench.at(1).await, bench.at(2).await, bench.at(3).await];
        bench.store.define(&[hourly(times[0])]).await.unwrap();
        for pair in times.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let keepers: Vec<_> = (0..8)
                .map(|_| {
                    let store = bench.store.clone();
                    tokio::spawn(async move {
                        store.tick(&name("hourly"), from, Some(to), &[(from, tick_job(from))]).await.unwrap()
                    })
                })
                .collect();
            let mut first = 0;
            for keeper in keepers {
                first += u32::from(keeper.await.unwrap());
            }
            assert_eq!(first, 1);
        }
        assert_eq!(bench.jobs().await.len(), 3);
        let schedule = bench.schedule().await;
        assert_eq!((schedule.next_at, schedule.last.unwrap().0), (Some(times[3]), times[2]));
        let job = schedule.last.unwrap().1;
        assert_eq!(bench.store.job(&Scope::All, job).await.unwrap().unwrap().due_at, times[2]);
        assert_eq!(bench.kinds_told(job).await, ["accepted"]);
    })
    .await;
}

#[tokio::test]
async fn a_tick_that_has_had_its_job_gets_no_other() {
    everywhere(async |bench| {
        let (at, next) = (bench.at(0).await, bench.at(1).await);
        bench.store.define(&[hourly(at)]).await.unwrap();
        let tick = async |from, to| {
            bench.store.tick(&name("hourly"), from, Some(to), &[(at, tick_job(at))]).await.unwrap()
        };
        assert!(tick(at, next).await);
        // A schedule that is set back, by its definition or by the clock, comes to the same tick again.
        let other = Schedule { cron: "0 */2 * * *".into(), ..hourly(at) };
        bench.store.define(&[other]).await.unwrap();
        assert!(tick(at, next).await);
        assert_eq!(bench.jobs().await.len(), 1);
        assert!(!tick(at, next).await, "it is not there any more");
        let nobody = bench.store.tick(&name("other"), at, None, &[(at, tick_job(at))]).await.unwrap();
        assert!(!nobody && bench.jobs().await.len() == 1);
    })
    .await;
}

#[tokio::test]
async fn a_paused_schedule_does_not_tick_and_goes_on_where_it_is_told() {
    everywhere(async |bench| {
        let (at, next) = (bench.at(0).await, bench.at(1).await);
        bench.store.define(&[hourly(at)]).await.unwrap();
        assert!(bench.store.pause_schedule(&name("hourly")).await.unwrap());
        bench.store.define(&[hourly(at)]).await.unwrap();
        assert!(bench.schedule().await.paused, "also after another start");
        let tick = async |from| {
            bench.store.tick(&name("hourly"), from, None, &[(from, tick_job(from))]).await.unwrap()
        };
        assert!(!tick(at).await);
        assert!(bench.store.resume_schedule(&name("hourly"), Some(next)).await.unwrap());
        assert!(bench.store.resume_schedule(&name("hourly"), Some(at)).await.unwrap(), "it goes on already");
        assert!(!tick(at).await, "what came while it was paused is not made up for");
        assert!(tick(next).await);
        assert_eq!(bench.schedule().await.next_at, None, "and never again");
        assert!(!bench.store.pause_schedule(&name("other")).await.unwrap());
        assert!(!bench.store.resume_schedule(&name("other"), None).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_tick_whose_work_still_runs_has_that_job() {
    everywhere(async |bench| {
        let (at, next) = (bench.at(0).await, bench.at(1).await);
        let unique = UniqueRule::by_params().of(&job(), None);
        let first = bench.accept(NewJob { unique: unique.clone(), ..job() }).await;
        bench.store.define(&[hourly(at)]).await.unwrap();
        let jobs = [(at, NewJob { unique, ..tick_job(at) })];
        assert!(bench.store.tick(&name("hourly"), at, Some(next), &jobs).await.unwrap());
        assert_eq!(bench.schedule().await.last, Some((at, first)));
        assert_eq!((bench.jobs().await, bench.state(first).await), (vec![first], State::Pending));
    })
    .await;
}

#[test]
fn a_cron_expression_says_what_it_is() {
    let cron = Cron::new("0 * * * *", "Asia/Seoul").unwrap();
    assert_eq!((cron.pattern(), cron.zone()), ("0 * * * *", "Asia/Seoul"));
}
