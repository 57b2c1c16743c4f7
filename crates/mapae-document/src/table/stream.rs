//! A region of text in columns to a table.

use super::assess;
use super::column::{self, Column, Laid};
use super::frame::Word;
use super::geometry::Area;
use super::header;
use super::line::{Chunk, Gaps, Line, is_number, lines};
use super::region::{Region, regions};
use super::row;
use super::rule::{Rule, Rules};
use super::shade;
use super::shape::{Cell, Kind, Shape};
use super::title;
use super::tuning::Tuning;

/// Columns of a table without a lattice; more are a drawing.
const COLUMNS_MAX: usize = 100;
/// Lines of headings a table may have.
const HEAD_MAX: usize = 8;

/// The tables among `words`, which no lattice holds.
pub(super) fn shapes(
    words: &[Word],
    rules: &Rules,
    fills: &[Area],
    taken: &[Area],
    tuning: &Tuning,
) -> Vec<Shape> {
    let gaps = Gaps::of(words, tuning);
    let lines = lines(words, gaps);
    let regions = regions(&lines, rules, taken, tuning);
    let regions = regions.into_iter().flat_map(parts);
    let regions = regions.filter(|region| !title::is_figure(&lines, &region.lines));
    regions.filter_map(|region| shape(&region, fills, gaps, tuning)).collect()
}

/// Tables under each other whose headings repeat, as the parts of one that was too wide for its page do.
fn parts(region: Region) -> Vec<Region> {
    let texts: Vec<String> = region.lines.iter().map(line_text).collect();
    let first = texts.first().cloned().unwrap_or_default();
    let numbers = first.chars().any(|c| c.is_ascii_digit());
    let mut starts: Vec<usize> = vec![0];
    if !numbers && first.len() >= 4 {
        starts.extend((3..texts.len()).filter(|&i| texts[i] == first && texts.len() - i >= 3));
    }
    if starts.len() == 1 {
        return vec![region];
    }
    let ends = starts.iter().skip(1).copied().chain([texts.len()]);
    let parts = starts.iter().zip(ends).map(|(&from, to)| {
        let lines = region.lines[from..to].to_vec();
        let (top, bottom) = (lines[0].area().y0 - 14.0, lines[lines.len() - 1].area().y1 + 8.0);
        let rules = region.rules.iter().filter(|r| (top..=bottom).contains(&r.at)).copied().collect();
        Region { lines, rules, barred: region.barred }
    });
    parts.collect()
}

fn line_text(line: &Line) -> String {
    line.chunks.iter().map(Chunk::text).collect::<Vec<_>>().join(" ")
}

/// The numbers along the axis of a diagram: the last lines of a table are never evenly counted up.
fn is_axis(line: &Line) -> bool {
    let words = line.chunks.iter().flat_map(|c| &c.words);
    let numbers: Option<Vec<f64>> =
        words.map(|w| w.text.trim_end_matches('%').replace(',', "").parse().ok()).collect();
    let Some(numbers) = numbers.filter(|n: &Vec<f64>| n.len() >= 4) else { return false };
    let step = numbers[1] - numbers[0];
    step != 0.0 && numbers.windows(2).all(|p| (p[1] - p[0] - step).abs() < 1e-6)
}

fn shape(region: &Region, fills: &[Area], gaps: Gaps, tuning: &Tuning) -> Option<Shape> {
    let lines = &region.lines;
    let area = Area::around(lines.iter().flat_map(|l| l.chunks.iter().map(|c| &c.area)))?;
    let shades = shade::within(&area, fills);
    let numbered = |line: &&Line| line.chunks.iter().filter(|c| c.is_number()).count() >= 2;
    let axis = lines.iter().enumerate().any(|(i, line)| {
        let last = i >= 3 && i + 2 >= lines.len();
        is_axis(line) && (last || lines.iter().filter(numbered).count() == 1)
    });
    if axis {
        return None;
    }
    let head = head(region);
    let several = |l: &&Line| l.chunks.len() >= 2;
    let mut body: Vec<&Line> = lines[head..].iter().filter(several).collect();
    if body.len() < 2 {
        body = lines.iter().filter(several).collect();
    }
    let columns = column::columns(body.iter().copied(), tuning.river, true);
    if !(2..=COLUMNS_MAX).contains(&columns.len()) {
        return None;
    }
    let laid: Vec<Laid> =
        lines.iter().enumerate().map(|(i, line)| column::lay(line, &columns, i < head, gaps)).collect();
    let mut cells = Vec::new();
    let (headings, header_rows) = header::headings(&laid[..head], &columns, &region.rules, &shades);
    for heading in headings {
        cells.push(Cell {
            row: heading.row,
            col: heading.cols.0,
            rowspan: heading.rowspan,
            colspan: heading.cols.1 - heading.cols.0,
            words: heading.words,
        });
    }
    cells.extend(body_cells(&laid[head..], &columns, &region.rules, &shades, header_rows));
    let kind = if region.barred { Kind::HalfRuled } else { Kind::Borderless };
    let mut shape = Shape { kind, area, header_rows, confidence: 0.0, cells };
    shape.compact();
    shape.confidence = assess::stream(&shape, region, tuning);
    (shape.confidence >= tuning.confidence_min).then_some(shape)
}

