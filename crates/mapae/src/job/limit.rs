//! Limits that hold over all processes: of a named resource, of a kind, and of each owner within a kind.
//!
//! Every limit is a [`Gate`], and a job passes all the gates of its kind at once, when it is claimed. What
//! it takes of a gate is its [`Share`], which hangs on its lease: whatever ends the lease gives it back.
//! Here is what a gate decides, without I/O; the stores say in one transaction who stands where
//! (`store/contract/gate.rs`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use super::name::{Kind, Owner};
use super::resource::{Amounts, Need, Needs, Room};
use super::timestamp::Timestamp;

/// How long to wait before a gate is tried again where nobody can say when it opens: what frees it may
/// happen in another process.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How many jobs may start in a time, evenly spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub starts: u64,
    /// Above zero.
    pub per: Duration,
    /// How many may start at once after a pause. At least 1.
    pub burst: u64,
}

impl Rate {
    /// At once may start what the rate allows in a second, yet no more than a tenth of all, and always one.
    pub fn new(starts: u64, per: Duration) -> Self {
        let in_a_second = u128::from(starts) * 1_000_000 / per.as_micros().max(1);
        let burst = u64::try_from(in_a_second).unwrap_or(u64::MAX).min(starts / 10).max(1);
        Self { starts: starts.max(1), per, burst }
    }

    /// The time of one start, rounded up so that the rate is never passed.
    fn interval(&self) -> u64 {
        u64::try_from(self.per.as_micros()).unwrap_or(u64::MAX).div_ceil(self.starts.max(1)).max(1)
    }

    /// The furthest ahead of now that a pace of this rate ever is.
    fn reach(&self) -> u64 {
        self.interval().saturating_mul(self.burst)
    }

    /// How far `next` is ahead of now. Where it is further than this rate ever puts it, another rate did, or the clock
    /// was set back: one may start, as after all but one of the burst.
    fn ahead(&self, next: Option<Timestamp>, now: Timestamp) -> u64 {
        let ahead = micros(next.map_or(Duration::ZERO, |next| next.since(now)));
        if ahead > self.reach() { self.reach() - self.interval() } else { ahead }
    }

    /// How many may start now, where `next` is when the next one would be due at an even pace.
    pub fn left(&self, next: Option<Timestamp>, now: Timestamp) -> u64 {
        self.reach().saturating_sub(self.ahead(next, now)) / self.interval()
    }

    /// When the next one would be due after one that starts now.
    pub fn after(&self, next: Option<Timestamp>, now: Timestamp) -> Timestamp {
        now + Duration::from_micros(self.ahead(next, now).saturating_add(self.interval()))
    }

    /// How long until one may start.
    pub fn wait(&self, next: Option<Timestamp>, now: Timestamp) -> Duration {
        let spare = self.interval().saturating_mul(self.burst.saturating_sub(1));
        Duration::from_micros(self.ahead(next, now).saturating_sub(spare))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a gate lets through. Without either it limits nothing, and can still be shut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// How much of it may be in use at a time. At least 1.
    pub concurrent: Option<u64>,
    pub rate: Option<Rate>,
}

impl Limit {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What is limited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Each owner's jobs of a kind.
    Owner(Kind),
    /// All jobs of a kind.
    Kind(Kind),
    /// What jobs need of a named resource.
    Resource(String),
}

impl fmt::Display for Gate {
    /// As stores write it: `resource/ai`, `kind/document.analyze`, `owner/document.analyze`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(kind) => write!(f, "owner/{kind}"),
            Self::Kind(kind) => write!(f, "kind/{kind}"),
            Self::Resource(name) => write!(f, "resource/{name}"),
        }
    }
}

impl Gate {
    /// Reads what [`Gate`]'s `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (sort, name) = text.split_once('/')?;
        match sort {
            "owner" => Kind::new(name).ok().map(Self::Owner),
            "kind" => Kind::new(name).ok().map(Self::Kind),
            "resource" => Some(Self::Resource(name.to_owned())),
            _ => None,
        }
    }
}

/// What one kind's jobs meet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindLimits {
    pub whole: Limit,
    pub per_owner: Limit,
    needs: Needs,
}

/// All limits that hold over all processes. Each process that claims has to be told the same ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    resources: BTreeMap<String, Limit>,
    kinds: BTreeMap<Kind, KindLimits>,
}

