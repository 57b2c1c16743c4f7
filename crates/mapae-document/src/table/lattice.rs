//! Rules that cross to grids of cells.

use super::geometry::{Area, shared};
use super::rule::{Rule, Rules};

/// How near rules must come to each other to touch, points.
const TOUCH: f64 = 2.5;
/// Rules closer than this are one: a double rule, or the two sides of a thick one.
const DOUBLE: f64 = 3.6;
/// How far a level rule must reach beyond the outermost upright one to close an open side.
const OPEN: f64 = 6.0;
/// Crossings looked at on one page; a page with more is a drawing.
const CROSSINGS_MAX: usize = 4_000_000;
/// Rows or columns of one grid.
const LINES_MAX: usize = 2_000;
/// Cells of one grid before they are united.
const CELLS_MAX: usize = 200_000;

/// A cell in whole rows and columns, the last ones excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GridCell {
    pub(super) rows: (usize, usize),
    pub(super) cols: (usize, usize),
}

/// Rules that hang together, and the cells they make.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) xs: Vec<f64>,
    pub(super) ys: Vec<f64>,
    pub(super) cells: Vec<GridCell>,
}

impl Grid {
    pub(super) fn area(&self) -> Area {
        let (x, y) = (&self.xs, &self.ys);
        Area::new(x[0], y[0], x[x.len() - 1], y[y.len() - 1])
    }

    /// For each place of the grid, row by row, which of the cells it belongs to.
    pub(super) fn owners(&self) -> Vec<Option<usize>> {
        let columns = self.xs.len() - 1;
        let mut owners = vec![None; (self.ys.len() - 1) * columns];
        for (i, cell) in self.cells.iter().enumerate() {
            for row in cell.rows.0..cell.rows.1 {
                owners[row * columns + cell.cols.0..row * columns + cell.cols.1].fill(Some(i));
            }
        }
        owners
    }

    /// The place that the middle of `area` lies in.
    pub(super) fn place(&self, area: &Area) -> Option<usize> {
        if !self.area().holds(area) {
            return None;
        }
        let (x, y) = area.middle();
        let (rows, columns) = (self.ys.len() - 1, self.xs.len() - 1);
        let column = self.xs.partition_point(|at| *at <= x).clamp(1, columns) - 1;
        let row = self.ys.partition_point(|at| *at <= y).clamp(1, rows) - 1;
        Some(row * columns + column)
    }
}

/// The grids of a page with more than one cell.
pub(super) fn grids(rules: &Rules, edge: f64) -> Vec<Grid> {
    if rules.level.len().saturating_mul(rules.upright.len()) > CROSSINGS_MAX {
        return Vec::new();
    }
    let grids = components(rules).into_iter().filter_map(|(level, upright)| grid(&level, &upright, edge));
    grids.filter(|grid| grid.cells.len() > 1).collect()
}

/// Level and upright rules that touch, directly or through others.
fn components(rules: &Rules) -> Vec<(Vec<Rule>, Vec<Rule>)> {
    let levels = rules.level.len();
    let mut parents: Vec<usize> = (0..levels + rules.upright.len()).collect();
    for (i, level) in rules.level.iter().enumerate() {
        for (j, upright) in rules.upright.iter().enumerate() {
            if touch(level, upright) {
                let (a, b) = (root(&mut parents, i), root(&mut parents, levels + j));
                parents[a.max(b)] = a.min(b);
            }
        }
    }
    let mut found: Vec<(Vec<Rule>, Vec<Rule>)> = Vec::new();
    let mut index = vec![None; parents.len()];
    for i in 0..parents.len() {
        let root = root(&mut parents, i);
        let at = *index[root].get_or_insert_with(|| {
            found.push(Default::default());
            found.len() - 1
        });
        if i < levels {
            found[at].0.push(rules.level[i])
        } else {
            found[at].1.push(rules.upright[i - levels])
        }
    }
    found.retain(|(level, upright)| !level.is_empty() && !upright.is_empty());
    found
}

fn root(parents: &mut [usize], mut i: usize) -> usize {
    while parents[i] != i {
        parents[i] = parents[parents[i]];
        i = parents[i];
    }
    i
}

fn touch(level: &Rule, upright: &Rule) -> bool {
    (level.from - TOUCH..=level.to + TOUCH).contains(&upright.at)
        && (upright.from - TOUCH..=upright.to + TOUCH).contains(&level.at)
}

fn grid(level: &[Rule], upright: &[Rule], edge: f64) -> Option<Grid> {
    let mut xs = places(upright);
    let mut ys = places(level);
    // A table open at its sides: the level rules say how far it reaches.
    close(&mut xs, level);
    close(&mut ys, upright);
    let (rows, cols) = (ys.len().checked_sub(1)?, xs.len().checked_sub(1)?);
    if rows == 0 || cols == 0 || rows > LINES_MAX || cols > LINES_MAX || rows * cols > CELLS_MAX {
        return None;
    }
    let upright_walls = walls(&xs, &ys, upright, edge);
    let level_walls = walls(&ys, &xs, level, edge);
    let mut parents: Vec<usize> = (0..rows * cols).collect();
    for r in 0..rows {
        for c in 0..cols {
            let mut unite = |other: usize| {
                let (a, b) = (root(&mut parents, r * cols + c), root(&mut parents, other));
                parents[a.max(b)] = a.min(b);
            };
            if c + 1 < cols && !upright_walls[(c + 1) * rows + r] {
                unite(r * cols + c + 1);
            }
            if r + 1 < rows && !level_walls[(r + 1) * cols + c] {
                unite((r + 1) * cols + c);
            }
        }
    }
    Some(Grid { cells: cells(rows, cols, &mut parents), xs, ys })
}

