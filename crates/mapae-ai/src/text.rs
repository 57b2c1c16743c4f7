//! A text to its words, with where they stand and what stands between them.

use std::ops::Range;

/// A word and the bytes of the text it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word<'t> {
    pub(crate) text: &'t str,
    pub(crate) at: usize,
    /// Nothing but blanks stands between this word and the one before it.
    pub(crate) joined: bool,
    /// In the text's title or in a heading.
    pub(crate) heading: bool,
}

impl Word<'_> {
    pub(crate) fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// The longest thing that is a word: beyond, it is data.
const WORD_BYTES_MAX: usize = 120;

/// The words of a text in order. Addresses, paths and pieces of code are none, and break what they stand in.
pub(crate) fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut joined = false;
    for line in lines(text) {
        // A phrase goes on over the end of a line where the text was only folded there.
        joined &= line.continues;
        for chunk in chunks(&text[line.range.clone()]) {
            let at = line.range.start + chunk.start;
            let chunk = &text[at..at + chunk.len()];
            if is_code(chunk) {
                joined = false;
            } else {
                joined = split(chunk, at, joined, line.heading, &mut words);
            }
        }
    }
    words
}

/// A line that holds something.
pub(crate) struct Line {
    pub(crate) range: Range<usize>,
    /// The line before it goes on in this one.
    continues: bool,
    pub(crate) heading: bool,
}

/// The lines of a text that hold something.
pub(crate) fn lines(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut at, mut blank) = (0, true);
    for raw in text.split_inclusive('\n') {
        let trimmed = raw.trim();
        let start = at + (raw.len() - raw.trim_start().len());
        at += raw.len();
        if trimmed.is_empty() {
            blank = true;
            continue;
        }
        let marked = trimmed.starts_with(['#', '*', '-', '|', '>', '•', '·', '○', '□', '■', '※', '●', '◦']);
        let numbered = trimmed.starts_with(|c: char| c.is_numeric());
        let heading = is_marked_heading(trimmed);
        let continues = !blank && !marked && !numbered && lines.last().is_some_and(|line| !line.heading);
        lines.push(Line { range: start..start + trimmed.len(), continues, heading });
        blank = false;
    }
    if let Some(first) = lines.first_mut() {
        // The first line is the title where it is short enough to be one.
        let line = &text[first.range.clone()];
        first.heading |= line.len() <= 160 && !line.ends_with(['.', '다']) && text.len() > 4 * line.len();
    }
    lines
}

fn is_marked_heading(line: &str) -> bool {
    let marks = line.bytes().take_while(|b| *b == b'#').count();
    (1..=6).contains(&marks) && line[marks..].starts_with(' ')
}

/// Runs of what is not blank.
fn chunks(line: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].find(|c: char| !c.is_whitespace())?;
        at = line[start..].find(char::is_whitespace).map_or(line.len(), |length| start + length);
        Some(start..at)
    })
}

/// Addresses, paths, and what programs say to each other.
fn is_code(chunk: &str) -> bool {
    let inside = chunk.trim_matches(|c: char| !c.is_alphanumeric());
    inside.contains("://")
        || inside.contains(['\\', '@', '_', '=', '{', '}', '<', '>'])
        || inside.contains("::")
        || (inside.contains('/') && (inside.contains('.') || inside.matches('/').count() > 2))
}

/// The words within a chunk. Says whether the next word is joined to the last of this chunk.
fn split<'t>(chunk: &'t str, at: usize, mut joined: bool, heading: bool, words: &mut Vec<Word<'t>>) -> bool {
    let mut start = None;
    let mut push = |range: Range<usize>, joined: bool| {
        if range.len() <= WORD_BYTES_MAX {
            words.push(Word { text: &chunk[range.clone()], at: at + range.start, joined, heading });
        }
    };
    let mut rest = chunk.char_indices().peekable();
    while let Some((i, c)) = rest.next() {
        let next = rest.peek().map(|(_, c)| *c);
        if c.is_alphanumeric() || is_mark(c) || (start.is_some() && holds(c, next)) {
            start.get_or_insert(i);
            continue;
        }
        if let Some(from) = start.take() {
            push(from..i, joined);
        }
        joined = false;
    }
    if let Some(from) = start {
        push(from..chunk.len(), joined);
        joined = true;
    }
    joined
}

/// Combining marks belong to the letter before them.
fn is_mark(c: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&c)
}

/// Whether a mark inside a word does not end it: `state-of-the-art`, `C++`, `v1.2`, `don't`.
fn holds(c: char, next: Option<char>) -> bool {
    match c {
        '+' | '#' => next.is_none_or(|n| !n.is_alphanumeric()),
        '-' | '\'' | '’' | '.' | '&' | '‐' | '‑' => next.is_some_and(|n| n.is_ascii_alphanumeric()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    fn shown(text: &str) -> Vec<String> {
        let mark = |joined| if joined { "+" } else { "" };
        words(text).iter().map(|w| format!("{}{}", mark(w.joined), w.text)).collect()
    }

    #[test]
    fn words_keep_what_belongs_to_them_and_know_what_they_are_joined_to() {
        assert_eq!(shown("state-of-the-art C++, v1.2"), ["state-of-the-art", "+C++", "v1.2"]);
        assert_eq!(shown("메시지 큐(queue)를 쓴다"), ["메시지", "+큐", "queue", "를", "+쓴다"]);
    }

    #[test]
    fn a_phrase_goes_on_over_a_folded_line_and_not_over_the_end_of_a_sentence() {
        assert_eq!(shown("a text of job\nqueues"), ["a", "+text", "+of", "+job", "+queues"]);
        assert_eq!(shown("a text of jobs.\nqueues"), ["a", "+text", "+of", "+jobs", "queues"]);
        assert_eq!(shown("a text of job\n\nqueues"), ["a", "+text", "+of", "+job", "queues"]);
    }

    #[test]
    fn addresses_paths_and_code_are_no_words() {
        assert_eq!(shown("see https://a.example/b docs/ai/spec.md a@b.example MY_FLAG now"), ["see", "now"]);
    }

    #[test]
    fn a_folded_line_goes_on_and_a_list_does_not() {
        assert_eq!(shown("a long\nsentence"), ["a", "+long", "+sentence"]);
        assert_eq!(shown("first\n- second\n\nthird"), ["first", "second", "third"]);
    }
}
