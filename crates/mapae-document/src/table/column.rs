//! Where the columns of a table without upright rules are, and which of them a piece of a line belongs to.

use super::frame::Word;
use super::geometry::{Area, shared};
use super::line::{Chunk, Gaps, Line, is_number};

/// White between columns, points.
const WHITE: f64 = 1.0;
/// Share of a column, or of a piece, that must lie over the other to belong to it.
const OVER: f64 = 0.35;

/// From where to where the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) x0: f64,
    pub(super) x1: f64,
}

/// A piece of a line in its columns, the last one excluded.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) cols: (usize, usize),
    pub(super) area: Area,
    pub(super) words: Vec<Word>,
}

impl Piece {
    pub(super) fn is_number(&self) -> bool {
        self.words.iter().all(|w| is_number(&w.text))
    }
}

/// A line with its pieces in columns.
#[derive(Clone, Debug)]
pub(super) struct Laid {
    pub(super) base: f64,
    pub(super) size: f64,
    pub(super) pieces: Vec<Piece>,
}

impl Laid {
    pub(super) fn first(&self) -> Option<&Piece> {
        self.pieces.iter().find(|p| p.cols.0 == 0)
    }
}

/// The columns that `lines` leave white between; `share` of the lines may run across that white.
///
/// `whole` says that the lines are those of a whole table, not of one of its columns.
pub(super) fn columns<'l>(lines: impl IntoIterator<Item = &'l Line>, share: f64, whole: bool) -> Vec<Column> {
    let lines: Vec<&Line> = lines.into_iter().collect();
    let most = (share * lines.len() as f64) as i32;
    let mut edges: Vec<(f64, i32)> = Vec::new();
    for chunk in lines.iter().flat_map(|line| &line.chunks) {
        edges.push((chunk.area.x0, 1));
        edges.push((chunk.area.x1.max(chunk.area.x0 + 0.1), -1));
    }
    edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut columns: Vec<Column> = Vec::new();
    let (mut cover, mut open) = (0, None);
    for (x, step) in edges {
        let before = cover;
        cover += step;
        if before <= most && cover > most {
            open = Some(x);
        } else if before > most && cover <= most {
            let Some(x0) = open.take() else { continue };
            match columns.last_mut() {
                Some(last) if x0 - last.x1 < WHITE => last.x1 = x,
                _ => columns.push(Column { x0, x1: x }),
            }
        }
    }
    without_marks(columns, &lines, whole)
}

/// Signs that stand apart from their numbers (a currency at the left edge, notes at the right) are no column.
fn without_marks(mut columns: Vec<Column>, lines: &[&Line], whole: bool) -> Vec<Column> {
    let mut i = 0;
    while i < columns.len() && columns.len() > if whole { 2 } else { 1 } {
        let column = columns[i];
        let inside = || {
            let chunks = lines.iter().flat_map(|line| &line.chunks);
            chunks.filter(move |c| (column.x0..=column.x1).contains(&c.area.middle().0))
        };
        let (all, currency) = (inside().count(), inside().all(Chunk::is_currency));
        let few = !whole || all * 10 <= lines.len() * 7 || currency;
        if !few || !inside().all(Chunk::is_mark) {
            i += 1;
            continue;
        }
        if currency && i + 1 < columns.len() {
            columns[i + 1].x0 = column.x0;
        } else if i > 0 {
            columns[i - 1].x1 = column.x1;
        } else {
            i += 1;
            continue;
        }
        columns.remove(i);
    }
    columns
}

/// The line's chunks in their columns.
pub(super) fn lay(line: &Line, columns: &[Column], heading: bool, gaps: Gaps) -> Laid {
    let mut pieces = Vec::new();
    for chunk in &line.chunks {
        pieces.extend(split(chunk, columns, heading, gaps));
    }
    // Two pieces that came to lie in one column are one.
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if piece.cols.0 < last.cols.1 => {
                last.cols.1 = last.cols.1.max(piece.cols.1);
                last.area = last.area.union(&piece.area);
                last.words.extend(piece.words);
            }
            _ => joined.push(piece),
        }
    }
    Laid { base: line.base, size: line.size(), pieces: joined }
}

fn split(chunk: &Chunk, columns: &[Column], heading: bool, gaps: Gaps) -> Vec<Piece> {
    let over = |area: &Area| if heading { headed(area, columns) } else { over(area, columns) };
    let cols = over(&chunk.area);
    let whole = |chunk: &Chunk, cols| Piece { cols, area: chunk.area, words: chunk.words.clone() };
    if cols.1 - cols.0 < 2 || chunk.words.len() < 2 {
        return vec![whole(chunk, cols)];
    }
    // Cut where neighbouring words lie over different columns, if the gap there is wide enough.
    let mut parts: Vec<Vec<Word>> = Vec::new();
    for word in &chunk.words {
        let cut = parts.last().and_then(|part| part.last()).is_some_and(|before| {
            let gap = (word.area.x0 - before.area.x1) / before.size.min(word.size).max(0.1);
            let numbers = is_number(&word.text) || is_number(&before.text);
            let wide =
                if heading { gap > gaps.heading_cut } else { gap > gaps.cut || (numbers && gap > 0.15) };
            let (a, b) = (over(&before.area), over(&word.area));
            wide && a.1 <= b.0
        });
        match parts.last_mut() {
            Some(part) if !cut => part.push(word.clone()),
            _ => parts.push(vec![word.clone()]),
        }
    }
    if parts.len() == 1 {
        return vec![whole(chunk, cols)];
    }
    let parts = parts.iter().filter_map(|words| Chunk::from_words(words));
    parts.map(|part| whole(&part, over(&part.area))).collect()
}

/// The columns of a heading, which is often wider than its numbers: those whose middle it covers, and the one
/// its own middle is nearest to.
fn headed(area: &Area, columns: &[Column]) -> (usize, usize) {
    let middle = area.middle().0;
    let distance = |c: &Column| (c.x0 - middle).max(middle - c.x1);
    let nearest = columns.iter().enumerate().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
    let nearest = nearest.map_or(0, |(i, _)| i);
    let covers = |c: &Column| (area.x0..=area.x1).contains(&((c.x0 + c.x1) / 2.0));
    let first = columns.iter().position(covers).unwrap_or(nearest).min(nearest);
    let last = columns.iter().rposition(covers).unwrap_or(nearest).max(nearest);
    (first, last + 1)
}

/// The columns an area lies over, the last one excluded; at least the nearest one.
pub(super) fn over(area: &Area, columns: &[Column]) -> (usize, usize) {
    let lies_over = |c: &Column| {
        let both = shared((area.x0, area.x1), (c.x0, c.x1));
        both >= OVER * (c.x1 - c.x0).min(area.width()).max(0.1)
    };
    let first = columns.iter().position(lies_over);
    let last = columns.iter().rposition(lies_over);
    if let (Some(first), Some(last)) = (first, last) {
        return (first, last + 1);
    }
    let middle = area.middle().0;
    let distance = |c: &Column| (c.x0 - middle).max(middle - c.x1);
    let nearest = columns.iter().enumerate().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
    let nearest = nearest.map_or(0, |(i, _)| i);
    (nearest, nearest + 1)
}