/// How many of the first lines are headings.
fn head(region: &Region) -> usize {
    let lines = &region.lines;
    let area = Area::around(lines.iter().flat_map(|l| l.chunks.iter().map(|c| &c.area)));
    let Some(area) = area else { return 0 };
    // A rule across the table under its first lines.
    for rules in region.rules.chunk_by(|a, b| b.at - a.at <= 2.0) {
        // From side to side, perhaps in a piece for each column: a rule that leaves out the labels is one under a
        // heading over the columns.
        let from = rules.iter().map(|r| r.from).fold(f64::INFINITY, f64::min);
        let to = rules.iter().map(|r| r.to).fold(f64::NEG_INFINITY, f64::max);
        let drawn: f64 = rules.iter().map(Rule::length).sum();
        let edge = 0.05 * area.width() + 5.0;
        if from > area.x0 + edge || to < area.x1 - edge || drawn < 0.6 * area.width() {
            continue;
        }
        let above = lines.iter().filter(|l| l.base < rules[0].at).count();
        if above > 0 && above <= HEAD_MAX && above < lines.len() {
            return above;
        }
    }
    // Else the first line with a label and numbers begins the body.
    let begins = lines.iter().position(|line| {
        let numbers = line.chunks[1..].iter().filter(|c| c.is_number()).count();
        let years = line.chunks[1..].iter().all(|c| c.words.iter().all(|w| is_year(&w.text)));
        line.chunks.len() >= 2
            && numbers * 2 > line.chunks.len() - 1
            && !years
            && line.chunks[0].area.x0 < area.x0 + 0.3 * area.width()
    });
    match begins {
        Some(line) => line.min(HEAD_MAX),
        None => usize::from(lines.len() > 2),
    }
}

fn is_year(text: &str) -> bool {
    text.len() == 4 && text.parse::<u32>().is_ok_and(|year| (1900..2100).contains(&year))
}

/// A line between rows that stands in the middle over columns heads the rows that follow, across them.
fn centred(line: &Laid, piece: &column::Piece, columns: &[Column]) -> Option<(usize, usize)> {
    if line.pieces.len() != 1 || columns.len() < 3 || piece.words.iter().all(|w| is_number(&w.text)) {
        return None;
    }
    let last = columns.len() - 1;
    let middle = piece.area.middle().0;
    let off = |from: usize| ((columns[from].x0 + columns[last].x1) / 2.0 - middle).abs();
    let near = |from: &usize| {
        off(*from) <= line.size + 0.06 * (columns[last].x1 - columns[*from].x0) && piece.cols.0 >= *from
    };
    (0..2).filter(near).min_by(|a, b| off(*a).total_cmp(&off(*b))).map(|from| (from, last + 1))
}

/// The cells of the body, whose first row is `row`.
fn body_cells(lines: &[Laid], columns: &[Column], rules: &[Rule], shades: &[Area], row: usize) -> Vec<Cell> {
    let ruled: Vec<bool> = (0..lines.len())
        .map(|i| {
            i > 0
                && rules
                    .iter()
                    .any(|r| lines[i - 1].base < r.at && r.at < lines[i].base && r.length() > 100.0)
        })
        .collect();
    let joined = row::continued(lines, columns.len(), &ruled, shades);
    let mut cells: Vec<Cell> = Vec::new();
    let mut row = row;
    let mut first = 0;
    for (i, line) in lines.iter().enumerate() {
        if i > 0 && !joined[i] {
            row += 1;
            first = cells.len();
        }
        for piece in &line.pieces {
            // A label that runs on over empty cells is a label still.
            let label = piece.cols.0 == 0 && line.pieces.len() == 1;
            let cols = if label { (0, 1) } else { centred(line, piece, columns).unwrap_or(piece.cols) };
            let same = cells[first..].iter_mut().find(|c| c.col < cols.1 && cols.0 < c.col + c.colspan);
            match same {
                Some(cell) => cell.words.extend(piece.words.iter().cloned()),
                None => cells.push(Cell {
                    row,
                    col: cols.0,
                    rowspan: 1,
                    colspan: cols.1 - cols.0,
                    words: piece.words.clone(),
                }),
            }
        }
    }
    cells
}
