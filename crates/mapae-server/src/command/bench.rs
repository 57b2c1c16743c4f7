//! `mapae bench`: what this database carries on this machine, with jobs that do nothing.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::StreamExt;
use mapae::handler::{Context, Handlers};
use mapae::job::name::{Kind, Owner};
use mapae::job::record::NewJob;
use mapae::store::Scratch;
use mapae::store::contract::StoreError;
use mapae::worker::{self, WorkerHandle, WorkerPlan};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Flag};
use crate::global::Global;
use crate::log;
use crate::output::{Form, Line, pretty, print, say, table};
use crate::runtime::{Migrate, Runtime};
use crate::signals;
use crate::trouble::{Exit, Trouble};

const KIND: &str = "mapae.bench";

/// Jobs accepted one after the other, and jobs given to an idle worker.
const SINGLES: usize = 100;

/// Callers that submit at the same time.
const CALLERS: usize = 128;

/// Between two jobs for an idle worker: it has gone back to waiting by then.
const REST: Duration = Duration::from_millis(10);

/// How often what has ended is counted.
const LOOK: Duration = Duration::from_millis(2);

/// The longest that nothing begins or ends.
const STUCK: Duration = Duration::from_secs(60);

const COLUMNS: &[(&str, &str)] =
    &[("WHAT", "what"), ("A SECOND", "a_second"), ("P50", "half"), ("P99", "most")];

#[derive(Args)]
pub(crate) struct Bench {
    /// Jobs to accept and to work off
    #[arg(long, value_name = "N", default_value = "5000", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    jobs: u32,
    /// Jobs that the worker runs at the same time
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrency: u16,
}

