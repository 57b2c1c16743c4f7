//! Which way a page lies, and its words on their lines.
//!
//! The recogniser reads pages that lie on their sides or heads and gives boxes as they stand on the picture; which way
//! they are read shows in the order of the words of a line.

use hayro_interpret::kurbo::{Point, Vec2};

use super::picture::{INK, Picture};
use super::words::Word;

/// How far a word may stand off its line's baseline and still be put on it, of its size.
const BASELINE: f64 = 0.35;

/// A word on its line, in pixels from the middle of the picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) text: String,
    /// From where to where along the reading direction.
    pub(super) along: [f64; 2],
    /// The baseline, growing from line to line.
    pub(super) baseline: f64,
    /// Size of the font.
    pub(super) size: f64,
}

/// Quarter turns clockwise of a page: 0 reads to the right, 1 down, 2 to the left, 3 up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lie(usize);

const ALONG: [Vec2; 4] =
    [Vec2::new(1.0, 0.0), Vec2::new(0.0, 1.0), Vec2::new(-1.0, 0.0), Vec2::new(0.0, -1.0)];

impl Lie {
    /// The direction of reading on the picture, whose `y` falls.
    pub(super) fn along(self) -> Vec2 {
        ALONG[self.0]
    }

    /// The direction from line to line.
    pub(super) fn down(self) -> Vec2 {
        ALONG[(self.0 + 1) % 4]
    }

    /// The way most lines are read, each counting by its length.
    fn of(words: &[Word]) -> Self {
        let mut votes = [0.0; 4];
        for line in words.chunk_by(|a, b| a.line == b.line) {
            let way = centre(&line[line.len() - 1]) - centre(&line[0]);
            for (vote, along) in votes.iter_mut().zip(ALONG) {
                let length = way.dot(along);
                // Steeper than this it is no line of that direction.
                *vote += if length > way.hypot() * 0.9 { length } else { 0.0 };
            }
        }
        // Of equal votes the first counts: a page of single words is upright.
        Self((0..4).rev().max_by(|a, b| votes[*a].total_cmp(&votes[*b])).unwrap_or(0))
    }
}

fn centre(word: &Word) -> Point {
    Point::new(word.left + word.width / 2.0, word.top + word.height / 2.0)
}

/// A word seen along its line.
struct Framed<'w> {
    text: &'w str,
    line: usize,
    /// Middle, along and down.
    at: (f64, f64),
    width: f64,
    height: f64,
}

/// How the page lies, and its words, in the order they came.
pub(super) fn straight(mut words: Vec<Word>, picture: &Picture) -> (Lie, Vec<Placed>) {
    let lie = Lie::of(&words);
    words.iter_mut().for_each(|word| fit(word, lie, picture));
    let middle = picture.middle();
    let framed: Vec<Framed<'_>> = words
        .iter()
        .map(|word| {
            let from_middle = centre(word) - middle;
            let (width, height) = match lie.0 % 2 {
                0 => (word.width, word.height),
                _ => (word.height, word.width),
            };
            let at = (from_middle.dot(lie.along()), from_middle.dot(lie.down()));
            Framed { text: &word.text, line: word.line, at, width, height }
        })
        .collect();
    (lie, framed.chunk_by(|a, b| a.line == b.line).flat_map(place).collect())
}

/// Puts the words of a line on its baseline, in its size.
fn place(line: &[Framed<'_>]) -> Vec<Placed> {
    let solid = || line.iter().filter(|f| is_solid(f.text));
    let size = median(solid().map(|f| f.height / Reach::of(f.text).height()).collect());
    let of = |f: &Framed<'_>| size.unwrap_or(f.height);
    let own = |f: &Framed<'_>| f.at.1 + f.height / 2.0 - Reach::of(f.text).below * of(f);
    let common = median(solid().map(own).collect());
    let placed = |f: &Framed<'_>| {
        // Punctuation says nothing of where its line is.
        let on_line = |common: &f64| !is_solid(f.text) || (common - own(f)).abs() < BASELINE * of(f);
        Placed {
            text: f.text.to_owned(),
            along: [f.at.0 - f.width / 2.0, f.at.0 + f.width / 2.0],
            baseline: common.filter(on_line).unwrap_or_else(|| own(f)),
            size: of(f),
        }
    };
    line.iter().map(placed).collect()
}

/// Empty rows inside of a word, of the height of its box: between a letter and its dot.
const DOT: f64 = 0.15;
/// Share of a row from which on it is a rule and no text.
const RULE: f64 = 0.9;

