//! Several tables on one sheet: rectangles parted by empty rows or columns, each with headings of its own.
//!
//! A sheet is cut only where at least two parts are tables by themselves. What is none (a title, a remark, a row of
//! sums after a gap) goes with the table it belongs to, so every cell is in exactly one part.

use crate::document::Cell;

/// Parts beyond which a sheet is a form or a drawing, and one table.
const PARTS_MAX: usize = 500;
/// Cells beyond which a sheet is data, and one table.
const CELLS_MAX: usize = 500_000;
/// How often a part is cut again.
const DEPTH_MAX: u32 = 6;

/// First and last row, first and last column.
type Area = [u32; 4];

/// A part of a sheet.
pub(super) struct Part {
    pub(super) area: Area,
    pub(super) cells: Vec<Cell>,
}

/// The tables of a sheet, in the order of their first cells; `None` where it is one.
pub(super) fn tables(cells: &[Cell]) -> Option<Vec<Part>> {
    if cells.len() > CELLS_MAX {
        return None;
    }
    let mut pieces = Vec::new();
    cut(cells.iter().collect(), DEPTH_MAX, &mut pieces)?;
    let whole: Vec<bool> = pieces.iter().map(|piece| is_table(piece)).collect();
    let inside: usize =
        pieces.iter().zip(&whole).filter(|(_, whole)| **whole).map(|(piece, _)| piece.len()).sum();
    // A form is boxes all over a sheet, few of which look like tables.
    if whole.iter().filter(|whole| **whole).count() < 2 || inside * 3 < cells.len() * 2 {
        return None;
    }
    // Each piece goes to a table: itself, or for words the next one, for numbers the one before.
    let owner = |at: usize| {
        let next = || (at..whole.len()).find(|i| whole[*i]);
        let before = || (0..=at).rev().find(|i| whole[*i]);
        let words = pieces[at].iter().all(|cell| cell.value.is_none());
        if words { next().or_else(before) } else { before().or_else(next) }
    };
    let owners: Vec<Option<usize>> = (0..pieces.len()).map(owner).collect();
    let mut parts: Vec<Part> = Vec::new();
    for at in (0..pieces.len()).filter(|at| whole[*at]) {
        let mine = pieces.iter().zip(&owners).filter(|(_, owner)| **owner == Some(at));
        let mut cells: Vec<Cell> =
            mine.flat_map(|(piece, _)| piece.iter().map(|cell| (*cell).clone())).collect();
        cells.sort_by_key(|cell| (cell.row, cell.col));
        parts.push(Part { area: area(cells.iter()), cells });
    }
    parts.sort_by_key(|part| (part.area[0], part.area[2]));
    // Tables that stand within each other's bounds are pieces of a larger one.
    let apart = |at: usize| parts[at + 1..].iter().all(|part| !meet(parts[at].area, part.area));
    (0..parts.len()).all(apart).then_some(parts)
}

fn meet(one: Area, other: Area) -> bool {
    one[0] <= other[1] && other[0] <= one[1] && one[2] <= other[3] && other[2] <= one[3]
}

/// Cuts along empty rows, then along empty columns, and what comes of that again. `None` for too many pieces.
fn cut<'c>(cells: Vec<&'c Cell>, depth: u32, out: &mut Vec<Vec<&'c Cell>>) -> Option<()> {
    let rows = parted(cells, |cell| (cell.row, cell.row + cell.rowspan))?;
    let single = rows.len() == 1;
    for band in rows {
        let columns = parted(band, |cell| (cell.col, cell.col + cell.colspan))?;
        let uncut = single && columns.len() == 1;
        for piece in columns {
            if out.len() >= PARTS_MAX {
                return None;
            }
            if uncut || depth == 0 { out.push(piece) } else { cut(piece, depth - 1, out)? }
        }
    }
    Some(())
}

/// Cells in groups between which nothing reaches.
fn parted(mut cells: Vec<&Cell>, reach: impl Fn(&Cell) -> (u32, u32)) -> Option<Vec<Vec<&Cell>>> {
    cells.sort_by_key(|cell| reach(cell).0);
    let (mut groups, mut end): (Vec<Vec<&Cell>>, u32) = (Vec::new(), 0);
    for cell in cells {
        let (from, to) = reach(cell);
        let begins = groups.is_empty() || from > end;
        if begins && groups.len() >= PARTS_MAX {
            return None;
        }
        if begins {
            groups.push(Vec::new());
        }
        groups.last_mut()?.push(cell);
        end = end.max(to);
    }
    Some(groups)
}