/// Where rules lie across, those near each other as one.
fn places(rules: &[Rule]) -> Vec<f64> {
    let mut all: Vec<f64> = rules.iter().map(|r| r.at).collect();
    all.sort_by(f64::total_cmp);
    let groups = all.chunk_by(|a, b| b - a <= DOUBLE);
    groups.map(|group| group.iter().sum::<f64>() / group.len() as f64).collect()
}

fn close(places: &mut Vec<f64>, across: &[Rule]) {
    let from = across.iter().map(|r| r.from).fold(f64::INFINITY, f64::min);
    let to = across.iter().map(|r| r.to).fold(f64::NEG_INFINITY, f64::max);
    if places.first().is_none_or(|first| from < first - OPEN) {
        places.insert(0, from);
    }
    if places.last().is_none_or(|last| to > last + OPEN) {
        places.push(to);
    }
}

/// For each place and each span across it: whether rules there cover enough of the span to part its sides.
fn walls(places: &[f64], across: &[f64], rules: &[Rule], edge: f64) -> Vec<bool> {
    let spans = across.len() - 1;
    let mut covered = vec![0.0; places.len() * spans];
    for rule in rules {
        let near =
            places.iter().enumerate().min_by(|a, b| (a.1 - rule.at).abs().total_cmp(&(b.1 - rule.at).abs()));
        let Some((place, _)) = near else { continue };
        for (span, sum) in covered[place * spans..][..spans].iter_mut().enumerate() {
            *sum += shared((rule.from, rule.to), (across[span], across[span + 1])).max(0.0);
        }
    }
    let enough = |(i, sum): (usize, f64)| {
        let span = i % spans;
        sum >= edge * (across[span + 1] - across[span])
    };
    covered.into_iter().enumerate().map(enough).collect()
}

/// The united cells; what is not a rectangle is cut into its rows.
fn cells(rows: usize, cols: usize, parents: &mut [usize]) -> Vec<GridCell> {
    let mut bounds: Vec<Option<(GridCell, usize)>> = vec![None; rows * cols];
    for i in 0..rows * cols {
        let (r, c) = (i / cols, i % cols);
        let root = root(parents, i);
        match &mut bounds[root] {
            Some((cell, size)) => {
                cell.rows.1 = cell.rows.1.max(r + 1);
                cell.cols = (cell.cols.0.min(c), cell.cols.1.max(c + 1));
                *size += 1;
            }
            none => *none = Some((GridCell { rows: (r, r + 1), cols: (c, c + 1) }, 1)),
        }
    }
    let mut cells = Vec::new();
    for (first, bound) in bounds.into_iter().enumerate() {
        let Some((cell, size)) = bound else { continue };
        if size == (cell.rows.1 - cell.rows.0) * (cell.cols.1 - cell.cols.0) {
            cells.push(cell);
            continue;
        }
        for r in cell.rows.0..cell.rows.1 {
            let mut open: Option<GridCell> = None;
            for c in cell.cols.0..cell.cols.1 {
                if root(parents, r * cols + c) != first {
                    cells.extend(open.take());
                    continue;
                }
                let piece = open.get_or_insert(GridCell { rows: (r, r + 1), cols: (c, c) });
                piece.cols.1 = c + 1;
            }
            cells.extend(open);
        }
    }
    cells.sort_by_key(|cell| (cell.rows.0, cell.cols.0));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(level: &[(f64, f64, f64)], upright: &[(f64, f64, f64)]) -> Rules {
        let of = |all: &[(f64, f64, f64)]| all.iter().map(|&(at, from, to)| Rule { at, from, to }).collect();
        Rules { level: of(level), upright: of(upright) }
    }

    fn spans(grid: &Grid) -> Vec<((usize, usize), (usize, usize))> {
        grid.cells.iter().map(|c| (c.rows, c.cols)).collect()
    }

    #[test]
    fn cells_without_a_rule_between_them_are_one_cell() {
        let rules = rules(
            &[(0.0, 0.0, 90.0), (20.0, 30.0, 90.0), (40.0, 0.0, 90.0)],
            &[(0.0, 0.0, 40.0), (30.0, 0.0, 40.0), (60.0, 20.0, 40.0), (90.0, 0.0, 40.0)],
        );
        let grids = grids(&rules, 0.6);
        assert_eq!(
            spans(&grids[0]),
            [((0, 2), (0, 1)), ((0, 1), (1, 3)), ((1, 2), (1, 2)), ((1, 2), (2, 3))]
        );
    }

    #[test]
    fn a_table_open_at_its_sides_reaches_as_far_as_its_level_rules() {
        let rules = rules(&[(0.0, 0.0, 90.0), (20.0, 0.0, 90.0)], &[(30.0, 0.0, 20.0), (60.0, 0.0, 20.0)]);
        assert_eq!(grids(&rules, 0.6)[0].xs, [0.0, 30.0, 60.0, 90.0]);
    }

    #[test]
    fn a_frame_around_a_page_is_no_grid() {
        let rules = rules(&[(0.0, 0.0, 90.0), (99.0, 0.0, 90.0)], &[(0.0, 0.0, 99.0), (90.0, 0.0, 99.0)]);
        assert!(grids(&rules, 0.6).is_empty());
    }
}
