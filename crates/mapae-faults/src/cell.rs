//! The plan: which point, in which scene, on which store, over which broker, by which fault.

use std::fmt;
use std::str::FromStr;

use mapae::fault::Point;

use crate::broker::Broker;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    Freeze,
}

/// What goes on when the fault happens, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scene {
    /// `mapae serve`, while a job is submitted.
    Door,
    /// `mapae serve`, while a file is uploaded.
    Upload,
    /// `mapae work`, while a service does the work.
    Work,
    /// `mapae work` under the name of one that has died with pointers in its hands.
    TakeOver,
    /// `mapae work`, while a result is kept that is large enough for a file.
    Result,
    /// A worker made with the library: stages, progress and events that are sent.
    Stage,
    /// The keeper of `mapae serve`, when a job's time has come.
    Due,
    /// The same, after a worker has died.
    Reap,
    /// The same, when a deadline has passed.
    Late,
    /// The same, after a job was deleted.
    Prune,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) scene: Scene,
    pub(crate) point: Point,
    pub(crate) store: Store,
    pub(crate) broker: Broker,
    pub(crate) fault: Fault,
}

/// What jobs are kept in, and what points at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    pub(crate) store: Store,
    pub(crate) broker: Broker,
}

impl Store {
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

impl Pair {
    /// Those of these stores and brokers: every broker goes with every store.
    pub(crate) fn all(stores: &[Store], brokers: &[Broker]) -> Vec<Self> {
        let each = brokers.iter().flat_map(|&broker| stores.iter().map(move |&store| Self { store, broker }));
        each.collect()
    }

    /// Whether this point is on its road.
    fn passes(self, point: Point) -> bool {
        match point {
            Point::SqliteCommit | Point::SqliteCommitted => self.store == Store::Sqlite,
            Point::BellMarked
            | Point::RingMarked
            | Point::TakeOverAsked
            | Point::ReadAsked
            | Point::ReadKept
            | Point::AckAsked
            | Point::AckKept => self.broker.delivers(),
            Point::TakeOverKept | Point::HoldAsked | Point::HoldKept => self.broker.is_taken_over(),
            _ => true,
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.broker {
            Broker::Embedded => f.write_str(self.store.name()),
            broker => write!(f, "{}+{}", self.store.name(), broker.name()),
        }
    }
}

impl Fault {
    pub(crate) const ALL: [Self; 2] = [Self::Kill, Self::Freeze];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
        }
    }
}

impl Scene {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Door => "door",
            Self::Upload => "upload",
            Self::Work => "work",
            Self::TakeOver => "takeover",
            Self::Result => "result",
            Self::Stage => "stage",
            Self::Due => "due",
            Self::Reap => "reap",
            Self::Late => "late",
            Self::Prune => "prune",
        }
    }

    /// Where this point is passed. Every point is: the compiler asks for it.
    fn of(point: Point) -> &'static [Self] {
        match point {
            Point::AcceptAsked
            | Point::AcceptKept
            | Point::BellPulled
            | Point::BellRung
            | Point::BellMarked => &[Self::Door],
            Point::FileBegun
            | Point::FileWritten
            | Point::FileSynced
            | Point::FileLinked
            | Point::FileKept => &[Self::Upload, Self::Result],
            Point::JoinAsked
            | Point::JoinKept
            | Point::TakeOverAsked
            | Point::ReadAsked
            | Point::ReadKept
            | Point::ClaimAsked
            | Point::ClaimKept
            | Point::RunBegun
            | Point::HandlerBegins
            | Point::HandlerEnded
            | Point::BeatAsked
            | Point::BeatKept
            | Point::HoldAsked
            | Point::HoldKept
            | Point::SettleAsked
            | Point::SettleKept
            | Point::AckAsked
            | Point::AckKept
            | Point::Acknowledged
            | Point::RunOver
            | Point::SqliteCommit
            | Point::SqliteCommitted => &[Self::Work],
            Point::TakeOverKept => &[Self::TakeOver],
            Point::ProgressAsked
            | Point::ProgressKept
            | Point::CheckpointAsked
            | Point::CheckpointKept
            | Point::EventOffered
            | Point::EventTaken
            | Point::EventMarked => &[Self::Stage],
            Point::RingAsked | Point::RingKept | Point::RingRung | Point::RingMarked => &[Self::Due],
            Point::ReapAsked | Point::ReapKept => &[Self::Reap],
            Point::ExpireAsked | Point::ExpireKept => &[Self::Late],
            Point::PruneAsked | Point::PruneKept | Point::GarbageGone | Point::GarbageKept => &[Self::Prune],
        }
    }
}

impl Cell {
    /// Every cell on these pairs.
    pub(crate) fn all(pairs: &[Pair]) -> Vec<Self> {
        let mut cells = Vec::new();
        for &point in Point::ALL {
            for &scene in Scene::of(point) {
                for &Pair { store, broker } in pairs.iter().filter(|pair| pair.passes(point)) {
                    cells.extend(Fault::ALL.map(|fault| Self { scene, point, store, broker, fault }));
                }
            }
        }
        cells
    }

    /// The steps at which broker and database can disagree: claimed and not acknowledged, settled and not
    /// acknowledged, published and not marked so, taken over. SQLite has the kills and PostgreSQL the freezes.
    pub(crate) fn sample(pairs: &[Pair]) -> Vec<Self> {
        let mut cells = Self::all(pairs);
        cells.retain(|cell| {
            let disagree = matches!(
                cell.point,
                Point::ClaimKept | Point::SettleKept | Point::BellRung | Point::TakeOverKept
            );
            let fault = if cell.store == Store::Sqlite { Fault::Kill } else { Fault::Freeze };
            disagree && cell.fault == fault
        });
        cells
    }

    pub(crate) fn pair(self) -> Pair {
        Pair { store: self.store, broker: self.broker }
    }

    /// Which passing of the point is meant. A worker's first writes are its name.
    pub(crate) fn passing(self) -> u32 {
        match self.point {
            Point::SqliteCommit | Point::SqliteCommitted => 4,
            _ => 1,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scene, point) = (self.scene.name(), self.point.name());
        write!(f, "{scene}/{point}/{}/{}", self.pair(), self.fault.name())
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cells = Self::all(&Pair::all(&Store::ALL, &Broker::ALL));
        let found = cells.into_iter().find(|cell| cell.to_string() == text);
        found.ok_or_else(|| format!("there is no cell {text}; --list shows them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_found_by_the_name_it_is_shown_by() {
        for cell in Cell::all(&Pair::all(&Store::ALL, &Broker::ALL)) {
            assert_eq!(cell.to_string().parse(), Ok(cell));
        }
        assert!("work/settle.asked/sqlite".parse::<Cell>().is_err());
        let cell = "work/settle.asked/postgres+rabbitmq/freeze".parse::<Cell>().unwrap();
        assert_eq!(cell.broker, Broker::RabbitMq);
    }

    #[test]
    fn the_sample_has_a_kill_and_a_freeze_for_each_broker_at_each_step_where_it_can_disagree() {
        for broker in Broker::ALL.into_iter().filter(|broker| broker.delivers()) {
            let sample = Cell::sample(&Pair::all(&Store::ALL, &[broker]));
            for point in [Point::ClaimKept, Point::SettleKept, Point::BellRung] {
                for fault in Fault::ALL {
                    let has = |cell: &Cell| cell.point == point && cell.fault == fault;
                    assert!(sample.iter().any(has), "{} {} {}", broker.name(), point.name(), fault.name());
                }
            }
        }
    }
}
