//! Random sequences of calls, each answer predicted by [`Life`] walked beside the store.
//!
//! Durations are whole days and walks take seconds, so it is never in doubt what is due. Two things the
//! store chooses are read back: tokens, and the jittered wait after a loss, which is at most seconds
//! and after which a day is let pass.

mod expect;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use mapae::job::name::{IdempotencyKey, JobId, Priority};
use mapae::job::record::{Checkpoint, FirstRing, NewJob, Output, Progress};
use mapae::job::retry::{Backoff, Failure, RetryPolicy, Verdict};
use mapae::job::timestamp::Timestamp;
use mapae::store::contract::{Answer, Delivery, Member, Retention, RingPlan, Scope, Store};
use serde_json::json;

use self::expect::{Held, Known, Standing};
use super::{Harness, backends, join, kind, owner};

const DAY: Duration = Duration::from_secs(24 * 3600);
const STEPS: u64 = 40;
const JOBS: usize = 4;
const OWNERS: [&str; 2] = ["acme", "globex"];
const KINDS: [&str; 2] = ["analyze", "notify"];
const WORKERS: [&str; 3] = ["w1", "w2", "w3"];

/// What walks have to meet between them: a walk that never comes by a situation proves nothing of it.
const SIGHTS: [&str; 35] = [
    "accept again",
    "accept refused",
    "beat lost",
    "beat renewed",
    "beat renewed, cancel asked",
    "cancel asked",
    "claim busy",
    "claim cancelled",
    "claim failed",
    "claim finished",
    "claim foreign",
    "claim not due",
    "claim paused",
    "claim run",
    "claim stale",
    "claim rung",
    "control conflict",
    "control not found",
    "expire",
    "fenced out",
    "given up",
    "lend",
    "prune",
    "put off",
    "reap",
    "reap of the gone",
    "reap of the lent",
    "ring again",
    "settle",
    "settle again",
    "settle of a deleted job",
    "told",
    "told again",
    "told in vain",
    "told too late",
];

/// Numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn index(&mut self, length: usize) -> usize {
        self.roll(length as u64) as usize
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }

    fn days(&mut self, from: u64, to: u64) -> Duration {
        DAY * (from + self.roll(to - from + 1)) as u32
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.roll(one_in) == 0
    }
}

/// A worker as the walk knows it.
struct Person {
    member: Box<dyn Member>,
    /// Its process is gone, so is its presence.
    gone: bool,
}

struct Walk<'a> {
    dice: Dice,
    store: Arc<dyn Store>,
    harness: &'a dyn Harness,
    began: Timestamp,
    passed: Duration,
    jobs: Vec<Known>,
    /// Every lease ever given, with the job's place in `jobs`.
    leases: Vec<Held>,
    workers: Vec<Person>,
    paused: Vec<mapae::job::name::Lane>,
    /// Pointers handed out last, to be confirmed.
    rung: Vec<(JobId, u32)>,
    /// What stands before the receiver of events.
    standing: Vec<Standing>,
    /// What was handed out to be told, and not answered yet.
    taken: Vec<Delivery>,
    log: Vec<String>,
    met: BTreeSet<&'static str>,
}

