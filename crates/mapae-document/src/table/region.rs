//! Where text that no lattice holds stands in columns.

use super::geometry::{Area, median, shared};
use super::line::{Chunk, Line};
use super::rule::{Rule, Rules};
use super::title;
use super::tuning::Tuning;

/// Level rules shorter than this are underlines and marks, points.
const BAR: f64 = 60.0;
/// Bars of one page; a page with more is a drawing.
const BARS_MAX: usize = 400;
/// How far the ends of bars of one table may differ, points.
const ENDS: f64 = 8.0;
/// Share of a table's width from which on a line of words in one piece is running text.
const WIDE: f64 = 0.75;
/// Lines with a single piece between two lines with several.
const SINGLE_MAX: usize = 3;

/// A piece of a page that may be a table.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) lines: Vec<Line>,
    /// Level rules in it.
    pub(super) rules: Vec<Rule>,
    /// Whether rules over its whole width bound it.
    pub(super) barred: bool,
}

/// The regions of a page, those between rules first.
pub(super) fn regions(lines: &[Line], rules: &Rules, taken: &[Area], tuning: &Tuning) -> Vec<Region> {
    let mut prose = prose(lines);
    prose.extend(justified(lines));
    let mut rest: Vec<Line> = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let kept = line.chunks.iter().enumerate().filter(|(k, _)| !prose.contains(&(i, *k)));
        let chunks: Vec<Chunk> = kept.map(|(_, c)| c.clone()).collect();
        rest.push(Line { base: line.base, chunks });
    }
    let level: Vec<Rule> = rules
        .level
        .iter()
        .copied()
        .filter(|r| {
            !taken.iter().any(|t| {
                t.y0 - 3.0 <= r.at && r.at <= t.y1 + 3.0 && r.from >= t.x0 - 9.0 && r.to <= t.x1 + 9.0
            })
        })
        .collect();
    let mut found = Vec::new();
    let bars = bars(&level);
    let mut at = 0;
    while at < bars.len() {
        let chain = chain(&bars, at, &rest, lines, tuning);
        if let Some(region) = between(&bars, &chain, lines, &mut rest, &level) {
            found.push(region);
        }
        at += 1;
    }
    found.extend(runs(&rest, &level, taken, tuning));
    found
}

/// Level rules at one height, as one.
#[derive(Clone, Copy, Debug)]
struct Bar {
    y: f64,
    from: f64,
    to: f64,
}

fn bars(level: &[Rule]) -> Vec<Bar> {
    let groups = level.chunk_by(|a, b| b.at - a.at <= 2.0);
    let mut bars: Vec<Bar> = Vec::new();
    for group in groups {
        let mut pieces: Vec<&Rule> = group.iter().collect();
        pieces.sort_by(|a, b| a.from.total_cmp(&b.from));
        let mut open: Option<Bar> = None;
        for piece in pieces {
            match &mut open {
                Some(bar) if piece.from - bar.to <= 15.0 => bar.to = bar.to.max(piece.to),
                _ => bars.extend(open.replace(Bar { y: piece.at, from: piece.from, to: piece.to })),
            }
        }
        bars.extend(open);
    }
    bars.retain(|bar| bar.to - bar.from >= BAR);
    if bars.len() > BARS_MAX {
        bars.clear();
    }
    bars
}

