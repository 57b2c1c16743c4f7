//! Work that comes at set times: cron expressions in time zones, and what becomes of ticks that were missed. Pure.
//!
//! Daylight saving is handled as cron has always done it (Vixie's, by the crate `croner`). Where the clock is
//! set forward, a job at a fixed time within the gap comes right after it, and a repeated one (`*`, `*/N`,
//! a list or a range) skips what is not there. Where it is set back, a job at a fixed time comes once, at the first of the two
//! moments, and a repeated one comes in both hours. The time zones are those of this program's build, the same
//! on every machine.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use croner::errors::CronError;
use croner::time::{CivilDateTime, CronDateTime, Resolution, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, ZonedDateTime};

use super::follow::Next;
use super::name::{Owner, ScheduleName};
use super::record::NewJob;
use super::timestamp::Timestamp;
use super::unique::UniqueRule;

/// How late a tick may be and still not count as missed.
pub const GRACE: Duration = Duration::from_secs(60);
const GRACE_US: i64 = 60 * 1_000_000;

/// Most ticks that are made up for at a time; what is missed beyond that stays missed.
pub const MISSED_MAX: usize = 1_000;

/// What becomes of ticks at which no keeper ran, or ran more than [`GRACE`] late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One job, for the latest of them; none where one after them is in time, which makes up for them.
    One,
    /// A job for each, the oldest [`MISSED_MAX`] of them.
    All,
}

impl Missed {
    pub const ALL: [Self; 3] = [Self::Skip, Self::One, Self::All];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::One => "one",
            Self::All => "all",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|missed| missed.as_str() == text)
    }
}

/// A schedule as it is configured.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: ScheduleName,
    pub owner: Owner,
    /// The job of each tick.
    pub next: Next,
    pub unique: Option<UniqueRule>,
    pub cron: Cron,
    pub missed: Missed,
}

impl Plan {
    /// The job of a tick, due at it.
    pub fn job(&self, tick: Timestamp) -> NewJob {
        let next = &self.next;
        let mut job = NewJob {
            priority: next.priority,
            retry: next.retry,
            run_at: Some(tick + next.delay),
            on: next.on.clone(),
            ..NewJob::new(self.owner.clone(), next.kind.clone(), next.params.clone())
        };
        job.unique = self.unique.as_ref().and_then(|rule| rule.of(&job, None));
        job
    }

    /// The ticks to make jobs for, of those from `next` on, and when to look again. Nothing before `next`.
    pub fn due(&self, next: Timestamp, now: Timestamp) -> Due {
        if now < next {
            return Due { ticks: Vec::new(), next: Some(next) };
        }
        let latest = self.cron.until(now).filter(|latest| *latest >= next);
        let from = |first: Timestamp| {
            let each = std::iter::successors(Some(first), |tick| self.cron.after(*tick));
            each.take_while(|tick| Some(*tick) <= latest).take(MISSED_MAX).collect::<Vec<_>>()
        };
        let recent = Timestamp::from_micros(now.micros().saturating_sub(GRACE_US));
        let before = Timestamp::from_micros(recent.micros().saturating_sub(1));
        let in_time = if next >= recent { Some(next) } else { self.cron.after(before) };
        let ticks = match (self.missed, latest) {
            (_, None) => Vec::new(),
            (Missed::All, Some(_)) => from(next),
            (Missed::Skip | Missed::One, Some(latest)) if latest >= recent => {
                in_time.map(from).unwrap_or_default()
            }
            (Missed::Skip, Some(_)) => Vec::new(),
            (Missed::One, Some(latest)) => vec![latest],
        };
        Due { ticks, next: self.cron.after(now) }
    }
}

/// What is to be done for a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub ticks: Vec<Timestamp>,
    /// `None`: there will never be another.
    pub next: Option<Timestamp>,
}

/// A cron expression in a time zone.
#[derive(Clone)]
pub struct Cron {
    cron: croner::Cron,
    zone: TimeZone,
    pattern: String,
    zone_name: String,
}

/// Why there is no such schedule. The texts are the operator's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    #[error(
        "{0:?} is no cron expression: minute, hour, day of month, month, day of week, as in \"30 2 * * MON-FRI\""
    )]
    Pattern(String),
    #[error("{0:?} is no time zone: a name such as \"Asia/Seoul\" or \"UTC\"")]
    Zone(String),
    #[error("{0:?} never comes")]
    Never(String),
}