#[test]
fn a_random_walk_is_answered_as_the_pure_function_says() {
    let chosen = std::env::var("MAPAE_WALK_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let count = std::env::var("MAPAE_WALKS").ok().map(|count| count.parse::<u64>().expect("a number"));
    for at in 0..runtime().block_on(backends()).len() {
        let begin = Instant::now();
        // Threads with a database each: most of a walk is waiting for answers.
        let shards = if chosen.is_some() { 1 } else { SHARDS };
        let threads: Vec<_> = (0..shards)
            .map(|shard| std::thread::spawn(move || runtime().block_on(walks(at, shard, chosen, count))))
            .collect();
        let (mut met, mut done) = (BTreeSet::new(), 0);
        for thread in threads {
            match thread.join() {
                Ok((sights, walks)) => {
                    met.extend(sights);
                    done += walks;
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        if done >= 1000 {
            let missed: Vec<&str> = SIGHTS.into_iter().filter(|sight| !met.contains(sight)).collect();
            assert!(missed.is_empty(), "no walk came by {missed:?}");
        }
        eprintln!("back end {at}: {done} walks of {STEPS} calls in {:.1?}", begin.elapsed());
    }
}

const SHARDS: u64 = 4;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// This shard's walks on a back end of its own, and how many they were.
async fn walks(
    at: usize,
    shard: u64,
    chosen: Option<u64>,
    count: Option<u64>,
) -> (BTreeSet<&'static str>, u64) {
    let harness = backends().await.swap_remove(at);
    let seeds: Vec<u64> = match chosen {
        Some(seed) => vec![seed],
        None => (0..count.unwrap_or(harness.walks())).filter(|seed| seed % SHARDS == shard).collect(),
    };
    let mut met = BTreeSet::new();
    for seed in &seeds {
        met.extend(walk(&*harness, *seed).await);
    }
    (met, seeds.len() as u64)
}

/// One walk. Where an answer is not the predicted one, tells how it came to it.
async fn walk(harness: &dyn Harness, seed: u64) -> BTreeSet<&'static str> {
    let store = harness.fresh().await;
    let mut walk = Walk {
        dice: Dice(seed),
        began: store.now().await.unwrap(),
        store,
        harness,
        passed: Duration::ZERO,
        jobs: Vec::new(),
        leases: Vec::new(),
        workers: Vec::new(),
        paused: Vec::new(),
        rung: Vec::new(),
        standing: Vec::new(),
        taken: Vec::new(),
        log: Vec::new(),
        met: BTreeSet::new(),
    };
    if let Err(panic) = AssertUnwindSafe(walk.run()).catch_unwind().await {
        eprintln!("on {}, seed {seed}:", harness.name());
        for (number, line) in walk.log.iter().enumerate() {
            eprintln!("{:>3}  {line}", number + 1);
        }
        eprintln!("MAPAE_WALK_SEED={seed} cargo test -p mapae --test it a_random_walk");
        std::panic::resume_unwind(panic);
    }
    walk.met
}

impl Walk<'_> {
    async fn run(&mut self) {
        for name in WORKERS {
            let member = join(&*self.store, name).await;
            self.workers.push(Person { member, gone: false });
        }
        for _ in 0..STEPS {
            self.step().await;
        }
        self.look_at_everything().await;
    }

    async fn step(&mut self) {
        if self.jobs.is_empty() {
            return self.accept().await;
        }
        match self.dice.roll(38) {
            0..=3 => self.accept().await,
            4..=5 => self.ring().await,
            6 => self.confirm().await,
            7..=11 => self.claim().await,
            12..=13 => self.claim_rung().await,
            14 => self.beat().await,
            15 => self.progress().await,
            16..=17 => self.checkpoint().await,
            18..=21 => self.settle().await,
            22..=23 => self.reap().await,
            24 => self.expire().await,
            25 => self.cancel().await,
            26 => self.delete().await,
            27..=28 => self.redrive().await,
            29 => self.pause_or_resume().await,
            30 => self.prune().await,
            31 => self.restart().await,
            32..=34 => self.tell().await,
            35..=36 => self.lend().await,
            _ => {
                let by = self.dice.days(1, 2);
                self.pass(by).await;
            }
        }
    }

    async fn pass(&mut self, by: Duration) {
        self.log.push(format!("{} days pass", by.as_secs() / DAY.as_secs()));
        self.harness.pass(by).await;
        self.passed += by;
    }

    /// Now, as the walk counts time: seconds of real time count for nothing.
    fn now(&self) -> Timestamp {
        self.began + self.passed
    }

    /// A moment of the walk as the store has to be told it now.
    fn stored(&self, at: Timestamp) -> Timestamp {
        Timestamp::from_micros(at.micros() - self.harness.shifted().as_micros() as i64)
    }

    fn new_job(&mut self) -> NewJob {
        let dice = &mut self.dice;
        let wait = dice.of(&[Duration::ZERO, Duration::from_secs(1)]);
        let retry = RetryPolicy {
            attempts: 1 + dice.roll(3) as u32,
            backoff: Backoff { first: wait, max: 4 * wait },
        };
        let run_at = dice.chance(4).then(|| dice.days(1, 2));
        let deadline = dice.chance(3).then(|| dice.days(1, 4));
        let key = dice.chance(3).then(|| dice.roll(2));
        let idempotency = key.map(|key| {
            (IdempotencyKey::new(format!("key-{key}")).unwrap(), [u8::from(self.dice.chance(4)); 32])
        });
        let (who, what) = (self.dice.of(&OWNERS), self.dice.of(&KINDS));
        NewJob {
            retry,
            idempotency,
            priority: self.dice.of(&[Priority::NORMAL, Priority::NORMAL, Priority::new(1).unwrap()]),
            run_at: run_at.map(|after| self.stored(self.now() + after)),
            deadline: deadline.map(|after| self.stored(self.now() + after)),
            rung: self.dice.chance(4).then(|| FirstRing { turn: 1, again: self.dice.days(1, 2) }),
            ..NewJob::new(owner(who), kind(what), json!({ "n": self.jobs.len() }))
        }
    }

    async fn accept(&mut self) {
        let job = self.new_job();
        // Once there are enough, only submissions that are answered with one of them.
        if self.jobs.len() < JOBS || self.submitted_before(&job) {
            self.expect_accept(job).await;
        }
    }

    async fn ring(&mut self) {
        let tight = self.dice.chance(4);
        let patience = match self.dice.chance(4) {
            true => vec![(self.new_job().lane(), self.dice.days(1, 3))],
            false => Vec::new(),
        };
        let rescan = (!self.dice.chance(6)).then_some(patience);
        let plan = RingPlan {
            window: if tight { 1 + self.dice.index(2) } else { 1000 },
            least: if self.dice.chance(2) { 0 } else { 1 + self.dice.index(2) },
            again: self.dice.days(1, 2),
            rescan,
            max: if self.dice.chance(4) { 1 } else { 1000 },
        };
        self.expect_ring(&plan).await;
    }

    async fn confirm(&mut self) {
        let age = self.dice.days(1, 2);
        let pointers = self.rung.clone();
        self.expect_rung(&pointers, age).await;
    }

    async fn claim(&mut self) {
        let worker = self.dice.index(WORKERS.len());
        let mut pointers = Vec::new();
        for _ in 0..=self.dice.roll(3) {
            let known = self.dice.index(self.jobs.len());
            let right = self.jobs[known].new.owner.clone();
            let other = OWNERS.iter().find(|name| **name != right.as_str()).expect("there are two");
            let owner = if self.dice.chance(10) { owner(other) } else { right };
            let job = if self.dice.chance(20) { JobId::new() } else { self.jobs[known].new.id };
            pointers.push((job, owner));
        }
        let lease = self.dice.days(1, 3);
        self.expect_claim(worker, &pointers, lease).await;
    }

    async fn claim_rung(&mut self) {
        let worker = self.dice.index(WORKERS.len());
        let mut lanes: Vec<_> = self.jobs.iter().map(|known| known.new.lane()).collect();
        lanes.sort();
        lanes.dedup();
        if self.dice.chance(2) {
            lanes.reverse();
        }
        let quota = self.dice.of(&[1, 1000]);
        let max = self.dice.of(&[1, 2, 1000, 1000]);
        let lease = self.dice.days(1, 3);
        self.expect_claim_rung(worker, &lanes, quota, max, lease).await;
    }

    /// A lease, the last ones more often than those before.
    fn some_lease(&mut self) -> Option<Held> {
        let count = self.leases.len();
        let recent = count.min(3);
        if count == 0 {
            return None;
        }
        let at =
            if self.dice.chance(4) { self.dice.index(count) } else { count - 1 - self.dice.index(recent) };
        Some(self.leases[at].clone())
    }

    async fn beat(&mut self) {
        let worker = self.dice.index(WORKERS.len());
        let mut held = Vec::new();
        for _ in 0..2 {
            held.extend(self.some_lease());
        }
        held.dedup_by_key(|held| held.lease.job);
        let lease = self.dice.days(1, 3);
        self.expect_beat(worker, &held, lease).await;
    }

    async fn progress(&mut self) {
        let Some(held) = self.some_lease() else { return };
        let progress = Progress { stage: "tables".into(), done: self.dice.roll(9), of: 9 };
        self.expect_progress(&held, progress).await;
    }

    async fn checkpoint(&mut self) {
        let Some(held) = self.some_lease() else { return };
        let output = Output::Inline(json!(self.dice.roll(100)));
        let stage = self.dice.of(&["convert", "tables"]).to_owned();
        self.expect_checkpoint(&held, Checkpoint { stage, output, took: Duration::from_millis(5) }).await;
    }

    async fn settle(&mut self) {
        let Some(held) = self.some_lease() else { return };
        let delay = self.dice.days(0, 2);
        let verdict = match self.dice.roll(10) {
            0..=1 => Verdict::Succeed,
            2..=3 => {
                Verdict::Retry { failure: Failure::retryable("vendor-down", "It did not answer."), delay }
            }
            4 => Verdict::Throttle { failure: Failure::retryable("quota", "It is busy."), delay },
            5..=6 => Verdict::Fail { failure: Failure::terminal("damaged", "It cannot be read.") },
            9 => Verdict::Snooze { delay },
            7 => Verdict::Stale { failure: Failure::stale("gone", "It is gone.") },
            _ => Verdict::HandBack,
        };
        self.expect_settle(&held, verdict).await;
    }

    async fn lend(&mut self) {
        let Some(held) = self.some_lease() else { return };
        let until = self.dice.days(1, 3);
        self.expect_lend(&held, until).await;
    }

    async fn reap(&mut self) {
        if self.expect_reap().await {
            // Until the wait after the loss is surely over.
            self.pass(DAY).await;
        }
    }

    /// A job, and a scope that its owner's or everybody's, or another's.
    fn some_job(&mut self) -> (usize, Scope) {
        let known = self.dice.index(self.jobs.len());
        let scope = match self.dice.roll(4) {
            0 => Scope::Owner(owner(self.dice.of(&OWNERS))),
            1 => Scope::Owner(self.jobs[known].new.owner.clone()),
            _ => Scope::All,
        };
        (known, scope)
    }

    async fn cancel(&mut self) {
        let (known, scope) = self.some_job();
        self.expect_cancel(known, &scope).await;
    }

    async fn delete(&mut self) {
        let (known, scope) = self.some_job();
        self.expect_delete(known, &scope).await;
    }

    async fn redrive(&mut self) {
        let (known, scope) = self.some_job();
        self.expect_redrive(known, &scope).await;
    }

    async fn pause_or_resume(&mut self) {
        let known = self.dice.index(self.jobs.len());
        let lane = self.jobs[known].new.lane();
        if self.paused.contains(&lane) {
            self.log.push(format!("resume {lane}"));
            self.store.resume(&lane).await.unwrap();
            self.paused.retain(|paused| *paused != lane);
        } else {
            self.log.push(format!("pause {lane}"));
            self.store.pause(&lane).await.unwrap();
            self.paused.push(lane);
        }
    }

    async fn prune(&mut self) {
        let finished = self.dice.days(1, 4);
        let failed = finished + self.dice.days(0, 2);
        self.expect_prune(&Retention { finished, failed, memory: 1000 * DAY }).await;
    }

    /// A worker's process ends, or begins again under its name.
    async fn restart(&mut self) {
        let worker = self.dice.index(WORKERS.len());
        self.expect_restart(worker).await;
    }

    async fn tell(&mut self) {
        if self.dice.chance(2) {
            self.expect_spread().await;
        }
        if self.dice.chance(4) {
            let age = self.dice.days(1, 3);
            self.expect_give_up(age).await;
        }
        let (max, hold) = (1 + self.dice.index(4), self.dice.days(1, 2));
        self.expect_take(max, hold).await;
        for _ in 0..self.dice.roll(4) {
            if self.taken.is_empty() {
                return;
            }
            let place = self.dice.index(self.taken.len());
            let delivery = self.taken.swap_remove(place);
            let code = "receiver-silent".to_owned();
            let answer = match self.dice.roll(5) {
                0 => Answer::Later { wait: self.dice.days(1, 2), code },
                1 => Answer::Dead { code },
                _ => Answer::Taken,
            };
            self.expect_told(&delivery, answer).await;
        }
    }

    async fn expire(&mut self) {
        self.expect_expire().await;
    }
}
