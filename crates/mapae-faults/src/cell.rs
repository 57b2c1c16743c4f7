//! The plan: which point, in which scene, on which store, by which fault.

use std::fmt;
use std::str::FromStr;

use mapae::fault::Point;

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
    pub(crate) fault: Fault,
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
            Point::AcceptAsked | Point::AcceptKept | Point::BellPulled | Point::BellRung => &[Self::Door],
            Point::FileBegun
            | Point::FileWritten
            | Point::FileSynced
            | Point::FileLinked
            | Point::FileKept => &[Self::Upload, Self::Result],
            Point::JoinAsked
            | Point::JoinKept
            | Point::ClaimAsked
            | Point::ClaimKept
            | Point::RunBegun
            | Point::HandlerBegins
            | Point::HandlerEnded
            | Point::BeatAsked
            | Point::BeatKept
            | Point::SettleAsked
            | Point::SettleKept
            | Point::Acknowledged
            | Point::RunOver
            | Point::SqliteCommit
            | Point::SqliteCommitted => &[Self::Work],
            Point::ProgressAsked
            | Point::ProgressKept
            | Point::CheckpointAsked
            | Point::CheckpointKept
            | Point::EventOffered
            | Point::EventTaken
            | Point::EventMarked => &[Self::Stage],
            Point::RingAsked | Point::RingKept | Point::RingRung => &[Self::Due],
            Point::ReapAsked | Point::ReapKept => &[Self::Reap],
            Point::ExpireAsked | Point::ExpireKept => &[Self::Late],
            Point::PruneAsked | Point::PruneKept | Point::GarbageGone | Point::GarbageKept => &[Self::Prune],
        }
    }
}

impl Cell {
    /// Every cell on these stores.
    pub(crate) fn all(stores: &[Store]) -> Vec<Self> {
        let mut cells = Vec::new();
        for &point in Point::ALL {
            let only_sqlite = matches!(point, Point::SqliteCommit | Point::SqliteCommitted);
            for &scene in Scene::of(point) {
                for &store in stores.iter().filter(|store| !only_sqlite || **store == Store::Sqlite) {
                    cells.extend(Fault::ALL.map(|fault| Self { scene, point, store, fault }));
                }
            }
        }
        cells
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
        write!(f, "{scene}/{point}/{}/{}", self.store.name(), self.fault.name())
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cells = Self::all(&Store::ALL);
        let found = cells.into_iter().find(|cell| cell.to_string() == text);
        found.ok_or_else(|| format!("there is no cell {text}; --list shows them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_found_by_the_name_it_is_shown_by() {
        for cell in Cell::all(&Store::ALL) {
            assert_eq!(cell.to_string().parse(), Ok(cell));
        }
        assert!("work/settle.asked/sqlite".parse::<Cell>().is_err());
    }
}