impl Cron {
    /// Five fields, or six with seconds first, or a name such as `@daily`; the zone by its IANA name.
    pub fn new(pattern: &str, zone: &str) -> Result<Self, BadSchedule> {
        let cron = pattern.parse().map_err(|_| BadSchedule::Pattern(pattern.to_owned()))?;
        let found = TimeZone::get(zone).map_err(|_| BadSchedule::Zone(zone.to_owned()))?;
        let cron = Self { cron, zone: found, pattern: pattern.to_owned(), zone_name: zone.to_owned() };
        // 2026: what does not come in the thousands of years after that never does.
        match cron.after(Timestamp::from_micros(1_767_225_600_000_000)) {
            Some(_) => Ok(cron),
            None => Err(BadSchedule::Never(pattern.to_owned())),
        }
    }

    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    pub fn zone(&self) -> &str {
        &self.zone_name
    }

    /// The first tick after a moment.
    pub fn after(&self, at: Timestamp) -> Option<Timestamp> {
        self.cron.find_next_occurrence(&self.moment(at)?, false).ok().map(Moment::timestamp)
    }

    /// The last tick at or before a moment.
    fn until(&self, at: Timestamp) -> Option<Timestamp> {
        self.cron.find_previous_occurrence(&self.moment(at)?, true).ok().map(Moment::timestamp)
    }

    fn moment(&self, at: Timestamp) -> Option<Moment> {
        // Ticks are whole seconds.
        let at = jiff::Timestamp::from_second(at.micros().div_euclid(1_000_000)).ok()?;
        Some(Moment(at.to_zoned_datetime(self.zone.clone())))
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({} in {})", self.pattern, self.zone_name)
    }
}

/// A moment as croner searches over it.
#[derive(Clone)]
struct Moment(ZonedDateTime);

impl Moment {
    fn timestamp(self) -> Timestamp {
        Timestamp::from_micros(self.0.timestamp().as_microsecond())
    }
}

impl CronDateTime for Moment {
    fn to_civil(&self) -> CivilDateTime {
        let at = self.0.datetime();
        let part = |part: i8| part.unsigned_abs().into();
        CivilDateTime::from_ymd_hms_opt(
            i32::from(at.year()),
            part(at.month()),
            part(at.day()),
            part(at.hour()),
            part(at.minute()),
            part(at.second()),
        )
        .expect("a date that is one is one here, too")
    }