/// The bars from `at` on that belong to one table: of the same reach, with nothing but lines of a table
/// between them.
fn chain(bars: &[Bar], at: usize, rest: &[Line], all: &[Line], tuning: &Tuning) -> Vec<usize> {
    let mut chain = vec![at];
    for next in at + 1..bars.len() {
        let (a, b) = (bars[*chain.last().unwrap_or(&at)], bars[next]);
        if (a.from - b.from).abs() > ENDS || (a.to - b.to).abs() > ENDS {
            continue;
        }
        let between = |line: &&Line| a.y < line.base && line.base < b.y;
        let inside = |line: &Line| {
            line.chunks.iter().filter(|c| c.area.x1 > a.from - 2.0 && c.area.x0 < b.to + 2.0).count()
        };
        let full: usize = all.iter().filter(between).map(inside).sum();
        let kept: usize = rest.iter().filter(between).map(inside).sum();
        let lines: Vec<&Line> = all.iter().filter(between).filter(|l| inside(l) > 0).collect();
        let mut last = a.y;
        let mut near = true;
        for line in &lines {
            near &= line.base - last <= tuning.break_ems * line.size();
            last = line.base;
        }
        // Running text, though not all over the measure: lines that are one long piece.
        let running = lines.iter().filter(|l| l.chunks.len() == 1 && l.chunks[0].words.len() >= 12).count();
        let gone =
            all.iter().zip(rest).filter(|(l, kept)| between(l) && inside(l) > 0 && kept.chunks.is_empty());
        // Two lines of it over the whole measure end a table.
        let wide = |l: &&&Line| {
            l.chunks.len() == 1 && l.chunks[0].words.len() >= 9 && l.area().width() >= WIDE * (b.to - a.from)
        };
        let wide = lines.iter().filter(wide).count() >= 2;
        let prose = wide || running.max(gone.count()) * 4 > lines.len();
        if kept * 2 < full || prose || lines.is_empty() && b.y - a.y > 14.0 || !near {
            break;
        }
        if lines.iter().any(|l| l.chunks.len() == 1 && title::is_caption(&l.chunks[0].text())) {
            break;
        }
        chain.push(next);
    }
    chain
}

/// The region between the bars of a chain; takes its lines out of `rest`.
fn between(bars: &[Bar], chain: &[usize], all: &[Line], rest: &mut [Line], level: &[Rule]) -> Option<Region> {
    let (top, bottom) = (bars[*chain.first()?], bars[*chain.last()?]);
    if chain.len() < 2 {
        return None;
    }
    let (from, to) = (top.from - 4.0, top.to + 4.0);
    let held = |c: &Chunk| (from..=to).contains(&c.area.middle().0);
    let part = |line: &Line| Line {
        base: line.base,
        chunks: line.chunks.iter().filter(|c| held(c)).cloned().collect(),
    };
    let inside = |line: &Line| top.y < line.base && line.base < bottom.y + 1.0;
    // Another table may have taken them already.
    if rest.iter().filter(|l| inside(l)).all(|l| part(l).chunks.is_empty()) {
        return None;
    }
    let mut lines: Vec<Line> = all.iter().filter(|l| inside(l)).map(part).collect();
    lines.retain(|l| !l.chunks.is_empty());
    // A rule under the headings only: they stand above it.
    let mut start = top.y;
    let mut above: Vec<Line> = Vec::new();
    for line in rest.iter().rev().filter(|l| l.base <= top.y).map(part) {
        if line.chunks.is_empty() {
            continue;
        }
        let below = above.last().map_or(top.y, |l: &Line| l.base);
        let text = line.chunks[0].text();
        let heads = line.chunks.len() >= 2 && !line.chunks[0].is_bullet()
            || !above.is_empty() && line.area().x0 > from + 0.25 * (to - from);
        let reach = if above.is_empty() { 1.2 } else { 1.8 };
        let near = below - line.base <= reach * line.size();
        if !heads || !near || title::is_caption(&text) || above.len() >= 4 {
            break;
        }
        start = line.area().y0;
        above.push(line);
    }
    lines.splice(0..0, above.into_iter().rev());
    let mut end = bottom.y;
    // Rules above and below the headings only: the body follows without one.
    let step = median(lines.windows(2).map(|p| p[1].base - p[0].base).collect());
    for line in rest.iter().filter(|l| l.base > bottom.y + 1.0).map(part) {
        if line.chunks.is_empty() {
            continue;
        }
        let last = lines.last().map_or(bottom.y, |l| l.base).max(bottom.y - 2.0);
        let reach = step.unwrap_or(line.size()).max(1.3 * line.size()) * 1.6;
        let several = line.chunks.len() >= 2 && !line.chunks[0].is_bullet();
        if !several || line.base - last > reach.max(2.2 * line.size()) {
            break;
        }
        end = line.base + 1.0;
        lines.push(line);
    }
    let several = lines.iter().filter(|l| l.chunks.len() >= 2).count();
    if several < 2 || several * 4 < lines.len() {
        return None;
    }
    for line in rest.iter_mut().filter(|l| start < l.base && l.base < end + 0.5) {
        line.chunks.retain(|c| !held(c));
    }
    let rules = level.iter().filter(|r| r.at >= start - 2.0 && r.at <= end + 2.0);
    let rules = rules.filter(|r| shared((r.from, r.to), (from, to)) > 0.0).copied().collect();
    Some(Region { lines, rules, barred: true })
}