/// How an owner's jobs are offered that has a limit of its own: no more of them than could start soon, so that
/// those of an owner that waits for itself take no place of others' in the hot window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EachOwner {
    pub gate: Gate,
    /// How many may run or be offered.
    pub places: u64,
    /// How far ahead of now its pace may be and one still start.
    pub spare: Duration,
    /// Further ahead than this it was put by another rate, and says nothing.
    pub reach: Duration,
}

impl EachOwner {
    /// Whether the pace of an owner keeps its jobs waiting.
    pub fn is_paced(&self, next: Option<Timestamp>, now: Timestamp) -> bool {
        next.is_some_and(|next| next > now + self.spare && next <= now + self.reach)
    }
}

/// A gate on a job's way, and what it takes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Toll {
    pub gate: Gate,
    pub limit: Limit,
    pub need: Need,
    /// It limits the process that claims and nobody else: no share of it is written down.
    pub here: bool,
}

impl Limits {
    /// The resource has this limit over all processes.
    pub fn resource(&mut self, name: impl Into<String>, limit: Limit) {
        self.resources.insert(name.into(), limit);
    }

    /// Jobs of the kind are limited like this, all together and for each owner.
    pub fn kind(&mut self, kind: Kind, whole: Limit, per_owner: Limit) {
        let limits = self.kinds.entry(kind).or_default();
        (limits.whole, limits.per_owner) = (whole, per_owner);
    }

    /// What jobs of the kind need; of resources that are not limited here nothing is taken.
    pub fn need(&mut self, kind: Kind, needs: Needs) {
        self.kinds.entry(kind).or_default().needs = needs;
    }

    pub fn resources(&self) -> impl Iterator<Item = (&str, &Limit)> {
        self.resources.iter().map(|(name, limit)| (name.as_str(), limit))
    }

    /// The first resource of which `needs` asks for more than there is over all processes.
    pub fn never_enough<'a>(&self, needs: &'a Amounts) -> Option<&'a str> {
        let all = |name: &str| self.resources.get(name).and_then(|limit| limit.concurrent);
        needs.iter().find(|(name, amount)| all(name).is_some_and(|all| all < *amount)).map(|(name, _)| name)
    }

    /// The limits of a kind by themselves.
    pub fn of_kind(&self, kind: &Kind) -> Option<&KindLimits> {
        self.kinds.get(kind)
    }

    /// The kinds whose claims have to ask.
    pub fn decided(&self, room: &[Room]) -> Vec<&Kind> {
        self.kinds.keys().filter(|kind| self.decides(kind, room)).collect()
    }

    pub fn is_limited(&self, kind: &Kind) -> bool {
        self.kinds.get(kind).is_some_and(|limits| {
            !limits.whole.is_none()
                || !limits.per_owner.is_none()
                || limits.needs.iter().any(|(name, _)| self.resources.contains_key(name))
        })
    }

    /// How the kind's jobs are offered where each owner has a limit of its own.
    pub fn each_owner(&self, kind: &Kind) -> Option<EachOwner> {
        let limit = self.kinds.get(kind).map(|limits| limits.per_owner).filter(|limit| !limit.is_none())?;
        let burst = limit.rate.map_or(1, |rate| rate.burst);
        Some(EachOwner {
            gate: Gate::Owner(kind.clone()),
            places: limit.concurrent.map_or(burst, |all| all.saturating_mul(2)),
            spare: limit
                .rate
                .map_or(Duration::ZERO, |rate| Duration::from_micros(rate.reach() - rate.interval())),
            reach: limit.rate.map_or(Duration::ZERO, |rate| Duration::from_micros(rate.reach())),
        })
    }

    /// The gates on the way of the kind's jobs: at least that of the kind, which may be shut. An owner's own
    /// comes first, so that an owner that waits for itself keeps nobody else waiting. Resources of the process
    /// that claims are there where a job's size decides how much of them it needs, or a rate when.
    pub fn tolls(&self, kind: &Kind, room: &[Room]) -> Vec<Toll> {
        let none = KindLimits::default();
        let limits = self.kinds.get(kind).unwrap_or(&none);
        let one = Need::fixed(1);
        let mut tolls = Vec::new();
        if !limits.per_owner.is_none() {
            let (gate, limit) = (Gate::Owner(kind.clone()), limits.per_owner);
            tolls.push(Toll { gate, limit, need: one, here: false });
        }
        tolls.push(Toll { gate: Gate::Kind(kind.clone()), limit: limits.whole, need: one, here: false });
        for (name, need) in limits.needs.iter() {
            let gate = Gate::Resource(name.to_owned());
            if let Some(limit) = self.resources.get(name) {
                tolls.push(Toll { gate, limit: *limit, need, here: false });
            } else if let Some(room) = room.iter().find(|room| room.name == name) {
                // What every job needs alike was seen to before the claim.
                let concurrent = room.all.filter(|_| need.per_byte > 0);
                let limit = Limit { concurrent, rate: room.rate };
                if !limit.is_none() {
                    tolls.push(Toll { gate, limit, need, here: true });
                }
            }
        }
        tolls
    }

    /// Whether claims of the kind have to ask at all.
    pub fn decides(&self, kind: &Kind, room: &[Room]) -> bool {
        self.is_limited(kind) || self.tolls(kind, room).iter().any(|toll| toll.here)
    }
}

