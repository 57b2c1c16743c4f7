//! How like two tables are: relations between neighbouring cells, as the table competition of 2013 counted
//! them. A relation is a cell, its nearest neighbour to the right or below that is not empty, and which of the
//! two it is.

use std::collections::{BTreeMap, HashMap};

use mapae_document::table::{Found, FoundCell};

/// A cell to compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) row: u32,
    pub(crate) col: u32,
    pub(crate) rowspan: u32,
    pub(crate) colspan: u32,
    pub(crate) text: String,
}

/// The cells of a table that was found.
pub(crate) fn cells(table: &Found) -> Vec<Cell> {
    let cell = |c: &FoundCell| Cell {
        row: c.row,
        col: c.col,
        rowspan: c.rowspan,
        colspan: c.colspan,
        text: c.text.clone(),
    };
    table.cells.iter().map(cell).collect()
}

/// Relations that are right, that were found, and that are true.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count {
    pub(crate) right: u32,
    pub(crate) found: u32,
    pub(crate) truth: u32,
}

impl Count {
    pub(crate) fn precision(&self) -> f64 {
        if self.found == 0 {
            f64::from(self.truth == 0)
        } else {
            f64::from(self.right) / f64::from(self.found)
        }
    }

    pub(crate) fn recall(&self) -> f64 {
        if self.truth == 0 { 1.0 } else { f64::from(self.right) / f64::from(self.truth) }
    }

    pub(crate) fn f1(&self) -> f64 {
        harmonic(self.precision(), self.recall())
    }
}

pub(crate) fn harmonic(a: f64, b: f64) -> f64 {
    if a + b > 0.0 { 2.0 * a * b / (a + b) } else { 0.0 }
}

/// Compares the tables of one page; each true table with the found one that shares most with it.
pub(crate) fn compare(truth: &[Vec<Cell>], found: &[Vec<Cell>]) -> Count {
    let truth: Vec<Relations> = truth.iter().map(|cells| relations(cells)).collect();
    let found: Vec<Relations> = found.iter().map(|cells| relations(cells)).collect();
    let sum = |all: &[Relations]| all.iter().flat_map(|r| r.values()).sum();
    let mut pairs: Vec<(u32, usize, usize)> = Vec::new();
    for (i, a) in truth.iter().enumerate() {
        for (j, b) in found.iter().enumerate() {
            pairs.push((shared(a, b), i, j));
        }
    }
    pairs.sort_by_key(|&(shared, i, j)| (std::cmp::Reverse(shared), i, j));
    let (mut used_truth, mut used_found) = (vec![false; truth.len()], vec![false; found.len()]);
    let mut right = 0;
    for (shared, i, j) in pairs {
        if !used_truth[i] && !used_found[j] {
            (used_truth[i], used_found[j]) = (true, true);
            right += shared;
        }
    }
    Count { right, found: sum(&found), truth: sum(&truth) }
}

type Relations = HashMap<(String, String, bool), u32>;

fn shared(a: &Relations, b: &Relations) -> u32 {
    a.iter().map(|(relation, n)| (*n).min(b.get(relation).copied().unwrap_or(0))).sum()
}

fn relations(cells: &[Cell]) -> Relations {
    let texts: Vec<String> = cells.iter().map(|cell| plain(&cell.text)).collect();
    let mut at: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for (i, cell) in cells.iter().enumerate().filter(|(_, cell)| !cell.text.trim().is_empty()) {
        for row in cell.row..cell.row + cell.rowspan {
            for col in cell.col..cell.col + cell.colspan {
                at.entry((row, col)).or_insert(i);
            }
        }
    }
    let mut pairs = std::collections::HashSet::new();
    let rows: Vec<_> = at.iter().map(|(&(row, col), &i)| (row, col, i)).collect();
    let mut columns: Vec<_> = at.iter().map(|(&(row, col), &i)| (col, row, i)).collect();
    columns.sort_unstable();
    for (line, down) in [(rows, false), (columns, true)] {
        for pair in line.windows(2).filter(|p| p[0].0 == p[1].0 && p[0].2 != p[1].2) {
            pairs.insert((pair[0].2, pair[1].2, down));
        }
    }
    let mut relations = Relations::new();
    for (a, b, down) in pairs {
        *relations.entry((texts[a].clone(), texts[b].clone(), down)).or_default() += 1;
    }
    relations
}

/// Letters and digits in one case; everything else is one mark, white space none.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.to_uppercase().chars().filter(|c| !c.is_whitespace()) {
        if c.is_alphanumeric() {
            out.push(c);
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    out
}