/// Fits the box of a word to its ink. Boxes often take in a rule or a bit of the next line, which would put the word
/// off its own.
fn fit(word: &mut Word, lie: Lie, picture: &Picture) {
    let upright = lie.0.is_multiple_of(2);
    let (from, size, along, length) = match upright {
        true => (word.top, word.height, word.left, word.width),
        false => (word.left, word.width, word.top, word.height),
    };
    let (from, along) = (from.round() as i64, along.round() as i64);
    let (rows, columns) = ((size.round() as i64).min(1_000), (length.round() as i64).min(10_000));
    let has_text = |row: i64| {
        let ink = (0..columns).filter(|column| {
            let (across, down) = (along + column, from + row);
            (if upright { picture.at(across, down) } else { picture.at(down, across) }) <= INK
        });
        let ink = ink.count();
        ink > 0 && (columns < 2 * rows || (ink as f64) < RULE * columns as f64)
    };
    let rows_with: Vec<bool> = (0..rows).map(has_text).collect();
    // From the row with text next to the middle as far as there is no wide gap.
    let Some(start) =
        (0..rows).filter(|row| rows_with[*row as usize]).min_by_key(|row| (row - rows / 2).abs())
    else {
        return;
    };
    let gap = (size * DOT).max(1.0) as i64 + 1;
    let reach = |step: i64| {
        let (mut last, mut row) = (start, start);
        while (0..rows).contains(&row) && (row - last).abs() <= gap {
            last = if rows_with[row as usize] { row } else { last };
            row += step;
        }
        last
    };
    let (first, last) = (reach(-1), reach(1));
    let (at, height) = ((from + first) as f64, (last + 1 - first) as f64);
    match upright {
        true => (word.top, word.height) = (at, height),
        false => (word.left, word.width) = (at, height),
    }
}

fn is_solid(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// How far a word's ink reaches, of its size.
struct Reach {
    above: f64,
    below: f64,
}

impl Reach {
    /// Syllables and ideographs fill their square; letters reach as far as the tallest and the lowest of them.
    fn of(text: &str) -> Self {
        let mut reach = Self { above: 0.5, below: 0.0 };
        for c in text.chars() {
            let (above, below) = match c {
                'a' | 'c' | 'e' | 'm' | 'n' | 'o' | 'r' | 's' | 'u' | 'v' | 'w' | 'x' | 'z' => (0.5, 0.0),
                'g' | 'p' | 'q' | 'y' => (0.5, 0.21),
                'j' | 'Q' | '(' | ')' | '[' | ']' | '{' | '}' | '/' => (0.73, 0.21),
                ',' | ';' => (0.5, 0.12),
                '\u{1100}'.. => (0.82, 0.1),
                _ => (0.72, 0.0),
            };
            reach = Self { above: reach.above.max(above), below: reach.below.max(below) };
        }
        reach
    }

    fn height(&self) -> f64 {
        self.above + self.below
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lines of words with a font of 20 pixels and their baselines at 40 and 80, on a page of 1000 by 1000, turned.
    fn page(quarters: usize) -> Vec<Word> {
        let lie = Lie(quarters);
        let mut words = Vec::new();
        for line in 0..2 {
            for (n, text) in ["KM", "one", "gap", "예산", "-"].into_iter().enumerate() {
                let reach = if text == "-" { Reach { above: 0.3, below: -0.2 } } else { Reach::of(text) };
                let (above, below) = (20.0 * reach.above, 20.0 * reach.below);
                let (u, v) = (n as f64 * 90.0 - 180.0, f64::from(line) * 40.0 + 40.0 + (below - above) / 2.0);
                let at = Point::new(500.0, 500.0) + lie.along() * u + lie.down() * v;
                let (w, h) =
                    if quarters.is_multiple_of(2) { (60.0, above + below) } else { (above + below, 60.0) };
                let (left, top) = (at.x - w / 2.0, at.y - h / 2.0);
                let text = text.to_owned();
                words.push(Word {
                    line: line as usize,
                    left,
                    top,
                    width: w,
                    height: h,
                    confidence: 90.0,
                    text,
                });
            }
        }
        words
    }

    fn blank() -> Picture {
        Picture { width: 1000, height: 1000, grey: vec![255; 1_000_000] }
    }

    #[test]
    fn a_box_is_fitted_to_the_ink_of_its_word() {
        // A rule, a word with a dot, and the top of the next line in one box.
        let mut page = blank();
        for (rows, columns) in
            [(100..102, 40..260), (110..113, 60..63), (116..130, 50..240), (141..145, 50..200)]
        {
            for y in rows {
                let step = if y > 113 { 3 } else { 1 };
                columns.clone().step_by(step).for_each(|x: usize| page.grey[y * 1000 + x] = 0);
            }
        }
        let boxed = Word {
            line: 0,
            left: 48.0,
            top: 99.0,
            width: 194.0,
            height: 46.0,
            confidence: 90.0,
            text: "in".to_owned(),
        };
        let mut word = boxed.clone();
        fit(&mut word, Lie(0), &page);
        assert_eq!((word.top, word.height), (110.0, 20.0));
        let mut empty = Word { top: 500.0, ..boxed };
        fit(&mut empty, Lie(0), &page);
        assert_eq!(empty.top, 500.0);
    }

    #[test]
    fn words_stand_on_the_lines_of_their_page_however_it_lies() {
        for quarters in 0..4 {
            let (lie, placed) = straight(page(quarters), &blank());
            assert_eq!(lie, Lie(quarters));
            for (word, number) in placed.iter().zip(0..) {
                let baseline = if number < 5 { 40.0 } else { 80.0 };
                assert!((word.baseline - baseline).abs() < 0.01, "{word:?}");
                assert!((word.size - 20.0).abs() < 0.01, "{word:?}");
            }
            assert_eq!(placed[6].along, [-120.0, -60.0]);
        }
    }
}