/// Lines right above the headings that name a table or say in what it counts.
const TITLE_ROWS_MAX: usize = 2;

/// Whether a piece is a table by itself: perhaps a title, a row of words that names its columns, and rows below.
fn is_table(piece: &[&Cell]) -> bool {
    let [_, bottom, left, right] = area(piece.iter().copied());
    let columns = (right - left + 1) as usize;
    let mut by_row: Vec<&Cell> = piece.to_vec();
    by_row.sort_by_key(|cell| (cell.row, cell.col));
    let mut rows = by_row.chunk_by(|a, b| a.row == b.row);
    let titles = rows.clone().take(TITLE_ROWS_MAX).take_while(|row| row.len() == 1).count();
    let Some(head) = rows.nth(titles) else { return false };
    let below = bottom - head[0].row;
    let named: usize = head.iter().map(|cell| cell.colspan as usize).sum();
    let values = piece.iter().any(|cell| cell.value.is_some());
    let words = head.iter().all(|cell| cell.value.is_none());
    // A column of row names may go without a heading.
    columns >= 2 && below >= if values { 1 } else { 2 } && words && head.len() >= 2 && named + 1 >= columns
}

fn area<'c>(cells: impl Iterator<Item = &'c Cell>) -> Area {
    cells.fold([u32::MAX, 0, u32::MAX, 0], |[top, bottom, left, right], cell| {
        let (row, col) = (cell.row + cell.rowspan - 1, cell.col + cell.colspan - 1);
        [top.min(cell.row), bottom.max(row), left.min(cell.col), right.max(col)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Value;

    /// A sheet of single characters: digits are numbers, a dot is nothing.
    fn sheet(rows: &[&str]) -> Vec<Cell> {
        let cells =
            rows.iter().zip(0..).flat_map(|(row, r)| row.chars().zip(0..).map(move |(c, col)| (r, col, c)));
        cells
            .filter(|(_, _, c)| *c != '.')
            .map(|(row, col, c)| {
                let value = c.to_digit(10).map(|n| Value::Integer(i64::from(n)));
                Cell { row, col, rowspan: 1, colspan: 1, text: c.to_string(), value }
            })
            .collect()
    }

    fn areas(rows: &[&str]) -> Option<Vec<Area>> {
        tables(&sheet(rows)).map(|parts| parts.iter().map(|part| part.area).collect())
    }

    #[test]
    fn tables_below_and_beside_each_other_are_told_apart() {
        assert_eq!(areas(&["ab.", "12.", "...", "cd.", "34."]), Some(vec![[0, 1, 0, 1], [3, 4, 0, 1]]));
        assert_eq!(areas(&["ab.cd", "12.34"]), Some(vec![[0, 1, 0, 1], [0, 1, 3, 4]]));
        assert_eq!(
            areas(&["ab.cd", "12.34", ".....", "ef...", "56..."]),
            Some(vec![[0, 1, 0, 1], [0, 1, 3, 4], [3, 4, 0, 1]])
        );
    }

    #[test]
    fn what_is_no_table_goes_with_one() {
        // A title above, sums below.
        let rows = ["t..", "...", "ab.", "12.", "...", "34.", "...", "cd.", "56."];
        assert_eq!(areas(&rows), Some(vec![[0, 5, 0, 1], [7, 8, 0, 1]]));
        let cells: usize = tables(&sheet(&rows)).into_iter().flatten().map(|part| part.cells.len()).sum();
        assert_eq!(cells, sheet(&rows).len());
    }

    #[test]
    fn one_table_with_gaps_stays_one() {
        assert_eq!(areas(&["ab", "12", "..", "34", "..", "56"]), None);
        assert_eq!(areas(&["t.", "..", "ab", "12"]), None);
        assert_eq!(areas(&["a", ".", "b", ".", "c"]), None);
        assert_eq!(areas(&[]), None);
    }

    #[test]
    fn a_form_is_not_cut_up() {
        // Boxes with words and numbers, two of which look like tables.
        let rows = ["ab.1.x", "12....", "..1..y", "1....2", "cd.3..", "34...1", "..1.2.", "1.3..5"];
        assert_eq!(areas(&rows), None);
        // What goes with one table reaches into another.
        assert_eq!(areas(&["ab.cd", "12.34", ".....", "5.5..", "6..6.", ".....", "ef...", "56..."]), None);
    }
}