    fn civil_weekday(&self) -> Weekday {
        Weekday::from_days_from_sunday(self.0.weekday().to_sunday_zero_offset().unsigned_abs().into())
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |part: u32| i8::try_from(part).map_err(|_| CronError::InvalidDate);
        let at = jiff::civil::DateTime::new(
            i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?,
            part(civil.month())?,
            part(civil.day())?,
            part(civil.hour())?,
            part(civil.minute())?,
            part(civil.second())?,
            0,
        )
        .map_err(|_| CronError::InvalidDate)?;
        let ambiguous = self.0.time_zone().to_ambiguous_zoned_datetime(at);
        let time =
            |zoned: Result<ZonedDateTime, jiff::Error>| zoned.map(Moment).map_err(|_| CronError::InvalidTime);
        Ok(match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => Resolution::Single(time(ambiguous.unambiguous())?),
            AmbiguousOffset::Fold { .. } => {
                Resolution::Ambiguous(time(ambiguous.clone().earlier())?, time(ambiguous.later())?)
            }
            AmbiguousOffset::Gap { .. } => Resolution::Gap,
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(SignedDuration::from_secs(seconds)).ok().map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.timestamp().cmp(&other.0.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::name::{Kind, Priority};

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn ticks(pattern: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let cron = Cron::new(pattern, zone).unwrap();
        let each = std::iter::successors(cron.after(at(from)), |tick| cron.after(*tick));
        each.take(count).map(|tick| tick.to_string().replace(":00.000Z", "")).collect()
    }

    #[test]
    fn a_tick_comes_at_its_time_in_its_zone() {
        let seoul = ticks("30 9 * * MON-FRI", "Asia/Seoul", "2026-07-03T00:00:00Z", 2);
        assert_eq!(seoul, ["2026-07-03T00:30", "2026-07-06T00:30"]);
        assert_eq!(ticks("@daily", "UTC", "2026-07-03T00:00:00Z", 1), ["2026-07-04T00:00"]);
        let last_day = ticks("0 0 L * *", "UTC", "2028-02-01T00:00:00Z", 1);
        assert_eq!(last_day, ["2028-02-29T00:00"]);
    }

    #[test]
    fn where_the_clock_is_set_forward_a_fixed_time_comes_after_the_gap_and_a_repeated_one_skips_it() {
        // Berlin, 29 March 2026: from 02:00 to 03:00 (01:00 UTC) nothing.
        let fixed = ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
        assert_eq!(fixed, ["2026-03-29T01:00", "2026-03-30T00:30"]);
        let repeated = ticks("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 3);
        assert_eq!(repeated, ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"]);
    }

    #[test]
    fn where_the_clock_is_set_back_a_fixed_time_comes_once_and_a_repeated_one_twice() {
        // Berlin, 25 October 2026: 02:00 to 03:00 comes twice (00:00 and 01:00 UTC).
        let fixed = ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(fixed, ["2026-10-25T00:30", "2026-10-26T01:30"]);
        let repeated = ticks("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3);
        assert_eq!(repeated, ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]);
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_the_reason() {
        assert_eq!(Cron::new("every day", "UTC").unwrap_err(), BadSchedule::Pattern("every day".into()));
        assert_eq!(Cron::new("* * * * *", "Mars/Base").unwrap_err(), BadSchedule::Zone("Mars/Base".into()));
        assert_eq!(Cron::new("0 0 30 2 *", "UTC").unwrap_err(), BadSchedule::Never("0 0 30 2 *".into()));
    }

    #[test]
    fn missed_ticks_are_skipped_made_up_for_by_one_or_all_made() {
        let plan = |missed| Plan {
            name: ScheduleName::new("hourly").unwrap(),
            owner: Owner::new("acme").unwrap(),
            next: Next {
                kind: Kind::new("report").unwrap(),
                params: serde_json::json!({}),
                priority: Priority::NORMAL,
                retry: Default::default(),
                delay: Duration::ZERO,
                on: Vec::new(),
            },
            unique: None,
            cron: Cron::new("0 * * * *", "UTC").unwrap(),
            missed,
        };
        let hour = |hour: u32| at(&format!("2026-07-03T{hour:02}:00:00Z"));
        let due = |missed, now: Timestamp| {
            let due = plan(missed).due(hour(5), now);
            (due.ticks, due.next)
        };
        for missed in Missed::ALL {
            assert_eq!(due(missed, hour(4)), (vec![], Some(hour(5))), "not yet");
            assert_eq!(due(missed, hour(5) + GRACE), (vec![hour(5)], Some(hour(6))), "in time");
        }
        let late = hour(8) + Duration::from_secs(600);
        assert_eq!(due(Missed::Skip, late), (vec![], Some(hour(9))));
        assert_eq!(due(Missed::One, late), (vec![hour(8)], Some(hour(9))));
        assert_eq!(due(Missed::All, late), (vec![hour(5), hour(6), hour(7), hour(8)], Some(hour(9))));
        let some = Plan { cron: Cron::new("*/10 * * * * *", "UTC").unwrap(), ..plan(Missed::One) };
        let second = |second: u64| hour(5) + Duration::from_secs(second);
        let ticks = |missed, now| Plan { missed, ..some.clone() }.due(second(0), now).ticks;
        for missed in Missed::ALL {
            assert_eq!(ticks(missed, second(25)), [second(0), second(10), second(20)], "none is missed");
        }
        let in_time: Vec<_> = (0..=6).map(|at| second(240 + 10 * at)).collect();
        assert_eq!(ticks(Missed::Skip, second(300)), in_time);
        assert_eq!(ticks(Missed::One, second(300)), in_time, "they make up for those before");
        let years = hour(5) + Duration::from_secs(2 * 365 * 24 * 3600);
        assert_eq!(due(Missed::All, years).0.len(), MISSED_MAX);
    }
}