/// What a running job has of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub gate: Gate,
    /// Where the gate is each owner's own.
    pub owner: Option<Owner>,
    pub amount: u64,
}

/// Why a job that is due did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub kind: Kind,
    pub gate: Gate,
    /// Whose gate it is, where each owner has one.
    pub owner: Option<Owner>,
    /// When to try again: exact for a rate, otherwise a guess.
    pub again: Duration,
    /// It is the rate that stops it, not what is in use.
    pub paced: bool,
    /// A downstream asked for it, by a `Retry-After`.
    pub asked: bool,
}

impl Stop {
    /// A downstream asked that no job of the kind starts for so long.
    pub fn asked(kind: Kind, again: Duration) -> Self {
        Self { gate: Gate::Kind(kind.clone()), kind, owner: None, again, paced: false, asked: true }
    }
}

/// A gate, and whose it is where each owner has one.
pub type Key = (Gate, Option<Owner>);

/// What is known of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub in_use: u64,
    /// When the next start is due at an even pace.
    pub next: Option<Timestamp>,
    /// Nothing starts before.
    pub shut_until: Option<Timestamp>,
}

/// Who may pass. Decides for one job after another, in the order they stand in line, and remembers.
#[derive(Debug, Default)]
pub struct Ledger {
    now: Timestamp,
    accounts: HashMap<Key, Account>,
    /// Somebody waits for more of these than is left: those behind wait as well, or what needs little
    /// would keep what needs much waiting for ever.
    claimed: Vec<Gate>,
    moved: Vec<Key>,
    /// What the process that claims has for itself.
    here: Vec<Gate>,
}

impl Ledger {
    /// Everything about a gate that is not in `accounts` is zero.
    pub fn new(now: Timestamp, mut accounts: HashMap<Key, Account>, room: &[Room]) -> Self {
        let here = room.iter().map(|room| Gate::Resource(room.name.clone())).collect();
        for room in room {
            let key = (Gate::Resource(room.name.clone()), None);
            let next = room.rate.map(|_| now + room.ahead);
            accounts.insert(key, Account { in_use: room.used, next, ..Account::default() });
        }
        Self { now, accounts, claimed: Vec::new(), moved: Vec::new(), here }
    }

    /// The job may start, with these shares of what is counted, or it waits for the first gate that is closed to it.
    pub fn admit(
        &mut self,
        kind: &Kind,
        tolls: &[Toll],
        owner: &Owner,
        bytes: u64,
    ) -> Result<Vec<Share>, Stop> {
        let mut shares = Vec::with_capacity(tolls.len());
        for toll in tolls {
            let whose = matches!(toll.gate, Gate::Owner(_)).then(|| owner.clone());
            let account = self.accounts.get(&(toll.gate.clone(), whose.clone())).copied().unwrap_or_default();
            let stop = |again: Duration, paced, asked| Stop {
                kind: kind.clone(),
                gate: toll.gate.clone(),
                owner: whose.clone(),
                again,
                paced,
                asked,
            };
            if let Some(until) = account.shut_until.filter(|until| *until > self.now) {
                return Err(stop(until.since(self.now), false, true));
            }
            let mut amount = toll.need.of(bytes);
            if let Some(all) = toll.limit.concurrent {
                // What would need more than there is runs alone.
                amount = amount.min(all);
                if self.claimed.contains(&toll.gate) {
                    return Err(stop(LOOK_AGAIN, false, false));
                }
                if account.in_use.saturating_add(amount) > all {
                    if whose.is_none() {
                        self.claimed.push(toll.gate.clone());
                    }
                    return Err(stop(LOOK_AGAIN, false, false));
                }
            }
            if let Some(rate) = toll.limit.rate
                && rate.left(account.next, self.now) == 0
            {
                return Err(stop(rate.wait(account.next, self.now), true, false));
            }
            shares.push(Share { gate: toll.gate.clone(), owner: whose, amount });
        }
        for (toll, share) in tolls.iter().zip(&shares) {
            let key = (share.gate.clone(), share.owner.clone());
            let account = self.accounts.entry(key.clone()).or_default();
            account.in_use = account.in_use.saturating_add(share.amount);
            if let Some(rate) = toll.limit.rate {
                account.next = Some(rate.after(account.next, self.now));
                if !self.moved.contains(&key) {
                    self.moved.push(key);
                }
            }
        }
        let mut here = tolls.iter().map(|toll| toll.here || toll.limit.concurrent.is_none());
        shares.retain(|_| !here.next().unwrap_or_default());
        Ok(shares)
    }

