//! What a person reads: the table, and how to see a failure again.

use std::collections::BTreeMap;

use crate::cell::{Cell, Fault, Store};

/// point × store × fault: how often it was green, and how often not.
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

    /// A row for each scene and point, in the order of the road.
    pub(crate) fn show(&self) -> String {
        let columns = Store::ALL.iter().flat_map(|store| Fault::ALL.map(|fault| (*store, fault)));
        let columns: Vec<(Store, Fault)> = columns.collect();
        let mut text = format!("{:<26}", "");
        for (store, fault) in &columns {
            text += &format!("{:>17}", format!("{} {}", store.name(), fault.name()));
        }
        let mut rows: Vec<_> = self.cells.keys().map(|cell| (cell.scene, cell.point)).collect();
        rows.sort();
        rows.dedup();
        for (scene, point) in rows {
            text += &format!("\n{:<26}", format!("{} {}", scene.name(), point.name()));
            for &(store, fault) in &columns {
                let found = self.cells.get(&Cell { scene, point, store, fault });
                let shown = match found {
                    None => "-".to_owned(),
                    Some((1, 0)) => "ok".to_owned(),
                    Some((greens, 0)) => format!("ok × {greens}"),
                    Some((greens, reds)) => format!("{reds} of {} BAD", greens + reds),
                };
                text += &format!("{shown:>17}");
            }
        }
        text
    }
}