/// Runs of lines with several pieces.
fn runs(rest: &[Line], level: &[Rule], taken: &[Area], tuning: &Tuning) -> Vec<Region> {
    let lines: Vec<&Line> = rest.iter().filter(|l| !l.chunks.is_empty()).collect();
    let mut regions = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        if !several(lines[i]) {
            i += 1;
            continue;
        }
        let mut end = i + 1;
        let mut singles = 0;
        let mut k = i + 1;
        while k < lines.len() {
            let (before, line) = (lines[k - 1], lines[k]);
            let size = line.size().max(before.size());
            let parted = taken.iter().any(|t| before.base < t.y0 && t.y1 < line.base);
            if line.base - before.base > tuning.break_ems * size || parted {
                break;
            }
            if several(line) {
                singles = 0;
                end = k + 1;
            } else {
                singles += 1;
                let text = line.chunks[0].text();
                let columns = lines[i..end].iter().map(|l| l.area().width()).fold(0.0, f64::max);
                if line.chunks[0].words.len() >= 6 && line.area().width() >= WIDE * columns {
                    break;
                }
                if singles > SINGLE_MAX || title::is_caption(&text) || line.chunks[0].words.len() > 12 {
                    break;
                }
            }
            k += 1;
        }
        let mut start = i;
        // Headings that stand over the columns, not over the labels: a line with one piece above the run.
        while start > 0 {
            let (line, below) = (lines[start - 1], lines[start]);
            let run = Area::around(lines[i..end].iter().flat_map(|l| l.chunks.iter().map(|c| &c.area)));
            let Some(run) = run else { break };
            let alone = line.chunks.len() == 1 && line.chunks[0].words.len() <= 6;
            let inside = line.area().x0 > run.x0 + 0.2 * run.width() && line.area().x1 <= run.x1 + 4.0;
            let off = (line.area().middle().0 - run.middle().0).abs() > 0.05 * run.width();
            let near = below.base - line.base <= 2.0 * below.size();
            if !(alone && inside && off && near) || title::is_caption(&line.chunks[0].text()) {
                break;
            }
            start -= 1;
        }
        let part: Vec<Line> = lines[start..end].iter().map(|l| (*l).clone()).collect();
        if let Some(area) = Area::around(part.iter().flat_map(|l| l.chunks.iter().map(|c| &c.area))) {
            let inside = |r: &&Rule| {
                (area.y0 - 4.0..=area.y1 + 4.0).contains(&r.at)
                    && shared((r.from, r.to), (area.x0, area.x1)) > 0.0
            };
            regions.push(Region {
                rules: level.iter().filter(inside).copied().collect(),
                lines: part,
                barred: false,
            });
        }
        i = end.max(i + 1);
    }
    regions
}

fn several(line: &Line) -> bool {
    let bullet = line.chunks.first().is_some_and(Chunk::is_bullet);
    line.chunks.len() >= if bullet { 3 } else { 2 }
}

/// Chunks (line and place in it) that are running text: three or more wordy lines under each other that fill
/// their measure. Prose in columns has white between its columns as a table has.
fn prose(lines: &[Line]) -> std::collections::HashSet<(usize, usize)> {
    let mut found = std::collections::HashSet::new();
    let mut seen = std::collections::HashSet::new();
    for (i, line) in lines.iter().enumerate() {
        for k in 0..line.chunks.len() {
            if seen.contains(&(i, k)) {
                continue;
            }
            let mut block = vec![(i, k)];
            let (mut at, mut last) = (i, k);
            while let Some((next, chunk)) = below(lines, at, last) {
                block.push((next, chunk));
                seen.insert((next, chunk));
                (at, last) = (next, chunk);
            }
            if is_prose(lines, &block) {
                found.extend(block);
            }
        }
    }
    found
}

