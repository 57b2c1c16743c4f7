//! The cheapest way to read a text: every word that may begin at each place, and the best one before it.
//!
//! Where two ways cost the same, the one that MeCab takes is taken: it keeps its lists newest first, and so do
//! these.

use super::dictionary::{Tables, Word};
use super::unknown;

/// A word at a place, with the cheapest way to it.
struct Node {
    start: u32,
    end: u32,
    class: u16,
    right: u16,
    cost: i64,
    before: u32,
    /// The next of the words that end here.
    next: u32,
}

const NONE: u32 = u32::MAX;
/// The class of the text's beginning and end in the table of links.
const EDGE: u16 = 0;

/// First and last-plus-one byte and class of each morpheme, in order.
pub(super) fn read(tables: &Tables<'_>, text: &str) -> Vec<(usize, usize, u16)> {
    let beginning = Node { start: 0, end: 0, class: 0, right: EDGE, cost: 0, before: NONE, next: NONE };
    let mut nodes = vec![beginning];
    let mut ends = vec![NONE; text.len() + 1];
    ends[0] = 0;
    let mut found: Vec<(usize, Word)> = Vec::new();
    for (at, _) in text.char_indices() {
        if ends[at] == NONE {
            continue;
        }
        let start = at + blanks(&text[at..]);
        let rest = &text[start..];
        found.clear();
        tables.words(rest, |length, word| found.push((length, word)));
        let known = !found.is_empty();
        unknown::words(tables, rest, known, |length, word| found.push((length, word)));
        for (length, word) in found.iter().rev() {
            let node = connect(tables, &nodes, ends[at], start, start + length, *word, start > at);
            let end = node.end as usize;
            nodes.push(Node { next: ends[end], ..node });
            ends[end] = u32::try_from(nodes.len() - 1).unwrap_or(NONE);
        }
    }
    // Blanks at the end belong to no word.
    let last = (0..=text.len()).rev().find(|end| ends[*end] != NONE).unwrap_or(0);
    let mut at = cheapest(tables, &nodes, ends[last], EDGE).0;
    let mut way = Vec::new();
    while at != NONE && at != 0 {
        let node = &nodes[at as usize];
        way.push((node.start as usize, node.end as usize, node.class));
        at = node.before;
    }
    way.reverse();
    way
}

fn connect(
    tables: &Tables<'_>,
    nodes: &[Node],
    ending: u32,
    start: usize,
    end: usize,
    word: Word,
    after_blank: bool,
) -> Node {
    let class = tables.class(word.class);
    let (before, cost) = cheapest(tables, nodes, ending, class.left);
    let blank = if after_blank { i64::from(class.after_blank) } else { 0 };
    Node {
        start: u32::try_from(start).unwrap_or(NONE),
        end: u32::try_from(end).unwrap_or(NONE),
        class: word.class,
        right: class.right,
        cost: cost + i64::from(word.cost) + blank,
        before,
        next: NONE,
    }
}

/// The best of the words that end at a place to put a word of class `left` after.
fn cheapest(tables: &Tables<'_>, nodes: &[Node], mut ending: u32, left: u16) -> (u32, i64) {
    let mut best = (NONE, i64::MAX);
    while ending != NONE {
        let node = &nodes[ending as usize];
        let cost = node.cost + i64::from(tables.link(node.right, left));
        if cost < best.1 {
            best = (ending, cost);
        }
        ending = node.next;
    }
    best
}

/// Bytes of blanks that a text begins with.
fn blanks(text: &str) -> usize {
    text.find(|c: char| !matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{b}')).unwrap_or(text.len())
}
