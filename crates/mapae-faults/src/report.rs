//! What a person reads: the table, and how to see a failure again.

use std::collections::BTreeMap;

use crate::broker::Broker;
use crate::cell::{Cell, Fault, Pair, Store};

/// point × store × broker × fault: how often it was green, and how often not.
#[derive(Default)]
pub(crate) struct Table {
    cells: BTreeMap<Cell, (usize, usize)>,
}

impl Table {
    pub(crate) fn count(&mut self, cell: Cell, green: bool) {
        let (greens, reds) = self.cells.entry(cell).or_default();
        if green { *greens += 1 } else { *reds += 1 }
    }

    pub(crate) fn is_green(&self) -> bool {
        self.cells.values().all(|(_, reds)| *reds == 0)
    }

    /// For each broker a row for each scene and point, in the order of the road.
    pub(crate) fn show(&self) -> String {
        let has = |broker: &Broker| self.cells.keys().any(|cell| cell.broker == *broker);
        let shown: Vec<String> = Broker::ALL.into_iter().filter(has).map(|broker| self.of(broker)).collect();
        shown.join("\n\n")
    }

    fn of(&self, broker: Broker) -> String {
        let pairs = Store::ALL.map(|store| Pair { store, broker });
        let columns = pairs.iter().flat_map(|pair| Fault::ALL.map(|fault| (*pair, fault)));
        let columns: Vec<(Pair, Fault)> = columns.collect();
        let mut text = format!("{:<26}", "");
        for (pair, fault) in &columns {
            text += &format!("{:>26}", format!("{pair} {}", fault.name()));
        }
        let cells = self.cells.keys().filter(|cell| cell.broker == broker);
        let mut rows: Vec<_> = cells.map(|cell| (cell.scene, cell.point)).collect();
        rows.sort();
        rows.dedup();
        for (scene, point) in rows {
            text += &format!("\n{:<26}", format!("{} {}", scene.name(), point.name()));
            for &(Pair { store, broker }, fault) in &columns {
                let found = self.cells.get(&Cell { scene, point, store, broker, fault });
                let shown = match found {
                    None => "-".to_owned(),
                    Some((1, 0)) => "ok".to_owned(),
                    Some((greens, 0)) => format!("ok × {greens}"),
                    Some((greens, reds)) => format!("{reds} of {} BAD", greens + reds),
                };
                text += &format!("{shown:>26}");
            }
        }
        text
    }
}