/// The chunk of the next line that begins where this one does.
fn below(lines: &[Line], i: usize, k: usize) -> Option<(usize, usize)> {
    let chunk = &lines[i].chunks[k];
    let size = chunk.size();
    for (j, line) in lines.iter().enumerate().skip(i + 1) {
        if line.base - lines[i].base > 2.3 * size {
            return None;
        }
        let same = |c: &Chunk| {
            let indent = chunk.area.x0 - c.area.x0;
            // A first line may be set in.
            (-3.0..=2.8 * size).contains(&indent) && (c.size() - size).abs() < 0.2 * size
        };
        if let Some(found) = line.chunks.iter().position(same) {
            return Some((j, found));
        }
    }
    None
}

/// Whole lines that are set flush on both sides with wide gaps, as typewriters and narrow measures do it: three
/// or more under each other with the same ends and no white through all of them.
fn justified(lines: &[Line]) -> std::collections::HashSet<(usize, usize)> {
    let mut found = std::collections::HashSet::new();
    let wordy = |l: &Line| {
        let words = || l.chunks.iter().flat_map(|c| &c.words);
        let alphabetic =
            words().filter(|w| w.text.chars().filter(|c| c.is_alphabetic()).count() >= 2).count();
        words().count() >= 5 && alphabetic * 10 >= words().count() * 7
    };
    let mut i = 0;
    while i < lines.len() {
        let mut end = i + 1;
        while end < lines.len() {
            let (a, b) = (&lines[end - 1], &lines[end]);
            let (first, area) = (lines[i].area(), b.area());
            let same = (area.x1 - first.x1).abs() <= 4.0 && (area.x0 - first.x0).abs() <= 4.0;
            if b.base - a.base > 2.3 * b.size() || !same || !wordy(b) {
                break;
            }
            end += 1;
        }
        if end - i >= 2 && wordy(&lines[i]) && !river(&lines[i..end]) {
            // The line above may be set in, the one below may end early.
            let from = i.saturating_sub(usize::from(
                i > 0 && lines[i].base - lines[i - 1].base < 2.3 * lines[i].size(),
            ));
            let to = (end
                + usize::from(
                    end < lines.len() && lines[end].base - lines[end - 1].base < 2.3 * lines[end - 1].size(),
                ))
            .min(lines.len());
            let whole = (from..to).filter(|&k| {
                (i..end).contains(&k) || wordy(&lines[k]) || k == end && lines[k].chunks.len() < 3
            });
            for k in whole {
                found.extend((0..lines[k].chunks.len()).map(|chunk| (k, chunk)));
            }
        }
        i = end;
    }
    found
}

/// Whether there is white through (nearly) all of `lines`.
fn river(lines: &[Line]) -> bool {
    let mut edges: Vec<(f64, i32)> = Vec::new();
    for line in lines {
        let words: Vec<_> = line.chunks.iter().flat_map(|c| &c.words).collect();
        for pair in words.windows(2) {
            if pair[1].area.x0 - pair[0].area.x1 >= 0.5 * pair[0].size {
                edges.push((pair[0].area.x1, 1));
                edges.push((pair[1].area.x0, -1));
            }
        }
    }
    edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut open, mut most) = (0, 0);
    for (_, step) in edges {
        open += step;
        most = most.max(open);
    }
    most as f64 >= 0.85 * lines.len() as f64
}

fn is_prose(lines: &[Line], block: &[(usize, usize)]) -> bool {
    let chunks: Vec<&Chunk> = block.iter().map(|&(i, k)| &lines[i].chunks[k]).collect();
    let wordy =
        |c: &Chunk| c.words.len() >= 4 && c.text().chars().filter(|c| c.is_alphabetic()).count() >= 16;
    if chunks.len() < 3 {
        // One or two lines over most of a page.
        return chunks.iter().all(|c| c.words.len() >= 14 && wordy(c));
    }
    let right = chunks.iter().map(|c| c.area.x1).fold(f64::NEG_INFINITY, f64::max);
    let left = chunks.iter().map(|c| c.area.x0).fold(f64::INFINITY, f64::min);
    let width = right - left;
    let full = chunks.iter().filter(|c| c.area.x1 >= right - 0.15 * width).count();
    let many = chunks.iter().filter(|c| wordy(c)).count();
    many * 10 >= chunks.len() * 7 && full * 10 >= chunks.len() * 6 && width > 90.0
}