impl Bench {
    /// On a database of its own, on the disk or the server of the configured one: whatever else is in there is neither
    /// read nor changed.
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let configured = global.configuration(&[])?;
        // From here on an interrupt ends in order: nobody else removes what is made next.
        let stop = signals::stop_token()?;
        let scratch = Scratch::beside(configured.database.reveal()).await.map_err(no_scratch)?;
        let measured = self.on(global, &scratch, stop).await;
        let removed = scratch.remove().await;
        let Some(found) = measured? else { return Ok(ExitCode::from(130)) };
        removed?;
        print(&match global.output {
            Form::Table => table(&found.iter().map(Figure::words).collect::<Vec<_>>(), COLUMNS),
            Form::Json => pretty(&found.iter().map(Figure::numbers).collect::<Value>()),
            Form::Jsonl | Form::Id => found.iter().map(|figure| format!("{}\n", figure.numbers())).collect(),
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// `None` where it was interrupted.
    async fn on(
        &self,
        global: &Global,
        scratch: &Scratch,
        stop: CancellationToken,
    ) -> Result<Option<Vec<Figure>>, Trouble> {
        let folder = tempfile::tempdir()?;
        let mut config = global.configuration(&flags(scratch, folder.path()))?;
        config.schedules.clear();
        (config.events.receivers, config.events.callbacks) = (Vec::new(), None);
        log::start(&crate::config::Log { level: crate::config::Level::Error, ..config.log });
        let runtime = Runtime::open(&config, Migrate::Always).await?;
        let keeper = runtime.start_keeper(&config).map_err(crate::runtime::WorkerError::from)?;
        let site = Site {
            runtime: runtime.clone(),
            begun: watch::Sender::new((0, Instant::now())),
            stop: stop.clone(),
        };
        let measured = stop.run_until_cancelled(site.measure(&config, self)).await;
        keeper.stop().await;
        runtime.store.close().await;
        measured.transpose()
    }
}

fn flags(scratch: &Scratch, folder: &std::path::Path) -> Vec<Flag> {
    vec![
        ("database.url", scratch.url().to_owned(), "bench"),
        ("files.url", format!("file:{}", folder.display()), "bench"),
        // Its figures are the database's own, and nothing is left in a broker that others use.
        ("broker.url", "embedded:".to_owned(), "bench"),
    ]
}

fn no_scratch(error: StoreError) -> Trouble {
    let StoreError::Broken(_) = &error else { return error.into() };
    let sentence = "No database can be made beside the configured one.";
    let help = "allow its user to (alter role … createdb), or name another server by MAPAE_DATABASE_URL";
    Trouble::new(Exit::NotPermitted, "bench-no-database", sentence, help)
}

/// What was measured of one thing.
struct Figure {
    what: String,
    name: &'static str,
    a_second: Option<f64>,
    half: Option<Duration>,
    most: Option<Duration>,
}

impl Figure {
    fn words(&self) -> Value {
        let ms = |time: Option<Duration>| time.map(|time| format!("{:.1} ms", time.as_secs_f64() * 1000.0));
        let a_second = self.a_second.map(|rate| format!("{rate:.0}"));
        json!({ "what": self.what, "a_second": a_second, "half": ms(self.half), "most": ms(self.most) })
    }

    fn numbers(&self) -> Value {
        let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
        json!({ "name": self.name, "per_second": self.a_second, "p50_ms": ms(self.half), "p99_ms": ms(self.most) })
    }
}

/// A runtime whose jobs do nothing.
struct Site {
    runtime: Arc<Runtime>,
    /// How many handlers have begun, and when the last one did.
    begun: watch::Sender<(usize, Instant)>,
    stop: CancellationToken,
}

impl Site {
    async fn measure(&self, config: &Config, plan: &Bench) -> Result<Vec<Figure>, Trouble> {
        let (jobs, slots) = (plan.jobs as usize, usize::from(plan.concurrency));
        let mut line = Line::default();
        line.show("accepting, one after the other");
        let alone = self.accepted(SINGLES, 1).await?;
        line.show("accepting, many at a time");
        let many = self.accepted(jobs, CALLERS).await?;
        line.show("working off");
        let waiting = SINGLES + jobs;
        let began = Instant::now();
        let worker = self.worker(config, slots).await?;
        self.ended(waiting, |begun| line.show(&format!("working off: {begun} of {waiting}"))).await?;
        let took = began.elapsed();
        line.show("starting jobs on an idle worker");
        let starts = self.starts(waiting).await;
        line.clear();
        worker.drain().await;
        let store = self.runtime.store.name();
        say(&format!("{store}, embedded broker, jobs that do nothing; the figures are this machine's, now"));
        let drained = Figure {
            what: format!("{waiting} jobs worked off, {slots} at a time"),
            name: "drain",
            a_second: Some(waiting as f64 / took.as_secs_f64()),
            half: None,
            most: None,
        };
        let (half, most) = spread(starts?);
        Ok(vec![
            alone.named("accept, one caller", "accept_one"),
            many.named(&format!("accept, {CALLERS} callers"), "accept_many"),
            drained,
            Figure { what: "accepted to started, idle".into(), name: "start", a_second: None, half, most },
        ])
    }

    /// So many jobs, by so many callers at the same time.
    async fn accepted(&self, jobs: usize, callers: usize) -> Result<Accepted, Trouble> {
        let began = Instant::now();
        let mut answers = futures_util::stream::iter((0..jobs).map(|_| async {
            let asked = Instant::now();
            self.runtime.accept.accept(job()).await.map(|_| asked.elapsed())
        }))
        .buffer_unordered(callers);
        let mut waits = Vec::with_capacity(jobs);
        while let Some(answer) = answers.next().await {
            waits.push(answer.map_err(refused)?);
        }
        Ok(Accepted { rate: jobs as f64 / began.elapsed().as_secs_f64(), waits })
    }

    async fn worker(&self, config: &Config, slots: usize) -> Result<WorkerHandle, Trouble> {
        let mut handlers = Handlers::default();
        let begun = self.begun.clone();
        handlers.add_fn(KIND, move |_: Value, _: Context| {
            begun.send_modify(|(count, last)| (*count, *last) = (*count + 1, Instant::now()));
            async { Ok(()) }
        });
        let plan = WorkerPlan {
            name: "bench".into(),
            strict_name: false,
            slots,
            prefetch: slots,
            timing: config.worker.timing,
            capacity: Default::default(),
            rates: Default::default(),
            limits: Default::default(),
        };
        let started = worker::start(self.runtime.parts(), handlers, plan, self.stop.clone()).await;
        Ok(started.map_err(crate::runtime::WorkerError::from)?)
    }

    /// Until so many jobs have begun and none is left. Not by how many have succeeded: those are counted up to a bound.
    async fn ended(&self, jobs: usize, mut told: impl FnMut(usize)) -> Result<(), Trouble> {
        let mut begun = self.begun.subscribe();
        loop {
            let count = begun.borrow_and_update().0;
            told(count);
            if count >= jobs {
                break;
            }
            let changed = tokio::time::timeout(STUCK, begun.changed());
            changed.await.map_err(|_| stuck("No job has begun for a minute.")).map(drop)?;
        }
        let until = Instant::now() + STUCK;
        while Instant::now() < until {
            let stats = self.runtime.store.stats().await?;
            if stats.states.iter().all(|(state, count)| state.is_terminal() || *count == 0) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(stuck("Jobs do not end."))
    }

    /// From the answer of an accept to the start of its handler.
    async fn starts(&self, before: usize) -> Result<Vec<Duration>, Trouble> {
        let mut begun = self.begun.subscribe();
        let mut waits = Vec::with_capacity(SINGLES);
        for number in 1..=SINGLES {
            self.runtime.accept.accept(job()).await.map_err(refused)?;
            let answered = Instant::now();
            let begins = begun.wait_for(|(count, _)| *count >= before + number);
            let began = match tokio::time::timeout(STUCK, begins).await {
                Ok(Ok(begun)) => begun.1,
                Ok(Err(_)) | Err(_) => return Err(stuck("A job has not begun for a minute.")),
            };
            waits.push(began.saturating_duration_since(answered));
            tokio::time::sleep(REST).await;
        }
        Ok(waits)
    }
}

fn stuck(sentence: &str) -> Trouble {
    Trouble::new(Exit::TryAgain, "bench-stuck", sentence, "run `mapae doctor`")
}

struct Accepted {
    rate: f64,
    waits: Vec<Duration>,
}

impl Accepted {
    fn named(self, what: &str, name: &'static str) -> Figure {
        let (half, most) = spread(self.waits);
        Figure { what: what.into(), name, a_second: Some(self.rate), half, most }
    }
}

fn job() -> NewJob {
    let owner = Owner::new("bench").expect("it is a name");
    NewJob::new(owner, Kind::new(KIND).expect("it is a name"), json!({}))
}

fn refused(error: mapae::accept::SubmitError) -> Trouble {
    Trouble::new(Exit::Unavailable, "not-accepted", format!("{error}."), "check that there is room")
}

/// The median, and what one in a hundred is above.
fn spread(mut waits: Vec<Duration>) -> (Option<Duration>, Option<Duration>) {
    waits.sort_unstable();
    let at =
        |share: usize| waits.get((waits.len() * share / 100).min(waits.len().saturating_sub(1))).copied();
    (at(50), at(99))
}