    /// The gates whose pace has gone on, and when the next start is due there.
    pub fn paces(&self) -> impl Iterator<Item = (&Key, Timestamp)> {
        let moved = self.moved.iter().filter(|key| !self.here.contains(&key.0));
        moved.filter_map(|key| Some((key, self.accounts.get(key)?.next?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Kind {
        Kind::new(name).unwrap()
    }

    fn owner(name: &str) -> Owner {
        Owner::new(name).unwrap()
    }

    fn at_a_time(concurrent: u64) -> Limit {
        Limit { concurrent: Some(concurrent), rate: None }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + ms * 1000)
    }

    fn ledger() -> Ledger {
        Ledger::new(at(0), HashMap::new(), &[])
    }

    #[test]
    fn a_rate_lets_no_more_through_in_any_time_than_it_says_and_a_small_burst() {
        let rate = Rate::new(300, Duration::from_secs(60));
        assert_eq!(rate.burst, 5);
        let (mut next, mut started) = (None, Vec::new());
        for ms in 0..120_000 {
            while rate.left(next, at(ms)) > 0 {
                next = Some(rate.after(next, at(ms)));
                started.push(ms);
            }
        }
        assert_eq!(started.iter().filter(|ms| **ms < 1).count(), 5, "no more than the burst at once");
        for from in [0, 1, 199, 30_000, 59_999] {
            let within = started.iter().filter(|ms| (from..from + 60_000).contains(*ms)).count();
            assert!((299..=304).contains(&within), "{within} from {from} ms on");
        }
    }

    #[test]
    fn a_rate_says_how_long_to_wait_for_the_next_start() {
        let rate = Rate { burst: 2, ..Rate::new(10, Duration::from_secs(10)) };
        let first = rate.after(None, at(0));
        let second = rate.after(Some(first), at(0));
        assert_eq!((rate.left(Some(second), at(0)), rate.wait(Some(second), at(0)).as_millis()), (0, 1000));
        assert_eq!((rate.left(Some(second), at(999)), rate.wait(Some(second), at(999)).as_millis()), (0, 1));
        assert_eq!(
            (rate.left(Some(second), at(1000)), rate.wait(Some(second), at(1000)).as_millis()),
            (1, 0)
        );
        assert_eq!(rate.left(Some(second), at(60_000)), 2, "a long pause saves up the burst and no more");
    }

    #[test]
    fn what_another_rate_or_another_clock_put_far_ahead_stops_nothing_for_long() {
        let daily = Rate::new(10, Duration::from_secs(86_400));
        let far = Some(daily.after(None, at(0)));
        let minutely = Rate::new(100, Duration::from_secs(60));
        assert_eq!((minutely.left(far, at(0)), minutely.wait(far, at(0))), (1, Duration::ZERO));
        let next = minutely.after(far, at(0));
        assert_eq!(next, at(600), "the pace is this rate's again");
        assert_eq!(minutely.left(Some(next), at(0)), 0);
        let bursts = Rate { burst: 500, ..Rate::new(1_000, Duration::from_secs(86_400)) };
        let used_up = (0..500).fold(None, |next, _| Some(bursts.after(next, at(0))));
        assert_eq!((bursts.left(used_up, at(0)), minutely.left(used_up, at(0))), (0, 1));

        let mut limits = Limits::default();
        let rate = Limit { rate: Some(minutely), ..Limit::default() };
        limits.kind(kind("mail"), Limit::default(), rate);
        let each = limits.each_owner(&kind("mail")).unwrap();
        assert!(each.is_paced(Some(at(600)), at(0)));
        assert!(
            !each.is_paced(far, at(0)) && !each.is_paced(Some(at(0)), at(0)) && !each.is_paced(None, at(0))
        );
    }

    #[test]
    fn rates_have_sane_bursts() {
        let burst = |starts, seconds| Rate::new(starts, Duration::from_secs(seconds)).burst;
        assert_eq!(
            [burst(1, 3600), burst(2, 60), burst(300, 60), burst(10, 1), burst(1000, 1)],
            [1, 1, 5, 1, 100]
        );
    }

    #[test]
    fn a_job_passes_all_its_gates_or_takes_of_none() {
        let (ai, analyze) = (kind("ai"), kind("analyze"));
        let mut limits = Limits::default();
        limits.resource("gpu", at_a_time(2));
        limits.resource("licence", at_a_time(1));
        limits.need(ai.clone(), [("gpu", 1)].into_iter().collect());
        limits.need(analyze.clone(), [("gpu", 1), ("licence", 1), ("elsewhere", 9)].into_iter().collect());
        let mut ledger = ledger();
        let mut ask = |kind: &Kind| {
            ledger.admit(kind, &limits.tolls(kind, &[]), &owner("a"), 0).map_err(|stop| stop.gate).map(|_| ())
        };
        assert_eq!(ask(&analyze), Ok(()));
        assert_eq!(ask(&analyze), Err(Gate::Resource("licence".into())), "and leaves the gpu alone");
        assert_eq!(ask(&ai), Ok(()));
        assert_eq!(ask(&ai), Err(Gate::Resource("gpu".into())));
    }

    #[test]
    fn what_needs_little_does_not_pass_what_needs_much() {
        let (small, large) = (kind("small"), kind("large"));
        let mut limits = Limits::default();
        limits.resource("memory", at_a_time(4));
        limits.need(small.clone(), [("memory", 1)].into_iter().collect());
        limits.need(large.clone(), [("memory", 4)].into_iter().collect());
        let mut ledger = ledger();
        let mut ask = |kind: &Kind| ledger.admit(kind, &limits.tolls(kind, &[]), &owner("a"), 0).is_ok();
        assert_eq!([ask(&small), ask(&large), ask(&small)], [true, false, false]);
    }

    #[test]
    fn an_owner_that_waits_for_itself_keeps_nobody_else_waiting() {
        let analyze = kind("analyze");
        let mut limits = Limits::default();
        limits.kind(analyze.clone(), at_a_time(3), at_a_time(1));
        let tolls = limits.tolls(&analyze, &[]);
        let mut ledger = ledger();
        let mut ask = |name: &str| {
            ledger
                .admit(&analyze, &tolls, &owner(name), 0)
                .map_err(|stop| (stop.gate, stop.owner))
                .map(|_| ())
        };
        assert_eq!(ask("a"), Ok(()));
        assert_eq!(ask("a"), Err((Gate::Owner(analyze.clone()), Some(owner("a")))));
        assert_eq!((ask("b"), ask("c")), (Ok(()), Ok(())));
        assert_eq!(ask("d"), Err((Gate::Kind(analyze.clone()), None)));
    }

    #[test]
    fn what_needs_more_than_there_is_runs_alone() {
        let large = kind("large");
        let mut limits = Limits::default();
        limits.resource("memory", at_a_time(100));
        limits.need(large.clone(), [("memory", Need { base: 10, per_byte: 2 })].into_iter().collect());
        let tolls = limits.tolls(&large, &[]);
        let mut ledger = ledger();
        let mut ask =
            |bytes| ledger.admit(&large, &tolls, &owner("a"), bytes).map(|shares| shares[0].amount).ok();
        assert_eq!((ask(1_000_000), ask(1)), (Some(100), None));
    }

    #[test]
    fn a_gate_that_was_shut_lets_nobody_through_until_its_time() {
        let ai = kind("ai");
        let mut limits = Limits::default();
        limits.kind(ai.clone(), at_a_time(9), Limit::default());
        let shut = Account { shut_until: Some(at(500)), ..Account::default() };
        let accounts = HashMap::from([((Gate::Kind(ai.clone()), None), shut)]);
        let ask = |now| {
            Ledger::new(now, accounts.clone(), &[])
                .admit(&ai, &limits.tolls(&ai, &[]), &owner("a"), 0)
                .map_err(|stop| stop.again)
        };
        assert_eq!(ask(at(200)).unwrap_err(), Duration::from_millis(300));
        assert!(ask(at(500)).is_ok());
    }

    #[test]
    fn a_gate_is_read_as_it_is_written() {
        for gate in [Gate::Resource("a/b".into()), Gate::Kind(kind("a.b")), Gate::Owner(kind("a"))] {
            assert_eq!(Gate::parse(&gate.to_string()), Some(gate));
        }
        assert_eq!(Gate::parse("lane/x"), None);
    }
}
