//! Glyphs to lines of text: what stands on one baseline, where words begin, where a line has a hole.
//!
//! Everything is done in the frame of the reading direction, so that turned text and vertical writing take
//! the same road: `u` grows along a line, `v` falls from line to line.

use hayro_interpret::kurbo::Vec2;

use super::glyphs::{PageGlyphs, PlacedGlyph, alike};

/// Gap that separates words, in ems of the smaller neighbour.
const WORD_GAP: f64 = 0.18;
/// Gap that separates pieces of a line: columns, table cells.
const CHUNK_GAP: f64 = 0.85;
/// How far apart the baselines of one line may be, in ems of the larger glyph.
const BASELINE: f64 = 0.35;
/// The same for a raised or lowered glyph, which is smaller than its neighbours.
const RAISED: f64 = 0.45;
const SMALLER: f64 = 0.8;
/// Glyphs with the same text closer than this share of their advance are one glyph, printed twice: filled
/// and then stroked, which the interpreter announces as two, or shifted a little for bold.
const DOUBLE: f64 = 0.3;

/// A word, or what stands without a gap.
#[derive(Clone, Debug)]
pub(super) struct Word {
    /// From where to where along the line, points.
    pub(super) u: [f64; 2],
    /// Its own baseline, points.
    pub(super) v: f64,
    /// Size of its largest glyph, points.
    pub(super) size: f64,
    pub(super) text: String,
}

/// A piece of a line without a hole.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    /// From where to where along the line, points.
    pub(super) u: [f64; 2],
    pub(super) text: String,
}

/// Pieces on one baseline, from start to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Line<Piece> {
    /// The baseline; falls from line to line, points.
    pub(super) v: f64,
    pub(super) pieces: Vec<Piece>,
}

/// The lines of one reading direction, first line first.
pub(super) struct Flow {
    /// Unit vector along which its lines are read.
    pub(super) along: Vec2,
    pub(super) vertical: bool,
    pub(super) lines: Vec<Line<Word>>,
}

impl Flow {
    /// The lines with their words joined to what stands without a hole.
    pub(super) fn chunked(&self) -> Vec<Line<Chunk>> {
        self.lines.iter().map(|line| Line { v: line.v, pieces: chunks(&line.pieces) }).collect()
    }
}

fn chunks(words: &[Word]) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut before: Option<&Word> = None;
    for word in words {
        let hole = before.map_or(f64::INFINITY, |b| CHUNK_GAP * b.size.min(word.size));
        match chunks.last_mut() {
            Some(chunk) if word.u[0] - chunk.u[1] <= hole => {
                chunk.text.push(' ');
                chunk.text.push_str(&word.text);
                chunk.u[1] = chunk.u[1].max(word.u[1]);
            }
            _ => chunks.push(Chunk { u: word.u, text: word.text.clone() }),
        }
        before = Some(word);
    }
    chunks
}

/// A glyph in the frame of its direction.
struct Framed<'p> {
    u: f64,
    v: f64,
    glyph: &'p PlacedGlyph,
    text: &'p str,
}

impl Framed<'_> {
    fn end(&self) -> f64 {
        self.u + self.glyph.advance
    }
}

/// The lines of a page by reading direction, first line first; the direction with most glyphs first.
pub(super) fn flows(page: &PageGlyphs) -> Vec<Flow> {
    let mut groups: Vec<Vec<&PlacedGlyph>> = Vec::new();
    for glyph in &page.glyphs {
        let same =
            |g: &Vec<&PlacedGlyph>| g[0].vertical == glyph.vertical && alike(g[0].direction, glyph.direction);
        match groups.iter_mut().find(|g| same(g)) {
            Some(group) => group.push(glyph),
            None => groups.push(vec![glyph]),
        }
    }
    groups.sort_by_key(|g| std::cmp::Reverse(g.len()));
    groups.iter().map(|group| flow(group, &page.text)).collect()
}

fn flow(group: &[&PlacedGlyph], text: &str) -> Flow {
    // The mean direction levels a slightly turned scan.
    let sum = group.iter().fold(Vec2::ZERO, |sum, g| sum + g.direction);
    let along = sum / sum.hypot().max(f64::MIN_POSITIVE);
    let up = Vec2::new(-along.y, along.x);
    let mut framed: Vec<Framed<'_>> = group
        .iter()
        .map(|glyph| Framed {
            u: glyph.origin.to_vec2().dot(along),
            v: glyph.origin.to_vec2().dot(up),
            glyph,
            text: &text[glyph.text.start as usize..glyph.text.end as usize],
        })
        .collect();
    framed.sort_by(|a, b| b.v.total_cmp(&a.v));

    let mut lines = Vec::new();
    let mut rest = framed.as_mut_slice();
    while let Some(first) = rest.first() {
        let (mut v, mut size) = (first.v, first.glyph.size);
        let mut end = 1;
        while let Some(next) = rest.get(end) {
            if v - next.v > baseline_tolerance(size, next.glyph.size) {
                break;
            }
            // The largest glyphs say where the baseline is.
            if next.glyph.size * SMALLER > size {
                (v, size) = (next.v, next.glyph.size);
            }
            end += 1;
        }
        let (line, others) = rest.split_at_mut(end);
        line.sort_by(|a, b| a.u.total_cmp(&b.u));
        let pieces = words(line);
        if !pieces.is_empty() {
            lines.push(Line { v, pieces });
        }
        rest = others;
    }
    Flow { along, vertical: group[0].vertical, lines }
}

fn baseline_tolerance(a: f64, b: f64) -> f64 {
    let (small, large) = (a.min(b), a.max(b));
    // A drop capital is larger than its line is high, and must not draw two lines together.
    if small < SMALLER * large { (RAISED * large).min(small) } else { BASELINE * large }
}

fn words(line: &[Framed<'_>]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut before: Option<&Framed<'_>> = None;
    let mut end = f64::NEG_INFINITY;
    let mut spaced = false;
    for glyph in line {
        if glyph.text.trim().is_empty() {
            spaced = true;
            continue;
        }
        if before.is_some_and(|b| printed_twice(b, glyph)) {
            continue;
        }
        let size = before.map_or(glyph.glyph.size, |b| b.glyph.size.min(glyph.glyph.size));
        match words.last_mut() {
            Some(word) if !spaced && glyph.u - end <= WORD_GAP * size => {
                word.text.push_str(glyph.text);
                word.u[1] = word.u[1].max(glyph.end());
                // The largest glyphs say where the baseline is.
                if glyph.glyph.size > word.size {
                    (word.size, word.v) = (glyph.glyph.size, glyph.v);
                }
            }
            _ => words.push(Word {
                u: [glyph.u, glyph.end()],
                v: glyph.v,
                size: glyph.glyph.size,
                text: glyph.text.to_owned(),
            }),
        }
        end = end.max(glyph.end());
        before = Some(glyph);
        spaced = false;
    }
    words
}

fn printed_twice(a: &Framed<'_>, b: &Framed<'_>) -> bool {
    let near = (DOUBLE * a.glyph.advance.min(b.glyph.advance)).max(0.01 * a.glyph.size);
    a.text == b.text && (b.u - a.u).abs() < near && (b.v - a.v).abs() < 0.15 * a.glyph.size
}
